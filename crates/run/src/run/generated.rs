//! Names of code that was made at run time: the files `/tmp/perf-PID.map`, which runtimes write for `perf`.
//!
//! Names are told without the folders of their source, and without its line where they are names of functions: these differ from
//! build to build.
//!
//! Each line is a start address, a size, both in hexadecimal, and a name (node: `--perf-basic-prof`; Java: `jcmd PID
//! Compiler.perfmap`; Python 3.12: `-X perf`; .NET: `DOTNET_PerfMapEnabled=1`). Code that replaces other code is written behind
//! it, so later lines count.
//! Literature: Linux, `tools/perf/Documentation/jit-interface.txt`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use super::maps::AddressSpace;
use crate::model::{Avma, FileOffset};

/// What is read of one file; long runs of large programs write some ten megabytes.
const MOST_BYTES: u64 = 256 << 20;
/// Longer names are cut.
const MOST_NAME_BYTES: usize = 400;

/// Which code of a process has which name.
#[derive(Clone, Debug, Default)]
pub struct GeneratedCode {
    names: Vec<String>,
    space: AddressSpace<u32>,
}

impl GeneratedCode {
    /// What these processes wrote since `since`; files of others, and of processes that had the same number before, are left
    /// alone.
    pub fn of_processes(pids: &BTreeSet<i32>, since: SystemTime) -> Self {
        let mut all = Self::default();
        for pid in pids {
            let Ok(file) = File::open(format!("/tmp/perf-{pid}.map")) else { continue };
            let is_ours = file.metadata().is_ok_and(|it| {
                // SAFETY: reads a number of this process.
                let user = unsafe { libc::geteuid() };
                it.is_file()
                    && [user, 0].contains(&it.uid())
                    && it.modified().is_ok_and(|at| at >= since)
            });
            if is_ours {
                all.read(BufReader::new(file.take(MOST_BYTES)));
            }
        }
        all
    }

    /// Reads lines; those that make no sense are left out.
    pub fn read(&mut self, mut lines: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match lines.read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return,
            }
            let text = String::from_utf8_lossy(&line);
            if let Some((start, bytes, name)) = parse(&text) {
                let number = self.names.len() as u32;
                self.names.push(name);
                self.space.map(start, bytes, FileOffset(0), number);
            }
        }
    }

    /// The name of the code at an address.
    #[must_use]
    pub fn name(&self, at: Avma) -> Option<&str> {
        let (number, _) = self.space.locate(at)?;
        self.names.get(number as usize).map(String::as_str)
    }
}

/// A line; `None` for one that makes no sense.
fn parse(line: &str) -> Option<(Avma, u64, String)> {
    let mut words = line.trim_end().splitn(3, ' ');
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (start, bytes, name) = (hex(words.next()?)?, hex(words.next()?)?, words.next()?.trim());
    let mut shown: String = name.chars().filter(|c| !c.is_control()).collect();
    if let Some(kept) = without_folders(&shown) {
        shown = kept;
    }
    let end = (0..=MOST_NAME_BYTES).rev().find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
    shown.truncate(end);
    (bytes > 0 && !shown.is_empty()).then_some((Avma(start), bytes, shown))
}

/// A name with the path of its source, as `JS:*sum /a/b.js:3:1` or `py::sum:/a/b.py`, without its folders.
fn without_folders(name: &str) -> Option<String> {
    let starts = [" file:///", " /", ":/"].map(|mark| name.find(mark).map(|at| (at, mark)));
    let (at, mark) = starts.into_iter().flatten().min()?;
    let (function, path) = (&name[..=at], &name[at + mark.len() - 1..]);
    let file = path.rsplit('/').next()?;
    let has_name =
        function.trim_end().ends_with(|c: char| c.is_alphanumeric() || "_$>".contains(c));
    let mut kept = file;
    while let Some((rest, line)) = kept.rsplit_once(':').filter(|_| has_name)
        && !line.is_empty()
        && line.bytes().all(|c| c.is_ascii_digit())
    {
        kept = rest;
    }
    Some(format!("{function}{kept}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> GeneratedCode {
        let mut code = GeneratedCode::default();
        code.read(text.as_bytes());
        code
    }

    #[test]
    fn names_are_those_of_the_latest_code_at_an_address() {
        let code = of("1000 20 JS:*first a.js:1\n0x1020 0x10 second\n1010 8 third");
        let at = |address| code.name(Avma(address));
        assert_eq!((at(0x1000), at(0x100f)), (Some("JS:*first a.js:1"), Some("JS:*first a.js:1")));
        assert_eq!((at(0x1010), at(0x1018)), (Some("third"), Some("JS:*first a.js:1")));
        assert_eq!((at(0x1020), at(0x1030), at(0xfff)), (Some("second"), None, None));
    }

    #[test]
    fn names_lose_what_differs_from_build_to_build() {
        let of = |name: &str| parse(&format!("10 1 {name}")).unwrap().2;
        assert_eq!(of("JS:*sum /tmp/v1/app.js:20:13"), "JS:*sum app.js");
        assert_eq!(of("JS:~sum file:///tmp/v2/app.mjs:21:13"), "JS:~sum app.mjs");
        assert_eq!(of("JS:^ /tmp/v1/app.js:20:13"), "JS:^ app.js:20:13", "it has no other name");
        assert_eq!(of("py::<module>:/a/b.py"), "py::<module>:b.py");
        assert_eq!(of("Lcom/a/Bar;::get"), "Lcom/a/Bar;::get");
        assert_eq!(of("Builtin:ArrayMap"), "Builtin:ArrayMap");
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out_and_names_are_made_fit_to_be_shown() {
        let long = "é".repeat(MOST_NAME_BYTES);
        let text = format!(
            "\nnonsense\n10 zz name\n10 0 empty\n10 1\n20 1 \u{1b}[31mred\u{7}\n30 1 {long}\nffffffffffffffff 10 top\n"
        );
        let code = of(&text);
        assert_eq!(code.name(Avma(0x10)), None);
        assert_eq!(code.name(Avma(0x20)), Some("[31mred"));
        assert_eq!(code.name(Avma(0x30)).unwrap().len(), MOST_NAME_BYTES);
    }

    #[test]
    fn files_from_before_the_run_are_not_read() {
        // Beyond what any kernel gives a process.
        let pid = i32::MAX;
        let path = format!("/tmp/perf-{pid}.map");
        std::fs::write(&path, "1000 10 made\n").unwrap();
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let name = |since| {
            let code = GeneratedCode::of_processes(&[pid].into(), since);
            code.name(Avma(0x1000)).map(str::to_owned)
        };
        let before = written - std::time::Duration::from_secs(1);
        let (found, late) = (name(before), name(written + std::time::Duration::from_secs(1)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((found.as_deref(), late), (Some("made"), None));
    }
}
