//! What was counted in a run, on the screen.

use stallscope::code::SourceText;
use stallscope::counted::{CountedScan, CountedSite, Event, HotFile};
use stallscope::foreign::plain;
use stallscope::model::Measurement;

use super::super::{site, words};
use crate::commands::words::counted as count;
use crate::terminal::{CAUTION, FAINT, STRONG, paint, wrap};

pub fn screen(counted: &CountedScan, most: usize, text: &mut SourceText) -> String {
    let mut out = wrap("run      ", &plain(&counted.command.join(" ")));
    let sampling = &counted.sampling;
    let followed = match &counted.not_followed {
        None => format!(
            "{} of {} instructions in all followed",
            count(counted.windows, "window"),
            words::grouped(counted.instructions)
        ),
        Some(why) => paint(CAUTION, format!("nothing was followed: {why}")),
    };
    out += &wrap(
        "how      ",
        &format!(
            "{} sampled ({} every {:.1} ms, {}); {followed}",
            count(sampling.runs as usize, "run"),
            sampling.engine,
            sampling.period_ns as f64 / 1e6,
            count(sampling.samples as usize, "sample"),
        ),
    );
    out += &files(counted);
    let all = counted.sites.len();
    out += &wrap("counted  ", &format!("{}{}", count(all, "place"), folded(counted)));
    for (rank, site) in counted.sites.iter().take(most).enumerate() {
        out += &entry(rank + 1, site, text);
    }
    if all > most {
        out += &format!("\n{} left out: --top 0 shows all\n", count(all - most, "place"));
    }
    if !counted.notes.is_empty() {
        out += "\n";
    }
    for note in &counted.notes {
        out += &wrap("note     ", note);
    }
    out
}

fn name(file: &std::path::Path) -> String {
    plain(&file.file_name().unwrap_or(file.as_os_str()).to_string_lossy()).into_owned()
}

fn percent(share: &Measurement) -> String {
    format!("{:.1} % [{:.1}, {:.1}]", share.value, share.low, share.high)
}

/// Where the time goes.
fn files(counted: &CountedScan) -> String {
    let of = |file: &HotFile| {
        let scanned = match &file.not_scanned {
            None => format!(
                "{}, {}",
                count(file.functions, "hot function"),
                count(file.findings, "finding")
            ),
            Some(why) => format!("not scanned: {}", plain(why)),
        };
        format!("{} {} ({scanned})", percent(&file.share), name(&file.path))
    };
    let mut parts: Vec<String> = counted.files.iter().map(of).collect();
    let sampling = &counted.sampling;
    let part = |hits: u64| 100.0 * hits as f64 / sampling.samples.max(1) as f64;
    match sampling.in_kernel {
        Some(hits) if hits > 0 => parts.push(format!("{:.1} % in the kernel", part(hits))),
        Some(_) => {}
        None => parts.push("the kernel is not seen here: shares are of user code".to_owned()),
    }
    if sampling.without_file > 0 {
        parts.push(format!("{:.1} % in code without a file", part(sampling.without_file)));
    }
    wrap("hot      ", &parts.join("; "))
}

/// What is not shown.
fn folded(counted: &CountedScan) -> String {
    let folded = &counted.folded;
    let mut parts = Vec::new();
    if folded.below_share > 0 {
        parts.push(format!(
            "{} with less than 0.5 % of the run or five samples",
            count(folded.below_share, "place")
        ));
    }
    if folded.not_counted > 0 {
        let findings = count(folded.not_counted, "finding");
        parts.push(format!("{findings} that ran and hardly ever came true"));
    }
    if folded.not_run > 0 {
        parts.push(format!("{} that did not run in the windows", count(folded.not_run, "finding")));
    }
    if parts.is_empty() { String::new() } else { format!("; not shown: {}", parts.join(", ")) }
}

/// One place with all that is known about it.
fn entry(rank: usize, counted: &CountedSite, text: &mut SourceText) -> String {
    let title = format!("{} in {}", site::short_name(&counted.site.function), name(&counted.file));
    let mut out = format!("\n{rank:>3}  {}\n", paint(STRONG, site::clip(&title, 72)));
    let part = 100.0 * counted.events as f64 / counted.executions.max(1) as f64;
    let runs = words::grouped(counted.executions);
    let happened = match counted.event {
        Event::Blocked => format!("blocked in {part:.1} % of {runs} executions"),
        Event::Split => {
            format!("across the end of a cache line in {part:.1} % of {runs} executions")
        }
        Event::Aliased => format!(
            "met a store only in the low 12 bits of its address in {part:.1} % of {runs} executions"
        ),
        Event::Ran => format!("ran {runs} times"),
    };
    let pays_as_loop =
        counted.finding.as_ref().is_some_and(|f| f.by_placement && f.block_share.is_none());
    let place = if pays_as_loop { "loop" } else { "block" };
    let line = format!("{happened}; {} of the run in its {place}", percent(&counted.share));
    out += &wrap("     ", &line);
    if let Some(finding) = &counted.finding {
        let line = format!("     {}: {} {}\n", finding.id, finding.certainty, finding.grade);
        out += &paint(FAINT, line);
    }
    out += &site::site(&counted.site, 5, text);
    if !counted.stores.is_empty() {
        let these = if counted.stores.len() == 1 { "this store" } else { "these stores" };
        out += &format!("     reads what {these} wrote most often\n");
        for store in &counted.stores {
            out += &site::site(store, 5, text);
        }
    }
    match &counted.finding {
        Some(finding) => {
            out += &wrap("     why  ", &finding.mechanism);
            out += &wrap("     try  ", &finding.remedy);
        }
        None => out += &wrap("     why  ", without_rule(counted.event)),
    }
    out
}

