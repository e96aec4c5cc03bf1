//! Any symbol has a name that is safe to show and not much longer than the symbol.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::code::demangle;
use stallscope::foreign::plain;

fuzz_target!(|symbol: &str| {
    let name = demangle(symbol);
    assert_eq!(plain(&name), name);
    // What is not plain is spelled out in at most ten bytes for one.
    assert!(name.len() <= 10 * symbol.len().max(16 << 10) + 10);
});
