//! A run that is changed in the process and not in a file: some of its code replaced, or the rules of arithmetic.
//!
//! The command is held at its first instruction of its own, behind the dynamic loader, as a window is that
//! starts there. Trampolines go into a mapping near the program's code, which is never writable and
//! executable at once, the jumps to them into the code; then everything is let go, untraced. A run without
//! anything to replace is held and let go the same way, mapping included, so that the two may be compared.

use std::io;
use std::path::Path;

use super::denormals::Arithmetic;
use super::process::{Memories, Process};
use super::target::Target;
use super::{Change, EngineError, Mapping, Start};
use crate::clock::{Cpus, allowed_cpus};
use crate::code::x86::{EncodedPatch, Patch};
use crate::model::{Avma, PAGE_BYTES};
use crate::run::child::{Exit, Launch, Limits};
use crate::run::maps;

/// How far from the code trampolines may be: less than a jump's distance of 32 bits.
const FARTHEST_BYTES: u64 = 1 << 30;
/// Left free behind a mapping: a program's heap grows there.
const ROOM_BEHIND_BYTES: u64 = 256 << 20;
/// Below this the kernel maps nothing.
const LOWEST: u64 = 1 << 16;

/// Runs a command to its end with `change`: code is that of its own file, or of a library that is loaded with it.
///
/// # Errors
/// When it cannot be run or traced, or when its code in the process is not what the patch was made for.
pub fn run_changed(
    launch: &Launch,
    change: Change<'_>,
    limits: Limits<'_>,
) -> Result<Exit, EngineError> {
    let mut launch = launch.clone();
    if change == Change::OneProcessor {
        let allowed = launch.cpu.as_ref().map(|cpus| cpus.iter().collect());
        launch.cpu = Cpus::last(1, &allowed.or_else(|| allowed_cpus().ok()).unwrap_or_default());
    }
    let mut target = Target::start(&launch, limits)?;
    let tid = target.run_to(&Start::Entry, 0)?;
    let nothing = Patch::default();
    let patch = match change {
        Change::Code(patch) | Change::FlushToZero(patch) => patch,
        Change::Nothing | Change::OneProcessor | Change::SmallPages => &nothing,
    };
    let put = Process::borrowed_for_calls(tid).map_err(|cause| refused(&cause)).and_then(
        |mut process| {
            put(&mut process, &launch.program, patch)?;
            match change {
                Change::OneProcessor => keep_processors(&mut process),
                Change::SmallPages => {
                    let huge_off = [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0, 0];
                    process.checked_call(libc::SYS_prctl, huge_off).map(drop)
                }
                Change::FlushToZero(_) => Arithmetic::FLUSH_TO_ZERO.set(tid),
                Change::Nothing | Change::Code(_) => Ok(()),
            }
            .map_err(|cause| refused(&cause))
        },
    );
    put.map_err(|reason| EngineError::Unsupported { engine: "the patch", reason })?;
    target.finish_command()
}

fn refused(cause: &io::Error) -> String {
    format!("the process refuses to be changed ({cause})")
}

/// From now on the program's own choice of processors is answered as if it had been made, and is not.
fn keep_processors(process: &mut Process) -> io::Result<()> {
    const NUMBER_AT: u32 = 0;
    const ARCHITECTURE_AT: u32 = 4;
    const X86_64: u32 = 0xc000_003e;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // Code, where to go on if it is and if it is not, value.
    let filter = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (IS, 0, 3, X86_64),
        (LOAD, 0, 0, NUMBER_AT),
        (IS, 0, 1, libc::SYS_sched_setaffinity as u32),
        // Error 0: done.
        (ANSWER, 0, 0, libc::SECCOMP_RET_ERRNO),
        (ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let mut bytes = Vec::new();
    for (code, is, is_not, value) in filter {
        let [low, high] = u16::to_le_bytes(code);
        bytes.extend([low, high, is, is_not]);
        bytes.extend(u32::to_le_bytes(value));
    }
    // Below what anything at the program's first instruction uses of its stack.
    let at = (process.registers()?.rsp - 1024) & !15;
    let length = filter.len() as u64;
    process.write(at, &bytes)?;
    let header = at + bytes.len() as u64;
    process.write(header, &[length.to_le_bytes(), at.to_le_bytes()].concat())?;
    let privileges = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0];
    let filtering = [u64::from(libc::SECCOMP_SET_MODE_FILTER), 0, header, 0, 0, 0];
    process.checked_call(libc::SYS_prctl, privileges)?;
    process.checked_call(libc::SYS_seccomp, filtering).map(drop)
}

