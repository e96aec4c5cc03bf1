//! What is told of a mechanism, and beside it, where ledgers are invented.

use super::*;
use crate::explain::windows::ArmWindows;
use crate::model::Unit;

/// What a model that agrees with the clock says of a place: mechanisms with their parts, the first of which is named.
fn ledger_of<const N: usize>(
    place: &str,
    row: &FunctionRow,
    share: &dyn Fn(f64) -> Share,
    mechanisms: [(Mechanism, f64); N],
) -> Ledger {
    let all = mechanisms[0].1;
    let line = |(nth, (mechanism, part)): (usize, (Mechanism, f64))| LedgerLine {
        mechanism,
        per_thousand: Some([0.0, 5.0]),
        part: share(part),
        cycles_per_instruction: [0.0, 0.5],
        for_each_percent: part,
        site: None,
        is_named: nth == 0,
        is_part: false,
    };
    Ledger {
        place: place.into(),
        with: Vec::new(),
        is_whole: false,
        slow_arm: Arm::B,
        cycles_per_instruction: [row.before.clone(), row.after.clone()],
        predicted: share(all),
        measured: share(all),
        core: CoreTaken::plain(MemoryRenaming::Never),
        counted: true,
        agrees: true,
        microcode_percent: 0.0,
        undecided: None,
        lines: mechanisms.into_iter().enumerate().map(line).collect(),
    }
}

/// Shares of other values that are as certain as that of a row.
fn shares_like(row: &FunctionRow) -> impl Fn(f64) -> Share + use<> {
    let percent = row.share_of_difference.percent.clone();
    move |value| Share {
        percent: Measurement { value, ..percent.clone() },
        of: Whole::DifferenceInProcessorTime,
    }
}

#[test]
fn chains_and_units_are_not_named_where_microcode_is_most_of_the_difference() {
    let e = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]).explain().unwrap();
    let row = &e.rows[0];
    let is_named = |mechanism, microcode_percent| {
        let ledger = ledger_of("decode", row, &shares_like(row), [(mechanism, 90.0)]);
        let mut ledger = Ledger { microcode_percent, ..ledger };
        ledger.names_no_chain_in_microcode();
        ledger.named().is_some()
    };
    let (chains, units) = (Mechanism::LongChains, Mechanism::BusyPorts);
    assert!(is_named(chains, 49.0) && !is_named(chains, 50.0) && !is_named(units, 254.0));
    assert!(is_named(Mechanism::Microcode, 254.0) && is_named(Mechanism::BlockedLoads, 254.0));
}

#[test]
fn a_second_mechanism_what_hides_it_and_the_kernel_are_told_from_a_quarter_on() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
    let mut e = scene.explain().unwrap();
    let row = e.rows[0].clone();
    let share = |value: f64| {
        let how = "invented".into();
        let percent = Measurement {
            value,
            unit: Unit::Percent,
            low: value - 1.0,
            high: value + 1.0,
            n: 2,
            how,
        };
        Share { percent, of: Whole::DifferenceInProcessorTime }
    };
    let mut told = |hidden: f64, second: f64, in_kernel: f64| {
        let divisions = [(Mechanism::Divisions, 60.0), (Mechanism::LockedOperations, hidden)];
        let branches = [(Mechanism::MispredictedBranches, second)];
        e.ledgers = vec![
            ledger_of("divide", &row, &share, divisions),
            ledger_of("choose", &row, &share, branches),
        ];
        e.kernel.part = Some(share(in_kernel));
        e.conclude();
        assert_eq!(e.conclusion, Conclusion::Mechanism);
        let said = summary::summary(&e).unwrap();
        assert!(said.starts_with("divisions and roots in divide; "), "{said}");
        let parts = [
            "; without atomic operations and fences alone 50 % less: each hides behind the other",
            "; besides, mispredicted branches in choose, without which 35 % less",
            "; besides, the kernel: ",
        ];
        parts.map(|part| said.contains(part))
    };
    assert_eq!(told(50.0, 35.0, 30.0), [true; 3]);
    assert_eq!(told(40.0, 20.0, 20.0), [false; 3]);
}

