//! Which property of its place explains what a loop costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Body, JUMP_BYTES};

/// A property of a loop's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Model {
    /// How many windows of so many bytes the loop touches.
    Windows {
        /// Size of a window.
        bytes: u32,
    },
    /// Whether its jump crosses a boundary of 32 bytes or ends at one.
    JumpAtBoundary,
}

/// In the order of preference among equals.
pub const MODELS: [Model; 4] = [
    Model::Windows { bytes: 64 },
    Model::Windows { bytes: 32 },
    Model::Windows { bytes: 16 },
    Model::JumpAtBoundary,
];

impl Model {
    /// The property at a start offset.
    #[must_use]
    pub fn at(self, body: Body, offset_bytes: u32) -> f64 {
        let end = offset_bytes + body.bytes();
        match self {
            Self::Windows { bytes } => f64::from((end - 1) / bytes - offset_bytes / bytes + 1),
            Self::JumpAtBoundary => {
                let crosses = (end - JUMP_BYTES) / 32 != (end - 1) / 32;
                f64::from(u8::from(crosses || end.is_multiple_of(32)))
            }
        }
    }

    /// As a phrase for the screen.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Windows { bytes } => format!("the number of {bytes}-byte windows it touches"),
            Self::JumpAtBoundary => "whether its jump touches a 32-byte boundary".to_owned(),
        }
    }
}

/// How well a model explains the costs over all offsets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Property of the offset that explains the cycles.
    pub model: Model,
    /// Share of the variance that it explains, percent.
    pub explains_percent: f64,
    /// What one more (window, or jump at a boundary) costs, core cycles per turn.
    pub slope_cycles: f64,
}

/// The best model for costs at offsets 0, 1, 2 and so on; `None` when nothing varies.
pub fn best(body: Body, cycles: &[f64]) -> Option<Explanation> {
    let explain = |model: &Model| {
        let x: Vec<f64> = (0..cycles.len() as u32).map(|o| model.at(body, o)).collect();
        line(&x, cycles).map(|(slope, share)| Explanation {
            model: *model,
            explains_percent: 100.0 * share,
            slope_cycles: slope,
        })
    };
    let all = MODELS.iter().filter_map(explain).filter(|e| e.slope_cycles > 0.0);
    // The first of equals: `max_by` would take the last.
    all.reduce(|a, b| if b.explains_percent > a.explains_percent + 1.0 { b } else { a })
}

/// Slope and explained share of the straight line through (x, y).
fn line(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    let n = x.len() as f64;
    let mean = |v: &[f64]| v.iter().sum::<f64>() / n;
    let (mx, my) = (mean(x), mean(y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(a, b)| f(a - mx, b - my)).sum();
    let (sxx, syy, sxy): (f64, f64, f64) =
        (sum(&|a, _| a * a), sum(&|_, b| b * b), sum(&|a, b| a * b));
    (sxx > 1e-9 && syy > 1e-9).then(|| (sxy / sxx, sxy * sxy / (sxx * syy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_as_the_hardware_counts_them() {
        let body = Body::Noops(8);
        assert_eq!(body.bytes(), 29);
        let windows = Model::Windows { bytes: 32 };
        assert_eq!((windows.at(body, 3), windows.at(body, 4)), (1.0, 2.0));
        // Ends at 32 exactly; one byte earlier it does not touch the boundary.
        assert_eq!(Model::JumpAtBoundary.at(body, 3), 1.0);
        assert_eq!(Model::JumpAtBoundary.at(body, 2), 0.0);
        assert_eq!(Model::JumpAtBoundary.at(body, 8), 0.0);
        assert_eq!(Model::JumpAtBoundary.at(body, 7), 1.0);
    }

    #[test]
    fn the_model_that_made_the_costs_is_found() {
        let body = Body::Noops(8);
        for model in MODELS {
            let costs: Vec<f64> = (0..64).map(|o| 1.0 + 0.5 * model.at(body, o)).collect();
            let found = best(body, &costs).unwrap();
            assert_eq!(found.model, model);
            assert!((found.slope_cycles - 0.5).abs() < 1e-9 && found.explains_percent > 99.9);
        }
        assert_eq!(best(body, &[2.0; 64]), None);
    }
}
