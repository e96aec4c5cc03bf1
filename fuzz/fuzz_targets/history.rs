//! Any text is a history with lines that are believed and lines that are named, and can be judged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::compare::history::{judge, parse};

fuzz_target!(|text: &str| {
    let file = parse(text);
    assert_eq!(file.entries.len() + file.damaged.len(), text.split_inclusive('\n').count());
    let _ = judge("input", file, 0.01, 1);
});
