//! The whole chain on invented machines: every ending, and what may not be said.

use super::simulate::InventedBench;
use super::*;
use crate::code::fixture;
use crate::compare::Settings;
use crate::compare::simulate::{Noise, SimulatedMachine};
use crate::machine::{MemoryRenaming, Microarchitecture};
use crate::model::{FileOffset, Measurement, Svma};
use crate::run::sample::{CallStack, Frame, Stacks};
use crate::sim::core::{Account, BlockedBy, Mechanism};
use crate::trace::engine::DenormalSite;

mod hot_code;
mod removed;
mod told;

/// Two programs of a decoder and a helper; `wide` says which arm has the merged load.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    pub(crate) bench: InventedBench,
}

const HELPER: &[u8] = &[0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3];

fn offset(svma: Svma) -> FileOffset {
    let (start, file) = fixture::CODE_START;
    file.offset((svma.0 - start.0) as i64)
}

/// A window in which the decoder's load was blocked so often.
fn counted(blocked: u64) -> WindowCount {
    let mut load = Account { executions: 1000, ..Account::default() };
    load.events[Mechanism::BlockedLoads as usize] = blocked;
    load.store_edges = 1 << 4;
    let others = Account { executions: 19_000, ..Account::default() };
    let program = [(7, load), (0, others)];
    let at = |(bytes, account)| (offset(fixture::CODE_START.0.offset(bytes)), account);
    let code_at = |bytes| {
        let offset = offset(fixture::CODE_START.0.offset(bytes));
        CodeAt { object: None, offset }
    };
    let pair = |store| BlockedBy { load: code_at(7), store: code_at(store), times: blocked };
    let blocked_by = [19, 24].map(pair).to_vec();
    WindowCount { program: program.map(at).to_vec(), blocked_by, ..WindowCount::default() }
}

impl Scene {
    /// `hits` per arm: in the decoder, right behind its load, and in the helper.
    pub(crate) fn new(wide: [bool; 2], effect: f64, hits: [(u64, u64); 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 5);
        machine.effect_log = f64::ln_1p(effect);
        let mut bench = InventedBench {
            machine,
            settings: Settings::default(),
            hits: [vec![], vec![]],
            stacks: [None, None],
            library_hits: [0, 0],
            kernel_samples: None,
            library: ["/lib/libc.so.6".into(), "/lib/libc.so.6".into()],
            patched_ns: None,
            shared_percents: Vec::new(),
            placements: 0,
            flushed_ns: None,
            denormals: vec![],
            slowest: Arm::B,
            control: None,
            notes: vec![],
            samples: true,
            left: TimeLeft::ANY,
            windows_fail: false,
            work: [None, None],
            counts: wide.map(|wide| Some(counted(if wide { 1000 } else { 0 }))),
        };
        for (arm, name) in ["before", "after"].iter().enumerate() {
            let decoder = fixture::ring_loop(wide[arm]);
            let functions: [(&str, &[u8]); 2] = [("decode", &decoder), ("helper", HELPER)];
            std::fs::write(folder.path().join(name), fixture::program(&functions)).unwrap();
            let starts = fixture::starts(&functions);
            let (in_decoder, in_helper) = hits[arm];
            // Behind the load: the third instruction is the load in either form.
            let behind = starts[0].offset(if wide[arm] { 14 } else { 12 });
            bench.hits[arm] = vec![(offset(behind), in_decoder), (offset(starts[1]), in_helper)];
        }
        Self { folder, bench }
    }

    /// Call stacks: the decoder is called by the helper and by a library; per arm for each, and cut off in the helper.
    pub(crate) fn called_from_two(&mut self, counts: [[u64; 3]; 2]) {
        let program: PathBuf = "/programs/invented".into();
        for (arm, [by_helper, by_library, cut_off]) in counts.into_iter().enumerate() {
            let [decoder, helper] =
                [0, 1].map(|n| Frame { file: Some(0), at: self.bench.hits[arm][n].0 });
            let library = Frame { file: Some(1), at: FileOffset(16) };
            let stack =
                |frames: &[Frame], is_whole| CallStack { frames: frames.to_vec(), is_whole };
            let all = [
                (stack(&[library, helper, decoder], true), by_helper),
                (stack(&[library, decoder], true), by_library),
                (stack(&[helper], false), cut_off),
            ];
            self.bench.stacks[arm] = Some(Stacks {
                period_ns: 1_000_000,
                files: vec![program.clone(), "/none/libother.so.2".into()],
                main_program: Some(0),
                counts: all.into_iter().collect(),
                taken: by_helper + by_library + cut_off,
                cut_off,
                ..Stacks::default()
            });
        }
    }

