//! What was measured at several sizes, distances or counts: a curve for each series with every point's interval, and the
//! same as a table.

use std::collections::BTreeMap;

use super::chart::{Dot, Plot};
use super::number::{Number, short};
use super::parts::{Figure, Picture};
use super::scale::{Scale, Steps};
use crate::model::{Measurement, Unit};
use crate::stats::robust::{finite, quantile};

/// Colours of series, in the order that they are given out.
pub(super) const SERIES: [&str; 8] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];

/// Pictures of one kind, and curves in each, that are drawn; no probe has as many.
const MOST_PICTURES: usize = 24;
const MOST_SERIES: usize = 16;

/// One measured point of a curve.
#[derive(Debug)]
pub(super) struct Point<'a> {
    /// The picture and the curve in it that it belongs to.
    pub picture: String,
    pub series: String,
    pub x: f64,
    pub y: Option<&'a Measurement>,
    /// Every sample of it, where they were kept.
    pub samples: &'a [f64],
}

/// The curve, where along it, what was measured there, and every sample.
type Measured<'a> = (String, f64, &'a Measurement, &'a [f64]);

/// What all pictures of these points have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Axes {
    pub about: &'static str,
    pub along: &'static str,
    pub along_steps: Steps,
    pub along_unit: Option<Unit>,
    pub up_steps: Steps,
    pub limits: Vec<(f64, String)>,
}

/// A picture for each that the points name, in their order; what was not measured is left out.
pub(super) fn curves<'a>(axes: &Axes, points: impl IntoIterator<Item = Point<'a>>) -> Vec<Figure> {
    let mut pictures: Vec<(String, Vec<Measured<'_>>)> = Vec::new();
    for Point { picture, series, x, y, samples } in points {
        let Some(y) = y else { continue };
        match pictures.iter().position(|(name, _)| *name == picture) {
            Some(at) => pictures[at].1.push((series, x, y, samples)),
            None if pictures.len() == MOST_PICTURES => {}
            None => pictures.push((picture, vec![(series, x, y, samples)])),
        }
    }
    pictures.into_iter().map(|(name, points)| drawn(axes, &name, &points)).collect()
}

fn drawn(axes: &Axes, name: &str, points: &[Measured<'_>]) -> Figure {
    let unit = points.first().map_or(Unit::Count, |(_, _, y, _)| y.unit);
    let mut series: Vec<&String> = Vec::new();
    for (of, ..) in points {
        if series.len() < MOST_SERIES && !series.contains(&of) {
            series.push(of);
        }
    }
    let place = |x: f64| match axes.along_unit {
        Some(unit) => short(x, unit),
        None => x.to_string(),
    };
    let mut rows: BTreeMap<u64, Vec<Number>> = BTreeMap::new();
    let mut dots = Vec::new();
    let mut samples = Vec::new();
    for (of, x, y, all) in points {
        let Some(nth) = series.iter().position(|name| *name == of) else { continue };
        let at = format!("{of}, {} ({})", place(*x), axes.along);
        let number = Number::of(y, &at);
        let title = format!("{at}: {}", number.text);
        let class = SERIES[nth % SERIES.len()];
        dots.push(Dot { x: *x, y: y.value, interval: Some([y.low, y.high]), class, title });
        samples.extend(all.iter().map(|y| (class, *x, *y)));
        // Amounts of at least nothing are in order as their bits are.
        let row = rows
            .entry(x.max(0.0).to_bits())
            .or_insert_with(|| vec![Number::default(); series.len()]);
        row[nth] = number;
    }
    // One interrupted sample in a thousand is hundreds of times the others.
    let all = finite(samples.iter().map(|(.., y)| *y));
    let middle = [0.01, 0.99].map(|at| quantile(&all, at)).into_iter().filter(|y| y.is_finite());
    let ends = points.iter().flat_map(|(_, _, y, _)| [y.low, y.high]).chain(middle);
    let scale = Scale::in_steps(axes.up_steps, ends).wider(0.06);
    let outside = samples.iter().filter(|(.., y)| !scale.has(*y)).count();
    let outside = match (samples.len(), outside) {
        (0, _) | (_, 0) => String::new(),
        (of, out) => format!(" Of {of} samples {out} lie outside the picture."),
    };
    let picture = Plot {
        title: format!("{name}, by {}; the table below has the same", axes.along),
        unit: unit.suffix(),
        along: axes.along,
        along_steps: axes.along_steps,
        along_unit: axes.along_unit,
        scale,
        is_joined: true,
        limits: axes.limits.clone(),
        dots,
        samples,
        ..Plot::default()
    };
    let names = series.iter().map(|name| (*name).clone());
    Figure {
        caption: format!("{name}: {}{outside}", axes.about),
        keys: SERIES.into_iter().cycle().zip(names.clone()).collect(),
        picture: Picture::Scatter(picture.draw()),
        head: std::iter::once(axes.along.to_owned()).chain(names).collect(),
        rows: rows.into_iter().map(|(x, row)| (place(f64::from_bits(x)), row)).collect(),
    }
}
