//! The file behind a command: what it is, whether it can be a program here, and its fingerprint.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::{CommandLine, Step, as_typed};
use super::error::CompareError;
use super::files::UsedFile;
use super::fingerprint;
use super::schedule::Arm;
use crate::foreign;
use crate::run::child::ChildError;

/// What was run as one arm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmRecord {
    /// Program and arguments as they were typed.
    pub command: Vec<String>,
    /// The file that was executed.
    pub program: String,
    /// Length of the program's file, bytes.
    pub program_bytes: u64,
    /// Its fingerprint: FNV-1a of 64 bits over all bytes, in hexadecimal. For telling files apart,
    /// not for security.
    pub program_fnv1a: String,
    /// The other files that it used: those whose code was mapped in the warm-up, as far as looks at
    /// growing intervals saw them, and those that its arguments name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<UsedFile>,
    /// The most threads that were seen at once in one of its processes during the warm-up; absent
    /// when it ended before it could be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Variables that were set for it, as `NAME=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// The folder in which it was started; absent for that of the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// What was run around it and is in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// Values of the parameters that were filled into the command, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// What the shell that ran it takes to start at the least, in nanoseconds, which is taken off the times of every run; absent
    /// without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_start_ns: Option<u64>,
}

/// Something that was run around the runs of an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepRecord {
    /// When.
    pub step: Step,
    /// Program and arguments.
    pub command: Vec<String>,
}

impl ArmRecord {
    /// The words as they can be typed; the text that was typed where a shell ran it.
    #[must_use]
    pub fn display(&self) -> String {
        let typed = self.command.last().filter(|_| self.shell_start_ns.is_some());
        typed.cloned().unwrap_or_else(|| as_typed(&self.command))
    }

    /// The command, to be run once more.
    #[must_use]
    pub fn line(&self) -> CommandLine {
        let pair = |text: &String| text.split_once('=').map(|(n, v)| (n.into(), v.into()));
        let here = CommandLine {
            environment: self.environment.iter().filter_map(pair).collect(),
            folder: self.folder.clone(),
            ..CommandLine::default()
        };
        let of = |words: &[String]| {
            let mut words = words.iter().map(OsString::from);
            let program = words.next().unwrap_or_default();
            CommandLine { program, args: words.collect(), ..here.clone() }
        };
        CommandLine {
            by_shell: self.shell_start_ns.is_some(),
            steps: self.steps.iter().map(|step| (step.step, of(&step.command))).collect(),
            parameters: self.parameters.clone().into_iter().collect(),
            ..of(&self.command)
        }
    }
}

/// Finds and fingerprints the program of `arm`.
///
/// # Errors
/// When there is none, when it is a directory or a device, or when it cannot be read.
pub fn inspect(arm: Arm, line: &CommandLine) -> Result<(PathBuf, ArmRecord), CompareError> {
    let path = line.resolve().map_err(|cause| not_found(arm, line, cause))?;
    let unreadable = |cause| CompareError::Unreadable { arm, path: path.clone(), cause };
    let kind = fs::metadata(&path).map_err(unreadable)?;
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "a device or a pipe" };
        return Err(CompareError::NoProgram { arm, path, what });
    }
    // A program may be executable and not readable; then it has no fingerprint, which is no error.
    let (program_bytes, program_fnv1a) = match foreign::open(&path) {
        Ok(file) => fingerprint::of_file(file).map_err(unreadable)?,
        Err(_) => (kind.len(), String::new()),
    };
    let pair = |(name, value): &(OsString, OsString)| {
        format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
    };
    let step = |(step, line): &(Step, CommandLine)| StepRecord {
        step: *step,
        command: line.words().collect(),
    };
    let record = ArmRecord {
        command: line.words().collect(),
        program: path.to_string_lossy().into_owned(),
        program_bytes,
        program_fnv1a,
        environment: line.environment.iter().map(pair).collect(),
        folder: line.folder.clone(),
        steps: line.steps.iter().map(step).collect(),
        parameters: line.parameters.iter().cloned().collect(),
        ..ArmRecord::default()
    };
    Ok((path, record))
}

/// A word without a slash is looked for on `PATH` only; often a file right here was meant.
fn not_found(arm: Arm, line: &CommandLine, cause: ChildError) -> CompareError {
    if let Some(folder) = line.folder.as_ref().filter(|folder| !folder.is_dir()) {
        let cause = ChildError::NoFolder(folder.clone());
        return CompareError::Program { arm, cause, seems: String::new() };
    }
    let here = Path::new(&line.program);
    if here.is_dir() {
        return CompareError::NoProgram { arm, path: here.into(), what: "a directory" };
    }
    let seems = match here.is_file() {
        true => format!(" on PATH; to run the file in this folder, write ./{}", here.display()),
        false => String::new(),
    };
    CompareError::Program { arm, cause, seems }
}