    pub(crate) fn programs(&self) -> [PathBuf; 2] {
        ["before", "after"].map(|name| self.folder.path().join(name))
    }

    pub(crate) fn explain(&mut self) -> Result<Explanation, ExplainError> {
        let profile = Design::of(Microarchitecture::Zen5);
        let programs = self.programs();
        explain(programs, &mut self.bench, &profile, &mut SourceText::default(), &mut |_| {})
    }
}

#[test]
fn the_first_story_is_explained() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.slow_arm), (Conclusion::Mechanism, Some(Arm::B)));
    let cause = &e.causes[0];
    assert_eq!(cause.finding.rule, "store-forward");
    assert_eq!((cause.arm, cause.in_other_arm), (Arm::B, Some(0)));
    assert!(cause.finding.site.text.contains("xmm0, qword ptr"));
    assert_eq!(cause.finding.sets[cause.hottest_set.unwrap()].len(), 2);
    assert_eq!(e.rows[0].place.name(), "decode");
    assert!((e.rows[0].share_of_difference.percent.value - 100.0).abs() < 15.0, "{:?}", e.rows[0]);
    assert_eq!(e.grade, Some(Grade::Counted));
    let counted = cause.counted.as_ref().unwrap();
    assert_eq!((counted.blocked, counted.executions), (4000, 4000));
    assert_eq!((counted.here.windows, counted.here.per_thousand()), (4, 50.0));
    assert_eq!(counted.there.as_ref().unwrap().blocked, 0);
    assert!(!e.unexplained.is_empty(), "what is open must be said");
}

#[test]
fn a_faster_build_is_explained_by_what_it_no_longer_has() {
    let mut scene = Scene::new([true, false], -0.5, [(1800, 200), (800, 200)]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.slow_arm), (Conclusion::Mechanism, Some(Arm::A)));
    assert_eq!(e.causes[0].arm, Arm::A);
}

#[test]
fn a_shape_that_the_run_does_not_have_is_no_cause() {
    // The load is there, hot and in the slow build alone; in the run it never meets its stores.
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.counts[1] = Some(counted(3));
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::NoMechanism, None));
    let said = e.unexplained.join("\n");
    assert!(said.contains("not named as the cause: it was blocked in 12 of 4000"), "{said}");
}

#[test]
fn what_happens_as_often_in_both_builds_is_no_cause() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.counts[0] = Some(counted(900));
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
    assert!(e.unexplained.join("\n").contains("both builds have such loads"));
}

#[test]
fn what_could_not_be_counted_is_not_named() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.counts[1] = None;
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
    let said = e.unexplained.join("\n");
    assert!(said.contains("could not be counted: cannot trace: ptrace is forbidden"), "{said}");
}

/// So many instructions, all in the decoder.
pub(crate) fn executes(instructions: [u64; 2]) -> [Option<WorkCount>; 2] {
    instructions.map(|instructions| {
        let program =
            vec![(offset(fixture::CODE_START.0), Executed { instructions, ..Executed::default() })];
        let executed = ByPlace { program, ..ByPlace::default() };
        Some(WorkCount { instructions, executed, ..WorkCount::default() })
    })
}

#[test]
fn more_instructions_are_the_cause_before_any_mechanism() {
    // The slow build's load is blocked each time, and yet it is twice the instructions that take the time.
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.work = executes([1_000_000_000, 2_250_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::MoreWork, None));
    let work = e.work.unwrap();
    assert!((work.instructions.ratio() - 2.25).abs() < 1e-9);
    assert!((work.more_instructions.percent.value - 100.0).abs() < 15.0, "{work:?}");
    assert!(e.causes.is_empty());
}

#[test]
fn work_that_only_moved_from_one_place_to_another_is_slower_work() {
    // What the helper did, the decoder does in AFTER, in as many instructions.
    let mut scene = Scene::new([false, false], 1.0, [(0, 1000), (2000, 0)]);
    let mut work = executes([1_000_000_000, 1_004_000_000]);
    let helper = fixture::starts(&[("decode", &fixture::ring_loop(false)), ("helper", HELPER)])[1];
    if let [Some(before), _] = &mut work {
        before.executed.program = vec![(offset(helper), before.executed.program[0].1)];
    }
    scene.bench.work = work;
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::SlowerWork, "{:?}", e.work);
}

