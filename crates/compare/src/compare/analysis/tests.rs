//! Where each word and each warning of an analysis begins and ends.

use super::super::diagnostics::{Autocorrelation, Drift, SlotEffect};
use super::super::schedule::{PlannedRun, Slot};
use super::*;
use crate::run::counter::CounterEvent;

fn around(centre: f64, reach: f64) -> Ratio {
    let mut ratio = ratio(&[1.0, 1.0], &[1.0, 1.0]).expect("times above zero have a ratio");
    (ratio.log_ratio, ratio.low_log, ratio.high_log) = (centre, centre - reach, centre + reach);
    ratio
}

fn run(order: u32, arm: Arm, wall_ns: u64) -> RunSample {
    let slot = if order.is_multiple_of(2) { Slot::First } else { Slot::Second };
    let plan =
        PlannedRun { order, pair: order / 2, block: 0, slot, arm, environment_padding_bytes: 0 };
    RunSample {
        plan,
        amounts: Amounts { wall_ns, cpu_ns: wall_ns, ..Amounts::default() },
        repeats: 0,
        no_ops_cycles: None,
        output: "same".into(),
        failure: None,
        left_behind: Vec::new(),
    }
}

/// Pairs whose runs take these times, A first.
fn runs(times_ns: &[[u64; 2]]) -> Vec<RunSample> {
    let pair = |(n, [a, b]): (u32, &[u64; 2])| [run(2 * n, Arm::A, *a), run(2 * n + 1, Arm::B, *b)];
    (0..).zip(times_ns).flat_map(pair).collect()
}

fn ids(warnings: &[Warning]) -> Vec<String> {
    let id = |w: &Warning| serde_json::to_value(w).unwrap()["id"].as_str().unwrap().to_owned();
    warnings.iter().map(id).collect()
}

#[test]
fn every_metric_takes_its_own_amount_in_its_own_unit() {
    let amounts = Amounts {
        wall_ns: 1,
        cpu_ns: 2,
        user_ns: Some(3),
        system_ns: Some(4),
        peak_memory_bytes: 5,
        printed: Some(6.0),
        counted: Some(7),
        ..Amounts::default()
    };
    let of_ms = |measure| {
        let metric = Metric::for_verdict(&measure);
        (metric.of(&amounts), metric.unit())
    };
    let regex = Measure::Regex { pattern: String::new(), higher_is_better: false };
    assert_eq!(of_ms(Measure::Auto), (1.0, Unit::Nanoseconds));
    assert_eq!(of_ms(Measure::Wall), (1.0, Unit::Nanoseconds));
    assert_eq!(of_ms(Measure::Cpu), (2.0, Unit::Nanoseconds));
    assert_eq!(of_ms(Measure::User), (3.0, Unit::Nanoseconds));
    assert_eq!(of_ms(Measure::System), (4.0, Unit::Nanoseconds));
    assert_eq!(of_ms(Measure::PeakMemory), (5.0, Unit::Bytes));
    for printed in [regex, Measure::GoBench, Measure::GoogleBench] {
        assert_eq!(of_ms(printed), (6.0, Unit::Amount));
    }
    assert_eq!(of_ms(Measure::Counter { event: CounterEvent::Instructions }), (7.0, Unit::Amount));
    let split = Metric::ALL.map(Metric::is_of_the_split);
    assert_eq!(split, [false, false, true, true]);
    let absences: BTreeSet<&str> = Metric::ALL.map(Metric::absence).into();
    assert_eq!(absences.len(), 3, "user and system time are absent for one reason");
}

