//! `perf.data` as weighted places: what [`PerfData`] counted, all events together.

use std::collections::BTreeMap;
use std::path::Path;

use crate::import::perf_data::{FileHits, PerfData};
use crate::model::{FileOffset, HotPlace, HotSpot};

/// Every place of a recording with the events (where samples do not say, the samples) that fell on it.
pub(super) fn spots(data: &PerfData) -> Vec<HotSpot> {
    let mut spots = Vec::new();
    for event in &data.events {
        for file in &event.files {
            let place = |at: &FileOffset| HotPlace::InFile(*at);
            spots.extend(weights(file).iter().map(|(at, n)| spot(&file.path, place(at), *n)));
        }
        for part in &event.kernel_parts {
            let place = |at| HotPlace::Stated(at);
            spots.extend(part.weights.iter().map(|(at, n)| spot(&part.path, place(*at), *n)));
        }
    }
    spots
}

fn weights(file: &FileHits) -> &BTreeMap<FileOffset, u64> {
    if file.weights.is_empty() { &file.hits } else { &file.weights }
}

fn spot(path: &Path, place: HotPlace, weight: u64) -> HotSpot {
    HotSpot { object: Some(path.to_string_lossy().into_owned()), place, weight: weight as f64 }
}
