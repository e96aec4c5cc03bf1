//! Invented fleets through real files: what is joined, what counts once, who is set aside.

use std::path::Path;

use super::simulate::SimulatedFleet;
use super::*;
use crate::compare::Measure;
use crate::compare::layouts::Agreement;
use crate::compare::sweep::{
    Axis, Block, Folders, Host, KindEffect, Knob, LevelResult, SetAside, Site, SweepError,
    SweepNote, SweepReport, SweepSettings, plan_blocks, run_block, sweep,
};
use crate::compare::verdict::Decision;
use crate::run::child::NEVER;

fn written(fleet: &SimulatedFleet, machines: impl Iterator<Item = u32>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let results = ResultFolder::at(folder.path());
    results.prepare(&Job::Rounds(Box::new(fleet.plan()))).unwrap();
    for result in machines.flat_map(|machine| fleet.results(machine)) {
        results.keep(&result.plan, result.block, &result).unwrap();
    }
    folder
}

fn level(report: &SweepReport) -> &LevelResult {
    &report.comparisons[0].levels[0]
}

fn kind(report: &SweepReport) -> &KindEffect {
    &level(report).machines.as_ref().unwrap().kinds[0]
}

#[test]
fn the_order_and_the_number_of_copies_change_nothing() {
    let fleet = SimulatedFleet::new(4, 24, 5);
    let first = written(&fleet, 0..4);
    let whole = collect(&[first.path().into()]).unwrap();
    assert_eq!(
        whole.report,
        fleet.report().map(|r| SweepReport { blocks: whole.report.blocks, ..r }).unwrap()
    );
    let tally = whole.report.blocks.unwrap();
    assert_eq!((tally.done, tally.of, tally.duplicates, tally.unusable), (24, 24, 0, 0));
    // Written in another order, some of it twice, in lines of one file beside files of their own.
    let second = written(&fleet, [3, 1].into_iter());
    let lines: String = (0..4)
        .flat_map(|m| fleet.results(m))
        .map(|r| serde_json::to_string(&r).unwrap() + "\n")
        .collect();
    std::fs::write(second.path().join("all.jsonl"), lines).unwrap();
    let both = collect(&[second.path().into(), first.path().into()]).unwrap();
    assert_eq!(both.report.comparisons, whole.report.comparisons);
    assert_eq!((both.report.runs, both.report.spreads), (whole.report.runs, whole.report.spreads));
    assert_eq!(both.report.blocks.unwrap().duplicates, 24 + 12);
}

#[test]
fn what_is_lost_is_told_and_what_is_damaged_does_not_count() {
    let fleet = SimulatedFleet::new(3, 12, 6);
    let folder = written(&fleet, 0..2);
    let damaged = serde_json::to_string(&fleet.results(2)[0]).unwrap();
    let other = damaged.replace(&fleet.plan().plan, "0000000000000000");
    let short = damaged.replace("\"round\":2", "\"round\":3");
    let lines = [&damaged[..damaged.len() / 2], "{}", &other, &short].join("\n");
    std::fs::write(folder.path().join("late.jsonl"), lines).unwrap();
    let found = collect(&[folder.path().into()]).unwrap();
    let tally = found.report.blocks.unwrap();
    assert_eq!((tally.done, tally.of, tally.unusable), (8, 12, 4));
    assert!(found.report.notes.contains(&SweepNote::BlocksMissing { done: 8, of: 12 }));
    assert!(found.missing.contains(&11) && !found.missing.contains(&0));
}

#[test]
fn folders_that_hold_nothing_or_two_sweeps_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(collect(&[empty.path().into()]), Err(FleetError::NoPlan(_))));
    let planned = written(&SimulatedFleet::new(1, 4, 1), 0..0);
    assert!(matches!(collect(&[planned.path().into()]), Err(FleetError::Nothing)));
    let [one, two] = [7, 8].map(|seed| written(&SimulatedFleet::new(1, 4, seed), 0..1));
    let both = collect(&[one.path().into(), two.path().into()]);
    assert!(matches!(both, Err(FleetError::SeveralPlans(..))));
    // What a plan claims is checked before anything is made of it.
    let plan = SimulatedFleet::new(1, 4, 1).plan();
    let refused = |block: Block| assert!(matches!(block.check(), Err(SweepError::Block(_))));
    plan.check().unwrap();
    refused(Block { blocks: u32::MAX, ..plan.clone() });
    refused(Block { rounds: u32::MAX, ..plan.clone() });
    refused(Block { block: 4, ..plan.clone() });
    refused(Block { cells: Vec::new(), ..plan.clone() });
    refused(Block { identical: vec![[0, 9]], ..plan.clone() });
    let layouts = SweepSettings { layouts: u32::MAX, ..plan.settings.clone() };
    refused(Block { settings: layouts, ..plan });
}

