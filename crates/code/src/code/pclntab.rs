//! Go's own table of functions, which stays in a program that was stripped: names and bounds.
//!
//! Versions 1.18 and later (the Go runtime calls the table `pclntab`): a header, names, and per
//! function its distance from the start of the code and the place of its description. A function
//! reaches to the next one. The header's own word for the start of the code is 0 in new versions, so
//! the caller says where the code is. Anything that does not fit ends the list; nothing panics.

use crate::foreign::plain;
use crate::model::Svma;

/// First words of the tables of Go 1.18 and 1.19, and of 1.20 and later.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Names longer than this are none.
const LONGEST_NAME_BYTES: usize = 1 << 16;

/// A function of a Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFunction {
    /// Its full name, for example `main.(*ring).push`.
    pub name: String,
    /// Its first instruction.
    pub start: Svma,
    /// Bytes to the next function.
    pub size_bytes: u64,
}

/// A little-endian table that is read at any place.
#[derive(Clone, Copy)]
struct Table<'a>(&'a [u8]);

impl Table<'_> {
    fn u32(self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn word(self, at: usize) -> Option<usize> {
        let bytes = self.0.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    }

    fn name(self, at: usize) -> Option<String> {
        let rest = self.0.get(at..)?;
        let length = rest.iter().take(LONGEST_NAME_BYTES).position(|b| *b == 0)?;
        std::str::from_utf8(&rest[..length])
            .ok()
            .filter(|n| !n.is_empty())
            .map(|n| plain(n).into_owned())
    }
}

/// The functions that a table lists, in its order; empty when it is no table of a known version.
/// `code` is where the program's machine code starts.
#[must_use]
pub fn go_functions(table: &[u8], code: Svma) -> Vec<GoFunction> {
    read(Table(table), code).unwrap_or_default()
}

fn read(table: Table<'_>, code: Svma) -> Option<Vec<GoFunction>> {
    const WORD_BYTES: usize = 8;
    let is_known = MAGICS.contains(&table.u32(0)?);
    if !is_known || usize::from(*table.0.get(7)?) != WORD_BYTES {
        return None;
    }
    let header = |field: usize| table.word(8 + WORD_BYTES * field);
    let (count, stated_start) = (header(0)?, header(2)?);
    let (names, functions) = (header(3)?, header(7)?);
    // New linkers leave the word empty; old ones state an address that position independent code
    // shares with its section.
    let start = if stated_start == 0 { code } else { Svma(stated_start as u64) };
    let mut found: Vec<GoFunction> = Vec::new();
    for index in 0..count {
        let entry = functions.checked_add(index.checked_mul(8)?)?;
        let field = |behind: usize| table.u32(entry.checked_add(behind)?);
        let (Some(at), Some(place), Some(next)) = (field(0), field(4), field(8)) else {
            break;
        };
        let description = functions.checked_add(place as usize)?;
        let name = table
            .u32(description.saturating_add(4))
            .and_then(|name| table.name(names.checked_add(name as usize)?));
        let (Some(name), Some(size_bytes)) = (name, next.checked_sub(at)) else { continue };
        let start = start.offset(i64::from(at));
        found.push(GoFunction { name, start, size_bytes: u64::from(size_bytes) });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of functions as a linker lays it out, names first.
    fn table(magic: u32, text_start: u64, functions: &[(u32, &str)], end: u32) -> Vec<u8> {
        const HEADER_BYTES: usize = 8 + 8 * 8;
        let mut names = Vec::new();
        let mut places = Vec::new();
        for (_, name) in functions {
            places.push(names.len() as u32);
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let list_at = HEADER_BYTES + names.len();
        let mut list = Vec::new();
        let descriptions_at = 8 * functions.len() as u32 + 4;
        for (i, (at, _)) in functions.iter().enumerate() {
            list.extend(at.to_le_bytes());
            list.extend((descriptions_at + 8 * i as u32).to_le_bytes());
        }
        list.extend(end.to_le_bytes());
        for ((at, _), name) in functions.iter().zip(&places) {
            list.extend(at.to_le_bytes());
            list.extend(name.to_le_bytes());
        }
        let mut out = magic.to_le_bytes().to_vec();
        out.extend([0, 0, 1, 8]);
        let words =
            [functions.len() as u64, 0, text_start, HEADER_BYTES as u64, 0, 0, 0, list_at as u64];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(names);
        out.extend(list);
        out
    }

    #[test]
    fn names_and_bounds_of_both_versions() {
        for (magic, stated) in [(MAGICS[0], 0x1000), (MAGICS[1], 0)] {
            let bytes = table(magic, stated, &[(0, "main.main"), (32, "main.(*ring).push")], 96);
            let found = go_functions(&bytes, Svma(0x1000));
            let shape: Vec<_> =
                found.iter().map(|f| (f.name.as_str(), f.start.0, f.size_bytes)).collect();
            assert_eq!(shape, [("main.main", 0x1000, 32), ("main.(*ring).push", 0x1020, 64)]);
        }
    }

    #[test]
    fn every_truncation_is_survived() {
        let bytes = table(MAGICS[1], 0, &[(0, "main.main"), (32, "main.f")], 64);
        for length in 0..bytes.len() {
            let found = go_functions(&bytes[..length], Svma(0));
            assert!(found.len() <= 2);
        }
        // A list that should begin right in front of the last address.
        let mut far = bytes.clone();
        far[8 + 8 * 7..8 + 8 * 8].copy_from_slice(&(u64::MAX - 3).to_le_bytes());
        assert!(go_functions(&far, Svma(0)).is_empty());
        assert!(go_functions(&bytes[1..], Svma(0)).is_empty());
        assert!(go_functions(&[0xff; 200], Svma(u64::MAX)).is_empty());
    }
}
