//! One HTML page from one JSON document: `render`, and `--html` of every command, go through [`page`] with the text of the
//! document, so a page never shows what is not in the JSON.
//!
//! The document is foreign: it may have been written by anybody. [`from_json`] makes its strings plain, the templates
//! (`templates/`) escape them. A page has no script and fetches nothing. Only this room's own types are drawn as such;
//! what has no picture yet is laid out field by field.

mod bar;
mod chart;
mod compared;
mod dated;
mod explained;
mod fields;
mod flame;
mod grid;
mod listing;
mod number;
mod parts;
mod probed;
mod scale;
mod series;
mod sets;
mod steps;
mod swept;
mod windowed;

use askama::Template;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::compared::{Compared, ComparisonPage};
use self::explained::ExplanationPage;
use self::fields::FieldsPage;
use self::flame::FlameView;
use self::parts::{Part, Picture};
use self::steps::waterfalls;
use super::Document;
use crate::compare::history::HistoryReport;
use crate::compare::sweep::SweepReport;
use crate::explain::Explanation;
use crate::foreign::from_json;

/// Larger documents are not read: a result of 2,000 pairs has 2 MB, layouts of large programs have more than 8.
pub const MOST_DOCUMENT_BYTES: u64 = 64 << 20;
/// Larger pages are not written.
const MOST_PAGE_BYTES: usize = 2_000_000;