#[test]
fn one_machine_is_judged_as_a_sweep_here() {
    let report = SimulatedFleet::new(1, 12, 9).report().unwrap();
    assert_eq!((report.machines.len(), &level(&report).machines), (1, &None));
    assert!(level(&report).split.as_ref().is_some_and(|s| s.welch.is_some()));
    assert_eq!(report.runs.len(), 12 * 8);
}

#[test]
fn machines_are_a_random_effect_and_more_runs_do_not_make_up_for_them() {
    let width = |machines, blocks| {
        let of = |seed| {
            let mut fleet = SimulatedFleet::new(machines, blocks, seed);
            (fleet.machine_sd_log, fleet.layouts) = (0.02, 0);
            let effect = kind(&fleet.report().unwrap()).effect;
            effect.high_log - effect.low_log
        };
        (1..=10).map(of).sum::<f64>()
    };
    let few = width(4, 24);
    assert!(
        width(4, 400) > 0.5 * few,
        "a hundred rounds on each of four machines are four machines"
    );
    assert!(width(40, 240) < 0.5 * few);
    // Layouts are the same builds everywhere: no number of machines takes their spread away.
    let mut fleet = SimulatedFleet::new(60, 180, 4);
    (fleet.machine_sd_log, fleet.layout_sd_log) = (0.001, 0.03);
    let report = fleet.report().unwrap();
    let effect = kind(&report).effect;
    assert!(effect.high_log - effect.low_log > 0.03, "{effect:?}");
    assert!(kind(&report).another.unwrap().high_log >= effect.high_log);
}

#[test]
fn who_lies_or_has_a_wrong_clock_is_set_aside_and_named() {
    let mut fleet = SimulatedFleet::new(60, 360, 11);
    let honest = fleet.report().unwrap();
    assert!(honest.machines.iter().all(|m| m.set_aside.is_none()));
    (fleet.lying, fleet.skewed) = (0.1, 0.1);
    let report = fleet.report().unwrap();
    let count = |is: fn(&SetAside) -> bool| {
        report.machines.iter().filter(|m| m.set_aside.as_ref().is_some_and(is)).count()
    };
    let far = count(|s| matches!(s, SetAside::FarOff { .. }));
    let clock = count(|s| matches!(s, SetAside::Clock { .. }));
    assert!((1..20).contains(&far) && (1..20).contains(&clock), "{far} {clock}");
    assert_eq!(kind(&report).machines as usize, 60 - far - clock);
    assert_eq!(kind(&report).decision, Decision::Slower);
    assert!((kind(&report).effect.log_ratio - 0.03).abs() < 0.01, "{:?}", kind(&report));
}

#[test]
fn one_machine_in_twenty_that_lies_changes_no_verdict() {
    for effect in [-0.03, 0.0, 0.03] {
        for seed in 1..=8 {
            let mut fleet = SimulatedFleet::new(100, 300, seed);
            (fleet.effect_log, fleet.layout_sd_log) = (effect, 0.001);
            let honest = kind(&fleet.report().unwrap()).decision;
            fleet.lying = 0.05;
            for lie in [0.03, 0.1, -0.1] {
                fleet.lie_log = lie;
                let report = fleet.report().unwrap();
                assert_eq!(kind(&report).decision, honest, "{effect} {seed} {lie}");
            }
        }
    }
}

#[test]
fn a_placebo_that_shows_something_counts_against_the_machine() {
    let fleet = SimulatedFleet::new(3, 24, 12);
    let folder = written(&fleet, 0..2);
    let results = ResultFolder::at(folder.path());
    for mut result in fleet.results(2) {
        for placebo in &mut result.placebos {
            placebo.amounts.wall_ns = placebo.amounts.wall_ns * 11 / 10;
        }
        results.keep(&result.plan, result.block, &result).unwrap();
    }
    let report = collect(&[folder.path().into()]).unwrap().report;
    let aside: Vec<bool> = report
        .machines
        .iter()
        .map(|m| matches!(m.set_aside, Some(SetAside::Placebo { .. })))
        .collect();
    assert_eq!(aside, [false, false, true]);
}

#[test]
fn kinds_of_machine_stay_apart() {
    let [slower, equal] = [0.03, 0.0].map(|effect_log| SimulatedFleet {
        effect_log,
        machine_sd_log: 0.001,
        layout_sd_log: 0.001,
        run_sd_log: 0.002,
        ..SimulatedFleet::new(8, 96, 13)
    });
    let folder = written(&slower, 0..5);
    let results = ResultFolder::at(folder.path());
    for mut result in (5..8).flat_map(|machine| equal.results(machine)) {
        result.machine.kind = "intel-6-143-8".into();
        results.keep(&result.plan, result.block, &result).unwrap();
    }
    let report = collect(&[folder.path().into()]).unwrap().report;
    let across = level(&report).machines.as_ref().unwrap();
    let words: Vec<(u32, Decision)> =
        across.kinds.iter().map(|k| (k.machines, k.decision)).collect();
    assert_eq!(words, [(5, Decision::Slower), (3, Decision::Equivalent)]);
    assert_eq!(across.agreement, Agreement::Partly);
    // No word for all of them, and no figure that mixes them.
    assert_eq!(report.comparisons[0].decision, Decision::Inconclusive);
    assert!(level(&report).split.is_none() && report.spreads.is_empty());
}

