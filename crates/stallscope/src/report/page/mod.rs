//! One HTML page from one JSON document: `render`, and `--html` of every command, go through [`page`] with the text of the
//! document, so a page never shows what is not in the JSON.
//!
//! The document is foreign: it may have been written by anybody. [`from_json`] makes its strings plain, the templates
//! (`templates/`) escape them. A page has no script and fetches nothing. Only this room's own types are drawn as such;
//! what has no picture yet is laid out field by field.

mod chart;
mod compared;
mod explained;
mod fields;
mod listing;
mod number;
mod steps;

use askama::Template;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::compared::{Compared, ComparisonPage};
use self::explained::ExplanationPage;
use self::fields::FieldsPage;
use super::Document;
use crate::foreign::from_json;

/// Larger documents are not read: a result of 2000 pairs has 2 MB.
pub const MOST_DOCUMENT_BYTES: u64 = 8 << 20;
/// Larger pages are not written.
const MOST_PAGE_BYTES: usize = 2_000_000;

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
    let value: Value = from_json(text).map_err(PageError::NotJson)?;
    let document: Document<Value> =
        serde_json::from_value(value).map_err(|_| PageError::NotOurs)?;
    if !document.is_ours() {
        return Err(PageError::NotOurs);
    }
    if let Some(version) = document.newer() {
        return Err(PageError::Newer(version));
    }
    let Document { kind, tool_version, result, .. } = document;
    let page = match kind.as_str() {
        "comparison" => {
            let compared = Compared::of(&typed(&kind, result)?, ["A", "B"])?;
            let title = format!("{} {}", compared.word, compared.sentence.text);
            ComparisonPage { title, kind: "comparison", tool_version, compared }.render()?
        }
        "explanation" => ExplanationPage::of(&typed(&kind, result)?, tool_version)?.render()?,
        "survey" | "probe-diff" => {
            let survey = typed(&kind, result)?;
            FieldsPage::of_survey(kind, tool_version, &survey).render()?
        }
        _ => FieldsPage::of(kind, tool_version, &result).render()?,
    };
    if page.len() > MOST_PAGE_BYTES { Err(PageError::TooLarge) } else { Ok(page) }
}

fn typed<T: DeserializeOwned>(kind: &str, result: Value) -> Result<T, PageError> {
    serde_json::from_value(result).map_err(|cause| PageError::Unfit { kind: kind.into(), cause })
}

#[cfg(test)]
mod tests;
