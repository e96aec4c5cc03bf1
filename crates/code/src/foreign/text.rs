//! Text from files of others, made safe to show: what moves the cursor, changes colours or turns the
//! direction of writing is spelled out.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Text of others. Shown, it is one line in which every character stands for itself or is spelled
/// out, like `\u{1b}`.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match is_plain(c) {
            true => f.write_char(c),
            false => write!(f, "{}", c.escape_unicode()),
        })
    }
}

/// The text as [`Text`] shows it; most is that already.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    let everyday = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match everyday || text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(Text(text).to_string()),
    }
}

/// The same for a text of several lines: their ends and tabs stay.
#[must_use]
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    let stays = |c: char| matches!(c, '\n' | '\r' | '\t') || is_plain(c);
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'))
        || text.chars().all(stays)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match stays(c) {
            true => out.push(c),
            false => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

/// Bytes that should be one line of text, as [`plain`] shows it.
#[must_use]
pub fn plain_bytes(bytes: &[u8]) -> String {
    plain(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Whether a character shows itself and does nothing else: no control character, nothing that is
/// invisible or says in which direction or on which line the rest is written.
pub(super) fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_do_something_is_spelled_out() {
        let hostile = "a\u{1b}[31mb\nc\td\r\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200b}é漢";
        let shown = plain(hostile);
        assert!(shown.chars().all(is_plain), "{shown}");
        assert!(shown.starts_with("a\\u{1b}[31mb\\u{a}c"), "{shown}");
        assert!(shown.contains("\\u{202e}") && shown.ends_with("é漢"), "{shown}");
        assert!(matches!(plain("ns::f(int) [clone .cold]"), Cow::Borrowed(_)));
        assert!(matches!(plain("größe"), Cow::Borrowed(_)));
        assert_eq!(plain_lines("a\tb\r\n\u{1b}[0m"), "a\tb\r\n\\u{1b}[0m");
        assert_eq!(plain_bytes(b"a\x9b\n"), "a\u{fffd}\\u{a}");
    }
}
