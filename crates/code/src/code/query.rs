//! Which function a user means: by name, by address or by source line, in the program or in one of its libraries.
//!
//! `NAME`, `0xADDR` and `FILE:LINE`, each also with a library in front: `LIB:NAME`, `LIB:0xADDR`, `LIB:FILE:LINE`. Every command that
//! takes a function takes these.

use std::path::Path;

use super::functions::{Function, short_name};
use super::image::Image;
use super::lines::DebugInfo;
use crate::model::Svma;

/// Names that an ambiguous query is answered with, at the most.
const MOST_NAMES: usize = 5;

/// Which functions a user asks for.
///
/// ```
/// use stallscope_code::code::FunctionQuery;
/// let query = FunctionQuery::new("libz.so.1:inflate");
/// assert_eq!(query.object(), Some("libz.so.1"));
/// assert!(query.is_of("/usr/lib/libz.so.1".as_ref()));
/// // A C++ name has no library in front.
/// assert_eq!(FunctionQuery::new("std::sort").object(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionQuery {
    text: String,
    object: Option<String>,
    wanted: Wanted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// A function whose name is this one or contains it.
    Name(String),
    /// The one that this address lies in.
    Address(Svma),
    /// Those that have code of this line of a file whose path ends so.
    Line(String, u32),
}

/// Why a query leads to no function, or to several.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No function of the file fits.
    #[error("{file} has no {wanted}")]
    Nothing {
        /// The file.
        file: String,
        /// What was looked for, in words.
        wanted: String,
    },
    /// More than one fits.
    #[error("`{text}` fits {count} functions, such as {}", .names.join(", "))]
    Several {
        /// What was asked for.
        text: String,
        /// How many fit.
        count: usize,
        /// Some of their names.
        names: Vec<String>,
    },
}

impl FunctionQuery {
    /// Reads what a user typed; any text is a query.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let (object, rest) = match object_in(text) {
            Some((object, rest)) => (Some(object.to_owned()), rest),
            None => (None, text),
        };
        Self { text: text.to_owned(), object, wanted: Wanted::of(rest) }
    }

    /// What the user typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The library that the user named: a path, or the begin of a file name.
    #[must_use]
    pub fn object(&self) -> Option<&str> {
        self.object.as_deref()
    }

    /// Whether this file may be meant: it has the name of the library (`libz` and `libz.so` are `libz.so.1`, too), or none was named.
    #[must_use]
    pub fn is_of(&self, file: &Path) -> bool {
        let Some(object) = &self.object else { return true };
        if object.contains('/') {
            let asked = Path::new(object);
            return asked == file || asked.canonicalize().is_ok_and(|path| path == file);
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(object.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// All functions that fit, in the order of their addresses; none where another file is meant.
    #[must_use]
    pub fn all_in<'i>(&self, image: &'i Image) -> Vec<&'i Function> {
        if !self.is_of(image.path()) {
            return Vec::new();
        }
        match &self.wanted {
            Wanted::Name(name) => {
                let fits = |f: &&Function| f.symbol.contains(name) || f.name().contains(name);
                image.functions().iter().filter(fits).collect()
            }
            Wanted::Address(svma) => image.function_at(*svma).into_iter().collect(),
            Wanted::Line(file, line) => {
                let debug = DebugInfo::of(image);
                let has = |f: &&Function| debug.has_line([f.start, f.end()], file, *line);
                image.functions().iter().filter(has).collect()
            }
        }
    }

    /// The only function that is meant: the one with exactly this name, else the only one that fits.
    ///
    /// # Errors
    /// [`QueryError`] where none fits, or more than one.
    pub fn one_in<'i>(&self, image: &'i Image) -> Result<&'i Function, QueryError> {
        let all = self.all_in(image);
        let is_exact = |f: &&&Function| match &self.wanted {
            Wanted::Name(name) => f.symbol == *name || short_name(&f.name()) == name,
            Wanted::Address(_) | Wanted::Line(..) => false,
        };
        let exact: Vec<&Function> = all.iter().filter(is_exact).copied().collect();
        let fits = if exact.is_empty() { all } else { exact };
        match fits.as_slice() {
            [one] => Ok(one),
            [] => Err(QueryError::Nothing {
                file: image.path().display().to_string(),
                wanted: self.to_string(),
            }),
            many => Err(QueryError::Several {
                text: self.text.clone(),
                count: many.len(),
                names: many.iter().take(MOST_NAMES).map(|f| f.name()).collect(),
            }),
        }
    }
}

