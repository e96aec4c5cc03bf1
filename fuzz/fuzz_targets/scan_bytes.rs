//! Any bytes as a program: an error or a report, debug information included, and steps by its unwind tables.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use stallscope::code::{DebugInfo, Image, Registers, Scratch, UnwindTables};
use stallscope::hazards::{ScanFilter, describe_sites, scan};
use stallscope::machine::{Design, Microarchitecture};

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(Path::new("/no/such/file"), bytes.to_vec()) else { return };
    if let Ok(tables) = UnwindTables::parse(Path::new("/no/such/file"), bytes.to_vec()) {
        let mut scratch = Scratch::default();
        for function in image.functions().iter().take(20) {
            let registers = Registers([function.start.0; 17]);
            let _ = tables.step(function.start, &registers, &Some, &mut scratch);
        }
    }
    let profile = Design::of(Microarchitecture::Zen5);
    let mut report = scan(&image, &ScanFilter::default(), &profile, None);
    describe_sites(&image, &DebugInfo::of(&image), &mut report.findings);
});
