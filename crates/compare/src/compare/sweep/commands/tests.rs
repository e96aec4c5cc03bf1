//! Given commands as blocks: what is run elsewhere is what was typed here, and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use crate::compare::fleet::{Job, Plan, ResultFolder, collect};
use crate::compare::sweep::{Host, run_block};
use crate::compare::{Decision, Measure, ProcessLimits, Step};
use crate::run::child::NEVER;

fn site(root: Option<PathBuf>) -> Site {
    Site { root, host: Host::here(Some("here")) }
}

/// A shell script of these lines in `folder`.
fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn by_shell(text: String) -> CommandLine {
    let args = vec!["-c".into(), text.into()];
    CommandLine { by_shell: true, ..CommandLine::new("/bin/sh", args) }
}

/// What the scripts print is what is judged: no claim about time.
fn settings(pairs: u32) -> Settings {
    let measure = Measure::Regex { pattern: r"value (\d+)".into(), higher_is_better: false };
    Settings { pairs, seed: 1, measure, ..Settings::default() }
}

fn planned(
    lines: Vec<CommandLine>,
    settings: &Settings,
    per_block: u32,
) -> Result<Planned, SweepError> {
    let limits: ProcessLimits<'_> = settings.limits(&NEVER);
    let mut runner = ProcessRunner::new(lines, limits)?.measuring(settings)?;
    plan_commands(&mut runner, settings, per_block, &mut |_| {})
}

/// Every block of a plan, written, read again, and run.
fn ran(planned: &Planned, folder: &Path) -> ResultFolder {
    let path = folder.join("plan.jsonl");
    Plan::write(&path, planned.blocks()).unwrap();
    let results = ResultFolder::at(folder.join("results"));
    for job in Plan::at(&path).read(None).unwrap().into_iter().rev() {
        results.prepare(&job).unwrap();
        let Job::Rounds(block) = job else { panic!("these are no rounds") };
        let result = run_block(&block, &site(None), &NEVER, &mut || {}).unwrap();
        assert!(result.is_whole(block.span(), &block.seats()));
        assert_eq!(result.placebos.len(), block.rounds as usize);
        results.keep(&result.plan, result.block, &result).unwrap();
    }
    results
}

#[test]
fn commands_come_back_with_all_that_belongs_to_them() {
    let place = tempfile::tempdir().unwrap();
    let (here, log) = (place.path(), place.path().join("log"));
    let input = here.join("input");
    fs::write(&input, "100\n").unwrap();
    let says = |what: &str| {
        let line = format!("echo {what} >> {}", log.display());
        CommandLine::new("/bin/sh", vec!["-c".into(), line.into()])
    };
    script(here, "a", "read n; echo value $((n + MORE))");
    let a = CommandLine {
        folder: Some(here.into()),
        environment: vec![("MORE".into(), "0".into())],
        steps: vec![
            (Step::Setup, says("setup")),
            (Step::Prepare, says("prepare")),
            (Step::Conclude, says("conclude")),
            (Step::Cleanup, says("cleanup")),
        ],
        ..CommandLine::new("./a", vec![])
    };
    let b = by_shell("read n; sleep 0.02; echo value $((n + 10))".into());
    let settings = Settings { input: Some(input), warmup: 2, ..settings(7) };
    let planned = planned(vec![a, b], &settings, 2).unwrap();
    let first = planned.first();
    assert_eq!((first.blocks, first.rounds, first.files.len()), (4, 2, 3));
    assert!(first.cost_ns > 0);
    fs::remove_file(&log).unwrap();
    let results = ran(&planned, here);
    // Two to warm up, two rounds and their placebos, in each of four blocks.
    let written = fs::read_to_string(&log).unwrap();
    let count = |word: &str| written.lines().filter(|line| *line == word).count();
    let steps = ["setup", "prepare", "conclude", "cleanup"].map(count);
    assert_eq!(steps, [4, 4 * 6, 4 * 6, 4]);
    let report = collect(&[results.path().into()]).unwrap().report;
    let comparison = &report.comparisons[0];
    assert_eq!(comparison.decision, Decision::Slower);
    let part = comparison.levels[0].by_rounds.unwrap();
    assert!((part.log_ratio - 1.1_f64.ln()).abs() < 1e-9, "{part:?}");
    assert_eq!(comparison.base, format!("command=cd {} && MORE=0 ./a", here.display()));
    assert_eq!(comparison.candidate, "command=read n; sleep 0.02; echo value $((n + 10))");
}

#[test]
fn another_file_is_refused_and_what_a_set_up_writes_is_not() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    let (a, input) = (script(here, "a", "echo value $(cat $1)"), here.join("input"));
    let line = |name: &Path| CommandLine::new(name, vec![input.clone().into()]);
    let b = script(here, "b", ": ; echo value $(cat $1)");
    fs::write(&input, "7\n").unwrap();
    let plan = planned(vec![line(&a), line(&b)], &settings(1), 1).unwrap();
    fs::write(&input, "8\n").unwrap();
    let said = run_block(plan.first(), &site(None), &NEVER, &mut || {}).unwrap_err();
    assert!(matches!(&said, SweepError::OtherFile(path) if *path == input), "{said}");
    let text = format!("echo 9 > {}", input.display());
    let set_up = CommandLine::new("/bin/sh", vec!["-c".into(), text.into()]);
    let steps = vec![(Step::Setup, set_up)];
    let both = vec![CommandLine { steps, ..line(&a) }, line(&b)];
    let plan = planned(both, &settings(1), 1).unwrap();
    fs::remove_file(&input).unwrap();
    run_block(plan.first(), &site(None), &NEVER, &mut || {}).unwrap();
}

