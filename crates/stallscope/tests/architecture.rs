//! The arrows between rooms point one way.
//!
//! Reads every `crate::` path in the crates of the library and fails when a room names a room below it
//! in the list, when a room is missing from the list, or when anything but the command line
//! uses `report`. Also holds the rules that keep rooms honest: no printing, no process
//! started outside `run`, `trace` and `compare`, `unsafe` only where the hardware is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms in the order in which data goes through them. `report` comes last and is
/// imported by no other room.
const ROOMS: &[&str] = &[
    "foreign", "model", "stats", "machine", "code", "hazards", "clock", "run", "import", "trace",
    "sim", "probes", "layout", "compare", "counted", "explain", "report",
];

/// The crates of the library.
const CRATES: &[&str] = &["code", "run", "trace", "probes", "compare", "stallscope"];

/// Rooms that may hold `unsafe`: they talk to the processor or to the kernel.
const UNSAFE_ROOMS: &[&str] = &["clock", "run", "trace", "probes"];

/// Rooms that may start a process.
const SPAWNING_ROOMS: &[&str] = &["run", "trace", "compare"];

fn source_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src")
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("source folder is readable") {
        let path = entry.expect("entry is readable").path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Every file of the library: (room, path for messages, text without comment lines).
fn files() -> Vec<(String, String, String)> {
    CRATES.iter().flat_map(|name| files_of(&source_of(name))).collect()
}

fn files_of(root: &Path) -> Vec<(String, String, String)> {
    let mut paths = Vec::new();
    rust_files(root, &mut paths);
    paths.sort();
    paths
        .into_iter()
        .filter_map(|path| {
            let relative = path.strip_prefix(root).expect("below the root");
            let first = relative.components().next()?.as_os_str().to_str()?;
            let room = first.trim_end_matches(".rs").to_owned();
            let text = fs::read_to_string(&path).expect("source is readable");
            let code: String = text
                .lines()
                .filter(|l| !l.trim_start().starts_with("//"))
                .fold(String::new(), |acc, l| acc + l + "\n");
            (room != "lib").then(|| (room, relative.display().to_string(), code))
        })
        .collect()
}

/// Every file of the library and of the command line.
fn all_files() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for name in CRATES.iter().chain(&["cli"]) {
        rust_files(&source_of(name), &mut paths);
    }
    paths
}

fn rank(room: &str) -> Option<usize> {
    ROOMS.iter().position(|r| *r == room)
}

