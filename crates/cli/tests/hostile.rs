//! Hostile files from outside: what they name is not opened, what they hold does not reach the
//! terminal raw, what they claim takes no memory, and a limit gives a sentence.

mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use stallscope::code::fixture;
use support::{program, refused, run, stallscope};

const SECRET: &str = "TOP SECRET LINE";
const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J";
const SOURCE: &str = "long ring(long x, int n) { volatile unsigned at[32];
    for (int i = 0; i < n; i++) { at[2 * (i & 15)] = (unsigned)x;
    at[2 * (i & 15) + 1] = (unsigned)(x >> 32);
    x = *(volatile long *)&at[2 * (i & 15)] + 1; } return x; }";

fn all(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// An object file with a finding in a line of `source`.
fn compiled(folder: &Path, name: &str, source: &Path) {
    let text = format!("#line 1 \"{}\"\n{SOURCE}\n", source.display());
    fs::write(folder.join("seed.c"), text).unwrap();
    let args = ["-O2", "-g", "-c", "seed.c", "-o", name];
    assert!(Command::new("cc").current_dir(folder).args(args).status().unwrap().success());
}

#[test]
fn a_program_cannot_have_files_printed_that_the_user_did_not_name() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let secret = folder.path().join("secret.c");
    fs::write(&secret, format!("{SECRET}\n").repeat(20)).unwrap();
    compiled(&work, "p.o", &secret);
    let screen = all(&run(&work, &["scan", "p.o"]));
    assert!(screen.contains("secret.c:") && !screen.contains(SECRET), "{screen}");
    let named = folder.path().to_str().unwrap();
    let screen = all(&run(&work, &["scan", "--source-root", named, "p.o"]));
    assert!(screen.contains(SECRET), "{screen}");
    refused(&work, &["scan", "--source-root", "none", "p.o"], &["--source-root", "none"]);
    std::os::unix::fs::symlink(&secret, work.join("link.c")).unwrap();
    compiled(&work, "link.o", &work.join("link.c"));
    let screen = all(&run(&work, &["scan", "link.o"]));
    assert!(!screen.contains(SECRET), "{screen}");
}

#[test]
fn pipes_and_devices_are_refused_wherever_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert!(Command::new("mkfifo").current_dir(here).arg("pipe").status().unwrap().success());
    program(here, "p", &fixture::program(&[("ring", &fixture::ring_loop(true))]));
    for file in ["pipe", "/dev/zero"] {
        let peer = format!("8:4={file}");
        let commands: [&[&str]; 7] = [
            &["scan", file],
            &["scan", "--baseline", file, "p"],
            &["scan", "--profile", file, "p"],
            &["scan", "--profile-data", file, "p"],
            &["layout", "--measured", file, "p", "p"],
            &["trace", "--replay", file],
            &["probe", "clock", "--peer", &peer],
        ];
        for command in commands {
            refused(here, command, &["not a regular file"]);
        }
    }
}

#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here, "p", &fixture::program(&[("ring", &fixture::ring_loop(true))]));
    fs::File::create(here.join("large")).unwrap().set_len(5 << 30).unwrap();
    let commands: [&[&str]; 4] = [
        &["trace", "--replay", "large"],
        &["layout", "--windows", "large", "--windows", "large", "./p", "./p"],
        &["scan", "--baseline", "large", "p"],
        &["scan", "--profile", "large", "p"],
    ];
    for command in commands {
        refused(here, command, &["larger than the"]);
    }
}

/// Runs it; what it says holds no sequence of a terminal and no line of another's making.
fn assert_harmless(folder: &Path, command: &[&str]) {
    let shown = all(&stallscope(folder, command).env("NO_COLOR", "1").output().unwrap());
    let bad = |c: char| matches!(c, '\u{1b}' | '\u{7}' | '\u{202e}');
    assert!(!shown.contains(bad), "{command:?}: {shown:?}");
    let forged = shown.lines().any(|line| line.starts_with("error: forged"));
    assert!(!forged && !shown.trim().is_empty(), "{command:?}: {shown}");
}

#[test]
fn names_of_others_reach_no_terminal_and_no_file_raw() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let name = format!("x{ESCAPES}\u{202e}\nerror: forged");
    let ring = fixture::ring_loop(true);
    program(here, "p", &fixture::program(&[(&name, &ring)]));
    program(here, &format!("q{ESCAPES}"), &fixture::program(&[(&name, &ring)]));
    let hyperfine = serde_json::json!({"results": [{"command": name, "times": [1.0, 2.0, 3.0]}]});
    fs::write(here.join("r.json"), hyperfine.to_string()).unwrap();
    let q = format!("q{ESCAPES}");
    let commands: [&[&str]; 8] = [
        &["scan", "p"],
        &["scan", &q],
        &["scan", "--json", "-", "--sarif", "s.sarif", "p"],
        &["scan", "--diff", "p", &q],
        &["layout", "p", &q],
        &["layout", "--json", "-", "p", "p"],
        &["compare", "--kind", "results", "--markdown", "r.json", "r.json"],
        &["scan", &format!("none{ESCAPES}")],
    ];
    for command in commands {
        assert_harmless(here, command);
    }
    let text = fs::read_to_string(here.join("s.sarif")).unwrap();
    assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
}

