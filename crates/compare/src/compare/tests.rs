//! Whole comparisons on invented machines, and on real processes where only the plumbing counts.

use std::sync::atomic::AtomicBool;

use super::simulate::{Noise, SimulatedMachine};
use super::*;
use crate::run::child::NEVER;

fn settings(pairs: u32, seed: u64) -> Settings {
    Settings { pairs, seed, ..Settings::default() }
}

fn on(machine: &mut SimulatedMachine, pairs: u32) -> Comparison {
    compare(machine, &settings(pairs, 1), &mut |_| {}).unwrap()
}

fn has(comparison: &Comparison, id: &str) -> bool {
    let ids = |w: &Warning| serde_json::to_value(w).unwrap()["id"] == id;
    comparison.analysis.warnings.iter().any(ids)
}

#[test]
fn a_large_effect_is_called_by_its_name_in_both_directions() {
    for (effect, word) in [(0.05, Decision::Slower), (-0.05, Decision::Faster)] {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 7);
        machine.effect_log = effect;
        let result = on(&mut machine, 20);
        assert_eq!(result.analysis.verdict.decision, word);
        let wall = &result.analysis.wall;
        assert!(wall.low_log < effect && effect < wall.high_log, "{wall:?}");
    }
}

#[test]
fn no_effect_on_a_quiet_machine_is_equivalent_and_five_pairs_are_never_enough() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 60, 8);
    machine.run_sd_log = 0.004;
    assert_eq!(on(&mut machine, 60).analysis.verdict.decision, Decision::Equivalent);
    machine.effect_log = 0.5;
    let few = on(&mut machine, 5);
    assert_eq!(few.analysis.verdict.doubt, Some(Doubt::TooFewPairs));
    assert!(has(&few, "few-pairs"));
}

#[test]
fn one_pair_is_analysed_without_a_word() {
    let result = on(&mut SimulatedMachine::new(Noise::Quiet, 1, 3), 1);
    assert_eq!(result.analysis.verdict.decision, Decision::Inconclusive);
    assert_eq!(result.analysis.wall.confidence, 0.0);
}

#[test]
fn a_comparison_survives_json_and_is_judged_again_alike() {
    let result = on(&mut SimulatedMachine::new(Noise::Spikes(0.1), 20, 9), 20);
    let text = serde_json::to_string(&result).unwrap();
    let read: Comparison = serde_json::from_str(&text).unwrap();
    let again = Comparison::new(read.arms, read.settings, read.samples).unwrap();
    assert_eq!(again, result);
}

#[test]
fn every_result_says_that_it_is_about_one_build_each() {
    assert!(has(&on(&mut SimulatedMachine::new(Noise::Quiet, 20, 1), 20), "one-build-each"));
}

#[test]
fn byte_identical_programs_are_never_called_slower() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 1);
    machine.effect_log = 0.1;
    let Comparison { mut arms, settings, samples, .. } = on(&mut machine, 20);
    arms[1] = ArmRecord { command: vec!["./elsewhere".into()], ..arms[0].clone() };
    let same = Comparison::new(arms.clone(), settings.clone(), samples.clone()).unwrap();
    assert!(has(&same, "identical-programs"));
    let verdict = &same.analysis.verdict;
    assert_eq!(
        (verdict.decision, verdict.doubt),
        (Decision::Inconclusive, Some(Doubt::IdenticalFiles)),
        "whatever the interval says"
    );
    arms[1].command.push("other argument".into());
    let other = Comparison::new(arms, settings, samples).unwrap();
    assert!(!has(&other, "identical-programs"));
    assert_eq!(other.analysis.verdict.decision, Decision::Slower);
}

#[test]
fn one_program_over_two_libraries_is_no_identical_pair() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 1);
    machine.effect_log = 0.1;
    let Comparison { mut arms, settings, samples, .. } = on(&mut machine, 20);
    arms[1] = ArmRecord { command: vec!["./elsewhere".into()], ..arms[0].clone() };
    let library = |path: &str, fnv1a: &str| UsedFile {
        path: path.into(),
        role: FileRole::Mapped,
        bytes: 1,
        fnv1a: fnv1a.into(),
    };
    arms[0].files = vec![library("/lib/libc.so.6", "1"), library("/a/libbz2.so.1.0", "2")];
    arms[1].files = vec![library("/lib/libc.so.6", "1"), library("/b/libbz2.so.1.0", "3")];
    let differs = Comparison::new(arms.clone(), settings.clone(), samples.clone()).unwrap();
    assert_eq!(differs.analysis.verdict.decision, Decision::Slower);
    let said: Vec<String> = differs.analysis.warnings.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|s| s.contains("libbz2.so") && !s.contains("libc.so")), "{said:#?}");
    assert!(!has(&differs, "identical-programs"));
    arms[1].files[1].fnv1a = "2".into();
    let same = Comparison::new(arms, settings, samples).unwrap();
    assert_eq!(same.analysis.verdict.doubt, Some(Doubt::IdenticalFiles));
}

