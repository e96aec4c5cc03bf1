//! Windows of the programs: followed now, or recorded by `trace --record`.

use std::path::Path;

use anyhow::bail;
use stallscope::code::Image;
use stallscope::layout::{Toolchain, TracedWindow, WindowLog, toolchain};
use stallscope::run::child::{Launch, Limits};
use stallscope::sim::Fan;
use stallscope::trace::engine::{Ended, Length, Recording, Window};

use super::super::trace;
use super::LayoutArgs;
use crate::commands::trace::progress::FollowProgress;
use crate::context::Context;

pub fn windows(
    args: &LayoutArgs,
    context: &Context,
    images: &[Image],
) -> anyhow::Result<Vec<TracedWindow>> {
    let Some(function) = &args.trace else {
        if args.windows.len() != images.len() {
            bail!(
                "{} programs and {} windows: give --windows once for each program, in their order",
                images.len(),
                args.windows.len()
            );
        }
        let windows = images.iter().zip(&args.windows);
        return windows.map(|(image, file)| replayed(image, file, context)).collect();
    };
    let bar = context.progress(images.len() as u64, "tracing");
    let mut all = Vec::new();
    for image in images {
        all.push(followed(image, function, args, context)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(all)
}

fn followed(
    image: &Image,
    function: &str,
    args: &LayoutArgs,
    context: &Context,
) -> anyhow::Result<TracedWindow> {
    let engine = trace::choose(None)?;
    let start = trace::start::named(image.path(), function)?.start;
    let launch =
        Launch { program: image.path().to_owned(), args: args.args.clone(), ..Launch::default() };
    let limits = Limits { timeout: args.timeout, interrupt: context.interrupt() };
    let length = Length::Calls(args.calls);
    let budget = Some(args.budget);
    let window = Window { start, skip: args.skip, length, memory: false, budget };
    let mut log = WindowLog::default();
    let mut progress = FollowProgress::new(context, None);
    let recording =
        engine.record(&launch, &window, limits, &mut Fan(vec![&mut log, &mut progress]))?;
    let calls = if args.calls == 1 { "call" } else { "calls" };
    let source = format!("engine {}, {} {calls} of {function}", recording.engine, args.calls);
    whole(image, log, &recording, source)
}

fn replayed(image: &Image, file: &Path, context: &Context) -> anyhow::Result<TracedWindow> {
    let mut log = WindowLog::default();
    let recording = trace::replay(file, context, &mut log)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let source = format!("{name}, engine {}", recording.engine);
    whole(image, log, &recording, source)
}

/// Refuses what is no window of the program, and says when it is not what was asked for.
fn whole(
    image: &Image,
    log: WindowLog,
    recording: &Recording,
    source: String,
) -> anyhow::Result<TracedWindow> {
    let mut window = TracedWindow::of(log, recording, image, source);
    let program = image.path().display();
    if !window.touches_program() {
        bail!("{}: none of its code is of {program}; name the window's own program", window.source);
    }
    if recording.ended == Ended::Short {
        window.notes.push(format!(
            "the window of {program} ended before its calls were over, so figures per operation are \
             too small: {}",
            recording.notes.join("; ")
        ));
    } else if recording.ended != Ended::Length {
        window.notes.push(format!(
            "the window of {program} ended before its calls were over, because the thread or its \
             process ended: figures per operation are too small. A Go program goes on in \
             another thread; GODEBUG=asyncpreemptoff=1 GOMAXPROCS=1 GOGC=off keeps it in one"
        ));
    }
    if toolchain(image) == Toolchain::Go {
        window.notes.push(
            "a Go program that is followed step by step meets its scheduler far more often per \
             operation than on its own: lines of runtime.findRunnable and the like, and their \
             misses, may be of that"
                .to_owned(),
        );
    }
    Ok(window)
}
