//! Any text as a machine profile: a refusal or a profile that can be written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::machine::MachineProfile;

fuzz_target!(|text: &str| {
    if let Ok(profile) = MachineProfile::from_json(text) {
        let _ = profile.to_json();
    }
});
