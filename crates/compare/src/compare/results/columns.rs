//! Numbers: one on each line, or in columns under a heading.

use std::collections::BTreeMap;

use super::{Format, ResultError, ResultFile};

/// What a table's lines are split at.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// The number that a line is.
pub(super) fn number(line: &str) -> Option<f64> {
    line.trim().parse().ok()
}

/// What the fields of a line are separated by.
pub(super) fn separator(line: &str) -> Option<char> {
    SEPARATORS.into_iter().find(|s| line.contains(*s))
}

pub(super) fn read(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    match file.format {
        Format::Numbers => numbers(file, text),
        _ => table(file, text),
    }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn numbers(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let mut values = Vec::new();
    for (at, line) in lines(text) {
        let value = number(line).ok_or_else(|| ResultError::Line {
            path: file.path.clone(),
            line: at,
            what: format!("`{}` stands where a number is expected", clipped(line)),
        })?;
        values.push(if value.is_finite() && value >= 0.0 {
            value
        } else {
            return Err(ResultError::Value {
                path: file.path.clone(),
                place: format!("line {at}"),
                value,
            });
        });
    }
    let mut index = BTreeMap::new();
    if let Some(first) = values.first() {
        file.add(&mut index, "numbers", "", *first);
        if let Some(series) = file.series.first_mut() {
            series.values = values;
        }
    }
    Ok(())
}

/// Columns in which every line has a number; columns of text are passed over.
fn table(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let mut lines = lines(text);
    let Some((_, heading)) = lines.next() else { return Ok(()) };
    let Some(separator) = separator(heading) else { return Ok(()) };
    let titles: Vec<String> =
        heading.split(separator).map(|t| t.trim().trim_matches('"').to_owned()).collect();
    let headless = titles.iter().all(|t| t.parse::<f64>().is_ok());
    let mut columns: Vec<Option<Vec<f64>>> = vec![Some(Vec::new()); titles.len()];
    let first = headless.then_some((1, heading));
    for (at, line) in first.into_iter().chain(lines) {
        let fields: Vec<&str> = line.split(separator).collect();
        if fields.len() != titles.len() {
            return Err(ResultError::Line {
                path: file.path.clone(),
                line: at,
                what: format!("{} fields, where the heading has {}", fields.len(), titles.len()),
            });
        }
        for (i, field) in fields.iter().enumerate() {
            let Some(values) = &mut columns[i] else { continue };
            match number(field.trim().trim_matches('"')) {
                Some(value) => {
                    values.push(file.checked(&format!("line {at}, {}", titles[i]), value)?)
                }
                // Text in the first line: a column of names. Later: a hole in the numbers.
                None if values.is_empty() => columns[i] = None,
                None => {
                    return Err(ResultError::Line {
                        path: file.path.clone(),
                        line: at,
                        what: format!("`{}` stands where a number is expected", clipped(field)),
                    });
                }
            }
        }
    }
    let mut index = BTreeMap::new();
    for (i, values) in columns.into_iter().enumerate() {
        let Some(values) = values.filter(|v| !v.is_empty()) else { continue };
        let name = if headless { format!("column {}", i + 1) } else { titles[i].clone() };
        let (name, unit) = unit_in(&name);
        file.add(&mut index, &name, &unit, 0.0);
        if let Some(series) = file.series.last_mut() {
            series.values = values;
        }
    }
    Ok(())
}

/// `time (ms)` and `time_ms` are `time` in ms.
fn unit_in(title: &str) -> (String, String) {
    if let Some((name, unit)) = title.strip_suffix(')').and_then(|t| t.rsplit_once('(')) {
        return (name.trim().to_owned(), unit.trim().to_owned());
    }
    match title.rsplit_once('_') {
        Some((name, unit)) if super::units::ns_in(unit).is_some() => (name.into(), unit.into()),
        _ => (title.into(), String::new()),
    }
}

/// The start of a field, short enough for a message.
fn clipped(text: &str) -> String {
    let clean = text.replace(char::is_control, " ");
    if clean.chars().count() <= 30 {
        return clean;
    }
    clean.chars().take(29).chain(['…']).collect()
}