/// Room names behind each `crate::` in `code`, also inside a braced group.
fn imported_rooms(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate::`, `stallscope_crate::` and the like are not ours.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(group) => {
                let group = &group[..group.find("};").unwrap_or(group.len())];
                top_level_items(group)
            }
            None => vec![rest],
        };
        for name in names {
            let word: String = name
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if rank(&word).is_some() {
                found.push(word);
            }
        }
    }
    found
}

/// The comma-separated items of a use group, ignoring commas inside nested braces.
fn top_level_items(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&group[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    items.push(&group[start..]);
    items
}

#[test]
fn arrows_point_one_way() {
    let mut wrong = Vec::new();
    for (room, path, code) in files() {
        let Some(own) = rank(&room) else {
            wrong.push(format!("{path}: `{room}` is not a room in the list"));
            continue;
        };
        for other in imported_rooms(&code) {
            let target = rank(&other).expect("filtered above");
            if target > own {
                wrong.push(format!("{path}: room `{room}` must not know `{other}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_command_line_uses_report() {
    for (room, path, code) in files() {
        let uses = imported_rooms(&code).iter().any(|r| r == "report");
        assert!(!uses || room == "report", "{path}: `report` is for the command line alone");
    }
}

/// What a page may ask: the text of a document, the types that it is of, and arithmetic.
const ROOMS_OF_PAGES: &[&str] = &[
    "foreign", "model", "stats", "machine", "sim", "probes", "layout", "compare", "counted",
    "explain", "report",
];

#[test]
fn pages_come_from_documents_and_escape_what_they_show() {
    let of_pages = files().into_iter().filter(|(_, path, _)| path.starts_with("report/page"));
    for (_, path, code) in of_pages.filter(|(_, path, _)| !path.ends_with("tests.rs")) {
        for room in imported_rooms(&code) {
            assert!(
                ROOMS_OF_PAGES.contains(&room.as_str()),
                "{path}: a page must not ask `{room}`"
            );
        }
        assert!(!code.contains("escape = "), "{path}: every template escapes");
    }
    for entry in fs::read_dir(source_of("stallscope").join("../templates")).expect("templates") {
        let path = entry.expect("entry is readable").path();
        let text = fs::read_to_string(&path).expect("template is readable");
        for word in ["|safe", "| safe", "escape(\"none", "<script", "http"] {
            let stripped = text.replace("http-equiv", "");
            assert!(!stripped.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn the_library_never_prints() {
    for (_, path, code) in files() {
        for word in ["println!", "eprintln!", "print!(", "eprint!("] {
            assert!(!code.contains(word), "{path}: the library never prints ({word})");
        }
    }
}

/// The text of a file up to its tests.
fn without_tests(code: &str) -> &str {
    code.split("#[cfg(test)]").next().unwrap_or(code)
}

/// All code of the library and of the command line, without comments and tests: (path, text).
fn all_code() -> Vec<(String, String)> {
    all_files()
        .into_iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("source is readable");
            let code: Vec<&str> = without_tests(&text)
                .lines()
                .filter(|l| !l.trim_start().starts_with("//"))
                .collect();
            (path.display().to_string(), code.join("\n"))
        })
        .collect()
}

/// Files that open others by a name which no input can choose: the kernel's, our own, and the
/// programs that are run.
const OTHER_DOORS: &[&str] = &[
    "/src/clock/",
    "/src/machine/facts.rs",
    "/src/run/",
    "/src/trace/engine/",
    "/src/trace/whole_file.rs",
    "/src/compare/",
    "/src/foreign/file.rs",
    "/src/foreign/process.rs",
    "/commands/probe/wide.rs",
];

#[test]
fn files_that_input_names_are_opened_through_one_door() {
    for (path, code) in all_code() {
        if OTHER_DOORS.iter().any(|door| path.contains(door)) && !path.contains("/results/") {
            continue;
        }
        for word in ["File::open(", "fs::read(", "fs::read_to_string(", "OpenOptions"] {
            let stripped = code.replace(&format!("foreign::{word}"), "");
            assert!(!stripped.contains(word), "{path}: {word}: use `foreign::open` or `read`");
        }
    }
}

#[test]
fn bytes_and_json_of_others_become_text_that_is_safe_to_show() {
    const READERS: [&str; 7] = [
        "/src/code/",
        "/src/hazards/",
        "/src/machine/profile.rs",
        "/src/import/",
        "/src/trace/recorded/",
        "/src/compare/results/",
        "/commands/",
    ];
    for (path, code) in all_code() {
        if !path.contains("/src/foreign/") {
            assert!(!code.contains("serde_json::from_str"), "{path}: use `foreign::from_json`");
        }
        if READERS.iter().any(|reader| path.contains(reader)) {
            assert!(
                !code.contains("String::from_utf8_lossy"),
                "{path}: use `foreign::plain_bytes`"
            );
        }
    }
}

#[test]
fn the_terminal_is_written_in_one_place() {
    for (path, code) in all_code() {
        let is_it = path.ends_with("cli/src/terminal.rs");
        for word in ["anstream::", "io::stdout", "io::stderr", "STDOUT_FILENO"] {
            assert!(is_it || !code.contains(word), "{path}: {word}: use `terminal::print`");
        }
    }
}

#[test]
fn processes_are_started_only_where_runs_are_watched() {
    for (room, path, code) in files() {
        let starts = ["process::Command", "libc::fork", "unistd::fork", "fork()"]
            .iter()
            .any(|w| code.contains(w));
        assert!(
            !starts || SPAWNING_ROOMS.contains(&room.as_str()),
            "{path}: room `{room}` must not start a process"
        );
    }
}

#[test]
fn unsafe_stays_where_the_hardware_is() {
    for (room, path, code) in files() {
        let has =
            code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl");
        assert!(
            !has || UNSAFE_ROOMS.contains(&room.as_str()),
            "{path}: room `{room}` must not hold unsafe code"
        );
    }
}

#[test]
fn every_file_opens_with_what_it_owns_and_stays_readable() {
    let mut wrong = BTreeMap::new();
    for path in all_files() {
        let text = fs::read_to_string(&path).expect("source is readable");
        if !text.starts_with("//!") {
            wrong.insert(path.clone(), "does not open with `//!`".to_owned());
        }
        let lines = text.lines().count();
        let is_table = text.lines().next().is_some_and(|l| l.contains("(table)"));
        if lines > 600 && !is_table {
            wrong
                .insert(path, format!("{lines} lines: it is a table (say so on top) or two rooms"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_changelog_opens_with_the_version_at_hand() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CHANGELOG.md");
    let text = fs::read_to_string(path).expect("changelog is readable");
    let heading = text.lines().find(|l| l.starts_with("## "));
    let version = concat!("## [", env!("CARGO_PKG_VERSION"), "] - ");
    assert!(heading.is_some_and(|h| h.starts_with(version)), "{heading:?}");
}

#[test]
fn the_reader_of_imports_sees_through_groups() {
    let code = "use crate::{model::{Site, Svma}, report};\nuse crate::clock::Clock;\nlet x = crate::sim::run();";
    assert_eq!(imported_rooms(code), ["model", "report", "clock", "sim"]);
}
