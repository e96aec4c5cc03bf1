//! What a page with pictures is put together from: titles, sentences, pictures with their tables, rows with a picture in each.

use askama::Template;
use askama::filters::HtmlSafe;

use super::bar::Bar;
use super::chart::Scatter;
use super::flame::Flame;
use super::grid::Grid;
use super::number::Number;
use super::steps::Waterfall;
use crate::compare::Decision;

/// A part of the page.
#[derive(Debug, Template)]
#[template(path = "part.html")]
pub(super) enum Part {
    /// What the parts below are about, and the word about it.
    Title(String, Option<Decision>),
    Words(String),
    Notes(Vec<String>),
    Figure(Box<Figure>),
    Rows {
        head: Vec<&'static str>,
        rows: Vec<Row>,
    },
}

impl HtmlSafe for Part {}

/// A picture with what its colours are, and the same as a table.
#[derive(Debug)]
pub(super) struct Figure {
    pub caption: String,
    pub keys: Vec<(&'static str, String)>,
    pub picture: Picture,
    pub head: Vec<String>,
    pub rows: Vec<(String, Vec<Number>)>,
}

impl Figure {
    /// What its caption is about, by which it is asked for.
    pub fn name(&self) -> &str {
        self.caption.split_once(": ").map_or(&self.caption, |(name, _)| name)
    }
}

#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = "{% match self %}{% when Self::Scatter(drawn) %}{{ drawn }}{% when Self::Grid(drawn) %}{{ drawn }}{% when Self::Flame(drawn) %}{{ drawn }}{% when Self::Steps(drawn) %}{{ drawn }}{% endmatch %}"
)]
pub(super) enum Picture {
    Scatter(Scatter),
    Grid(Grid),
    Flame(Flame),
    Steps(Waterfall),
}

impl HtmlSafe for Picture {}

impl Picture {
    /// With what is written below, in pixels.
    pub fn full_height(&self) -> f64 {
        match self {
            Self::Scatter(drawn) => drawn.full_height(),
            Self::Grid(drawn) => drawn.full_height() as f64,
            Self::Flame(drawn) => drawn.height,
            Self::Steps(drawn) => drawn.height() as f64,
        }
    }
}

/// A row of a table: what it is about, its figures, its picture.
#[derive(Debug)]
pub(super) struct Row {
    pub name: String,
    pub note: String,
    pub numbers: Vec<Number>,
    pub bar: Bar,
}
