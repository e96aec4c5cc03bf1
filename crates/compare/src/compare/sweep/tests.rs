//! Sweeps of small shell programs: what is built, what is kept, what is refused. No claim about time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::run::child::NEVER;

fn settings(build: Option<&str>, run: &str) -> SweepSettings {
    SweepSettings {
        build: build.map(str::to_owned),
        rounds: Some(2),
        seed: 5,
        timeout_ms: Some(60_000),
        ..SweepSettings::new(Axis::parse("word", "one,two").unwrap(), run)
    }
}

struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn folders(&self) -> Folders {
        let sources = self.folder.path().join("src");
        std::fs::create_dir_all(&sources).unwrap();
        Folders { cache: self.folder.path().join("cache"), sources: vec![sources], fresh: false }
    }

    fn sweep(&self, settings: &SweepSettings) -> Result<SweepReport, SweepError> {
        sweep(settings, &self.folders(), &NEVER, &|_| {})
    }

    fn complaint(&self, settings: &SweepSettings) -> String {
        self.sweep(settings).unwrap_err().to_string()
    }
}

const SCRIPT: &str = "printf '#!/bin/sh\\n: {word} {layout}\\n' > {out} && chmod +x {out}";

#[test]
fn every_cell_is_built_and_run_in_every_round() {
    let place = Workspace::new();
    let mut wanted = settings(Some(SCRIPT), "{out}");
    wanted.layouts = 3;
    let built = Mutex::new(0);
    let report = sweep(&wanted, &place.folders(), &NEVER, &|stage| {
        if let Stage::Building { of, .. } = stage {
            *built.lock().unwrap() = of;
        }
    })
    .unwrap();
    assert_eq!(*built.lock().unwrap(), 8);
    assert_eq!((report.cells.len(), report.runs.len()), (8, 16));
    assert!(report.cells.iter().all(|c| c.program.is_some()));
    for round in 0..2 {
        let cells: std::collections::BTreeSet<Cell> =
            report.runs.iter().filter(|r| r.round == round).map(|r| r.cell).collect();
        assert_eq!(cells.len(), 8);
    }
    assert_eq!(report.comparisons.len(), 1);
    assert!(report.comparisons[0].levels[0].split.is_some());
    // The second time everything is there already.
    let again = place.sweep(&wanted).unwrap();
    // What a build took stays known, or a plan from cached builds would measure less.
    let took = |r: &SweepReport| r.cells.iter().map(|c| c.build_ns).collect::<Vec<_>>();
    assert!(again.cells.iter().all(|c| c.cached && c.build_ns > 0));
    assert_eq!(took(&again), took(&report));
    // Runs of the same builds add up.
    assert_eq!((again.runs.len(), again.earlier_runs), (32, 16));
    assert_eq!(again.runs[..16], report.runs);
    let rounds: Vec<u32> = again.runs.iter().map(|r| r.round).collect();
    assert!(rounds.is_sorted() && rounds.last() == Some(&3));
    // The placements of one seed are the same builds; `fresh` measures them anew, with the same order.
    let folders = Folders { fresh: true, ..place.folders() };
    let fresh = sweep(&wanted, &folders, &NEVER, &|_| {}).unwrap();
    let order = |r: &SweepReport| r.runs.iter().map(|run| run.cell).collect::<Vec<_>>();
    assert_eq!((order(&fresh), fresh.earlier_runs), (order(&report), 0));
    // Other sources, other builds; these happen to be the same bytes, and yet not what was asked about.
    std::fs::write(place.folder.path().join("src/new.c"), "x").unwrap();
    let other = place.sweep(&wanted).unwrap();
    assert!(other.cells.iter().all(|c| !c.cached) && other.earlier_runs == 0);
}

#[test]
fn a_failing_build_is_a_missing_cell_with_its_log() {
    let place = Workspace::new();
    let build = "test {word} = one || { echo no such flag >&2; exit 3; }; ".to_owned() + SCRIPT;
    let report = place.sweep(&settings(Some(&build), "{out}")).unwrap();
    let failed: Vec<&CellRecord> = report.cells.iter().filter(|c| c.failure.is_some()).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].failure.as_ref().unwrap().contains("exit code 3: no such flag"));
    let log = std::fs::read_to_string(failed[0].log.as_ref().unwrap()).unwrap();
    assert!(log.contains("no such flag") && log.contains("$ test two"), "{log}");
    assert!(report.comparisons[0].levels.is_empty());
}

