//! The binary `stallscope`: everything is in the library of this crate, so that `xtask` can make
//! man pages and completions from the same definition of the arguments.

use std::process::ExitCode;

/// Decoded functions come and go by the thousand: a tenth of a scan is asking for memory.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stallscope_cli::main()
}
