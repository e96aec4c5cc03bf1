//! Who made a program: the compiler and the flags that debug information tells of a function, and what the `.comment`
//! section tells of the whole file.
//!
//! gcc and Go record their flags, clang only where it was asked to (`-grecord-command-line`), rustc never. `.comment` has
//! a line for each compiler and linker that made a part of the file, the start-up code of the C library included.

use object::{Object, ObjectSection};
use schemars::JsonSchema;
use serde::Serialize;

use super::image::Image;
use crate::foreign::plain_bytes;

/// What a compiler says of itself; longer texts are cut, in bytes.
const MOST_BYTES: usize = 4096;
/// A section that is longer is not read, in bytes.
const MOST_COMMENT_BYTES: u64 = 1 << 16;
/// Flags that change what is written about the code, and not the code.
const OF_NO_EFFECT: [&str; 6] =
    ["-g", "-fdebug", "-ffile-prefix-map", "-fmacro-prefix-map", "-frecord", "-dump"];

/// A compiler and the flags that it was given.
///
/// ```
/// use stallscope_code::code::Producer;
/// let gcc = Producer::of("GNU C17 12.2.0 -march=x86-64 -g -O2");
/// assert_eq!(gcc.compiler, "GNU C17 12.2.0");
/// assert_eq!(gcc.flags, ["-march=x86-64", "-O2"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Producer {
    /// Its name and version.
    pub compiler: String,
    /// What it was told that can change code, in its order.
    pub flags: Vec<String>,
}

impl Producer {
    /// That of an attribute `DW_AT_producer`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let end = (0..=MOST_BYTES.min(text.len())).rev().find(|&n| text.is_char_boundary(n));
        let text = &text[..end.unwrap_or(0)];
        // Go ends its name with a semicolon.
        let name_end = text.find(';').or_else(|| text.find(" -")).unwrap_or(text.len());
        let (compiler, flags) = text.split_at(name_end);
        let flags = flags.trim_start_matches(';').split_whitespace();
        let has_effect = |flag: &&str| !OF_NO_EFFECT.iter().any(|start| flag.starts_with(start));
        let flags = flags.filter(has_effect).map(str::to_owned).collect();
        Self { compiler: compiler.to_owned(), flags }
    }
}

/// The lines of a program's `.comment` section, each once, safe to show; none where it has none.
#[must_use]
pub fn comments(image: &Image) -> Vec<String> {
    let parts = image.parts();
    let Ok(file) = object::File::parse(&*parts) else { return Vec::new() };
    let section = file.section_by_name(".comment").filter(|s| s.size() <= MOST_COMMENT_BYTES);
    let bytes = section.and_then(|section| section.data().ok()).unwrap_or_default();
    let mut lines: Vec<String> =
        bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty()).map(plain_bytes).collect();
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_write_is_read() {
        let flags = |text: &str| Producer::of(text).flags.join(" ");
        let go = Producer::of("Go cmd/compile go1.26.8; -l regabi");
        assert_eq!(
            (go.compiler.as_str(), go.flags.join(" ")),
            ("Go cmd/compile go1.26.8", "-l regabi".into())
        );
        let clang = Producer::of("Debian clang version 16.0.6 (15~deb12u1)");
        assert_eq!(clang.compiler, "Debian clang version 16.0.6 (15~deb12u1)");
        assert!(clang.flags.is_empty());
        assert_eq!(flags("GNU C17 12.2.0 -gdwarf-4 -O0 -fdebug-prefix-map=/a=/b -O2"), "-O0 -O2");
        assert_eq!(Producer::of(""), Producer::default());
        let long = format!("GNU C17 {}", "é".repeat(5000));
        assert!(Producer::of(&long).compiler.len() <= MOST_BYTES);
    }

    #[test]
    fn our_own_program_names_its_compiler() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        assert!(comments(&image).iter().any(|line| line.contains("rustc")));
        let debug = super::super::DebugInfo::of(&image);
        let own = image.functions().iter().find(|f| f.name().contains("producer::comments"));
        let producer = own.and_then(|f| debug.producer(f.start)).unwrap();
        assert!(producer.compiler.contains("rustc"), "{producer:?}");
    }
}
