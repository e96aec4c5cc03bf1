//! Searches in a repository of ten commits, on invented machines.

use std::process::Command;

use super::*;
use crate::compare::simulate::{Noise, SimulatedMachine};

/// An interval of 95 % leaves the truth out in 5 of 100 draws; what is tested is not one of them.
const SEED: u64 = 40;

/// A repository; `speeds[n]` is the content of its only file in commit n.
fn repository(folder: &Path, speeds: &[&str]) -> PathBuf {
    let here = folder.join("project");
    std::fs::create_dir(&here).unwrap();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let done = Command::new("git").arg("-C").arg(&here).args(identity).args(args).output();
        assert!(done.unwrap().status.success(), "{args:?}");
    };
    git(&["init", "--quiet"]);
    for (n, speed) in speeds.iter().enumerate() {
        std::fs::write(here.join("speed"), speed).unwrap();
        std::fs::write(here.join("n"), n.to_string()).unwrap();
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", &format!("commit {n}")]);
        git(&["tag", &format!("c{n}")]);
    }
    // What the user is at must be left alone.
    std::fs::write(here.join("speed"), "being edited").unwrap();
    here
}

/// Builds are copies of the file `speed`, in per cent of the time, with the commit's number where builds differ.
struct Invented {
    folder: PathBuf,
    differ: bool,
    compared: u32,
}

impl Bench for Invented {
    fn build(
        &mut self,
        tree: &Path,
        commit: &Commit,
    ) -> Result<Result<PathBuf, String>, BisectError> {
        let speed = std::fs::read_to_string(tree.join("speed")).unwrap();
        if speed == "broken" {
            return Ok(Err("exit code 1: no such header".into()));
        }
        let program = self.folder.join(commit.short());
        let id = if self.differ { &commit.id } else { "" };
        std::fs::write(&program, format!("{speed} {id}")).unwrap();
        // A build may write to files that git knows.
        std::fs::write(tree.join("n"), "built").unwrap();
        Ok(Ok(program))
    }

    fn compare(
        &mut self,
        builds: [&Path; 2],
        settings: &Settings,
    ) -> Result<Comparison, CompareError> {
        let [a, b] = builds.map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            text.split(' ').next().unwrap().parse::<f64>().unwrap()
        });
        self.compared += 1;
        let seed = SEED + u64::from(self.compared);
        let mut machine = SimulatedMachine::new(Noise::Quiet, settings.pairs, seed);
        machine.effect_log = (b / a).ln();
        super::super::compare(&mut machine, settings, &mut |_| {})
    }
}

fn search(
    speeds: &[&str],
    differ: bool,
    threshold: Option<f64>,
) -> (Result<Bisection, BisectError>, u32) {
    let folder = tempfile::tempdir().unwrap();
    let here = repository(folder.path(), speeds);
    let mut bench = Invented { folder: folder.path().into(), differ, compared: 0 };
    let tree = folder.path().join("tree");
    let bad = format!("c{}", speeds.len() - 1);
    let found = {
        let repository = Repository::open(&here, &tree, "c0", &bad).unwrap();
        let settings = Settings { pairs: 12, ..Settings::default() };
        bisect(&repository, &mut bench, (&settings, "b", threshold), &mut |_| {})
    };
    // Nothing is left, and nothing of the user's is touched.
    let left =
        Command::new("git").arg("-C").arg(&here).args(["worktree", "list"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout).lines().count(), 1);
    assert!(!tree.exists());
    assert_eq!(std::fs::read_to_string(here.join("speed")).unwrap(), "being edited");
    assert!(!here.join(".git/BISECT_LOG").exists());
    (found, bench.compared)
}

#[test]
fn what_a_bisection_left_that_was_killed_is_removed_by_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let here = repository(place.path(), &["100", "110", "110"]);
    // No process has such a number; the second one is at work.
    let own = std::process::id();
    let [dead, alive] = [u32::MAX, own].map(|pid| {
        let tree = place.path().join(format!("stallscope-bisect-x-{pid}/tree"));
        let add = ["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()];
        assert!(Command::new("git").arg("-C").arg(&here).args(add).status().unwrap().success());
        tree
    });
    drop(Repository::open(&here, &place.path().join("tree"), "c0", "c2").unwrap());
    assert!(!dead.parent().unwrap().exists() && alive.exists());
    let left =
        Command::new("git").arg("-C").arg(&here).args(["worktree", "list"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout).lines().count(), 2);
}

