//! Numbers as readers want them: changes in per cent, as many decimals as the interval is worth, digits in groups.

use crate::compare::results::{Judgement, Row};
use crate::compare::{Decision, Metric, RunSample};

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

/// From ten times on (log), a change is told as a factor.
const TIMES_FROM_LOG: f64 = std::f64::consts::LN_10;

/// A log ratio as a factor of a few digits.
fn times(log: f64) -> String {
    match log.exp() {
        factor if factor >= 1e4 => format!("{factor:.1e}"),
        factor if factor >= 2.0 => format!("{factor:.1}"),
        factor => format!("{factor:.2}"),
    }
}

/// A p-value with three digits, and its sign.
#[must_use]
pub fn p_words(p: f64) -> String {
    if p < 0.001 { "p<0.001".into() } else { format!("p={p:.3}") }
}

/// Lower end, estimate and upper end, as log ratios, as a change with its interval: `+1.5 % [+1.2, +1.9]`, with so many
/// decimals at the least.
#[must_use]
pub fn change(judged: [f64; 3], fewest_decimals: usize) -> String {
    if judged[1] >= TIMES_FROM_LOG || judged[2] >= 2.0 * TIMES_FROM_LOG {
        let [low, centre, high] = judged.map(times);
        return format!("x {centre} [{low}, {high}]");
    }
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
        // Means without what a test needs: the change, and nothing of how sure it is.
        (None, old, new) if old > 0.0 && new > 0.0 && (row.old.n, row.new.n) == (0, 0) => {
            let log = (new / old).ln();
            if log >= TIMES_FROM_LOG {
                format!("x {}", times(log))
            } else {
                format!("{:+.1} %", percent(log))
            }
        }
        (None, 0.0, 0.0) if row.p_value.is_some() => "none".into(),
        _ => "-".into(),
    }
}

/// `1 commit`, `2 commits`.
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Whether no row of a unit is decided, so that their mean is no finding either.
#[must_use]
pub fn is_open(judgement: &Judgement, unit: &str) -> bool {
    let mut rows = judgement.rows.iter().filter(|row| row.unit == unit);
    rows.all(|row| row.decision == Decision::Inconclusive)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_as_many_digits_as_they_are_worth() {
        assert_eq!(change([0.01, 0.02, 0.03], 1), "+2.0 % [+1.0, +3.0]");
        let times = |low: f64, centre: f64, high: f64| change([low, centre, high].map(f64::ln), 1);
        assert_eq!(times(8.9, 9.0, 9.1), "+800.0 % [+790.0, +810.0]");
        assert_eq!(times(10.2, 11.0, 12.1), "x 11.0 [10.2, 12.1]");
        assert_eq!(times(1e11, 1e12, 1e13), "x 1.0e12 [1.0e11, 1.0e13]");
        assert_eq!(times(0.5, 5.0, 400.0), "x 5.0 [0.50, 400.0]");
        assert_eq!((p_words(0.000_4), p_words(0.001)), ("p<0.001".into(), "p=0.001".into()));
        assert_eq!((counted(1, "line"), counted(0, "line")), ("1 line".into(), "0 lines".into()));
    }

    #[test]
    fn rows_without_a_ratio_or_a_test_show_both_sides_or_the_change() {
        let judged = |old: &str, new: &str| {
            use crate::compare::results::{judge, parse};
            use crate::stats::families::Adjustment;
            let [old, new] = [old, new].map(|text| parse("f", text).unwrap());
            row_change(&judge(&old, &new, 0.01, Adjustment::Holm).unwrap().rows[0])
        };
        let allocs = |n: u32| format!("BenchmarkX 1 {n} allocs/op\n").repeat(8);
        assert_eq!(judged(&allocs(0), &allocs(3)), "0 -> 3");
        assert_eq!(judged(&allocs(0), &allocs(0)), "none");
        let mean = |s: f64| format!(r#"{{"results":[{{"command":"x","mean":{s},"stddev":0.1}}]}}"#);
        assert_eq!(judged(&mean(1.0), &mean(2.0)), "+100.0 %");
        assert_eq!(judged(&mean(1.0), &mean(20.0)), "x 20.0");
    }
}
