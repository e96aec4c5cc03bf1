//! The error rates of layout ensembles, measured on invented machines with a known truth.
//!
//! A layout spread of 2 %, run noise of 0.5 %; drift, spikes, steps and neighbours on top. The seeds
//! are fixed, so a failure is a change of behaviour, never bad luck. Bursts come twice: as they are,
//! and with the calibration chain that a sweep runs around every run, which sees them and has the run
//! repeated. Without it a layout of which four runs in five were hit is lost, so there only the false
//! alarms are held to the limit.
//!
//! `make bench-verdict` prints the tables.

#![allow(clippy::print_stdout)] // the tables are half of what this file is for

use std::sync::atomic::{AtomicUsize, Ordering};

use stallscope::compare::layouts::simulate::LayoutMachine;
use stallscope::compare::layouts::{AS_BUILT, LayoutRun, Source, Split, split};
use stallscope::compare::simulate::Noise;
use stallscope::compare::{Arm, Decision};
use stallscope::stats::rank_sum;

/// Ensembles per figure in an ordinary test run; `make bench-verdict` asks for 1000.
const FEW: u64 = 200;
const DELTA_LOG: f64 = 0.009_950_330_853; // ln 1.01
const MACHINES: [(&str, Noise); 7] = [
    ("quiet", Noise::Quiet),
    ("linear drift 5 %", Noise::LinearDrift(0.05)),
    ("random walk 0.3 %", Noise::RandomWalk(0.003)),
    ("10 % spikes", Noise::Spikes(0.1)),
    ("step +10 %", Noise::Step(0.1)),
    ("bursts, 15 % of runs", Noise::Bursts(0.15)),
    (GUARDED, Noise::Bursts(0.15)),
];
const GUARDED: &str = "bursts, with the chain";
const UNGUARDED: &str = "bursts, 15 % of runs";

fn replications() -> u64 {
    std::env::var("STALLSCOPE_REPLICATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(FEW)
}

/// What a share of so few ensembles can be off by, in per cent: two standard errors of 5 %.
fn slack() -> f64 {
    200.0 * (0.05 * 0.95 / replications() as f64).sqrt()
}

/// The share of ensembles, in per cent, for which `fact` holds.
fn share(
    (name, noise): (&str, Noise),
    effect: f64,
    shape: [u32; 2],
    fact: impl Fn(&[LayoutRun]) -> bool + Sync,
) -> f64 {
    share_of(&|machine| machine.effect_log = effect.ln_1p(), (name, noise), shape, fact)
}

/// The same with a machine that is changed.
fn share_of(
    change: &(dyn Fn(&mut LayoutMachine) + Sync),
    (name, noise): (&str, Noise),
    [layouts, rounds]: [u32; 2],
    fact: impl Fn(&[LayoutRun]) -> bool + Sync,
) -> f64 {
    let hits = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (hits, fact) = (&hits, &fact);
            scope.spawn(move || {
                for seed in (worker..replications()).step_by(workers as usize) {
                    let mut machine = LayoutMachine::new(seed ^ 0x1a70_0000);
                    change(&mut machine);
                    machine.noise = noise;
                    machine.guarded = name == GUARDED;
                    let hit = fact(&machine.ensemble(layouts, rounds));
                    hits.fetch_add(usize::from(hit), Ordering::Relaxed);
                }
            });
        }
    });
    100.0 * hits.into_inner() as f64 / replications() as f64
}

fn judged(runs: &[LayoutRun]) -> Split {
    split(runs, DELTA_LOG).expect("an invented ensemble is whole")
}

fn called(runs: &[LayoutRun]) -> bool {
    matches!(judged(runs).decision, Decision::Slower | Decision::Faster)
}

fn slower(runs: &[LayoutRun]) -> bool {
    judged(runs).decision == Decision::Slower
}

