//! The way from BEFORE to AFTER in steps: what each part adds or takes, what is left unexplained last.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;

use super::bar::Bar;
use super::number::{Number, amount};
use super::scale::Scale;
use crate::compare::{Comparison, Metric};
use crate::explain::{Conclusion, Explanation, Ledger};
use crate::model::{Measurement, Unit};

/// Parts below this are no step of their own, in per cent.
const LEAST_STEP: f64 = 1.0;
/// Places that are steps where neither mechanisms nor work were counted.
const MOST_PLACES: usize = 5;

/// Height of a step as a picture of its own, in pixels.
const ROW: usize = 24;

/// One way from BEFORE to AFTER.
#[derive(Debug, Template)]
#[template(path = "steps.html")]
pub(super) struct Waterfall {
    pub title: &'static str,
    pub about: &'static str,
    pub rows: Vec<Step>,
}

impl HtmlSafe for Waterfall {}

impl Waterfall {
    /// Of the picture, in pixels.
    pub fn height(&self) -> usize {
        ROW * self.rows.len()
    }

    fn top(row: &usize) -> usize {
        ROW * row + 4
    }

    fn middle(row: &usize) -> usize {
        ROW * row + 16
    }
}

/// One step, or an end.
#[derive(Debug)]
pub(super) struct Step {
    pub name: String,
    pub time: Number,
    pub part: Number,
    pub bar: Bar,
}

/// A part of the difference, in per cent: the least, what is likely, the most.
struct Part {
    name: String,
    percent: [f64; 3],
    from: String,
}

impl Part {
    fn of(name: impl Into<String>, m: &Measurement) -> Self {
        let from = format!("{}, n = {}", m.how, m.n);
        Self { name: name.into(), percent: [m.low, m.value, m.high], from }
    }
}

/// By mechanism, where the model agrees with the clock; by work, where that was counted; else by place.
pub(super) fn waterfalls(explanation: &Explanation) -> Vec<Waterfall> {
    let comparison = &explanation.comparison;
    let mut all = Vec::new();
    if explanation.conclusion == Conclusion::NotRunning {
        all.extend(waiting(comparison));
        return all;
    }
    let by_mechanism = mechanisms(&explanation.ledgers);
    if !by_mechanism.is_empty() {
        all.extend(fall(
            comparison,
            "By mechanism",
            "What the model of the core predicts to be gone without each mechanism alone, summed over the places where it \
             agrees with the clock. What one mechanism hides behind another is counted with both.",
            by_mechanism,
            ["unexplained", "counted with two mechanisms"],
        ));
    }
    let mut by_work = Vec::new();
    if let Some(work) = &explanation.work {
        by_work.push(Part::of("more instructions", &work.more_instructions.percent));
        by_work.push(Part::of("instructions take longer", &work.slower_instructions.percent));
    }
    if let Some(part) = explanation.kernel.part.as_ref().filter(|_| !by_work.is_empty()) {
        by_work.push(Part::of("in the kernel", &part.percent));
    }
    if !by_work.is_empty() {
        let about = "Whole runs of both builds were counted instruction by instruction: more of them, or the same ones \
                     taking longer.";
        all.extend(fall(comparison, "By work", about, by_work, ["everything else"; 2]));
    }
    if all.is_empty() && !explanation.rows.is_empty() {
        let rows = explanation.rows.iter().take(MOST_PLACES);
        let parts = rows.map(|row| Part::of(row.place.name(), &row.share_of_difference.percent));
        let about = "Time in user code by share of samples.";
        all.extend(fall(comparison, "By place", about, parts.collect(), ["everything else"; 2]));
    }
    all
}

/// The parts of mechanisms over all places that the model is right about; of the whole run only where no place is.
fn mechanisms(ledgers: &[Ledger]) -> Vec<Part> {
    let agreeing =
        |is_whole: bool| ledgers.iter().filter(move |l| l.agrees && l.is_whole == is_whole);
    let is_whole = agreeing(false).next().is_none();
    let mut sums: BTreeMap<_, ([f64; 3], usize)> = BTreeMap::new();
    for line in agreeing(is_whole).flat_map(|ledger| &ledger.lines) {
        let m = &line.part.percent;
        let (sum, places) = sums.entry(line.mechanism).or_default();
        [m.low, m.value, m.high].into_iter().zip(sum).for_each(|(part, sum)| *sum += part);
        *places += 1;
    }
    let mut parts: Vec<Part> = sums
        .into_iter()
        .map(|(mechanism, (percent, places))| {
            let from = format!("model of the core, least and most of the windows, {places} places");
            Part { name: mechanism.to_string(), percent, from }
        })
        .filter(|part| part.percent[1].abs() >= LEAST_STEP)
        .collect();
    parts.sort_by(|a, b| b.percent[1].abs().total_cmp(&a.percent[1].abs()));
    parts
}

