//! Pictures as SVG: dots along an axis, and bars in the cells of tables. Across, everything is in per cent of the width,
//! so that a picture fits every screen and its text keeps its size.

use std::fmt::Write;

use askama::Template;
use askama::filters::HtmlSafe;

use crate::explain::Share;
use crate::model::Measurement;
use crate::stats::robust::quartiles;
use crate::stats::student::mean_and_sd;

/// Height of the field with the dots, in pixels.
const HEIGHT: f64 = 220.0;
/// Room for what is written below, in pixels.
const BELOW: f64 = 48.0;
/// Points of a density curve.
const CURVE_POINTS: usize = 80;

/// Where amounts are on an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// From nothing to the whole at the least, with all of these.
    pub fn of_shares<'a>(shares: impl Iterator<Item = &'a Share>) -> Self {
        let ends = shares.flat_map(|share| [share.percent.low, share.percent.high]);
        Self::over(ends.chain([0.0, 100.0]))
    }

    /// From the least to the most of `values`; room for one where all are the same.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Self {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        match high - low {
            width if width > 0.0 => Self { low, high },
            _ if low.is_finite() => Self { low: low - 0.5, high: high + 0.5 },
            _ => Self { low: 0.0, high: 1.0 },
        }
    }

    /// The same with a part of it more at both ends.
    pub fn wider(self, part: f64) -> Self {
        let more = part * (self.high - self.low);
        Self { low: self.low - more, high: self.high + more }
    }

    pub fn has(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// How far outside a value is, in widths of the scale.
    pub fn distance(self, value: f64) -> f64 {
        (self.low - value).max(value - self.high) / (self.high - self.low)
    }

    /// Per cent of the way, within the picture.
    pub fn at(self, value: f64) -> f64 {
        rounded(100.0 * ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// Pixels from the top.
    fn down(self, value: f64) -> f64 {
        rounded(HEIGHT * (1.0 - self.at(value) / 100.0))
    }

    /// Round numbers along it, about `count`.
    fn ticks(self, count: f64) -> Vec<f64> {
        let raw = (self.high - self.low) / count;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| *s >= raw);
        let step = step.unwrap_or(raw);
        let first = (self.low / step).ceil();
        (0..20).map(|n| (first + f64::from(n)) * step).take_while(|at| *at <= self.high).collect()
    }
}

pub(super) fn rounded(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

/// One dot: where it is along and up, how it is drawn, what it says.
#[derive(Debug)]
pub(super) struct Dot {
    pub x: f64,
    pub y: f64,
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
#[derive(Debug)]
pub(super) struct Plot {
    pub title: String,
    pub unit: &'static str,
    /// What is along the axis below.
    pub along: &'static str,
    pub dots: Vec<Dot>,
    pub marks: Vec<Mark>,
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
        let own = Scale::over(self.dots.iter().map(|dot| dot.x));
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
        let place = |mark: Mark| {
            let [low, high] = mark.ends.map(|end| scale.down(end));
            Mark { ends: [high, rounded(low - high)], ..mark }
        };
        let in_sight = |mark: &Mark| mark.ends.iter().any(|end| scale.has(*end));
        Scatter {
            ticks: [
                whole.map(|at| (along.at(at), format!("{at:.0}"))).collect(),
                up.into_iter().map(|at| (scale.down(at), label(at))).collect(),
            ],
            curve: self.has_density.then(|| density(&values, scale)).flatten(),
            bands: self.marks.into_iter().filter(in_sight).map(place).collect(),
            dots: self
                .dots
                .into_iter()
                .map(|dot| Dot { x: along.at(dot.x), y: scale.down(dot.y), ..dot })
                .collect(),
            title: self.title,
            along: self.along,
            height: HEIGHT,
        }
    }
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
    let at = |i: usize| scale.low + (scale.high - scale.low) * i as f64 / CURVE_POINTS as f64;
    let of = |y: f64| values.iter().map(|v| (-0.5 * ((y - v) / width).powi(2)).exp()).sum::<f64>();
    let points: Vec<(f64, f64)> = (0..=CURVE_POINTS).map(|i| (at(i), of(at(i)))).collect();
    let most = points.iter().map(|(_, d)| *d).fold(f64::MIN_POSITIVE, f64::max);
    let mut path = format!("M0 {}", scale.down(scale.low));
    for (y, d) in points {
        let _ = write!(path, "L{} {}", rounded(100.0 * d / most), scale.down(y));
    }
    Some(path + "L0 0Z")
}

/// A bar in a cell, in per cent of its width, with its interval.
#[derive(Clone, Debug, Template)]
#[template(path = "bar.html")]
pub(super) struct Bar {
    x: f64,
    width: f64,
    zero: Option<f64>,
    whisker: Option<[f64; 2]>,
    class: &'static str,
}

impl HtmlSafe for Bar {}

impl Bar {
    /// From nothing to a measured amount, with its interval.
    pub fn of(scale: Scale, m: &Measurement, class: &'static str) -> Self {
        Self::between(scale, [0.0, m.value], Some([m.low, m.high]), class)
    }

    /// From one amount to another, with the interval of the latter.
    pub fn between(
        scale: Scale,
        [from, to]: [f64; 2],
        interval: Option<[f64; 2]>,
        class: &'static str,
    ) -> Self {
        let [from, to] = [from, to].map(|v| scale.at(v));
        Self {
            x: from.min(to),
            width: rounded((to - from).abs()).max(0.3),
            zero: (scale.low < 0.0 && scale.has(0.0)).then(|| scale.at(0.0)),
            whisker: interval.map(|ends| ends.map(|v| scale.at(v))),
            class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let scale = Scale::over([143.2, 149.9]);
        assert_eq!(scale.ticks(5.0), [144.0, 146.0, 148.0]);
        assert_eq!((scale.at(143.2), scale.at(149.9), scale.at(1e9)), (0.0, 100.0, 100.0));
        assert!(Scale::over([]).ticks(5.0).len() > 2 && Scale::over([7.0]).has(7.0));
        assert!(Scale::over([f64::NAN, 1.0, 3.0]).has(2.0));
    }

    #[test]
    fn values_without_spread_have_no_density() {
        assert_eq!(density(&[1.0, 1.0, 1.0], Scale::over([0.0, 2.0])), None);
        assert!(density(&[1.0, 1.2, 1.1], Scale::over([0.0, 2.0])).unwrap().starts_with('M'));
    }
}
