//! The binary `stallscope`: everything is in the library of this crate, so that `xtask` can make
//! man pages and completions from the same definition of the arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    stallscope_cli::main()
}