fn first_bad(found: &Bisection) -> &str {
    found.first_bad.as_ref().map_or("none", |commit| &commit.subject)
}

#[test]
fn the_first_slow_commit_is_found_with_its_step() {
    for at in 1..10 {
        let speeds: Vec<&str> = (0..10).map(|n| if n < at { "100" } else { "110" }).collect();
        let (found, _) = search(&speeds, true, None);
        let found = found.unwrap();
        assert_eq!(first_bad(&found), format!("commit {at}"));
        assert!(found.steps.len() <= 4 && found.candidates.is_empty());
        assert!((found.threshold_log - found.difference.log_ratio / 2.0).abs() < 1e-12);
        let step = found.against_parent.expect("both were built");
        assert!(step.low_log < 1.1_f64.ln() && step.high_log > 0.05, "{step:?}");
        assert_eq!(found.settings.measure, Measure::Wall, "one measure for all");
    }
}

#[test]
fn a_commit_that_is_faster_is_found_likewise() {
    let (found, _) = search(&["110", "110", "110", "100", "100"], true, None);
    let found = found.unwrap();
    assert_eq!(first_bad(&found), "commit 3");
    assert!(found.threshold_log < 0.0);
}

#[test]
fn drift_below_the_threshold_is_not_blamed() {
    let speeds = ["100", "101", "105", "106", "125", "126"];
    assert_eq!(first_bad(&search(&speeds, true, None).0.unwrap()), "commit 4");
    // The user may mean less of it.
    assert_eq!(first_bad(&search(&speeds, true, Some(0.03)).0.unwrap()), "commit 2");
}

#[test]
fn programs_that_were_judged_are_not_run_again() {
    let (found, compared) = search(&["100", "100", "100", "110", "110", "110"], false, None);
    let found = found.unwrap();
    assert_eq!(first_bad(&found), "commit 3");
    assert_eq!(compared, 2, "good with bad, and the step");
    assert!(found.steps.iter().all(|s| s.why.as_ref().unwrap().contains("the same program as")));
    assert!(found.against_good.is_some());
}

#[test]
fn what_cannot_be_told_is_skipped_and_named() {
    let (found, _) = search(&["100", "100", "broken", "broken", "110"], true, None);
    let found = found.unwrap();
    assert_eq!(first_bad(&found), "none");
    let mut left: Vec<_> = found.candidates.iter().map(|commit| &commit.subject[..]).collect();
    left.sort_unstable();
    assert_eq!(left, ["commit 2", "commit 3", "commit 4"]);
    let skipped = found.steps.iter().find(|step| step.word == Word::Skipped).unwrap();
    assert!(skipped.why.as_ref().unwrap().contains("no such header"), "{skipped:?}");
    // At the threshold itself, more pairs do not help.
    let (found, compared) = search(&["100", "105", "110"], true, Some(0.05));
    let found = found.unwrap();
    assert_eq!(found.steps[0].word, Word::Skipped);
    assert_eq!(found.steps[0].against_good.unwrap().pairs, 48, "12, 24 and 48 pairs");
    assert_eq!((compared, found.candidates.len()), (4, 2));
}

#[test]
fn without_a_difference_there_is_no_search() {
    let (found, _) = search(&["100", "100", "100"], true, None);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("do not differ by enough") && said.contains("time changes by"), "{said}");
    let (found, _) = search(&["100", "100", "105"], true, Some(0.2));
    let said = found.unwrap_err().to_string();
    assert!(said.contains("--threshold: 20.0 % does not lie between"), "{said}");
    let (found, _) = search(&["100", "100", "broken"], true, None);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("the bad commit") && said.contains("no such header"), "{said}");
}

#[test]
fn commits_that_are_none_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let here = repository(folder.path(), &["100", "100"]);
    let said = |good: &str, bad: &str| {
        let tree = folder.path().join("tree");
        Repository::open(&here, &tree, good, bad).unwrap_err().to_string()
    };
    assert!(said("c7", "c1").contains("--good c7: no such commit"));
    assert!(said("c0", "--upload-pack=x").contains("--bad --upload-pack=x: no such commit"));
    assert!(said("c1", "c0").contains("does not lie before"));
    assert!(said("c1", "c1").contains("nothing to search"));
    let none = Repository::open(folder.path(), &folder.path().join("t"), "a", "b");
    assert!(none.unwrap_err().to_string().contains("not a git repository"));
}
