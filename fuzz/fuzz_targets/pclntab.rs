//! Any bytes as Go's table of functions.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::code::go_functions;
use stallscope::model::Svma;

fuzz_target!(|bytes: &[u8]| {
    let functions = go_functions(bytes, Svma(0x1000));
    // Each takes eight bytes of the list.
    assert!(functions.len() <= bytes.len() / 8);
});
