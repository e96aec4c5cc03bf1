//! Two files of results, series by series: the test of benchstat, an interval, a word.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reach::{explained_log, independent};
use super::threats::{halves_that_took_turns, of_files, of_series};
use super::units::{convert, is_timed};
use super::{Better, Format, ResultError, ResultFile, Series, Threat};
use crate::compare::verdict::Decision;
use crate::stats::ALPHA;
use crate::stats::families::{Adjustment, adjust};
use crate::stats::rank_sum;
use crate::stats::robust::{quartiles, sorted};
use crate::stats::student::mean_and_sd;
use crate::stats::welch::from_parts;

/// How far products of a time and its rate lie apart by the digits that files have.
const ROUNDING: f64 = 0.005;
/// Samples on each side from which "equivalent" may be said.
const FEWEST_FOR_EQUIVALENCE: usize = 6;

/// What is said about a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileRecord {
    /// Path of the file as the user named it.
    pub path: String,
    /// Format of the file, by the tool that writes it.
    pub format: Format,
    /// What it says about its circumstances.
    pub config: BTreeMap<String, String>,
}

/// The middle of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Centre {
    /// Median; the mean where no samples were kept.
    pub value: f64,
    /// Lower quartile of the samples.
    pub low: f64,
    /// Upper quartile of the samples.
    pub high: f64,
    /// Samples; 0 where none were kept.
    pub n: u64,
}

/// NEW over OLD, as log ratios, with the 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The estimate (Hodges–Lehmann of logs).
    pub log_ratio: f64,
    /// Lower end of the interval, natural logarithm of the ratio.
    pub low_log: f64,
    /// Upper end of the interval, natural logarithm of the ratio.
    pub high_log: f64,
    /// What the interval really covers.
    pub confidence: f64,
}

/// One benchmark in one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Name of the benchmark.
    pub name: String,
    /// Unit in which both centres are given.
    pub unit: String,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// Centre of the samples of OLD.
    pub old: Centre,
    /// Centre of the samples of NEW.
    pub new: Centre,
    /// NEW over OLD by the medians; absent when OLD is zero.
    pub median_ratio: Option<f64>,
    /// NEW over OLD with an interval; absent when a sample is zero.
    pub change: Option<Change>,
    /// Two-sided p-value of the rank test; absent where neither samples nor their number were kept.
    pub p_value: Option<f64>,
    /// The same, adjusted for the number of rows.
    pub adjusted_p: Option<f64>,
    /// `slower` means worse, also for rates.
    pub decision: Decision,
    /// Up to where a difference is explained by how it was measured (log).
    pub explained_log: f64,
    /// What can be held against it.
    pub threats: Vec<Threat>,
    /// The unit of the row that says the same in times, of which this rate is the reciprocal: both are one finding.
    pub reciprocal_of: Option<String>,
}

/// All rows of one unit as one number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Geomean {
    /// Unit of the rows that are averaged.
    pub unit: String,
    /// Number of rows in the mean.
    pub rows: u64,
    /// Geometric mean of the ratios of medians, as a log ratio, with an interval for these
    /// benchmarks (not for others like them).
    pub change: Change,
}

/// What two files of results show, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judgement {
    /// The files, OLD first.
    pub files: [FileRecord; 2],
    /// The smallest effect of interest as a share.
    pub effect: f64,
    /// How p-values were adjusted over the rows.
    pub adjustment: Adjustment,
    /// One row per benchmark and unit, in the order of OLD.
    pub rows: Vec<Row>,
    /// Geometric means over units with several rows.
    pub geomeans: Vec<Geomean>,
    /// Benchmarks that only OLD, and only NEW has.
    pub only_in: [Vec<String>; 2],
    /// The worst word of all rows.
    pub decision: Decision,
    /// What can be held against the files as wholes.
    pub threats: Vec<Threat>,
}

