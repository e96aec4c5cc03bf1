//! `stallscope layout`: what moved between two builds, and which cache sets became crowded.

mod gather;
mod heatmap;
mod judged;
mod measure;
mod placement;
mod screen;
pub mod skid;
mod tables;
mod windows;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::code::{FunctionQuery, Image};
use stallscope::explain::MeasuredLayout;
use stallscope::layout::{
    BuildSummary, LayoutReport, Occupancy, Samples, ShiftMap, Shifts, TracedWindow, front_end,
    occupancy, set_report,
};
use stallscope::machine::{CacheGeometry, Design, PriceOrigin, start_threads};
use stallscope::report;
use stallscope::run::child::resolve_program;

use super::cpu_args::CpuArgs;
use super::words;
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

const EXAMPLES: &str = "\
Examples:
  What moved, by how much, and which change pushed it? Nothing is run
    stallscope layout ./before ./after
  And which sets of the instruction cache got crowded? Both run once, sampled
    stallscope layout ./before ./after -- input.bin
  The same from recordings that perf made, one per build
    stallscope layout ./before ./after --samples before.data --samples after.data
  Every line in use and simulated misses, counted by callgrind, which runs 50 times slower
    valgrind --tool=callgrind --dump-instr=yes --cache-sim=yes ./program input.bin
    stallscope layout ./program --samples callgrind.out.4711
  How fragile is this build: what if the code from its hottest function on moved?
    stallscope layout ./program --shift 0..4096:32 -- input.bin
  Exactly which lines fight for a set, and misses per call: one call of `decode` is followed
    stallscope layout ./before ./after --trace decode --skip 20 -- input.bin
  The same from windows that `stallscope trace --record` kept
    stallscope layout ./before ./after --windows before.trace --windows after.trace
  Can any of it pay for 15 % of 36 us at 3 GHz? On another processor?
    stallscope layout ./before ./after --windows b.trace --windows a.trace --as cascade-lake \
        --measured 15% --takes 36us --ghz 3.07
  The same, and the difference is measured here: pairs of runs for 10 s, 20,000 operations each
    stallscope layout ./before ./after --trace decode --measure --operations 20000 -- input.bin
  What would another alignment or order do?
    stallscope layout ./program --trace decode --suggest --order-file order.txt -- input.bin
  One build; every table as CSV
    stallscope layout ./program --samples perf.data --csv tables

Exit codes: 0 done, 2 bad usage or input, 130 interrupted (143 by SIGTERM).";