#[test]
fn a_ratio_is_of_b_over_a_with_totals_and_the_fastest() {
    let a = [100.0, 100.0, 100.0, 200.0, 100.0, 100.0];
    let b = [200.0, 200.0, 200.0, 400.0, 200.0, 150.0];
    let found = ratio(&a, &b).unwrap();
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got} {want}");
    near(found.log_ratio, 2.0_f64.ln());
    near(found.estimate.value, 2.0);
    near(found.estimate.high, 2.0);
    assert!(found.estimate.low < 2.0 && found.estimate.n == 6);
    near(found.total_log_ratio, (1350.0_f64 / 700.0).ln());
    near(found.minimum_log_ratio, 1.5_f64.ln());
    assert!(found.estimate.how.contains("95 %") && found.confidence > 0.95);
    let few = ratio(&a[..5], &b[..5]).unwrap();
    assert!(few.estimate.how.contains("94 %"), "{}", few.estimate.how);
    assert_eq!((ratio(&[0.0], &[1.0]), ratio(&[1.0], &[-1.0])), (None, None));
    for (low, high, excludes) in
        [(0.1, 0.3, true), (-0.3, -0.1, true), (0.0, 0.2, false), (-0.2, 0.0, false)]
    {
        let ratio = Ratio { low_log: low, high_log: high, ..found.clone() };
        assert_eq!(ratio.excludes_zero(), excludes, "{low} {high}");
    }
}

#[test]
fn processor_time_contradicts_a_word_only_by_a_word_of_its_own() {
    let disagree =
        |decision, centre, reach| witnesses_disagree(decision, &around(centre, reach), 0.01);
    let [slower, faster, equal] = [(0.02, 0.005), (-0.02, 0.005), (0.0, 0.005)];
    for (decision, contradicted) in [
        (Decision::Slower, [false, true, true]),
        (Decision::Faster, [true, false, true]),
        (Decision::Equivalent, [true, true, false]),
        (Decision::Inconclusive, [false, false, false]),
    ] {
        let found =
            [slower, faster, equal].map(|(centre, reach)| disagree(decision, centre, reach));
        assert_eq!(found, contradicted, "{decision}");
    }
    // Too wide to say anything, too small to matter, and exactly what matters.
    for word in [Decision::Slower, Decision::Faster, Decision::Equivalent] {
        assert!(!disagree(word, 0.02, 0.03) && !disagree(word, -0.02, 0.03));
        assert!(!disagree(word, 0.008, 0.004) && !disagree(word, -0.008, 0.004));
    }
    assert!(
        disagree(Decision::Equivalent, 0.01, 0.005) && disagree(Decision::Equivalent, -0.01, 0.005)
    );
    assert!(
        !disagree(Decision::Equivalent, 0.02, 0.02) && !disagree(Decision::Equivalent, -0.02, 0.02)
    );
}

#[test]
fn competition_makes_wall_time_three_times_as_wide() {
    let found = |wall: f64, cpu: f64| match contention(&around(0.3, wall), &around(0.2, cpu)) {
        Some(Warning::Contended { narrower, cpu_log }) => Some((narrower, cpu_log)),
        _ => None,
    };
    let (narrower, cpu_log) = found(0.08, 0.02).unwrap();
    assert!((narrower - 4.0).abs() < 1e-9, "{narrower}");
    assert_eq!(cpu_log, [0.2, 0.2 - 0.02, 0.2 + 0.02]);
    assert!(found(0.0605, 0.02).is_some() && found(0.0595, 0.02).is_none());
    // Narrow enough for anyone, and no interval at all.
    assert!(found(0.0051, 0.0001).is_some() && found(0.0049, 0.0001).is_none());
    assert!(found(0.08, 0.0).is_none());
}

/// A machine without any disturbance.
fn calm() -> Diagnostics {
    Diagnostics {
        pair_sd_log: 0.01,
        drift: Drift { spearman: 0.5, p_value: 0.009, change_log: 0.0 },
        slot: SlotEffect { second_over_first_log: 0.0, p_value: 0.009 },
        autocorrelation: Autocorrelation { lag_1: 0.0, p_value: 0.009 },
        spike_share: 0.05,
    }
}

