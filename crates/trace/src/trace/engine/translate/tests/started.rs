//! Windows that start after a part of a run's time, wherever it is then.

use super::*;

fn after(ms: u64) -> Window {
    let length = Length::Instructions(100_000);
    let start = Start::After(Duration::from_millis(ms));
    Window { start, skip: 0, length, memory: true, budget: None }
}

#[test]
fn a_window_that_starts_in_the_midst_of_a_run() {
    let count = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo $i";
    let busy = launch(Path::new("/bin/sh"), &["-c", count]);
    let (events, recording) = record(&busy, &after(5), false);
    assert_eq!(recording.ended, Ended::Length, "{:?}", recording.notes);
    assert!(events.insns.len() >= 100_000);
    assert_eq!(end_of(&recording).0, Status::Code(0));
    // No run takes so long: it ends as it is, and that is said.
    let program = built("integer.c", "gcc", &[]);
    let limits = Limits { timeout: Some(Duration::from_secs(60)), ..Limits::default() };
    let error = Translate
        .record(&launch(&program, &[]), &after(600_000), limits, &mut Events::default())
        .unwrap_err();
    assert!(matches!(error, EngineError::NeverStarted(_)), "{error}");
}

#[test]
fn a_window_starts_in_code_made_at_run_time_whatever_other_threads_do() {
    let program = built("made.c", "gcc", &["-pthread"]);
    let start = Start::AfterInMadeCode(Duration::from_millis(5));
    let window = Window { start, ..after(0) };
    let (events, recording) = record(&launch(&program, &[]), &window, false);
    assert_eq!(end_of(&recording).0, Status::Code(0));
    let first = events.insns[0].0.address;
    let is_in_file = crate::trace::engine::Mapping::find(&recording.mappings, first)
        .is_some_and(|(mapping, _)| mapping.path.is_absolute());
    assert!(!is_in_file, "{first}");
    // It never comes there.
    let elsewhere = launch(&program, &["elsewhere"]);
    let error = Translate
        .record(&elsewhere, &window, Limits::default(), &mut Events::default())
        .unwrap_err();
    assert!(error.to_string().contains("no thread was in code without a file"), "{error}");
}

/// Neither the child nor its parent sees that a copy was made of it.
#[test]
fn a_window_that_starts_in_the_process_at_work() {
    let program = built("in_child.c", "gcc", &[]);
    for how in ["fork", "spawn"] {
        let launch = launch(&program, &[how]);
        let native = untraced(&launch);
        assert_eq!(native.0, Status::Code(4));
        let (events, recording) = record(&launch, &after(5), false);
        assert_eq!((recording.engine, recording.ended), ("translate", Ended::Length));
        assert!(
            events.insns.len() >= 100_000 && matches!(recording.self_check, SelfCheck::Equal(_))
        );
        assert!(
            recording
                .mappings
                .iter()
                .any(|mapping| mapping.path == program.canonicalize().unwrap())
        );
        assert_eq!(end_of(&recording), native);
    }
}