/// Judges NEW against OLD. `effect` is the smallest effect of interest as a share.
///
/// # Errors
/// When both are one file, have nothing in common, or measure one thing in two units.
pub fn judge(
    old: &ResultFile,
    new: &ResultFile,
    effect: f64,
    adjustment: Adjustment,
) -> Result<Judgement, ResultError> {
    let (pairs, only_in) = pair_up(old, new)?;
    let mut rows: Vec<Row> = pairs.iter().map(|(a, b)| row((old, a), (new, b))).collect();
    let reciprocals: Vec<Option<usize>> =
        (0..pairs.len()).map(|at| reciprocal(&pairs, at)).collect();
    let own = |(row, other): (&Row, &Option<usize>)| match other {
        None => row.p_value.unwrap_or(f64::NAN),
        Some(_) => f64::NAN,
    };
    let p: Vec<f64> = rows.iter().zip(&reciprocals).map(own).collect();
    let took_turns = halves_that_took_turns(old, new);
    let held: Vec<&Threat> = old
        .threats
        .iter()
        .chain(&new.threats)
        .filter(|threat| !(took_turns && matches!(threat, Threat::Busy { .. })))
        .collect();
    for ((row, (a, b)), adjusted) in rows.iter_mut().zip(&pairs).zip(adjust(&p, adjustment)) {
        row.adjusted_p = row.p_value.map(|_| adjusted);
        row.decision =
            of_zeros(a, b, row.adjusted_p).unwrap_or_else(|| decide(row, effect.ln_1p()));
        temper(row);
        if held.iter().any(|threat| threat.holds(row.decision, [&a.name, &b.name], &row.unit)) {
            row.decision = Decision::Inconclusive;
        }
    }
    for (at, other) in reciprocals.into_iter().enumerate() {
        let Some(other) = other else { continue };
        let (adjusted_p, decision, unit) =
            (rows[other].adjusted_p, rows[other].decision, rows[other].unit.clone());
        (rows[at].adjusted_p, rows[at].decision) = (adjusted_p, decision);
        rows[at].reciprocal_of = Some(unit);
        rows[at].threats.retain(|t| !matches!(t, Threat::Explained { .. }));
    }
    let record = |file: &ResultFile| FileRecord {
        path: file.path.clone(),
        format: file.format,
        config: file.config.clone(),
    };
    Ok(Judgement {
        files: [record(old), record(new)],
        effect,
        adjustment,
        geomeans: geomeans(&rows),
        decision: worst(&rows),
        rows,
        only_in,
        threats: of_files(old, new),
    })
}

type Pairs<'a> = Vec<(&'a Series, Series)>;

/// Series of both files that belong together, those of NEW in the unit of OLD.
fn pair_up<'a>(
    old: &'a ResultFile,
    new: &ResultFile,
) -> Result<(Pairs<'a>, [Vec<String>; 2]), ResultError> {
    // Two files with one nameless thing each are about that thing, whatever it is called.
    let is_one_series = matches!(old.format, Format::Hyperfine | Format::Numbers | Format::Csv)
        && old.series.len() == 1
        && new.series.len() == 1;
    let key = |series: &Series| if is_one_series { String::new() } else { series.name.clone() };
    let by_name = [old, new].map(|file| {
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, series) in file.series.iter().enumerate() {
            places.entry(key(series)).or_default().push(at);
        }
        places
    });
    let mut pairs = Vec::new();
    let mut taken = vec![false; new.series.len()];
    let mut only_old = Vec::new();
    for a in &old.series {
        let [in_old, in_new] =
            by_name.each_ref().map(|places| places.get(&key(a)).map_or(&[][..], Vec::as_slice));
        let fits = |b: &Series| convert(&b.unit, &a.unit).is_some();
        let times = [(old, in_old), (new, in_new)]
            .map(|(file, places)| places.iter().filter(|at| fits(&file.series[**at])).count());
        if times[1] > 0 && times[0] != times[1] {
            return Err(ResultError::Repeated {
                name: label(a),
                old: old.path.clone(),
                in_old: times[0],
                new: new.path.clone(),
                in_new: times[1],
            });
        }
        // Repeated names belong together in the order in which they occur.
        let mut open = in_new.iter().copied().filter(|at| !taken[*at] && fits(&new.series[*at]));
        if let Some(at) = open.next() {
            let (b, scale) = (&new.series[at], convert(&new.series[at].unit, &a.unit));
            taken[at] = true;
            pairs.push((a, scaled(b, scale.unwrap_or(1.0))));
        } else if let ([_], [b]) = (in_old, in_new) {
            // One quantity in two units: each is the only one of its name.
            return Err(ResultError::MixedUnits {
                name: a.name.clone(),
                old: word(&a.unit),
                new: word(&new.series[*b].unit),
            });
        } else {
            only_old.push(label(a));
        }
    }
    let only_new: Vec<String> =
        new.series.iter().zip(&taken).filter(|(_, t)| !**t).map(|(s, _)| label(s)).collect();
    if pairs.is_empty() {
        return Err(ResultError::NothingInCommon {
            old: old.path.clone(),
            new: new.path.clone(),
            first: only_old.first().cloned().unwrap_or_default(),
            second: only_new.first().cloned().unwrap_or_default(),
        });
    }
    Ok((pairs, [only_old, only_new]))
}

fn word(unit: &str) -> String {
    if unit.is_empty() { "no unit".into() } else { unit.into() }
}

fn label(series: &Series) -> String {
    match series.unit.as_str() {
        "" => series.name.clone(),
        unit => format!("{} ({unit})", series.name),
    }
}

