//! Where a window starts: the function that the user names, or the one where the time goes.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, io};

use anyhow::{Context as _, bail};
use stallscope::code::{Function, FunctionQuery, Image, QueryError, named_libraries};
use stallscope::model::Svma;
use stallscope::run::child::{Launch, Limits, Status, Streams, last_lines};
use stallscope::run::sample::{SampleSettings, sample};
use stallscope::run::tracee;
use stallscope::trace::engine::Start;

use super::super::site;
use crate::context::Context;

/// Libraries that are named where only they have a function, at the most.
const MOST_LIBRARIES: usize = 3;
/// A command that a signal ends behind fewer samples has crashed while it was loaded, or soon after.
const HARDLY_BEGUN: u64 = 20;

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

/// The function that is meant: of the program, or of a library that it, or one of its libraries, names.
pub fn named(program: &Path, text: &str) -> anyhow::Result<Found> {
    let query = FunctionQuery::new(text);
    let image = Image::open(program)?;
    let libraries = || {
        let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        named_libraries(&image, &env::split_paths(&folders).collect::<Vec<_>>())
    };
    if query.is_of(program) {
        return match query.one_in(&image) {
            Ok(function) => Ok(found(function, None, program, "")),
            Err(nothing @ QueryError::Nothing { .. }) => {
                bail!("{nothing}{}", elsewhere(&query, &libraries()))
            }
            Err(several) => Err(several.into()),
        };
    }
    let object = query.object().unwrap_or_default();
    let library = match object.contains('/') {
        true => Some(PathBuf::from(object)),
        false => libraries().into_iter().find(|path| query.is_of(path)),
    };
    let library = library.with_context(|| {
        format!(
            "`{object}` is none of the libraries that {} names: give its file, as in \
             /usr/lib/{object}:FUNCTION",
            program.display()
        )
    })?;
    let image = Image::open(&library)?;
    let function = query.one_in(&image)?;
    Ok(found(function, Some(&library), program, ""))
}

/// What to type for functions of libraries that fit, as the end of a sentence.
fn elsewhere(query: &FunctionQuery, libraries: &[PathBuf]) -> String {
    let has = |path: &&PathBuf| Image::open(path).is_ok_and(|i| !query.all_in(&i).is_empty());
    let typed = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{name}:{}", query.text())
    };
    let found: Vec<String> = libraries.iter().filter(has).take(MOST_LIBRARIES).map(typed).collect();
    match found.is_empty() {
        true => String::new(),
        false => format!("; libraries have one: {}", found.join(", ")),
    }
}

/// The file that a running process executes; the kernel's own way to it, which leads there even when it was replaced.
pub fn program_of(pid: i32) -> anyhow::Result<PathBuf> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    match link.read_link() {
        Ok(path) if path.exists() => Ok(path),
        Ok(_) => Ok(link),
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            bail!("process {pid} {}", tracee::why_not_ours(&cause))
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
    let status = run.exit.status;
    let has_crashed = matches!(status, Status::Signal(_)) && run.total < HARDLY_BEGUN;
    let Some((count, function, object)) = best.filter(|_| !has_crashed) else {
        if !status.success() {
            let said = last_lines(&run.exit.stderr.tail);
            let program = launch.program.display();
            bail!(
                "`{program}` failed before its sampled run showed a hot function: {status}{said}"
            );
        }
        bail!(
            "the sampled run showed no hot function: let the command run longer, or name one with \
             --function"
        );
    };
    let why =
        format!(", {:.0} % of {} samples", 100.0 * count as f64 / run.total as f64, run.total);
    Ok(found(&function, object.as_deref(), &launch.program, &why))
}
