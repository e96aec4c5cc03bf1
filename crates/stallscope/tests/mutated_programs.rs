//! Damaged programs give an error or fewer functions, never a panic: the whole static chain, from
//! bytes to findings and steps by unwind tables, on programs with bytes changed, cut off and filled with nonsense.

use std::path::Path;

use proptest::prelude::*;
use stallscope::code::{DebugInfo, Image, Registers, Scratch, UnwindTables, fixture};
use stallscope::hazards::{ScanFilter, describe_sites, scan};
use stallscope::machine::{Design, Microarchitecture};

fn scan_bytes(bytes: Vec<u8>) {
    let profile = Design::of(Microarchitecture::Zen5);
    if let Ok(tables) = UnwindTables::parse(Path::new("mutated"), bytes.clone()) {
        let start = fixture::CODE_START.0;
        let _ = tables.step(start, &Registers([start.0; 17]), &Some, &mut Scratch::default());
    }
    if let Ok(image) = Image::parse(Path::new("mutated"), bytes) {
        let mut report = scan(&image, &ScanFilter::default(), &profile, None);
        describe_sites(&image, &DebugInfo::of(&image), &mut report.findings);
        assert!(report.findings.len() <= report.code_bytes as usize);
    }
}

fn invented() -> Vec<u8> {
    let (wide, narrow) = (fixture::ring_loop(true), fixture::ring_loop(false));
    fixture::program(&[("decode", &wide), ("encode", &narrow), ("main", &[0xc3])])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = invented();
        // The page between header and code is padding: changes belong where something stands.
        let places: Vec<usize> = (0..bytes.len()).filter(|at| !(200..0x1000).contains(at)).collect();
        for (at, value) in changes {
            bytes[*at.get(&places)] = value;
        }
        scan_bytes(bytes);
    }

    #[test]
    fn cut_off(length in any::<prop::sample::Index>()) {
        let mut bytes = invented();
        bytes.truncate(length.index(bytes.len()));
        scan_bytes(bytes);
    }

    #[test]
    fn nonsense_as_machine_code(code in prop::collection::vec(any::<u8>(), 1..400)) {
        scan_bytes(fixture::program(&[("f", &code), ("g", &code)]));
    }
}

/// Inputs that fuzzing has found, each named after what is wrong with it.
#[test]
fn what_fuzzing_has_found_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/damaged");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        scan_bytes(std::fs::read(file).unwrap());
    }
}