/// What an SVG file says that it is; nothing is fetched from there.
const SVG: &str = "http://www.w3.org/2000/svg";

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// It cannot be read as JSON.
    #[error("it is no JSON: {0}")]
    NotJson(serde_json::Error),
    /// It has no envelope of ours.
    #[error("it is no result of stallscope, which `--json FILE` writes")]
    NotOurs,
    /// A later version of the envelope.
    #[error("it was written by a newer stallscope (format {0}); update this one")]
    Newer(u32),
    /// The result is not of its kind.
    #[error("it is no `{kind}` as this stallscope writes it: {cause}")]
    Unfit {
        /// What it says it is.
        kind: String,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
    /// Parts of the result do not belong together.
    #[error("its parts do not belong together: {0}")]
    Contradicts(String),
    /// It has no such chart.
    #[error("a result of the kind `{kind}` has no chart{chart}; it has {has}")]
    NoChart {
        /// What was asked for, quoted behind a blank; empty where nothing was.
        chart: String,
        /// What the result is.
        kind: String,
        /// The names of those that it has.
        has: String,
    },
    /// The page would be too large to be of use.
    #[error("its page would be larger than 2 MB")]
    TooLarge,
    /// A template failed.
    #[error("the page cannot be drawn: {0}")]
    Template(#[from] askama::Error),
}

/// The page of a result, whose whole document is `text`.
///
/// # Errors
/// See [`PageError`].
pub fn page(text: &str) -> Result<String, PageError> {
    let Document { kind, tool_version, result, .. } = document(text)?;
    let page = match kind.as_str() {
        "comparison" => {
            let compared = Compared::of(&typed(&kind, result)?, ["A", "B"])?;
            let title = format!("{} {}", compared.word, compared.sentence.text);
            ComparisonPage { title, kind: "comparison", tool_version, compared }.render()?
        }
        "explanation" | "case" => {
            let (explanation, told) = explanation(&kind, result)?;
            ExplanationPage::of(&explanation, told, tool_version)?.render()?
        }
        "survey" | "probe-diff" => {
            let survey = typed(&kind, result)?;
            FieldsPage::of_survey(kind, tool_version, &survey).render()?
        }
        _ => {
            let parts = pictures(&kind, &result);
            FieldsPage::of(kind, tool_version, parts, &result).render()?
        }
    };
    if page.len() > MOST_PAGE_BYTES { Err(PageError::TooLarge) } else { Ok(page) }
}

/// What is drawn above the fields of a result; nothing of kinds that have no pictures, nor of a document of another shape.
fn pictures(kind: &str, result: &Value) -> Vec<Part> {
    let parts = match kind {
        "sweep" => SweepReport::deserialize(result).map(|report| swept::parts(&report)),
        "probe" => probed::Probed::deserialize(result).map(|probed| probed::parts(&probed)),
        "layout" => sets::Sets::deserialize(result).map(|layout| sets::parts(&layout)),
        "history" => HistoryReport::deserialize(result).map(|report| dated::parts(&report)),
        "trace" => windowed::Traced::deserialize(result).map(|traced| windowed::of_trace(&traced)),
        "scan-run" => {
            windowed::Counted::deserialize(result).map(|counted| windowed::of_scan(&counted))
        }
        _ => return Vec::new(),
    };
    parts.unwrap_or_default()
}

/// A chart as an SVG file of its own.
#[derive(Template)]
#[template(path = "chart.html")]
struct ChartFile {
    height: f64,
    chart: Picture,
}

/// One chart of a result, whose whole document is `text`, as an SVG file that needs nothing else: the first one whose name has
/// the words `chosen`, or the first that there is.
///
/// # Errors
/// See [`PageError`].
pub fn svg(text: &str, chosen: Option<&str>) -> Result<String, PageError> {
    let Document { kind, result, .. } = document(text)?;
    let words = chosen.unwrap_or_default().to_lowercase();
    let charts = charts(&kind, result)?;
    let names: Vec<String> = charts.iter().map(|(name, _)| format!("`{name}`")).collect();
    let found = charts.into_iter().find(|(name, _)| name.to_lowercase().contains(&words));
    let Some((_, chart)) = found else {
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let chart = chosen.map_or_else(String::new, |words| format!(" `{words}`"));
        return Err(PageError::NoChart { chart, kind, has });
    };
    let svg = ChartFile { height: chart.full_height(), chart }.render()?;
    if svg.len() > MOST_PAGE_BYTES { Err(PageError::TooLarge) } else { Ok(svg) }
}

/// The charts of a result, with their names.
fn charts(kind: &str, result: Value) -> Result<Vec<(String, Picture)>, PageError> {
    let of_comparison = |Compared { pairs, runs, .. }: Compared| {
        [("pairs", pairs), ("runs", runs)]
            .map(|(name, drawn)| (name.to_owned(), Picture::Scatter(drawn)))
    };
    Ok(match kind {
        "comparison" => of_comparison(Compared::of(&typed(kind, result)?, ["A", "B"])?).into(),
        "explanation" | "case" => {
            let (explanation, _) = explanation(kind, result)?;
            let compared = Compared::of(&explanation.comparison, ["BEFORE", "AFTER"])?;
            let flame = FlameView::of(&explanation)?;
            let flame = flame.map(|flame| ("flame".to_owned(), Picture::Flame(flame.graph)));
            let steps = waterfalls(&explanation).into_iter();
            let steps = steps.map(|steps| {
                (format!("steps {}", steps.title.to_lowercase()), Picture::Steps(steps))
            });
            flame.into_iter().chain(of_comparison(compared)).chain(steps).collect()
        }
        _ => {
            let figure = |part| match part {
                Part::Figure(figure) => Some((figure.name().to_owned(), figure.picture)),
                _ => None,
            };
            pictures(kind, &result).into_iter().filter_map(figure).collect()
        }
    })
}

/// An explanation, also that of a case, with what is said of the case.
fn explanation(kind: &str, result: Value) -> Result<(Explanation, Option<String>), PageError> {
    #[derive(Deserialize)]
    struct Case {
        sentence: String,
        explanation: Explanation,
    }
    Ok(match kind {
        "case" => {
            let Case { sentence, explanation } = typed(kind, result)?;
            (explanation, Some(sentence))
        }
        _ => (typed(kind, result)?, None),
    })
}

fn document(text: &str) -> Result<Document<Value>, PageError> {
    let value: Value = from_json(text).map_err(PageError::NotJson)?;
    let document: Document<Value> =
        serde_json::from_value(value).map_err(|_| PageError::NotOurs)?;
    match document.newer() {
        _ if !document.is_ours() => Err(PageError::NotOurs),
        Some(version) => Err(PageError::Newer(version)),
        None => Ok(document),
    }
}

fn typed<T: DeserializeOwned>(kind: &str, result: Value) -> Result<T, PageError> {
    serde_json::from_value(result).map_err(|cause| PageError::Unfit { kind: kind.into(), cause })
}

#[cfg(test)]
mod tests;
