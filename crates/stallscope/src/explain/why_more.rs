//! Why a place executes more: it is called more often, or a call executes more, and what that consists of.
//!
//! The mean size of what loads and stores move tells vectors from single values; how many of the instructions load or store
//! tells code that keeps its values in memory, as compilers write it that do not optimise. Counts alone; what the source
//! says stays for whoever reads it.

use super::summary::LEAST_BESIDE;
use super::work::HARDLY;
use super::{Executed, FunctionRow, Place};
use crate::compare::Arm;

/// Ratios nearer to one than this are no difference that is told.
const LEAST_TIMES: f64 = 1.1;
/// Beyond this the numbers of calls tell more than their ratio.
const MANY_TIMES: f64 = 100.0;
/// Loads and stores of so many bytes on average are vectors where those of the other build are half as wide at the most.
const VECTOR_BYTES: f64 = 8.5;
const LEAST_TIMES_THE_WIDTH: f64 = 2.0;
/// Of another function, it is enough if they are so many times as wide.
const LEAST_TIMES_ELSEWHERE: f64 = 1.5;
/// Where this part of the instructions load or store, and so many times the other build's part, values are kept in memory.
const LEAST_IN_MEMORY: f64 = 0.5;
const LEAST_TIMES_IN_MEMORY: f64 = 1.4;

