//! The screens of the probes about memory: `data-caches`, `icache-sync` and `store-elimination`.

use stallscope::foreign::size;
use stallscope::model::Measurement;
use stallscope::probes::data_caches::Chain;
use stallscope::probes::icache_sync::{METHODS, SIZES, SyncCell};
use stallscope::probes::store_elimination::{CountedEvent, Fill, RegionReport};
use stallscope::probes::{DataCacheReport, EliminationReport, SyncReport};

use super::page::{LABEL, Page, cycles, event, lacks};

/// The page of `data-caches`.
pub fn data_caches(report: &DataCacheReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    page.blank();
    for chain in &report.chains {
        let what = match chain.chain {
            Chain::First => "first level",
            Chain::Second => "second level",
            Chain::Third => "third level",
            Chain::OfPages => "a line a page",
            Chain::OfLines => "as many lines",
            Chain::Memory => "behind it",
            Chain::SecondInOrder => "second, in order",
            Chain::ThirdInOrder => "third, in order",
            Chain::MemoryInOrder => "behind, in order",
            Chain::PagesAtOnce => "pages at once",
            Chain::ThirdTwice | Chain::ThirdFourfold | Chain::ThirdEightfold => "larger table",
        };
        let cycles = cycles(chain.cycles.as_ref(), 6);
        page.text += &format!("{what:<17}{:>8}  {cycles}\n", size(chain.table_bytes));
    }
    page.blank();
    page.trust(&report.protocol);
    page.text
}

/// The page of `store-elimination`.
pub fn elimination(report: &EliminationReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    page.blank();
    page.text += &format!(
        "{:<LABEL$}{:<8}{:>6}  {:<24}{:<24}\n",
        "region", "level", "GB/s", "zeros over ones", "twos over ones (placebo)"
    );
    report.regions.iter().for_each(|r| region(&mut page, r));
    page.blank();
    page.text += &format!(
        "{:<LABEL$}{:<23}{:<23}{}\n",
        "region", "alternating", "5 % shorter", "one int a line"
    );
    for r in &report.regions {
        let cell = |fill| format!("{:<23}", interval(r.ratio(fill)));
        let cells: String = [Fill::Alternating, Fill::Shorter, Fill::SparseZero].map(cell).concat();
        page.text += format!("{:<LABEL$}{cells}", format!("  {}", size(r.bytes))).trim_end();
        page.text.push('\n');
    }
    for r in &report.regions {
        let faster = r.ratio(Fill::Zero).is_some_and(|m| m.low > 1.0);
        if let Some(dose) = r.zeros_over_half.as_ref().filter(|_| faster && r.eliminated.is_none())
        {
            let words =
                format!("{}: zeros over alternating {}", size(r.bytes), interval(Some(dose)));
            page.line("dose", &words);
        }
    }
    for r in &report.regions {
        if let Some((zero, two)) = &r.wide {
            let words = format!(
                "{}: zeros {}, twos {}",
                size(r.bytes),
                interval(Some(zero)),
                interval(Some(two))
            );
            page.line("AVX-512", &words);
        }
    }
    if !report.protocol.machine.features.avx512f {
        page.line("AVX-512", &lacks("AVX-512"));
    }
    report.counted.iter().for_each(|e| page.line("counter", &counted(e)));
    page.blank();
    page.trust(&report.protocol);
    page.text
}

/// The maker's event, what became of it, and what it counted.
fn counted(counted: &CountedEvent) -> String {
    event(&counted.check, ["a line sent out", "a line kept"], |_| {
        let each = counted.per_line.iter().map(|(fill, n)| format!("{} {n:.2}", named(*fill)));
        let each: Vec<String> = each.collect();
        format!("a line of {}, filled over: {}", size(counted.bytes), each.join(", "))
    })
}

fn named(fill: Fill) -> &'static str {
    match fill {
        Fill::One => "ones",
        Fill::Zero => "zeros",
        Fill::Two => "twos",
        Fill::Alternating => "alternating",
        Fill::Shorter => "5 % shorter",
        Fill::SparseOne => "one int a line",
        Fill::SparseZero => "a zero int a line",
    }
}

