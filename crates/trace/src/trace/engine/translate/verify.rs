//! Is the copy at the window's end what the original is there? Registers, flags, written memory.
//!
//! A second copy, which ran the window natively, shows what differs for reasons that are not ours:
//! time, random numbers, other threads.

use std::io;
use std::ops::Range;

use super::calls::{Calls, Copies, Verdict};
use super::finish::Finish;
use super::present::{self, Present};
use super::setup::SetupError;
use crate::model::PAGE_BYTES;
use crate::run::maps;
use crate::run::tracee;
use crate::trace::engine::process::Memories;
use crate::trace::engine::process::{CALL_STOP, Process, Registers, Stopped};
use crate::trace::engine::target;

/// Memory beyond this is not compared, and the report says so.
const MOST_BYTES: u64 = 8 << 30;

/// What was compared, and what of it differs.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Name, here, there.
    pub(super) registers: Vec<(&'static str, u64, u64)>,
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
        self.registers
            .retain(|(name, ..)| control.registers.iter().all(|(other, ..)| name != other));
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

/// Compares a copy with the original, or with another copy, each with the registers of its program.
pub(super) fn compare(
    copy: &Process,
    program: &Registers,
    original: &Process,
    theirs: &Registers,
) -> io::Result<Comparison> {
    let mut found = Comparison::default();
    let theirs = registers_of(theirs);
    for ((name, ours), (_, theirs)) in registers_of(program).into_iter().zip(theirs) {
        if ours != theirs {
            found.registers.push((name, ours, theirs));
        }
    }
    let mut left = MOST_BYTES;
    let present = [Present::of(copy.pid)?, Present::of(original.pid)?];
    // Below the stack pointer and its red zone lie remains that nobody may read, among them
    // signal frames with the kernel's notes about the last fault.
    let (alive, notes) = (program.rsp.saturating_sub(128), original.processor_notes());
    for line in maps::read(original.pid)? {
        if line.writable && line.readable && !line.shared {
            let range = line.mapping.start.0..line.mapping.end.0;
            let is_stack = range.contains(&alive);
            let excluded = Excluded { is_stack, alive, notes: notes.clone() };
            let parts = present.each_ref().map(|present| present.parts(range.clone()));
            let [Ok(ours), Ok(theirs)] = parts else {
                found.left_out_bytes += range.end - range.start;
                continue;
            };
            for part in present::either(ours, theirs) {
                let both = (copy, original);
                compare_range(&mut found, both, &present, part, &excluded, &mut left)?;
            }
        }
    }
    Ok(found)
}

/// What is left out of a comparison.
struct Excluded {
    /// Whether it is about the stack.
    is_stack: bool,
    /// Everything on the stack below this.
    alive: u64,
    /// What the kernel writes for itself.
    notes: Range<u64>,
}

impl Excluded {
    /// Makes bytes read from `at` equal where they do not count.
    fn blank(&self, at: u64, bytes: &mut [u8]) {
        let end = at + bytes.len() as u64;
        let mut zero = |from: u64, to: u64| {
            let (from, to) = (from.clamp(at, end) - at, to.clamp(at, end) - at);
            if let Some(part) = bytes.get_mut(from as usize..to as usize) {
                part.fill(0);
            }
        };
        zero(self.notes.start, self.notes.end);
        if self.is_stack {
            zero(at, self.alive);
        }
    }
}

fn compare_range(
    found: &mut Comparison,
    (copy, original): (&Process, &Process),
    present: &[Present; 2],
    Range { start: mut at, end }: Range<u64>,
    excluded: &Excluded,
    left: &mut u64,
) -> io::Result<()> {
    const CHUNK_PAGES: u64 = 512;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    while at < end {
        let pages = ((end - at) / PAGE_BYTES).min(CHUNK_PAGES);
        let next = at + pages * PAGE_BYTES;
        let (a, b) = (present[0].pages(at, pages)?, present[1].pages(at, pages)?);
        // A page that neither has was never written.
        let wanted: Vec<u64> = (0..pages)
            .filter(|n| a[*n as usize] || b[*n as usize])
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
                excluded.blank(at, buffer);
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

/// How a native run of the window ended.
pub(super) enum Native {
    /// At the window's end, with these registers.
    Arrived(Box<Registers>),
    /// This signal ended it.
    Killed(i32),
    /// Not in time, or it cannot be told.
    Lost,
}

/// Runs a copy natively to where the window ends, under the same rules for system calls, until
/// `is_over` at the latest.
///
/// At a slow pace it is stepped now and then, so that whatever depends on time comes out otherwise than
/// at full speed: as it may in the translated copy, which is slow too.
pub(super) fn run_natively(
    copy: &mut Process,
    calls: &mut Calls,
    mut finish: Finish,
    is_over: &dyn Fn() -> bool,
    pace: Pace,
) -> Result<Native, SetupError> {
    const FIRST_STEPS: u32 = 20_000;
    const MORE_STEPS: u32 = 200;
    let counter = match &finish {
        Finish::Counted { passage, left } => Some(passage.count(copy, *left)?),
        _ => None,
    };
    let slow = pace == Pace::Slow;
    let mut steps = if slow { FIRST_STEPS } else { 0 };
    let mut signal = 0;
    // It stands at a stop that has been dealt with, or at the window's start. That stop is taken away for one step: resumed with
    // it, an interrupt in between makes some processors report it once more.
    let mut passing = true;
    let mut set = Vec::new();
    while !is_over() {
        let stops = if passing { Vec::new() } else { finish.addresses() };
        if stops != set {
            tracee::set_breakpoints(copy.pid, &stops)?;
            set = stops;
        }
        let signal_now = std::mem::take(&mut signal);
        let stopped = if passing || steps > 0 {
            passing = false;
            steps = steps.saturating_sub(1);
            Some(copy.step_without_calls(signal_now)?)
        } else {
            copy.run_without_calls(signal_now, is_over, slow)?
        };
        match stopped {
            None | Some(Stopped::Exited(_)) => return Ok(Native::Lost),
            Some(Stopped::Killed(signal)) => return Ok(Native::Killed(signal)),
            Some(Stopped::Event(_)) if slow => steps = MORE_STEPS,
            Some(Stopped::Event(_)) => {}
            Some(Stopped::Signal(CALL_STOP)) => {
                if !emulate(copy, calls, &copy.registers()?)? {
                    return Ok(Native::Lost);
                }
            }
            Some(Stopped::Signal(libc::SIGTRAP)) => {
                let at = copy.registers()?;
                if let Some(counter) = &counter
                    && let Some(registers) = counter.finish(copy, &at)?
                {
                    return Ok(Native::Arrived(Box::new(registers)));
                }
                if tracee::is_own_trap(copy.pid) {
                    signal = libc::SIGTRAP;
                    continue;
                }
                let is_there = |stop| target::is_at(copy.pid, stop);
                if finish.addresses().into_iter().any(is_there) {
                    let registers = copy.registers()?;
                    if finish.arrived(&registers, copy) {
                        return Ok(Native::Arrived(Box::new(registers)));
                    }
                    passing = true;
                }
            }
            Some(Stopped::Signal(got)) => signal = got,
        }
    }
    Ok(Native::Lost)
}

/// How fast a native copy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Full,
    Slow,
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
    let like = Copies { process: copy.pid, is_alone: true, ..Copies::default() };
    let answer = match calls.judge(copy, like, number, arguments) {
        Verdict::Answer(answer) => answer,
        Verdict::Opened(fd) => fd.into(),
        Verdict::RunInstead(number, arguments) => copy.call(number, arguments)?,
        Verdict::Run => {
            let answer = copy.call(number, calls.with_own_ids(copy.pid, number, arguments))?;
            calls.made(number, arguments, answer);
            answer
        }
        Verdict::SignalReturn => {
            let back = copy.return_from_signal(&r)?;
            copy.set_registers(&back)?;
            return Ok(true);
        }
        Verdict::Start(_) | Verdict::Exit(_) | Verdict::Exec | Verdict::GiveUp(_) => {
            return Ok(false);
        }
    };
    let mut after = copy.registers()?;
    after.rax = answer.cast_unsigned();
    after.rcx = r.rip;
    after.r11 = r.eflags;
    copy.set_registers(&after)?;
    Ok(true)
}
