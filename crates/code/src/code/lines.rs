//! What debug information says about an address: source lines with the chain of inlined functions,
//! and the variable behind an access.
//!
//! Debug information may be missing, split off or broken; then there are simply no lines.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::debug::Debug;
use super::image::Image;
use super::insn::RawAddress;
use super::producer::Producer;
use super::symbolic::SymbolicAddress;
use crate::foreign::{SourceRoots, plain};
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

    /// Of the files that were looked into so far, those that bear the right name and belong to another
    /// build, each as a sentence.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        self.debug.get().map(Debug::refused).unwrap_or_default()
    }

    /// What compiled the function at `function`, where that is told.
    #[must_use]
    pub fn producer(&self, function: Svma) -> Option<Producer> {
        let text = self.debug().book(function)?.variables.producer(function)?;
        Some(Producer::of(&text))
    }

    /// Whether code between two addresses is of a line of a file whose path ends so; code that was inlined there counts.
    #[must_use]
    pub fn has_line(&self, between: [Svma; 2], file: &str, line: u32) -> bool {
        self.debug().has_line(between, file, line)
    }

    /// The frames at an address, innermost first; empty when nothing is known.
    #[must_use]
    pub fn frames(&self, svma: Svma) -> Vec<SourceLine> {
        self.debug().frames(svma)
    }
}

/// The text of source lines, for files that are still where the compiler found them and that may be
/// shown. By default none may.
#[derive(Default)]
pub struct SourceText {
    roots: SourceRoots,
    files: HashMap<PathBuf, Vec<String>>,
}

impl SourceText {
    /// That of files below these folders.
    #[must_use]
    pub fn below(roots: SourceRoots) -> Self {
        Self { roots, files: HashMap::new() }
    }

    /// The line without its indentation, safe to show, if the file can be read.
    pub fn line(&mut self, at: &SourceLine) -> Option<&str> {
        let path = Path::new(&at.file);
        if !self.files.contains_key(path) {
            let text = self.roots.read(path).unwrap_or_default();
            let shown = |line: &str| plain(&line.trim().replace('\t', " ")).into_owned();
            self.files.insert(path.into(), text.lines().map(shown).collect());
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
        let mut text = SourceText::below(SourceRoots::of(&[]).unwrap());
        assert!(text.line(own).is_some_and(|l| l.contains("fn demangle")));
        assert!(SourceText::default().line(own).is_none(), "no folder, no text");
        assert!(map.frames(Svma(u64::MAX)).is_empty());
    }
}
