//! Windows that end otherwise than at the length asked for, and what is refused.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stallscope::model::Svma;
use stallscope::run::child::{Limits, Status};
use stallscope::trace::engine::{Ended, EngineError, Length, Start, Window};

use crate::available::engines;
use crate::programs::Program;
use crate::recorder::{Recorder, function, launch, record, window};

fn ending(folder: &Path, how: &'static [&'static str]) -> std::path::PathBuf {
    Program { flags: how, ..Program::named("endings", "endings.c") }.build(folder)
}

#[test]
fn a_crash_an_exit_and_an_exec_in_the_window_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], Ended, Status, &str); 3] = [
        (&["-DHOW=1"], Ended::Signal(libc::SIGSEGV), Status::Signal(libc::SIGSEGV), "before\n"),
        (&["-DHOW=2"], Ended::Exit, Status::Code(7), "before\n"),
        (&["-DHOW=3"], Ended::Exec, Status::Code(0), "before\nreplaced\n"),
    ];
    for (how, ended, status, output) in cases {
        let path = ending(folder.path(), how);
        for engine in engines() {
            let (recording, steps) = record(engine, &path, &window(&path, 0, 1)).unwrap();
            assert_eq!(recording.ended, ended, "{how:?}");
            assert_eq!(recording.exit.as_ref().unwrap().status, status, "{how:?}");
            assert_eq!(recording.exit.as_ref().unwrap().stdout.tail, output, "{how:?}");
            // The faulting store is the first instruction, and was not executed.
            let first = steps.first().map(|s| s.address & 0xfff);
            let start = function(&path, "window").0 & 0xfff;
            assert!(first == Some(start) || first.is_none() && how == ["-DHOW=1"], "{how:?}");
            assert!(recording.mappings.iter().any(|m| m.path.ends_with("endings")), "{how:?}");
        }
    }
}

#[test]
fn children_and_output_of_the_window_come_once() {
    let folder = tempfile::tempdir().unwrap();
    for (how, output) in [("-DHOW=4", "before\n6\n"), ("-DHOW=5", "before\nwritten\n1\n")] {
        let how: &'static [&'static str] =
            if how == "-DHOW=4" { &["-DHOW=4"] } else { &["-DHOW=5"] };
        let path = ending(folder.path(), how);
        for engine in engines() {
            let (recording, _) = record(engine, &path, &window(&path, 0, 1)).unwrap();
            assert_eq!(recording.ended, Ended::Length, "{how:?}");
            assert_eq!(recording.exit.as_ref().unwrap().stdout.tail, output, "{how:?}");
        }
    }
}

#[test]
fn a_window_that_never_starts_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = ending(folder.path(), &[]);
    for engine in engines() {
        let said = |window: &Window| record(engine, &path, window).unwrap_err().to_string();
        assert!(said(&window(&path, 5, 1)).contains("came to its start 1 times"));
        let at = |object: Option<&str>, svma| Window {
            start: Start::At { object: object.map(Into::into), svma: Svma(svma) },
            skip: 0,
            length: Length::Calls(1),
            memory: true,
            budget: None,
        };
        assert!(said(&at(None, 0xdead_0000)).contains("in no executable part"));
        assert!(said(&at(Some("libnone.so.1"), 0x1000)).contains("was never loaded"));
    }
}

#[test]
fn an_interrupt_and_a_limit_end_the_command() {
    static STOP: AtomicBool = AtomicBool::new(true);
    static GO: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let path = Program::named("recursion", "recursion.c").build(folder.path());
    let window = window(&path, 0, 1);
    for engine in engines() {
        let run = |limits| engine.record(&launch(&path), &window, limits, &mut Recorder::default());
        let stopped = run(Limits { timeout: None, interrupt: &STOP });
        assert!(matches!(stopped, Err(EngineError::Child(_))));
        let late = run(Limits { timeout: Some(Duration::from_nanos(1)), interrupt: &GO });
        assert!(matches!(late, Err(EngineError::Child(_))));
    }
}
