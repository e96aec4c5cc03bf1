//! Which engines a program is followed by: all that work here and know its instructions.

use stallscope::model::Capability;
use stallscope::trace::engine::{ENGINES, Engine};

use crate::programs::Program;

/// The engines that work here; what is missing is heard, and on a build machine an error.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
pub fn engines() -> Vec<&'static dyn Engine> {
    let works = |engine: &&'static dyn Engine| match engine.available() {
        Capability::Present => true,
        Capability::Absent { cause } => {
            assert!(std::env::var_os("CI").is_none(), "{}: {cause}", engine.id());
            eprintln!("SKIPPED: engine {}: {cause}", engine.id());
            false
        }
    };
    ENGINES.iter().copied().filter(works).collect()
}

/// Those of them that can run the program.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
pub fn engines_for(program: &Program) -> Vec<&'static dyn Engine> {
    let knows = |engine: &&'static dyn Engine| {
        let unknown = program.needs.filter(|feature| {
            ["avx512", "amx", "seccomp"].iter().any(|known| feature.starts_with(known))
        });
        let Some(feature) = unknown.filter(|_| engine.id() == "qemu") else { return true };
        eprintln!("SKIPPED: {} by qemu: it does not emulate {feature}", program.name);
        false
    };
    engines().into_iter().filter(knows).collect()
}