#[test]
fn a_disturbance_is_said_when_it_is_sure_and_large() {
    let said = |change: &dyn Fn(&mut Diagnostics)| {
        let (mut found, mut warnings) = (calm(), Vec::new());
        change(&mut found);
        machine_warnings(&found, &around(0.0, 0.01), &mut warnings);
        ids(&warnings).join(" ")
    };
    assert_eq!(said(&|_| ()), "");
    for size in [0.0031, -0.0031] {
        assert_eq!(said(&|d| d.drift.change_log = size), "drift");
        assert_eq!(said(&|d| d.slot.second_over_first_log = size), "slot-effect");
    }
    assert_eq!(said(&|d| d.drift.change_log = 0.003), "");
    assert_eq!(said(&|d| d.slot.second_over_first_log = -0.003), "");
    assert_eq!(said(&|d| (d.drift.change_log, d.drift.p_value) = (0.1, 0.01)), "");
    assert_eq!(said(&|d| (d.slot.second_over_first_log, d.slot.p_value) = (0.1, 0.01)), "");
    assert_eq!(said(&|d| d.autocorrelation.lag_1 = 0.4), "autocorrelated");
    assert_eq!(said(&|d| d.autocorrelation.lag_1 = -0.4), "");
    assert_eq!(said(&|d| (d.autocorrelation.lag_1, d.autocorrelation.p_value) = (0.4, 0.01)), "");
    assert_eq!(said(&|d| d.spike_share = 0.051), "spikes");
}

/// What is warned of where both arms took these times in every pair; each pair a little longer.
fn warned(wall_ns: u64, cpu_ns: u64, measure: Measure) -> Vec<String> {
    let mut samples = runs(&[[wall_ns; 2]; 20]);
    for sample in &mut samples {
        let more = u64::from(sample.plan.order);
        sample.amounts.wall_ns += more;
        sample.amounts.cpu_ns = cpu_ns + more;
    }
    let settings = Settings { measure, ..Settings::default() };
    ids(&analyse(&samples, &settings).unwrap().warnings)
}

#[test]
fn half_on_the_processor_is_where_waiting_begins_and_a_millisecond_where_runs_are_short() {
    let says = |found: &[String], id: &str| found.iter().any(|f| f == id);
    assert!(says(&warned(50_000_000, 24_000_000, Measure::Wall), "mostly-waiting"));
    assert!(!says(&warned(50_000_000, 26_000_000, Measure::Wall), "mostly-waiting"));
    assert!(!says(&warned(50_000_000, 24_000_000, Measure::Cpu), "mostly-waiting"));
    assert!(says(&warned(999_000, 999_000, Measure::Wall), "too-short"));
    assert!(!says(&warned(1_000_000, 1_000_000, Measure::Wall), "too-short"));
}

#[test]
fn one_wild_pair_makes_the_tests_disagree() {
    let with = |last_ns: u64| {
        let mut pairs: Vec<[u64; 2]> =
            (0..20).map(|n| [50_000_000, 50_500_000 + n * 1000]).collect();
        pairs[19][1] = last_ns;
        let found = analyse(&runs(&pairs), &Settings::default()).unwrap();
        let of = |w: &&Warning| matches!(w, Warning::TestsDisagree { .. });
        found.warnings.iter().find(of).cloned()
    };
    assert_eq!(with(50_520_000), None);
    // The ranks know that 19 of 20 are slower; the mean is anywhere.
    let Some(Warning::TestsDisagree { signed_rank_p, t_p }) = with(20_000_000) else {
        panic!("the tests disagree")
    };
    assert!(signed_rank_p < 0.05 && t_p > 0.05, "{signed_rank_p} {t_p}");
}

#[test]
fn more_than_one_equal_pair_of_ten_is_a_coarse_timer() {
    let with_equal = |equal: usize| {
        let pairs: Vec<[u64; 2]> = (0..20)
            .map(|n| [50_000_000, if n < equal { 50_000_000 } else { 51_000_000 + n as u64 }])
            .collect();
        let found = analyse(&runs(&pairs), &Settings::default()).unwrap();
        ids(&found.warnings).contains(&"coarse-timer".to_owned())
    };
    assert!(!with_equal(2) && with_equal(3));
}

#[test]
fn what_is_judged_comes_first_and_the_times_follow_in_their_order() {
    let mut samples = runs(&[[40_000_000, 44_000_000]; 8]);
    for sample in &mut samples {
        sample.amounts.wall_ns += 11 * u64::from(sample.plan.order);
        sample.amounts.cpu_ns = 30_000_000 + u64::from(sample.plan.order);
    }
    let shown = |measure| {
        let settings = Settings { measure, ..Settings::default() };
        let found = analyse(&samples, &settings).unwrap();
        assert_eq!(found.metric(), found.contrasts[0].metric);
        assert_eq!(found.contrast(Metric::User), None, "the kernel did not split it");
        assert_eq!(found.judged()[1], found.wall.log_ratio);
        let metrics: Vec<Metric> = found.contrasts.iter().map(|c| c.metric).collect();
        (metrics, found.verdict.decision)
    };
    assert_eq!(shown(Measure::Wall), (vec![Metric::Wall, Metric::Cpu], Decision::Slower));
    assert_eq!(shown(Measure::Cpu), (vec![Metric::Cpu, Metric::Wall], Decision::Equivalent));
}

