//! Places as one: all that are hot, or a function with what is inlined in it in one build.
//!
//! A function that one build inlines has no time there, and its caller more: neither of the two rows is the same work in both
//! builds, only their sum is.

use super::FunctionRow;
use super::ledger::is_followed;
use super::share::Share;
use super::side::Side;
use super::summary::LEAST_BESIDE;
use super::windows::BothArms;
use super::work::MOST;
use crate::code::Image;
use crate::compare::Arm;
use crate::hazards::{Calls, FunctionView};
use crate::model::{Measurement, Svma};

/// Places that were counted in whole runs, as one.
pub(super) struct Joined<'a> {
    rows: Vec<&'a FunctionRow>,
    /// What a run of each arm spends there.
    pub ns: [f64; 2],
    pub share: Share,
}

impl<'a> Joined<'a> {
    /// None where one of them was not counted.
    pub fn of(rows: Vec<&'a FunctionRow>) -> Option<Self> {
        if rows.iter().any(|row| row.executed.is_none()) {
            return None;
        }
        let mut share = rows.first()?.share_of_difference.clone();
        let of_all = |part: fn(&Measurement) -> f64| {
            rows.iter().map(|row| part(&row.share_of_difference.percent)).sum::<f64>()
        };
        share.percent.value = of_all(|percent| percent.value);
        (share.percent.low, share.percent.high) = (of_all(|it| it.low), of_all(|it| it.high));
        let ns = [|row: &FunctionRow| row.before.value, |row: &FunctionRow| row.after.value]
            .map(|ns| rows.iter().map(|row| ns(row)).sum());
        Some(Self { rows, ns, share })
    }

    /// Of each row, it with the rows that are a part of it in one build (`inlined`); none where it has no such rows.
    pub fn with_inlined(rows: &'a [FunctionRow], images: &[Image; 2]) -> Vec<Option<Self>> {
        let whole = |(row, parts): (&'a FunctionRow, Vec<usize>)| {
            let parts = parts.into_iter().map(|part| &rows[part]);
            Self::of(std::iter::once(row).chain(parts).collect()).filter(|it| it.rows.len() > 1)
        };
        rows.iter().zip(inlined(rows, images)).map(whole).collect()
    }

    /// What is counted with the first of them.
    pub fn parts(&self) -> &[&'a FunctionRow] {
        &self.rows[1..]
    }

    /// All that were counted and followed in windows, where these hold most of the difference: they tell more than the windows
    /// alone, in which each part of a run is there as it happens to be met.
    pub fn of_all(rows: &'a [FunctionRow], windows: &[BothArms]) -> Option<Self> {
        let first = windows.first()?;
        let is_seen = |row: &&FunctionRow| row.executed.is_some() && is_followed(row, first);
        let seen = Self::of(rows.iter().filter(is_seen).collect())?;
        (has_same_functions(rows) && seen.share.percent.value >= MOST).then_some(seen)
    }

    /// What the windows of both builds hold of them.
    pub fn sides(&self, both: &BothArms) -> [Side; 2] {
        [Arm::A, Arm::B].map(|arm| {
            let of_row = |row: &&FunctionRow| {
                let instructions = row.instructions().unwrap_or_default();
                (instructions[arm.index()], both.arms[arm.index()].in_place(arm, &row.place))
            };
            Side::together(&self.rows.iter().map(of_row).collect::<Vec<_>>())
        })
    }
}

/// Whether no good part of the difference is in functions that one build alone has: the other one has what they do in others, and only
/// all of user code is the same then.
pub(super) fn has_same_functions(rows: &[FunctionRow]) -> bool {
    let in_one = rows.iter().filter(|row| !row.place.is_in_both());
    in_one.map(|row| row.share_of_difference.percent.value.abs()).sum::<f64>() < LEAST_BESIDE
}