#[test]
fn processor_time_is_no_witness_about_what_a_program_prints() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 2);
    machine.effect_log = 0.5;
    let Comparison { arms, mut settings, mut samples, .. } = on(&mut machine, 20);
    settings.measure = Measure::Regex { pattern: "x (.*)".into(), higher_is_better: false };
    samples.iter_mut().for_each(|s| s.amounts.printed = Some(7.0));
    let result = Comparison::new(arms, settings, samples).unwrap();
    assert_eq!(result.analysis.verdict.decision, Decision::Equivalent);
    assert!(!has(&result, "cpu-time-disagrees") && !has(&result, "coarse-timer"));
}

#[test]
fn memory_below_that_of_the_copy_of_ourselves_is_not_known() {
    let Comparison { arms, mut settings, samples, .. } =
        on(&mut SimulatedMachine::new(Noise::Quiet, 20, 1), 20);
    settings.measure = Measure::PeakMemory;
    let with = |bytes: [u64; 2]| {
        let mut samples = samples.clone();
        for sample in &mut samples {
            sample.amounts.memory_before_exec_bytes = 9 << 20;
            sample.amounts.peak_memory_bytes = bytes[sample.plan.arm.index()];
        }
        Comparison::new(arms.clone(), settings.clone(), samples)
    };
    let floor = 9 << 20 | 128 << 10;
    let verdict = with([floor, floor]).unwrap().analysis.verdict;
    assert_eq!(verdict.doubt, Some(Doubt::HiddenMemory));
    assert_eq!((verdict.decision, verdict.pairs_needed), (Decision::Inconclusive, None));
    assert!(has(&with([30 << 20, floor]).unwrap(), "hidden-memory"));
    assert!(!has(&with([30 << 20, 20 << 20]).unwrap(), "hidden-memory"));
}

#[test]
fn output_and_failures_are_watched() {
    let Comparison { arms, settings, samples, .. } =
        on(&mut SimulatedMachine::new(Noise::Quiet, 20, 1), 20);
    let with = |change: &dyn Fn(usize, &mut RunSample)| {
        let mut samples = samples.clone();
        samples.iter_mut().enumerate().for_each(|(i, s)| change(i, s));
        Comparison::new(arms.clone(), settings.clone(), samples).unwrap()
    };
    assert!(has(&with(&|_, s| s.output = s.plan.arm.to_string()), "output-differs"));
    assert!(has(&with(&|i, s| s.output = i.to_string()), "output-varies"));
    assert!(has(&with(&|_, s| s.failure = Some("exit code 1".into())), "failures-ignored"));
}

#[test]
fn processor_time_is_the_second_witness() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 2);
    machine.run_sd_log = 0.002;
    machine.effect_log = 0.05;
    let Comparison { arms, settings, mut samples, .. } = on(&mut machine, 20);
    for sample in &mut samples {
        sample.amounts.cpu_ns = 45_000_000 + u64::from(sample.plan.order);
        sample.amounts.system_ns = Some(0);
    }
    let result = Comparison::new(arms, settings, samples).unwrap();
    assert!(has(&result, "cpu-time-disagrees"));
    let system = &result.analysis.contrasts[3];
    assert_eq!((system.metric, &system.ratio), (Metric::System, &None));
}

#[test]
fn threads_that_take_turns_on_one_processor_are_warned_of() {
    let Comparison { mut arms, mut settings, samples, .. } =
        on(&mut SimulatedMachine::new(Noise::Quiet, 20, 2), 20);
    arms[1].threads = Some(4);
    let mut with = |cpus| {
        settings.cpus = cpus;
        Comparison::new(arms.clone(), settings.clone(), samples.clone()).unwrap()
    };
    let one = with(Some(Cpus::one(3)));
    assert!(has(&one, "threads-on-one-processor"));
    let said: String = one.analysis.warnings.iter().map(|w| format!("{w}\n")).collect();
    assert!(said.contains("--cpus 4"), "{said}");
    assert!(!has(&with(None), "threads-on-one-processor"));
    assert!(!has(&with(Cpus::last(4, &[0, 1, 2, 3])), "threads-on-one-processor"));
}

