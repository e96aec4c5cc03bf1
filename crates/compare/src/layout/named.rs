//! Samples that name a function and a distance, as places in a program.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::code::{Function, Image};
use crate::model::{HotPlace, HotSpot, Svma};

/// How many samples are at which instruction of `image`, and how many are nowhere in it: in another
/// file, in a function that it has not, or without a distance from the function's start. Each spot
/// is one sample, whatever its weight.
#[must_use]
pub fn named_spots(image: &Image, spots: &[HotSpot]) -> (BTreeMap<Svma, u64>, u64) {
    let mut functions: HashMap<String, &Function> = HashMap::new();
    for function in image.functions() {
        functions.entry(function.symbol.clone()).or_insert(function);
        functions.entry(function.name()).or_insert(function);
    }
    let own = image.path().file_name();
    let (mut hits, mut strangers) = (BTreeMap::new(), 0);
    for spot in spots {
        let is_here = spot.object.as_deref().is_none_or(|o| Path::new(o).file_name() == own);
        let at = match &spot.place {
            HotPlace::Function { name, offset_bytes: Some(offset) } if is_here => functions
                .get(name.as_str())
                .filter(|f| *offset < f.size_bytes)
                .map(|f| f.start.offset(*offset as i64)),
            _ => None,
        };
        match at {
            Some(at) => *hits.entry(at).or_default() += 1,
            None => strangers += 1,
        }
    }
    (hits, strangers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    #[test]
    fn a_sample_needs_its_file_its_function_and_a_distance_inside() {
        let code = [0x90_u8; 20];
        let bytes = fixture::program(&[("a", &code), ("_ZN2ns1fEi", &code)]);
        let image = Image::parse(Path::new("/bin/here"), bytes).unwrap();
        let spot = |object: Option<&str>, name: &str, offset_bytes| HotSpot {
            object: object.map(str::to_owned),
            place: HotPlace::Function { name: name.to_owned(), offset_bytes },
            weight: 250_000.0,
        };
        let spots = [
            spot(Some("/elsewhere/here"), "a", Some(3)),
            spot(None, "a", Some(3)),
            spot(None, "ns::f(int)", Some(1)),
            spot(Some("/lib/libc.so"), "a", Some(3)),
            spot(None, "a", Some(20)),
            spot(None, "a", None),
            spot(None, "b", Some(0)),
        ];
        let (hits, strangers) = named_spots(&image, &spots);
        let start = fixture::CODE_START.0;
        assert_eq!(hits, [(start.offset(3), 2), (start.offset(33), 1)].into());
        assert_eq!(strangers, 4);
    }
}
