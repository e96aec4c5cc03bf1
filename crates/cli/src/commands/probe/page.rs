//! What the screens of all probes have in common: a label, words or numbers behind it, 80 columns.

use stallscope::clock::Reading;
use stallscope::clock::counters::{CounterCheck, CounterState};
use stallscope::model::Measurement;
use stallscope::probes::{Control, Protocol};

use crate::terminal::{BAD, CAUTION, FAINT, GOOD, STRONG, break_at_spaces, paint, width};

/// Columns of the label in front of every line.
pub const LABEL: usize = 13;

/// A page that grows from top to bottom.
#[derive(Default)]
pub struct Page {
    pub text: String,
}

/// Core cycles with their interval and count, the value in so many columns, or why there are none.
pub fn cycles(m: Option<&Measurement>, columns: usize) -> String {
    m.map_or_else(
        || "too few clean samples".to_owned(),
        |m| format!("{:columns$.1} cycles [{:.1}, {:.1}], {} samples", m.value, m.low, m.high, m.n),
    )
}

impl Page {
    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    /// A label and words, wrapped under each other.
    pub fn line(&mut self, label: &str, words: &str) {
        let label = paint(STRONG, format_args!("{label:<LABEL$}"));
        for (i, part) in wrap(words, width() - LABEL).iter().enumerate() {
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

    /// Which machine, and the verdict.
    pub fn head(&mut self, protocol: &Protocol) {
        let m = &protocol.machine;
        let place = m.hypervisor.as_ref().map_or(String::new(), |h| format!(", guest of {h}"));
        self.line("machine", &format!("{}{place}, CPU {}", m.core_name(), protocol.cpu));
        self.line("verdict", &protocol.verdict);
    }

    /// Whether the method held, what others say, what was left out, and how many samples there
    /// were.
    pub fn trust(&mut self, protocol: &Protocol) {
        protocol.controls.iter().for_each(|c| self.control(c));
        self.published(protocol, |low, high| match low == high {
            true => low.to_string(),
            false => format!("{low}-{high}"),
        });
        self.left_out(protocol);
    }

    /// What was not asked and why, and how many samples there were.
    pub fn left_out(&mut self, protocol: &Protocol) {
        for sentence in &protocol.skipped {
            self.line("left out", sentence);
        }
        let clean = match protocol.clean_percent {
            Some(percent) => format!("{percent:.1} % clean"),
            None => "not guarded one by one".to_owned(),
        };
        let (n, seconds) = (protocol.samples, protocol.took_ms as f64 / 1000.0);
        self.line("samples", &format!("{n}, {clean}; the probe took {seconds:.1} s"));
    }

    /// A check of the method and how it came out.
    pub fn control(&mut self, control: &Control) {
        let result = match control.passed {
            Some(true) => paint(GOOD, "passed"),
            Some(false) => paint(BAD, "FAILED"),
            None => paint(CAUTION, "open"),
        };
        let label = paint(STRONG, format_args!("{:<LABEL$}", control.kind));
        let parts = wrap(&format!("{:<6}  {}", "", control.words), width() - LABEL);
        for (i, part) in parts.iter().enumerate() {
            if i == 0 {
                self.text += &format!("{label}{result}: {}\n", part.trim_start());
            } else {
                self.text += &format!("{}{part}\n", " ".repeat(LABEL));
            }
        }
    }

    /// What others found, each as `range` words it, beside what was measured here.
    pub fn published(&mut self, protocol: &Protocol, range: impl Fn(f64, f64) -> String) {
        if protocol.published.is_empty() {
            self.line("published", "unknown core: no published figures to compare with");
        }
        for p in &protocol.published {
            let word = match p.agrees {
                Some(true) => "agrees",
                Some(false) => "disagrees",
                None => "not measured",
            };
            let here =
                p.measured.as_ref().map_or(String::new(), |m| format!("{:.1} here, ", m.value));
            let range = range(p.low, p.high);
            let words = format!("{word}: {}: {here}{range} in {}", p.quantity, p.source);
            self.line("published", &words);
        }
    }
}

/// What stands where a cell would be that needs a feature.
pub fn lacks(feature: &str) -> String {
    format!("not measured: this processor (or its hypervisor) shows no {feature}")
}

/// The maker's event and what became of it: counts of the two kernels that it was held against, or
/// what is to be said where it is believed.
pub fn event(
    check: &CounterCheck,
    [raises, stays]: [&str; 2],
    believed: impl FnOnce(&str) -> String,
) -> String {
    let each = |value: Option<f64>| value.map_or("?".to_owned(), |v| format!("{v:.2}"));
    let counts = format!("{} {raises}, {} {stays}", each(check.raised), each(check.silent));
    let state = match check.state {
        CounterState::Believed => believed(&counts),
        CounterState::Disproved => format!("not used, it counts something else: {counts}"),
        CounterState::Refused { errno } => {
            format!("not to be had here (error {errno}); see `stallscope probe clock`")
        }
        _ => counts,
    };
    format!("{}: {state}; untested on hardware", check.name)
}

/// Breaks at spaces so that no line is longer than `width`, unless a single word is. A number
/// keeps its per cent sign.
pub fn wrap(words: &str, width: usize) -> Vec<String> {
    let options = break_at_spaces(width);
    let bound = words.replace(" %", "\u{a0}%");
    let lines = textwrap::wrap(&bound, options);
    lines.iter().map(|line| line.replace('\u{a0}', " ")).collect()
}
