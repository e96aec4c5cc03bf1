//! A blocked load with the stores that it reads from, in order of address, and an arrow from each store.

use crate::explain::Cause;
use crate::model::{Grade, Site};

use super::number::Number;

/// Height of a line of the listing, in the unit that the arrows are drawn in.
const LINE: usize = 40;

/// The instructions of one cause.
#[derive(Debug)]
pub(super) struct Listing {
    pub function: String,
    pub mechanism: String,
    pub remedy: String,
    pub grade: Grade,
    pub lines: Vec<Line>,
    pub arrows: Vec<Arrow>,
    pub height: usize,
    pub facts: Vec<(&'static str, Number)>,
}

/// One instruction with its source.
#[derive(Debug)]
pub(super) struct Line {
    pub address: String,
    pub text: String,
    pub source: String,
    pub is_load: bool,
}

/// From a store to the load.
#[derive(Debug)]
pub(super) struct Arrow {
    pub path: String,
    pub head: String,
    pub title: String,
}

impl Listing {
    pub fn of(cause: &Cause) -> Self {
        let finding = &cause.finding;
        let set = finding.sets.get(cause.hottest_set.unwrap_or(0));
        let stores = set.into_iter().flatten().filter_map(|index| finding.others.get(*index));
        let mut sites: Vec<(&Site, bool)> = stores.map(|site| (site, false)).collect();
        sites.push((&finding.site, true));
        sites.sort_by_key(|(site, is_load)| (site.svma, *is_load));
        let middle = |line: usize| LINE * line + LINE / 2;
        let load = sites.iter().position(|(_, is_load)| *is_load).unwrap_or(0);
        let arrows = sites.iter().enumerate().filter(|(_, (_, is_load))| !is_load);
        let arrow = |(nth, (line, (site, _))): (usize, (usize, &(&Site, bool)))| {
            let (from, to, left) =
                (middle(line), middle(load), 30_usize.saturating_sub(9 * (nth % 4)));
            Arrow {
                path: format!("M50 {from}H{left}V{to}H44"),
                head: format!("M42 {}L50 {to}L42 {}Z", to - 5, to + 5),
                title: format!(
                    "the load at {} reads what the store at {} wrote",
                    finding.site.svma, site.svma
                ),
            }
        };
        Self {
            function: finding.site.function.clone(),
            mechanism: finding.mechanism.clone(),
            remedy: finding.remedy.clone(),
            grade: finding.grade,
            arrows: arrows.enumerate().map(arrow).collect(),
            height: LINE * sites.len(),
            lines: sites.iter().map(|(site, is_load)| line(site, *is_load)).collect(),
            facts: facts(cause),
        }
    }
}

fn line(site: &Site, is_load: bool) -> Line {
    let variable = site.variable.as_ref().map(|name| format!("  ; {name}")).unwrap_or_default();
    let source = site.source.iter().filter(|source| source.line > 0).map(ToString::to_string);
    Line {
        address: site.svma.to_string(),
        text: format!("{}{variable}", site.text),
        source: source.take(2).collect::<Vec<String>>().join(", in "),
        is_load,
    }
}

/// What was counted and sampled about it.
fn facts(cause: &Cause) -> Vec<(&'static str, Number)> {
    let share = |share, of: &str| Number::share(share, of);
    let heat = &cause.loop_heat;
    let place = format!("the loop {} to {}", heat.start, heat.end);
    let mut facts = vec![
        ("of its function's samples are in the loop", share(&heat.share_of_function, &place)),
        (
            "of the loop's samples are on the load and behind it",
            share(&cause.share_behind_site, "the load and what waits for it"),
        ),
    ];
    if let Some(counted) = &cause.counted {
        let text = format!("{:.1} %", 100.0 * counted.blocked_share());
        let from = format!(
            "{} of {} executions, counted windows: {}",
            counted.blocked, counted.executions, counted.here.windows
        );
        facts.push(("of its executions were blocked", Number::new(text, from)));
        let there = counted
            .there
            .as_ref()
            .map_or("-".to_owned(), |tally| format!("{:.1}", tally.per_thousand()));
        let text = format!("{:.1}, other build {there}", counted.here.per_thousand());
        facts.push((
            "blocked loads in 1000 instructions of the function",
            Number::new(text, "counted in the windows of both builds"),
        ));
    }
    facts
}
