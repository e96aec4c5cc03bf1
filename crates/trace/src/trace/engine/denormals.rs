//! Where a run meets denormal numbers.
//!
//! Arithmetic with numbers too small for the usual form is done by microcode on many cores: some 150 cycles an
//! operation. No address tells of them; but the processor can be asked to stop at each. So a process is forked where
//! it stands, its copy is told to do that, and runs until it makes a system call: the original never knows.
//! Literature: Intel's Software Developer's Manual, volume 1, 10.2.3 and 11.5; I. Dooley and L. Kale, "Quantifying the
//! Interference Caused by Subnormal Floating-Point Values" (2006).

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use super::process::{Process, Stopped, request};
use super::target::Target;
use super::{DenormalSite, EngineError, Mapping, Start};
use crate::foreign::has_filter;
use crate::model::Avma;
use crate::run::child::{Launch, Limits};

/// How long a copy may look for them, and how many are enough.
const PATIENCE: Duration = Duration::from_millis(500);
const ENOUGH: u32 = 64;

/// Bits of MXCSR, the rules by which the SSE and AVX units compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arithmetic {
    set: u32,
    clear: u32,
}

impl Arithmetic {
    /// Flush results to zero, and take operands for zero.
    pub(super) const FLUSH_TO_ZERO: Self = Self { set: 1 << 15 | 1 << 6, clear: 0 };
    /// Stop at operands and at results; what was noted before is forgotten.
    const STOP: Self = Self { set: 0, clear: 1 << 8 | 1 << 11 | 0x3f };
    const GO_ON: Self = Self { set: 1 << 8 | 1 << 11, clear: 0x3f };

    /// Sets them for a stopped thread.
    pub(super) fn set(self, tid: i32) -> io::Result<()> {
        let mut registers = std::mem::MaybeUninit::<libc::user_fpregs_struct>::zeroed();
        let address = registers.as_mut_ptr() as usize;
        request(libc::PTRACE_GETFPREGS, tid, 0, address)?;
        // SAFETY: plain integers, all of which were zero before the kernel filled them.
        let mut registers = unsafe { registers.assume_init() };
        registers.mxcsr = registers.mxcsr & !self.clear | self.set;
        request(libc::PTRACE_SETFPREGS, tid, 0, (&raw const registers) as usize)
    }
}

/// Runs a command to its end, and looks for denormal numbers behind so much of its processor time: until a system call,
/// for at most half a second and 64 of them.
///
/// # Errors
/// When it cannot be run or traced, or is shorter.
pub fn denormals(
    launch: &Launch,
    after: Duration,
    limits: Limits<'_>,
) -> Result<Vec<DenormalSite>, EngineError> {
    let mut target = Target::start(launch, limits)?;
    let tid = target.run_to(&Start::After(after), 0)?;
    // A filter would judge the call that forks it.
    if has_filter(tid) {
        target.finish()?;
        return Ok(Vec::new());
    }
    let mappings = target.mappings();
    let found = Process::borrowed_for_calls(tid).and_then(|mut process| look(process.fork()?));
    target.finish()?;
    let found = found.map_err(|cause| EngineError::Unsupported {
        engine: "the search for denormal numbers",
        reason: format!("the process refuses to be copied ({cause})"),
    })?;
    let place = |(at, times)| {
        let (mapping, offset) = Mapping::find(&mappings, at)?;
        Some(DenormalSite { file: mapping.path.clone(), offset, times })
    };
    Ok(found.into_iter().filter_map(place).collect())
}

/// Runs a copy from denormal number to denormal number.
fn look(copy: Process) -> io::Result<BTreeMap<Avma, u32>> {
    let until = Instant::now() + PATIENCE;
    let is_over = || Instant::now() >= until;
    let mut found = BTreeMap::new();
    for _ in 0..ENOUGH {
        Arithmetic::STOP.set(copy.pid)?;
        if copy.run_without_calls(0, &is_over, false)? != Some(Stopped::Signal(libc::SIGFPE)) {
            break;
        }
        *found.entry(Avma(copy.registers()?.rip)).or_default() += 1;
        Arithmetic::GO_ON.set(copy.pid)?;
        if copy.step_without_calls(0)? != Stopped::Signal(libc::SIGTRAP) {
            break;
        }
    }
    Ok(found)
}