/// A machine whose programs have two threads each, and what a trial on several processors finds.
struct Threaded(SimulatedMachine, Option<Cpus>);

impl Runner for Threaded {
    fn arms(&self) -> Vec<ArmRecord> {
        let two = |arm| ArmRecord { threads: Some(2), ..arm };
        self.0.arms().into_iter().map(two).collect()
    }

    fn run(&mut self, plan: &PlannedRun) -> Result<RunSample, CompareError> {
        self.0.run(plan)
    }

    fn spread(&mut self, trials: &[PlannedRun]) -> Result<Option<Cpus>, CompareError> {
        assert_eq!(trials.len(), 2, "one of each");
        Ok(self.1.clone())
    }
}

#[test]
fn programs_that_keep_several_processors_busy_get_them_unless_one_was_chosen() {
    let compared = |spreads, found: Option<Cpus>| {
        let settings = Settings { spreads, cpus: Some(Cpus::one(1)), ..settings(6, 1) };
        let mut machine = Threaded(SimulatedMachine::new(Noise::Quiet, 20, 1), found);
        compare(&mut machine, &settings, &mut |_| {}).unwrap()
    };
    let both = Cpus::last(2, &[0, 1]);
    let result = compared(true, both.clone());
    assert_eq!((result.settings.cpus.clone(), result.settings.spreads), (both.clone(), true));
    assert!(has(&result, "spread") && !has(&result, "threads-on-one-processor"));
    // A trial in which one was enough.
    let result = compared(true, Some(Cpus::one(1)));
    assert!(!has(&result, "spread") && !has(&result, "threads-on-one-processor"));
    // None was possible, or the user chose.
    for (spreads, found) in [(true, None), (false, both)] {
        let result = compared(spreads, found);
        assert_eq!(result.settings.cpus, Some(Cpus::one(1)));
        assert!(!has(&result, "spread") && has(&result, "threads-on-one-processor"));
    }
}

#[test]
fn user_and_system_time_are_shown_only_where_they_were_measured() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 2);
    machine.is_split = false;
    let Comparison { arms, mut settings, samples, analysis } = on(&mut machine, 20);
    let metrics: Vec<Metric> = analysis.contrasts.iter().map(|c| c.metric).collect();
    assert_eq!(metrics, [Metric::Wall, Metric::Cpu]);
    settings.measure = Measure::User;
    let said = Comparison::new(arms, settings, samples).unwrap_err().to_string();
    assert!(said.contains("ticks") && said.contains("--metric cpu"), "{said}");
}

#[test]
fn a_loop_on_a_busy_machine_is_not_called_waiting_for_files() {
    let Comparison { arms, settings, mut samples, .. } =
        on(&mut SimulatedMachine::new(Noise::Quiet, 20, 2), 20);
    for sample in &mut samples {
        let a = &mut sample.amounts;
        a.cpu_ns = a.wall_ns / 4;
        (a.run_queue_ns, a.involuntary_switches) = (Some(a.wall_ns / 2), 30);
    }
    let said = |samples| {
        let result = Comparison::new(arms.clone(), settings.clone(), samples).unwrap();
        let texts: Vec<String> = result.analysis.warnings.iter().map(ToString::to_string).collect();
        texts.join("\n")
    };
    let busy = said(samples.clone());
    assert!(busy.contains("queue for the processor") && !busy.contains("sleep"), "{busy}");
    for sample in &mut samples {
        sample.amounts.run_queue_ns = Some(0);
        (sample.amounts.voluntary_switches, sample.amounts.involuntary_switches) = (30, 0);
    }
    let blocked = said(samples);
    assert!(blocked.contains("sleep") && !blocked.contains("queue"), "{blocked}");
}

#[test]
fn competition_for_the_processor_is_told_from_noise_of_the_program() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 4);
    machine.run_sd_log = 0.05;
    let Comparison { arms, settings, mut samples, .. } = on(&mut machine, 20);
    for sample in &mut samples {
        let jitter = u64::from(sample.plan.environment_padding_bytes) * 100;
        sample.amounts.cpu_ns = 40_000_000 + jitter;
    }
    assert!(has(&Comparison::new(arms, settings, samples).unwrap(), "contended"));
    assert!(!has(&on(&mut machine, 20), "contended"));
}