/// Arguments of `layout`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LayoutArgs {
    /// The program as it was, or the only one
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// The program as it is
    #[arg(value_name = "AFTER")]
    after: Option<OsString>,
    /// Run the programs with these arguments and sample where their time goes
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
    /// Run and sample the programs without arguments
    #[arg(long, conflicts_with = "samples")]
    run: bool,
    /// A recording by `perf record`, or what callgrind counted with --dump-instr=yes; once for each
    /// program, in their order
    #[arg(long, value_name = "FILE")]
    samples: Vec<PathBuf>,
    /// Follow calls of this function instruction by instruction, in one run of each program
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["samples", "run"])]
    trace: Option<String>,
    /// Follow N calls
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trace",
          value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// Let N calls pass first
    #[arg(long, value_name = "N", default_value_t = 0, requires = "trace")]
    skip: u64,
    /// A window that `trace --record` kept; once for each program, in their order
    #[arg(long, value_name = "FILE", conflicts_with_all = ["samples", "run", "trace"])]
    windows: Vec<PathBuf>,
    /// The event of the recordings to use [default: the one with the most samples]
    #[arg(long, value_name = "NAME", requires = "samples")]
    event: Option<String>,
    /// The function to hold against all others: NAME, 0xADDR or FILE:LINE [default: the hottest whose
    /// sets changed]
    #[arg(long, short, value_name = "FUNCTION")]
    function: Option<String>,
    /// The instruction cache [default: the design's]
    #[arg(long, value_name = "SIZE,WAYS,LINE")]
    l1i: Option<CacheGeometry>,
    /// Predict what becomes crowded when everything from the function on moves, for example by
    /// 0..4096:32 bytes
    #[arg(long, value_name = "FROM..TO:STEP")]
    shift: Option<Shifts>,
    /// Hold every effect against this difference: AFTER takes so much longer (15%, -3%), or the
    /// JSON result of `compare BEFORE AFTER`
    #[arg(long, value_name = "PERCENT|FILE", allow_hyphen_values = true, group = "difference")]
    measured: Option<String>,
    /// Measure that difference: run both programs in pairs, as `compare` does
    #[arg(long, requires = "after", group = "difference")]
    measure: bool,
    /// Measure for about this long
    #[arg(long = "for", value_name = "DURATION", default_value = "10s", requires = "measure",
          value_parser = words::duration)]
    measure_for: Duration,
    #[command(flatten)]
    cpus: CpuArgs,
    /// What was counted took so long before: one call of a window, or the whole run (36us, 1.2s)
    #[arg(long, value_name = "DURATION", requires = "difference", value_parser = judged::time_ns)]
    takes: Option<f64>,
    /// A whole run is so many operations of what was followed
    #[arg(long, value_name = "N", requires = "difference", conflicts_with = "takes",
          value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// The clock of the processor that was measured [default: the machine profile's, else 3]
    #[arg(long, value_name = "GHZ", requires = "difference")]
    ghz: Option<f64>,
    /// Say what other alignments and orders of functions would do to the window
    #[arg(long)]
    suggest: bool,
    /// Write the functions of the window in the order of their first use, for a linker
    #[arg(long, value_name = "FILE", requires = "suggest")]
    order_file: Option<PathBuf>,
    /// End a traced window after this time, however long it is by then (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration, default_value = "60s")]
    budget: std::time::Duration,
    /// Give up when one run takes longer than this (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration)]
    timeout: Option<Duration>,
    /// Rows per table; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Write every table as a CSV file into DIR, which is made if need be
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
}

pub fn run(args: &LayoutArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    start_threads().context("cannot start threads")?;
    measure::check(args)?;
    let mut difference = args.measured.as_deref().map(judged::difference).transpose()?;
    let programs: Vec<PathBuf> = std::iter::once(&args.before)
        .chain(&args.after)
        .map(|name| match Path::new(name) {
            // Nothing is run, so that a file right here is what is meant.
            here if here.is_file() => Ok(here.to_owned()),
            // A folder or a pipe is one only where no program is called so, and opening it says what it is.
            here => resolve_program(name)
                .or_else(|why| here.exists().then(|| here.to_owned()).ok_or(why)),
        })
        .collect::<Result<_, _>>()?;
    let images: Vec<Image> =
        programs.iter().map(|path| Image::open(path)).collect::<Result<_, _>>()?;
    let shift = match images.as_slice() {
        [before, after] => Some(ShiftMap::of(before, after)?),
        _ => None,
    };
    let build = shift.is_none().then(|| images.first().map(BuildSummary::of)).flatten();
    let design = design(args, context)?;
    let mut report = empty_report(shift, build, &design);
    if let Some(seen) = seen(args, context, &images, &design)? {
        judge(args, &images, &design, seen, &mut report)?;
    }
    let comparison = args.measure.then(|| measure::compared(args, context)).transpose()?;
    if let Some(comparison) = &comparison {
        difference = Some(judged::Difference::of(comparison));
    }
    report.budget = judged::budget(args, &design, &report, difference)?;
    if let Some(folder) = &args.csv {
        tables::write(folder, &report)?;
    }
    if let (Some(file), Some(found)) = (&args.order_file, &report.suggestions) {
        report::write_file(file, &(found.order.join("\n") + "\n"))?;
    }
    let whole = MeasuredLayout { layout: report, comparison };
    output::result(context, "layout", &whole)?;
    if context.shows_screen() {
        let most = if args.top == 0 { usize::MAX } else { args.top };
        terminal::print(&screen::screen(&whole.layout, most))?;
    }
    Ok(Outcome::Fine)
}

