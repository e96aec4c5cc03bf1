//! A picture in the cell of a table: a bar with its interval, a bar of parts, or dots along a line.

use askama::Template;
use askama::filters::HtmlSafe;

use super::scale::{Scale, rounded};
use crate::model::Measurement;

/// What is drawn in a cell, in per cent of its width.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "bar.html")]
pub(super) struct Bar {
    parts: Vec<BarPart>,
    dots: Vec<(f64, &'static str, String)>,
    lines: Vec<f64>,
    whisker: Option<[f64; 2]>,
}

impl HtmlSafe for Bar {}

#[derive(Clone, Debug)]
struct BarPart {
    x: f64,
    width: f64,
    class: &'static str,
    title: String,
}

impl Bar {
    /// From nothing to a measured amount, with its interval.
    pub fn of(scale: Scale, m: &Measurement, class: &'static str) -> Self {
        Self::between(scale, [0.0, m.value], Some([m.low, m.high]), class)
    }

    /// From one amount to another, with the interval of the latter.
    pub fn between(
        scale: Scale,
        ends: [f64; 2],
        interval: Option<[f64; 2]>,
        class: &'static str,
    ) -> Self {
        Self {
            parts: vec![BarPart::between(scale, ends, class, String::new())],
            lines: (scale.at(0.0) > 0.0 && scale.has(0.0))
                .then(|| scale.at(0.0))
                .into_iter()
                .collect(),
            whisker: interval.map(|ends| ends.map(|v| scale.at(v))),
            ..Self::default()
        }
    }

    /// Parts one behind the other, each with its class and what it says; a line where `end` is.
    pub fn stacked(
        scale: Scale,
        parts: impl IntoIterator<Item = (f64, &'static str, String)>,
        end: f64,
    ) -> Self {
        let mut at = 0.0;
        let part = |(amount, class, title): (f64, &'static str, String)| {
            let from = at;
            at += amount;
            BarPart::between(scale, [from, at], class, title)
        };
        Self {
            parts: parts.into_iter().map(part).collect(),
            lines: vec![scale.at(end)],
            ..Self::default()
        }
    }

    /// An estimate as a dot with its interval, and a line where nothing is.
    pub fn effect(scale: Scale, [low, value, high]: [f64; 3], class: &'static str) -> Self {
        Self {
            dots: vec![(scale.at(value), class, String::new())],
            lines: vec![scale.at(0.0)],
            whisker: Some([scale.at(low), scale.at(high)]),
            ..Self::default()
        }
    }

    /// Dots along a line, each with its class and what it says; lines at round numbers.
    pub fn dots(scale: Scale, dots: impl IntoIterator<Item = (f64, &'static str, String)>) -> Self {
        let dot = |(value, class, title)| (scale.at(value), class, title);
        Self {
            dots: dots.into_iter().map(dot).collect(),
            lines: scale.ticks(4.0).into_iter().map(|at| scale.at(at)).collect(),
            ..Self::default()
        }
    }
}

impl BarPart {
    fn between(scale: Scale, ends: [f64; 2], class: &'static str, title: String) -> Self {
        let [from, to] = ends.map(|v| scale.at(v));
        Self { x: from.min(to), width: rounded((to - from).abs()).max(0.3), class, title }
    }
}