#[test]
fn templates_that_cannot_work_are_refused_before_anything_is_built() {
    let place = Workspace::new();
    let said = |build: Option<&str>, run: &str| place.complaint(&settings(build, run));
    assert!(said(Some("true"), "{out}").contains("does not name {out}"));
    assert!(said(Some(SCRIPT), "true").contains("would not be run"));
    assert!(said(None, "{out}").contains("no --build"));
    assert!(said(Some("{cxx} -o {out}"), "{out}").contains("`{cxx}`"));
    assert!(said(Some(SCRIPT), "'{out}").contains("quote"));
    assert!(said(Some("true {out}"), "{out}").contains("wrote nothing to {out}"));
    assert!(said(Some(": > {out}"), "{out}").contains("empty file"));
    assert!(said(None, "/no/such/program {word}").contains("/no/such/program"));
    assert!(said(None, "sh -c 'echo bad >&2; exit 4'").contains("exit code 4; bad"));
    let mut placed = settings(Some("printf '#!/bin/sh\\n' > {out}; chmod +x {out}"), "{out}");
    placed.layouts = 4;
    assert!(place.complaint(&placed).contains("does not reach the linker"));
    placed.build = None;
    placed.run = "true".into();
    assert!(place.complaint(&placed).contains("--layouts needs --build"));
}

#[test]
fn cells_of_one_build_build_it_once() {
    let place = Workspace::new();
    let built = place.folder.path().join("built");
    // The axis is in the run alone: all of its values are one file, asked for at the same time.
    let build = format!(
        "echo x >> {}; sleep 0.1; printf '#!/bin/sh\\n' > {{out}} && chmod +x {{out}}",
        built.display()
    );
    let mut wanted = settings(Some(&build), "{out} {word}");
    wanted.axes = vec![Axis::parse("word", "one,two,three,four").unwrap()];
    let report = place.sweep(&wanted).unwrap();
    assert_eq!(std::fs::read_to_string(&built).unwrap(), "x\n");
    assert_eq!(report.cells.iter().filter(|c| !c.cached).count(), 1);
    // The same file with other arguments is not the same thing twice.
    assert!(!report.notes.iter().any(|n| matches!(n, SweepNote::SameVariants { .. })));
    assert!(report.cells.iter().all(|c| c.program == report.cells[0].program));
}

#[test]
fn a_sweep_that_was_stopped_goes_on_where_it_was() {
    let place = Workspace::new();
    let mut wanted = settings(None, "true {word}");
    wanted.rounds = Some(5);
    let stop = AtomicBool::new(false);
    let error = sweep(&wanted, &place.folders(), &stop, &|stage| {
        if matches!(stage, Stage::Running { done: 5, .. }) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(error, Err(SweepError::Interrupted)));
    let resumed = AtomicU32::new(0);
    let report = sweep(&wanted, &place.folders(), &NEVER, &|stage| {
        if let Stage::Resumed { runs } = stage {
            resumed.store(runs as u32, Ordering::Relaxed);
        }
    })
    .unwrap();
    // Two whole rounds of two cells; the fifth run belongs to a round that was not finished.
    assert_eq!((resumed.load(Ordering::Relaxed), report.runs.len()), (4, 10));
    // Once finished, the same command adds as many rounds.
    let more = place.sweep(&wanted).unwrap();
    assert_eq!((more.runs.len(), more.earlier_runs), (20, 10));
    // How long to go on, and what is small, are not part of the question.
    wanted.rounds = Some(1);
    wanted.effect = 0.05;
    assert_eq!(place.sweep(&wanted).unwrap().runs.len(), 22);
    wanted.seed = 6;
    assert_eq!(place.sweep(&wanted).unwrap().earlier_runs, 0);
}

#[test]
fn what_a_journal_holds_is_believed_only_as_far_as_it_fits() {
    let place = Workspace::new();
    let mut wanted = settings(None, "true {word}");
    wanted.rounds = Some(3);
    place.sweep(&wanted).unwrap();
    let folder = place.folder.path().join("cache/sweeps");
    let path = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "three rounds, the end: {text}");
    let with = |changed: String| {
        std::fs::write(&path, changed).unwrap();
        place.sweep(&wanted).unwrap().earlier_runs
    };
    // Damaged in the second round: the first one counts, and the sweep that had ended has not.
    assert_eq!(with(text.replace(lines[1], &lines[1][..10])), 2);
    assert_eq!(with(text.replace("\"round\":1", "\"round\":7")), 2);
    assert_eq!(with(text.replace("\"variant\":1", "\"variant\":9")), 0);
    assert_eq!(with(text.replace("\"plan\":\"", "\"plan\":\"0")), 0);
    assert_eq!(with(lines[1..].join("\n")), 0);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let said = place.complaint(&wanted);
    assert!(said.contains("--fresh"), "{said}");
}