#[test]
fn intervals_hold_the_truth_with_few_machines_and_with_many() {
    for (machines, layouts) in [(2, 4), (3, 0), (5, 4), (20, 0)] {
        let holds = |seed: &u64| {
            let mut fleet = SimulatedFleet::new(machines, machines * 3, *seed);
            fleet.layouts = layouts;
            let report = fleet.report().unwrap();
            let truth = fleet.effect_log + if layouts == 0 { fleet.as_built_log() } else { 0.0 };
            let effect = kind(&report).effect;
            effect.low_log <= truth && truth <= effect.high_log
        };
        let held = (1..=200).filter(holds).count();
        // 93 % of 200 ensembles, less two standard deviations of what chance does to that.
        assert!(held >= 179, "{machines} machines, {layouts} layouts: {held} of 200");
    }
}

fn question(folder: &Path) -> (SweepSettings, Folders) {
    let sources = folder.join("src");
    std::fs::create_dir_all(&sources).unwrap();
    let build = "printf '#!/bin/sh\\n: {layout}\\necho value $(( {seed} %% 23 + ${{#STALLSCOPE_PADDING}} + {n} ))\\n' \
                 > {out} && chmod +x {out}";
    let settings = SweepSettings {
        layouts: 3,
        knob: Knob::Lld,
        build: Some(build.into()),
        rounds: Some(6),
        seed: 5,
        timeout_ms: Some(60_000),
        measure: Measure::Regex { pattern: r"value (\d+)".into(), higher_is_better: false },
        ..SweepSettings::new(Axis::parse("n", "1000,1100").unwrap(), "{out}")
    };
    (settings, Folders { cache: folder.join("cache"), sources: vec![sources], fresh: false })
}

#[test]
fn blocks_that_are_run_elsewhere_are_the_sweep_here() {
    let place = tempfile::tempdir().unwrap();
    let (settings, folders) = question(place.path());
    let here = sweep(&settings, &folders, &NEVER, &|_| {}).unwrap();
    let planned = plan_blocks(&settings, &folders, 2, &NEVER, &|_| {}).unwrap();
    let path = place.path().join("plan.jsonl");
    Plan::write(&path, planned.blocks()).unwrap();
    let jobs = Plan::at(&path).read(None).unwrap();
    let of = |job: &Job| match job {
        Job::Rounds(block) => Block::clone(block),
        other => panic!("{other:?}"),
    };
    let blocks: Vec<Block> = jobs.iter().map(of).collect();
    assert_eq!((blocks.len(), blocks[2].span()), (3, 4..6));
    assert!(blocks[0].cost_ns > 0 && blocks[0].files.len() == 8);
    let results = ResultFolder::at(place.path().join("out"));
    let site = Site { root: None, host: Host::here(None) };
    // The last one first, and one twice.
    for block in [2, 0, 2, 1] {
        results.prepare(&jobs[block]).unwrap();
        let block = &blocks[block];
        let result = run_block(block, &site, &NEVER, &mut || {}).unwrap();
        results.keep(&result.plan, result.block, &result).unwrap();
    }
    assert_eq!(results.progress().unwrap(), Some((3, 3)));
    let there = collect(&[results.path().into()]).unwrap().report;
    assert_eq!(there.comparisons, here.comparisons);
    assert_eq!((there.spreads, there.metric), (here.spreads, here.metric));
    // A file with other bytes is refused, before anything is run.
    let program = blocks[1].cells[0].program.clone().unwrap();
    std::fs::write(&program, "#!/bin/sh\necho value 1\n").unwrap();
    let said = run_block(&blocks[1], &site, &NEVER, &mut || {}).unwrap_err();
    assert!(matches!(said, SweepError::OtherFile(path) if path == program));
}

#[test]
fn files_that_were_brought_lie_at_their_whole_path() {
    let place = tempfile::tempdir().unwrap();
    let (settings, folders) = question(place.path());
    let planned = plan_blocks(&settings, &folders, 1, &NEVER, &|_| {}).unwrap();
    let block = planned.first();
    let root = place.path().join("stage");
    let site = Site { root: Some(root.clone()), host: Host::here(Some("container")) };
    assert!(matches!(run_block(block, &site, &NEVER, &mut || {}), Err(SweepError::OtherFile(_))));
    for file in &block.files {
        let there = site.place(&file.path);
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::copy(&file.path, there).unwrap();
    }
    let result = run_block(block, &site, &NEVER, &mut || {}).unwrap();
    assert_eq!((result.machine.name.as_str(), result.placebos.len()), ("container", 1));
    assert!(result.is_whole(block.span(), &block.seats()));
}
