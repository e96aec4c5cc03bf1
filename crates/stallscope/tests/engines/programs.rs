//! Small programs with a window, compiled when a test asks for them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A source file of `tests/engines/programs` and how it is built.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the test case.
    pub name: &'static str,
    /// File below `tests/engines/programs`.
    pub source: &'static str,
    /// What the compiler is told.
    pub flags: &'static [&'static str],
    /// A feature as in `/proc/cpuinfo`, without which it cannot run.
    pub needs: Option<&'static str>,
}

impl Program {
    /// Whether this processor can run it; a skip is heard.
    #[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
    pub fn runs_here(&self) -> bool {
        let Some(feature) = self.needs else { return true };
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
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/programs").join(self.source);
        let out = folder.join(self.name);
        let compiler = if self.source.ends_with(".cpp") { "c++" } else { "cc" };
        let output = Command::new(compiler)
            .args(["-g", "-O1"])
            .args(["-o".as_ref(), out.as_os_str(), source.as_os_str()])
            .args(self.flags)
            .output()
            .unwrap_or_else(|e| panic!("{compiler} cannot be run (scripts/setup): {e}"));
        assert!(
            output.status.success(),
            "{}: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
        out
    }
}
