//! How far two files of one program lie apart: up to where a difference is explained by how it was measured.
//!
//! A test of the samples knows the noise between samples. It does not know what all samples of a file
//! share: the one process that they come from, the minutes in which they were taken, and what kept the
//! program off the processor meanwhile. Each of these has a size that can be told from the file or from
//! experience; they are independent of each other, so their squares add up. A difference within reach is
//! not called worse or better, however small its p-value.

use super::{ResultFile, Series};
use crate::stats::robust::{median, quartiles};

/// How far two processes of one program lie apart (log): placement of stack, heap and code moves programs
/// by 1 to 3 % (Mytkowicz et al., ASPLOS 2009; Kalibera and Jones, ISMM 2013).
const ONE_PROCESS_LOG: f64 = 0.02;
/// Share of real time on the processor below which the rest is a threat.
pub(super) const BUSY_SHARE: f64 = 0.8;

/// Samples from which quartiles say how far they lie apart.
const FEWEST_FOR_QUARTILES: usize = 8;

/// Up to where a difference between these series is explained (log).
pub(super) fn explained_log(old: (&ResultFile, &Series), new: (&ResultFile, &Series)) -> f64 {
    let mut squares = 0.0_f64;
    if old.0.one_process || new.0.one_process {
        squares += ONE_PROCESS_LOG.powi(2);
    }
    for (_, series) in [old, new] {
        squares += moved_log(&series.values).powi(2);
    }
    let share = [old, new].iter().filter_map(|(_, s)| s.cpu_share).fold(1.0, f64::min);
    if share < BUSY_SHARE {
        squares += share.max(f64::MIN_POSITIVE).ln().powi(2);
    }
    squares.sqrt()
}

/// How far the machine moved a file (log): what it did to a quarter of the samples, or to a third of the time,
/// it can have done to all of the other file.
fn moved_log(values: &[f64]) -> f64 {
    drift_log(values).max(spread_log(values))
}

/// How far the thirds of a series, in the order in which it was measured, lie from all of it.
fn drift_log(values: &[f64]) -> f64 {
    let n = values.len();
    let typical = |part: &[f64]| median(part).filter(|m| *m > 0.0).map(f64::ln);
    let Some(all) = typical(values).filter(|_| n >= 3) else { return 0.0 };
    let thirds = (0..3).map(|i| &values[i * n / 3..(i + 1) * n / 3]);
    thirds.filter_map(typical).map(|third| (third - all).abs()).fold(0.0, f64::max)
}

/// The distance of the quartiles; of few samples, whose quartiles say little, all of their range.
fn spread_log(values: &[f64]) -> f64 {
    let ends = match quartiles(values) {
        Some([low, _, high]) if values.len() >= FEWEST_FOR_QUARTILES => [low, high],
        _ => [f64::min, f64::max].map(|end| values.iter().copied().reduce(end).unwrap_or(1.0)),
    };
    if ends[0] > 0.0 { (ends[1] / ends[0]).ln() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::{Better, parse};
    use super::*;

    fn series(values: &[f64], cpu_share: Option<f64>) -> Series {
        Series {
            name: "x".into(),
            unit: "ns".into(),
            better: Better::Lower,
            values: values.to_vec(),
            summary: None,
            cpu_share,
        }
    }

    #[test]
    fn each_cause_has_its_size_and_squares_add_up() {
        let mut file = parse("f", "1\n2\n").unwrap();
        let still = series(&[100.0; 12], None);
        let reach = |file: &ResultFile, a: &Series, b: &Series| explained_log((file, a), (file, b));
        assert_eq!(reach(&file, &still, &still), 0.0);
        // A level that steps by 5 % between the thirds.
        let values: Vec<f64> = (0..12).map(|i| if i < 4 { 100.0 } else { 105.0 }).collect();
        let moved = series(&values, None);
        assert!((reach(&file, &still, &moved) - 1.05_f64.ln()).abs() < 1e-12);
        file.one_process = true;
        assert!((reach(&file, &still, &still) - 0.02).abs() < 1e-12);
        let both = reach(&file, &still, &moved);
        assert!((both - 1.05_f64.ln().hypot(0.02)).abs() < 1e-12);
        file.one_process = false;
        // Half of the time off the processor explains twice the time; a tenth is no threat.
        let waited = series(&[100.0; 12], Some(0.5));
        assert!((reach(&file, &still, &waited) - 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(reach(&file, &still, &series(&[100.0; 12], Some(0.9))), 0.0);
        // More processor time than real time are threads.
        assert_eq!(reach(&file, &still, &series(&[100.0; 12], Some(3.0))), 0.0);
        assert_eq!(reach(&file, &series(&[0.0; 5], None), &series(&[7.0], None)), 0.0);
        // What happened to a quarter of the samples, spread over the file; of few samples to one of them.
        let some: Vec<f64> = (0..12).map(|i| if i % 3 == 0 { 110.0 } else { 100.0 }).collect();
        assert!((reach(&file, &still, &series(&some, None)) - 1.1_f64.ln()).abs() < 1e-12);
        let few = series(&[100.0, 100.0, 110.0, 100.0, 100.0], None);
        assert!((reach(&file, &still, &few) - 1.1_f64.ln()).abs() < 1e-12);
    }
}
