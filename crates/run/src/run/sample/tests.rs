//! Both engines on real programs. Structure only: where a sample falls is up to the machine.

use std::time::{Duration, Instant};

use super::*;
use crate::run::child::Status;

fn busy(times: u32) -> Launch {
    Launch::shell(format!("i=0; while [ $i -lt {} ]; do i=$((i+1)); done", 400_000 * times))
}

/// Ptrace looks at a run as often as it gets to, which is seldom on a busy machine: then what is run does four times as much.
fn sample_enough(settings: &SampleSettings, launch: impl Fn(u32) -> Launch) -> SampleRun {
    let mut run = None;
    for times in [1, 4, 16] {
        let sampled = sample(&launch(times), settings, &limits(None)).unwrap();
        if sampled.total >= 30 {
            return sampled;
        }
        run = Some(sampled);
    }
    panic!("hardly a sample: {}", brief(&run.unwrap()));
}

fn limits(timeout: Option<Duration>) -> Limits<'static> {
    Limits { timeout, ..Limits::default() }
}

fn with(engine: EngineChoice) -> SampleSettings {
    SampleSettings { engine, ..SampleSettings::default() }
}

/// A run without its thousands of addresses.
fn brief(run: &SampleRun) -> String {
    let objects: Vec<_> = run.samples.iter().map(|o| (&o.path, o.total())).collect();
    let (total, unmapped) = (run.total, run.unmapped);
    format!("{}: {objects:?}, total {total}, unmapped {unmapped}, {:?}", run.engine, run.notes)
}

/// Runs `check` on each engine that works here, and says so where one does not.
fn on_each_engine(check: impl Fn(&SampleSettings)) {
    for engine in [EngineChoice::PerfClock, EngineChoice::Ptrace] {
        match sample(&Launch::shell("exit 0"), &with(engine), &limits(None)) {
            Err(SampleError::Unavailable { engine, cause }) => {
                let mut err = std::io::stderr();
                let _ = std::io::Write::write_fmt(
                    &mut err,
                    format_args!("SKIPPED: {engine} does not work here: {cause}\n"),
                );
            }
            other => {
                other.unwrap();
                check(&with(engine));
            }
        }
    }
}

