//! Translated against stepped: the same instructions, the same accesses, in the same order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use object::{Object, ObjectSymbol};

use super::*;
use crate::model::{Avma, Svma};
use crate::run::child::{Child, Launch, Output, Status};
use crate::trace::engine::step::Step;
use crate::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, Ended, Length, MemoryAccess, SelfCheck, Start,
};

/// Address, size, which way.
type Touched = (u64, u32, AccessKind);

mod started;

/// All events, one instruction behind the other.
#[derive(Default)]
struct Events {
    blocks: Vec<Block>,
    insns: Vec<(BlockInsn, Vec<Touched>)>,
}

impl Sink for Events {
    fn describe(&mut self, id: BlockId, block: &Block) {
        assert_eq!(id.0 as usize, self.blocks.len(), "numbers follow each other");
        assert!(!block.insns.is_empty());
        self.blocks.push(block.clone());
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        let mut rest = accesses;
        for (n, insn) in (0..).zip(&self.blocks[id.0 as usize].insns) {
            let own = rest.iter().take_while(|a| a.insn == n).count();
            let (own, others) = rest.split_at(own);
            rest = others;
            let own = own.iter().map(|a| (a.address.0, a.size_bytes, a.kind)).collect();
            self.insns.push((*insn, own));
        }
        assert!(rest.is_empty(), "accesses come in the order of instructions");
    }
}

/// Where the programs of these tests are built.
fn built(source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("../../target/traced");
    std::fs::create_dir_all(&folder).unwrap();
    let tag: String = flags.concat().chars().filter(|c| c.is_alphanumeric()).collect();
    let out = folder.join(format!("{source}-{compiler}-{tag}"));
    let temporary = tempfile::NamedTempFile::new_in(&folder).unwrap().into_temp_path();
    let status = Command::new(compiler)
        .args(["-O2", "-g1", "-o"])
        .arg(&temporary)
        .arg(here.join("tests/traced").join(source))
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success());
    temporary.persist(&out).unwrap();
    out
}

fn symbol(program: &Path, name: &str) -> Svma {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    Svma(file.symbols().find(|s| s.name() == Ok(name)).unwrap().address())
}

fn launch(program: &Path, args: &[&str]) -> Launch {
    Launch {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        ..Launch::default()
    }
}

