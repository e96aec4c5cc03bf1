//! The binary `stallscope`: everything is in the library of this crate, so that `xtask` can make
//! the schemas of its types.

#[cfg(target_arch = "x86_64")]
mod allocator;

use std::process::ExitCode;

#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: allocator::OrSay = allocator::OrSay;

fn main() -> ExitCode {
    stallscope_cli::main()
}
