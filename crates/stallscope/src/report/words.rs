//! Numbers as readers want them: changes in per cent, as many decimals as the interval is worth, digits in groups.

use crate::compare::results::Row;
use crate::compare::{Metric, RunSample};

/// A log ratio as a change in per cent.
#[must_use]
pub fn percent(log: f64) -> f64 {
    100.0 * log.exp_m1()
}

/// A pair of runs as a change in per cent.
pub(super) fn change_of(pair: &[&RunSample; 2], metric: Metric) -> f64 {
    let [a, b] = pair.map(|run| metric.of(&run.amounts));
    100.0 * (b / a - 1.0)
}

/// Decimals for changes: a tight interval around a small change needs two, a multiple needs none.
#[must_use]
pub fn decimals(low: f64, high: f64) -> usize {
    match low.abs().max(high.abs()) {
        size if size >= 99.95 => 0,
        size if size < 9.0 && high - low < 0.3 => 2,
        _ => 1,
    }
}

/// Lower end, estimate and upper end, as log ratios, as a change with its interval: `+1.5 % [+1.2, +1.9]`, with so many
/// decimals at the least.
#[must_use]
pub fn change(judged: [f64; 3], fewest_decimals: usize) -> String {
    let [low, centre, high] = judged.map(percent);
    let d = decimals(low, high).max(fewest_decimals);
    format!("{centre:+.d$} % [{low:+.d$}, {high:+.d$}]")
}

/// The change of a row of two result files; where one middle is zero there is no ratio, and both are told.
#[must_use]
pub fn row_change(row: &Row) -> String {
    match (&row.change, row.old.value, row.new.value) {
        (Some(c), ..) => change([c.low_log, c.log_ratio, c.high_log], 1),
        (None, old, new) if (old == 0.0) != (new == 0.0) => format!("{old} -> {new}"),
        (None, 0.0, 0.0) if row.p_value.is_some() => "none".into(),
        _ => "-".into(),
    }
}

/// `1 commit`, `2 commits`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// 1234567 as `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
