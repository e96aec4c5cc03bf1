//! The screens of the probes about the front end: `branches`, `code-alignment` and `icache-sets`.

use stallscope::probes::branches::Drawn;
use stallscope::probes::code_alignment::LoopReport;
use stallscope::probes::icache_sets::{DECISIVE, StrideReport};
use stallscope::probes::{AlignmentReport, BranchReport, IcacheReport};

use super::page::{LABEL, Page, cycles};

/// The page of `branches`: what a branch of each sequence takes, and the part that is mispredicted.
pub fn branches(report: &BranchReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    page.blank();
    for row in &report.rows {
        let what = match row.drawn {
            Drawn::Directions => "directions",
            Drawn::Targets => "targets",
        };
        let length = row.length.map_or_else(|| "new".to_owned(), |length| length.to_string());
        let missed = row.missed_percent.map_or(String::new(), |p| format!("{p:.1} % missed"));
        let missed = row.cycles.as_ref().map_or(String::new(), |_| format!("{missed:>15}  "));
        let cycles = cycles(row.cycles.as_ref(), 0);
        page.text += &format!("{what:<LABEL$}{length:>7}  {missed}{cycles}\n");
    }
    page.blank();
    page.trust(&report.protocol);
    page.text
}

/// The page of `code-alignment`.
pub fn alignment(report: &AlignmentReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    report.loops.iter().for_each(|l| offsets(&mut page, l));
    page.blank();
    page.trust(&report.protocol);
    page.text
}

/// Cycles at every offset, 16 to a row.
fn offsets(page: &mut Page, l: &LoopReport) {
    page.blank();
    page.line("loop", &format!("{} bytes; cycles a turn by start offset", l.bytes));
    for (row, chunk) in l.cycles.chunks(16).enumerate() {
        let cell = |m: &Option<_>| match m {
            Some(stallscope::model::Measurement { value, .. }) => format!("{value:>4.1}"),
            None => "   ?".to_owned(),
        };
        let cells: String = chunk.iter().map(cell).collect();
        page.text += &format!("{:<LABEL$}{cells}\n", format!("  {}-{}", row * 16, row * 16 + 15));
    }
    if let Some(e) = &l.explanation {
        let words = format!(
            "{} explains {:.0} %: {:.2} cycles each",
            e.model.words(),
            e.explains_percent,
            e.slope_cycles
        );
        page.line("", &words);
    }
}

/// The page of `icache-sets`.
pub fn sets(report: &IcacheReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    if let Some((ways, sets, line)) = report.presented {
        let words = format!("CPUID: {ways} ways, {sets} sets of {line}-byte lines");
        page.line("presented", &words);
    }
    if let Some(joint) = &report.joint {
        let words = format!(
            "{} ways of {} B explain all strides within {:.1} cycles; the next best, {} of {} B, is \
             worse by {:.0}, no cache by {:.0} (BIC; {DECISIVE:.0} decides)",
            joint.ways,
            joint.way_bytes,
            joint.residual_cycles,
            joint.rival.0,
            joint.rival.1,
            joint.rival_worse_by,
            joint.nothing_worse_by
        );
        page.line("jointly", &words);
    }
    page.blank();
    excess(&mut page, "excess", &report.strides, |s| format!("  {} B", s.stride_bytes));
    page.blank();
    excess(&mut page, "line", &report.lines, |s| format!("  odd +{} B", s.odd_bytes));
    page.line("", "cycles a dispatch more than in as many sets as blocks");
    page.blank();
    page.trust(&report.protocol);
    page.text
}

/// The excess by number of blocks, and the knee.
fn excess(
    page: &mut Page,
    label: &str,
    all: &[StrideReport],
    name: impl Fn(&StrideReport) -> String,
) {
    let shown: Vec<u32> = vec![4, 6, 8, 9, 10, 12, 16, 18, 24, 32, 40];
    let heads: String = shown.iter().map(|n| format!("{n:>5}")).collect();
    page.text += &format!("{label:<LABEL$}{heads}  knee\n");
    for stride in all {
        let cell = |n: &u32| {
            let point = stride.points.iter().find(|p| p.0 == *n);
            let value = point.and_then(|p| Some(p.1.as_ref()?.value - p.2.as_ref()?.value));
            // Not "-0.0".
            value
                .map_or("    ?".to_owned(), |v| format!("{:>5.1}", (v * 10.0).round() / 10.0 + 0.0))
        };
        let cells: String = shown.iter().map(cell).collect();
        let knee = match &stride.fit {
            Some(f) if f.knee_low == f.knee_high => f.knee.to_string(),
            Some(f) => format!("{} [{}, {}]", f.knee, f.knee_low, f.knee_high),
            None if stride.decided => "none".to_owned(),
            None => "?".to_owned(),
        };
        page.text += &format!("{:<LABEL$}{cells}  {knee}\n", name(stride));
    }
}
