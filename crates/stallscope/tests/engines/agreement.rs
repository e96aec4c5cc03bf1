//! Whether an engine that runs the program elsewhere (another load address, another processor)
//! told the same as `step`: the same instructions one by one, and for each the same accesses.
//!
//! The C library chooses its code by the processor, so what is compared is the program's own:
//! everything that stands in its source file, in the order of execution. Addresses are compared
//! modulo where things lie: the difference between the two runs must be one of a few (the program,
//! its stacks, its heap, the library's data).

use std::collections::BTreeMap;
use std::path::Path;

use stallscope::code::Image;

use stallscope::trace::engine::AccessKind;

use crate::programs::Program;
use crate::recorder::Step;

/// Program, stack, heap, data of the library, data of the thread, and frames that were aligned.
const MOST_DISTANCES: usize = 8;

/// An access as (kind, size, address).
type Touched = (AccessKind, u32, u64);

/// Stretches of stated addresses of functions that the source defines; everything for assembly.
fn own_code(program: &Program, path: &Path) -> Vec<(u64, u64)> {
    let source = std::fs::read_to_string(program.source_path()).unwrap();
    let defined = |name: &str| {
        let call = format!("{name}(");
        source
            .lines()
            .any(|l| !l.starts_with([' ', '/', '#']) && l.contains(&call) && l.contains('{'))
    };
    let image = Image::open(path).unwrap();
    let own = image
        .functions()
        .iter()
        .filter(|f| program.is_assembly() && f.symbol == "window" || defined(&f.name()));
    own.map(|f| (f.start.0, f.start.0 + f.size_bytes)).collect()
}

/// Whether an instruction that loads under a mask was told as if the mask were full: the emulator
/// reads the whole operand and does not say which lanes are wanted.
pub fn is_whole_masked_load(text: &str, expected: &[Touched], found: &[Touched]) -> bool {
    let [(AccessKind::Load, size, address)] = *found else { return false };
    let inside = |part: &Touched| {
        part.0 == AccessKind::Load
            && part.2 >= address
            && part.2 + u64::from(part.1) <= address + u64::from(size)
    };
    text.contains("maskmov") && matches!(size, 16 | 32) && expected.iter().all(inside)
}

/// Whether the emulator tells of accesses of this kind.
pub fn is_told_by_emulator(kind: AccessKind) -> bool {
    matches!(kind, AccessKind::Load | AccessKind::Store)
}

/// The steps in the program's own code, with addresses as stated.
fn own_steps(own: &[(u64, u64)], bias: u64, steps: &[Step]) -> Vec<Step> {
    let stated = |step: &Step| {
        let mut step = Step { address: step.address.wrapping_sub(bias), ..step.clone() };
        step.accesses.retain(|access| is_told_by_emulator(access.0));
        step
    };
    let inside = |step: &Step| own.iter().any(|(from, end)| (*from..*end).contains(&step.address));
    steps.iter().map(stated).filter(inside).collect()
}

/// Panics where the two differ.
pub fn check(program: &Program, path: &Path, [expected, found]: [(u64, &[Step]); 2]) {
    let own = own_code(program, path);
    let expected = own_steps(&own, expected.0, expected.1);
    let found = own_steps(&own, found.0, found.1);
    let mut distances: BTreeMap<u64, u64> = BTreeMap::new();
    for (index, (a, b)) in expected.iter().zip(&found).enumerate() {
        let place = || format!("{} own step {index} at {:#x}", program.name, a.address);
        assert_eq!((a.address, a.size_bytes), (b.address, b.size_bytes), "{}", place());
        let shape = |step: &Step| step.accesses.iter().map(|x| (x.0, x.1)).collect::<Vec<_>>();
        assert_eq!(shape(a), shape(b), "{}", place());
        for (x, y) in a.accesses.iter().zip(&b.accesses) {
            *distances.entry(y.2.wrapping_sub(x.2)).or_default() += 1;
        }
    }
    assert_eq!(expected.len(), found.len(), "{}", program.name);
    assert!(expected.len() > 2, "{}: nothing was compared", program.name);
    assert!(distances.len() <= MOST_DISTANCES, "{}: {distances:x?}", program.name);
}