fn scaled(series: &Series, factor: f64) -> Series {
    let mut copy = series.clone();
    copy.values.iter_mut().for_each(|v| *v *= factor);
    if let Some(s) = &mut copy.summary {
        s.mean *= factor;
        s.sd = s.sd.map(|sd| sd * factor);
    }
    copy
}

fn row(old: (&ResultFile, &Series), new: (&ResultFile, &Series)) -> Row {
    let (a, b) = (old.1, new.1);
    let raw = !a.values.is_empty() && !b.values.is_empty();
    let (p_value, change) = if raw {
        // Those of one process follow each other.
        let [x, y] = [old, new].map(|(file, series)| match file.one_process {
            true => independent(&series.values),
            false => series.values.clone(),
        });
        (by_test(&x, &y), by_ranks(&x, &y))
    } else {
        by_means(a, b)
    };
    let [old_centre, new_centre] = [a, b].map(centre);
    Row {
        name: a.name.clone(),
        unit: a.unit.clone(),
        better: a.better,
        median_ratio: (old_centre.value > 0.0).then(|| new_centre.value / old_centre.value),
        old: old_centre,
        new: new_centre,
        change,
        p_value,
        adjusted_p: p_value,
        decision: Decision::Inconclusive,
        explained_log: explained_log(old, new),
        threats: of_series(old, new),
        reciprocal_of: None,
    }
}

/// The row of the times of which the rates of row `at` are the reciprocals, to the digits that files have.
fn reciprocal(pairs: &Pairs<'_>, at: usize) -> Option<usize> {
    let both = |at: usize| [&pairs[at].0.values[..], &pairs[at].1.values].concat();
    let sizes = |at: usize| [pairs[at].0.values.len(), pairs[at].1.values.len()];
    let rate = pairs[at].0;
    if rate.better == Better::Lower || rate.values.is_empty() {
        return None;
    }
    let rates = both(at);
    (0..pairs.len()).find(|&other| {
        let time = pairs[other].0;
        let is_time = time.better == Better::Lower && is_timed(&time.unit);
        if !is_time || time.name != rate.name || sizes(other) != sizes(at) {
            return false;
        }
        let products: Vec<f64> = both(other).iter().zip(&rates).map(|(t, r)| t * r).collect();
        products.iter().all(|p| (p / products[0] - 1.0).abs() < ROUNDING)
    })
}

fn centre(series: &Series) -> Centre {
    match (quartiles(&series.values), series.summary) {
        (Some([low, value, high]), _) => Centre { value, low, high, n: series.values.len() as u64 },
        (None, Some(s)) => {
            let reach = s.sd.unwrap_or(0.0);
            Centre { value: s.mean, low: s.mean - reach, high: s.mean + reach, n: 0 }
        }
        (None, None) => Centre { value: 0.0, low: 0.0, high: 0.0, n: 0 },
    }
}

/// Samples that are all equal are no evidence of a difference: p = 1, as benchstat has it.
fn by_test(a: &[f64], b: &[f64]) -> Option<f64> {
    Some(rank_sum::p_value(a, b).unwrap_or(1.0))
}

fn by_ranks(a: &[f64], b: &[f64]) -> Option<Change> {
    let logs = |values: &[f64]| -> Option<Vec<f64>> {
        values.iter().all(|v| *v > 0.0).then(|| values.iter().map(|v| v.ln()).collect())
    };
    let i = rank_sum::shift(&logs(a)?, &logs(b)?)?;
    Some(Change { log_ratio: i.centre, low_log: i.low, high_log: i.high, confidence: i.confidence })
}

/// Welch on means and spreads, the only thing left where no samples were kept.
fn by_means(a: &Series, b: &Series) -> (Option<f64>, Option<Change>) {
    let part = |s: &Series| -> Option<(f64, Option<(f64, f64)>)> {
        if let Some(summary) = s.summary {
            let known = summary.sd.zip(summary.n).filter(|(_, n)| *n > 1);
            let error =
                known.map(|(sd, n)| ((sd / summary.mean).powi(2) / n as f64, n as f64 - 1.0));
            return (summary.mean > 0.0).then_some((summary.mean.ln(), error));
        }
        let (mean, sd) = mean_and_sd(&s.values);
        let n = s.values.len() as f64;
        let error = (n > 1.0).then(|| ((sd / mean).powi(2) / n, n - 1.0));
        (mean > 0.0).then_some((mean.ln(), error))
    };
    let (Some((a, error_a)), Some((b, error_b))) = (part(a), part(b)) else {
        return (None, None);
    };
    // Without the number of runs a spread is no error of a mean: no test, no interval.
    let (Some(error_a), Some(error_b)) = (error_a, error_b) else {
        return (None, None);
    };
    match from_parts(b - a, [error_a, error_b]) {
        Some(w) => (
            Some(w.p_value),
            Some(Change {
                log_ratio: w.difference,
                low_log: w.low,
                high_log: w.high,
                confidence: 1.0 - ALPHA,
            }),
        ),
        None => (None, None),
    }
}

