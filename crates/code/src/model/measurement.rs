//! A number that carries its doubt. Printing one without its spread is not offered.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a [`Measurement`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// Core clock cycles.
    Cycles,
    /// Core clock cycles per tick of the time stamp counter.
    CyclesPerTick,
    /// Ticks of the time stamp counter.
    Ticks,
    /// Nanoseconds.
    Nanoseconds,
    /// Seconds.
    Seconds,
    /// Megahertz.
    Megahertz,
    /// A number of things.
    Count,
    /// 10^9 bytes per second.
    GigabytesPerSecond,
    /// A quotient without dimension.
    Ratio,
    /// A share of one hundred.
    Percent,
    /// Bytes.
    Bytes,
    /// A number whose unit only its source knows.
    Amount,
}

impl Unit {
    /// The suffix printed behind a value.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CyclesPerTick => "cycles/tick",
            Self::Ticks => "ticks",
            Self::Nanoseconds => "ns",
            Self::Seconds => "s",
            Self::Megahertz => "MHz",
            Self::Count => "",
            Self::GigabytesPerSecond => "GB/s",
            Self::Ratio => "x",
            Self::Percent => "%",
            Self::Bytes => "B",
            Self::Amount => "",
        }
    }
}

/// A value with its interval, its count and how it was obtained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// The estimate.
    pub value: f64,
    /// Unit of all three values.
    pub unit: Unit,
    /// Lower end of the interval named in `how`.
    pub low: f64,
    /// Upper end of the interval named in `how`.
    pub high: f64,
    /// How many independent samples stand behind it.
    pub n: usize,
    /// Estimator and interval in a few words, for example "median, quartiles".
    pub how: String,
}

impl Measurement {
    /// The same with another value and other ends, each by a function that does not change their order.
    ///
    /// ```
    /// use stallscope_code::model::{Measurement, Unit};
    /// let how = String::new();
    /// let both_ways =
    ///     Measurement { value: 4.0, unit: Unit::Cycles, low: 3.0, high: 6.0, n: 9, how };
    /// let one_way = both_ways.map(|cycles| cycles / 2.0);
    /// assert_eq!([one_way.low, one_way.value, one_way.high], [1.5, 2.0, 3.0]);
    /// ```
    #[must_use]
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        let [value, low, high] = [self.value, self.low, self.high].map(change);
        Self { value, low, high, ..self.clone() }
    }
}

impl fmt::Display for Measurement {
    /// `16.0 cycles [15.9, 16.1] (n = 20, median, quartiles)`; the precision applies to all three numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(
            f,
            "{:.digits$} {} [{:.digits$}, {:.digits$}] (n = {}, {})",
            self.value,
            self.unit.suffix(),
            self.low,
            self.high,
            self.n,
            self.how
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_prints_without_its_spread() {
        let m = Measurement {
            value: 16.04,
            unit: Unit::Cycles,
            low: 15.9,
            high: 16.1,
            n: 20,
            how: "median, quartiles".into(),
        };
        assert_eq!(m.to_string(), "16.0 cycles [15.9, 16.1] (n = 20, median, quartiles)");
        assert_eq!(format!("{m:.2}"), "16.04 cycles [15.90, 16.10] (n = 20, median, quartiles)");
    }
}