#[test]
fn time_ends_a_sweep_behind_a_whole_round() {
    let place = Workspace::new();
    let mut wanted = settings(None, "true {word}");
    (wanted.rounds, wanted.budget_ms) = (None, Some(0));
    // Six rounds are the fewest that can say anything.
    assert_eq!(place.sweep(&wanted).unwrap().runs.len(), 12);
    // These are there already the second time, and time is spent on more.
    assert_eq!(place.sweep(&wanted).unwrap().runs.len(), 14);
}

#[test]
fn the_same_bytes_run_alike_are_no_difference() {
    let place = Workspace::new();
    // The axis is in the build and leaves no trace.
    let build = "printf '#!/bin/sh\n' > {out} && chmod +x {out} # {word}";
    let report = place.sweep(&settings(Some(build), "{out}")).unwrap();
    let same = |n: &SweepNote| matches!(n, SweepNote::SameVariants { a, b } if a == "word=one" && b == "word=two");
    assert!(report.notes.iter().any(same), "{:?}", report.notes);
    // Copies without a build, too.
    for name in ["one", "two"] {
        let path = place.folder.path().join(name);
        std::fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let run = place.folder.path().join("{word}").display().to_string();
    let report = place.sweep(&settings(None, &run)).unwrap();
    assert!(report.notes.iter().any(same), "{:?}", report.notes);
}

#[test]
fn stack_placements_need_no_build() {
    let place = Workspace::new();
    let mut wanted = settings(None, "true {word}");
    (wanted.knob, wanted.layouts) = (Knob::Environment, 4);
    let report = place.sweep(&wanted).unwrap();
    assert_eq!(report.runs.len(), 20);
    assert!(report.notes.contains(&SweepNote::StackOnly));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<SweepReport>(&text).unwrap().runs, report.runs);
}

#[test]
fn matched_axes_are_levels() {
    let place = Workspace::new();
    let mut wanted = settings(None, "true {word} {n}");
    wanted.axes.push(Axis::parse("n", "1,2,3").unwrap());
    wanted.rounds = Some(7);
    let report = place.sweep(&wanted).unwrap();
    let levels: Vec<&str> = report.comparisons[0].levels.iter().map(|l| l.level.as_str()).collect();
    assert_eq!(levels, ["n=1", "n=2", "n=3"]);
    assert!(report.comparisons[0].matched.is_some());
}

#[test]
fn paths_with_blanks_and_quotes_reach_the_shell_whole() {
    let place = Workspace::new();
    let mut folders = place.folders();
    folders.cache = place.folder.path().join("it's a $(touch x) cache; rm");
    let report = sweep(&settings(Some(SCRIPT), "{out}"), &folders, &NEVER, &|_| {}).unwrap();
    let cache = folders.cache.canonicalize().unwrap();
    for cell in &report.cells {
        assert!(cell.program.as_ref().unwrap().starts_with(&cache), "{cell:?}");
    }
}

#[test]
fn what_no_longer_is_what_was_built_is_built_again() {
    let place = Workspace::new();
    let wanted = settings(Some(SCRIPT), "{out}");
    let first = place.sweep(&wanted).unwrap();
    assert!(place.sweep(&wanted).unwrap().cells.iter().all(|c| c.cached), "from the cache");
    let program = first.cells[0].program.clone().unwrap();
    std::fs::write(&program, "#!/bin/sh\n: something else\n").unwrap();
    let again = place.sweep(&wanted).unwrap();
    assert!(!again.cells[0].cached && again.cells[1].cached);
    assert_eq!(again.cells[0].fingerprint, first.cells[0].fingerprint);
}

#[test]
fn a_program_that_is_replaced_during_the_sweep_gives_no_result() {
    let place = Workspace::new();
    // The run of one cell writes over its own file.
    let run = "sh -c 'echo \"#\" >> \"$0\"' {out}";
    let said = place.complaint(&settings(Some(SCRIPT), run));
    assert!(said.contains("was replaced or written after it was built"), "{said}");
}