/// What is known of an event where no rule names its reason.
fn without_rule(event: Event) -> &'static str {
    match event {
        Event::Blocked => {
            "no one store in flight held all that it read, so it waited until they were in the cache; no rule \
             sees that in the code alone"
        }
        Event::Split => {
            "it is done twice, once for each line; where its data lie the code does not say"
        }
        Event::Aliased => {
            "a store in flight has the same place in another page, and the load waits until the whole \
             addresses are compared: a cycle or a few each time"
        }
        Event::Ran => "it costs each time that it runs",
    }
}

#[cfg(test)]
mod tests {
    use stallscope::code::{Image, fixture};
    use stallscope::counted::{Folded, Sampling};
    use stallscope::hazards::{ScanFilter, scan};
    use stallscope::machine::{Design, Microarchitecture};
    use stallscope::model::Grade;
    use stallscope::run::sample::Engine;
    use stallscope::stats::shares::share_of_samples;

    use super::*;
    use crate::terminal::plain as without_colours;

    fn counted() -> CountedScan {
        let ring = fixture::ring_loop(true);
        let image = fixture::program(&[("decode", &ring), ("again", &ring)]);
        let image = Image::parse("lib/libring.so.1".as_ref(), image).unwrap();
        let report =
            scan(&image, &ScanFilter::default(), &Design::of(Microarchitecture::Zen5), None);
        let finding = |rule: &str| {
            let found = report.findings.iter().find(|f| f.rule == rule).unwrap().clone();
            stallscope::model::Finding { grade: Grade::Counted, ..found }
        };
        let place = |event, events, finding: Option<stallscope::model::Finding>, stores| {
            let of = finding.as_ref().or(report.findings.first()).unwrap();
            CountedSite {
                file: "/lib/libring.so.1".into(),
                event,
                events,
                executions: 1_000_000,
                share: share_of_samples(250, 2000),
                site: of.site.clone(),
                stores,
                score: 1.0,
                finding,
            }
        };
        let blocked = finding("store-forward");
        let stores = blocked.others.clone();
        CountedScan {
            command: vec!["./codec".into(), "strips".into()],
            sampling: Sampling {
                engine: Engine::PerfClock,
                period_ns: 200_000,
                runs: 3,
                samples: 2000,
                in_kernel: Some(40),
                without_file: 2,
                lost: 0,
            },
            windows: 4,
            instructions: 40_000_000,
            not_followed: None,
            rules: vec!["store-forward".into()],
            files: vec![HotFile {
                path: "/lib/libring.so.1".into(),
                share: share_of_samples(1900, 2000),
                functions: 3,
                findings: 9,
                not_scanned: None,
            }],
            sites: vec![
                place(Event::Blocked, 998_000, Some(blocked), stores),
                place(Event::Split, 125_000, None, Vec::new()),
                place(Event::Ran, 1_000_000, Some(finding("loop-alignment")), Vec::new()),
            ],
            folded: Folded { below_share: 3, not_counted: 1, not_run: 12 },
            notes: vec!["sampled every 300 µs".into()],
        }
    }

    #[test]
    fn what_was_counted_comes_with_its_share_and_what_is_not_shown() {
        let screen = screen(&counted(), 20, &mut SourceText::default());
        insta::assert_snapshot!(without_colours(&screen));
    }

    #[test]
    fn a_run_that_cannot_be_followed_says_so() {
        let not_followed = Some("cannot trace: ptrace is not allowed here".to_owned());
        let mut scan = CountedScan { not_followed, sites: Vec::new(), windows: 0, ..counted() };
        scan.sampling.in_kernel = None;
        scan.folded = Folded::default();
        let screen = without_colours(&screen(&scan, 20, &mut SourceText::default()));
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "nothing was followed: cannot trace: ptrace is not allowed here",
            "shares are of user code",
            "counted 0 places note",
        ] {
            assert!(words.contains(said), "{screen}");
        }
    }
}
