//! A file with code that is not the program: is it the same in both arms, and if not, what changed?

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::heat::ObjectHeat;
use crate::code::Image;
use crate::compare::hold_the_same;
use crate::layout::{ChangeCounts, match_functions};

/// A function that has less of what a file takes longer is not told for it.
const MOST_IN: f64 = 0.5;

/// What such a file is in the two arms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectCode {
    /// Both arms map the same bytes.
    Same {
        /// The file, as AFTER has it.
        path: PathBuf,
    },
    /// Each arm maps a file of its own, with other bytes.
    Differs {
        /// The two files.
        paths: [PathBuf; 2],
        /// How their functions relate; absent when one of them cannot be taken apart.
        census: Option<ChangeCounts>,
    },
    /// A function that was made at run time, and not compared.
    Generated,
    /// It was not compared: samples fell into it in one arm only, or no file holds it.
    NotCompared,
}

impl ObjectCode {
    /// Compares the files in which the samples of the two arms lie.
    pub(super) fn of(objects: [Option<&ObjectHeat>; 2]) -> Self {
        if objects.into_iter().flatten().any(|object| object.is_generated) {
            return Self::Generated;
        }
        let [Some(a), Some(b)] = objects.map(|o| o.map(|o| o.path.as_path())) else {
            return Self::NotCompared;
        };
        // What both arms map from one place is one file: the comparison has watched it.
        let same = if a == b { (!is_nowhere(a)).then_some(true) } else { hold_the_same(a, b) };
        match same {
            Some(true) => Self::Same { path: b.into() },
            Some(false) => Self::Differs { paths: [a.into(), b.into()], census: census(a, b) },
            None => Self::NotCompared,
        }
    }

    /// Whether every function in it was compared and holds the same code.
    pub(super) fn is_unchanged(&self) -> bool {
        match self {
            Self::Same { .. } => true,
            Self::Differs { census: Some(c), .. } => c.changed + c.new + c.gone == 0,
            Self::Differs { census: None, .. } | Self::Generated | Self::NotCompared => false,
        }
    }
}

/// The function whose time differs most, in the direction in which that of the whole file does; a sample stands for so
/// many nanoseconds of a run of each arm.
pub(super) fn most_in(objects: [Option<&ObjectHeat>; 2], of_a_hit_ns: [f64; 2]) -> Option<String> {
    let mut longer_ns: BTreeMap<String, f64> = BTreeMap::new();
    let mut all_ns = 0.0;
    for (object, of_a_hit_ns) in objects.into_iter().zip([-of_a_hit_ns[0], of_a_hit_ns[1]]) {
        let Some(object) = object.filter(|object| !object.by_offset.is_empty()) else { continue };
        let image = Image::open(&object.path).ok()?;
        all_ns += object.hits as f64 * of_a_hit_ns;
        for (offset, hits) in &object.by_offset {
            let function = image.svma_of(*offset).and_then(|at| image.function_at(at));
            if let Some(function) = function.filter(|f| f.named) {
                *longer_ns.entry(function.name()).or_default() += *hits as f64 * of_a_hit_ns;
            }
        }
    }
    let part = |ns: f64| ns / all_ns;
    let most = longer_ns.into_iter().max_by(|a, b| part(a.1).total_cmp(&part(b.1)))?;
    (part(most.1) >= MOST_IN).then_some(most.0)
}

fn is_nowhere(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

fn census(a: &Path, b: &Path) -> Option<ChangeCounts> {
    let [a, b] = [Image::open(a).ok()?, Image::open(b).ok()?];
    let matches = match_functions(&a, &b);
    (!matches.is_empty()).then(|| ChangeCounts::of(&matches))
}

impl fmt::Display for ObjectCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same { .. } => f.write_str("the same file in both"),
            Self::Differs { census: Some(c), .. } if self.is_unchanged() => {
                write!(f, "another file in each, all {} functions alike", c.same + c.moved)
            }
            Self::Differs { census: Some(c), .. } => write!(
                f,
                "another file in each: {} functions changed, {} new, {} gone, {} alike",
                c.changed,
                c.new,
                c.gone,
                c.same + c.moved
            ),
            Self::Differs { census: None, .. } => f.write_str("another file in each"),
            Self::Generated => f.write_str("made at run time"),
            Self::NotCompared => f.write_str("not compared"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture::{program, ring_loop};

    #[test]
    fn only_what_was_compared_is_called_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, wide: bool| {
            let path = folder.path().join(name);
            std::fs::write(&path, program(&[("decode", &ring_loop(wide))])).unwrap();
            ObjectHeat { path, hits: 1, ..ObjectHeat::default() }
        };
        let (a, copy, other) = (file("a", false), file("copy", false), file("other", true));
        assert!(ObjectCode::of([Some(&a), Some(&copy)]).is_unchanged());
        let differs = ObjectCode::of([Some(&a), Some(&other)]);
        assert!(!differs.is_unchanged());
        assert!(differs.to_string().contains("1 functions changed"), "{differs}");
        let gone = ObjectHeat { path: folder.path().join("gone"), ..ObjectHeat::default() };
        let nowhere = ObjectHeat::default();
        let made = ObjectHeat { is_generated: true, ..ObjectHeat::default() };
        for pair in [[Some(&made), None], [Some(&made), Some(&made)]] {
            assert_eq!(ObjectCode::of(pair), ObjectCode::Generated);
        }
        for pair in [[Some(&a), None], [Some(&a), Some(&gone)], [Some(&nowhere), Some(&nowhere)]] {
            let said = ObjectCode::of(pair);
            assert_eq!((said.clone(), said.is_unchanged()), (ObjectCode::NotCompared, false));
        }
    }
}
