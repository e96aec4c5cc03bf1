//! The case `index-codec`: one format, ten decoders, of which two load what no single store holds.

mod decoders;
mod mesh;
mod report;
mod rounds;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use stallscope_cli::args::CommonArgs;
use stallscope_cli::context::{Context, Outcome};
use stallscope_cli::{exit_code, output, terminal};

/// Times the index codec in ten variants, on generated meshes, beside what scan finds in their code.
#[derive(Debug, Parser)]
#[command(name = "index-codec-case", version, max_term_width = 100)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// A model: triangles as ASCII PLY or OBJ
    #[arg(long, value_name = "FILE")]
    mesh: Option<PathBuf>,
    /// Undisturbed rounds; each runs every variant once
    #[arg(long, value_name = "N", default_value_t = 41, value_parser = clap::value_parser!(u32).range(6..=2000))]
    rounds: u32,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let context = Context::new(&args.common);
    exit_code(&context, run(&args, &context))
}

fn run(args: &Args, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let report = report::measure(args, context)?;
    if context.shows_screen() {
        terminal::print(&screen::page(&report, args.mesh.is_some()))?;
    }
    output::result(context, "case", &report)?;
    Ok(Outcome::Fine)
}
