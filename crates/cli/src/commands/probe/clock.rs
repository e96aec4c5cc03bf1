//! The screen of the probe `clock`: one page of 80 columns, the grade and its reasons on top.

use stallscope::clock::{EnvironmentGrade, Reading};
use stallscope::machine::{Cache, CacheKind, Machine};
use stallscope::model::Capability;
use stallscope::probes::ClockReport;

use super::page::{LABEL, Page, wrap};
use crate::terminal::{BAD, CAUTION, FAINT, GOOD, STRONG, paint, width};

pub fn screen(report: &ClockReport) -> String {
    let mut page = Page::default();
    machine_lines(&mut page, &report.machine);
    page.blank();
    clock_lines(&mut page, report);
    page.blank();
    event_lines(&mut page, report);
    page.blank();
    environment_lines(&mut page, report);
    for advice in &report.advice {
        page.line("advice", advice);
    }
    page.text
}

fn machine_lines(page: &mut Page, m: &Machine) {
    let brand = if m.brand.is_empty() { "no brand string" } else { &m.brand };
    page.line("machine", &format!("{brand}: {}", m.core_name()));
    let microcode = m.microcode.as_deref().unwrap_or("not shown");
    page.line(
        "",
        &format!(
            "family {}, model {}, stepping {}, microcode {microcode} as presented",
            m.family, m.model, m.stepping
        ),
    );
    let caches: Vec<String> = m.caches.iter().map(cache_words).collect();
    page.line("caches", &or_unknown(caches.join(", ")));
    let place = match &m.hypervisor {
        Some(name) => format!("guest of {name}"),
        None => "bare metal".to_owned(),
    };
    let doubt = if m.smt_is_doubtful() { " (as presented; may be untrue)" } else { "" };
    page.line(
        "place",
        &format!(
            "{place}, {} CPUs, {} thread(s) per core{doubt}, Linux {}",
            m.logical_cpus,
            m.threads_per_core,
            or_unknown(m.kernel_release.clone())
        ),
    );
}

fn or_unknown(text: String) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text }
}

fn cache_words(c: &Cache) -> String {
    let kind = match c.kind {
        CacheKind::Instruction => "i",
        CacheKind::Data => "d",
        CacheKind::Unified => "",
    };
    let kib = c.size_bytes / 1024;
    let size = if kib >= 1024 && kib.is_multiple_of(1024) {
        format!("{} MiB", kib / 1024)
    } else if kib >= 10 * 1024 {
        format!("{:.1} MiB", kib as f64 / 1024.0)
    } else {
        format!("{kib} KiB")
    };
    if c.ways == 0 {
        format!("L{}{kind} {size}", c.level)
    } else {
        format!("L{}{kind} {size} {}-way", c.level, c.ways)
    }
}

fn clock_lines(page: &mut Page, r: &ClockReport) {
    let missing = |page: &mut Page, label: &str| page.line(label, "not measured");
    match &r.tick_rate {
        Some(m) => page.number("tick rate", m, 3),
        None => missing(page, "tick rate"),
    }
    let invariant = if r.machine.features.invariant_tsc { "invariant" } else { "NOT invariant" };
    page.line(
        "",
        &format!(
            "{invariant}, windows differ by {:.1} ppm, step {} tick(s)",
            r.tick_spread_ppm, r.tick_step_ticks
        ),
    );
    match &r.read_overhead {
        Some(m) => page.number("one look", m, 0),
        None => missing(page, "one look"),
    }
    page.reading("core clock", &r.cycles_per_tick, 4);
    if let Reading::Measured(m) = &r.core_rate {
        page.number("", m, 0);
    }
    page.line("levels", &level_words(r));
    match &r.adds_per_multiply {
        Some(m) => {
            page.number("imul / add", m, 3);
            page.line("", "must be 3: else cycles are not core cycles");
        }
        None => missing(page, "imul / add"),
    }
    match &r.throughput {
        Some(m) => page.number("64 no-ops", m, 2),
        None => missing(page, "64 no-ops"),
    }
    page.line(
        "samples",
        &format!(
            "{} on CPU {} of {} allowed: {:.1} % clean, {:.1} % interrupted, {:.1} % on a shared core",
            r.samples, r.cpu, r.cpus_allowed, r.clean_percent, r.interrupted_percent, r.shared_percent
        ),
    );
}

fn level_words(r: &ClockReport) -> String {
    if r.levels.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<String> = r
        .levels
        .iter()
        .map(|l| format!("{:.4} ({:.1} %)", l.cycles_per_tick, l.share_percent))
        .collect();
    let list = each.join(", ");
    let (wander, drift) = (r.wander_percent, r.drift_percent);
    format!("{list}; 90 % within {wander:.1} %; drift {drift:+.2} %")
}

fn event_lines(page: &mut Page, r: &ClockReport) {
    let words = |c: &Capability| match c {
        Capability::Present => "yes".to_owned(),
        Capability::Absent { cause } => format!("no: {cause}"),
    };
    page.line("counters", &words(&r.pmu.hardware));
    page.line("sampling", &words(&r.pmu.sampling));
}

fn environment_lines(page: &mut Page, r: &ClockReport) {
    let grade = r.environment.grade;
    let style = match grade {
        EnvironmentGrade::Quiet => GOOD,
        EnvironmentGrade::Usable => STRONG,
        EnvironmentGrade::Noisy => CAUTION,
        EnvironmentGrade::Hostile => BAD,
    };
    let meaning = match grade {
        EnvironmentGrade::Quiet => "differences of 0.1 % mean something",
        EnvironmentGrade::Usable => "differences of 1 % mean something, guards on",
        EnvironmentGrade::Noisy => "only guarded, interleaved, repeated runs mean something",
        EnvironmentGrade::Hostile => "no verdict should be drawn here",
    };
    let label = paint(STRONG, format_args!("{:<LABEL$}", "environment"));
    page.text += &format!("{label}{}: {meaning}\n", paint(style, grade));
    for reason in &r.environment.reasons {
        let allows = format!("{:<8}", reason.allows.word());
        let indent = " ".repeat(LABEL);
        for (i, part) in wrap(&reason.text, width() - LABEL - 9).iter().enumerate() {
            let head = if i == 0 { &allows } else { "        " };
            page.text += &format!("{indent}{} {part}\n", paint(FAINT, head));
        }
    }
}

#[cfg(test)]
mod tests;
