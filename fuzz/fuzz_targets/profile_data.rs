//! Any bytes as a profile of another tool: a refusal or places.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use stallscope::import::profile_data;

fuzz_target!(|bytes: &[u8]| {
    let _ = profile_data::of_bytes(bytes, Path::new("p"));
});