#[test]
fn ensembles_keep_their_promises_on_every_machine() {
    println!("\nlayouts x runs per arm    false slower/faster     slower at a true +3 %");
    println!("                          10 x 5     20 x 5       10 x 5     20 x 5");
    let mut broken = Vec::new();
    for (name, noise) in MACHINES {
        let wrong = [10, 20].map(|l| share((name, noise), 0.0, [l, 5], called));
        let right = [10, 20].map(|l| share((name, noise), 0.03, [l, 5], slower));
        println!(
            "{name:<22} {:9.1} % {:8.1} % {:10.1} % {:8.1} %",
            wrong[0], wrong[1], right[0], right[1]
        );
        // The full count is held to the promise as it stands, a few ensembles to what they can show.
        let slack = if replications() >= 1000 { 0.0 } else { slack() };
        let weak = right[0] < 85.0 - slack || right[1] < 98.0 - slack;
        if wrong.iter().any(|w| *w > 5.0 + slack) || weak && name != UNGUARDED {
            broken.push(name);
        }
    }
    assert!(broken.is_empty(), "limits exceeded on: {broken:?}");
}

#[test]
fn equal_builds_are_called_neither_code_nor_placement() {
    // Neither code nor placement makes a difference: all that is seen is the noise of runs, 3 %.
    let still = |machine: &mut LayoutMachine| {
        (machine.layout_sd_log, machine.run_sd_log) = (0.0, 0.03);
    };
    for (name, noise) in MACHINES {
        let share =
            |source| share_of(&still, (name, noise), [4, 8], |runs| judged(runs).source == source);
        let (code, placement) = (share(Source::Code), share(Source::Placement));
        println!(
            "{name:<22} equal builds called code {code:.1} %, placement {placement:.1} % (4 x 8)"
        );
        // An interval of 95 % promises no more for code; placement needs two of them.
        assert!(code <= 5.0 + slack() && placement <= 3.0 + slack(), "{name}: {code}, {placement}");
    }
}

#[test]
fn intervals_for_the_code_cover_the_truth() {
    for (name, noise) in MACHINES {
        let covered = share((name, noise), 0.02, [10, 3], |runs| {
            let code = judged(runs).code.expect("ten layouts have an interval");
            (code.low_log..=code.high_log).contains(&0.02_f64.ln_1p())
        });
        println!("{name:<22} 95 % interval covers the truth in {covered:.1} % (10 x 3)");
        assert!(
            (95.0 - 1.5 * slack()..=95.0 + 1.5 * slack()).contains(&covered),
            "{name}: {covered}"
        );
    }
}

/// Runs of all random layouts of an arm in one pot: the mistake this room exists to prevent.
fn pooled(runs: &[LayoutRun], arm: Arm) -> Vec<f64> {
    runs.iter().filter(|r| r.arm == arm && r.layout != AS_BUILT).map(|r| r.value).collect()
}

#[test]
fn pooling_runs_of_layouts_cries_wolf_and_layout_means_do_not() {
    // The published table: 90, 58, 56, 38, 25, 16 % for Mann-Whitney on pooled runs.
    let table = [
        ([1, 20], 90.0),
        ([3, 10], 58.0),
        ([5, 10], 56.0),
        ([10, 5], 38.0),
        ([20, 3], 25.0),
        ([30, 2], 16.0),
    ];
    println!("\nlayouts x runs per arm      1x20   3x10   5x10   10x5   20x3   30x2");
    let mann_whitney = |runs: &[LayoutRun]| {
        let [a, b] = [Arm::A, Arm::B].map(|arm| pooled(runs, arm));
        rank_sum::p_value(&a, &b).is_some_and(|p| p < 0.05)
    };
    let excludes = |runs: &[LayoutRun]| judged(runs).code.is_some_and(|c| c.excludes_zero());
    let wrong = table.map(|(shape, _)| share(("quiet", Noise::Quiet), 0.0, shape, mann_whitney));
    let right = table.map(|(shape, _)| share(("quiet", Noise::Quiet), 0.0, shape, excludes));
    let line = |values: [f64; 6]| values.map(|v| format!("{v:6.1}")).join(" ");
    println!("Mann-Whitney, pooled     {} %", line(wrong));
    println!("Welch, layout medians    {} %", line(right));
    for ((shape, published), found) in table.iter().zip(wrong) {
        assert!(
            (found - published).abs() < 4.0 + 2.0 * slack(),
            "{shape:?}: {found} against {published}"
        );
    }
    assert!(
        right[1..].iter().all(|r| (5.0 - 1.5 * slack()..5.0 + 1.5 * slack()).contains(r)),
        "{right:?}"
    );
}
