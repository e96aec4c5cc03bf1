//! Is the copy at the window's end what the original is there? Registers, flags, written memory.
//!
//! A second copy, which ran the window natively, shows what differs for reasons that are not ours:
//! time, random numbers, other threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::block::Memories;
use super::calls::{Calls, Verdict};
use super::driver::Finish;
use super::process::{Process, Registers, Stopped};
use super::setup::{self, MapLine};

const PAGE_BYTES: u64 = 4096;
/// Memory beyond this is not compared, and the report says so.
const MOST_BYTES: u64 = 8 << 30;

/// What was compared, and what of it differs.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) registers: Vec<&'static str>,
    pub(super) pages: Vec<u64>,
    pub(super) compared_pages: u64,
    pub(super) left_out_bytes: u64,
}

impl Comparison {
    pub(super) fn is_equal(&self) -> bool {
        self.registers.is_empty() && self.pages.is_empty()
    }

    /// Drops what differs in `control` as well.
    pub(super) fn excuse(&mut self, control: &Self) {
        self.registers.retain(|name| !control.registers.contains(name));
        self.pages.retain(|page| !control.pages.contains(page));
    }
}

fn registers_of(r: &Registers) -> [(&'static str, u64); 18] {
    // The arithmetic flags, the direction flag and alignment checking.
    const FLAGS: u64 = 0x0004_0cd5;
    [
        ("rax", r.rax),
        ("rbx", r.rbx),
        ("rcx", r.rcx),
        ("rdx", r.rdx),
        ("rsi", r.rsi),
        ("rdi", r.rdi),
        ("rbp", r.rbp),
        ("rsp", r.rsp),
        ("r8", r.r8),
        ("r9", r.r9),
        ("r10", r.r10),
        ("r11", r.r11),
        ("r12", r.r12),
        ("r13", r.r13),
        ("r14", r.r14),
        ("r15", r.r15),
        ("rip", r.rip),
        ("flags", r.eflags & FLAGS),
    ]
}

/// Compares a copy, whose program has these registers, with the original.
pub(super) fn compare(
    copy: &Process,
    program: &Registers,
    original: &Process,
) -> io::Result<Comparison> {
    let mut found = Comparison::default();
    let theirs = registers_of(&original.registers()?);
    for ((name, ours), (_, theirs)) in registers_of(program).into_iter().zip(theirs) {
        if ours != theirs {
            found.registers.push(name);
        }
    }
    let mut left = MOST_BYTES;
    let present = (File::open(pagemap(copy.pid))?, File::open(pagemap(original.pid))?);
    for line in setup::maps(original.pid)? {
        if line.writable && line.readable && !line.shared {
            compare_range(&mut found, copy, original, &present, &line, &mut left)?;
        }
    }
    Ok(found)
}

fn pagemap(pid: i32) -> String {
    format!("/proc/{pid}/pagemap")
}

fn compare_range(
    found: &mut Comparison,
    copy: &Process,
    original: &Process,
    present: &(File, File),
    line: &MapLine,
    left: &mut u64,
) -> io::Result<()> {
    const CHUNK_PAGES: u64 = 512;
    let mut at = line.start;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    while at < line.end {
        let pages = ((line.end - at) / PAGE_BYTES).min(CHUNK_PAGES);
        let (a, b) = (entries(&present.0, at, pages)?, entries(&present.1, at, pages)?);
        // In memory or swapped out, in one of them; a page in neither was never written.
        let wanted =
            |n: usize| (a.get(n).copied().unwrap_or(0) | b.get(n).copied().unwrap_or(0)) >> 62 != 0;
        if (0..pages as usize).any(wanted) {
            let bytes = (pages * PAGE_BYTES) as usize;
            if (bytes as u64) > *left {
                found.left_out_bytes += bytes as u64;
                at += pages * PAGE_BYTES;
                continue;
            }
            *left -= bytes as u64;
            ours.resize(bytes, 0);
            theirs.resize(bytes, 0);
            // What cannot be read in one of them differs, unless it cannot be read in both.
            let got = copy.read(at, &mut ours);
            ours[got..].fill(0xa5);
            let got = original.read(at, &mut theirs);
            theirs[got..].fill(0xa5);
            for n in (0..pages as usize).filter(|n| wanted(*n)) {
                let range = n * PAGE_BYTES as usize..(n + 1) * PAGE_BYTES as usize;
                found.compared_pages += 1;
                if ours[range.clone()] != theirs[range] {
                    found.pages.push(at + n as u64 * PAGE_BYTES);
                }
            }
        }
        at += pages * PAGE_BYTES;
    }
    Ok(())
}

fn entries(map: &File, at: u64, pages: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; (pages * 8) as usize];
    map.read_exact_at(&mut bytes, at / PAGE_BYTES * 8)?;
    let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_ne_bytes);
    Ok(bytes.chunks_exact(8).map(word).collect())
}

/// Runs a copy natively to where the window ends, under the same rules for system calls. `None` when
/// it does not get there.
pub(super) fn run_natively(
    copy: &mut Process,
    calls: &mut Calls,
    mut finish: Finish,
) -> io::Result<Option<Registers>> {
    let mut signal = 0;
    let mut watched = finish.address();
    let mut byte = put(copy, watched)?;
    loop {
        match copy.run_without_calls(std::mem::take(&mut signal))? {
            Stopped::Exited(_) | Stopped::Killed(_) => return Ok(None),
            Stopped::Event(_) => continue,
            Stopped::Signal(got) if got != libc::SIGTRAP => {
                signal = got;
                continue;
            }
            Stopped::Signal(_) => {}
        }
        let mut registers = copy.registers()?;
        if registers.rip != watched + 1 {
            // Before a system call, which is not executed.
            if !emulate(copy, calls, &registers)? {
                return Ok(None);
            }
            continue;
        }
        registers.rip = watched;
        copy.set_registers(&registers)?;
        copy.write(watched, &[byte])?;
        if finish.arrived(&registers, copy) {
            return Ok(Some(registers));
        }
        if finish.address() == watched {
            copy.step(0)?;
        }
        watched = finish.address();
        byte = put(copy, watched)?;
    }
}

fn put(copy: &Process, address: u64) -> io::Result<u8> {
    let mut byte = [0];
    copy.read(address, &mut byte);
    copy.write(address, &[0xcc])?;
    Ok(byte[0])
}

/// Does for the program what a system call would have done; false when that is impossible.
fn emulate(copy: &mut Process, calls: &mut Calls, stopped: &Registers) -> io::Result<bool> {
    let r = *stopped;
    let number = r.orig_rax.cast_signed();
    let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    let answer = match calls.judge(copy, number, arguments) {
        Verdict::Answer(answer) => answer,
        Verdict::RunPrivately(fd) => {
            if calls.reopen(copy, fd).is_err() {
                return Ok(false);
            }
            copy.call(number, calls.with_own_ids(copy.pid, number, arguments))?
        }
        Verdict::Run => copy.call(number, calls.with_own_ids(copy.pid, number, arguments))?,
        Verdict::SignalReturn => {
            let back = copy.return_from_signal(&r)?;
            copy.set_registers(&back)?;
            return Ok(true);
        }
        Verdict::Exit(_) | Verdict::Exec | Verdict::GiveUp(_) => return Ok(false),
    };
    calls.made(number, arguments, answer);
    let mut after = copy.registers()?;
    after.rax = answer.cast_unsigned();
    after.rcx = r.rip;
    after.r11 = r.eflags;
    copy.set_registers(&after)?;
    Ok(true)
}
