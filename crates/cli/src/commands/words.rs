//! Small grammar of what is typed and shown: command lines, shares, durations.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use anyhow::{Context as _, bail};
use stallscope::compare::Decision;
use stallscope::compare::layouts::Part;
pub use stallscope::report::words::{
    change, counted, decimals, grouped, is_open, p_words, percent, row_change,
};
use stallscope::run::child::resolve_program;

use crate::terminal::{BAD, CAUTION, GOOD};

/// The words of a command line. Something that exists as a file is one word, blanks included.
///
/// # Errors
/// When a quote is not closed, or there is no word at all.
pub fn split(typed: &OsStr) -> anyhow::Result<Vec<OsString>> {
    if Path::new(typed).is_file() {
        return Ok(vec![typed.into()]);
    }
    let Some(text) = typed.to_str() else {
        // Not text: a path in another encoding, which no quoting can be meant in.
        return Ok(vec![typed.into()]);
    };
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words.into_iter().map(Into::into).collect()),
        Some(_) => bail!("an empty command: name a program"),
        None => bail!("`{text}` has a quote that is not closed"),
    }
}

/// Words that a shell knows and that are often no program.
const SHELL_WORDS: &[&str] = &[
    ".", ":", "!", "{", "cd", "command", "eval", "exec", "exit", "export", "set", "source", "trap",
    "type", "ulimit", "umask", "unset", "wait",
];

/// Whether something in a command means more to a shell than to a program: an operator, a pattern, a variable, a
/// word that only a shell knows.
pub fn needs_shell(typed: &OsStr) -> bool {
    let Some(text) = typed.to_str().filter(|_| !Path::new(typed).exists()) else { return false };
    let first = text.split_whitespace().next().unwrap_or_default();
    let sets = first.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    if sets || (SHELL_WORDS.contains(&first) && resolve_program(OsStr::new(first)).is_err()) {
        return true;
    }
    let (mut quote, mut starts_word) = (None, true);
    let mut letters = text.trim().chars();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None | Some('"'), '\\') => drop(letters.next()),
            (None | Some('"'), '$' | '`') => return true,
            (None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '[' | '\n') => {
                return true;
            }
            (None, '~' | '#') if starts_word => return true,
            _ => {}
        }
        starts_word = c.is_whitespace();
    }
    false
}

/// A command for a shell, with more arguments behind it, each as one word.
///
/// # Errors
/// When an argument cannot be quoted.
pub fn with_args(typed: &OsStr, args: &[OsString]) -> anyhow::Result<OsString> {
    let mut command = typed.to_owned();
    for arg in args {
        let text = arg.to_str().context("an argument for a shell's command is no UTF-8")?;
        command.push(" ");
        command.push(&*shlex::try_quote(text)?);
    }
    Ok(command)
}

/// A share: `1%`, `0.5 %` or `0.01`.
///
/// # Errors
/// When it is no number, or does not lie between 0 and 100 %.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text.trim(), 1.0),
    };
    let value: f64 = number.parse().map_err(|_| "write a share like 1% or 0.01".to_owned())?;
    if scale == 1.0 && value >= 0.5 {
        return Err(format!("{text} is {} %; write {text}% if you mean per cent", 100.0 * value));
    }
    if value > 0.0 && value / scale <= 1.0 {
        Ok(value / scale)
    } else {
        Err("the smallest effect of interest lies above 0 and at most at 100 %".into())
    }
}

/// A share as [`share`] reads it, in its shortest form: `1 %`, `0.5 %`.
pub fn share_words(share: f64) -> String {
    // The rounding hides that 0.01 * 100 is not always 1.
    format!("{} %", (share * 1e6).round() / 1e4)
}

/// A duration with its unit: `500ms`, `10s`, `1.5m`, `1h`.
///
/// # Errors
/// When number or unit are missing, or nothing is left of the time.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a duration with its unit, like 500ms, 10s or 2m".to_owned();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if time >= Duration::from_millis(1) => Ok(time),
        _ => Err("a time limit is at least 1ms, and not centuries".into()),
    }
}

/// A time for the eye: `0.4 s`, `12 s`, `3 min`.
pub fn rough(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A log ratio as a signed change in per cent.
pub fn signed(log: f64, decimals: usize) -> String {
    format!("{:+.decimals$} %", percent(log))
}

/// A part of a difference with its interval.
pub fn part_words(part: Part) -> String {
    change([part.low_log, part.log_ratio, part.high_log], 1)
}

/// How a word is painted.
pub fn style_of(decision: Decision) -> Style {
    match decision {
        Decision::Slower => BAD,
        Decision::Faster | Decision::Equivalent => GOOD,
        Decision::Inconclusive => CAUTION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let all = split(OsStr::new(text)).unwrap();
        all.into_iter().map(|w| w.into_string().unwrap()).collect()
    }

    #[test]
    fn command_lines_are_split_as_a_shell_would() {
        assert_eq!(words("a 'b c' \"d e\" f\\ g"), ["a", "b c", "d e", "f g"]);
        assert!(split(OsStr::new("a 'b")).unwrap_err().to_string().contains("quote"));
        assert!(split(OsStr::new(" ")).is_err());
    }

    #[test]
    fn only_what_a_shell_understands_needs_one() {
        let needs = |text: &str| needs_shell(OsStr::new(text));
        for by_itself in [
            "",
            "sleep 0.3",
            "grep 'a|b' x",
            r#"awk "a;b" f"#,
            r"find . \( -name a \)",
            "a~ b#c",
            "x {a} --n=1",
        ] {
            assert!(!needs(by_itself), "{by_itself}");
        }
        for by_shell in [
            "a|b",
            "a && b",
            "a; b",
            "a > b",
            "grep x *",
            "echo $X",
            r#"echo "$X""#,
            "cat ~/x",
            "A=1 b",
            "exit 3",
            "(a)",
        ] {
            assert!(needs(by_shell), "{by_shell}");
        }
        // In these quotes it is text, and so it is behind a backslash.
        assert!(!needs("echo '$X'") && !needs(r"echo \$X") && !needs(r#"echo "\$X""#));
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a;b");
        std::fs::write(&odd, "").unwrap();
        assert!(!needs_shell(odd.as_os_str()), "a file that is there");
    }

    #[test]
    fn a_file_with_blanks_in_its_name_is_one_word() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my program");
        std::fs::write(&path, "").unwrap();
        assert_eq!(split(path.as_os_str()).unwrap(), [path.into_os_string()]);
    }

    #[test]
    fn shares_and_durations_want_to_be_understood() {
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.5 %"), Ok(0.005));
        assert_eq!(share("0.02"), Ok(0.02));
        for wrong in ["", "x", "1", "0", "-1%", "nan", "inf%", "200%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "10", "s", "-1s", "1d", "0s", "1e300h", "nans"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rough_times_read_well() {
        let all = [400_000_000, 12_000_000_000, 180_000_000_000, 9_000_000_000_000].map(rough);
        assert_eq!(all, ["0.4 s", "12 s", "3 min", "2.5 h"]);
    }
}
