//! How often histories of invented commits are said to step, where they do and where they do not.
//!
//! The seeds are fixed, so a failure is a change of behaviour, never bad luck. `make bench-verdict` prints the
//! table of docs/history.md.

#![allow(clippy::print_stdout)] // the table is half of what this file is for

use stallscope::compare::history::simulate::commits;
use stallscope::compare::history::{HistoryEntry, HistoryFile, HistoryStep, judge};

/// Histories per figure in an ordinary test run; the table is made of 500.
const FEW: u64 = 100;

fn replications() -> u64 {
    std::env::var("STALLSCOPE_REPLICATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(FEW)
}

/// Where steps are called.
fn called(entries: Vec<HistoryEntry>) -> Vec<usize> {
    let file = HistoryFile { entries, damaged: Vec::new() };
    let report = judge("h", file, 0.01, 1);
    let steps =
        report.series.iter().flat_map(|s| &s.steps).filter(|s: &&HistoryStep| s.is_called());
    steps.map(|s| s.at as usize).collect()
}

#[test]
fn equal_commits_hardly_ever_step() {
    println!();
    for (n, sd) in [(30, 0.005), (30, 0.01), (100, 0.01), (300, 0.01)] {
        let steps =
            (0..replications()).filter(|seed| !called(commits(*seed, n, sd, 0, 0.0)).is_empty());
        let (wrong, of) = (steps.count() as u64, replications());
        println!("{n} equal commits, noise {:.1} %: {wrong} of {of} with a step", 100.0 * sd);
        assert!(wrong <= of.div_ceil(500), "{n} commits: {wrong} of {of}");
    }
}

#[test]
fn steps_are_found_at_their_commit() {
    println!();
    for (sd, step, least) in
        [(0.003, 0.01, 0.4), (0.005, 0.02, 0.97), (0.01, 0.02, 0.4), (0.01, 0.03, 0.85)]
    {
        let (mut found, mut exact, mut near) = (0, 0, 0);
        for seed in 0..replications() {
            let at = 5 + seed as usize % 20;
            let steps = called(commits(seed, 30, sd, at, f64::ln_1p(step)));
            let off = steps.iter().map(|s| s.abs_diff(at)).min();
            found += u64::from(off.is_some());
            exact += u64::from(off == Some(0));
            near += u64::from(off.is_some_and(|off| off <= 1));
        }
        let of = replications();
        println!(
            "a step of {:.0} % in 30 commits, noise {:.1} %: found in {found} of {of}, at its commit in \
             {exact}, at most one off in {near}",
            100.0 * step,
            100.0 * sd
        );
        assert!(found as f64 >= least * of as f64, "{step} in {sd}: {found} of {of}");
    }
}

#[test]
fn what_comes_back_is_found_with_both_ends() {
    println!();
    for (n, sd, step, least) in
        [(30, 0.005, 0.03, 0.97), (30, 0.01, 0.03, 0.5), (60, 0.01, 0.03, 0.8)]
    {
        let (mut found, mut near) = (0, 0);
        for seed in 0..replications() {
            let mut entries = commits(seed, n, sd, n / 3, f64::ln_1p(step));
            entries.iter_mut().skip(2 * n / 3).for_each(|e| e.log_ratio -= f64::ln_1p(step));
            let steps = called(entries);
            let off = |at: usize| steps.iter().any(|s| s.abs_diff(at) <= 1);
            found += u64::from(steps.len() >= 2);
            near += u64::from(off(n / 3) && off(2 * n / 3));
        }
        let of = replications();
        println!(
            "{:.0} % for {} of {n} commits, noise {:.1} %: both ends found in {found} of {of}, at most one off in {near}",
            100.0 * step,
            n / 3,
            100.0 * sd
        );
        assert!(found as f64 >= least * of as f64, "{n} {sd}: {found} of {of}");
    }
}
