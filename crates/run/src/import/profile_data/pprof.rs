//! Go's pprof: a small protocol buffer, usually compressed.
//!
//! Only the messages and fields that lead from a sample to its place are declared; the decoder
//! passes over the others.

use std::collections::HashMap;
use std::io::Read;

use prost::Message;

use crate::foreign::{Budget, plain as text_of};
use crate::model::{FileOffset, HotPlace, HotSpot};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// Why bytes are no pprof profile.
#[derive(Debug, thiserror::Error)]
pub(super) enum PprofError {
    #[error(transparent)]
    Packed(#[from] std::io::Error),
    #[error("it unpacks to more than a profile of its size can hold")]
    TooLarge,
    #[error(transparent)]
    Malformed(#[from] prost::DecodeError),
}

pub(super) fn read_compressed(bytes: &[u8]) -> Result<Vec<HotSpot>, PprofError> {
    let mut plain = Vec::new();
    let most_bytes = Budget::of(bytes.len() as u64).left_bytes();
    let mut stream = flate2::read::GzDecoder::new(bytes).take(most_bytes + 1);
    stream.read_to_end(&mut plain)?;
    if plain.len() as u64 > most_bytes {
        return Err(PprofError::TooLarge);
    }
    read(&plain)
}

pub(super) fn read(bytes: &[u8]) -> Result<Vec<HotSpot>, PprofError> {
    let profile = Profile::decode(bytes)?;
    let text = |index: i64| {
        let index = usize::try_from(index).ok()?;
        profile.string_table.get(index).filter(|t| !t.is_empty()).map(|t| text_of(t).into_owned())
    };
    let mappings: HashMap<u64, &Mapping> = profile.mapping.iter().map(|m| (m.id, m)).collect();
    let functions: HashMap<u64, &Function> = profile.function.iter().map(|f| (f.id, f)).collect();
    let locations: HashMap<u64, &Location> = profile.location.iter().map(|l| (l.id, l)).collect();
    let spot = |sample: &Sample| {
        let location = locations.get(sample.location_id.first()?)?;
        // The last value is the one that pprof shows unless asked otherwise.
        let weight = *sample.value.last().filter(|v| **v > 0)? as f64;
        let mapping = mappings.get(&location.mapping_id);
        let object = mapping.and_then(|m| text(m.filename));
        let in_file = mapping.filter(|m| m.memory_start > 0 && object.is_some()).and_then(|m| {
            let into = location.address.checked_sub(m.memory_start)?;
            Some(HotPlace::InFile(FileOffset(into.checked_add(m.file_offset)?)))
        });
        let named = || {
            // The last line is that of the function itself; what is inlined comes before.
            let function = functions.get(&location.line.last()?.function_id)?;
            Some(HotPlace::Function { name: text(function.name)?, offset_bytes: None })
        };
        let place = in_file.or_else(named)?;
        Some(HotSpot { object, place, weight })
    };
    Ok(profile.sample.iter().filter_map(spot).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_found_in_its_file_or_by_its_name() {
        let location = |id, mapping_id, address| Location {
            id,
            mapping_id,
            address,
            line: vec![Line { function_id: 9 }, Line { function_id: 8 }],
        };
        let sample = |ids: &[u64], value: &[i64]| Sample {
            location_id: ids.to_vec(),
            value: value.to_vec(),
        };
        let profile = Profile {
            sample: vec![sample(&[1, 2], &[1, 70]), sample(&[2], &[1, 30]), sample(&[5], &[1, 1])],
            mapping: vec![Mapping {
                id: 3,
                memory_start: 0x40_0000,
                file_offset: 0x1000,
                filename: 1,
            }],
            location: vec![location(1, 3, 0x40_0010), location(2, 0, 0x77)],
            function: vec![Function { id: 8, name: 2 }, Function { id: 9, name: 3 }],
            string_table: ["", "/bin/p", "main.hot", "inlined"].map(str::to_owned).to_vec(),
        };
        let spots = read(&profile.encode_to_vec()).unwrap();
        assert_eq!(spots.len(), 2);
        assert_eq!(spots[0].place, HotPlace::InFile(FileOffset(0x1010)));
        assert_eq!((spots[0].object.as_deref(), spots[0].weight), (Some("/bin/p"), 70.0));
        let named = HotPlace::Function { name: "main.hot".into(), offset_bytes: None };
        assert_eq!((&spots[1].place, spots[1].weight), (&named, 30.0));
    }
}
