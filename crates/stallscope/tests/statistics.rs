//! The error rates of a comparison, measured on invented machines with a known truth.
//!
//! Every replication goes through the real schedule, the real runner interface and the real
//! analysis. The seeds are fixed, so a failure is a change of behaviour, never bad luck; the limits
//! are those the project promises: 95 % intervals that cover the truth in 92 to 98 of 100
//! comparisons, and at most 6 false alarms in 100, on four kinds of noise.
//!
//! `cargo test -p stallscope --test statistics -- --nocapture` prints the table.

#![allow(clippy::print_stdout)] // the table is half of what this file is for

use std::sync::atomic::{AtomicUsize, Ordering};

use stallscope::compare::schedule::plan;
use stallscope::compare::simulate::{Noise, SimulatedMachine};
use stallscope::compare::{Analysis, Decision, Order, Runner, Settings, analyse};

const REPLICATIONS: u64 = 2000;
const PAIRS: [u32; 3] = [10, 20, 40];
const MACHINES: [(&str, Noise); 4] = [
    ("iid 1 %", Noise::Quiet),
    ("linear drift 2 %", Noise::LinearDrift(0.02)),
    ("10 % spikes", Noise::Spikes(0.1)),
    ("step +2 %", Noise::Step(0.02)),
];

/// One whole comparison on an invented machine.
fn comparison(
    noise: Noise,
    pairs: u32,
    order: Order,
    seed: u64,
    effect: f64,
    slot: f64,
) -> Analysis {
    // Seeds of the machine and of the schedule are unrelated, as they are in life.
    let mut machine = SimulatedMachine::new(noise, pairs, seed ^ 0x5eed_0000_0000);
    machine.effect_log = effect.ln_1p();
    machine.slot_effect_log = slot;
    let settings = Settings { pairs, order, seed, ..Settings::default() };
    let samples: Vec<_> = plan(pairs, order, seed)
        .iter()
        .map(|p| machine.run(p).expect("an invented machine runs everything"))
        .collect();
    analyse(&samples, &settings).expect("the schedule gives whole pairs")
}

/// What happened in [`REPLICATIONS`] comparisons, in per cent of them.
#[derive(Debug, Default)]
struct Rates {
    covered: f64,
    excludes_zero: f64,
    slower: f64,
    faster: f64,
    equivalent: f64,
}

