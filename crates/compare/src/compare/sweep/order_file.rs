//! GNU ld has no shuffle: a linker script that puts the sections of functions in random order.
//!
//! With `INSERT` the script adds to the linker's own instead of replacing it. The names come from the
//! symbols of the build as it comes; a name without a section of its own matches nothing.

use object::{Object, ObjectSymbol, SymbolKind};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::compare::schedule::shuffle;

/// Functions that the linker's own script places, with what depends on their place.
const LEFT_ALONE: [&str; 4] = ["_start", "_init", "_fini", "main"];

/// The script for `seed`; `None` when the program has no symbols to order.
pub(super) fn script(program: &[u8], seed: u64) -> Option<String> {
    let file = object::File::parse(program).ok()?;
    let mut names: Vec<&str> = file
        .symbols()
        .filter(|s| s.kind() == SymbolKind::Text && s.is_definition() && s.size() > 0)
        .filter_map(|s| s.name().ok())
        .filter(|name| is_plain(name) && !LEFT_ALONE.contains(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        return None;
    }
    shuffle(&mut names, &mut Pcg64Mcg::seed_from_u64(seed));
    let sections: String = names.iter().map(|n| format!("    *(.text.{n})\n")).collect();
    Some(format!(
        "SECTIONS\n{{\n  .text.placed :\n  {{\n{sections}  }}\n}}\nINSERT BEFORE .text;\n"
    ))
}

/// Whether a name can stand in a script without quotes.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.$".contains(c))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_seed() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let (a, b) = (script(&own, 1).unwrap(), script(&own, 2).unwrap());
        assert_eq!(Some(&a), script(&own, 1).as_ref());
        assert_ne!(a, b);
        assert!(a.contains("INSERT BEFORE .text"));
        assert_eq!(script(b"nonsense", 1), None);
    }
}