/// What is known before anything of the runs is.
fn empty_report(
    shift: Option<ShiftMap>,
    build: Option<BuildSummary>,
    design: &Design,
) -> LayoutReport {
    LayoutReport {
        shift,
        build,
        sets: None,
        windows: Vec::new(),
        design: design.microarchitecture,
        jump_erratum: design.jump_erratum().value,
        front_end: Vec::new(),
        budget: None,
        suggestions: None,
    }
}

/// The design that is judged for, with the cache that the user names.
fn design(args: &LayoutArgs, context: &Context) -> anyhow::Result<Design> {
    let mut design = profile::load(context)?.design;
    if args.l1i.is_some() {
        design.code_cache = args.l1i;
        design.code_cache_origin = Some(PriceOrigin::Documented { source: "--l1i".to_owned() });
    }
    Ok(design)
}

/// What is known of the runs of the builds.
struct Seen {
    samples: Vec<Samples>,
    windows: Vec<TracedWindow>,
    occupancies: Vec<Occupancy>,
}

fn seen(
    args: &LayoutArgs,
    context: &Context,
    images: &[Image],
    design: &Design,
) -> anyhow::Result<Option<Seen>> {
    let traced = args.trace.is_some() || !args.windows.is_empty();
    let sampled = args.run || !args.args.is_empty() || !args.samples.is_empty();
    if args.suggest && !traced {
        bail!("--suggest needs a window: add --trace FUNCTION, or --windows FILE");
    }
    if !traced && !sampled {
        if args.function.is_some() || args.shift.is_some() || args.measured.is_some() {
            bail!(
                "--function, --shift and --measured need samples: add --samples FILE, or the arguments to run with behind --"
            );
        }
        return Ok(None);
    }
    if !traced {
        let samples = samples(args, context, images)?;
        let (windows, occupancies) = (Vec::new(), Vec::new());
        return Ok(Some(Seen { samples, windows, occupancies }));
    }
    let windows = windows::windows(args, context, images)?;
    let mut seen = Seen { samples: Vec::new(), windows, occupancies: Vec::new() };
    for (image, window) in images.iter().zip(&seen.windows) {
        let (found, misses) = occupancy(window, image, design.code_cache().value)
            .context("a cache of this shape cannot be modelled; give another --l1i")?;
        seen.samples.push(window.samples(Some(misses)));
        seen.occupancies.push(found);
    }
    Ok(Some(seen))
}

/// Fills in everything that follows from what was seen.
fn judge(
    args: &LayoutArgs,
    images: &[Image],
    design: &Design,
    seen: Seen,
    report: &mut LayoutReport,
) -> anyhow::Result<()> {
    let Seen { samples, windows, occupancies } = seen;
    let builds: Vec<(&Image, &Samples)> = images.iter().zip(&samples).collect();
    let shifts = args.shift.map(|shifts| (shifts, windows.last()));
    let function = args.function.as_deref().map(FunctionQuery::new);
    report.sets = Some(set_report(&builds, design, function.as_ref(), shifts)?);
    report.front_end = builds
        .iter()
        .enumerate()
        .map(|(i, (image, samples))| front_end(image, samples, windows.get(i), design))
        .collect();
    if args.suggest
        && let (Some((image, samples)), Some(window)) = (builds.last(), windows.last())
    {
        report.suggestions = stallscope::layout::suggest(image, (samples, window), design);
    }
    report.windows = occupancies;
    Ok(())
}

fn samples(args: &LayoutArgs, context: &Context, images: &[Image]) -> anyhow::Result<Vec<Samples>> {
    if args.samples.is_empty() {
        let bar = context.progress(images.len() as u64, "sampling");
        let mut all = Vec::new();
        let skid = skid::calibrated(context);
        for image in images {
            all.push(gather::sampled(image, (&args.args, args.timeout), skid, context)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        return Ok(all);
    }
    if args.samples.len() != images.len() {
        bail!(
            "{} programs and {} recordings: give --samples once for each program, in their order",
            images.len(),
            args.samples.len()
        );
    }
    let pairs = images.iter().zip(&args.samples);
    pairs.map(|(image, file)| gather::recorded(image, file, args.event.as_deref())).collect()
}
