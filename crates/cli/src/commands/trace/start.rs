//! Where a window starts: the function that the user names, or the one where the time goes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use stallscope::code::{Function, Image};
use stallscope::model::Svma;
use stallscope::run::child::{Launch, Limits, Streams};
use stallscope::run::sample::{SampleSettings, sample};
use stallscope::trace::engine::Start;

use super::super::site;
use crate::context::Context;

/// Candidates that an ambiguous name is answered with.
const MOST_NAMES: usize = 5;

pub struct Found {
    pub start: Start,
    pub title: String,
}

fn found(function: &Function, object: Option<&Path>, program: &Path, why: &str) -> Found {
    let file = object.unwrap_or(program).file_name().unwrap_or_default().to_string_lossy();
    let name = function.name();
    let title = format!("{} in {file}{why}", site::clip(site::short_name(&name), 50));
    Found { start: Start::At { object: object.map(Into::into), svma: function.start }, title }
}

/// The function with this name: its symbol or its whole name, else the only one that contains it.
pub fn named(program: &Path, name: &str) -> anyhow::Result<Found> {
    let image = Image::open(program)?;
    let exact = |f: &&Function| f.symbol == name || site::short_name(&f.name()) == name;
    let mut fits: Vec<&Function> = image.functions().iter().filter(exact).collect();
    if fits.is_empty() {
        fits = image.functions().iter().filter(|f| f.name().contains(name)).collect();
    }
    match fits.as_slice() {
        [] => bail!("{} has no function whose name contains `{name}`", program.display()),
        [function] => Ok(found(function, None, program, "")),
        many => {
            let names: Vec<String> = many.iter().take(MOST_NAMES).map(|f| f.name()).collect();
            bail!("`{name}` fits {} functions, such as {}", many.len(), names.join(", "))
        }
    }
}

/// The file that a running process executes; the kernel's own way to it, which leads there even when it was replaced.
pub fn program_of(pid: i32) -> anyhow::Result<PathBuf> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    match link.read_link() {
        Ok(path) if path.exists() => Ok(path),
        Ok(_) => Ok(link),
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            bail!("process {pid} is another user's: run stallscope as root")
        }
        Err(_) => bail!("there is no process {pid} that runs a program"),
    }
}

/// Wherever a running process is after its next moments on the processor.
pub fn at_work(pid: i32, program: &Path) -> Found {
    const MOMENTS: Duration = Duration::from_millis(20);
    let file = program.file_name().unwrap_or_default().to_string_lossy();
    let title = format!("process {pid}, {file}, where it was at work");
    Found { start: Start::After(MOMENTS), title }
}

/// Runs the command once under a sampler, without showing its output, and takes the function with
/// the most samples.
pub fn hottest(launch: &Launch, limits: Limits<'_>, context: &Context) -> anyhow::Result<Found> {
    let launch = Launch { streams: Streams::Captured, ..launch.clone() };
    let bar = context.progress(1, "sampling");
    let run = sample(&launch, &SampleSettings::default(), &limits);
    bar.finish_and_clear();
    let run = run?;
    let mut best: Option<(u64, Function, Option<PathBuf>)> = None;
    for object in &run.samples {
        let Ok(image) = Image::open(&object.path) else { continue };
        let mut hits: std::collections::BTreeMap<Svma, (u64, &Function)> = Default::default();
        for (offset, count) in &object.hits {
            if let Some(function) = image.svma_of(*offset).and_then(|at| image.function_at(at)) {
                hits.entry(function.start).or_insert((0, function)).0 += count;
            }
        }
        if let Some((count, function)) = hits.into_values().max_by_key(|(count, _)| *count)
            && best.as_ref().is_none_or(|(most, ..)| count > *most)
        {
            let path = (!object.is_main_program).then(|| object.path.clone());
            best = Some((count, function.clone(), path));
        }
    }
    let (count, function, object) = best.context(
        "the sampled run showed no hot function: let the command run longer, or name one with \
         --function",
    )?;
    let why =
        format!(", {:.0} % of {} samples", 100.0 * count as f64 / run.total as f64, run.total);
    Ok(found(&function, object.as_deref(), &launch.program, &why))
}
