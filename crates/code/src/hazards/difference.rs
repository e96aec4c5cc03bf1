//! The findings of two builds side by side: new, gone, moved, the same.
//!
//! By their stable ids, first within the same object, then anywhere. Several findings of one id (the
//! same static function in two files) are paired one by one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::ScanReport;
use crate::model::{Finding, FindingId, Svma};

/// A finding with the object that it is in.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlacedFinding {
    /// The member of an archive; absent for a file of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

/// A finding of both builds that stands elsewhere now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MovedFinding {
    /// Its stable name.
    pub id: FindingId,
    /// Id of the rule.
    pub rule: String,
    /// The function, in the second build.
    pub function: String,
    /// Address in the old build.
    pub from: Svma,
    /// Address in the new build.
    pub to: Svma,
    /// The object it was in, where that was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_object: Option<String>,
}

/// The findings of two builds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FindingsDifference {
    /// Only in the second build, most deserving first.
    pub new: Vec<PlacedFinding>,
    /// Only in the first build, most deserving first.
    pub gone: Vec<PlacedFinding>,
    /// In both, at another address.
    pub moved: Vec<MovedFinding>,
    /// In both, at the same address.
    pub same: usize,
    /// Findings of each build that its placement makes, and that no profile calls hot: in no list, because any edit moves
    /// them.
    pub by_placement: [usize; 2],
}

/// One finding of a build that has no partner yet.
struct Unmatched<'a> {
    object: Option<&'a str>,
    finding: &'a Finding,
}

impl FindingsDifference {
    /// Compares the scans of two builds: one report each, or one for each member of an archive, with
    /// the name of the member.
    #[must_use]
    pub fn of(
        before: &[(Option<String>, ScanReport)],
        after: &[(Option<String>, ScanReport)],
    ) -> Self {
        let mut difference = Self::default();
        let (mut left, mut right) = (all(before), all(after));
        difference.pair(&mut left, &mut right, |l| (l.object.map(str::to_owned), id(l)));
        difference.pair(&mut left, &mut right, |l| (None, id(l)));
        let left_out = |reports: &[(Option<String>, ScanReport)]| {
            reports.iter().flat_map(|(_, r)| &r.findings).filter(|f| !f.is_judged()).count()
        };
        difference.by_placement = [left_out(before), left_out(after)];
        difference.new = ranked(right);
        difference.gone = ranked(left);
        difference.moved.sort_by(|a, b| (a.to, &a.id).cmp(&(b.to, &b.id)));
        difference
    }

    /// Takes what has the same key out of both lists, in order.
    fn pair(
        &mut self,
        left: &mut Vec<Unmatched<'_>>,
        right: &mut Vec<Unmatched<'_>>,
        key: impl Fn(&Unmatched<'_>) -> (Option<String>, String),
    ) {
        let mut waiting: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, unmatched) in right.iter().enumerate().rev() {
            waiting.entry(key(unmatched)).or_default().push(index);
        }
        let mut taken = vec![false; right.len()];
        left.retain(|old| {
            let Some(index) = waiting.get_mut(&key(old)).and_then(Vec::pop) else { return true };
            taken[index] = true;
            self.book(old, &right[index]);
            false
        });
        let mut index = 0;
        right.retain(|_| {
            index += 1;
            !taken[index - 1]
        });
    }

    fn book(&mut self, old: &Unmatched<'_>, new: &Unmatched<'_>) {
        let (from, to) = (old.finding.site.svma, new.finding.site.svma);
        if from == to && old.object == new.object {
            self.same += 1;
            return;
        }
        self.moved.push(MovedFinding {
            id: new.finding.id.clone(),
            rule: new.finding.rule.clone(),
            function: new.finding.site.function.clone(),
            from,
            to,
            from_object: old.object.filter(|_| old.object != new.object).map(str::to_owned),
        });
    }
}

fn id(unmatched: &Unmatched<'_>) -> String {
    unmatched.finding.id.0.clone()
}

fn all(reports: &[(Option<String>, ScanReport)]) -> Vec<Unmatched<'_>> {
    let mut list = Vec::new();
    for (object, report) in reports {
        let judged = report.findings.iter().filter(|finding| finding.is_judged());
        list.extend(judged.map(|finding| Unmatched { object: object.as_deref(), finding }));
    }
    list
}