#[test]
fn short_runs_and_coarse_timers_are_named() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 2);
    machine.base_ns = 0.6e6;
    machine.timer_step_ns = 100_000;
    let result = on(&mut machine, 20);
    assert!(has(&result, "too-short") && has(&result, "coarse-timer"));
    assert_ne!(result.analysis.verdict.decision, Decision::Slower);
}

#[test]
fn samples_that_form_no_pairs_are_refused_in_words() {
    let Comparison { settings, samples, .. } =
        on(&mut SimulatedMachine::new(Noise::Quiet, 6, 2), 6);
    let error = |samples: &[RunSample]| analyse(samples, &settings).unwrap_err().to_string();
    assert!(error(&[]).contains("0 runs"));
    assert!(error(&samples[..3]).contains("lacks an arm"));
    let mut twice = samples.clone();
    twice.push(samples[0].clone());
    assert!(error(&twice).contains("twice"));
    let mut slots = samples.clone();
    slots[0].plan.slot = slots[1].plan.slot;
    assert!(error(&slots).contains("slot"));
    let mut zero = samples.clone();
    zero[0].amounts.wall_ns = 0;
    assert!(error(&zero).contains("no wall time"));
}

#[test]
fn settings_that_make_no_sense_are_refused_before_anything_runs() {
    for (pairs, effect) in [(0, 0.01), (MAX_PAIRS + 1, 0.01), (20, 0.0), (20, f64::NAN), (20, 2.0)]
    {
        let settings = Settings { pairs, effect, ..Settings::default() };
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 1);
        let result = compare(&mut machine, &settings, &mut |_| panic!("ran"));
        assert!(matches!(result, Err(CompareError::Settings(_))));
    }
}

#[test]
fn real_processes_are_run_as_planned() {
    let line = |word: &str| CommandLine::new("echo", vec![word.into()]);
    let settings = Settings { pairs: 3, cpus: default_cpu(), ..Settings::default() };
    let mut runner = ProcessRunner::new([line("x"), line("y")], settings.limits(&NEVER)).unwrap();
    let mut seen = Vec::new();
    let result = compare(&mut runner, &settings, &mut |p| seen.push(p)).unwrap();
    let plans: Vec<PlannedRun> = result.samples.iter().map(|s| s.plan).collect();
    assert_eq!(plans, schedule::plan(3, Order::Random, 0));
    assert!(has(&result, "output-differs"));
    assert_eq!(seen.len(), 2 + 1 + 6);
    assert_eq!(seen.last(), Some(&Progress::Ran { done: 6 }));
}

#[test]
fn an_interrupt_ends_everything() {
    let stop = AtomicBool::new(true);
    let line = || CommandLine::new("sleep", vec!["1000".into()]);
    let settings = Settings::default();
    let mut runner = ProcessRunner::new([line(), line()], settings.limits(&stop)).unwrap();
    let error = compare(&mut runner, &settings, &mut |_| {}).unwrap_err();
    assert!(matches!(error, CompareError::Interrupted));
}

/// 20 pairs that differ by 5 % on the processor and wait for 15 to 95 % of that, judged by `measure`.
fn beside_others(measure: Measure, wait: impl Fn(&mut Amounts, u64)) -> Comparison {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 7);
    machine.effect_log = 0.05;
    machine.run_sd_log = 0.003;
    let mut result = on(&mut machine, 20);
    for (n, sample) in result.samples.iter_mut().enumerate() {
        let amounts = &mut sample.amounts;
        let off_ns = amounts.cpu_ns / 20 * (3 + (n as u64 * 7919) % 17);
        amounts.wall_ns = amounts.cpu_ns + off_ns;
        wait(amounts, off_ns);
    }
    let settings = Settings { measure, ..result.settings };
    Comparison::new(result.arms, settings, result.samples).unwrap()
}