/// Of each row, the rows that are a part of it in the build that does not have them: functions that it alone calls in the other
/// build, and whose time goes the other way. None where the builds differ by little of that.
fn inlined(rows: &[FunctionRow], images: &[Image; 2]) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new(); rows.len()];
    if has_same_functions(rows) {
        return parts;
    }
    let calls: Vec<[Vec<Svma>; 2]> = rows.iter().map(|row| calls(row, images)).collect();
    for (n, row) in rows.iter().enumerate() {
        let Some((arm, start)) = in_one(row) else { continue };
        let callers: Vec<usize> = (0..rows.len())
            .filter(|caller| rows[*caller].place.is_in_both())
            .filter(|caller| calls[*caller][arm.index()].contains(&start))
            .collect();
        let part = |n: usize| rows[n].share_of_difference.percent.value;
        if let [caller] = callers[..]
            && part(caller) * part(n) < 0.0
        {
            parts[caller].push(n);
        }
    }
    parts
}

/// The build that alone has a function, and where it starts there.
fn in_one(row: &FunctionRow) -> Option<(Arm, Svma)> {
    match [Arm::A, Arm::B].map(|arm| row.place.function(arm)) {
        [Some(function), None] => Some((Arm::A, function.start)),
        [None, Some(function)] => Some((Arm::B, function.start)),
        _ => None,
    }
}

/// Where the calls of a function go in each build.
fn calls(row: &FunctionRow, images: &[Image; 2]) -> [Vec<Svma>; 2] {
    [Arm::A, Arm::B].map(|arm| {
        let function = row.place.function(arm);
        let calls = function.and_then(|it| Calls::of(&FunctionView::of(&images[arm.index()], it)));
        calls.map_or_else(Vec::new, |calls| calls.targets)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::explain::Place;
    use crate::explain::work::tests::row;
    use crate::layout::Change;

    /// Three functions; the first two call the third where they are told to.
    fn image(calls: [bool; 2]) -> Image {
        let to = |from: i32, calls: bool| {
            let call = [&[0xe8][..], &(32 - from - 5).to_le_bytes()].concat();
            let mut code = if calls { call } else { Vec::new() };
            code.resize(15, 0x90);
            code
        };
        let [first, second] = [to(0, calls[0]), to(16, calls[1])];
        fixture::image(&[("first", &first), ("second", &second), ("part", &[0xc3; 15])]).unwrap()
    }

    fn rows(image: &Image, percents: [f64; 3]) -> Vec<FunctionRow> {
        let place = |(n, percent): (usize, f64)| {
            let function = image.functions()[n].clone();
            let after = (n < 2).then(|| function.clone());
            let place = Place::Function {
                name: function.name(),
                before: Some(function),
                after,
                change: Change::Same,
            };
            FunctionRow { place, ..row([10.0, 20.0], percent) }
        };
        percents.into_iter().enumerate().map(place).collect()
    }

    #[test]
    fn what_one_function_alone_calls_is_a_part_of_it_in_the_build_without_it() {
        let parts = |calls: [bool; 2], percents| {
            let images = [image(calls), image([false; 2])];
            inlined(&rows(&images[0], percents), &images)
        };
        let [none, part] = [vec![], vec![2]];
        assert_eq!(
            parts([true, false], [177.0, 2.0, -79.0]),
            [part.clone(), none.clone(), none.clone()]
        );
        assert_eq!(parts([false, true], [2.0, 177.0, -79.0]), [none.clone(), part, none.clone()]);
        let nothing = vec![none; 3];
        assert_eq!(
            parts([true, true], [90.0, 87.0, -79.0]),
            nothing,
            "of which of them is not known"
        );
        assert_eq!(parts([false, false], [177.0, 2.0, -79.0]), nothing);
        assert_eq!(parts([true, false], [60.0, 0.0, 40.0]), nothing, "both take longer");
        assert_eq!(parts([true, false], [110.0, 14.0, -24.0]), nothing, "little of the difference");
    }
}
