//! The corpus as programs: one for each compiler, and one of assembly for each architecture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::shape::{Kind, Shape, shapes};
use super::{aarch64, c, members, x86};

/// Who makes machine code of the shapes.
pub struct Toolchain {
    pub name: &'static str,
    pub is_x86: bool,
    /// The compiler and what it always gets; for assembly, what assembles and links.
    pub command: &'static [&'static str],
    pub is_assembly: bool,
    /// Whether the everyday tests use it.
    pub is_everyday: bool,
}

const fn compiler(
    name: &'static str,
    is_x86: bool,
    command: &'static [&'static str],
    is_everyday: bool,
) -> Toolchain {
    Toolchain { name, is_x86, command, is_assembly: false, is_everyday }
}

const AARCH64: &str = "--target=aarch64-linux-gnu";

pub const TOOLCHAINS: [Toolchain; 11] = [
    compiler("gcc", true, &["gcc"], true),
    compiler("gcc-11", true, &["gcc-11"], false),
    compiler("clang-14", true, &["clang-14"], false),
    compiler("clang-16", true, &["clang-16"], true),
    compiler("clang-19", true, &["clang-19"], true),
    Toolchain {
        name: "assembly",
        is_x86: true,
        command: &["gcc"],
        is_assembly: true,
        is_everyday: true,
    },
    compiler("gcc aarch64", false, &["aarch64-linux-gnu-gcc"], false),
    compiler("clang-14 aarch64", false, &["clang-14", AARCH64], false),
    compiler("clang-16 aarch64", false, &["clang-16", AARCH64], false),
    compiler("clang-19 aarch64", false, &["clang-19", AARCH64], false),
    Toolchain {
        name: "assembly aarch64",
        is_x86: false,
        command: &["aarch64-linux-gnu-gcc"],
        is_assembly: true,
        is_everyday: false,
    },
];

/// Every file gets one of these, so that all compilers are seen at all levels.
const LEVELS: [&str; 3] = ["-O1", "-O2", "-O3"];
const FLAGS: [&str; 6] = [
    "-ffreestanding",
    "-fno-pie",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-w",
    "-c",
];

impl Toolchain {
    /// What it is made to write.
    pub fn shapes(&self, seed: u64, count: usize) -> Vec<Shape> {
        let widest_bytes = if self.is_assembly && self.is_x86 { 32 } else { 16 };
        let salt = match (self.is_assembly, self.is_x86) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        };
        let mut all = shapes(seed, count, Kind { widest_bytes, salt });
        if !self.is_assembly {
            all.extend(members::shapes(seed, count, count / 2));
        }
        all
    }

    /// The program; none when a tool is missing.
    pub fn build(&self, shapes: &[Shape], folder: &Path) -> Option<PathBuf> {
        let linker = if self.is_x86 { self.command[0] } else { "aarch64-linux-gnu-gcc" };
        for tool in [self.command[0], linker] {
            Command::new(tool).arg("--version").output().ok()?;
        }
        let driver = folder.join("driver.c");
        fs::write(&driver, c::driver(shapes, self.is_x86)).unwrap();
        let mut objects = vec![self.compile(&driver, "-O1")];
        if self.is_assembly {
            let file = folder.join("shapes.s");
            let (head, function): (_, fn(&Shape) -> String) = if self.is_x86 {
                (x86::HEAD, x86::function)
            } else {
                (aarch64::HEAD, aarch64::function)
            };
            let body: String = shapes.iter().map(function).collect();
            fs::write(&file, format!("{head}{body}")).unwrap();
            objects.push(self.compile(&file, "-O0"));
        } else {
            for (turn, level) in LEVELS.iter().enumerate() {
                let file = folder.join(format!("shapes{level}.c"));
                let mine = shapes.iter().filter(|s| s.number / 2 % LEVELS.len() == turn);
                let body: String = mine.map(c::function).collect();
                fs::write(&file, format!("{}{body}", c::HEAD)).unwrap();
                objects.push(self.compile(&file, level));
            }
        }
        let program = folder.join("program");
        run(Command::new(linker)
            .args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-o"])
            .arg(&program)
            .args(&objects));
        Some(program)
    }

    fn compile(&self, source: &Path, level: &str) -> PathBuf {
        let object = source.with_extension("o");
        run(Command::new(self.command[0])
            .args(&self.command[1..])
            .args(FLAGS)
            .args([level, "-o"])
            .arg(&object)
            .arg(source));
        object
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
