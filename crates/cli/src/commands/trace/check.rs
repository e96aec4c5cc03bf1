//! `trace --cycles --check`: does the model of the core agree with the clock about this command?

use std::ffi::OsString;

use anyhow::bail;
use stallscope::compare::{CommandLine, Settings, default_cpu};
use stallscope::explain::{CheckedPlace, ModelCheck, ProcessBench, STATED_ERROR, check};
use stallscope::model::Measurement;
use stallscope::run::child::own_input;
use stallscope::run::sample::SampleSettings;

use super::super::{explain, site, words};
use crate::context::Context;
use crate::profile::Chosen;
use crate::terminal::{CAUTION, STRONG, paint, wrap};

/// Runs the command as often as that takes, with its output thrown away.
///
/// # Errors
/// When it cannot be run or followed, or the core clock cannot be measured.
pub fn run(command: &[OsString], chosen: &Chosen, context: &Context) -> anyhow::Result<ModelCheck> {
    let [program, words @ ..] = command else { bail!("no command to run") };
    let line = CommandLine::new(program, words.to_vec());
    let settings = Settings { cpus: default_cpu(), input: own_input()?, ..Settings::default() };
    let bar = context.progress(1, "checking the model");
    // The bench has two arms; one is enough here.
    let lines = vec![line.clone(), line];
    let mut bench =
        ProcessBench::new(lines, settings, SampleSettings::default(), context.interrupt())?;
    if context.profile().is_none() {
        bench = bench.with_probes();
    }
    let [program, _] = bench.programs();
    let checked =
        check(&program, &mut bench, &chosen.design, &mut |stage| explain::show(&bar, stage));
    bar.finish_and_clear();
    match checked? {
        Ok(check) => Ok(check),
        Err(why) => bail!("--check: {why}"),
    }
}

/// By how much the model is off, over all and place by place.
pub fn screen(check: &ModelCheck) -> String {
    let (all, sampled) = (&check.all, &check.sampled);
    let verdict = match (all.off(), all.is_off()) {
        (None, _) => "the windows hold too little of it: nothing to hold against it".to_owned(),
        (Some(off), false) => format!("the model is {}", of_the_clock(off)),
        (Some(off), true) => paint(
            CAUTION,
            format!(
                "the model is {}, where it claims to be within {:.0} %: do not believe what it says of waits",
                of_the_clock(off),
                100.0 * STATED_ERROR
            ),
        ),
    };
    let mut out = "\n".to_owned() + &wrap("checked  ", &verdict);
    out += &wrap(
        "         ",
        &format!(
            "{} runs timed, {} samples in {} more, {} windows, core clock {:.0} MHz [{:.0}, {:.0}]",
            check.user_ns.n,
            words::grouped(sampled.samples),
            sampled.runs,
            check.windows,
            check.core_clock.value,
            check.core_clock.low,
            check.core_clock.high
        ),
    );
    out += "\n  cycles an instruction    by the clock           by the model    off\n";
    for place in std::iter::once(all).chain(&check.places) {
        out += &line(place);
    }
    for note in check.notes.iter().chain(&sampled.notes) {
        out += &wrap("note     ", note);
    }
    out
}

fn of_the_clock(off: f64) -> String {
    let percent = (100.0 * off.abs()).round();
    match off {
        _ if percent == 0.0 => "right to a per cent".to_owned(),
        _ if off > 0.0 => format!("{percent:.0} % slower than the clock"),
        _ => format!("{percent:.0} % faster than the clock"),
    }
}

fn line(place: &CheckedPlace) -> String {
    let ends = |m: &Measurement| format!("{:.2} [{:.2}, {:.2}]", m.value, m.low, m.high);
    let predicted = place.predicted.as_ref().map_or_else(|| "-".to_owned(), ends);
    let off = place.off().map_or_else(|| "-".to_owned(), |off| format!("{:+.0} %", 100.0 * off));
    let name = site::clip(site::short_name(&place.name), 22);
    let text = format!("  {name:22}  {:22} {predicted:22} {off:>6}", ends(&place.measured));
    let text = if place.is_off() { paint(CAUTION, text) } else { paint(STRONG, text) };
    text + "\n"
}
