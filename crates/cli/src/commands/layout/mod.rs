//! `stallscope layout`: what moved between two builds, and which cache sets became crowded.

mod heatmap;
mod screen;
mod tables;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::code::Image;
use stallscope::compare::default_cpu;
use stallscope::layout::{
    BuildSummary, Geometry, LayoutReport, Samples, SetReport, ShiftMap, Shifts, set_report,
};
use stallscope::machine::Machine;
use stallscope::trace::callgrind::Callgrind;
use stallscope::trace::child::{Launch, Limits, Streams, resolve_program};
use stallscope::trace::perf_data::PerfData;
use stallscope::trace::sample::{SampleSettings, sample};

use super::words;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

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
  One build; every table as CSV
    stallscope layout ./program --samples perf.data --csv tables

Exit codes: 0 done, 2 bad usage or input, 130 interrupted.";

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
    #[arg(long, value_name = "FILE", conflicts_with = "args")]
    samples: Vec<PathBuf>,
    /// The event of the recordings to use [default: the one with the most samples]
    #[arg(long, value_name = "NAME", requires = "samples")]
    event: Option<String>,
    /// The function to hold against all others [default: the hottest whose sets changed]
    #[arg(long, short, value_name = "NAME")]
    function: Option<String>,
    /// The instruction cache [default: this machine's]
    #[arg(long, value_name = "BYTES,WAYS,LINE")]
    l1i: Option<Geometry>,
    /// Predict what becomes crowded when everything from the function on moves, for example by
    /// 0..4096:32 bytes
    #[arg(long, value_name = "FROM..TO:STEP")]
    shift: Option<Shifts>,
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

/// Runs the command.
pub fn run(args: &LayoutArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let programs: Vec<PathBuf> = std::iter::once(&args.before)
        .chain(&args.after)
        .map(|name| resolve_program(name))
        .collect::<Result<_, _>>()?;
    let images: Vec<Image> =
        programs.iter().map(|path| Image::open(path)).collect::<Result<_, _>>()?;
    let shift = match images.as_slice() {
        [before, after] => Some(ShiftMap::of(before, after)?),
        _ => None,
    };
    let build = shift.is_none().then(|| images.first().map(BuildSummary::of)).flatten();
    let sets = sets(args, context, &images)?;
    let jump_erratum_here = Machine::detect().jcc_erratum;
    let report = LayoutReport { shift, build, sets, jump_erratum_here };
    if let Some(folder) = &args.csv {
        tables::write(folder, &report)?;
    }
    output::json(context, "layout", &report)?;
    if context.shows_screen() {
        let most = if args.top == 0 { usize::MAX } else { args.top };
        terminal::print(&screen::screen(&report, most))?;
    }
    Ok(Outcome::Fine)
}

/// The tables of sets, when there are samples to make them from.
fn sets(
    args: &LayoutArgs,
    context: &Context,
    images: &[Image],
) -> anyhow::Result<Option<SetReport>> {
    let samples: Vec<Samples> = if args.run || !args.args.is_empty() {
        let bar = context.progress(images.len() as u64, "sampling");
        let mut all = Vec::new();
        for image in images {
            all.push(sampled(image, &args.args, args.timeout, context)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        all
    } else if args.samples.is_empty() {
        if args.function.is_some() || args.shift.is_some() {
            bail!(
                "--function and --shift need samples: add --samples FILE, or the arguments to run with behind --"
            );
        }
        return Ok(None);
    } else {
        if args.samples.len() != images.len() {
            bail!(
                "{} programs and {} recordings: give --samples once for each program, in their order",
                images.len(),
                args.samples.len()
            );
        }
        let pairs = images.iter().zip(&args.samples);
        pairs
            .map(|(image, file)| recorded(image, file, args.event.as_deref()))
            .collect::<Result<_, _>>()?
    };
    let geometry = args.l1i.or_else(|| Geometry::of(&Machine::detect())).context(
        "this machine does not say what its instruction cache is like; give --l1i, for example \
         --l1i 32768,8,64",
    )?;
    let builds: Vec<(&Image, &Samples)> = images.iter().zip(&samples).collect();
    Ok(Some(set_report(&builds, geometry, args.function.as_deref(), args.shift)?))
}

/// Runs a program once.
fn sampled(
    image: &Image,
    words: &[OsString],
    timeout: Option<Duration>,
    context: &Context,
) -> anyhow::Result<Samples> {
    let launch = Launch {
        program: image.path().to_owned(),
        args: words.to_vec(),
        environment_padding_bytes: 0,
        cpu: default_cpu(),
        streams: Streams::Captured,
    };
    let limits = Limits { timeout, interrupt: context.interrupt() };
    let run = sample(&launch, &SampleSettings::default(), &limits)?;
    let program = image.path().display();
    if !run.exit.status.success() {
        bail!("{program} failed when sampled ({}); its samples are not used", run.exit.status);
    }
    let source = format!("{} every {} us", run.engine, run.period_ns / 1000);
    let Some(main) = run.samples.into_iter().find(|object| object.is_main_program) else {
        bail!("{program} was never found running its own code: let it run longer");
    };
    let mut samples = Samples::of_file(image, source, &main.hits);
    samples.notes.extend(run.notes);
    Ok(samples)
}

/// Reads a recording.
fn recorded(image: &Image, file: &Path, event: Option<&str>) -> anyhow::Result<Samples> {
    if Callgrind::is_one(file) {
        return counted(image, file, event);
    }
    let data = PerfData::read(file)?;
    let chosen = match event {
        Some(name) => data.events.iter().find(|e| e.name == name),
        None => data.main_event(),
    };
    let Some(chosen) = chosen else {
        let names: Vec<&str> = data.events.iter().map(|e| e.name.as_str()).collect();
        bail!(
            "{} has no event {}; it has: {}",
            file.display(),
            event.unwrap_or_default(),
            names.join(", ")
        );
    };
    let (hits, note) = data.in_program(chosen, image.path(), image.build_id())?;
    let name = file.file_name().unwrap_or(OsStr::new("?")).to_string_lossy();
    let source = format!("{name}, event {}", chosen.name);
    let mut samples = Samples::of_file(image, source, &hits.hits);
    samples.notes.extend(note);
    if data.lost > 0 {
        let lost = format!("{}: the kernel had no room for {} samples", file.display(), data.lost);
        samples.notes.push(lost);
    }
    if data.unknown_records > 0 {
        samples.notes.push(format!(
            "{}: {} records of unknown types were stepped over",
            file.display(),
            data.unknown_records
        ));
    }
    Ok(samples)
}

/// Reads what callgrind counted.
fn counted(image: &Image, file: &Path, event: Option<&str>) -> anyhow::Result<Samples> {
    if let Some(event) = event {
        bail!("{}: callgrind has no event {event}; leave --event out", file.display());
    }
    let found = Callgrind::read(file)?;
    let counts = found.in_program(image.path())?;
    let name = file.file_name().unwrap_or(OsStr::new("?")).to_string_lossy();
    let cache = found.cache.as_deref();
    let simulated = cache.map_or(String::new(), |cache| format!(", simulated cache {cache}"));
    let misses = cache.map(|_| {
        counts.iter().map(|(at, c)| (*at, c.l1i_misses)).filter(|(_, n)| *n > 0).collect()
    });
    Ok(Samples {
        source: format!("{name}, every instruction counted{simulated}"),
        hits: counts.iter().map(|(at, c)| (*at, c.executions)).collect(),
        is_complete: true,
        misses,
        notes: vec![format!(
            "{}: callgrind has no build ids: whether {} was built again since cannot be told",
            file.display(),
            image.path().display()
        )],
    })
}