#[test]
fn work_that_explains_half_of_the_difference_is_told_with_the_other_half() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 1_400_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::InParts, "{:?}", e.work);
    let said = e.summary.unwrap();
    assert!(e.work.as_ref().unwrap().more().is_some());
    let both = "more work and slower work: AFTER executes 1.400 times the instructions of BEFORE, ";
    assert!(said.starts_with(both), "{said}");
    assert!(said.contains("; AFTER takes longer for its instructions, "), "{said}");
}

/// What takes longer is most of it for certain, and what is executed more is a good part all the same, or a small one.
#[test]
fn more_work_beside_slower_work_is_told_where_it_is_a_good_part() {
    for (more, conclusion) in
        [(1_300_000_000, Conclusion::InParts), (1_100_000_000, Conclusion::SlowerWork)]
    {
        let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
        scene.bench.work = executes([1_000_000_000, more]);
        let e = scene.explain().unwrap();
        let work = e.work.as_ref().unwrap();
        assert!(work.is_slower(), "{work:?}");
        assert_eq!(e.conclusion, conclusion, "{work:?}");
        assert!(e.summary.unwrap().contains("most of all in decode"));
    }
}

#[test]
fn what_is_sampled_elsewhere_than_where_it_happens_is_told_of_all_user_code() {
    // What the slow build waits for happens in the decoder; most of it is sampled in the helper.
    let by_itself = std::cell::Cell::new(false);
    let explained = |cycles: u64, mechanism: Mechanism| {
        let mut scene = Scene::new([false, false], 1.0, [(350, 650), (600, 1400)]);
        scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
        for run in scene.bench.work.iter_mut().flatten() {
            let entries = if by_itself.get() { 99_999 } else { 100_001 };
            run.executed.program.iter_mut().for_each(|(_, place)| place.entries = entries);
        }
        let window = |cycles: u64, waits: u64| {
            let account = |cycles: u64, waits: u64| {
                let mut account = Account { executions: 20_000, cycles, ..Account::default() };
                account.cycles_without = [cycles; Mechanism::ALL.len()];
                account.cycles_without[mechanism as usize] -= waits;
                account.events[mechanism as usize] = waits / 20;
                account
            };
            let helper = fixture::CODE_START.0.offset(fixture::ring_loop(false).len() as i64);
            let at = |svma| offset(svma);
            let program = vec![
                (at(fixture::CODE_START.0), account(cycles, waits)),
                (at(helper.offset(8)), account(20_000, 0)),
            ];
            WindowCount { program, ..WindowCount::default() }
        };
        scene.bench.counts = [Some(window(20_000, 0)), Some(window(cycles, cycles - 20_000))];
        scene.explain().unwrap()
    };
    let e = explained(60_000, Mechanism::MispredictedBranches);
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Counted)));
    let ledger = e.named_ledger().unwrap();
    assert!(ledger.is_whole && ledger.agrees, "{ledger:?}");
    let summary = e.summary.unwrap();
    assert!(summary.starts_with("mispredicted branches in decode at "), "{summary}");
    // Of places that take their time by themselves, each has its own.
    by_itself.set(true);
    let e = explained(60_000, Mechanism::MispredictedBranches);
    assert!(e.grade.is_none() && e.named_ledger().is_none());
    by_itself.set(false);
    // A model that does not agree with the clock, and what no single instruction has, is not told.
    for (cycles, mechanism) in
        [(30_000, Mechanism::MispredictedBranches), (60_000, Mechanism::LongChains)]
    {
        let e = explained(cycles, mechanism);
        assert!(e.grade.is_none() && e.named_ledger().is_none(), "{mechanism}");
    }
}

#[test]
fn a_mechanism_is_named_where_the_instructions_are_as_many_and_take_longer() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.work = executes([1_000_000_000, 980_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Counted)));
    assert!(e.work.unwrap().slower_instructions.percent.value > 80.0);
}

#[test]
fn work_that_could_not_be_counted_is_said_and_decides_nothing() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::Mechanism);
    assert!(e.work.is_none());
    let said = e.unexplained.join("\n");
    assert!(said.contains("was not counted: cannot trace: ptrace is forbidden"), "{said}");
}

#[test]
fn a_run_that_is_too_long_to_be_followed_is_not_run_once_more() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.work = executes([1_000_000_000, 2_250_000_000]);
    scene.bench.machine.base_ns = 6.0e9;
    let e = scene.explain().unwrap();
    assert!(e.work.is_none());
    let said = e.unexplained.join("\n");
    assert!(said.contains("only up to 10.0 s can be followed whole"), "{said}");
}

#[test]
fn without_a_difference_nothing_is_made_up() {
    let mut scene = Scene::new([false, true], 0.0, [(800, 200), (800, 200)]);
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::NothingToExplain);
    assert!(e.causes.is_empty() && e.rows.is_empty() && e.heat.is_none() && e.grade.is_none());
}

