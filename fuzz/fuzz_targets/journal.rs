//! Any text behind the head of a sweep's journal: runs of whole rounds.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use stallscope::compare::sweep::{Cell, Journal, SweepSettings};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|text: &str| {
    let settings: SweepSettings = serde_json::from_str(
        r#"{"axes":[],"layouts":1,"knob":"go","build":null,"run":"p","rounds":2,"effect":0.01,
            "seed":1,"timeout_ms":null,"cpu":null,"guard":false}"#,
    )
    .expect("settings");
    let head = serde_json::to_string(&settings.question()).expect("settings");
    fs::write(FOLDER.path().join("0000000000000001.jsonl"), head + "\n" + text).expect("room");
    let cells = [0, 1, 2].map(|layout| Cell { variant: 0, layout });
    let (journal, kept) =
        Journal::open(FOLDER.path(), &settings, 1, &cells, false).expect("a journal");
    let rounds = kept.runs.len() / 3;
    assert!(kept.runs.len() % 3 == 0 && kept.finished_rounds as usize <= rounds);
    journal.finish(rounds as u32).expect("room");
});
