//! How far two files of one program lie apart: up to where a difference is explained by how it was measured.
//!
//! A test of the samples knows the noise between samples. It does not know what all samples of a file
//! share: the one process that they come from, the minutes in which they were taken, and what kept the
//! program off the processor meanwhile. Each of these has a size that can be told from the file or from
//! experience; they are independent of each other, so their squares add up. A difference within reach is
//! not called worse or better, however small its p-value.

use super::threats::two_centres;
use super::units::is_timed;
use super::{Better, ResultFile, Series};
use crate::stats::ALPHA;
use crate::stats::ranks::{correlation_p, spearman};
use crate::stats::robust::{median, quartiles};
use crate::stats::student::mean_and_sd;

/// How far two processes of one program lie apart (log): placement of stack, heap and code moves programs
/// by 1 to 3 % (Mytkowicz et al., ASPLOS 2009; Kalibera and Jones, ISMM 2013).
const ONE_PROCESS_LOG: f64 = 0.02;
/// The same where one was looked at for less than [`SHORT_S`], which shows nothing of how the machine moves from minute
/// to minute: A/A pairs of pytest-benchmark, 0.1 s each, lay up to 9.4 % apart, beyond what each shows within.
const SHORT_PROCESS_LOG: f64 = 0.1;
/// What is short.
const SHORT_S: f64 = 1.0;
/// Share of real time on the processor below which the rest is a threat.
pub(super) const BUSY_SHARE: f64 = 0.8;

/// The distance of the quartiles of a normal distribution in standard deviations.
const QUARTILES_SD: f64 = 1.349;
/// Samples that are left of a series at the least.
const FEWEST_INDEPENDENT: usize = 10;
/// Samples from which quartiles say how far they lie apart.
const FEWEST_FOR_QUARTILES: usize = 8;

/// Up to where a difference between these series is explained (log).
pub(super) fn explained_log(old: (&ResultFile, &Series), new: (&ResultFile, &Series)) -> f64 {
    let is_speed = is_timed(&old.1.unit) || old.1.better == Better::Higher;
    let mut squares = 0.0_f64;
    if old.0.one_process || new.0.one_process {
        let is_short = |(file, series): (&ResultFile, &Series)| {
            file.one_process && series.covered_s.is_some_and(|s| s < SHORT_S)
        };
        let is_short = is_speed && (is_short(old) || is_short(new));
        squares += if is_short { SHORT_PROCESS_LOG } else { ONE_PROCESS_LOG }.powi(2);
    }
    for (_, series) in [old, new] {
        squares += series.moved_log.max(moved_log(&series.values)).max(told_log(series)).powi(2);
    }
    if !is_speed {
        return squares.sqrt();
    }
    let share = [old, new].iter().filter_map(|(_, s)| s.cpu_share).fold(1.0, f64::min);
    if share < BUSY_SHARE {
        squares += share.max(f64::MIN_POSITIVE).ln().powi(2);
    }
    squares.sqrt()
}

/// How far the machine moved a file (log): what it did to a quarter of the samples, or to a third of the time,
/// it can have done to all of the other file.
pub(super) fn moved_log(values: &[f64]) -> f64 {
    drift_log(values).max(spread_log(values)).max(humps_log(values))
}

/// How far parts of a series lie apart, in the order in which it was measured: thirds, or up to ten parts of thirty
/// samples.
fn drift_log(values: &[f64]) -> f64 {
    let n = values.len();
    let parts = (n / 30).clamp(3, 10);
    if n < parts {
        return 0.0;
    }
    let parts = (0..parts).map(|i| &values[i * n / parts..(i + 1) * n / parts]);
    let typical = parts.filter_map(median).filter(|m| *m > 0.0);
    let (low, high) = typical.fold((f64::INFINITY, 0.0_f64), |(l, h), m| (l.min(m), h.max(m)));
    if low < high { (high / low).ln() } else { 0.0 }
}

