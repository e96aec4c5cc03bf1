//! Any text is a sweep's journal: blocks of whole rounds are kept, and a sweep ends behind one of them.

#![no_main]

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use stallscope::compare::sweep::{Cell, Journal};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|text: &str| {
    fs::write(FOLDER.path().join("journal.jsonl"), text).expect("room");
    let cells = BTreeSet::from([0, 1, 2].map(|layout| Cell { variant: 0, layout }));
    let open = || Journal::open(FOLDER.path(), "journal", "plan", &cells, false);
    let (journal, kept) = open().expect("a journal");
    assert!(kept.finished_rounds as usize <= kept.blocks.len());
    journal.finish(kept.blocks.len() as u32).expect("room");
    // What was kept is kept.
    let (_, again) = open().expect("a journal");
    assert_eq!(again.blocks.len(), kept.blocks.len());
});
