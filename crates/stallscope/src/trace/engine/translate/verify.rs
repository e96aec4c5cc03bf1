//! Is the copy at the window's end what the original is there? Registers, flags, written memory.
//!
//! A second copy, which ran the window natively, shows what differs for reasons that are not ours:
//! time, random numbers, other threads.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::block::Memories;
use super::calls::{Calls, Verdict};
use super::finish::Finish;
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
    /// The first byte that differs in each of them.
    pub(super) bytes: Vec<u64>,
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
        self.bytes.retain(|byte| self.pages.contains(&(byte & !(PAGE_BYTES - 1))));
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
    // Below the stack pointer and its red zone lie remains that nobody may read, among them
    // signal frames with the kernel's notes about the last fault.
    let excluded =
        Excluded { alive: program.rsp.saturating_sub(128), notes: original.processor_notes() };
    for line in setup::maps(original.pid)? {
        if line.writable && line.readable && !line.shared {
            let both = (copy, original);
            compare_range(&mut found, both, &present, &line, &excluded, &mut left)?;
        }
    }
    Ok(found)
}

fn pagemap(pid: i32) -> String {
    format!("/proc/{pid}/pagemap")
}

/// What is left out of a comparison.
struct Excluded {
    /// Everything on the stack below this.
    alive: u64,
    /// What the kernel writes for itself.
    notes: Range<u64>,
}

impl Excluded {
    /// Makes bytes read from `at` equal where they do not count.
    fn blank(&self, at: u64, bytes: &mut [u8], is_stack: bool) {
        let end = at + bytes.len() as u64;
        let mut zero = |from: u64, to: u64| {
            let (from, to) = (from.clamp(at, end) - at, to.clamp(at, end) - at);
            if let Some(part) = bytes.get_mut(from as usize..to as usize) {
                part.fill(0);
            }
        };
        zero(self.notes.start, self.notes.end);
        if is_stack {
            zero(at, self.alive);
        }
    }
}

fn compare_range(
    found: &mut Comparison,
    (copy, original): (&Process, &Process),
    present: &(File, File),
    line: &MapLine,
    excluded: &Excluded,
    left: &mut u64,
) -> io::Result<()> {
    const CHUNK_PAGES: u64 = 512;
    let is_stack = (line.start..line.end).contains(&excluded.alive);
    let mut at = line.start;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    while at < line.end {
        let pages = ((line.end - at) / PAGE_BYTES).min(CHUNK_PAGES);
        let next = at + pages * PAGE_BYTES;
        let (a, b) = (entries(&present.0, at, pages)?, entries(&present.1, at, pages)?);
        // In memory or swapped out, in one of them; a page in neither was never written.
        let wanted: Vec<u64> = (0..pages)
            .filter(|n| (a[*n as usize] | b[*n as usize]) >> 62 != 0)
            .map(|n| at + n * PAGE_BYTES)
            .collect();
        let bytes = next - at;
        if !wanted.is_empty() && bytes > *left {
            found.left_out_bytes += bytes;
        } else if !wanted.is_empty() {
            *left -= bytes;
            for (process, buffer, filler) in [(copy, &mut ours, 1), (original, &mut theirs, 2)] {
                buffer.clear();
                buffer.resize(bytes as usize, 0);
                let got = process.read(at, buffer);
                // What can be read in only one of them differs.
                buffer[got..].fill(filler);
                excluded.blank(at, buffer, is_stack);
            }
            for page in wanted {
                let range = (page - at) as usize..(page - at + PAGE_BYTES) as usize;
                found.compared_pages += 1;
                let differs = range.clone().find(|at| ours[*at] != theirs[*at]);
                if let Some(byte) = differs {
                    found.pages.push(page);
                    found.bytes.push(at + byte as u64);
                }
            }
        }
        at = next;
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
    // Out of the call that is not made: one step ends there, before the next instruction.
    copy.set_registers(&r)?;
    if copy.step(0)? != Stopped::Signal(libc::SIGTRAP) || copy.registers()?.rip != r.rip {
        return Ok(false);
    }
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