#[test]
fn where_runs_waited_for_the_processor_the_verdict_is_about_their_time_on_it() {
    let queued = |amounts: &mut Amounts, off_ns| amounts.run_queue_ns = Some(off_ns);
    let result = beside_others(Measure::Auto, queued);
    assert_eq!(result.analysis.verdict.decision, Decision::Slower);
    assert_eq!(result.analysis.contrasts[0].metric, Metric::Cpu);
    assert!(has(&result, "judged-by-processor-time") && !has(&result, "contended"));
    // Asked for, wall time is judged whatever it was spent on.
    let wall = beside_others(Measure::Wall, queued);
    assert_eq!(wall.analysis.verdict.decision, Decision::Inconclusive);
    assert!(has(&wall, "contended") && !has(&wall, "judged-by-processor-time"));
    // Who is blocked waits for something that the program asked for.
    let blocked = beside_others(Measure::Auto, |amounts, _| {
        amounts.run_queue_ns = Some(0);
        amounts.voluntary_switches = 100;
    });
    assert_eq!(blocked.analysis.contrasts[0].metric, Metric::Wall);
    // Switches are no measure: who sleeps once is taken off the processor as often as before.
    let asleep = beside_others(Measure::Auto, |amounts, off_ns| {
        amounts.run_queue_ns = Some(off_ns / 50);
        (amounts.voluntary_switches, amounts.involuntary_switches) = (2, 5);
    });
    assert_eq!(asleep.analysis.contrasts[0].metric, Metric::Wall);
    let both = beside_others(Measure::Auto, |amounts, off_ns| {
        amounts.run_queue_ns = Some(off_ns / 10 * 9);
    });
    assert_eq!(both.analysis.contrasts[0].metric, Metric::Wall);
    assert_eq!(blocked.analysis.verdict.decision, Decision::Inconclusive);
    // What runs on two processors at once has more processor time than wall time.
    let at_once = beside_others(Measure::Auto, |amounts, _| {
        amounts.wall_ns = amounts.cpu_ns / 2;
        amounts.run_queue_ns = Some(amounts.wall_ns / 10);
    });
    assert_eq!(at_once.analysis.contrasts[0].metric, Metric::Wall);
    // A little is always waited for.
    let quiet = beside_others(Measure::Auto, |amounts, _| {
        amounts.wall_ns = amounts.cpu_ns + amounts.cpu_ns / 100;
        amounts.run_queue_ns = Some(amounts.cpu_ns / 100);
    });
    assert_eq!(quiet.analysis.contrasts[0].metric, Metric::Wall);
}

#[test]
fn a_difference_that_is_all_in_the_queue_for_the_processor_is_none_of_the_programs() {
    // Less than 2 % of all time in the queue, nearly all of it in one arm.
    let judged = |measure: Measure, off: fn(&mut Amounts, u64)| {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 7);
        (machine.effect_log, machine.run_sd_log) = (0.0, 0.003);
        let mut result = on(&mut machine, 20);
        for (n, sample) in result.samples.iter_mut().enumerate() {
            let off_ns = sample.amounts.cpu_ns / 1000 * (20 + (n as u64 * 7919) % 17);
            sample.amounts.wall_ns = sample.amounts.cpu_ns;
            sample.amounts.run_queue_ns = Some(0);
            if sample.plan.arm == Arm::B {
                sample.amounts.wall_ns += off_ns;
                off(&mut sample.amounts, off_ns);
            }
        }
        let settings = Settings { measure, ..result.settings };
        Comparison::new(result.arms, settings, result.samples).unwrap()
    };
    let queued: fn(&mut Amounts, u64) = |amounts, off_ns| amounts.run_queue_ns = Some(off_ns);
    let result = judged(Measure::Auto, queued);
    assert_ne!(result.analysis.verdict.decision, Decision::Slower);
    assert_eq!(result.analysis.contrasts[0].metric, Metric::Cpu);
    assert!(has(&result, "judged-by-processor-time"));
    assert_eq!(judged(Measure::Wall, queued).analysis.verdict.decision, Decision::Slower);
    // Blocked for as long, or for reasons that the kernel does not tell, it is the program's.
    let others: [fn(&mut Amounts, u64); 3] = [
        |amounts, _| amounts.voluntary_switches = 9,
        |amounts, off_ns| amounts.run_queue_ns = Some(off_ns / 4),
        |amounts, _| amounts.run_queue_ns = None,
    ];
    for other in others {
        let result = judged(Measure::Auto, other);
        assert_eq!(result.analysis.verdict.decision, Decision::Slower);
        assert_eq!(result.analysis.contrasts[0].metric, Metric::Wall);
    }
}