#[test]
fn the_same_code_in_both_builds_is_no_cause() {
    let mut scene = Scene::new([true, true], 1.0, [(800, 200), (1800, 200)]);
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
    let said = e.unexplained.join("\n");
    assert!(said.contains("same code in both builds"), "{said}");
    assert!(said.contains("how often it is called") && !said.contains("must"), "{said}");
}

#[test]
fn a_hazard_where_the_difference_is_not_is_no_cause() {
    // The helper takes the time; the decoder's merged load is cold.
    let mut scene = Scene::new([false, true], 1.0, [(200, 800), (200, 1800)]);
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
    assert_eq!(e.rows[0].place.name(), "helper");
}

#[test]
fn a_hazard_that_nobody_waits_for_is_no_cause() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    // The loop's samples lie on its first instruction, in front of the load.
    let (_, file) = fixture::CODE_START;
    scene.bench.hits = [vec![(file, 1000)], vec![(file, 2000)]];
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
}

#[test]
fn time_in_libraries_is_said_to_be_there() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (1000, 0)]);
    scene.bench.library_hits = [200, 1200];
    let e = scene.explain().unwrap();
    let place = Place::Object {
        name: "libc.so.6".into(),
        code: ObjectCode::Same { path: "/lib/libc.so.6".into() },
        most_in: None,
    };
    assert_eq!(e.rows[0].place, place);
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
}

#[test]
fn code_that_the_fast_build_hardly_enters_is_more_work_without_any_count() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (1000, 0)]);
    scene.bench.library_hits = [20, 1020];
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::MoreWork, None));
    let said = e.summary.unwrap();
    assert!(said.contains("BEFORE hardly enters, most of all libc.so.6"), "{said}");
}

#[test]
fn memory_that_is_asked_for_more_often_is_told_where_it_is_a_part_of_the_work() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (2000, 0)]);
    scene.bench.work = executes([1_000_000_000, 2_000_000_000]);
    let mut e = scene.explain().unwrap();
    let mut said = |allocations: [u64; 2]| {
        e.work.as_mut().unwrap().allocations = Some(allocations);
        assert_eq!(e.conclusion, Conclusion::MoreWork);
        summary::summary(&e).unwrap()
    };
    let most = said([12, 2_500_012]);
    assert!(most.ends_with("asks for memory 2500012 times, in BEFORE 12"), "{most}");
    for few in [[12, 2_499_000], [2_500_000, 4_999_999], [5_000_000, 12]] {
        assert!(!said(few).contains("memory"), "{few:?}");
    }
}

#[test]
fn a_library_of_another_build_is_named_and_no_placement_is_spoken_of() {
    let mut scene = Scene::new([false, false], 1.0, [(1000, 0), (1000, 0)]);
    scene.bench.library_hits = [1000, 3000];
    for (arm, folder) in ["old", "new"].into_iter().enumerate() {
        let path = scene.folder.path().join(folder).join("libbz2.so.1.0");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let code = fixture::ring_loop(arm == 1);
        std::fs::write(&path, fixture::program(&[("compress", &code)])).unwrap();
        scene.bench.library[arm] = path;
    }
    let e = scene.explain().unwrap();
    assert_eq!(e.rows[0].place.name(), "libbz2.so.1.0");
    assert!(!e.rows[0].place.is_unchanged());
    let said = e.unexplained.join("\n") + &e.rows[0].place.change_words();
    assert!(said.contains("most of it in compress"), "{said}");
    assert!(said.contains("old/libbz2.so.1.0") && said.contains("new/libbz2.so.1.0"), "{said}");
    for never in ["same code in both", "must differ", "where code and data lie"] {
        assert!(!said.contains(never), "{never}: {said}");
    }
}

#[test]
fn byte_identical_builds_are_never_explained() {
    let mut scene = Scene::new([true, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.machine.identical = true;
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.slow_arm), (Conclusion::NothingToExplain, None));
    assert!(e.rows.is_empty() && e.causes.is_empty());
}

#[test]
fn the_samplers_notes_reach_the_reader_once() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.notes = vec!["sampled with ptrace: perf is forbidden".into()];
    let e = scene.explain().unwrap();
    assert_eq!(e.notes.iter().filter(|n| n.contains("ptrace")).count(), 1);
}

#[test]
fn a_difference_outside_user_code_is_not_located_in_it() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    // All of the time is the kernel's; what is left in user mode is nothing.
    scene.bench.machine.system_share = 1.0;
    let e = scene.explain().unwrap();
    assert_eq!(e.conclusion, Conclusion::Kernel);
    assert!(e.rows.is_empty() && e.causes.is_empty());
    assert!(e.unexplained[0].contains("is in the kernel"), "{:?}", e.unexplained);
}

