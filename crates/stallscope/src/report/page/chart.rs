//! Pictures as SVG: dots over an axis, alone or joined, with what else is known as lines and bands. Across, everything is in
//! per cent of the width, so that a picture fits every screen and its text keeps its size.

use std::fmt::Write;

use askama::Template;
use askama::filters::HtmlSafe;

use super::number::short;
use super::scale::{Scale, Steps, rounded};
use crate::model::Unit;
use crate::stats::robust::quartiles;
use crate::stats::student::mean_and_sd;

/// Height of the field with the dots, in pixels.
const HEIGHT: f64 = 220.0;
/// Room for what is written below, in pixels.
const BELOW: f64 = 48.0;
/// Points of a density curve.
const CURVE_POINTS: usize = 80;

/// One dot: where it is along and up, the ends of its interval, how it is drawn, what it says.
#[derive(Debug, Default)]
pub(super) struct Dot {
    pub x: f64,
    pub y: f64,
    pub interval: Option<[f64; 2]>,
    pub class: &'static str,
    pub title: String,
}

/// A line across, or, where it has two ends, a band.
#[derive(Debug)]
pub(super) struct Mark {
    pub ends: [f64; 2],
    pub class: &'static str,
    pub title: String,
}

impl Mark {
    fn is_band(&self) -> bool {
        self.ends[1] > 0.0
    }
}

/// What is drawn as dots.
#[derive(Debug, Default)]
pub(super) struct Plot {
    pub title: String,
    pub unit: &'static str,
    /// What is along the axis below, in which steps and unit.
    pub along: &'static str,
    pub along_steps: Steps,
    pub along_unit: Option<Unit>,
    pub dots: Vec<Dot>,
    /// What the dots are the middle of, each with its class: too many to say anything one by one.
    pub samples: Vec<(&'static str, f64, f64)>,
    /// Whether the dots of a class are joined, in their order.
    pub is_joined: bool,
    pub marks: Vec<Mark>,
    /// Lines from top to bottom, with what they are.
    pub limits: Vec<(f64, String)>,
    pub scale: Scale,
    pub signed: bool,
    /// Whether their density is drawn beside them.
    pub has_density: bool,
}

/// Dots by order and size, drawn.
#[derive(Debug, Template)]
#[template(path = "scatter.html")]
pub(super) struct Scatter {
    title: String,
    along: &'static str,
    height: f64,
    dots: Vec<Dot>,
    bands: Vec<Mark>,
    /// Each where it is, whether its words stand to the left of it, and the words.
    limits: Vec<(f64, bool, String)>,
    /// What joins the dots of a class, and their samples.
    paths: Vec<(&'static str, String)>,
    samples: Vec<(&'static str, String)>,
    ticks: [Vec<(f64, String)>; 2],
    curve: Option<String>,
}

impl HtmlSafe for Scatter {}

impl Scatter {
    /// With what is written below, in pixels.
    pub fn full_height(&self) -> f64 {
        self.height + BELOW
    }
}

impl Plot {
    pub fn draw(self) -> Scatter {
        let Self { scale, unit, signed, .. } = self;
        let down = |value: f64| down(scale, value);
        let own = Scale::in_steps(self.along_steps, self.dots.iter().map(|dot| dot.x));
        let along = own.wider(0.03);
        let values: Vec<f64> = self.dots.iter().map(|dot| dot.y).collect();
        let up = scale.ticks(5.0);
        let step = up.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
        let d = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
        let label = |at: f64| match signed {
            true if at != 0.0 => format!("{at:+.d$} {unit}"),
            _ => format!("{at:.d$} {unit}"),
        };
        let whole = own.ticks(6.0).into_iter().filter(|at| at.fract() == 0.0);
        let below = |at: f64| short(at, self.along_unit.unwrap_or(Unit::Count));
        let place = |mark: Mark| {
            let [low, high] = mark.ends.map(down);
            Mark { ends: [high, rounded(low - high)], ..mark }
        };
        let in_sight = |mark: &Mark| mark.ends.iter().any(|end| scale.has(*end));
        let dots: Vec<Dot> = self
            .dots
            .into_iter()
            .map(|dot| Dot {
                x: along.at(dot.x),
                y: down(dot.y),
                interval: dot.interval.map(|ends| ends.map(down)),
                ..dot
            })
            .collect();
        let limits = self.limits.into_iter().filter(|(at, _)| along.has(*at)).map(|(at, words)| {
            let at = along.at(at);
            (at, at > 60.0, words)
        });
        let joined = dots.iter().filter(|_| self.is_joined).map(|dot| (dot.class, dot.x, dot.y));
        let samples = self.samples.into_iter().map(|(of, x, y)| (of, along.at(x), down(y)));
        Scatter {
            ticks: [
                whole.map(|at| (along.at(at), below(at))).collect(),
                up.into_iter().map(|at| (down(at), label(at))).collect(),
            ],
            curve: self.has_density.then(|| density(&values, scale)).flatten(),
            bands: self.marks.into_iter().filter(in_sight).map(place).collect(),
            limits: limits.collect(),
            paths: paths(joined, ["L", ""]),
            // Lines of no length, whose round ends are all that is drawn.
            samples: paths(samples, ["M", "h0"]),
            dots,
            title: self.title,
            along: self.along,
            height: HEIGHT,
        }
    }
}

/// Pixels from the top.
fn down(scale: Scale, value: f64) -> f64 {
    rounded(HEIGHT * (1.0 - scale.at(value) / 100.0))
}

/// The points of each class as one path, 100 wide: `next` is what leads to each but the first, `end` what is behind each.
fn paths(
    points: impl Iterator<Item = (&'static str, f64, f64)>,
    [next, end]: [&str; 2],
) -> Vec<(&'static str, String)> {
    let mut paths: Vec<(&str, String)> = Vec::new();
    for (class, x, y) in points {
        match paths.iter_mut().find(|(of, _)| *of == class) {
            Some((_, path)) => drop(write!(path, "{next}{x} {y}{end}")),
            None => paths.push((class, format!("M{x} {y}{end}"))),
        }
    }
    paths
}

/// The density of `values` as a path 100 wide, by a Gaussian kernel with Silverman's width.
fn density(values: &[f64], scale: Scale) -> Option<String> {
    let n = values.len() as f64;
    let (_, sd) = mean_and_sd(values);
    let quartiles = quartiles(values)?;
    let spread = match (quartiles[2] - quartiles[0]) / 1.34 {
        robust if robust > 0.0 => sd.min(robust),
        _ => sd,
    };
    let width = 0.9 * spread * n.powf(-0.2);
    if !(width.is_finite() && width > 0.0) {
        return None;
    }
    let at = |i: usize| scale.value_at(i as f64 / CURVE_POINTS as f64);
    let of = |y: f64| values.iter().map(|v| (-0.5 * ((y - v) / width).powi(2)).exp()).sum::<f64>();
    let points: Vec<(f64, f64)> = (0..=CURVE_POINTS).map(|i| (at(i), of(at(i)))).collect();
    let most = points.iter().map(|(_, d)| *d).fold(f64::MIN_POSITIVE, f64::max);
    let mut path = format!("M0 {HEIGHT}");
    for (y, d) in points {
        let _ = write!(path, "L{} {}", rounded(100.0 * d / most), down(scale, y));
    }
    Some(path + "L0 0Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_spread_have_no_density() {
        assert_eq!(density(&[1.0, 1.0, 1.0], Scale::over([0.0, 2.0])), None);
        assert!(density(&[1.0, 1.2, 1.1], Scale::over([0.0, 2.0])).unwrap().starts_with('M'));
    }
}
