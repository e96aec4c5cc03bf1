//! Any text as a machine profile: a refusal or a profile that can be written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::machine::Design;

fuzz_target!(|text: &str| {
    if let Ok(profile) = Design::from_json(text) {
        let _ = profile.to_json();
    }
});
