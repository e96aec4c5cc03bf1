//! `trace --cycles`: what the model of the core says of the window, and its screen.

use stallscope::code::SourceText;
use stallscope::machine::Design;
use stallscope::model::Avma;
use stallscope::sim::TraceReport;
use stallscope::sim::core::{Accounts, CycleReport, RecordedWindow, Wait};

use super::super::{site, words};
use super::screen::{percent, place};
use crate::context::Context;
use crate::terminal::{CAUTION, STRONG, paint, wrap};

/// Mechanisms with a smaller part of the cycles are not shown.
const LEAST_SHARE: f64 = 0.01;
const MOST_FUNCTIONS: usize = 5;

/// Runs the window through the core of `design`.
///
/// # Errors
/// When the recording is damaged.
pub fn model(recorded: &[u8], design: &Design, context: &Context) -> anyhow::Result<Accounts> {
    let bar = context.progress(1, "modelling");
    let accounts = RecordedWindow::read(recorded, design, context.interrupt())
        .and_then(|window| window.account(&design.core().value));
    bar.finish_and_clear();
    Ok(accounts?)
}

/// The numbers, what they wait for, the functions, and what to know before believing them.
pub fn screen(cycles: &CycleReport, report: &TraceReport, text: &mut SourceText) -> String {
    let mut out = bottom_line(cycles);
    out += &waits(cycles, report, text);
    out += &functions(cycles, report);
    out += &wrap("left out ", &cycles.left_out);
    out + &wrap("design   ", &format!("{}; {}", cycles.design, origins(cycles))) + "\n"
}

fn bottom_line(cycles: &CycleReport) -> String {
    let per_call = cycles.cycles_per_call.map_or(String::new(), |per_call| {
        format!(", {} a call", words::grouped(per_call.round() as u64))
    });
    let mut out = wrap(
        "cycles   ",
        &format!("{:.2} an instruction{per_call}", cycles.cycles_per_instruction),
    );
    out += &wrap("         ", "by a model of the core: nothing here was measured");
    out += &wrap(
        "counted  ",
        &format!(
            "{} instructions, behind {} that warm the model up",
            words::grouped(cycles.instructions),
            words::grouped(cycles.warm_up_instructions)
        ),
    );
    if cycles.unread_executions > 0 {
        let share = percent(cycles.unread_executions, cycles.instructions);
        let why = "stand in no file that can be read; each is taken for an addition";
        out += &paint(CAUTION, wrap("unread   ", &format!("{share} of them {why}")));
    }
    out
}

fn waits(cycles: &CycleReport, report: &TraceReport, text: &mut SourceText) -> String {
    let large: Vec<&Wait> = cycles.waits.iter().filter(|w| w.share >= LEAST_SHARE).collect();
    if large.is_empty() {
        let what = "for nothing that is 1 % of the cycles by itself: what is left is the width of the core and chains of single \
                    cycles";
        return "\n".to_owned() + &wrap("waits    ", what);
    }
    let what = "cycles that are gone without one mechanism alone; of two that hide behind one another \
                neither saves any";
    let mut out = "\n".to_owned() + &wrap("waits    ", what);
    for wait in large {
        let often = match wait.mechanism.has_events() {
            true => format!(", {:.1} per 1000 instructions", wait.events_per_thousand),
            false => String::new(),
        };
        let title = format!("{:4.1} %  {}{often}", 100.0 * wait.share, wait.mechanism);
        out += &format!("\n  {}\n", paint(STRONG, title));
        if let Some(at) = wait.most_at {
            let most = match wait.mechanism.has_events() {
                true => format!("{} of them", percent(wait.most_events, wait.events)),
                false => "the largest part".to_owned(),
            };
            out += &format!("    {most} in {}\n", function(report, at));
            out += &place(report, at, text);
        }
    }
    out
}

fn functions(cycles: &CycleReport, report: &TraceReport) -> String {
    let shown = MOST_FUNCTIONS.min(cycles.functions.len());
    let of = match cycles.functions_executed - shown {
        0 => "by cycles, without those of what they call".to_owned(),
        rest => format!("the {shown} with most cycles of their own, of {}", rest + shown),
    };
    let mut out = "\n".to_owned() + &wrap("functions", &format!(" {of}"));
    for one in cycles.functions.iter().take(MOST_FUNCTIONS) {
        let share = 100.0 * one.account.cycles as f64 / cycles.cycles.max(1) as f64;
        let name = function(report, one.start);
        out +=
            &format!("  {share:4.1} %  {:.2} an instruction  {name}\n", one.cycles_per_instruction);
    }
    out + "\n"
}

/// The name of the function at an address, or what else is known of the place.
fn function(report: &TraceReport, address: Avma) -> String {
    let place = report.place(address);
    let named = place.and_then(|place| place.site.as_ref());
    let object = place.and_then(|place| place.object.as_ref()).and_then(|path| path.file_name());
    let name = match (named, object) {
        (Some(site), _) => site::short_name(&site.function).to_owned(),
        (None, Some(file)) => format!("no function of {}", file.to_string_lossy()),
        (None, None) => "code that no file holds".to_owned(),
    };
    site::clip(&name, 45)
}

/// What was probed, what is documented and what is assumed.
fn origins(cycles: &CycleReport) -> String {
    let of = |kind: &str| {
        let inputs = cycles.inputs.iter().filter(|input| input.origin.word() == kind);
        let whats: Vec<&str> = inputs.map(|input| input.what.as_str()).collect();
        (!whats.is_empty()).then(|| format!("{kind}: {}", whats.join(", ")))
    };
    let kinds = ["probed", "documented", "assumed"];
    kinds.into_iter().filter_map(of).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