/// Lets what this thread starts from now on have the same addresses in every run.
fn fix_addresses() {
    // SAFETY: plain integers; concerns this thread and its children alone.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}

fn untraced(launch: &Launch) -> (Status, Output) {
    let limits = Limits::default();
    let exit = Child::hold(launch).and_then(|c| c.wait(&limits)).unwrap();
    (exit.status, exit.stdout)
}

fn record(launch: &Launch, window: &Window, step: bool) -> (Events, Recording) {
    let limits = Limits { timeout: Some(Duration::from_secs(60)), ..Limits::default() };
    let mut events = Events::default();
    let engine: &dyn Engine = if step { &Step } else { &Translate };
    let recording = engine.record(launch, window, limits, &mut events).unwrap();
    (events, recording)
}

/// How the command ended, and what it wrote.
fn end_of(recording: &Recording) -> (Status, Output) {
    let exit = recording.exit.clone().unwrap();
    (exit.status, exit.stdout)
}

/// Records a window translated and stepped, and compares event by event.
fn same(launch: &Launch, window: &Window) -> (Recording, Recording) {
    fix_addresses();
    let native = untraced(launch);
    let (fast, fast_recording) = record(launch, window, false);
    let (slow, slow_recording) = record(launch, window, true);
    for (n, (a, b)) in fast.insns.iter().zip(&slow.insns).enumerate() {
        assert_eq!(a, b, "event {n} of {}: translated left, stepped right", fast.insns.len());
    }
    assert_eq!(fast.insns.len(), slow.insns.len());
    assert_eq!(fast_recording.engine, "translate", "{:?}", fast_recording.notes);
    for recording in [&fast_recording, &slow_recording] {
        assert_eq!(recording.instructions, fast.insns.len() as u64);
        assert_eq!(end_of(recording), native);
    }
    assert!(
        matches!(fast_recording.self_check, SelfCheck::Equal(_)),
        "{:?}",
        fast_recording.self_check
    );
    (fast_recording, slow_recording)
}

fn at(program: &Path, name: &str, skip: u64, length: Length) -> Window {
    let start = Start::At { object: None, svma: symbol(program, name) };
    Window { start, skip, length, memory: true, budget: None }
}

#[test]
fn a_window_of_calls() {
    let program = built("integer.c", "gcc", &[]);
    for (skip, calls) in [(0, 1), (1, 2)] {
        let window = at(&program, "window", skip, Length::Calls(calls));
        let (fast, _) = same(&launch(&program, &[]), &window);
        assert_eq!(fast.ended, Ended::Length);
    }
}

#[test]
fn a_window_of_instructions_and_one_from_the_entry() {
    let program = built("integer.c", "gcc", &["-static"]);
    let window = at(&program, "window", 0, Length::Instructions(5000));
    assert!(same(&launch(&program, &[]), &window).0.instructions >= 5000);
    let length = Length::Instructions(3000);
    let window = Window { start: Start::Entry, skip: 0, length, memory: true, budget: None };
    same(&launch(&program, &[]), &window);
}

/// Wherever the window ends, the registers of the program are told from those that a block borrows.
#[test]
fn windows_of_many_lengths() {
    fix_addresses();
    let program = built("integer.c", "gcc", &["-static"]);
    for instructions in (2000..2400).step_by(17) {
        let window = at(&program, "window", 0, Length::Instructions(instructions));
        let (_, recording) = record(&launch(&program, &[]), &window, false);
        assert_eq!(recording.engine, "translate", "{:?}", recording.notes);
        assert!(matches!(recording.self_check, SelfCheck::Equal(_)), "{:?}", recording.self_check);
    }
}

#[test]
fn position_dependent_code_by_clang() {
    for flags in [&["-no-pie", "-fno-pie"][..], &["-O0"], &["-O3", "-march=native"]] {
        let program = built("integer.c", "clang-16", flags);
        same(&launch(&program, &[]), &at(&program, "window", 0, Length::Calls(1)));
    }
}

#[test]
fn vectors_of_every_width() {
    let program = built("vectors.c", "gcc", &[]);
    same(&launch(&program, &[]), &at(&program, "window", 0, Length::Calls(1)));
}

#[test]
fn exceptions() {
    let program = built("exceptions.cc", "g++", &[]);
    same(&launch(&program, &[]), &at(&program, "window", 0, Length::Calls(2)));
}

#[test]
fn signals_and_jumps_out_of_their_handlers() {
    let program = built("signals.c", "gcc", &[]);
    same(&launch(&program, &[]), &at(&program, "window", 0, Length::Calls(1)));
}

#[test]
fn code_made_at_run_time() {
    let program = built("jit.c", "gcc", &[]);
    let window = at(&program, "window", 0, Length::Calls(1));
    let (recording, _) = same(&launch(&program, &[]), &window);
    assert!(recording.notes.iter().any(|n| n.contains("changed its code")));
}

#[test]
fn system_calls_have_their_effects_once() {
    fix_addresses();
    let program = built("system.c", "gcc", &[]);
    let file = program.to_str().unwrap();
    let window = at(&program, "window", 0, Length::Calls(1));
    let native = untraced(&launch(&program, &[file]));
    let (_, recording) = record(&launch(&program, &[file]), &window, false);
    assert_eq!(end_of(&recording), native);
    assert_eq!(recording.engine, "translate", "{:?}", recording.notes);
    assert!(matches!(recording.self_check, SelfCheck::Equal(_)), "{:?}", recording.self_check);
}

#[test]
fn other_threads_and_their_sockets_go_on() {
    let program = built("threads.c", "gcc", &["-pthread"]);
    let window = at(&program, "window", 1, Length::Calls(1));
    let native = untraced(&launch(&program, &[]));
    let (events, recording) = record(&launch(&program, &[]), &window, false);
    assert_eq!(end_of(&recording), native);
    assert_eq!(recording.engine, "translate", "{:?}", recording.notes);
    assert!(matches!(recording.self_check, SelfCheck::Equal(_)), "{:?}", recording.self_check);
    assert!(events.insns.len() > 3000 * 4);
}

#[test]
fn a_window_that_does_not_return() {
    let program = built("ends.c", "gcc", &["-pthread"]);
    let window = at(&program, "window", 0, Length::Calls(1));
    for (how, ended, engine) in [
        ("crash", Ended::Signal(libc::SIGSEGV), "translate"),
        ("exit", Ended::Exit, "translate"),
        ("pipe", Ended::Length, "step"),
    ] {
        let native = untraced(&launch(&program, &[how]));
        let (events, recording) = record(&launch(&program, &[how]), &window, false);
        assert_eq!(recording.ended, ended, "{how}: {:?}", recording.notes);
        assert_eq!(recording.engine, engine, "{how}: {:?}", recording.notes);
        assert_eq!(end_of(&recording), native, "{how}");
        assert_eq!(recording.instructions, events.insns.len() as u64, "{how}");
        if engine == "step" {
            assert!(recording.notes[0].contains("reads from a pipe"), "{:?}", recording.notes);
        } else {
            assert!(
                matches!(recording.self_check, SelfCheck::Equal(_)),
                "{:?}",
                recording.self_check
            );
        }
    }
}

/// What waits for another thread is followed to where that begins, not through the waiting.
#[test]
fn a_window_ends_where_waiting_begins() {
    let program = built("ends.c", "gcc", &["-pthread"]);
    let launch = launch(&program, &["yield"]);
    let native = untraced(&launch);
    for length in [Length::Calls(1), Length::Instructions(10_000_000)] {
        let (events, recording) = record(&launch, &at(&program, "window", 0, length), false);
        assert_eq!((recording.ended, recording.engine), (Ended::Short, "translate"));
        assert_eq!(recording.instructions, events.insns.len() as u64);
        // 300 turns of the waiting loop are as long as three times the work before it.
        assert!(
            (100_000..1_200_000).contains(&recording.instructions),
            "{}",
            recording.instructions
        );
        assert!(matches!(recording.self_check, SelfCheck::Equal(_)), "{:?}", recording.self_check);
        let said = recording.notes.join("; ");
        assert!(said.contains("ends early") && said.contains("waits for its other"), "{said}");
        assert_eq!(end_of(&recording), native);
    }
}

#[test]
fn signals_that_come_while_copies_are_made_wait_for_the_original() {
    let launch = launch(Path::new("/bin/sleep"), &["1000"]);
    let limits = Limits::default();
    let mut target = target::Target::start(&launch, limits).unwrap();
    let tid = target.run_to(&Start::Entry, 0).unwrap();
    let mut original = crate::trace::engine::process::Process::borrowed_for_calls(tid).unwrap();
    let signals = |pid: i32, field: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let blocked = signals(original.pid, "SigBlk:");
    for signal in [libc::SIGUSR1, libc::SIGRTMIN(), libc::SIGRTMIN() + 1] {
        // SAFETY: plain integers; the process is ours.
        assert_eq!(unsafe { libc::kill(original.pid, signal) }, 0);
    }
    let sent = signals(original.pid, "ShdPnd:");
    assert_eq!(sent.count_ones(), 3);
    for _ in 0..2 {
        let copy = original.fork().unwrap();
        assert_eq!(signals(copy.pid, "SigBlk:"), blocked);
        assert_eq!(signals(copy.pid, "ShdPnd:") | signals(copy.pid, "SigPnd:"), 0);
    }
    assert_eq!(signals(original.pid, "ShdPnd:"), sent);
    assert_eq!(signals(original.pid, "SigBlk:"), blocked);
    assert!(original.held.is_empty());
}

/// How often each instruction of a run ran, to its end; in whichever order it was told.
fn executed(launch: &Launch, start: &Start, step: bool) -> (BTreeMap<Avma, u64>, Recording) {
    let window = Window {
        start: start.clone(),
        skip: 0,
        length: Length::ToEnd,
        memory: false,
        budget: None,
    };
    let (events, recording) = record(launch, &window, step);
    assert_eq!(recording.ended, Ended::Exit, "{:?}", recording.notes);
    let mut executed = BTreeMap::new();
    for (insn, _) in &events.insns {
        *executed.entry(insn.address).or_default() += 1;
    }
    assert_eq!(recording.instructions, events.insns.len() as u64);
    (executed, recording)
}

/// Blocks with counters instead of records, of every kind: code that changes, signals in the middle of one, blocks
/// that read the flags of the one before, `rep`, faults.
#[test]
fn a_run_that_is_counted_executes_what_one_that_is_stepped_does() {
    fix_addresses();
    for (source, compiler, flags) in [
        ("integer.c", "gcc", &["-static"][..]),
        ("integer.c", "clang-16", &["-O0"]),
        ("vectors.c", "gcc", &[]),
        ("exceptions.cc", "g++", &[]),
        ("signals.c", "gcc", &[]),
        ("jit.c", "gcc", &[]),
    ] {
        let program = built(source, compiler, flags);
        let launch = launch(&program, &[]);
        let native = untraced(&launch);
        let start = at(&program, "window", 0, Length::ToEnd).start;
        let (counted, recording) = executed(&launch, &start, false);
        let (stepped, _) = executed(&launch, &start, true);
        assert_eq!(recording.engine, "translate", "{source}: {:?}", recording.notes);
        assert_eq!(end_of(&recording), native, "{source}");
        let differ = counted.iter().find(|(at, n)| stepped.get(at) != Some(n));
        assert_eq!((differ, counted.len()), (None, stepped.len()), "{source}");
    }
}

/// How often each instruction of the function `window` of a program runs, in whole runs that are counted.
fn executed_in_window(program: &Path, launch: &Launch) -> BTreeMap<u64, u64> {
    #[derive(Default)]
    struct Counts(Vec<Block>, BTreeMap<u64, u64>);
    impl Sink for Counts {
        fn describe(&mut self, _: BlockId, block: &Block) {
            self.0.push(block.clone());
        }
        fn restart(&mut self) {
            *self = Self::default();
        }
        fn run(&mut self, id: BlockId, _: &[MemoryAccess]) {
            self.runs(id, 1);
        }
        fn runs(&mut self, id: BlockId, times: u64) {
            for insn in &self.0[id.0 as usize].insns {
                *self.1.entry(insn.address.0 & 0xffff_ffff).or_default() += times;
            }
        }
    }
    let window =
        Window { start: Start::Entry, skip: 0, length: Length::ToEnd, memory: false, budget: None };
    let limits = Limits { timeout: Some(Duration::from_secs(60)), ..Limits::default() };
    let mut counts = Counts::default();
    let native = untraced(launch);
    let recording = Translate.record(launch, &window, limits, &mut counts).unwrap();
    assert_eq!(recording.ended, Ended::Exit, "{:?}", recording.notes);
    // What it computes is in the code that it exits with.
    assert!(matches!(recording.self_check, SelfCheck::Equal(_)), "{:?}", recording.self_check);
    assert_eq!(end_of(&recording), native);
    let start = symbol(program, "window").0 & 0xffff_ffff;
    counts.1.range(start..start + 64).map(|(at, n)| (*at, *n)).collect()
}

#[test]
fn a_run_with_threads_is_counted_whole() {
    fix_addresses();
    let program = built("workers.c", "gcc", &["-pthread", "-no-pie"]);
    let alone = executed_in_window(&program, &launch(&program, &[]));
    assert!(alone.values().any(|n| *n == 12 * 200_000), "{alone:?}");
    for _ in 0..3 {
        assert_eq!(executed_in_window(&program, &launch(&program, &["threads"])), alone);
    }
}

#[test]
fn a_run_with_processes_is_counted_whole() {
    fix_addresses();
    let program = built("families.c", "gcc", &["-no-pie"]);
    let alone = executed_in_window(&program, &launch(&program, &["alone"]));
    assert!(alone.values().any(|n| *n == 3 * 200_000), "{alone:?}");
    for how in ["fork", "spawn", "killed"] {
        assert_eq!(executed_in_window(&program, &launch(&program, &[how])), alone, "{how}");
    }
    let path = program.to_str().unwrap();
    for script in [format!("exec {path} alone"), format!("{path} spawn; exit $?")] {
        let shell = launch(Path::new("/bin/sh"), &["-c", &script]);
        assert_eq!(executed_in_window(&program, &shell), alone, "{script}");
    }
}

/// Hears of too many blocks to keep them.
struct Deaf;

impl Sink for Deaf {
    fn describe(&mut self, _id: BlockId, _block: &Block) {}

    fn restart(&mut self) {}

    fn run(&mut self, _id: BlockId, _accesses: &[MemoryAccess]) {}

    fn runs(&mut self, _id: BlockId, _times: u64) {}
}

/// Nothing in such a loop ever stops by itself.
#[test]
fn a_loop_that_is_counted_ends_with_its_budget() {
    let forever = launch(Path::new("/bin/sh"), &["-c", "while :; do :; done"]);
    let window = Window {
        start: Start::Entry,
        skip: 0,
        length: Length::ToEnd,
        memory: false,
        budget: Some(Duration::from_millis(300)),
    };
    let limits = Limits { timeout: Some(Duration::from_secs(60)), ..Limits::default() };
    let error = Translate.record(&forever, &window, limits, &mut Deaf).unwrap_err();
    assert!(matches!(error, EngineError::OutOfTime { .. }), "{error}");
}

/// A program that works until it is told to end, as a grandchild of ours: copies of it are its children then.
struct Running {
    shell: std::process::Child,
    pid: i32,
    said: std::io::BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(program: &Path) -> Self {
        use std::io::BufRead as _;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "\"$0\" & echo $!; wait", program.to_str().unwrap()])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = std::io::BufReader::new(shell.stdout.take().unwrap());
        let mut lines = (String::new(), String::new());
        said.read_line(&mut lines.0).unwrap();
        said.read_line(&mut lines.1).unwrap();
        let number = [&lines.0, &lines.1].into_iter().find_map(|line| line.trim().parse().ok());
        Self { shell, pid: number.unwrap(), said }
    }

    /// Has it end, and says what it wrote then.
    fn end(mut self) -> String {
        use std::io::Read as _;
        // SAFETY: plain integers; the process is a test's own.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGTERM) }, 0);
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        self.shell.wait().unwrap();
        rest
    }
}

