//! Any bytes as the names of code that was made at run time: names that are fit to be shown, or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stallscope::model::Avma;
use stallscope::run::generated::GeneratedCode;

fuzz_target!(|bytes: &[u8]| {
    let mut code = GeneratedCode::default();
    code.read(bytes);
    for at in [0, 0x1000, u64::MAX] {
        assert!(code.name(Avma(at)).is_none_or(|name| !name.contains(char::is_control)));
    }
});