/// Its function's name is written over with one that a compiler does not make, of the same length.
const HOSTILE: &str = "int dprintf(int, const char *, ...);
struct { unsigned half[2]; } ring[16]; unsigned long sum;
__attribute__((noinline)) void hot_AAAAAAAAAAAAAAAAAAAAAAAA(int n) { for (int i = 0; i < n; i++) {
    volatile unsigned *to = ring[i & 15].half; to[0] = i; to[1] = i; sum += *(volatile unsigned long *)to;
} }
int main(int n, char **v) {
    if (n > 1) { dprintf(2, \"%s\", v[1]); dprintf(1, \"%s\", v[1]); return 3; }
    hot_AAAAAAAAAAAAAAAAAAAAAAAA(TURNS);
}
";

#[test]
fn names_and_outputs_of_what_is_run_reach_no_terminal_raw() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let hostile = |turns: &str| {
        fs::write(here.join("h.c"), HOSTILE.replace("TURNS", turns)).unwrap();
        let args = ["-w", "-O1", "-g", "-o", "h", "h.c"];
        assert!(Command::new("cc").current_dir(here).args(args).status().unwrap().success());
        let mut bytes = fs::read(here.join("h")).unwrap();
        let (old, new) = (b"AAAAAAAAAAAAAAAAAAAAAAAA", b"\x1b]0;owned\x07\nerror: forged");
        let found: Vec<usize> =
            (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
        assert!(!found.is_empty());
        found.iter().for_each(|at| bytes[*at..at + old.len()].copy_from_slice(new));
        bytes
    };
    let (p, q) = (format!("./p{ESCAPES}"), format!("./q{ESCAPES}"));
    program(here, &p, &hostile("20000000"));
    program(here, &q, &hostile("30000000"));
    let fails = format!("'{p}' '{ESCAPES}'");
    let printed = format!("regex:{ESCAPES}([0-9]+)");
    let commands: [&[&str]; 9] = [
        &["trace", "--instructions", "20000", "--", &p],
        &["trace", "--function", "none", "--", &p],
        &["trace", "--engine", "step", "--instructions", "20000", "--json", "t.json", "--", &p],
        &["explain", "--pairs", "6", &p, &q],
        &["explain", "--pairs", "6", &p, &q, "--", ESCAPES],
        &["compare", "--pairs", "6", &p, &q],
        &["compare", "--pairs", "6", &p, &q, "--", ESCAPES],
        &["compare", "--pairs", "6", "--metric", &printed, &p, &q],
        &["sweep", "--runs", "1", "--run", &fails],
    ];
    for command in commands {
        assert_harmless(here, command);
    }
}

/// The header of an archive's member.
fn member(name: &str, size: usize) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes()
}

#[test]
fn a_damaged_archive_gives_no_half_of_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let good = fixture::program(&[("ring", &fixture::ring_loop(true))]);
    let parts: [&[u8]; 5] =
        [b"!<arch>\n", &member("good.o/", good.len()), &good, &member("bad.o/", 300), &good[..300]];
    fs::write(folder.path().join("a.a"), parts.concat()).unwrap();
    refused(folder.path(), &["scan", "a.a"], &["a.a(bad.o)", "damaged"]);
}

#[test]
fn a_small_file_takes_no_memory_for_what_it_claims() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    compiled(here, "p.o", Path::new("seed.c"));
    // Compressed sections that claim 4 GiB each.
    let args = ["--compress-debug-sections=zlib-gabi", "p.o"];
    assert!(Command::new("objcopy").current_dir(here).args(args).status().unwrap().success());
    let mut bytes = fs::read(here.join("p.o")).unwrap();
    let header = [1_u32.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    let mut claims = 0;
    for at in 64..bytes.len() - 24 {
        if bytes[at..].starts_with(&header)
            && bytes[at + 12..at + 16] == [0; 4]
            && bytes[at + 24] == 0x78
        {
            bytes[at + 12] = 1;
            claims += 1;
        }
    }
    assert!(claims > 0, "objcopy compressed nothing");
    fs::write(here.join("p.o"), bytes).unwrap();
    let output = limited(here, libc::RLIMIT_AS, 1 << 30, &["scan", "p.o"]);
    assert_eq!(output.status.code(), Some(0), "{}", all(&output));
}

/// Runs it under a limit.
fn limited(folder: &Path, resource: libc::__rlimit_resource_t, most: u64, args: &[&str]) -> Output {
    let mut command = stallscope(folder, args);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: one system call on memory of our own, between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command.output().unwrap()
}

#[test]
fn too_little_memory_is_a_sentence_and_no_abort() {
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let output =
        limited(folder.path(), libc::RLIMIT_AS, 300 << 20, &["scan", own.to_str().unwrap()]);
    let said = all(&output);
    let fine = output.status.code() == Some(0);
    assert!(fine || output.status.code() == Some(2) && said.contains("out of memory"), "{said}");
}

#[test]
fn too_few_threads_are_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here, "p", &fixture::program(&[("ring", &fixture::ring_loop(true))]));
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } == 0 {
        // Root has no such limit: as a user that runs nothing else.
        let copy = here.join("stallscope");
        fs::copy(assert_cmd::cargo::cargo_bin!("stallscope"), &copy).unwrap();
        fs::set_permissions(here, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new(copy);
        command
            .args(["scan", "p"])
            .current_dir(here)
            .env("XDG_CACHE_HOME", here.join("cache"))
            .uid(65_533);
        let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: one system call on memory of our own, between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NPROC, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", all(&output));
    } else {
        let output = limited(here, libc::RLIMIT_NPROC, 1, &["scan", "p"]);
        assert_eq!(output.status.code(), Some(0), "{}", all(&output));
    }
}

#[test]
fn arguments_stay_out_of_the_json_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["compare", "--pairs", "6", "--redact-args", "--json", "-", "true", "true"];
    let args = [&args[..], &["--", "hunter2"]].concat();
    let output = run(folder.path(), &args);
    let json = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(json.contains("[redacted]") && !json.contains("hunter2"), "{json}");
}
