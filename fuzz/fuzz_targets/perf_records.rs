//! Any bytes in a ring give records and an end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::run::sample::records::records;

fuzz_target!(|bytes: &[u8]| {
    let count = records(bytes).count();
    assert!(count <= bytes.len() / 8 + 1);
});
