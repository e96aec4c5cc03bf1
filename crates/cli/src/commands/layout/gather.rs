//! Samples and counts of one program: from a run of ours, or from what another tool recorded.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use stallscope::code::Image;
use stallscope::compare::default_cpu;
use stallscope::import::callgrind::Callgrind;
use stallscope::import::perf_data::PerfData;
use stallscope::import::profile_data;
use stallscope::layout::{Samples, named_spots};
use stallscope::run::child::{Launch, Limits};
use stallscope::run::sample::{Engine, SampleSettings, Skid, period_for_overhead, sample};

use crate::context::Context;

/// What sampling may add to the time of a run.
const MOST_OVERHEAD: f64 = 0.02;

/// Runs a program once. Samples that land late are moved back by what was found out in `skid`.
pub fn sampled(
    image: &Image,
    (words, timeout): (&[OsString], Option<Duration>),
    skid: Option<Skid>,
    context: &Context,
) -> anyhow::Result<Samples> {
    let launch = Launch {
        program: image.path().to_owned(),
        args: words.to_vec(),
        cpu: default_cpu(),
        ..Launch::default()
    };
    let limits = Limits { timeout, interrupt: context.interrupt() };
    let period_ns = period_for_overhead(MOST_OVERHEAD);
    let run = sample(&launch, &SampleSettings { period_ns, ..SampleSettings::default() }, &limits)?;
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
    if run.engine == Engine::PerfClock {
        let note = corrected(&mut samples, image, skid);
        samples.notes.push(note);
    }
    Ok(samples)
}

/// Moves late samples back, and says what was done.
fn corrected(samples: &mut Samples, image: &Image, skid: Option<Skid>) -> String {
    let Some(skid) = skid else {
        return "samples are as they landed: how late they do here could not be found out".into();
    };
    let of = format!("{:.0} % of {} samples of a division", 100.0 * skid.share, skid.samples);
    match skid.instructions {
        Some(1) => {
            samples.move_back(image);
            format!("samples land one instruction late here ({of}) and were moved back")
        }
        Some(_) => format!("samples name the instruction that takes the time here ({of})"),
        None => {
            format!("samples are as they landed: here and there on this machine ({of} at most)")
        }
    }
}

pub fn recorded(image: &Image, file: &Path, event: Option<&str>) -> anyhow::Result<Samples> {
    if Callgrind::is_one(file) {
        return counted(image, file, event);
    }
    if let Some(samples) = printed(image, file, event)? {
        return Ok(samples);
    }
    let data = PerfData::read(file)?.of_x86_64()?;
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

/// Reads the text of `perf script`, if it is one.
fn printed(image: &Image, file: &Path, event: Option<&str>) -> anyhow::Result<Option<Samples>> {
    let Some(spots) = profile_data::perf_script_of(file) else { return Ok(None) };
    if let Some(event) = event {
        bail!("{}: --event {event} is for perf.data; print one event only", file.display());
    }
    let (hits, strangers) = named_spots(image, &spots);
    if hits.is_empty() {
        bail!(
            "{} has no samples in {} that name one of its functions; name the program that was \
             recorded, or use the perf.data itself",
            file.display(),
            image.path().display()
        );
    }
    let name = file.file_name().unwrap_or(OsStr::new("?")).to_string_lossy();
    let mut samples = Samples { source: format!("{name}, printed"), hits, ..Samples::default() };
    if strangers > 0 {
        samples.notes.push(format!(
            "{}: {strangers} of {} samples are in other files or in functions that {} has not",
            file.display(),
            spots.len(),
            image.path().display()
        ));
    }
    samples.notes.push(format!(
        "{}: text has no build ids: whether {} was built again since cannot be told",
        file.display(),
        image.path().display()
    ));
    Ok(Some(samples))
}

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
