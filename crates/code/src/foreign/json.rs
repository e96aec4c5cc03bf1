//! JSON of others, and JSON for terminals.

use std::borrow::Cow;
use std::fmt::Write;

use serde::de::DeserializeOwned;

use super::text::{is_plain, plain};

/// A value whose strings are safe to show: what [`plain`] spells out is spelled out in them, too.
///
/// # Errors
/// When the text is no JSON, or not of this value.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(&defused(text))
}

/// A value with its strings as they were written, for what is handed on rather than shown: commands, paths. Whoever
/// shows a part of it asks [`plain`] first.
///
/// # Errors
/// When the text is no JSON, or not of this value.
pub fn from_json_as_written<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

/// The document with a backslash more in front of every escape that stands for a character that is
/// not plain.
fn defused(text: &str) -> Cow<'_, str> {
    // Between tokens these are blanks; in a string the parser refuses them.
    let is_blank = |c: char| matches!(c, '\n' | '\r' | '\t');
    // Most is, and of bytes that is seen many at a time.
    let everyday = text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\n' | b'\r' | b'\t'));
    let is_safe = everyday || text.chars().all(|c| is_plain(c) || is_blank(c));
    if is_safe && !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            let after = rest.as_str();
            let Some(kind) = rest.next() else { break };
            if matches!(kind, 'b' | 'f' | 'n' | 'r' | 't') || kind == 'u' && !is_plain_unit(after) {
                out.push('\\');
            }
            out.push('\\');
            out.push(kind);
        } else if is_plain(c) || is_blank(c) {
            out.push(c);
        } else {
            out += &plain(c.encode_utf8(&mut [0; 4])).replace('\\', "\\\\");
        }
    }
    Cow::Owned(out)
}

/// Whether `u` and four digits stand for a plain character or for half of one beyond them, the
/// halves of invisible tags aside.
fn is_plain_unit(escape: &str) -> bool {
    let Some(unit) = escape.get(1..5).and_then(|digits| u32::from_str_radix(digits, 16).ok())
    else {
        // For the parser to refuse.
        return true;
    };
    match unit {
        0xdb40..=0xdb43 => false,
        0xd800..=0xdfff => true,
        unit => char::from_u32(unit).is_some_and(is_plain),
    }
}

/// JSON in which every character that is not plain is written as its escape: the same document, and
/// a terminal shows it as it is.
#[must_use]
pub fn escape_json(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| c == '\n' || is_plain(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' || is_plain(c) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_out_safe_and_everything_else_as_it_is() {
        let text =
            "{\"a\\u001b[2J\": [\"\\u202ex\\n\", \"\u{9b}y\", \"\\\\u001b \\\"z\\u00e9\", 1.5]}\n";
        let value: serde_json::Value = from_json(text).unwrap();
        assert_eq!(value["a\\u001b[2J"][0], "\\u202ex\\n");
        assert_eq!(value["a\\u001b[2J"][1], "\\u{9b}y");
        assert_eq!(value["a\\u001b[2J"][2], "\\u001b \"zé");
        assert_eq!(value["a\\u001b[2J"][3], 1.5);
        assert_eq!(from_json::<String>("\"\\ud83d\\ude00\"").unwrap(), "😀");
        assert!(from_json::<String>("\"\\udb40\\udc41\"").is_err());
        assert!(from_json::<String>("\"\\u12").is_err() && from_json::<String>("\"\\").is_err());
    }

    #[test]
    fn a_document_for_a_terminal_means_the_same() {
        let value = "\u{202e}\u{9b}\u{e0041}\u{7f}é";
        let text = serde_json::to_string(value).unwrap();
        let escaped = escape_json(&text);
        assert!(escaped.chars().all(is_plain), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), value);
    }
}
