//! The trace engines on real programs: what they tell is what was executed.
#![cfg(target_arch = "x86_64")]

mod programs;
mod recorder;

use programs::Program;
use recorder::{record, window};
use stallscope::trace::child::Status;
use stallscope::trace::engine::{ENGINES, Ended};

#[test]
fn a_window_of_calls_is_followed_and_the_command_ends_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program { name: "calls", source: "calls.c", flags: &[], needs: None };
    if !program.runs_here() {
        return;
    }
    let path = program.build(folder.path());
    for engine in ENGINES {
        let (recording, _) = record(*engine, &path, &window(&path, 2, 3)).unwrap();
        assert_eq!(recording.ended, Ended::Length);
        assert_eq!(recording.exit.status, Status::Code(3));
        assert_eq!(recording.exit.stdout.tail, "495\n");
    }
}