/// What is looked for, for a sentence.
impl std::fmt::Display for FunctionQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.wanted {
            Wanted::Name(name) => write!(f, "function whose name contains `{name}`"),
            Wanted::Address(svma) => write!(f, "function at {svma}"),
            Wanted::Line(file, line) => write!(f, "function with code of {file}:{line}"),
        }
    }
}

impl Wanted {
    fn of(text: &str) -> Self {
        let address = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        if let Some(address) = address {
            return Self::Address(Svma(address));
        }
        match text.rsplit_once(':') {
            Some((file, line)) if !file.is_empty() && !file.ends_with(':') => match line.parse() {
                Ok(line) => Self::Line(file.to_owned(), line),
                Err(_) => Self::Name(text.to_owned()),
            },
            _ => Self::Name(text.to_owned()),
        }
    }
}

/// A library in front of a query, and what is behind it: up to the first colon that stands alone. A file in front of a line number
/// and the arguments of a function are none.
fn object_in(text: &str) -> Option<(&str, &str)> {
    let colons = text.match_indices(':').map(|(at, _)| at);
    let alone = |at: &usize| !text[..*at].ends_with(':') && !text[at + 1..].starts_with(':');
    let at = { colons }.find(alone)?;
    let (object, rest) = (&text[..at], &text[at + 1..]);
    let is_name = !object.is_empty() && !object.contains("::") && !object.contains(['(', '<', ' ']);
    let is_line = rest.bytes().all(|byte| byte.is_ascii_digit());
    (is_name && !is_line).then_some((object, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_lines_are_told_apart_with_a_library_in_front_or_not() {
        let name = |name: &str| Wanted::Name(name.into());
        let line = |file: &str, line| Wanted::Line(file.into(), line);
        for (text, object, wanted) in [
            ("inflate", None, name("inflate")),
            ("libz.so.1:inflate", Some("libz.so.1"), name("inflate")),
            ("/opt/lib/libz.so:inflate", Some("/opt/lib/libz.so"), name("inflate")),
            ("0x1f40", None, Wanted::Address(Svma(0x1f40))),
            ("libz:0x1f40", Some("libz"), Wanted::Address(Svma(0x1f40))),
            ("inflate.c:42", None, line("inflate.c", 42)),
            ("libz:src/inflate.c:42", Some("libz"), line("src/inflate.c", 42)),
            ("std::sort", None, name("std::sort")),
            ("libx.so:std::sort", Some("libx.so"), name("std::sort")),
            ("<impl a::B for C>::d", None, name("<impl a::B for C>::d")),
            ("f(int)::{lambda(auto:1)#1}", None, name("f(int)::{lambda(auto:1)#1}")),
            ("main.(*T).Run", None, name("main.(*T).Run")),
            ("0xyz", None, name("0xyz")),
            (":5", None, name(":5")),
            ("", None, name("")),
        ] {
            let query = FunctionQuery::new(text);
            assert_eq!((query.object(), &query.wanted), (object, &wanted), "{text}");
        }
    }

    #[test]
    fn a_library_is_meant_by_its_name_up_to_a_dot_and_by_no_other_begin() {
        let is = |query: &str, file: &str| FunctionQuery::new(query).is_of(file.as_ref());
        for (query, fits) in [
            ("f", true),
            ("libz:f", true),
            ("libz.so:f", true),
            ("libz.so.1:f", true),
            ("lib:f", false),
            ("libz.so.2:f", false),
            ("/usr/lib/libz.so.1:f", true),
            ("/lib/libz.so.1.x:f", false),
        ] {
            assert_eq!(is(query, "/usr/lib/libz.so.1"), fits, "{query}");
        }
    }
}
