//! Small programs with a window, compiled when a test asks for them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A source file of `tests/engines/programs`, how it is built and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the test case.
    pub name: &'static str,
    /// File below `tests/engines/programs`.
    pub source: &'static str,
    /// What the compiler is told.
    pub flags: &'static [&'static str],
    /// A feature as in `/proc/cpuinfo`, without which it cannot run; `seccomp` is the kernel's.
    pub needs: Option<&'static str>,
    /// Arrivals to skip and calls to follow.
    pub window: [u64; 2],
    /// How often functions are entered in the window.
    pub entries: &'static [(&'static str, u64)],
    /// What it prints.
    pub output: &'static str,
    /// Whether signal handlers may start anywhere.
    pub has_signals: bool,
    /// Whether the window is the same in every run.
    pub repeats_itself: bool,
    /// Whether a copy cannot follow it, so that it is stepped.
    pub steps: bool,
}

const PLAIN: Program = Program {
    name: "",
    source: "",
    flags: &[],
    needs: None,
    window: [0, 1],
    entries: &[],
    output: "",
    has_signals: false,
    repeats_itself: true,
    steps: false,
};

const fn asm(name: &'static str, source: &'static str, needs: Option<&'static str>) -> Program {
    // Fixed addresses, so that those in the source are those in the process.
    Program { name, source, needs, flags: &["-no-pie", "-z", "noexecstack"], ..PLAIN }
}

/// Programs with what they touch written beside the instructions.
pub const ASSEMBLY: &[Program] = &[
    asm("plain", "plain.S", None),
    asm("strings", "strings.S", None),
    asm("loops", "loops.S", None),
    asm("sse", "sse.S", None),
    asm("avx2", "avx2.S", Some("avx2")),
    asm("avx512", "avx512.S", Some("avx512f")),
    asm("amx", "amx.S", Some("amx_tile")),
];

const CALLS: Program = Program {
    name: "calls",
    source: "calls.c",
    window: [2, 3],
    entries: &[("window", 3), ("helper", 12)],
    output: "495\n",
    ..PLAIN
};

const VECTORS: Program =
    Program { name: "vectors", source: "vectors.c", output: "19460.0\n", ..PLAIN };

const LIBRARY: Program = Program {
    name: "library",
    source: "library.c",
    entries: &[("window", 1)],
    output: "32\n",
    ..PLAIN
};

const RECURSION: Program = Program {
    name: "recursion",
    source: "recursion.c",
    entries: &[("window", 15)],
    output: "34 5\n",
    ..PLAIN
};

const SIGNALS: Program = Program {
    name: "signals",
    source: "signals.c",
    entries: &[("on_signal", 3), ("on_fault", 1)],
    output: "36\n",
    has_signals: true,
    ..PLAIN
};

const COMPUTED: Program = Program {
    name: "computed_goto",
    source: "computed_goto.c",
    entries: &[("window", 1)],
    output: "107\n",
    ..PLAIN
};