/// The word: significant after adjustment and as large as matters; or inside what does not matter.
fn decide(row: &Row, delta_log: f64) -> Decision {
    let Some(ratio) = row.median_ratio.filter(|r| *r > 0.0) else {
        return Decision::Inconclusive;
    };
    if row.adjusted_p.is_some_and(|p| p < ALPHA) && ratio.ln().abs() >= delta_log {
        return moved(row.better, ratio > 1.0);
    }
    let enough = row.old.n.min(row.new.n) as usize >= FEWEST_FOR_EQUIVALENCE;
    let inside = row
        .change
        .is_some_and(|c| c.confidence >= 0.945 && c.low_log > -delta_log && c.high_log < delta_log);
    if enough && inside { Decision::Equivalent } else { Decision::Inconclusive }
}

/// The word about counts of which one side has nothing but zeros, which have no ratio: from none to some is worse
/// where every sample says so. A time of zero is a timer that saw nothing.
fn of_zeros(a: &Series, b: &Series, adjusted_p: Option<f64>) -> Option<Decision> {
    let samples = a.values.len().min(b.values.len());
    if samples == 0 || is_timed(&a.unit) {
        return None;
    }
    let [none, none_2] = [a, b].map(|s| s.values.iter().all(|v| *v == 0.0));
    let [some, some_2] = [a, b].map(|s| s.values.iter().all(|v| *v > 0.0));
    let is_sure = adjusted_p.is_some_and(|p| p < ALPHA);
    match (none, none_2) {
        (true, true) if samples >= FEWEST_FOR_EQUIVALENCE => Some(Decision::Equivalent),
        (true, false) if some_2 && is_sure => Some(moved(a.better, true)),
        (false, true) if some && is_sure => Some(moved(a.better, false)),
        _ => None,
    }
}

/// The word for what went up, or down.
fn moved(better: Better, up: bool) -> Decision {
    if up == (better == Better::Lower) { Decision::Slower } else { Decision::Faster }
}

/// Takes "worse" and "better" back where how it was measured explains the difference.
fn temper(row: &mut Row) {
    let Some(of_medians) = row.median_ratio.filter(|r| *r > 0.0).map(f64::ln) else { return };
    // The change that the table shows, or that of the medians, where it is smaller or the only one.
    let shown = row.change.map_or(of_medians, |c| c.log_ratio);
    let change_log = if shown.abs() < of_medians.abs() { shown } else { of_medians };
    let is_word = matches!(row.decision, Decision::Slower | Decision::Faster);
    if is_word && change_log.abs() <= row.explained_log {
        row.decision = Decision::Inconclusive;
        let (name, explained_log) = (row.name.clone(), row.explained_log);
        row.threats.push(Threat::Explained { name, change_log: shown, explained_log });
    }
}

fn worst(rows: &[Row]) -> Decision {
    let any = |word| rows.iter().any(|r| r.decision == word);
    [Decision::Slower, Decision::Inconclusive, Decision::Faster]
        .into_iter()
        .find(|word| any(*word))
        .unwrap_or(Decision::Equivalent)
}

/// One mean per unit, with the errors of its rows added up.
fn geomeans(rows: &[Row]) -> Vec<Geomean> {
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    let mut means = Vec::new();
    for unit in units {
        let (ratios, changes): (Vec<f64>, Vec<Change>) = rows
            .iter()
            .filter(|r| r.unit == unit)
            .filter_map(|r| Some((r.median_ratio.filter(|m| *m > 0.0)?.ln(), r.change?)))
            .unzip();
        if changes.len() < 2 {
            continue;
        }
        let n = changes.len() as f64;
        let centre = ratios.iter().sum::<f64>() / n;
        let reach = |side: fn(&Change) -> f64| {
            changes.iter().map(|c| side(c).powi(2)).sum::<f64>().sqrt() / n
        };
        means.push(Geomean {
            unit: unit.into(),
            rows: changes.len() as u64,
            change: Change {
                log_ratio: centre,
                low_log: centre - reach(|c| c.log_ratio - c.low_log),
                high_log: centre + reach(|c| c.high_log - c.log_ratio),
                confidence: sorted(&changes.iter().map(|c| c.confidence).collect::<Vec<f64>>())
                    .first()
                    .copied()
                    .unwrap_or_default(),
            },
        });
    }
    means
}

#[cfg(test)]
mod tests;