#[test]
fn a_running_process_is_followed_and_runs_on() {
    let program = built("running.c", "gcc", &["-pthread"]);
    let engines: [&dyn Engine; 2] = [&Translate, &Step];
    for engine in engines {
        let running = Running::start(&program);
        let at_work = Start::After(Duration::from_millis(5));
        let anywhere =
            Window::after(None, Length::Instructions(50_000), true, Duration::from_secs(20));
        let windows =
            [Window { start: at_work, ..anywhere }, at(&program, "work", 3, Length::Calls(2))];
        for window in &windows {
            let mut events = Events::default();
            let recording = engine
                .follow(Subject::Process(running.pid), window, Limits::default(), &mut events)
                .unwrap();
            assert_eq!(recording.engine, engine.id(), "{:?}", recording.notes);
            assert_eq!(recording.ended, Ended::Length);
            assert!(recording.exit.is_none());
            assert_eq!(recording.instructions, events.insns.len() as u64);
            assert!(
                !matches!(recording.self_check, SelfCheck::Differs(_)),
                "{:?}",
                recording.self_check
            );
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid)).unwrap();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        assert_eq!(
            running.end(),
            "right, slept, 0 children heard of, none left\n",
            "{}",
            engine.id()
        );
    }
}

#[test]
fn a_running_process_that_does_not_come_there_runs_on() {
    let program = built("running.c", "gcc", &["-pthread"]);
    let running = Running::start(&program);
    let limits = Limits { timeout: Some(Duration::from_millis(200)), ..Limits::default() };
    // A function that has been left for good.
    let window = at(&program, "main", 0, Length::Calls(1));
    let error =
        Translate.follow(Subject::Process(running.pid), &window, limits, &mut Events::default());
    let said = error.unwrap_err().to_string();
    assert!(said.contains("did not come there in 200ms") && said.contains("runs on"), "{said}");
    assert_eq!(running.end(), "right, slept, 0 children heard of, none left\n");
}

#[test]
fn what_is_no_process_of_ours_to_trace_is_told() {
    let window = Window::after(None, Length::Instructions(1), true, Duration::from_secs(1));
    let said = |pid: i32| {
        let result = Translate.follow(
            Subject::Process(pid),
            &window,
            Limits::default(),
            &mut Events::default(),
        );
        result.unwrap_err().to_string()
    };
    assert!(said(i32::MAX).contains("does not exist"));
    assert!(said(std::process::id().cast_signed()).contains("is stallscope itself"));
}
