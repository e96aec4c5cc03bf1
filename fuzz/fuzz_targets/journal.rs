//! Any text behind the head of a sweep's journal: runs of whole rounds.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use stallscope::compare::sweep::{Journal, SweepSettings};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|text: &str| {
    let settings: SweepSettings = serde_json::from_str(
        r#"{"axes":[],"layouts":1,"knob":"go","build":null,"run":"p","rounds":2,"effect":0.01,
            "seed":1,"timeout_ms":null,"cpu":null,"guard":false}"#,
    )
    .expect("settings");
    let head = serde_json::to_string(&settings).expect("settings");
    fs::write(FOLDER.path().join("0000000000000001.jsonl"), head + "\n" + text).expect("room");
    let (journal, runs) = Journal::open(FOLDER.path(), &settings, 1, 3, false).expect("a journal");
    assert_eq!(runs.len() % 3, 0);
    journal.finish();
});