#[test]
fn what_rep_moves_in_one_build_alone_is_more_work_where_the_model_gives_it_most() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
    let mut e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::SlowerWork);
    let row = e.rows[0].clone();
    let share = shares_like(&row);
    let mut told = |microcode_percent: f64, instructions: [u64; 2], bytes: [u64; 2]| {
        let ledger = ledger_of("encode", &row, &share, [(Mechanism::LongChains, 0.0)]);
        e.ledgers = vec![Ledger { microcode_percent, ..ledger }];
        e.ledgers[0].lines.clear();
        let work = e.work.as_mut().unwrap();
        work.instructions = Counts::of([&instructions[..1], &instructions[1..]]).unwrap();
        work.string_bytes = Counts::of([&bytes[..1], &bytes[1..]]).unwrap();
        e.conclude();
        (e.conclusion, summary::summary(&e).unwrap())
    };
    let (alike, gigabytes) = ([1_000_000_000, 1_010_000_000], [0, 6_400_000_000]);
    let (conclusion, said) = told(50.0, alike, gigabytes);
    assert_eq!(conclusion, Conclusion::MoreWork);
    let start = "more work: AFTER fills, copies or searches 6.400 GB by `rep` instructions (BEFORE 0.000 GB), which take \
                 50 % of the difference in processor time by the model of the core, most of all in ";
    assert!(said.starts_with(start), "{said}");
    assert_ne!(told(49.0, alike, gigabytes).0, Conclusion::MoreWork);
    // BEFORE does it by other instructions: 100 million moves of 64 bytes, of which it may execute half.
    let others = |more: u64| [1_000_000_000 + more, 1_000_000_000];
    assert_eq!(told(90.0, others(49_000_000), gigabytes).0, Conclusion::MoreWork);
    assert_ne!(told(90.0, others(50_000_000), gigabytes).0, Conclusion::MoreWork);
    // Twice as much, by calls that are themselves more of what is executed than the moves.
    let (conclusion, said) =
        told(64.0, [1_000_000_000, 1_079_000_000], [2_160_000_000, 4_330_000_000]);
    assert_eq!(conclusion, Conclusion::MoreWork);
    assert!(said.contains("4.330 GB by `rep` instructions (BEFORE 2.160 GB), which take 64 %"));
    // As much in both.
    assert_ne!(told(90.0, alike, [4_300_000_000, 6_400_000_000]).0, Conclusion::MoreWork);
}

#[test]
fn places_that_no_window_holds_want_more_windows_from_a_quarter_of_the_difference_on() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
    let row = scene.explain().unwrap().rows[0].clone();
    let is_unseen = |part: f64, seen: [u64; 2]| {
        let mut row = row.clone();
        let code = ObjectCode::NotCompared;
        row.place = Place::Object { name: "libc.so".into(), code, most_in: None };
        row.share_of_difference.percent.value = part;
        let arms = seen.map(|seen| ArmWindows::of_object("libc.so", seen, 1_000_000));
        unseen::is_unseen(
            &[row],
            &[BothArms { core: CoreTaken::plain(MemoryRenaming::Never), arms }],
        )
    };
    assert!(is_unseen(25.0, [100_000, 9_999]) && is_unseen(25.0, [0, 100_000]));
    assert!(!is_unseen(24.0, [100_000, 0]) && !is_unseen(90.0, [10_000; 2]));
    assert!(!unseen::is_unseen(std::slice::from_ref(&row), &[]), "nothing can be followed");
    // In the windows, but with one instruction of two that whole runs execute.
    let is_half_seen = |executed: u64| {
        let arms = [Arm::A, Arm::B].map(|arm| {
            let start = row.place.function(arm).unwrap().start;
            let in_run = [(start, executed), (Svma(start.0 + 1), 100 - executed)];
            ArmWindows::of_insn(start, 100_000, &in_run)
        });
        let core = CoreTaken::plain(MemoryRenaming::Never);
        unseen::is_unseen(std::slice::from_ref(&row), &[BothArms { core, arms }])
    };
    assert!(is_half_seen(96) && !is_half_seen(97));
}

#[test]
fn windows_start_at_calls_of_a_function_that_those_of_one_arm_have_not_met() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
    let row = scene.explain().unwrap().rows[0].clone();
    let [before, after] = [Arm::A, Arm::B].map(|arm| row.place.function(arm).unwrap().start);
    let calls = |part: f64, calls: u64, met: bool| {
        let mut row = row.clone();
        row.share_of_difference.percent.value = part;
        let seen = ArmWindows::of_insn(after, 100_000, &[(after, calls)]);
        let other = if met { before } else { Svma(1) };
        let arms = [ArmWindows::of_insn(other, 100_000, &[(before, calls)]), seen];
        let core = CoreTaken::plain(MemoryRenaming::Never);
        unseen::unseen_calls(&[row], &BothArms { core, arms })
    };
    assert_eq!(calls(25.0, 20_000, false), [(Arm::A, before, 20_000)]);
    assert_eq!(calls(24.0, 100, false), [], "a small part of the difference");
    assert_eq!(calls(25.0, 20_001, false), [], "too many to wait for");
    assert_eq!(calls(25.0, 100, true), [], "both have met it");
}