/// Makes a loop at run time, says so, and runs it.
#[cfg(target_arch = "x86_64")]
const MADE: &str = r#"
import ctypes, mmap, os
memory = mmap.mmap(-1, 4096, prot=7, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(bytes.fromhex("48ffcf75fbc3"))
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with open(f"/tmp/perf-{os.getpid()}.map", "w") as names:
    names.write(f"{at:x} 6 JS:*made /tmp/made.js:1:1\n")
ctypes.CFUNCTYPE(None, ctypes.c_uint64)(at)(TIMES)
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn code_that_is_made_at_run_time_has_the_name_that_the_program_wrote() {
    let launch = |times: u32| {
        let script = MADE.replace("TIMES", &(1 + 500_000_000 * u64::from(times)).to_string());
        Launch::shell(format!("exec python3 -c '{script}'"))
    };
    let tried = sample(&launch(0), &SampleSettings::default(), &limits(None)).unwrap();
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", tried.exit.pid));
    if tried.exit.status == Status::Code(127) {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: no python3 here\n");
        return;
    }
    on_each_engine(|settings| {
        let run = sample_enough(&SampleSettings { stacks: true, ..*settings }, launch);
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", run.exit.pid));
        let made = run.generated.get("JS:*made made.js").copied().unwrap_or(0);
        assert!(2 * made > run.total, "{made}: {}", brief(&run));
        let stacks = run.stacks.unwrap();
        let innermost = stacks.counts.keys().filter_map(|stack| stack.frames.last());
        let mut innermost = innermost.filter(|frame| frame.file.is_none());
        assert!(innermost.any(|frame| stacks.generated.contains_key(&frame.at)));
    });
}

#[test]
fn a_busy_shell_is_found_in_the_shell() {
    on_each_engine(|settings| {
        let run = sample_enough(settings, busy);
        assert!(run.exit.status.success());
        let main = run.samples.iter().find(|o| o.is_main_program);
        let main = main.map_or(0, ObjectSamples::total);
        // The rest is in its library for numbers and texts.
        assert!(main * 4 > run.total, "{}", brief(&run));
        let counted: u64 = run.samples.iter().map(ObjectSamples::total).sum();
        assert_eq!(run.total, counted + run.unmapped);
        // A few may fall between an exec and the news of it.
        assert!(run.unmapped * 20 <= run.total, "{}", brief(&run));
    });
}

#[test]
fn system_calls_are_counted_to_the_last_one_also_those_of_children() {
    let calls = |script: &str| {
        let counted = count_system_calls(&Launch::shell(script), &limits(None))?;
        assert!(counted.all);
        Ok(counted.count)
    };
    // Each byte is a read and a write.
    let copying =
        |bytes: u32| format!("dd if=/dev/zero of=/dev/null bs=1 count={bytes} 2>/dev/null");
    let few = match calls(&format!("exec {}", copying(100))) {
        Err(SampleError::Unavailable { .. }) => return,
        few => few.unwrap(),
    };
    let many = calls(&format!("exec {}", copying(300))).unwrap();
    assert_eq!(many - few, 400);
    let of_children = calls(&format!("{0}; {0}; exit 0", copying(100))).unwrap();
    assert!((400..3 * few).contains(&of_children), "{few} {of_children}");
}

#[test]
fn what_a_system_call_waits_for_is_its_time_inside_also_in_children() {
    let launch = Launch::shell("sleep 0.2; (sleep 0.1; exit 0); exit 0");
    let counted = match count_system_calls(&launch, &limits(None)) {
        Err(SampleError::Unavailable { .. }) => return,
        counted => counted.unwrap(),
    };
    let inside_ns = |of: &[i64]| -> u64 {
        let calls = of.iter().filter_map(|number| counted.by_number.get(&(*number as u64)));
        calls.map(|calls| calls.inside_ns).sum()
    };
    // One in eight is looked at, the first of each number among them.
    assert!(!counted.callers.counts.is_empty() && !counted.callers.files.is_empty());
    let slept = inside_ns(&[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]);
    assert!(slept >= 300_000_000, "{slept}");
    // Whoever waits for a child waits as long.
    assert!(inside_ns(&[libc::SYS_wait4, libc::SYS_waitid]) >= 280_000_000, "{counted:?}");
}

#[test]
fn system_calls_of_a_run_without_end_are_counted_to_the_time_limit() {
    let endless = Launch::shell("exec dd if=/dev/zero of=/dev/null bs=1 2>/dev/null");
    // On a busy machine the command has hardly begun after the shortest of these.
    for seconds in [0.3, 3.0, 10.0, 30.0] {
        let counted = count_system_calls(&endless, &limits(Some(Duration::from_secs_f64(seconds))));
        let SystemCalls { count, by_number, all, .. } = match counted {
            Err(SampleError::Unavailable { .. }) => return,
            counted => counted.unwrap(),
        };
        assert!(!all, "{count}");
        let of = |number: i64| by_number.get(&(number as u64)).map_or(0, |calls| calls.count);
        let (reads, writes) = (of(libc::SYS_read), of(libc::SYS_write));
        if writes < 40 {
            continue;
        }
        assert!(reads.abs_diff(writes) < 20, "{by_number:?}");
        assert!(
            by_number.values().map(|calls| calls.count).sum::<u64>().abs_diff(count) < 40,
            "{count} {by_number:?}"
        );
        return;
    }
    panic!("hardly a call in half a minute");
}

#[test]
fn hits_lie_within_their_file() {
    on_each_engine(|settings| {
        let run = sample(&busy(1), settings, &limits(None)).unwrap();
        for object in run.samples.iter().filter(|o| o.path.is_absolute()) {
            let bytes = std::fs::metadata(&object.path).unwrap().len();
            assert!(object.hits.keys().all(|at| at.0 < bytes), "{object:?}");
        }
    });
}

#[test]
fn children_are_sampled_under_their_own_program() {
    on_each_engine(|settings| {
        let run = sample_enough(settings, |times| {
            let turns = 3_000_000 * times;
            Launch::shell(format!("awk 'BEGIN {{ while (i < {turns}) i++ }}'; exit 4"))
        });
        assert_eq!(run.exit.status, Status::Code(4));
        let is_awk = |o: &ObjectSamples| o.path.to_string_lossy().contains("awk");
        let awk: u64 = run.samples.iter().filter(|o| is_awk(o)).map(|o| o.total()).sum();
        assert!(awk * 4 > run.total, "{}", brief(&run));
        assert!(run.samples.iter().all(|o| !(is_awk(o) && o.is_main_program)));
    });
}

#[test]
fn signals_reach_the_program_and_stops_are_stops() {
    on_each_engine(|settings| {
        let script = "trap 'exit 7' USR1; (kill -STOP $$; sleep 0.1; kill -CONT $$; kill -USR1 $$) & \
                      while :; do :; done";
        let run = sample(&Launch::shell(script), settings, &limits(None)).unwrap();
        assert_eq!(run.exit.status, Status::Code(7));
        assert!(run.exit.wall_ns >= 100_000_000);
        let killed = sample(&Launch::shell("kill -SEGV $$"), settings, &limits(None)).unwrap();
        assert_eq!(killed.exit.status, Status::Signal(libc::SIGSEGV));
    });
}

#[test]
fn limits_hold_and_leave_nothing_behind() {
    on_each_engine(|settings| {
        let begun = Instant::now();
        let script = "while :; do :; done & while :; do :; done";
        let limit = Some(Duration::from_millis(150));
        let error = sample(&Launch::shell(script), settings, &limits(limit)).unwrap_err();
        assert!(matches!(error, SampleError::Child(ChildError::TimedOut { .. })), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    });
}

#[test]
fn a_program_that_cannot_run_is_an_error_of_the_child() {
    on_each_engine(|settings| {
        let launch = Launch { program: "/no/such/program".into(), ..Launch::shell("") };
        let error = sample(&launch, settings, &limits(None)).unwrap_err();
        assert!(matches!(error, SampleError::Child(ChildError::NotFound(_))), "{error}");
    });
}

/// Does nothing when run with the other tests; `stacks_lead_to_where_threads_start` runs it by name.
#[test]
fn helper_that_spins_deep_down() {
    if let Some(spin_ms) = std::env::var(SPIN_MS).ok().and_then(|ms| ms.parse().ok()) {
        outer_of_two(Duration::from_millis(spin_ms));
    }
}

#[inline(never)]
fn outer_of_two(spin: Duration) {
    std::hint::black_box(inner_of_two as fn(Duration))(spin);
    std::hint::black_box(());
}

#[inline(never)]
fn inner_of_two(spin: Duration) {
    while own_cpu_time() < spin {
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn stacks_lead_to_where_threads_start() {
    let program = std::env::current_exe().unwrap().canonicalize().unwrap();
    let image = crate::code::Image::open(&program).unwrap();
    on_each_engine(|settings| {
        let run = sample_enough(&SampleSettings { stacks: true, ..*settings }, |times| Launch {
            program: program.clone(),
            args: vec!["--exact".into(), "run::sample::tests::helper_that_spins_deep_down".into()],
            environment: vec![(SPIN_MS.into(), (200 * times).to_string().into())],
            ..Launch::shell("")
        });
        let stacks = run.stacks.as_ref().unwrap();
        assert!(stacks.taken >= 5 && stacks.period_ns >= 1_000_000, "{}", brief(&run));
        assert!(stacks.cut_off * 10 <= stacks.taken, "{} of {}", stacks.cut_off, stacks.taken);
        assert_eq!(stacks.counts.values().sum::<u64>() + stacks.left_out, stacks.taken);
        let names = |stack: &CallStack| -> Vec<String> {
            let own = stack.frames.iter().filter(|f| f.file == stacks.main_program);
            let at = |frame: &Frame| image.function_at(image.svma_of(frame.at)?);
            own.filter_map(at).map(crate::code::Function::name).collect()
        };
        let is_nested = |stack: &CallStack| {
            let names = names(stack);
            let at = |part: &str| names.iter().position(|name| name.contains(part));
            at("outer_of_two").is_some_and(|outer| at("inner_of_two") == Some(outer + 1))
        };
        let nested: u64 =
            stacks.counts.iter().filter(|(stack, _)| is_nested(stack)).map(|(_, n)| n).sum();
        assert!(nested * 2 > stacks.taken, "{nested} of {}", stacks.taken);
    });
}

#[test]
fn stacks_are_taken_where_they_are_asked_for() {
    on_each_engine(|settings| {
        assert_eq!(sample(&Launch::shell("exit 0"), settings, &limits(None)).unwrap().stacks, None);
    });
}

/// Processor time of this thread.
fn own_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Milliseconds for which the threads of `helper_that_spins_in_threads` spin.
const SPIN_MS: &str = "STALLSCOPE_TEST_SPIN_MS";

/// Does nothing when run with the other tests; `threads_are_followed` runs it by name.
#[test]
fn helper_that_spins_in_threads() {
    let Some(spin_ms) = std::env::var(SPIN_MS).ok().and_then(|ms| ms.parse().ok()) else { return };
    // By processor time: by the clock on the wall, a busy machine would leave little to sample. Not
    // long, because a thread that is stopped every millisecond gets on slowly there.
    let spin = || {
        while own_cpu_time() < Duration::from_millis(spin_ms) {
            (0..1000).for_each(|_| std::hint::spin_loop());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(spin);
        }
    });
}

#[test]
fn threads_are_followed() {
    on_each_engine(|settings| {
        let helper = "run::sample::tests::helper_that_spins_in_threads";
        let launch = |times: u32| Launch {
            program: std::env::current_exe().unwrap(),
            args: vec!["--exact".into(), helper.into()],
            environment: vec![(SPIN_MS.into(), (100 * times).to_string().into())],
            ..Launch::shell("")
        };
        // The first thread does nothing but wait.
        let run = sample_enough(settings, launch);
        assert!(run.exit.status.success(), "{}", brief(&run));
        // A limit in a threaded program must not hang on its threads.
        let limit = limits(Some(Duration::from_millis(40)));
        assert!(sample(&launch(1), settings, &limit).is_err());
    });
}

#[test]
fn a_period_that_is_too_short_is_raised_and_said() {
    let settings = SampleSettings { period_ns: 1, ..SampleSettings::default() };
    match sample(&Launch::shell("exit 0"), &settings, &limits(None)) {
        Ok(run) => {
            assert!(run.period_ns >= cost::least_period_ns());
            assert!(run.notes.iter().any(|n| n.contains("more often")), "{}", brief(&run));
        }
        Err(error) => assert!(matches!(error, SampleError::NoEngine { .. }), "{error}"),
    }
}

#[test]
fn a_run_is_json_without_its_exit() {
    let run = SampleRun {
        engine: Engine::PerfClock,
        period_ns: 100_000,
        samples: vec![ObjectSamples {
            path: "/bin/x".into(),
            is_main_program: true,
            hits: BTreeMap::from([(FileOffset(4096), 3)]),
        }],
        total: 3,
        lost: 0,
        generated: BTreeMap::new(),
        unmapped: 0,
        kernel: Some(0),
        exit: Child::hold(&Launch::shell("exit 0")).and_then(|c| c.wait(&limits(None))).unwrap(),
        stacks: None,
        notes: vec![],
    };
    let json = serde_json::to_value(&run).unwrap();
    assert_eq!(json["engine"], "perf_clock");
    assert_eq!(json["samples"][0]["hits"]["4096"], 3);
    assert!(json.get("exit").is_none());
}