#[test]
fn without_a_split_that_was_measured_nothing_is_said_to_be_in_the_kernel() {
    let mut scene = Scene::new([false, true], 1.0, [(200, 50), (450, 50)]);
    scene.bench.machine.is_split = false;
    let e = scene.explain().unwrap();
    let said = e.unexplained.join("\n");
    assert_eq!(e.rows[0].place.name(), "decode");
    assert!(!said.contains("system calls") && !said.contains("is in the kernel ("), "{said}");
    // All rows and what was not sampled are one whole.
    let shares: f64 = e.rows.iter().map(|r| r.share_of_difference.percent.value).sum();
    assert!((shares - 100.0).abs() < 15.0, "{shares}");
}

#[test]
fn samples_in_the_kernel_say_how_much_of_the_difference_is_there() {
    let explained = |kernel_samples| {
        let mut scene = Scene::new([false, false], 1.0, [(2000, 500), (4500, 500)]);
        scene.bench.machine.is_split = false;
        scene.bench.kernel_samples = kernel_samples;
        let e = scene.explain().unwrap();
        (e.conclusion, e.summary.unwrap())
    };
    // AFTER takes twice as long: of its two parts, one is the kernel's.
    let (conclusion, said) = explained(Some([0, 5000]));
    assert_eq!(conclusion, Conclusion::Kernel);
    assert!(said.starts_with("the kernel: ") && said.ends_with(" is there"), "{said}");
    // 2 of 7 samples: less than half of the difference.
    let (conclusion, said) = explained(Some([0, 1000]));
    assert_eq!(conclusion, Conclusion::NoMechanism);
    assert!(said.starts_with("in part the kernel: 3"), "{said}");
    assert!(said.ends_with("; the rest is most of all in decode"), "{said}");
    let (_, said) = explained(Some([50, 100]));
    assert!(!said.contains("kernel"), "{said}");
    let (_, said) = explained(None);
    assert!(!said.contains("kernel"), "{said}");
}

#[test]
fn a_program_that_cannot_be_read_costs_no_run() {
    let mut scene = Scene::new([false, true], 1.0, [(1, 1), (1, 1)]);
    std::fs::write(scene.folder.path().join("after"), "text").unwrap();
    assert!(matches!(scene.explain(), Err(ExplainError::Code(CodeError::NotElf { .. }))));
}

#[test]
fn where_nothing_may_be_sampled_the_comparison_is_reported_with_what_would_help() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.samples = false;
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.slow_arm), (Conclusion::NotLocated, Some(Arm::B)));
    assert!(e.causes.is_empty() && e.rows.is_empty() && e.heat.is_none());
    let open = e.unexplained.join(" ");
    for word in ["perf is forbidden", "ptrace is forbidden", "perf_event_paranoid=2", "PERFMON"] {
        assert!(open.contains(word), "{open}");
    }
    assert!(!open.contains("mechanism"), "nothing was looked for: {open}");
}

#[test]
fn callers_of_what_takes_longer_have_their_parts() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.called_from_two([[560, 240, 200], [1260, 540, 200]]);
    let e = scene.explain().unwrap();
    let stacks = e.stacks.as_ref().unwrap();
    let from = stacks.called_from.as_ref().unwrap();
    let callers = from.several().unwrap();
    let names: Vec<String> = callers.iter().map(|caller| caller.function.to_string()).collect();
    assert_eq!(
        (from.place.as_str(), names),
        ("decode", vec!["helper".into(), "libother.so".into()])
    );
    let parts: Vec<f64> =
        callers.iter().map(|caller| caller.share_of_difference.percent.value).collect();
    assert!((parts[0] / (parts[0] + parts[1]) - 0.7).abs() < 0.01, "{parts:?}");
    // Both add up to what the place has by all samples.
    let row = e.rows[0].share_of_difference.percent.value;
    assert!((parts[0] + parts[1] - row).abs() < 1.0, "{parts:?} {row}");
    assert!(e.notes.iter().any(|note| note.contains("do not reach where their thread started")));
    let runs = u64::from(e.heat.as_ref().unwrap()[0].runs);
    assert_eq!((stacks.samples, stacks.cut_off), ([1000 * runs, 2000 * runs], [200 * runs; 2]));
}

#[test]
fn without_call_stacks_nothing_is_said_of_callers() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    assert_eq!(scene.explain().unwrap().stacks, None);
}