/// How far two humps lie apart: nobody knows in which one the other file's samples are.
fn humps_log(values: &[f64]) -> f64 {
    two_centres(values).filter(|([low, _], _)| *low > 0.0).map_or(0.0, |([l, h], _)| (h / l).ln())
}

/// The distance of the quartiles that a mean and its spread tell of, where no samples were kept.
fn told_log(series: &Series) -> f64 {
    let told = series.summary.filter(|s| series.values.is_empty() && s.mean > 0.0);
    told.and_then(|s| Some(s.sd? / s.mean)).map_or(0.0, |share| (QUARTILES_SD * share).ln_1p())
}

/// Samples that are as good as independent: means of more and more neighbours, until one says nothing of the next
/// (Spearman), or ten are left. Ten thousand samples of a tenth of a second are not ten thousand looks.
pub(super) fn independent(values: &[f64]) -> Vec<f64> {
    let mut now = values.to_vec();
    while now.len() >= 2 * FEWEST_INDEPENDENT {
        let steps = now.len() - 1;
        let r = spearman(&now[..steps], &now[1..]);
        if r <= 0.0 || correlation_p(r, steps) > ALPHA {
            break;
        }
        now = now.chunks(2).map(|two| mean_and_sd(two).0).collect();
    }
    now
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
    use super::super::{Summary, parse};
    use super::*;

    fn series(values: &[f64], cpu_share: Option<f64>) -> Series {
        Series { values: values.to_vec(), cpu_share, ..Series::named("x", "ns") }
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

    #[test]
    fn a_short_look_at_one_process_leaves_more_open() {
        let mut file = parse("f", "1\n2\n").unwrap();
        file.one_process = true;
        let of = |unit: &str, covered_s| {
            let s = Series { values: vec![5.0; 12], covered_s, ..Series::named("x", unit) };
            explained_log((&file, &s), (&file, &s))
        };
        assert!((of("ns", Some(0.9)) - 0.1).abs() < 1e-12);
        assert!(
            (of("ns", Some(1.0)) - 0.02).abs() < 1e-12 && (of("ns", None) - 0.02).abs() < 1e-12
        );
        assert!((of("allocs/op", Some(0.1)) - 0.02).abs() < 1e-12, "a count is no time");
        assert!((of("items_per_second", Some(0.1)) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn what_moved_is_the_way_between_parts_and_between_humps() {
        // Ten parts of thirty that rise by 1 % each.
        let rising: Vec<f64> = (0..300).map(|i| 100.0 * 1.01_f64.powi(i / 30)).collect();
        assert!((moved_log(&rising) - 9.0 * 1.01_f64.ln()).abs() < 1e-9);
        // A fifth of the samples around twice the time, in no order: no quartile shows it.
        let humps: Vec<f64> = (0..60)
            .map(|i| 100.0 + f64::from(i % 7) / 10.0 + if i % 5 == 0 { 100.0 } else { 0.0 })
            .collect();
        assert!(moved_log(&humps) > 0.69, "{}", moved_log(&humps));
        let told = |sd| {
            let summary = Some(Summary { mean: 2.0, sd, n: Some(9) });
            told_log(&Series { summary, ..Series::named("x", "ns") })
        };
        assert!((told(Some(0.2)) - 0.1349_f64.ln_1p()).abs() < 1e-12 && told(None) == 0.0);
    }

    #[test]
    fn samples_that_follow_each_other_are_few() {
        let noise: Vec<f64> = (0..400).map(|i| f64::from(i * 7919 % 401)).collect();
        assert_eq!(independent(&noise).len(), 400);
        let wave: Vec<f64> = (0..400).map(|i| (f64::from(i) / 40.0).sin()).collect();
        assert!((10..=25).contains(&independent(&wave).len()), "{}", independent(&wave).len());
        assert_eq!(independent(&[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]);
    }
}
