//! Any text as a baseline of a scan: a refusal or known findings.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope_cli::Baseline;

fuzz_target!(|text: &str| {
    let _ = Baseline::parse("b.json", text);
});