fn rates(noise: Noise, pairs: u32, order: Order, effect: f64, slot: f64) -> Rates {
    let counts: [AtomicUsize; 5] = Default::default();
    let truth = effect.ln_1p();
    std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        for worker in 0..workers {
            let counts = &counts;
            scope.spawn(move || {
                for seed in (worker..REPLICATIONS).step_by(workers as usize) {
                    let result = comparison(noise, pairs, order, seed, effect, slot);
                    let wall = &result.wall;
                    let word = result.verdict.decision;
                    let facts = [
                        wall.low_log <= truth && truth <= wall.high_log,
                        wall.excludes_zero(),
                        word == Decision::Slower,
                        word == Decision::Faster,
                        word == Decision::Equivalent,
                    ];
                    for (count, fact) in counts.iter().zip(facts) {
                        count.fetch_add(usize::from(fact), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let [covered, excludes_zero, slower, faster, equivalent] =
        counts.map(|c| 100.0 * c.into_inner() as f64 / REPLICATIONS as f64);
    Rates { covered, excludes_zero, slower, faster, equivalent }
}

#[test]
fn intervals_cover_the_truth_and_equal_programs_are_not_accused() {
    println!("{:18} {:>5} {:>9} {:>9} {:>9}", "noise", "pairs", "coverage", "not zero", "accused");
    let mut wrong = Vec::new();
    for (name, noise) in MACHINES {
        for pairs in PAIRS {
            let r = rates(noise, pairs, Order::Random, 0.0, 0.0);
            let accused = r.slower + r.faster;
            let line = format!(
                "{name:18} {pairs:5} {:8.1} % {:7.1} % {accused:7.1} %",
                r.covered, r.excludes_zero
            );
            println!("{line}");
            let right =
                (92.0..=98.0).contains(&r.covered) && r.excludes_zero <= 6.0 && accused <= 6.0;
            if !right {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn coverage_does_not_depend_on_the_effect_or_on_the_order() {
    for (effect, order) in [(0.01, Order::Random), (-0.3, Order::Random), (0.01, Order::Abba)] {
        for (name, noise) in MACHINES {
            let r = rates(noise, 20, order, effect, 0.0);
            println!("{name:18} effect {effect:+} {order}: coverage {:.1} %", r.covered);
            assert!((92.0..=98.0).contains(&r.covered), "{name} {effect} {order}: {r:?}");
        }
    }
}

#[test]
fn effects_are_seen_as_often_as_planned() {
    println!(
        "{:18} {:>7} {:>9} {:>9} {:>10}",
        "noise", "effect", "not zero", "slower", "equivalent"
    );
    // (noise, effect, least share of intervals that exclude zero, least share of "slower"): what was
    // measured, less a few standard errors; it guards against losing power, it is no promise.
    let floors = [
        (MACHINES[0], 0.01, 75.0, 40.0),
        (MACHINES[1], 0.01, 75.0, 40.0),
        (MACHINES[2], 0.01, 30.0, 25.0),
        (MACHINES[3], 0.01, 75.0, 40.0),
        (MACHINES[0], 0.02, 99.0, 97.0),
        (MACHINES[1], 0.02, 99.0, 97.0),
        (MACHINES[2], 0.02, 70.0, 70.0),
        (MACHINES[3], 0.02, 99.0, 97.0),
    ];
    for ((name, noise), effect, not_zero, slower) in floors {
        let r = rates(noise, 20, Order::Random, effect, 0.0);
        println!(
            "{name:18} {:5.0} % {:7.1} % {:7.1} % {:8.1} %",
            100.0 * effect,
            r.excludes_zero,
            r.slower,
            r.equivalent
        );
        assert!(r.excludes_zero >= not_zero && r.slower >= slower, "{name}: {r:?}");
        assert!(r.faster <= 0.2, "{name}: {r:?}");
        // An effect as large as the smallest one of interest passes for none in 2.5 % at most, and
        // 2000 replications blur that by 0.35.
        assert!(r.equivalent <= 3.5, "{name}: {r:?}");
    }
}

#[test]
fn harder_machines_raise_no_false_alarms_either() {
    // A random walk between runs, and a machine that is 3 % slower whenever something ran before.
    for (name, noise, slot) in [
        ("random walk .3 %", Noise::RandomWalk(0.003), 0.0),
        ("slot effect 3 %", Noise::Quiet, 0.03),
    ] {
        for order in [Order::Random, Order::Abba] {
            let r = rates(noise, 20, order, 0.0, slot);
            println!("{name:18} {order}: not zero {:.1} %", r.excludes_zero);
            assert!(r.excludes_zero <= 6.0, "{name} {order}: {r:?}");
        }
    }
}

#[test]
fn the_promised_smallest_effect_is_seen_in_four_of_five_comparisons() {
    // Plan from one quiet comparison, then look whether the plan held.
    let detectable =
        comparison(Noise::Quiet, 40, Order::Random, 1, 0.0, 0.0).verdict.detectable_log;
    let (sd, n) = (0.01 * std::f64::consts::SQRT_2, 40);
    let exact = stallscope::stats::power::detectable(n, sd).expect("enough pairs");
    let r = rates(Noise::Quiet, n as u32, Order::Random, exact.exp_m1(), 0.0);
    println!("40 pairs, {:.2} %: seen in {:.1} %", 100.0 * exact, r.excludes_zero);
    assert!((77.0..=84.0).contains(&r.excludes_zero), "{r:?}");
    assert!(detectable.is_some_and(|d| (d / exact - 1.0).abs() < 0.5), "{detectable:?} {exact}");
}

#[test]
fn twenty_comparisons_of_a_program_with_itself() {
    let accused = (0..20).filter(|&seed| {
        let noise = MACHINES[seed as usize % 4].1;
        let word = comparison(noise, 20, Order::Random, 1000 + seed, 0.0, 0.0).verdict.decision;
        matches!(word, Decision::Slower | Decision::Faster)
    });
    assert_eq!(accused.count(), 0);
}