fn ranked(unmatched: Vec<Unmatched<'_>>) -> Vec<PlacedFinding> {
    let owned = |l: Unmatched<'_>| PlacedFinding {
        object: l.object.map(str::to_owned),
        finding: l.finding.clone(),
    };
    let mut list: Vec<PlacedFinding> = unmatched.into_iter().map(owned).collect();
    list.sort_by(|a, b| {
        let (a, b) = (&a.finding, &b.finding);
        b.score.total_cmp(&a.score).then(a.site.svma.cmp(&b.site.svma))
    });
    list
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::code::fixture;
    use crate::hazards::{ScanFilter, scan};
    use crate::machine::{Design, Microarchitecture};

    fn report(functions: &[(&str, &[u8])]) -> ScanReport {
        let image = fixture::image(functions).unwrap();
        let profile = Design::of(Microarchitecture::Zen5);
        let filter =
            ScanFilter { rules: vec![&crate::hazards::STORE_FORWARD], ..ScanFilter::default() };
        scan(&image, &filter, &profile, None)
    }

    fn difference(before: &[&ScanReport], after: &[&ScanReport]) -> FindingsDifference {
        let named = |reports: &[&ScanReport]| -> Vec<_> {
            let number = |i: usize| (reports.len() > 1).then(|| format!("{i}.o"));
            reports.iter().enumerate().map(|(i, r)| (number(i), (*r).clone())).collect()
        };
        FindingsDifference::of(&named(before), &named(after))
    }

    #[test]
    fn findings_are_told_apart_by_their_ids() {
        let wide = fixture::ring_loop(true);
        let old = report(&[("decode", &wide)]);
        let same = difference(&[&old], &[&old]);
        assert_eq!((same.same, same.new.len(), same.gone.len()), (1, 0, 0));
        let pushed = report(&[("pad", &[0xc3]), ("decode", &wide)]);
        let moved = difference(&[&old], &[&pushed]);
        assert_eq!((moved.moved.len(), moved.new.len(), moved.gone.len()), (1, 0, 0));
        let more = report(&[("decode", &wide), ("again", &wide)]);
        let new = difference(&[&old], &[&more]);
        assert_eq!((new.same, new.new.len()), (1, 1));
        assert_eq!(new.new[0].finding.site.function, "again");
        assert_eq!(difference(&[&more], &[&old]).gone.len(), 1);
        // The object of an archive that it is in now is another.
        let none = report(&[("pad", &[0xc3])]);
        let elsewhere = difference(&[&old, &none], &[&none, &old]);
        assert_eq!((elsewhere.moved.len(), elsewhere.new.len()), (1, 0));
        assert_eq!(elsewhere.moved[0].from_object.as_deref(), Some("0.o"));
    }

    #[test]
    fn what_placement_makes_is_in_no_list_unless_a_profile_calls_it_hot() {
        let old = report(&[("decode", &fixture::ring_loop(true))]);
        let mut new = old.clone();
        let mut placed = old.findings[0].clone();
        placed.by_placement = true;
        placed.id = FindingId("loop-alignment-1".into());
        new.findings.push(placed);
        let found = difference(&[&old], &[&new]);
        assert_eq!((found.new.len(), found.same, found.by_placement), (0, 1, [0, 1]));
        new.findings[1].heat_share = Some(0.004_9);
        assert_eq!(difference(&[&old], &[&new]).new.len(), 0);
        new.findings[1].heat_share = Some(crate::model::LEAST_SHARE);
        let hot = difference(&[&old], &[&new]);
        assert_eq!((hot.new.len(), hot.by_placement), (1, [0, 0]));
        assert_eq!(difference(&[&new], &[&old]).gone.len(), 1);
    }

    proptest! {
        /// Every finding is booked once, as by counting ids.
        #[test]
        fn nothing_is_lost(
            before in prop::collection::vec((0_usize..3, 0_u8..4), 0..9),
            after in prop::collection::vec((0_usize..3, 0_u8..4), 0..9),
        ) {
            let wide = fixture::ring_loop(true);
            let empty = report(&[("f", &wide)]);
            let sample = empty.findings[0].clone();
            let side = |list: &[(usize, u8)]| -> Vec<_> {
                (0..3).map(|object| {
                    let mut report = empty.clone();
                    let own = list.iter().enumerate().filter(|(_, (at, _))| *at == object);
                    report.findings = own.map(|(i, (_, id))| {
                        let mut finding = sample.clone();
                        finding.id = FindingId(format!("r-{id}"));
                        finding.site.svma = Svma(i as u64);
                        finding
                    }).collect();
                    (Some(object.to_string()), report)
                }).collect()
            };
            let found = FindingsDifference::of(&side(&before), &side(&after));
            let both = found.same + found.moved.len();
            prop_assert_eq!(both + found.gone.len(), before.len());
            prop_assert_eq!(both + found.new.len(), after.len());
            let count = |list: &[(usize, u8)], id| list.iter().filter(|(_, i)| *i == id).count();
            let shared: usize = (0..4).map(|id| count(&before, id).min(count(&after, id))).sum();
            prop_assert_eq!(both, shared);
        }
    }
}
