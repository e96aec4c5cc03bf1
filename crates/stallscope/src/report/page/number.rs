//! A number on a page: how it reads, and where it comes from, which is told when a pointer rests on it, and when it has
//! the focus, by keyboard or finger.

use askama::Template;
use askama::filters::HtmlSafe;

use super::scale::rounded;
use crate::explain::Share;
use crate::model::{Measurement, Unit};
use crate::report::words::change;

/// A number with its origin.
#[derive(Clone, Debug, Default, Template)]
#[template(
    ext = "html",
    source = r#"<span class="n" tabindex="0" title="{{ from }}"{% if let Some(value) = value %} data-value="{{ value }}"{% endif %}>{{ text }}</span>"#
)]
pub(super) struct Number {
    pub text: String,
    pub from: String,
    /// As the document has it, where that has it: `make test-html` holds both against each other.
    pub value: Option<f64>,
}

impl HtmlSafe for Number {}

impl Number {
    pub fn new(text: impl Into<String>, from: impl Into<String>) -> Self {
        Self { text: text.into(), from: from.into(), value: None }
    }

    /// One that is in the document as it stands.
    pub fn told(text: impl Into<String>, from: impl Into<String>, value: f64) -> Self {
        Self { value: Some(value), ..Self::new(text, from) }
    }

    /// An amount that the document has without an interval.
    pub fn plain(value: f64, unit: Unit, from: impl Into<String>) -> Self {
        Self::told(amount(value, unit), from, value)
    }

    /// A measurement with its interval; `of` says what was measured.
    pub fn of(m: &Measurement, of: &str) -> Self {
        let (scale, unit) = scale(m.unit, m.value.abs().max(m.high.abs()));
        let [value, low, high] = [m.value, m.low, m.high].map(|amount| digits(amount / scale));
        let text = format!("{value} {unit} [{low}, {high}]");
        Self::told(text.replace("  ", " "), format!("{of}: {}, n = {}", m.how, m.n), m.value)
    }

    /// A part in per cent.
    pub fn share(share: &Share, of: &str) -> Self {
        let Measurement { value, low, high, ref how, n, .. } = share.percent;
        let text = format!("{value:.1} % [{low:.1}, {high:.1}]");
        Self::told(text, format!("{of}: share of {}; {how}, n = {n}", share.of), value)
    }

    /// A log ratio with its interval as a change.
    pub fn change(log: f64, low: f64, high: f64, from: impl Into<String>) -> Self {
        Self::told(change([low, log, high], 0), from, log)
    }
}

/// An amount alone, with its unit.
pub(super) fn amount(value: f64, unit: Unit) -> String {
    let (scale, suffix) = scale(unit, value.abs());
    format!("{} {suffix}", digits(value / scale)).trim_end().to_owned()
}

/// The same where it is round, as beside an axis.
pub(super) fn short(value: f64, unit: Unit) -> String {
    let (scale, suffix) = scale(unit, value.abs());
    format!("{} {suffix}", rounded(value / scale)).trim_end().to_owned()
}

/// What amounts of about this size are divided by, and the unit that they are then in.
pub(super) fn scale(unit: Unit, size: f64) -> (f64, &'static str) {
    match (unit, size) {
        (Unit::Nanoseconds, size) if size >= 1e10 => (1e9, "s"),
        (Unit::Nanoseconds, size) if size >= 1e6 => (1e6, "ms"),
        (Unit::Nanoseconds, size) if size >= 1e3 => (1e3, "µs"),
        (Unit::Bytes, size) if size >= f64::from(1 << 20) => (f64::from(1 << 20), "MiB"),
        (Unit::Bytes, size) if size >= 1024.0 => (1024.0, "KiB"),
        (Unit::Bytes, _) => (1.0, "bytes"),
        (unit, _) => (1.0, unit.suffix()),
    }
}

/// About four significant digits, without an exponent.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
