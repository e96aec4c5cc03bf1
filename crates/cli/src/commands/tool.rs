//! Programs of others that make something for us: a compiler, an assembler.

use std::io::ErrorKind;
use std::process::Command;

use anyhow::{Context as _, bail};
use stallscope::foreign::plain_bytes;

/// Runs it to its end.
///
/// # Errors
/// When there is none (`what` it is, and `how` to get one), or when it `refuses`: the message has what it wrote.
pub fn run(mut command: Command, [what, how]: [&str; 2], refuses: &str) -> anyhow::Result<()> {
    let name = plain_bytes(command.get_program().as_encoded_bytes());
    let done = match command.output() {
        Ok(done) => done,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no {what} `{name}`: {how}")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot run `{name}`")),
    };
    if !done.status.success() {
        let said: Vec<String> = done.stderr.split(|byte| *byte == b'\n').map(plain_bytes).collect();
        bail!("`{name}` {refuses}:\n{}", said.join("\n").trim_end());
    }
    Ok(())
}
