//! Any bytes as a recording: an error, or counts that add up.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use stallscope::import::perf_data::{FileHits, PerfData};

fuzz_target!(|bytes: &[u8]| {
    let Ok(data) = PerfData::parse(Path::new("perf.data"), bytes) else { return };
    for event in &data.events {
        let in_files: u64 = event.files.iter().map(FileHits::total).sum();
        assert_eq!(in_files + event.unmapped + event.kernel, event.samples);
    }
});
