//! A comparison as a page: the verdict, every pair with the interval, every run in order of time, the figures.

use askama::Template;

use super::PageError;
use super::chart::{Dot, Mark, Plot, Scatter};
use super::number::{Number, amount, scale};
use super::scale::Scale;
use crate::compare::{
    Comparison, Contrast, Decision, Measure, Metric, RunSample, Severity, Slot, Warning, pair_up,
};
use crate::model::Unit;
use crate::report::words::{change_of, percent};

/// Pairs that are listed beside the picture that has them all.
const MOST_LISTED: usize = 200;
/// Where the estimate is so many times the spread of the pairs, zero is left out of their picture: nobody could see
/// the spread.
const TIMES_THE_SPREAD: f64 = 4.0;

/// What a comparison's page holds; the page of an explanation has it inside.
#[derive(Debug)]
pub(super) struct Compared {
    pub word: Decision,
    pub sentence: Number,
    pub how: String,
    pub arms: Vec<ArmView>,
    pub pairs: Scatter,
    pub zero: &'static str,
    pub runs: Scatter,
    pub contrasts: Vec<(&'static str, [Number; 3])>,
    pub warnings: Vec<(&'static str, String)>,
    pub listed: Vec<[String; 5]>,
    pub left_out: usize,
    pub settings: Vec<(&'static str, String)>,
    pub files: Vec<[String; 4]>,
}

/// One of the two programs.
#[derive(Debug)]
pub(super) struct ArmView {
    pub name: &'static str,
    pub class: &'static str,
    pub command: String,
    pub time: Number,
}

/// The page of a comparison alone.
#[derive(Template)]
#[template(path = "comparison.html")]
pub(super) struct ComparisonPage {
    pub title: String,
    pub kind: &'static str,
    pub tool_version: String,
    pub compared: Compared,
}

impl Compared {
    /// `names` is what the arms are called.
    pub fn of(comparison: &Comparison, names: [&'static str; 2]) -> Result<Self, PageError> {
        let analysis = &comparison.analysis;
        let pairs =
            pair_up(&comparison.samples).map_err(|e| PageError::Contradicts(e.to_string()))?;
        let judged = analysis.metric();
        let (sentence, how) = verdict(comparison, judged);
        let commands = comparison.arms.each_ref().map(|arm| arm.display());
        let shown = analysis.contrast(judged);
        let time = |arm: usize| {
            let of = format!("{} of {} ({})", noun(judged), names[arm], commands[arm]);
            shown.map_or_else(Number::default, |c| Number::of([&c.a, &c.b][arm], &of))
        };
        let arms = [0, 1].map(|arm| ArmView {
            name: names[arm],
            class: ["a", "b"][arm],
            command: commands[arm].clone(),
            time: time(arm),
        });
        let (drawn, zero) = pairs_plot(comparison, &pairs, judged, names);
        let warnings = analysis.warnings.iter().map(|warning| {
            let label = if warning.severity() == Severity::Caution { "warning" } else { "note" };
            (label, warning.to_string())
        });
        Ok(Self {
            word: analysis.verdict.decision,
            sentence,
            how,
            arms: arms.into(),
            pairs: drawn.draw(),
            zero,
            runs: runs_plot(&comparison.samples, judged, names).draw(),
            contrasts: analysis.contrasts.iter().map(|c| contrast_row(c, names)).collect(),
            warnings: warnings.collect(),
            listed: pairs.iter().take(MOST_LISTED).map(|pair| listed(pair, judged)).collect(),
            left_out: pairs.len().saturating_sub(MOST_LISTED),
            settings: settings(comparison),
            files: files(comparison, names),
        })
    }

    /// The warnings that tell something about these very runs.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        let always = Warning::OneBuildEach.to_string();
        self.warnings.iter().map(|(_, text)| text).filter(move |text| **text != always)
    }
}

/// A metric as a noun.
fn noun(metric: Metric) -> &'static str {
    match metric {
        Metric::Wall => "wall time",
        Metric::Cpu => "processor time",
        Metric::User => "user time",
        Metric::System => "system time",
        Metric::Memory => "peak memory",
        Metric::Printed => "what it prints",
        Metric::Counted => "the count",
    }
}

/// The change with its interval, and how it was found.
fn verdict(comparison: &Comparison, judged: Metric) -> (Number, String) {
    let analysis = &comparison.analysis;
    let wall = &analysis.wall;
    let (n, what) = (wall.estimate.n, noun(judged));
    let (log, low, high, how) = match &analysis.sequence {
        Some(s) => {
            let how = format!(
                "{what}, {n} pairs, looked at after every pair: 95 % confidence sequence of the mean log ratio"
            );
            (s.log_ratio, s.low_log, s.high_log, how)
        }
        None => {
            let p = wall.signed_rank.p_value;
            let p = if p < 0.0001 { format!("{p:.0e}") } else { format!("{p:.4}") };
            let how = format!("{what}, {n} pairs, {}, p = {p}", wall.estimate.how);
            (wall.log_ratio, wall.low_log, wall.high_log, how)
        }
    };
    (Number::change(log, low, high, format!("change of {how}")), how)
}

fn contrast_row(contrast: &Contrast, names: [&str; 2]) -> (&'static str, [Number; 3]) {
    let what = noun(contrast.metric);
    let of = |name: &str| format!("{what} of {name}");
    let change = contrast.ratio.as_ref().map_or_else(
        || Number::new("-", "a run has nothing above zero here, which has no ratio"),
        |r| {
            let from = format!(
                "{}, n = {}, p = {:.4}",
                r.estimate.how, r.estimate.n, r.signed_rank.p_value
            );
            Number::change(r.log_ratio, r.low_log, r.high_log, from)
        },
    );
    let [a, b] = [(&contrast.a, names[0]), (&contrast.b, names[1])]
        .map(|(m, name)| Number::of(m, &of(name)));
    (what, [a, b, change])
}

/// Every pair in order of time with estimate, interval and effect that matters; whether zero is in the picture.
fn pairs_plot(
    comparison: &Comparison,
    pairs: &[[&RunSample; 2]],
    metric: Metric,
    names: [&str; 2],
) -> (Plot, &'static str) {
    let (analysis, effect) = (&comparison.analysis, 100.0 * comparison.settings.effect);
    let [low, centre, high] = analysis.judged().map(percent);
    let dots: Vec<Dot> = pairs
        .iter()
        .map(|pair| {
            let [a, b] = pair.map(|run| amount(metric.of(&run.amounts), metric.unit()));
            let first = usize::from(pair[0].plan.slot != Slot::First);
            let (number, y) = (pair[0].plan.pair + 1, change_of(pair, metric));
            let title = format!(
                "pair {number}, {} first: {} {a}, {} {b}, {y:+.2} %",
                names[first], names[0], names[1]
            );
            Dot { x: f64::from(number), y, class: "pair", title, ..Dot::default() }
        })
        .collect();
    let own = Scale::over(dots.iter().map(|dot| dot.y).chain([low, high]));
    let all = Scale::over(dots.iter().map(|dot| dot.y).chain([low, high, 0.0, effect, -effect]));
    let is_far = own.distance(0.0) > TIMES_THE_SPREAD;
    let mark = |ends, class, title: String| Mark { ends, class, title };
    let marks = vec![
        mark(
            [-effect, effect],
            "effect",
            format!("±{effect} %: smaller effects do not matter (--effect)"),
        ),
        mark([low, high], "interval", format!("interval {low:+.2} % to {high:+.2} %")),
        mark([0.0; 2], "zero", "no difference".into()),
        mark([centre; 2], "estimate", format!("estimate {centre:+.2} %")),
    ];
    let plot = Plot {
        title: format!(
            "{} pairs: {} of {} against {}, in order of time, with estimate {centre:+.2} % and interval {low:+.2} % to {high:+.2} %",
            pairs.len(),
            noun(metric),
            names[1],
            names[0]
        ),
        unit: "%",
        along: "pair, in order of time",
        dots,
        marks,
        scale: if is_far { own } else { all }.wider(0.06),
        signed: true,
        has_density: true,
        ..Plot::default()
    };
    let zero = if is_far {
        "no difference, 0 %, is outside this picture."
    } else {
        "effects in the grey band do not matter (--effect)."
    };
    (plot, zero)
}

/// Every run in order of time.
fn runs_plot(samples: &[RunSample], metric: Metric, names: [&str; 2]) -> Plot {
    let most = samples.iter().map(|s| metric.of(&s.amounts)).fold(0.0, f64::max);
    let (divisor, unit) = scale(metric.unit(), most);
    let dots: Vec<Dot> = samples
        .iter()
        .map(|run| {
            let value = metric.of(&run.amounts);
            let (arm, order) = (run.plan.arm.index(), run.plan.order + 1);
            let title = format!(
                "run {order}, pair {}, {}: {}",
                run.plan.pair + 1,
                names[arm],
                amount(value, metric.unit())
            );
            Dot {
                x: f64::from(order),
                y: value / divisor,
                class: ["a", "b"][arm],
                title,
                ..Dot::default()
            }
        })
        .collect();
    Plot {
        title: format!("{} runs in order of time: {}", samples.len(), noun(metric)),
        unit,
        along: "run, in order of time",
        scale: Scale::over(dots.iter().map(|dot| dot.y)).wider(0.06),
        dots,
        ..Plot::default()
    }
}

fn listed(pair: &[&RunSample; 2], metric: Metric) -> [String; 5] {
    let [a, b] = pair.map(|run| amount(metric.of(&run.amounts), metric.unit()));
    let order = format!("{}, {}", pair[0].plan.order + 1, pair[1].plan.order + 1);
    let number = (pair[0].plan.pair + 1).to_string();
    [number, order, a, b, format!("{:+.2} %", change_of(pair, metric))]
}

fn settings(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let (settings, diagnostics) = (&comparison.settings, &comparison.analysis.diagnostics);
    let cpus = settings.cpus.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string);
    let mut rows = vec![
        ("order of the runs", settings.order.to_string()),
        ("seed", settings.seed.to_string()),
        ("processors", cpus),
        ("smallest effect that matters", format!("{} %", 100.0 * settings.effect)),
        ("noise of a pair (robust sd)", format!("{:.2} %", percent(diagnostics.pair_sd_log))),
    ];
    if settings.measure == Measure::Auto {
        rows.push(("judged by", "wall time, or processor time where runs waited for it".into()));
    }
    let detectable = comparison.analysis.verdict.detectable_log;
    rows.extend(
        detectable
            .map(|log| ("smallest effect shown in 4 of 5 tries", format!("{:.2} %", percent(log)))),
    );
    rows
}

fn files(comparison: &Comparison, names: [&str; 2]) -> Vec<[String; 4]> {
    let arms = names.into_iter().zip(&comparison.arms);
    arms.flat_map(|(name, arm)| {
        let bytes = |bytes: u64| amount(bytes as f64, Unit::Bytes);
        let program = [
            name.to_owned(),
            arm.program.clone(),
            bytes(arm.program_bytes),
            arm.program_fnv1a.clone(),
        ];
        let used = arm.files.iter().map(move |f| {
            [name.to_owned(), f.path.display().to_string(), bytes(f.bytes), f.fnv1a.clone()]
        });
        std::iter::once(program).chain(used)
    })
    .take(MOST_LISTED)
    .collect()
}
