//! Cells in rows, each with a colour and what it says when the pointer rests on it.

use askama::Template;
use askama::filters::HtmlSafe;

use super::scale::rounded;

/// Height of a row and room for what is written below, in pixels.
const ROW: usize = 20;
const BELOW: usize = 40;
/// In rows of more cells there is no room for words.
const MOST_WITH_WORDS: usize = 16;

/// What a grid shows.
#[derive(Debug)]
pub(super) struct Plan {
    pub title: String,
    /// What the columns are, and what is written below some of them.
    pub along: &'static str,
    pub columns: usize,
    pub ticks: Vec<(usize, String)>,
    pub rows: Vec<(String, Vec<Cell>)>,
}

/// One cell.
#[derive(Debug)]
pub(super) struct Cell {
    pub column: usize,
    pub class: &'static str,
    /// How strong its colour is.
    pub opacity: f64,
    pub text: String,
    pub title: String,
}

/// A grid, drawn.
#[derive(Debug, Template)]
#[template(path = "grid.html")]
pub(super) struct Grid {
    plan: Plan,
    width: f64,
    has_words: bool,
}

impl HtmlSafe for Grid {}

impl Grid {
    pub fn of(plan: Plan) -> Self {
        let has_words = plan.columns <= MOST_WITH_WORDS;
        Self { width: 100.0 / plan.columns.max(1) as f64, has_words, plan }
    }

    fn height(&self) -> usize {
        self.plan.rows.len() * ROW
    }

    /// With what is written below, in pixels.
    pub fn full_height(&self) -> usize {
        self.height() + BELOW
    }

    fn y(&self, row: &usize) -> usize {
        row * ROW
    }

    fn x(&self, column: &usize) -> f64 {
        rounded(self.width * *column as f64)
    }

    fn middle(&self, column: &usize) -> f64 {
        rounded(self.width * (*column as f64 + 0.5))
    }
}
