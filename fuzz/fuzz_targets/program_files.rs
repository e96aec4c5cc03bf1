//! Any bytes as a program with the separate debug file that it names, both on disk: an error or a
//! report, with lines and variables. The first two bytes say where the one ends and the other begins.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use stallscope::code::{DebugInfo, Images, SourceText};
use stallscope::foreign::SourceRoots;
use stallscope::hazards::{ScanFilter, describe_sites, scan};
use stallscope::layout::match_functions;
use stallscope::machine::{Design, Microarchitecture};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

fuzz_target!(|input: &[u8]| {
    let Some((share, bytes)) = input.split_first_chunk::<2>() else { return };
    let program_bytes = bytes.len() * usize::from(u16::from_le_bytes(*share)) / 0xffff;
    let path = FOLDER.path().join("p");
    fs::write(&path, &bytes[..program_bytes]).expect("room");
    for name in ["p.debug", "p.dwp", "p.dwo"] {
        fs::write(FOLDER.path().join(name), &bytes[program_bytes..]).expect("room");
    }
    let Ok(images) = Images::open(&path) else { return };
    let profile = Design::of(Microarchitecture::Zen5);
    let mut text = SourceText::below(SourceRoots::of(&[]).expect("no folder is named"));
    for image in images.take(10).flatten() {
        let mut report = scan(&image, &ScanFilter::default(), &profile, None);
        let debug = DebugInfo::of(&image);
        describe_sites(&image, &debug, &mut report.findings);
        for function in image.functions().iter().take(20) {
            debug.frames(function.start).iter().for_each(|line| _ = text.line(line));
        }
        let _ = match_functions(&image, &image);
    }
});