#[test]
fn places_are_no_whole_where_a_quarter_of_the_difference_is_in_functions_of_one_build() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
    let row = scene.explain().unwrap().rows[0].clone();
    let is_whole = |part: f64, is_gone: bool| {
        let mut other = row.clone();
        other.share_of_difference.percent.value = part;
        if let Place::Function { after, .. } = &mut other.place
            && is_gone
        {
            *after = None;
        }
        joined::has_same_functions(&[row.clone(), other])
    };
    assert!(is_whole(24.0, true) && is_whole(-24.0, true) && is_whole(-81.0, false));
    assert!(!is_whole(25.0, true) && !is_whole(-25.0, true));
}

#[test]
fn a_mechanism_of_the_model_is_told_where_it_is_the_larger_part_and_not_a_small_one() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_400_000_000]);
    let mut e = scene.explain().unwrap();
    let share = shares_like(&e.rows[0]);
    let ledger = |part: f64| {
        let branches = (Mechanism::MispredictedBranches, part);
        ledger_of("decode", &e.rows[0], &share, [branches])
    };
    let work = e.work.clone().unwrap();
    let with = |more: f64| {
        let mut work = Work { more_at_mean_percent: more, ..work.clone() };
        work.more_instructions.percent =
            Measurement { value: more, low: 20.0, ..share(more).percent };
        work
    };
    let cases = [(50.0, 40.0), (49.0, 40.0), (55.0, 60.0), (70.0, 60.0)];
    let cases = cases.map(|(part, more)| (vec![ledger(part)], with(more)));
    let ends = cases.map(|(ledgers, work)| {
        (e.ledgers, e.work) = (ledgers, Some(work));
        e.conclude();
        e.conclusion == Conclusion::Mechanism
    });
    assert_eq!(ends, [true, false, false, true]);
}

#[test]
fn a_mechanism_that_is_a_good_part_of_slower_work_is_told_as_that() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_050_000_000]);
    let mut e = scene.explain().unwrap();
    let share = shares_like(&e.rows[0]);
    let parts = [24.0, 25.0, 49.0];
    let ledgers = parts
        .map(|part| vec![ledger_of("decode", &e.rows[0], &share, [(Mechanism::Divisions, part)])]);
    let told = ledgers.map(|ledgers| {
        e.ledgers = ledgers;
        e.conclude();
        assert_eq!(e.conclusion, Conclusion::SlowerWork);
        let said = summary::summary(&e).unwrap();
        assert_ne!(said.contains("; of that, divisions"), said.contains("no mechanism"), "{said}");
        said.contains("; of that, divisions and roots in decode; the model")
    });
    assert_eq!(told, [false, true, true]);
}

#[test]
fn more_instructions_that_take_less_each_are_no_cause_where_nothing_is_left_without_a_mechanism() {
    let mut scene = Scene::new([false, false], 0.5, [(1000, 0), (1500, 0)]);
    scene.bench.work = executes([1_000_000_000, 2_250_000_000]);
    let mut e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::MoreWork);
    let row = e.rows[0].clone();
    let share = shares_like(&row);
    let mut told = |left: f64, ns_per_instruction: [f64; 2]| {
        let mut ledger =
            ledger_of("step", &row, &share, [(Mechanism::MispredictedBranches, 100.0)]);
        ledger.lines[0].for_each_percent = 100.0 - left;
        e.ledgers = vec![ledger];
        let work = e.work.as_mut().unwrap();
        work.ns_per_instruction = ns_per_instruction;
        // As much as there can be.
        work.more_at_mean_percent = 101.0;
        work.more_instructions.percent.value = 101.0;
        e.conclude();
        e.conclusion
    };
    assert_eq!(told(20.0, [1.0, 0.7]), Conclusion::Mechanism);
    // More instructions bring a part of it along.
    assert_eq!(told(21.0, [1.0, 0.7]), Conclusion::MoreWork);
    assert_eq!(told(0.0, [1.0, 0.9]), Conclusion::MoreWork);
}
