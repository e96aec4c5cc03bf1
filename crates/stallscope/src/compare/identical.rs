//! Two builds whose functions hold the same code: the difference can only be placement, data or the
//! environment, and no time has to be spent to know that.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Image;
use crate::layout::{Change, match_functions};

/// Programs above this are not taken apart for a remark.
const MOST_BYTES: u64 = 64 << 20;

/// The code of two builds is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SameCode {
    /// Functions that both have.
    pub functions: u64,
    /// Of these, how many lie elsewhere.
    pub moved: u64,
}

/// Looks at both programs; `None` when any function differs, or either cannot be taken apart.
#[must_use]
pub fn same_code(a: &Path, b: &Path) -> Option<SameCode> {
    let small = |p: &Path| p.metadata().is_ok_and(|m| m.len() <= MOST_BYTES);
    if !small(a) || !small(b) {
        return None;
    }
    let (a, b) = (Image::open(a).ok()?, Image::open(b).ok()?);
    let matches = match_functions(&a, &b);
    let same = |c: Change| matches!(c, Change::Same | Change::Moved { .. });
    if matches.is_empty() || !matches.iter().all(|m| same(m.change)) {
        return None;
    }
    let moved = matches.iter().filter(|m| m.change != Change::Same).count() as u64;
    Some(SameCode { functions: matches.len() as u64, moved })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_the_same_as_itself_and_text_is_no_program() {
        let own = Path::new("/bin/true");
        let same = same_code(own, own).expect("a system has /bin/true");
        assert!(same.functions > 0 && same.moved == 0);
        assert_eq!(same_code(own, Path::new("/etc/passwd")), None);
    }
}
