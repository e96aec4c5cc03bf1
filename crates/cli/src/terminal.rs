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

/// Prints an error line to standard error.
pub fn error(message: &str) {
    let _ = writeln!(anstream::stderr(), "{} {message}", paint(BAD, "error:"));
}

/// Prints a warning line to standard error.
pub fn warning(message: &str) {
    let _ = writeln!(anstream::stderr(), "{} {message}", paint(CAUTION, "warning:"));
}