/// What is odd about a file that did not run, as the end of a message: empty, or starting with a
/// separator. Only words, never a decision: the kernel decides what can be executed.
#[must_use]
pub fn seems(path: &Path) -> String {
    let Ok(mut file) = foreign::open(path) else {
        return String::new();
    };
    let length = file.metadata().map_or(0, |m| m.len());
    let mut head = Vec::new();
    if file.by_ref().take(1 << 16).read_to_end(&mut head).is_err() {
        return String::new();
    }
    match describe(&head, length) {
        Some(what) => format!("; the file seems to be {what}"),
        None => String::new(),
    }
}

/// Names what a file is by its first bytes; `None` for an ordinary program of this machine.
fn describe(head: &[u8], length: u64) -> Option<String> {
    if head.is_empty() {
        return Some("empty".into());
    }
    if head.starts_with(b"\x7fELF") {
        return describe_elf(head, length);
    }
    if head.starts_with(b"MZ") {
        return Some("a Windows program".into());
    }
    if head.starts_with(&[0xcf, 0xfa, 0xed, 0xfe]) || head.starts_with(&[0xca, 0xfe, 0xba, 0xbe]) {
        return Some("a macOS program".into());
    }
    if head.starts_with(b"#!") {
        return None;
    }
    let text = !head.contains(&0) && std::str::from_utf8(&head[..head.len().min(1024)]).is_ok();
    Some(if text { "text without a #! line" } else { "data, not a program" }.into())
}

fn describe_elf(head: &[u8], length: u64) -> Option<String> {
    let truncated = Some("an ELF file that was cut off".to_owned());
    let (Some(&class), Some(&order), Some(machine)) = (head.get(4), head.get(5), word(head, 18, 2))
    else {
        return truncated;
    };
    if order != 1 {
        return Some("an ELF file for a big-endian machine".into());
    }
    let name = match machine {
        3 => "32-bit x86",
        40 => "32-bit Arm",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        _ => "another machine",
    };
    let own = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if machine != own {
        return Some(format!("an ELF file for {name}"));
    }
    if class != 2 {
        return Some(format!("a 32-bit ELF file for {name}"));
    }
    let (Some(table), Some(size), Some(count)) =
        (word(head, 32, 8), word(head, 54, 2), word(head, 56, 2))
    else {
        return truncated;
    };
    let mut end = table.saturating_add(size * count);
    for i in 0..count {
        let at = usize::try_from(table.saturating_add(i * size)).unwrap_or(usize::MAX);
        let field = |offset: usize| word(head, at.saturating_add(offset), 8);
        if let (Some(1), Some(offset), Some(bytes)) = (word(head, at, 4), field(8), field(32)) {
            end = end.max(offset.saturating_add(bytes));
        }
    }
    if end > length {
        return truncated;
    }
    match word(head, 16, 2) {
        Some(1) => Some("an object file that was not linked".into()),
        Some(4) => Some("a core dump".into()),
        _ => None,
    }
}

/// A little-endian number of `bytes` bytes.
fn word(head: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let field = head.get(at..at.checked_add(bytes)?)?;
    Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_program() -> Vec<u8> {
        fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn files_are_named_by_their_first_bytes() {
        let name = |bytes: &[u8]| describe(bytes, bytes.len() as u64).unwrap_or_default();
        assert_eq!(name(b""), "empty");
        assert_eq!(name(b"hello\n"), "text without a #! line");
        assert_eq!(name(b"#!/bin/sh\n"), "");
        assert_eq!(name(b"MZ\0\0"), "a Windows program");
        assert_eq!(name(b"\0\x01\x02"), "data, not a program");
        assert_eq!(name(b"\x7fELF\x02\x01"), "an ELF file that was cut off");
    }

    #[test]
    fn an_elf_file_is_whole_or_cut_off_or_foreign() {
        let whole = own_program();
        let head = &whole[..whole.len().min(1 << 16)];
        assert_eq!(describe(head, whole.len() as u64), None);
        assert!(describe(head, 4096).unwrap().contains("cut off"));
        for cut in 0..120 {
            // No length may panic, whatever is missing.
            let _ = describe(&head[..cut], cut as u64);
        }
        let mut foreign = head.to_vec();
        foreign[18..20].copy_from_slice(&243_u16.to_le_bytes());
        assert_eq!(describe(&foreign, 1 << 30).unwrap(), "an ELF file for RISC-V");
    }

    #[test]
    fn a_directory_is_no_program() {
        let line = CommandLine::new("/tmp/", vec![]);
        let error = inspect(Arm::B, &line).unwrap_err().to_string();
        assert!(error.contains("arm B") && error.contains("directory"), "{error}");
    }
}
