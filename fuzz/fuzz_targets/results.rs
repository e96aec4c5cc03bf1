//! Any text is refused or read, and what was read can be judged against itself, without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::compare::results::{judge, parse};
use stallscope::stats::families::Adjustment;

fuzz_target!(|text: &str| {
    if let Ok(file) = parse("input", text) {
        let _ = judge(&file, &file, 0.01, Adjustment::Holm);
    }
});