#[test]
fn a_sequence_is_what_is_judged_and_before_its_burn_in_nothing_is() {
    let judged = |pairs: usize| {
        let times: Vec<[u64; 2]> =
            (0..pairs as u64).map(|n| [40_000_000 + n * 7919 % 1000, 44_000_000]).collect();
        let settings = Settings { until: Some(sequential::Until::Verdict), ..Settings::default() };
        analyse(&runs(&times), &settings).unwrap()
    };
    let early = judged(9);
    assert_eq!((early.verdict.decision, early.sequence), (Decision::Inconclusive, None));
    let found = judged(20);
    let sequence = found.sequence.unwrap();
    assert_eq!(found.judged(), [sequence.low_log, sequence.log_ratio, sequence.high_log]);
    assert_eq!(found.verdict.decision, Decision::Slower);
    assert!(sequence.high_log - sequence.low_log > found.wall.high_log - found.wall.low_log);
}

#[test]
fn runs_are_paired_in_order_of_time_and_what_is_no_pair_is_refused() {
    let complaint = |samples: &[RunSample]| pair_up(samples).unwrap_err().to_string();
    let mut samples = runs(&[[1, 2], [3, 4], [5, 6]]);
    samples.reverse();
    // The last pair ran first.
    samples.iter_mut().filter(|s| s.plan.pair == 2).for_each(|s| s.plan.order = 0);
    samples.iter_mut().filter(|s| s.plan.pair < 2).for_each(|s| s.plan.order += 2);
    let order: Vec<[u64; 2]> =
        pair_up(&samples).unwrap().iter().map(|p| p.map(|s| s.amounts.wall_ns)).collect();
    assert_eq!(order, [[5, 6], [1, 2], [3, 4]]);
    assert!(complaint(&[]).contains("0 runs"));
    assert!(complaint(&samples[..1]).contains("lacks an arm"));
    let mut twice = runs(&[[1, 2]]);
    twice[1].plan.arm = Arm::A;
    assert!(complaint(&twice).contains("arm A twice"));
    let mut one_slot = runs(&[[1, 2]]);
    one_slot[1].plan.slot = Slot::First;
    assert!(complaint(&one_slot).contains("one slot"));
    let many = vec![run(0, Arm::A, 1); 2 * MAX_PAIRS as usize + 1];
    assert!(complaint(&many).contains("between 2 and"));
    assert!(complaint(&many[1..]).contains("twice"), "as many as may be");
}

#[test]
fn what_runs_leave_behind_and_how_they_fail_is_counted() {
    let mut samples = runs(&[[1_000, 1_000]; 8]);
    samples[1].failure = Some("exit code 1".into());
    samples[3].failure = Some("exit code 1".into());
    samples[4].failure = Some("exit code 1".into());
    samples[2].left_behind = vec!["b".into(), "a".into()];
    samples[5].left_behind = vec!["a".into()];
    let pairs = pair_up(&samples).unwrap();
    let found = program_warnings(&pairs);
    assert!(found.contains(&Warning::FailuresIgnored { a: 1, b: 2 }), "{found:?}");
    let names = vec!["a".to_owned(), "b".into()];
    assert!(found.contains(&Warning::LeftBehind { runs: 2, names }), "{found:?}");
    assert_eq!(found.len(), 2);
    assert_eq!(program_warnings(&pair_up(&runs(&[[1, 2]])).unwrap()), []);
    for arm in [Arm::A, Arm::B] {
        let mut varies = runs(&[[1, 1]; 3]);
        varies.iter_mut().filter(|s| s.plan.arm == arm).for_each(|s| {
            s.output = s.plan.pair.to_string();
        });
        let found = program_warnings(&pair_up(&varies).unwrap());
        assert_eq!(found, [Warning::OutputVaries { arms: vec![arm] }]);
    }
}
