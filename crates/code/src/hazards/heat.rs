//! Where a run spent its time, as the ranking asks it: the share of a stretch of code.

use std::collections::HashMap;
use std::ops::Range;

use crate::code::{Function, Image};
use crate::model::{HotPlace, HotSpot, Svma};

/// The samples of a profile that fell on one program.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// Weights at addresses, ascending, each with the sum of all before it.
    at: Vec<(Svma, f64)>,
    sums: Vec<f64>,
    /// Weights of functions whose profile does not say where in them.
    somewhere_in: HashMap<Svma, f64>,
    total: f64,
    /// The least that the profile books anywhere: one sample, or one execution.
    least: f64,
}

/// Where there was no sample, there may still be this many with a probability of 5 %.
const UNSEEN_SAMPLES: f64 = 3.0;

impl Heat {
    /// Finds the places of a profile in a program. The total is that of the whole profile, so that
    /// shares are of the run and not of the program alone.
    #[must_use]
    pub fn of(image: &Image, spots: &[HotSpot]) -> Self {
        let by_name = names(image);
        let weights = || spots.iter().map(|s| s.weight).filter(|weight| *weight > 0.0);
        let least = weights().fold(f64::INFINITY, f64::min);
        let mut heat = Self { total: weights().sum(), least, ..Self::default() };
        for spot in spots.iter().filter(|s| is_of(image, s.object.as_deref())) {
            match &spot.place {
                HotPlace::Stated(svma) => heat.at.push((*svma, spot.weight)),
                HotPlace::InFile(offset) => {
                    heat.at.extend(image.svma_of(*offset).map(|svma| (svma, spot.weight)));
                }
                HotPlace::Function { name, offset_bytes } => {
                    let Some(function) = by_name.get(name.as_str()) else { continue };
                    match offset_bytes {
                        Some(bytes) => {
                            heat.at.push((function.start.offset(*bytes as i64), spot.weight));
                        }
                        None => {
                            *heat.somewhere_in.entry(function.start).or_default() += spot.weight;
                        }
                    }
                }
            }
        }
        heat.at.sort_by_key(|(svma, _)| *svma);
        let mut sum = 0.0;
        heat.sums = std::iter::once(0.0)
            .chain(heat.at.iter().map(|(_, weight)| {
                sum += weight;
                sum
            }))
            .collect();
        heat
    }

    /// Share of the run that was seen anywhere in this program, from 0 to 1.
    #[must_use]
    pub fn program_share(&self) -> f64 {
        let functions: f64 = self.somewhere_in.values().sum();
        self.share_of(self.sums.last().copied().unwrap_or(0.0) + functions)
    }

    /// Share of the run in some stretches of a function; of the whole function where the profile
    /// does not say where in it.
    #[must_use]
    pub fn share(&self, function: &Function, stretches: &[Range<Svma>]) -> f64 {
        let exact: f64 = stretches.iter().map(|range| self.between(range)).sum();
        self.share_of(exact + self.somewhere_in.get(&function.start).copied().unwrap_or(0.0))
    }

    /// Whether it was seen in a function.
    #[must_use]
    pub fn runs(&self, function: &Function) -> bool {
        self.share(function, &[function.start..function.end()]) > 0.0
    }

    /// The most that one stretch of a function can have had of the run: what was seen there, and what
    /// so many samples can have missed.
    #[must_use]
    pub fn most(&self, function: &Function, stretch: &Range<Svma>) -> f64 {
        self.share(function, std::slice::from_ref(stretch))
            + self.share_of(UNSEEN_SAMPLES * self.least)
    }

    fn between(&self, range: &Range<Svma>) -> f64 {
        let index = |svma: Svma| self.at.partition_point(|(at, _)| *at < svma);
        self.sums[index(range.end)] - self.sums[index(range.start)]
    }

    fn share_of(&self, weight: f64) -> f64 {
        if self.total > 0.0 { weight / self.total } else { 0.0 }
    }
}

