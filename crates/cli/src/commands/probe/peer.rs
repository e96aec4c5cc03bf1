//! `probe --peer STORE:LOAD=FILE`: another suite's matrix of store forwarding beside ours.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::Serialize;
use stallscope::clock::Reading;
use stallscope::foreign;
use stallscope::probes::ProbeReport;
use stallscope::probes::store_forwarding::peer::{PeerMatrix, PeerRow};

use super::page::{LABEL, Page};

/// A table has a line per offset.
const MOST_BYTES: u64 = 1 << 20;

/// One table that was asked for.
#[derive(Debug)]
pub struct Peer {
    store_bytes: u16,
    load_bytes: u16,
    file: PathBuf,
    matrix: PeerMatrix,
}

/// What goes into the JSON.
#[derive(Debug, Serialize)]
pub struct Beside {
    store_bytes: u16,
    load_bytes: u16,
    file: PathBuf,
    core_mhz: f64,
    rows: Vec<PeerRow>,
}

/// Reads the tables, before anything is measured.
///
/// # Errors
/// When one is not `STORE:LOAD=FILE`, or the file is no such table.
pub fn load(asked: &[String]) -> anyhow::Result<Vec<Peer>> {
    asked.iter().map(|text| one(text)).collect()
}

fn one(text: &str) -> anyhow::Result<Peer> {
    let parts = text.split_once('=').and_then(|(widths, file)| {
        let (store, load) = widths.split_once(':')?;
        Some((store.trim().parse().ok()?, load.trim().parse().ok()?, PathBuf::from(file)))
    });
    let Some((store_bytes, load_bytes, file)) = parts else {
        bail!("--peer {text}: write STORE:LOAD=FILE, for example 8:4=table.csv");
    };
    let csv = foreign::read_text(&file, MOST_BYTES)
        .with_context(|| format!("--peer {}", file.display()))?;
    let matrix = PeerMatrix::parse(&csv).with_context(|| format!("--peer {}", file.display()))?;
    Ok(Peer { store_bytes, load_bytes, file, matrix })
}

/// Puts them beside what was measured. The clock probe's core clock makes cycles of nanoseconds.
///
/// # Errors
/// When `clock` or `store-forwarding` did not run, or the clock was not found.
pub fn beside(peers: Vec<Peer>, reports: &[ProbeReport]) -> anyhow::Result<Vec<Beside>> {
    if peers.is_empty() {
        return Ok(Vec::new());
    }
    let rate = reports.iter().find_map(|r| match r {
        ProbeReport::Clock(clock) => Some(&clock.core_rate),
        _ => None,
    });
    let forwarding = reports.iter().find_map(|r| match r {
        ProbeReport::StoreForwarding(report) => Some(report),
        _ => None,
    });
    let (Some(rate), Some(forwarding)) = (rate, forwarding) else {
        bail!("--peer needs the probes `clock` and `store-forwarding` in the same run");
    };
    let Reading::Measured(rate) = rate else {
        bail!("--peer: the core clock is inconclusive, so nanoseconds cannot become cycles");
    };
    let each = |peer: Peer| Beside {
        store_bytes: peer.store_bytes,
        load_bytes: peer.load_bytes,
        core_mhz: rate.value,
        rows: peer.matrix.beside(forwarding, (peer.store_bytes, peer.load_bytes), rate.value),
        file: peer.file,
    };
    Ok(peers.into_iter().map(each).collect())
}

pub fn screen(all: &[Beside]) -> String {
    let mut page = Page::default();
    for peer in all {
        page.blank();
        let words = format!(
            "{} -> {} bytes, {} at {:.0} MHz",
            peer.store_bytes,
            peer.load_bytes,
            peer.file.display(),
            peer.core_mhz
        );
        page.line("peer", &words);
        page.text +=
            &format!("{:<LABEL$}   ours  [interval]       theirs  difference\n", "  offset");
        for row in &peer.rows {
            let (ours, theirs) = (&row.ours, row.theirs_cycles);
            let interval = format!("[{:.1}, {:.1}]", ours.low, ours.high);
            page.text += &format!(
                "{:<LABEL$}{:>7.1}  {interval:<15} {theirs:>7.1}  {:>+9.1} (of {} places)\n",
                format!("  {:+}", row.offset_bytes),
                ours.value,
                theirs - ours.value,
                row.places,
            );
        }
        if peer.rows.is_empty() {
            page.line("", "no cell of ours has these widths");
        }
    }
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_wrongly_says_how() {
        for text in ["8:4", "8=x.csv", "a:4=x.csv"] {
            let error = load(&[text.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("STORE:LOAD=FILE"), "{error}");
        }
        let error = load(&["8:4=/no/such/table.csv".to_owned()]).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/table.csv"), "{error:#}");
    }

    #[test]
    fn both_probes_are_needed() {
        assert!(beside(Vec::new(), &[]).unwrap().is_empty());
        let table = (0..65).map(|i| format!("{}{}\n", i - 1, ",1".repeat(64)));
        let matrix = PeerMatrix::parse(&table.collect::<String>()).unwrap();
        let peer = Peer { store_bytes: 8, load_bytes: 4, file: "t.csv".into(), matrix };
        let error = beside(vec![peer], &[]).unwrap_err().to_string();
        assert!(error.contains("`clock`"), "{error}");
    }
}
