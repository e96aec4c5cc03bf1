//! Where amounts lie along an axis: in even steps, or, where they span powers of ten, in equal factors.

use crate::explain::Share;

/// Where amounts are on an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Ends, as logarithms where equal factors are equally far apart.
    low: f64,
    high: f64,
    pub steps: Steps,
}

/// What is equally far apart on an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Steps {
    /// Equal differences.
    #[default]
    Even,
    /// Equal factors, with 1, 2, 5, 10 … written beside it.
    Factors,
    /// Equal factors, with powers of two written beside it.
    Doublings,
}

impl Default for Scale {
    fn default() -> Self {
        Self::over([])
    }
}

impl Scale {
    /// From nothing to the whole at the least, with all of these.
    pub fn of_shares<'a>(shares: impl Iterator<Item = &'a Share>) -> Self {
        let ends = shares.flat_map(|share| [share.percent.low, share.percent.high]);
        Self::over(ends.chain([0.0, 100.0]))
    }

    /// From the least to the most of `values`; room for one where all are the same.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Self {
        Self::in_steps(Steps::Even, values)
    }

    /// The same with other steps; what has no logarithm is no end of an axis of factors.
    pub fn in_steps(steps: Steps, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().map(|value| steps.of(value));
        let finite = values.filter(|value| value.is_finite());
        let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        let (low, high) = match high - low {
            width if width > 0.0 => (low, high),
            _ if low.is_finite() => (low - 0.5, high + 0.5),
            _ => (0.0, 1.0),
        };
        Self { low, high, steps }
    }

    /// The same with a part of it more at both ends.
    pub fn wider(self, part: f64) -> Self {
        let more = part * (self.high - self.low);
        Self { low: self.low - more, high: self.high + more, ..self }
    }

    pub fn has(self, value: f64) -> bool {
        (self.low..=self.high).contains(&self.steps.of(value))
    }

    /// How far outside a value is, in widths of the scale.
    pub fn distance(self, value: f64) -> f64 {
        let value = self.steps.of(value);
        (self.low - value).max(value - self.high) / (self.high - self.low)
    }

    /// Per cent of the way, within the picture.
    pub fn at(self, value: f64) -> f64 {
        let part = (self.steps.of(value) - self.low) / (self.high - self.low);
        rounded(100.0 * part.clamp(0.0, 1.0))
    }

    /// What is so far on the way, as a part of it.
    pub fn value_at(self, part: f64) -> f64 {
        self.steps.back(self.low + (self.high - self.low) * part)
    }

    /// Round numbers along it, about `count`.
    pub fn ticks(self, count: f64) -> Vec<f64> {
        let decade = |n: i32| [1.0, 2.0, 5.0].map(|part| part * 10_f64.powi(n));
        match self.steps {
            Steps::Factors => {
                let few = self.high - self.low > count;
                let all = (-12..13).flat_map(decade).filter(|at| self.has(*at));
                let is_power = |at: &f64| (at.log10() - at.log10().round()).abs() < 1e-9;
                all.filter(|at| !few || is_power(at)).collect()
            }
            _ => {
                let step = round_step((self.high - self.low) / count);
                let step = if self.steps == Steps::Doublings { step.max(1.0).ceil() } else { step };
                let first = (self.low / step).ceil();
                let all = (0..20).map(|n| (first + f64::from(n)) * step);
                all.take_while(|at| *at <= self.high).map(|at| self.steps.back(at)).collect()
            }
        }
    }
}

impl Steps {
    fn of(self, value: f64) -> f64 {
        if self == Self::Even { value } else { value.log2() }
    }

    fn back(self, value: f64) -> f64 {
        if self == Self::Even { value } else { value.exp2() }
    }
}

/// 1, 2 or 5 times a power of ten, no less than `raw`.
fn round_step(raw: f64) -> f64 {
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| *s >= raw);
    step.unwrap_or(raw)
}

pub(super) fn rounded(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
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
    fn equal_factors_are_equally_far_apart() {
        let scale = Scale::in_steps(Steps::Doublings, [0.0, 1024.0, 65536.0, 4_194_304.0]);
        assert_eq!(
            (scale.at(1024.0), scale.at(65536.0), scale.at(4_194_304.0)),
            (0.0, 50.0, 100.0)
        );
        assert!(scale.ticks(6.0).contains(&65536.0));
        let scale = Scale::in_steps(Steps::Factors, [5.0, 600.0]);
        assert_eq!(scale.ticks(5.0), [10.0, 100.0]);
        assert_eq!(Scale::in_steps(Steps::Factors, [1.0, 10.0]).ticks(5.0), [1.0, 2.0, 5.0, 10.0]);
    }
}