/// Programs of a compiler.
pub const COMPILED: &[Program] = &[
    CALLS,
    Program { name: "calls_fixed", flags: &["-no-pie"], ..CALLS },
    Program { name: "calls_static", flags: &["-static"], ..CALLS },
    Program { name: "calls_static_pie", flags: &["-static-pie"], ..CALLS },
    Program { name: "calls_unoptimised", flags: &["-O0"], ..CALLS },
    Program { name: "calls_lazy", flags: &["-Wl,-z,lazy"], ..CALLS },
    RECURSION,
    Program {
        name: "jump_table",
        source: "jump_table.c",
        flags: &["-fno-inline", "-fcf-protection=none"],
        entries: &[("case0", 2), ("case3", 2), ("case6", 2)],
        output: "-194\n",
        ..PLAIN
    },
    Program {
        name: "long_jump",
        source: "long_jump.c",
        entries: &[("window", 2), ("thrower", 8), ("landed", 1)],
        output: "1\n",
        ..PLAIN
    },
    Program {
        name: "exception",
        source: "exception.cpp",
        entries: &[("thrower", 4), ("landed", 2)],
        output: "10\n",
        // The unwinder's search goes by addresses of the loaded objects.
        repeats_itself: false,
        ..PLAIN
    },
    SIGNALS,
    Program { name: "jit", source: "jit.c", output: "6\n", ..PLAIN },
    Program {
        name: "threads",
        source: "threads.c",
        entries: &[("window", 1)],
        output: "880\n",
        repeats_itself: false,
        steps: true,
        ..PLAIN
    },
    LIBRARY,
    Program { name: "library_lazy", flags: &["-Wl,-z,lazy"], ..LIBRARY },
    Program { name: "library_static", flags: &["-static"], ..LIBRARY },
    Program {
        name: "red_zone",
        source: "red_zone.c",
        entries: &[("make", 1), ("total", 1)],
        output: "57.75\n",
        ..PLAIN
    },
    Program {
        name: "goroutines",
        source: "goroutines.go",
        window: [1, 1],
        output: "45\n45\n",
        // The runtime's own thread asks for the processor now and then, at the entry of a function,
        // which then begins again.
        repeats_itself: false,
        ..PLAIN
    },
    Program {
        name: "signal_registers",
        source: "signal_registers.c",
        output: "-1\n",
        has_signals: true,
        ..PLAIN
    },
    Program { name: "signal_mask", source: "signal_mask.c", output: "3\n", ..PLAIN },
    Program { name: "segment", source: "segment.c", output: "42\n", ..PLAIN },
    Program { name: "files", source: "files.c", output: "18 8 4096 -2\n", ..PLAIN },
    Program { name: "fork_memory", source: "fork_memory.c", output: "3000\n", ..PLAIN },
    Program {
        name: "filter",
        source: "filter.c",
        needs: Some("seccomp"),
        output: "4036480582\n",
        steps: true,
        ..PLAIN
    },
    Program {
        name: "filter_inside",
        source: "filter.c",
        flags: &["-DINSIDE"],
        needs: Some("seccomp"),
        output: "4036480582\n",
        steps: true,
        ..PLAIN
    },
    COMPUTED,
    Program { name: "computed_goto_static", flags: &["-static", "-O2"], ..COMPUTED },
    Program { name: "recursion_static", flags: &["-static"], ..RECURSION },
    Program { name: "signals_static", flags: &["-static-pie", "-O2"], ..SIGNALS },
    Program { name: "vectors_128", flags: &["-O3"], ..VECTORS },
    Program { name: "vectors_256", flags: &["-O3", "-mavx2"], needs: Some("avx2"), ..VECTORS },
    Program {
        name: "vectors_512",
        flags: &["-O3", "-march=x86-64-v4", "-mprefer-vector-width=512"],
        needs: Some("avx512vl"),
        ..VECTORS
    },
];

impl Program {
    /// A plain one, for tests that look at something else than the window.
    pub const fn named(name: &'static str, source: &'static str) -> Self {
        Self { name, source, ..PLAIN }
    }

    /// Whether its truth stands in its source.
    pub fn is_assembly(&self) -> bool {
        self.source.ends_with(".S")
    }

    /// Where its source is.
    pub fn source_path(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/programs").join(self.source)
    }

    /// Whether this processor can run it; a skip is heard.
    #[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
    pub fn runs_here(&self) -> bool {
        let Some(feature) = self.needs.filter(|feature| *feature != "seccomp") else { return true };
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has = cpu
            .lines()
            .find(|l| l.starts_with("flags"))
            .is_some_and(|l| l.split_whitespace().any(|word| word == feature));
        if !has {
            eprintln!("SKIPPED: {}: this processor has no {feature}", self.name);
        }
        has
    }

    /// Compiles it into `folder`.
    pub fn build(&self, folder: &Path) -> PathBuf {
        let source = self.source_path();
        let out = folder.join(self.name);
        let (compiler, first): (_, &[&str]) = match source.extension().and_then(|e| e.to_str()) {
            Some("go") => ("go", &["build"]),
            Some("cpp") => ("c++", &["-g", "-O1", "-pthread"]),
            _ => ("cc", &["-g", "-O1", "-pthread"]),
        };
        let output = Command::new(compiler)
            .args(first)
            .args(["-o".as_ref(), out.as_os_str(), source.as_os_str()])
            .args(self.flags)
            .output()
            .unwrap_or_else(|e| panic!("{compiler} cannot be run (scripts/setup-test): {e}"));
        assert!(
            output.status.success(),
            "{}: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
        out
    }
}
