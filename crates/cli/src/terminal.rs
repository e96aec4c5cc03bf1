//! Words on the screen: standard output for results, standard error for everything else.
//!
//! Colours come from `anstream`, which drops them when the stream is no terminal, when `NO_COLOR`
//! is set or when the terminal has none.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use stallscope::foreign::plain_lines;

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

/// The text with everything spelled out that does something in a terminal and is not one of the
/// styles above, ends of lines and tabs aside. What others wrote was made safe where it was read
/// (`stallscope::foreign`); this is for what that missed.
fn safe(text: &str) -> String {
    let own: Vec<String> = [BAD, GOOD, CAUTION, STRONG, FAINT]
        .iter()
        .flat_map(|style| [style.render().to_string(), style.render_reset().to_string()])
        .collect();
    let mut out = String::with_capacity(text.len());
    let mut pieces = text.split('\u{1b}');
    out += &plain_lines(pieces.next().unwrap_or_default());
    for piece in pieces {
        // A style can be several sequences: each begins with what was split off.
        let sequence = piece.split_inclusive('m').next().unwrap_or_default();
        let is_own = own.iter().any(|o| o.split('\u{1b}').any(|s| !s.is_empty() && s == sequence));
        out += if is_own { "\u{1b}" } else { "\\u{1b}" };
        out += &plain_lines(piece);
    }
    out
}

/// Writes `text` to standard output.
///
/// # Errors
/// As [`written`].
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    written(out.write_all(safe(text).as_bytes()))
}

/// What came of writing to standard output. Where its reader is gone (`| head -1`), the command goes on without: its exit
/// code is an answer, too.
///
/// # Errors
/// When standard output cannot be written; [`io::Error`] does not say what, so this does.
pub fn written(outcome: io::Result<()>) -> anyhow::Result<()> {
    match outcome.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes `text` to standard error: for a command whose standard output belongs to the
/// program that it runs.
pub fn print_to_stderr(text: &str) {
    let _ = anstream::stderr().lock().write_all(safe(text).as_bytes());
}

/// A message that can hold a path or a line of another program: what follows its first line is
/// indented, so that no line of it passes for one of ours.
fn message_lines(message: &str) -> String {
    plain_lines(message).replace('\r', "").replace('\n', "\n  ")
}

/// Prints an error line to standard error.
pub fn error(message: &str) {
    let _ = writeln!(anstream::stderr(), "{} {}", paint(BAD, "error:"), message_lines(message));
}

/// Prints a warning line to standard error.
pub fn warning(message: &str) {
    let message = message_lines(message);
    let _ = writeln!(anstream::stderr(), "{} {message}", paint(CAUTION, "warning:"));
}

/// Prints a note to standard error.
pub fn note(message: &str) {
    let _ = write!(anstream::stderr(), "{}", wrap("note: ", &message_lines(message)));
}

/// How wide screens are where nothing tells, and at the least.
const WIDTH: usize = 80;
/// Longer lines are hard to read.
const MOST_WIDTH: usize = 120;

/// What was found to be the width of the terminal.
static FOUND: OnceLock<usize> = OnceLock::new();

/// Makes screens as wide as the terminal from now on, between these; in files and pipes they are always the same.
pub fn fit_to_terminal() {
    if let Some((columns, _)) = terminal_size::terminal_size_of(io::stdout()) {
        FOUND.get_or_init(|| usize::from(columns.0).clamp(WIDTH, MOST_WIDTH));
    }
}

/// How wide screens are.
pub fn width() -> usize {
    FOUND.get().copied().unwrap_or(WIDTH)
}

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
    let options = break_at_spaces(width()).initial_indent(first).subsequent_indent(&blanks);
    textwrap::fill(text, options) + "\n"
}

/// At most `width` characters; what is cut off is marked.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
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
    fn our_own_styles_pass_and_no_other_sequence_does() {
        let text = format!("{} {}\tx\n", paint(BAD, "bad"), paint(FAINT, "faint"));
        assert_eq!(safe(&text), text);
        let hostile = "\u{1b}[2J\u{1b}]0;title\u{7}\u{1b}[35mx\u{9b}2J\u{202e}\r";
        let shown = safe(hostile);
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}']), "{shown}");
        assert_eq!(message_lines("no file a\nerror: b"), "no file a\n  error: b");
    }

    #[test]
    fn wrapped_text_hangs_under_its_label() {
        let text = wrap("why      ", &"word ".repeat(20));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|l| l.len() <= WIDTH));
        assert!(lines[0].starts_with("why      word") && lines[1].starts_with("         word"));
    }
}
