//! A series in the terminal: one column for each commit, or for as many as fit into one.

use stallscope::compare::history::HistorySeries;
use stallscope::stats::robust::median;

use crate::commands::words::percent;

/// Columns of the picture, without the scale.
const COLUMNS: usize = 66;
const ROWS: usize = 9;

/// The picture; every line ends in a newline. `*` is a commit, `:` stands where a step begins.
pub fn chart(series: &HistorySeries) -> String {
    let logs: Vec<f64> = series.entries.iter().map(|e| e.log_ratio).collect();
    let per_column = logs.len().div_ceil(COLUMNS).max(1);
    let points: Vec<f64> = logs.chunks(per_column).filter_map(median).collect();
    let (low, high) = points
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(*p), high.max(*p)));
    let height = (high - low).max(f64::MIN_POSITIVE);
    let row_of = |log: f64| ((high - log) / height * (ROWS - 1) as f64).round() as usize;
    let starts: Vec<usize> =
        series.steps.iter().filter(|s| s.is_called()).map(|s| s.at as usize / per_column).collect();
    let mut out = String::new();
    for row in 0..ROWS {
        let scale = match row {
            0 => format!("{:+.1} %", percent(high)),
            row if row == ROWS - 1 && high > low => format!("{:+.1} %", percent(low)),
            _ => String::new(),
        };
        let cell = |column: usize| match (row_of(points[column]) == row, starts.contains(&column)) {
            (true, _) => '*',
            (false, true) => ':',
            (false, false) => ' ',
        };
        let cells: String = (0..points.len()).map(cell).collect();
        out += format!("{scale:>10} | {cells}").trim_end();
        out.push('\n');
    }
    if per_column > 1 {
        out += &format!("{:>10}   a column is the median of {per_column} commits\n", "");
    }
    out
}
