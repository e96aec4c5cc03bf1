//! Words on the screen: standard output for results, standard error for everything else.
//!
//! Colours come from `anstream`, which drops them when the stream is no terminal, when `NO_COLOR`
//! is set or when the terminal has none.

use std::fmt::Display;
use std::io::Write;

use anstyle::{AnsiColor, Style};

/// Bad news.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Good news.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Needs a second look.
pub const CAUTION: Style = AnsiColor::Yellow.on_default();
/// What the eye should find first.
pub const STRONG: Style = Style::new().bold();
/// What the eye may skip.
pub const FAINT: Style = Style::new().dimmed();

/// `text` in `style`.
pub fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes `text` to standard output as it is.
///
/// # Errors
/// When standard output cannot be written, a closed pipe included.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes `text` to standard error as it is: for a command whose standard output belongs to the
/// program that it runs.
pub fn print_beside(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Prints an error line to standard error.
pub fn error(message: &str) {
    let _ = writeln!(anstream::stderr(), "{} {message}", paint(BAD, "error:"));
}

/// Prints a warning line to standard error.
pub fn warning(message: &str) {
    let _ = writeln!(anstream::stderr(), "{} {message}", paint(CAUTION, "warning:"));
}

/// Prints a note to standard error.
pub fn note(message: &str) {
    let _ = write!(anstream::stderr(), "{}", wrap("note: ", message));
}

/// How wide screens are, at the most.
pub const WIDTH: usize = 80;

/// Lines of at most `width` columns, broken at blanks only.
pub fn break_at_spaces<'a>(width: usize) -> textwrap::Options<'a> {
    textwrap::Options::new(width)
        .break_words(false)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
}

/// `text` broken to the screen's width; the first line starts with `first`, the others with as many
/// blanks. Words longer than a line (paths, symbols) stay whole.
pub fn wrap(first: &str, text: &str) -> String {
    let blanks = " ".repeat(first.chars().count());
    let options = break_at_spaces(WIDTH).initial_indent(first).subsequent_indent(&blanks);
    textwrap::fill(text, options) + "\n"
}

/// A screen without colours, for golden tests; no line may be wider than the screen.
#[cfg(test)]
pub fn plain(screen: &str) -> String {
    let text = anstream::adapter::strip_str(screen).to_string();
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_text_hangs_under_its_label() {
        let text = wrap("why      ", &"word ".repeat(20));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|l| l.len() <= WIDTH));
        assert!(lines[0].starts_with("why      word") && lines[1].starts_with("         word"));
    }
}