/// Steps in processor time, the rest as a last one: its name where something is left, and where too much was told.
fn fall(
    comparison: &Comparison,
    title: &'static str,
    about: &'static str,
    mut parts: Vec<Part>,
    rest_names: [&str; 2],
) -> Option<Waterfall> {
    let cpu = comparison.analysis.contrast(Metric::Cpu)?;
    let rest = 100.0 - parts.iter().map(|part| part.percent[1]).sum::<f64>();
    if rest.abs() >= LEAST_STEP {
        let name = rest_names[usize::from(rest < 0.0)].to_owned();
        parts.push(Part { name, percent: [rest; 3], from: "100 % less the parts above".into() });
    }
    let difference = cpu.b.value - cpu.a.value;
    let steps = parts.into_iter().map(|part| {
        let ns = part.percent.map(|percent| difference * percent / 100.0);
        let [low, value, high] = part.percent;
        let text = match low == high {
            true => format!("{value:.1} %"),
            false => format!("{value:.1} % [{low:.1}, {high:.1}]"),
        };
        (
            part.name,
            ns,
            Number::new(text, format!("part of the difference in processor time: {}", part.from)),
        )
    });
    Some(Waterfall {
        title,
        about,
        rows: rows([&cpu.a, &cpu.b], "processor time", steps.collect()),
    })
}

/// Wall time as time on the processor and time off it.
fn waiting(comparison: &Comparison) -> Option<Waterfall> {
    let analysis = &comparison.analysis;
    let (wall, cpu) = (analysis.contrast(Metric::Wall)?, analysis.contrast(Metric::Cpu)?);
    let on = cpu.b.value - cpu.a.value;
    let off = wall.b.value - wall.a.value - on;
    let step = |name: &str, ns: f64| {
        let part = format!("{:.1} %", 100.0 * ns / (wall.b.value - wall.a.value));
        (
            name.to_owned(),
            [ns; 3],
            Number::new(part, "part of the difference in wall time, by medians"),
        )
    };
    let steps = vec![step("on the processor", on), step("not running", off)];
    Some(Waterfall {
        title: "On the processor and off it",
        about: "Wall time less processor time is time in which the program did not run.",
        rows: rows([&wall.a, &wall.b], "wall time", steps),
    })
}

fn rows(
    [before, after]: [&Measurement; 2],
    what: &str,
    steps: Vec<(String, [f64; 3], Number)>,
) -> Vec<Step> {
    let mut at = before.value;
    let places: Vec<[f64; 2]> = steps
        .iter()
        .map(|(_, ns, _)| {
            let from = at;
            at += ns[1];
            [from, at]
        })
        .collect();
    let ends = [before, after].into_iter().flat_map(|m| [m.value, m.high]);
    let scale = Scale::over(ends.chain(places.iter().flatten().copied()).chain([0.0]));
    let end = |name: &str, m: &Measurement, class| Step {
        name: name.into(),
        time: Number::of(m, &format!("{what} of {name}")),
        part: Number::default(),
        bar: Bar::of(scale, m, class),
    };
    let mut rows = vec![end("BEFORE", before, "a")];
    for ((name, [low, value, high], part), place) in steps.into_iter().zip(places) {
        let sign = if value >= 0.0 { "+" } else { "-" };
        let time = format!("{sign}{}", amount(value.abs(), Unit::Nanoseconds));
        let whisker = (low != high).then(|| [place[0] + low, place[0] + high]);
        rows.push(Step {
            name,
            time: Number::new(time, part.from.clone()),
            part,
            bar: Bar::between(scale, place, whisker, if value < 0.0 { "less" } else { "more" }),
        });
    }
    rows.push(end("AFTER", after, "b"));
    rows
}
