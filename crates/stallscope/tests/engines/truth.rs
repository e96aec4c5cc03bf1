//! What must come out, written next to the instructions that must do it.
//!
//! An assembly program of `tests/engines/programs` has a function `window`. Behind an instruction
//! stands what it touches: `# L8 table+16 S4 @0` is a load of 8 bytes at the symbol `table` plus 16
//! and a store of 4 bytes at the stack pointer of the window's entry, `P1` a prefetch; `#` alone: nothing. A line
//! without `#` is no instruction or is not reached. Loops are not written; a line is executed
//! exactly as often as it stands, from top to bottom, unless it says `# xN`, which belongs to the
//! run of lines with the same N that it stands in.

use std::collections::HashMap;
use std::path::Path;

use stallscope::trace::engine::AccessKind;

/// An access as (kind, size, place).
pub type Access = (AccessKind, u32, ExpectedAddress);

/// Where an access must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedAddress {
    /// So far behind a symbol.
    Symbol(String, i64),
    /// So far above the stack pointer at the entry.
    Stack(i64),
}

/// One entry per executed instruction.
pub fn expected(source: &Path) -> Vec<Vec<Access>> {
    let text = std::fs::read_to_string(source).unwrap();
    let body = text.split("\nwindow:\n").nth(1).expect("a label `window`");
    let mut out = Vec::new();
    let mut group: (usize, Vec<Vec<Access>>) = (1, Vec::new());
    for line in body.lines() {
        let Some((_, note)) = line.split_once('#') else { continue };
        let mut times = 1;
        let mut accesses = Vec::new();
        let mut kind = None;
        for word in note.split_whitespace() {
            let number = |word: &str| word[1..].parse().ok();
            match (word.as_bytes()[0], kind) {
                (b'x', None) => times = number(word).unwrap(),
                (b'L', None) => kind = Some((AccessKind::Load, number(word).unwrap() as u32)),
                (b'S', None) => kind = Some((AccessKind::Store, number(word).unwrap() as u32)),
                (b'P', None) => kind = Some((AccessKind::Prefetch, number(word).unwrap() as u32)),
                (_, Some((direction, size))) => {
                    accesses.push((direction, size, place(word)));
                    kind = None;
                }
                _ => panic!("cannot read `{word}` in: {line}"),
            }
        }
        if group.0 != times {
            flush(&mut out, &mut group);
            group.0 = times;
        }
        group.1.push(accesses);
    }
    flush(&mut out, &mut group);
    out
}

fn flush(out: &mut Vec<Vec<Access>>, group: &mut (usize, Vec<Vec<Access>>)) {
    for _ in 0..group.0 {
        out.extend(group.1.iter().cloned());
    }
    group.1.clear();
}

fn place(word: &str) -> ExpectedAddress {
    if let Some(offset) = word.strip_prefix('@') {
        return ExpectedAddress::Stack(offset.parse().unwrap());
    }
    let at = word.find(['+', '-']).unwrap_or(word.len());
    ExpectedAddress::Symbol(
        word[..at].into(),
        word[at..].trim_start_matches('+').parse().unwrap_or(0),
    )
}

/// Addresses of the symbols of a program that is not moved when it is loaded.
pub fn symbols(program: &Path) -> HashMap<String, u64> {
    use object::{Object, ObjectSymbol};
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    file.symbols().filter_map(|s| Some((s.name().ok()?.to_owned(), s.address()))).collect()
}