fn put(process: &mut Process, program: &Path, patch: &Patch) -> Result<(), String> {
    let file = if patch.is_empty() { program } else { patch.file() };
    let file = file.canonicalize().unwrap_or_else(|_| file.into());
    let lines = maps::read(process.pid).map_err(|cause| refused(&cause))?;
    let code = lines.iter().find(|line| line.executable && line.mapping.path == file);
    let code = &code.ok_or("the code to be replaced is not mapped at its start")?.mapping;
    // As far as the process's addresses are above those that the file states.
    let bias = match patch.anchor() {
        None => 0,
        Some((offset, svma)) => {
            let inside = offset.0.checked_sub(code.file_offset.0);
            let inside = inside.filter(|inside| *inside < code.bytes());
            inside
                .ok_or("its code is mapped elsewhere")?
                .wrapping_add(code.start.0)
                .wrapping_sub(svma.0)
        }
    };
    let encode = |at| patch.encode(at, bias).map_err(|error| error.to_string());
    // Distances do not change how long the code is.
    let bytes = encode(code.start)?.trampolines.len() as u64;
    let bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
    let taken: Vec<&Mapping> = lines.iter().map(|line| &line.mapping).collect();
    let at = hole(&taken, code, bytes).ok_or("there is no room near its code")?;
    let rights = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let got = process.call(libc::SYS_mmap, [at, bytes, rights, kind, u64::MAX, 0]);
    if got.map_err(|cause| refused(&cause))? != at.cast_signed() {
        return Err("the kernel refuses a mapping near its code".into());
    }
    let EncodedPatch { trampolines, jumps } = encode(Avma(at))?;
    process.write(at, &trampolines).map_err(|cause| refused(&cause))?;
    for (address, before, after) in jumps {
        let mut there = vec![0; before.len()];
        if process.read(address.0, &mut there) != before.len() || there != before {
            return Err(format!("its code at {address} is not what the file holds"));
        }
        process.write(address.0, &after).map_err(|cause| refused(&cause))?;
    }
    Ok(())
}

/// Where so many bytes are free near `code`: below it, or else above everything that may grow there.
fn hole(taken: &[&Mapping], code: &Mapping, bytes: u64) -> Option<u64> {
    let is_free = |from: u64, end: u64| !taken.iter().any(|mapping| mapping.overlaps(from..end));
    let near = |at: &u64| at.abs_diff(code.start.0) < FARTHEST_BYTES;
    let below = taken.iter().map(|mapping| mapping.start.0.saturating_sub(bytes));
    let below = below.filter(|at| (LOWEST..code.start.0).contains(at) && near(at));
    let below = below.filter(|at| is_free(*at, at + bytes)).max();
    below.or_else(|| {
        let above = taken.iter().map(|mapping| mapping.end.0);
        let above = above.filter(|end| near(end) && is_free(*end, end + ROOM_BEHIND_BYTES + bytes));
        above.map(|end| end + ROOM_BEHIND_BYTES).filter(|at| *at > code.start.0 && near(at)).min()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FileOffset;

    fn mapping(start: u64, end: u64) -> Mapping {
        let path = "/program".into();
        Mapping { start: Avma(start), end: Avma(end), path, file_offset: FileOffset(0) }
    }

    #[test]
    fn room_is_below_the_code_or_far_above() {
        let code = mapping(0x40_1000, 0x40_2000);
        let before = mapping(0x40_0000, 0x40_1000);
        assert_eq!(hole(&[&before, &code], &code, 0x2000), Some(0x3f_e000));
        let low = mapping(0x1_0000, 0x40_1000);
        assert_eq!(hole(&[&low, &code], &code, 0x1000), Some(0x40_2000 + ROOM_BEHIND_BYTES));
        let all = mapping(0x1_0000, 0x7fff_0000_0000);
        let last = mapping(u64::MAX - 0x1fff, u64::MAX);
        assert_eq!(hole(&[&all, &code, &last], &code, 0x1000), None);
    }
}
