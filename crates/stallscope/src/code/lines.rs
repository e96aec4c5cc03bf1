//! What debug information says about an address: source lines with the chain of inlined functions,
//! and the variable behind an access.
//!
//! Debug information may be missing, split off or broken; then there are simply no lines.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::debug::Debug;
use super::image::Image;
use super::insn::RawAddress;
use super::symbolic::SymbolicAddress;
use crate::model::{SourceLine, Svma};

/// The debug information of one program. Nothing is read before something is asked for.
pub struct DebugInfo<'a> {
    image: &'a Image,
    debug: OnceCell<Debug>,
}

impl<'a> DebugInfo<'a> {
    /// That of a program: its own, or the separate file that it points to.
    #[must_use]
    pub fn of(image: &'a Image) -> Self {
        Self { image, debug: OnceCell::new() }
    }

    fn debug(&self) -> &Debug {
        self.debug.get_or_init(|| Debug::of(self.image))
    }

    /// The variable that an access of the function at `function` touches, where it is named.
    #[must_use]
    pub fn variable(
        &self,
        function: Svma,
        raw: &RawAddress,
        symbolic: Option<&SymbolicAddress>,
    ) -> Option<String> {
        self.debug().book(function)?.variables.name(function, raw, symbolic)
    }

    /// The frames at an address, innermost first; empty when nothing is known.
    #[must_use]
    pub fn frames(&self, svma: Svma) -> Vec<SourceLine> {
        self.debug().frames(svma)
    }
}

/// The text of source lines, for files that are still where the compiler found them.
#[derive(Default)]
pub struct SourceText {
    files: HashMap<PathBuf, Vec<String>>,
}

impl SourceText {
    /// Files larger than this are no source.
    const LARGEST_BYTES: u64 = 16 << 20;

    /// The line without its indentation, if the file can be read.
    pub fn line(&mut self, at: &SourceLine) -> Option<&str> {
        let path = Path::new(&at.file);
        if !self.files.contains_key(path) {
            let small = fs::metadata(path).is_ok_and(|m| m.len() <= Self::LARGEST_BYTES);
            let text = small.then(|| fs::read_to_string(path).ok()).flatten().unwrap_or_default();
            self.files.insert(path.into(), text.lines().map(|l| l.trim().to_owned()).collect());
        }
        let index = (at.line as usize).checked_sub(1)?;
        self.files.get(path)?.get(index).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_function_of_this_crate_and_survives_nonsense() {
        let path = std::env::current_exe().unwrap();
        let image = Image::open(&path).unwrap();
        let map = DebugInfo::of(&image);
        let function = image
            .functions()
            .iter()
            .find(|f| f.name().contains("code::functions::demangle"))
            .expect("our own code has symbols");
        let frames = map.frames(function.start);
        assert!(frames.iter().any(|l| l.file.ends_with("functions.rs")), "{frames:?}");
        let own = frames.iter().find(|l| l.file.ends_with("functions.rs")).unwrap();
        assert!(SourceText::default().line(own).is_some_and(|l| l.contains("fn demangle")));
        assert!(map.frames(Svma(u64::MAX)).is_empty());
    }
}
