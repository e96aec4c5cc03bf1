//! What a large fleet costs and whether its answers are right, on invented machines.
//!
//! Writes what a fleet would send back, joins it with `collect`, and counts time, memory and bytes; then counts how
//! often intervals hold the truth with few machines and with many.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use stallscope::compare::fleet::simulate::SimulatedFleet;
use stallscope::compare::fleet::{Job, ResultFolder, collect};
use stallscope::compare::sweep::{KindEffect, SetAside, SweepReport};

use super::say;

/// Size of the fleet.
#[derive(Args)]
pub struct Size {
    /// Machines
    #[arg(long, default_value_t = 10_000)]
    machines: u32,
    /// Blocks
    #[arg(long, default_value_t = 1_000_000)]
    blocks: u32,
    /// Ensembles for each figure of the coverage
    #[arg(long, default_value_t = 1000)]
    ensembles: u32,
    /// A file for each block, as workers write them, not one for each machine
    #[arg(long)]
    file_per_block: bool,
    /// Where the files go; they are removed
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Runs everything and prints it.
pub fn run(size: &Size) -> anyhow::Result<()> {
    large(size)?;
    coverage(size.ensembles)
}

fn faulty(size: &Size) -> SimulatedFleet {
    let mut fleet = SimulatedFleet::new(size.machines, size.blocks, 1);
    (fleet.slow, fleet.dying, fleet.skewed, fleet.duplicated) = (0.1, 0.1, 0.02, 0.02);
    fleet.lying = 0.05;
    fleet
}

fn large(size: &Size) -> anyhow::Result<()> {
    let fleet = faulty(size);
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("stallscope-fleet-");
    let folder = match &size.folder {
        Some(path) => folder.tempdir_in(path),
        None => folder.tempdir(),
    }
    .context("cannot make a folder")?;
    let started = Instant::now();
    let bytes = write(&fleet, folder.path(), size.file_per_block)?;
    say(&format!(
        "{} machines, {} blocks: {:.0} MB written in {:.0} s, {:.0} bytes a block",
        fleet.machines,
        fleet.blocks,
        bytes as f64 / 1e6,
        started.elapsed().as_secs_f64(),
        bytes as f64 / f64::from(fleet.blocks)
    ));
    // A process of its own, so that its memory is that of `collect`.
    let program = std::env::current_exe()?;
    let status =
        std::process::Command::new(program).arg("collect-fleet").arg(folder.path()).status()?;
    anyhow::ensure!(status.success(), "collect failed: {status}");
    Ok(())
}

fn write(fleet: &SimulatedFleet, folder: &Path, per_block: bool) -> anyhow::Result<u64> {
    let results = ResultFolder::at(folder);
    results.prepare(&Job::Rounds(Box::new(fleet.plan())))?;
    let mut bytes = 0;
    for machine in 0..fleet.machines {
        let mut text = String::new();
        for result in fleet.results(machine) {
            if per_block {
                results.keep(&result.plan, result.block, &result)?;
            }
            let line = serde_json::to_string(&result)? + "\n";
            bytes += line.len() as u64;
            text += &line;
        }
        if !per_block {
            let path = folder.join(format!("node{machine:05}.jsonl"));
            std::fs::File::create(path)?.write_all(text.as_bytes())?;
        }
    }
    Ok(bytes)
}

/// Joins a folder and says what it took.
pub fn collected(folder: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    let found = collect(&[folder.to_owned()])?;
    let seconds = started.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("?").trim();
    let report = &found.report;
    let worked = processor_seconds();
    say(&format!(
        "collect: {seconds:.1} s, {worked:.1} s of processors, peak memory {peak}; {:?}",
        report.blocks
    ));
    let aside = |is: fn(&SetAside) -> bool| {
        report.machines.iter().filter(|m| m.set_aside.as_ref().is_some_and(is)).count()
    };
    say(&format!(
        "set aside: {} by their clock, {} by their placebo, {} far off",
        aside(|s| matches!(s, SetAside::Clock { .. })),
        aside(|s| matches!(s, SetAside::Placebo { .. })),
        aside(|s| matches!(s, SetAside::FarOff { .. })),
    ));
    if let Some(kind) = kind(report) {
        say(&format!("true +3.0 % (log 0.03): {kind:?}"));
    }
    Ok(())
}

/// Time on processors of this process so far, which others on a busy machine do not take.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // User and system time are the 14th and 15th, in hundredths of a second.
    fields.skip(11).take(2).filter_map(|f| f.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn kind(report: &SweepReport) -> Option<&KindEffect> {
    report.comparisons.first()?.levels.first()?.machines.as_ref()?.kinds.first()
}

/// How often the intervals hold the truth.
fn coverage(ensembles: u32) -> anyhow::Result<()> {
    say(
        "machines  layouts  blocks each  faults  interval holds the mean  and one more machine  verdict",
    );
    for layouts in [0, 4] {
        for machines in [2, 3, 5, 10, 30, 100] {
            for (each, is_faulty) in [(6, false), (6, true)] {
                let (mut holds, mut another, mut of, mut right) = (0, [0, 0], 0, 0);
                for seed in 0..ensembles {
                    let mut fleet =
                        SimulatedFleet::new(machines, machines * each, u64::from(seed) + 1);
                    fleet.layouts = layouts;
                    if is_faulty {
                        (fleet.slow, fleet.dying, fleet.skewed) = (0.1, 0.3, 0.02);
                        fleet.lying = if machines >= 10 { 0.05 } else { 0.0 };
                    }
                    let Ok(report) = fleet.report() else { continue };
                    let Some(kind) = kind(&report) else { continue };
                    let truth = fleet.effect_log + truth_of_builds(&fleet);
                    of += 1;
                    let within = |p: &stallscope::compare::layouts::Part, x: f64| {
                        p.low_log <= x && x <= p.high_log
                    };
                    holds += u32::from(within(&kind.effect, truth));
                    right += u32::from(kind.decision == stallscope::compare::Decision::Slower);
                    // A machine that was not asked.
                    let one_more = truth + fleet.machine_sd_log * draw(seed);
                    if let Some(told) = kind.another {
                        another[0] += u32::from(within(&told, one_more));
                        another[1] += 1;
                    }
                }
                let part = |n: u32, of: u32| 100.0 * f64::from(n) / f64::from(of.max(1));
                let share = |n| part(n, of);
                let one_more = match another {
                    [_, 0] => "-".to_owned(),
                    [holds, of] => format!("{:.1} %", part(holds, of)),
                };
                say(&format!(
                    "{machines:8}  {layouts:7}  {each:11}  {:6}  {:21.1} %  {one_more:>20}  slower in {:.1} %",
                    if is_faulty { "yes" } else { "none" },
                    share(holds),
                    share(right),
                ));
            }
        }
    }
    Ok(())
}

/// Without placements the question is about these builds, and what they owe to where they sit is part of it.
fn truth_of_builds(fleet: &SimulatedFleet) -> f64 {
    if fleet.layouts > 0 { 0.0 } else { fleet.as_built_log() }
}

/// A draw of the normal distribution for a machine outside the fleet.
fn draw(seed: u32) -> f64 {
    use rand_pcg::rand_core::SeedableRng as _;
    use stallscope::compare::simulate::normal;
    normal(&mut rand_pcg::Pcg64Mcg::seed_from_u64(u64::from(seed) ^ 0xfade))
}