/// Functions by symbol, by readable name, and by readable name without parameters.
fn names(image: &Image) -> HashMap<String, &Function> {
    let mut by_name = HashMap::new();
    for function in image.functions() {
        let name = function.name();
        if let Some((stem, _)) = name.split_once('(').filter(|(stem, _)| !stem.is_empty()) {
            by_name.entry(stem.to_owned()).or_insert(function);
        }
        by_name.insert(name, function);
        by_name.insert(function.symbol.clone(), function);
    }
    by_name
}

/// Whether an object that a profile names is this program: by file name, because a profile is often
/// taken where the program has another path.
fn is_of(image: &Image, object: Option<&str>) -> bool {
    let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let own = last(&image.path().to_string_lossy()).unwrap_or_default();
    object.is_none_or(|named| {
        // The running kernel has no file; its image is always called the same.
        let kernel = named.starts_with("[kernel") && own.starts_with("vmlinux");
        kernel || last(named).as_ref() == Some(&own)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::fixture;

    #[test]
    fn a_profile_is_of_a_program_by_its_files_name_or_of_the_kernel() {
        let of = |path: &str, object: Option<&str>| {
            let image = Image::parse(Path::new(path), fixture::program(&[("f", &[0xc3])])).unwrap();
            is_of(&image, object)
        };
        assert!(of("dir/p", None) && of("dir/p", Some("/elsewhere/p")) && !of("dir/p", Some("q")));
        assert!(of("boot/vmlinux-6.1", Some("[kernel.kallsyms]")));
        assert!(!of("dir/p", Some("[kernel.kallsyms]")) && !of("boot/vmlinux-6.1", Some("p")));
    }

    #[test]
    fn samples_are_booked_on_stretches_and_on_functions() {
        let ret = [0x90_u8, 0x90, 0x90, 0xc3];
        let functions: [(&str, &[u8]); 2] = [("hot", &ret), ("_Z4warmv", &ret)];
        let image = Image::parse(Path::new("dir/p"), fixture::program(&functions)).unwrap();
        let [hot, warm] = [0, 1].map(|i| &image.functions()[i]);
        let spot = |object: Option<&str>, place, weight| HotSpot {
            object: object.map(str::to_owned),
            place,
            weight,
        };
        let named =
            |name: &str, offset_bytes| HotPlace::Function { name: name.into(), offset_bytes };
        let heat = Heat::of(
            &image,
            &[
                spot(Some("/elsewhere/p"), HotPlace::Stated(hot.start), 3.0),
                spot(None, named("hot", Some(2)), 1.0),
                spot(None, named("warm()", None), 4.0),
                spot(Some("libc.so"), HotPlace::Stated(hot.start), 2.0),
            ],
        );
        let share = |f: &Function, from: i64, to: i64| {
            heat.share(f, &[f.start.offset(from)..f.start.offset(to)])
        };
        assert_eq!(share(hot, 0, 4), 0.4);
        // The least weight is 1 of 10: so much can hide three times where nothing was seen.
        let most =
            |from: i64, to: i64| heat.most(hot, &(hot.start.offset(from)..hot.start.offset(to)));
        assert!((most(3, 4) - 0.3).abs() < 1e-9 && (most(0, 2) - 0.6).abs() < 1e-9);
        assert_eq!((share(hot, 0, 1), share(hot, 1, 4)), (0.3, 0.1));
        assert_eq!(share(warm, 0, 1), 0.4);
        assert_eq!(heat.program_share(), 0.8);
        // What has no sample does not run, and a sample on the first byte behind it is not its own.
        let cold = Heat::of(&image, &[spot(None, HotPlace::Stated(hot.end()), 1.0)]);
        assert!(heat.runs(hot) && heat.runs(warm) && !cold.runs(hot) && !cold.runs(warm));
        let named = Heat::of(&image, &[spot(None, named("warm", Some(0)), 1.0)]);
        assert!(named.runs(warm) && !named.runs(hot), "by its name without parameters");
        let weightless = Heat::of(&image, &[spot(None, HotPlace::Stated(hot.start), 0.0)]);
        assert_eq!(weightless.program_share(), 0.0);
        assert_eq!(Heat::default().program_share(), 0.0);
    }
}
