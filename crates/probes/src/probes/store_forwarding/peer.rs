//! Another suite's matrix beside ours.
//!
//! clamchowder's memory latency program prints a 64 by 64 table as CSV: nanoseconds of one store
//! and one load, a row for each offset of the store in its line, a column for each offset of the
//! load. It takes one sample for each cell, so the median over all places with the same distance
//! between store and load stands for that distance; places where either access leaves the line are
//! left out, as they are in our matrix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Registers};
use super::report::ForwardingReport;
use crate::model::Measurement;
use crate::stats::robust::{finite, quantile};

/// Bytes of a line, rows and columns of the table.
const LINE: usize = 64;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Too few or too many rows.
    #[error("a table of store offsets has {LINE} rows behind its head, this has {0}")]
    Rows(usize),
    /// A row that is too short or too long, or holds something else than numbers.
    #[error("line {line}: not an offset and {LINE} times in nanoseconds")]
    Row {
        /// Counted from 1.
        line: usize,
    },
}

/// A table of nanoseconds: `[store offset][load offset]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMatrix {
    nanoseconds: Vec<Vec<f64>>,
}

/// One distance, both ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerRow {
    /// Bytes from the start of the store to the start of the load.
    pub offset_bytes: i32,
    /// Our measurement, core cycles.
    pub ours: Measurement,
    /// Theirs: median over places, core cycles by the clock that was given.
    pub theirs_cycles: f64,
    /// Places of theirs behind the median.
    pub places: usize,
}

impl PeerMatrix {
    /// Reads the CSV.
    ///
    /// # Errors
    /// When it is no such table.
    pub fn parse(text: &str) -> Result<Self, PeerError> {
        let lines: Vec<(usize, &str)> =
            text.lines().enumerate().skip(1).filter(|(_, l)| !l.trim().is_empty()).collect();
        if lines.len() != LINE {
            return Err(PeerError::Rows(lines.len()));
        }
        let nanoseconds = lines
            .iter()
            .enumerate()
            .map(|(offset, (index, line))| {
                row(line, offset).ok_or(PeerError::Row { line: index + 1 })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { nanoseconds })
    }

    /// Median over places of the time for stores and loads that far apart, and how many places.
    fn at(&self, store_bytes: usize, load_bytes: usize, offset_bytes: i32) -> Option<(f64, usize)> {
        let load_of = |store: usize| usize::try_from(store as i32 + offset_bytes).ok();
        let times = (0..=LINE.saturating_sub(store_bytes)).filter_map(|store| {
            let load = load_of(store).filter(|load| load + load_bytes <= LINE)?;
            Some(self.nanoseconds[store][load])
        });
        let times = finite(times);
        (!times.is_empty()).then(|| (quantile(&times, 0.5), times.len()))
    }

    /// Both tables, by distance, for one store and one load width in general registers (vector
    /// registers for stores of 16 bytes, as the program does).
    #[must_use]
    pub fn beside(
        &self,
        report: &ForwardingReport,
        (store_bytes, load_bytes): (u16, u16),
        core_mhz: f64,
    ) -> Vec<PeerRow> {
        let registers = if store_bytes > 8 { Registers::Vector } else { Registers::General };
        let offsets = 1 - i32::from(load_bytes)..i32::from(store_bytes);
        let row = |offset_bytes| {
            let case = Case::pair(registers, store_bytes, load_bytes, offset_bytes);
            let ours = report.cell(&case)?.cycles.clone()?;
            let (nanoseconds, places) =
                self.at(store_bytes.into(), load_bytes.into(), offset_bytes)?;
            let theirs_cycles = nanoseconds * core_mhz / 1000.0;
            Some(PeerRow { offset_bytes, ours, theirs_cycles, places })
        };
        offsets.filter_map(row).collect()
    }
}

fn row(line: &str, offset: usize) -> Option<Vec<f64>> {
    let mut fields = line.split(',').map(str::trim);
    let named = fields.next()?.parse::<usize>().ok()?;
    let times: Vec<f64> = fields.map(|f| f.parse().ok()).collect::<Option<_>>()?;
    let sane = |t: &f64| t.is_finite() && *t >= 0.0;
    (named == offset && times.len() == LINE && times.iter().all(sane)).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(time: impl Fn(usize, usize) -> f64) -> String {
        let head: String = (0..LINE).map(|load| format!(",{load}")).collect();
        let rows = (0..LINE).map(|store| {
            let times: String =
                (0..LINE).map(|load| format!(",{:.6}", time(store, load))).collect();
            format!("{store}{times}\n")
        });
        format!("{head}\n{}", rows.collect::<String>())
    }

    #[test]
    fn the_median_over_places_ignores_a_bad_one() {
        let text = table(|store, load| match load as i32 - store as i32 {
            _ if (store, load) == (4, 8) => 404.4,
            4 => 1.7,
            _ => 5.0,
        });
        let matrix = PeerMatrix::parse(&text).unwrap();
        // Stores of 8 bytes at 0 to 56 with a load 4 behind.
        assert_eq!(matrix.at(8, 4, 4), Some((1.7, 57)));
        assert_eq!(matrix.at(8, 4, -3), Some((5.0, 54)));
        assert_eq!(matrix.at(8, 4, 64), None);
    }

    #[test]
    fn what_is_no_table_says_where() {
        assert_eq!(PeerMatrix::parse(""), Err(PeerError::Rows(0)));
        let good = table(|_, _| 1.0);
        assert!(PeerMatrix::parse(&good).is_ok());
        let cut = good.lines().take(40).collect::<Vec<_>>().join("\n");
        assert_eq!(PeerMatrix::parse(&cut), Err(PeerError::Rows(39)));
        let bad = good.replacen("3,1.000000", "3,fast", 1);
        assert_eq!(PeerMatrix::parse(&bad), Err(PeerError::Row { line: 5 }));
        let negative = good.replacen("7,1.000000", "7,-1", 1);
        assert_eq!(PeerMatrix::parse(&negative), Err(PeerError::Row { line: 9 }));
    }
}