/// What the slow build does more of in a place that both have; `None` where nothing was counted that tells.
pub(super) fn why_more(row: &FunctionRow, slow: Arm) -> Option<String> {
    let both = row.executed?;
    let [here, there] = [slow, slow.other()].map(|arm| both[arm.index()]);
    let times = ratio(here.instructions, there.instructions)?;
    if times < LEAST_TIMES {
        return None;
    }
    // What a library does is what was asked of it, however it was compiled.
    let both = [here, there];
    let said = match row.place {
        Place::Function { .. } => {
            vec![
                calls(both, slow),
                vectors(both, slow, LEAST_TIMES_THE_WIDTH),
                in_memory(both, slow),
            ]
        }
        Place::Object { .. } => vec![moved(both, slow)],
    };
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn calls([here, there]: [Executed; 2], slow: Arm) -> Option<String> {
    let calls = ratio(here.entries, there.entries)?;
    let a_call = ratio(here.instructions, there.instructions)? / calls;
    if calls >= MANY_TIMES {
        let fast = slow.other().build_name();
        return Some(format!("called {} times, in {fast} {}", here.entries, there.entries));
    }
    let is_apart = |times: f64| times.max(1.0 / times) >= LEAST_TIMES;
    Some(match (is_apart(calls), is_apart(a_call)) {
        (true, false) => format!("called {calls:.2} times as often"),
        (false, true) => format!("called as often, with {a_call:.2} times the instructions a call"),
        _ => format!(
            "called {calls:.2} times as often, with {a_call:.2} times the instructions a call"
        ),
    })
}

fn vectors(both: [Executed; 2], slow: Arm, least_times: f64) -> Option<String> {
    let [here, there] = both.map(|it| it.accessed_bytes as f64 / it.accesses.max(1) as f64);
    (there >= VECTOR_BYTES && there >= least_times * here).then(|| {
        let [slow, fast] = [slow, slow.other()].map(Arm::build_name);
        let has = if here >= VECTOR_BYTES { "wider vectors" } else { "vectors" };
        format!("a load or store of {slow} moves {here:.1} bytes, of {fast} {there:.1}: {fast} has {has} there")
    })
}

/// Of a place that the fast build hardly enters, the one that it is in instead, which the slow build hardly enters, and what tells
/// both apart.
pub(super) fn in_place_of(row: &FunctionRow, rows: &[FunctionRow], slow: Arm) -> Option<String> {
    let alone = |row: &FunctionRow, arm: Arm| {
        let [here, there] = [arm, arm.other()].map(|arm| row.executed.map(|it| it[arm.index()]));
        let (here, there) = (here?, there?);
        (there.instructions as f64 * HARDLY <= here.instructions as f64).then_some(here)
    };
    let here = alone(row, slow)?;
    let less = |row: &&FunctionRow| row.share_of_difference.percent.value <= -LEAST_BESIDE;
    let others = rows.iter().filter(less);
    let (other, there) = others
        .filter_map(|other| Some((other, alone(other, slow.other())?)))
        .max_by_key(|(_, there)| there.instructions)?;
    let fast = slow.other().build_name();
    let apart = vectors([here, there], slow, LEAST_TIMES_ELSEWHERE);
    let apart = apart.map(|apart| format!(": {apart}")).unwrap_or_default();
    Some(format!("where {fast} is in {}{apart}", other.place.where_words()))
}

fn moved([here, there]: [Executed; 2], slow: Arm) -> Option<String> {
    let times = ratio(here.accessed_bytes, there.accessed_bytes)?;
    (times >= LEAST_TIMES).then(|| {
        let gigabytes = |it: Executed| it.accessed_bytes as f64 / 1e9;
        let fast = slow.other().build_name();
        format!(
            "its loads and stores move {:.3} GB, in {fast} {:.3}",
            gigabytes(here),
            gigabytes(there)
        )
    })
}

fn in_memory(both: [Executed; 2], slow: Arm) -> Option<String> {
    let [here, there] = both.map(|it| it.accesses as f64 / it.instructions.max(1) as f64);
    (here >= LEAST_IN_MEMORY && here >= LEAST_TIMES_IN_MEMORY * there).then(|| {
        let [slow, fast] = [slow, slow.other()].map(Arm::build_name);
        format!(
            "for 100 instructions {slow} loads and stores {:.0} times, {fast} {:.0}: {slow} keeps its values in memory",
            100.0 * here,
            100.0 * there
        )
    })
}

fn ratio(here: u64, there: u64) -> Option<f64> {
    (here > 0 && there > 0).then(|| here as f64 / there as f64)
}

#[cfg(test)]
mod tests {
    use super::super::work::tests::row;
    use super::*;
    use crate::explain::Share;
    use crate::layout::Change;
    use crate::model::Measurement;

    fn executed([instructions, entries, accesses, accessed_bytes]: [u64; 4]) -> Executed {
        Executed { instructions, entries, accesses, accessed_bytes, ..Executed::default() }
    }

    fn said(before: [u64; 4], after: [u64; 4], slow: Arm) -> Option<String> {
        why_more(
            &at(
                Place::Function {
                    name: "f".into(),
                    before: None,
                    after: None,
                    change: Change::Changed,
                },
                before,
                after,
            ),
            slow,
        )
    }

    fn at(place: Place, before: [u64; 4], after: [u64; 4]) -> FunctionRow {
        let executed = Some([before, after].map(executed));
        FunctionRow { executed, place, ..row([1.0, 2.0], 100.0) }
    }

    #[test]
    fn calls_and_what_a_call_executes_are_told_apart() {
        let one = [1000, 10, 300, 1200];
        let of = |instructions, entries| said(one, [instructions, entries, 300, 1200], Arm::B);
        assert_eq!(of(2000, 20).unwrap(), "called 2.00 times as often");
        assert_eq!(
            of(2000, 10).unwrap(),
            "called as often, with 2.00 times the instructions a call"
        );
        assert_eq!(
            of(3000, 20).unwrap(),
            "called 2.00 times as often, with 1.50 times the instructions a call"
        );
        assert_eq!(
            of(2000, 5).unwrap(),
            "called 0.50 times as often, with 4.00 times the instructions a call"
        );
        assert_eq!(of(90_000, 1000).unwrap(), "called 1000 times, in BEFORE 10");
        assert_eq!(of(1050, 10), None, "hardly more");
        assert_eq!(of(900, 10), None, "less");
        assert_eq!(of(2000, 0), None, "of a library nothing is known of calls");
        let both = said([2000, 20, 300, 1200], one, Arm::A).unwrap();
        assert_eq!(both, "called 2.00 times as often");
    }

    #[test]
    fn vectors_are_told_by_what_loads_and_stores_move() {
        let narrow = [4000, 0, 1000, 1000];
        let wide = |bytes: u64| [1000, 0, 100, 100 * bytes];
        assert_eq!(
            said(narrow, wide(32), Arm::A).unwrap(),
            "a load or store of BEFORE moves 1.0 bytes, of AFTER 32.0: AFTER has vectors there"
        );
        assert_eq!(said(narrow, wide(8), Arm::A), None, "single values that are wider");
        assert_eq!(said([4000, 0, 1000, 16_000], wide(31), Arm::A), None, "both have them");
    }

    #[test]
    fn a_place_that_the_fast_build_hardly_enters_has_one_that_it_is_in_instead() {
        let place = |name: &str| Place::Function {
            name: name.into(),
            before: None,
            after: None,
            change: Change::Changed,
        };
        let of = |narrow: [u64; 4], there: u64, part: f64| {
            let here = at(place("narrow"), [there, 0, 0, 0], narrow);
            let other = at(place("wide"), [400, 1, 100, 6000], [there, 0, 0, 0]);
            let percent = Measurement { value: part, ..other.share_of_difference.percent };
            let share_of_difference = Share { percent, ..other.share_of_difference };
            let other = FunctionRow { share_of_difference, ..other };
            in_place_of(&here, &[here.clone(), other], Arm::B)
        };
        let wide = "a load or store of AFTER moves 32.0 bytes, of BEFORE 60.0: BEFORE has wider vectors there";
        let narrow = [900, 1, 200, 6400];
        assert_eq!(of(narrow, 0, -70.0).unwrap(), format!("where BEFORE is in wide: {wide}"));
        assert_eq!(of([900, 1, 200, 8400], 0, -70.0).unwrap(), "where BEFORE is in wide");
        assert_eq!(of(narrow, 0, -24.0), None, "too little");
        assert_eq!(of(narrow, 30, -70.0), None, "both are in both");
    }

    #[test]
    fn values_in_memory_are_told_by_how_much_is_loaded_and_stored() {
        let dense = said([1000, 0, 250, 1000], [3000, 0, 1800, 7200], Arm::B).unwrap();
        assert_eq!(
            dense,
            "for 100 instructions AFTER loads and stores 60 times, BEFORE 25: AFTER keeps its values in memory"
        );
        assert_eq!(said([1000, 0, 450, 1800], [3000, 0, 1800, 7200], Arm::B), None);
        assert_eq!(said([1000, 0, 100, 400], [3000, 0, 1400, 5600], Arm::B), None);
        // A library keeps no values: it moves what it is given.
        let library = row([1.0, 2.0], 100.0).place;
        let of_library = at(library, [1000, 0, 250, 1_000_000], [3000, 0, 1800, 7_200_000]);
        let said = why_more(&of_library, Arm::B).unwrap();
        assert_eq!(said, "its loads and stores move 0.007 GB, in BEFORE 0.001");
    }
}