fn region(page: &mut Page, r: &RegionReport) {
    let speed = r.speed.as_ref().map_or("?".to_owned(), |m| format!("{:.1}", m.value));
    let (zero, two) = (interval(r.ratio(Fill::Zero)), interval(r.ratio(Fill::Two)));
    page.text += format!(
        "{:<LABEL$}{:<8}{speed:>6}  {zero:<24}{two:<24}",
        format!("  {}", size(r.bytes)),
        r.level.word()
    )
    .trim_end();
    page.text.push('\n');
}

fn interval(m: Option<&Measurement>) -> String {
    m.map_or("?".to_owned(), |m| format!("{:.3} [{:.3}, {:.3}]", m.value, m.low, m.high))
}

/// One of the times of a cell.
type Part = fn(&SyncCell) -> Option<&Measurement>;

/// The page of `icache-sync`.
pub fn sync(report: &SyncReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    let tables: [(&str, Part); 6] = [
        ("write, ns", |c| c.write.as_ref()),
        ("synchronise", |c| c.sync.as_ref()),
        ("read as data", |c| c.read.as_ref()),
        ("first run", |c| c.first.as_ref()),
        ("second run", |c| c.second.as_ref()),
        ("sync + first", |c| c.sum.as_ref()),
    ];
    for (title, of) in tables {
        table(&mut page, report, title, of);
    }
    page.blank();
    for even in &report.break_even {
        let words = match even.from_bytes {
            Some(bytes) => format!("from {} on", size(bytes)),
            None => "at no size asked, or not clearly".to_owned(),
        };
        let (flush, serialise) = (even.flush.name(), even.serialise.name());
        page.line("break-even", &format!("{serialise} is cheaper than {flush} {words}"));
    }
    page.blank();
    page.trust(&report.protocol);
    page.text
}

fn table(page: &mut Page, report: &SyncReport, title: &str, of: Part) {
    page.blank();
    let heads: String = SIZES.iter().map(|b| format!("{:>10}", size(*b as u64))).collect();
    page.text += &format!("{title:<LABEL$}{heads}\n");
    for method in METHODS {
        let cells: Vec<Option<&Measurement>> =
            SIZES.iter().map(|b| report.cell(method, *b).and_then(of)).collect();
        if report.cell(method, SIZES[0]).is_none() {
            if let Some(feature) = method.missing(&report.protocol.machine.features) {
                page.line(&format!("  {}", method.name()), &lacks(feature));
            }
            continue;
        }
        let cell = |m: &Option<&Measurement>| {
            format!("{:>10}", m.map_or("?".to_owned(), |m| format!("{:.0}", m.value)))
        };
        let row: String = cells.iter().map(cell).collect();
        page.text += &format!("{:<LABEL$}{row}\n", format!("  {}", method.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stallscope::machine::{Facts, Machine};
    use stallscope::probes::Protocol;
    use stallscope::probes::icache_sync::Method;

    /// Of a processor that shows no features at all.
    fn protocol() -> Protocol {
        Protocol::new(Machine::from_facts(&Facts::default()), 0)
    }

    #[test]
    fn cells_of_missing_features_name_them() {
        let none = SyncCell {
            method: Method::None,
            bytes: SIZES[0] as u64,
            write: None,
            sync: None,
            read: None,
            first: None,
            second: None,
            sum: None,
        };
        let report = SyncReport {
            protocol: protocol(),
            cells: vec![none],
            break_even: Vec::new(),
            executions: 0,
            stale: 0,
        };
        let page = anstream::adapter::strip_str(&sync(&report)).to_string();
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for feature in ["CLFLUSHOPT", "CLWB", "SERIALIZE"] {
            let row = format!("{feature} {}", lacks(feature));
            assert!(words.contains(&row), "{page}");
        }
        let report =
            EliminationReport { protocol: protocol(), regions: Vec::new(), counted: Vec::new() };
        let page = anstream::adapter::strip_str(&elimination(&report)).to_string();
        assert!(
            page.contains("AVX-512      not measured") && page.contains("no AVX-512"),
            "{page}"
        );
    }
}
