//! What the screens of all probes have in common: a label, words or numbers behind it, 80 columns.

use stallscope::clock::Reading;
use stallscope::model::Measurement;

use crate::terminal::{FAINT, STRONG, WIDTH, break_at_spaces, paint};

/// Columns of the label in front of every line.
pub const LABEL: usize = 13;

/// A page that grows from top to bottom.
#[derive(Default)]
pub struct Page {
    /// What is on it.
    pub text: String,
}

impl Page {
    /// An empty line.
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// A label and words, wrapped under each other.
    pub fn line(&mut self, label: &str, words: &str) {
        let label = paint(STRONG, format_args!("{label:<LABEL$}"));
        for (i, part) in wrap(words, WIDTH - LABEL).iter().enumerate() {
            let head = if i == 0 { &label } else { &" ".repeat(LABEL) };
            self.text += &format!("{head}{part}\n");
        }
    }

    /// A number in a column of its own, with its spread, its count and how on the right.
    pub fn number(&mut self, label: &str, m: &Measurement, digits: usize) {
        let label = paint(STRONG, format_args!("{label:<LABEL$}"));
        let value = format!("{:.digits$} {}", m.value, m.unit.suffix());
        let spread = format!("[{:.digits$}, {:.digits$}]", m.low, m.high);
        self.text += &format!("{label}{value:<18} {spread:<22} n = {}\n", m.n);
        let how = paint(FAINT, &m.how);
        self.text += &format!("{}{how}\n", " ".repeat(LABEL));
    }

    /// A number, or why there is none.
    pub fn reading(&mut self, label: &str, reading: &Reading, digits: usize) {
        match reading {
            Reading::Measured(m) => self.number(label, m, digits),
            Reading::Inconclusive { clean_percent, n } => self
                .line(label, &format!("inconclusive: {clean_percent:.1} % clean samples of {n}")),
        }
    }
}

/// Breaks at spaces so that no line is longer than `width`, unless a single word is. A number
/// keeps its per cent sign.
pub fn wrap(words: &str, width: usize) -> Vec<String> {
    let options = break_at_spaces(width);
    let bound = words.replace(" %", "\u{a0}%");
    let lines = textwrap::wrap(&bound, options);
    lines.iter().map(|line| line.replace('\u{a0}', " ")).collect()
}