#[test]
fn files_that_were_brought_are_found_wherever_they_are_named() {
    let place = tempfile::tempdir().unwrap();
    let (here, root) = (place.path().join("here"), place.path().join("there"));
    fs::create_dir(&here).unwrap();
    let a = script(&here, "a", "echo value $(cat ${1#--input=})");
    let input = here.join("input");
    fs::write(&input, "7\n").unwrap();
    let named = |text: String| CommandLine::new(&a, vec![text.into()]);
    let path = input.display();
    let lines = vec![named(format!("--input={path}")), named(path.to_string())];
    let plan = planned(lines, &settings(1), 1).unwrap();
    let bring = |block: &Block| {
        for file in &block.files {
            let there = site(Some(root.clone())).place(&file.path);
            fs::create_dir_all(there.parent().unwrap()).unwrap();
            fs::copy(&file.path, there).unwrap();
        }
    };
    bring(plan.first());
    // What lies where it lay is not what is read.
    fs::write(&input, "no number\n").unwrap();
    run_block(plan.first(), &site(Some(root.clone())), &NEVER, &mut || {}).unwrap();
    fs::write(&input, "7\n").unwrap();
    let lines =
        vec![by_shell(format!("sleep 0.01; cat {path}; echo value 1")), named(path.to_string())];
    let plan = planned(lines, &settings(1), 1).unwrap();
    assert!(plan.first().files.iter().any(|file| file.path == input));
    bring(plan.first());
    let said = run_block(plan.first(), &site(Some(root)), &NEVER, &mut || {}).unwrap_err();
    assert!(said.to_string().contains("starts in the folder of the plan"), "{said}");
}

#[test]
fn the_same_commands_are_the_same_plan_and_others_are_not() {
    let place = tempfile::tempdir().unwrap();
    let a = script(place.path(), "a", "echo value 1");
    let line = |word: &str| CommandLine::new(&a, vec![word.into()]);
    let of = |words: [&str; 2], settings: &Settings, per_block| {
        planned(words.map(line).into(), settings, per_block).unwrap().first().clone()
    };
    let one = of(["x", "y"], &settings(4), 2);
    // More of it is more of the same.
    assert_eq!(one.plan, of(["x", "y"], &settings(8), 2).plan);
    let others = [
        of(["x", "z"], &settings(4), 2),
        of(["x", "y"], &settings(4), 1),
        of(["x", "y"], &Settings { seed: 2, ..settings(4) }, 2),
        of(["x", "y"], &Settings { warmup: 3, ..settings(4) }, 2),
    ];
    assert!(others.iter().all(|other| other.plan != one.plan));
    // The same bytes with the same words are known for that, and have names of their own.
    let twice = of(["x", "x"], &settings(4), 2);
    assert_eq!((twice.identical, one.identical.len()), (vec![[0, 1]], 0));
    assert!(twice.settings.axes[0].values[1].ends_with("a x (B)"));
    // What a plan claims is checked before anything is made of it.
    let commands = one.commands.clone().unwrap();
    let fewer = Commands { arms: commands.arms[..1].to_vec(), ..commands };
    let wrong = Block { commands: Some(fewer), ..one };
    assert!(matches!(wrong.check(), Err(SweepError::Block(_))));
}

#[test]
fn what_cannot_be_planned_says_why() {
    use std::os::unix::ffi::OsStringExt;
    let line = |word: OsString| CommandLine::new("true", vec![word]);
    let said = |lines| planned(lines, &settings(1), 1).unwrap_err().to_string();
    assert!(said(vec![line("x".into())]).contains("between 2 and 26"));
    let strange = line(OsString::from_vec(vec![b'x', 0xff]));
    assert!(said(vec![line("x".into()), strange]).contains("UTF-8"));
    let said = said(vec![line("x".into()), line("y".into())]);
    assert!(said.contains("nothing that it printed"), "{said}");
}

proptest! {
    /// What a record holds of a command is the command.
    #[test]
    fn a_command_comes_back_from_its_record(
        words in prop::collection::vec("[ -~]{0,8}", 0..4),
        variables in prop::collection::vec(("[A-Z]{1,3}", "[ -~]{0,8}"), 0..3),
        folder in prop::option::of("[a-z/]{1,8}"),
        is_by_shell: bool,
    ) {
        let here = CommandLine {
            environment: variables.iter().map(|(n, v)| (n.into(), v.into())).collect(),
            folder: folder.map(PathBuf::from),
            ..CommandLine::new("sh", words.iter().map(OsString::from).collect())
        };
        let line = CommandLine {
            by_shell: is_by_shell,
            steps: vec![(Step::Prepare, here.clone())],
            ..here
        };
        let pair = |(n, v): &(OsString, OsString)| format!("{}={}", n.display(), v.display());
        let record = ArmRecord {
            command: line.words().collect(),
            environment: line.environment.iter().map(pair).collect(),
            folder: line.folder.clone(),
            steps: vec![crate::compare::StepRecord {
                step: Step::Prepare,
                command: line.words().collect(),
            }],
            shell_start_ns: is_by_shell.then_some(1),
            ..ArmRecord::default()
        };
        prop_assert_eq!(record.line(), line);
    }
}
