//! `stallscope probe snippet`: times instructions of the user's own.

use std::ffi::OsString;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use object::{Object as _, ObjectSection as _};
use stallscope::foreign::{from_json, hex, plain, plain_bytes};
use stallscope::probes::snippet::{BUFFER_BYTES, Snippet, SnippetReport};
use stallscope::probes::{self, ProbeError};

use super::page::Page;
use super::wide::{self, OwnProcess};
use crate::commands::cpu_args::OneCpuArgs;
use crate::commands::tool;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

/// More than the object file of the longest code that is timed.
const MOST_OBJECT_BYTES: u64 = 1 << 20;

/// What is missing where there is none, and what to do about it.
const ASSEMBLER: [&str; 2] = [
    "assembler",
    "install binutils (apt install binutils, dnf install binutils, pacman -S binutils), or name one with \
     --assembler",
];

/// Arguments of `probe snippet`.
#[derive(Debug, Args)]
#[command(
    after_help = "The code may use every register but r15 and rsp; rdi points to 64 KiB of zeros.\n\n\
        Examples:\n  \
        stallscope probe snippet 'imul rax, rax'                       latency: it waits for the last one\n  \
        stallscope probe snippet 'imul rax, rcx, 3'                    throughput: it does not\n  \
        stallscope probe snippet 'mov [rdi], eax; mov rax, [rdi]'      a load that cannot be forwarded\n  \
        stallscope probe snippet 'div rcx' --init 'mov ecx, 7; xor edx, edx'"
)]
pub struct SnippetArgs {
    /// Instructions in Intel syntax, separated by semicolons
    #[arg(value_name = "ASM")]
    body: String,
    /// Instructions that run once before the loop
    #[arg(long, value_name = "ASM", default_value = "")]
    init: String,
    /// Assemble with this program, which takes the options of GNU as
    #[arg(long, value_name = "AS", default_value = "as")]
    assembler: OsString,
    #[command(flatten)]
    cpu: OneCpuArgs,
}

pub fn run(args: &SnippetArgs, context: &Context) -> anyhow::Result<Outcome> {
    probes::check_architecture(std::env::consts::ARCH)?;
    let _pin = args.cpu.pin()?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let code = |asm: &str| assembled(asm, &args.assembler, folder.path());
    let [init, body] = [code(&args.init)?, code(&args.body)?];
    Snippet::new(&init, &body)?;
    let own = OwnProcess { interrupt: context.interrupt() };
    let answer = own.answer("snippet", context.seed(), &[hex(&init), hex(&body)]);
    if context.interrupt().load(std::sync::atomic::Ordering::Relaxed) {
        return Err(ProbeError::Interrupted.into());
    }
    let answer = answer.map_err(|why| {
        if why == wide::too_long() {
            return anyhow!(
                "the process that ran the snippet {why}: does the code come to its end?"
            );
        }
        anyhow!(
            "the process that ran the snippet {why}; registers begin with what they happen to hold \
             (--init sets them), and memory is there from rdi to {} KiB behind it",
            BUFFER_BYTES >> 10
        )
    })?;
    let report: SnippetReport = from_json(&answer).context("the answer of the process")?;
    if context.shows_screen() {
        terminal::print(&screen(&args.body, &report))?;
    }
    output::result(context, "snippet", &report)?;
    Ok(Outcome::Fine)
}

fn screen(asm: &str, report: &SnippetReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    page.line("code", &plain(asm));
    if let Some(m) = &report.cycles {
        page.number("once around", m, 2);
    }
    let (instructions, bytes, copies) = (report.instructions, report.bytes, report.copies);
    page.line(
        "loop",
        &format!("{instructions} instructions, {bytes} bytes, {copies} times in each pass"),
    );
    report.protocol.controls.iter().for_each(|control| page.control(control));
    page.left_out(&report.protocol);
    page.text
}

/// The machine code of instructions in Intel syntax.
fn assembled(asm: &str, assembler: &OsString, folder: &Path) -> anyhow::Result<Vec<u8>> {
    if asm.trim().is_empty() {
        return Ok(Vec::new());
    }
    let name = plain_bytes(assembler.as_encoded_bytes());
    let object = folder.join("snippet.o");
    let mut input = tempfile::tempfile().context("no temporary file")?;
    let written = input.write_all(format!("{asm}\n").as_bytes()).and_then(|()| input.rewind());
    written.context("cannot write the temporary file")?;
    let mut command = Command::new(assembler);
    command
        .args(["--64", "-msyntax=intel", "-mnaked-reg", "-o"])
        .arg(&object)
        .arg("-")
        .stdin(input);
    tool::run(command, ASSEMBLER, &format!("does not take `{}`", plain(asm)))?;
    let bytes = stallscope::foreign::read(&object, MOST_OBJECT_BYTES)
        .with_context(|| format!("`{name}` left no object file"))?;
    let file =
        object::File::parse(&*bytes).with_context(|| format!("what `{name}` has written"))?;
    let text = file.section_by_name(".text").context("no code was assembled")?;
    if text.relocations().next().is_some() {
        bail!("`{}` names something outside of it", plain(asm));
    }
    Ok(text.data().context("the code that was assembled")?.to_vec())
}
