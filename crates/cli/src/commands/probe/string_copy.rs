//! The screen of the probe `string-copy`: the crossovers, the advice, the table.

use stallscope::machine::Features;
use stallscope::probes::StringReport;
use stallscope::probes::string_copy::{Case, Form, Job, Method, Outcome, SIZES};

use super::page::Page;

pub fn screen(report: &StringReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    crossovers(&mut page, report);
    advice(&mut page, report);
    for job in [Job::Copy, Job::Fill] {
        throughput(&mut page, report, job);
    }
    company(&mut page, report);
    page.blank();
    page.trust(&report.protocol);
    page.text
}

fn crossovers(page: &mut Page, report: &StringReport) {
    page.blank();
    let mut label = "wins from";
    for c in &report.crossovers {
        let (rep, against) = (c.rep.name(c.job), c.against);
        let words = match &c.outcome {
            Outcome::From { size } => {
                format!("{:.0} B [{:.0}, {:.0}]", size.value, size.low, size.high)
            }
            Outcome::Always => "every size".to_owned(),
            Outcome::Never => "no size asked".to_owned(),
            Outcome::Inconclusive { reason } => format!("inconclusive: {reason}"),
        };
        let over = format!("over {against}");
        page.line(label, &format!("{rep} {over:<18} {words}"));
        label = "";
    }
}

fn advice(page: &mut Page, report: &StringReport) {
    page.blank();
    for advice in &report.advice {
        page.line("advice", &format!("{}: {}", advice.code, advice.because));
        if let Some(option) = &advice.option {
            page.text += &format!("{:13}{option}\n", "");
        }
    }
}

const METHODS: [Method; 7] = [
    Method::RepBytes,
    Method::RepQuads,
    Method::Moves8,
    Method::Sse,
    Method::Avx2,
    Method::Avx512,
    Method::Libc,
];

fn throughput(page: &mut Page, report: &StringReport, job: Job) {
    page.blank();
    let heads: String = METHODS.iter().map(|m| format!("{:>9}", short(*m, job))).collect();
    let title = if job == Job::Copy { "copy, cycles" } else { "fill, cycles" };
    page.text += &format!("{title:<13}{heads}\n");
    for &bytes in SIZES {
        let cell = |method: &Method| {
            let cycles = report.cycles(&Case::alone(job, *method, bytes));
            let none = || absent(*method, &report.protocol.machine.features).to_owned();
            format!("{:>9}", cycles.map_or_else(none, |m| format!("{:.1}", m.value)))
        };
        let row: String = METHODS.iter().map(cell).collect();
        page.text += &format!("{:<13}{row}\n", format!("  {bytes} B"));
    }
}

/// What stands where there are no cycles: the feature that is missing, or that nothing is known.
fn absent(method: Method, features: &Features) -> &'static str {
    match method {
        Method::Avx2 if !features.avx2 => "no AVX2",
        Method::Avx512 if !features.avx512f => " no AVX512",
        _ => "?",
    }
}

fn short(method: Method, job: Job) -> String {
    match method {
        Method::Moves8 => "8-byte".to_owned(),
        Method::RepBytes | Method::RepQuads => method.name(job).trim_start_matches("rep ").into(),
        other => other.to_string(),
    }
}

/// What a following load waits for, and what a long chain cannot hide.
fn company(page: &mut Page, report: &StringReport) {
    page.blank();
    page.text += &format!(
        "{:<13}{:>18}{:>18}{:>27}\n{:<13}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
        "in company",
        "first 8 B back",
        "last 8 B back",
        "not hidden beside a chain",
        "",
        "movsq",
        "8-byte",
        "movsq",
        "8-byte",
        "movsq",
        "stosq",
        "8-byte"
    );
    for &bytes in SIZES {
        let back = |method, form| {
            let case = Case::alone(Job::Copy, method, bytes).in_form(form);
            report.cycles(&case).map(|m| m.value)
        };
        let hidden = |job, method| {
            if bytes > 512 { None } else { report.exposed_cycles(job, method, bytes) }
        };
        let cells = [
            back(Method::RepQuads, Form::DependentFirst),
            back(Method::Moves8, Form::DependentFirst),
            back(Method::RepQuads, Form::DependentLast),
            back(Method::Moves8, Form::DependentLast),
            hidden(Job::Copy, Method::RepQuads),
            hidden(Job::Fill, Method::RepQuads),
            hidden(Job::Copy, Method::Moves8),
        ];
        let cell = |v: &Option<f64>| {
            format!(
                "{:>9}",
                v.map_or(if bytes > 512 { "" } else { "?" }.into(), |v| format!("{v:.1}"))
            )
        };
        let row: String = cells.iter().map(cell).collect();
        page.text += format!("{:<13}{row}", format!("  {bytes} B")).trim_end();
        page.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_without_its_feature_names_it() {
        let bare = Features::default();
        assert_eq!(absent(Method::Avx2, &bare), "no AVX2");
        assert!(absent(Method::Avx512, &bare).contains("no AVX512"));
        let all = Features { avx2: true, avx512f: true, ..bare };
        for method in METHODS {
            assert_eq!(absent(method, &all), "?");
        }
        assert_eq!(absent(Method::Sse, &bare), "?");
    }
}
