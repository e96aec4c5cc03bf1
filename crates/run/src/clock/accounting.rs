//! Does the kernel tell time in user mode from time in the kernel, or does it guess?
//!
//! *Effect.* Most kernels add a whole tick (1 to 10 ms) to whatever mode the tick finds, and then scale
//! both so that their sum, which is exact, comes out. A run without a tick in the kernel was never there,
//! a pure loop can show no user time at all. Kernels with `VIRT_CPU_ACCOUNTING_GEN` in force book every
//! change of mode.
//!
//! *Measurable sign.* Half a millisecond of pure user code, then half a millisecond of a system call, and
//! again: who books changes of mode gets each right, who counts ticks cannot.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use crate::model::Capability;

/// Turns of both modes. One tick in each of them, at the right time, is out of the question.
const TURNS: usize = 6;
/// How long one turn in one mode lasts: well below the shortest tick.
const TURN: Duration = Duration::from_micros(500);
/// Part of a turn that has to be booked in its mode.
const RIGHT: f64 = 0.8;

/// A thread whose time is booked.
trait Booked {
    /// Spends about a [`TURN`] in one mode; how much was then booked as user and as system time, in
    /// nanoseconds.
    fn turn(&mut self, in_kernel: bool) -> Option<[f64; 2]>;
}

/// Whether user and system time of processes are measured here rather than guessed from ticks. Found out
/// once, in a few milliseconds.
pub fn tells_user_from_system() -> &'static Capability {
    static KNOWN: OnceLock<Capability> = OnceLock::new();
    KNOWN.get_or_init(|| match Ourselves::new() {
        Some(mut ourselves) => judge(&mut ourselves),
        None => Capability::absent("the kernel's accounting could not be tried out"),
    })
}

fn judge(thread: &mut dyn Booked) -> Capability {
    let right = |in_kernel: bool, booked: Option<[f64; 2]>| {
        booked.is_some_and(|[user, system]| {
            let own = if in_kernel { system } else { user };
            own > 0.0 && own >= RIGHT * (user + system)
        })
    };
    let all = (0..TURNS).all(|_| [false, true].into_iter().all(|k| right(k, thread.turn(k))));
    if all {
        return Capability::Present;
    }
    Capability::absent(
        "this kernel splits processor time into user and system time by its clock's ticks",
    )
}

/// This thread, on the real machine.
struct Ourselves {
    zeros: File,
    buffer: Vec<u8>,
}

impl Ourselves {
    fn new() -> Option<Self> {
        Some(Self { zeros: File::open("/dev/zero").ok()?, buffer: vec![0; 1 << 18] })
    }

    fn booked() -> Option<[f64; 2]> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        let ns = |t: nix::sys::time::TimeVal| t.num_microseconds() as f64 * 1000.0;
        Some([ns(usage.user_time()), ns(usage.system_time())])
    }

    fn on_processor() -> Option<Duration> {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
    }
}

impl Booked for Ourselves {
    fn turn(&mut self, in_kernel: bool) -> Option<[f64; 2]> {
        let (before, start) = (Self::booked()?, Self::on_processor()?);
        while Self::on_processor()?.saturating_sub(start) < TURN {
            if in_kernel {
                self.zeros.read_exact(&mut self.buffer).ok()?;
            } else {
                // Long enough that asking for the time does not matter.
                (0..20_000_u64).for_each(|n| {
                    std::hint::black_box(n);
                });
            }
        }
        let after = Self::booked()?;
        Some([after[0] - before[0], after[1] - before[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that books by `book`: it is told how long each mode has lasted so far.
    struct Kernel<F>(F, [f64; 2]);

    impl<F: FnMut([f64; 2]) -> [f64; 2]> Booked for Kernel<F> {
        fn turn(&mut self, in_kernel: bool) -> Option<[f64; 2]> {
            let before = (self.0)(self.1);
            self.1[usize::from(in_kernel)] += 500_000.0;
            let after = (self.0)(self.1);
            Some([after[0] - before[0], after[1] - before[1]])
        }
    }

    #[test]
    fn changes_of_mode_are_told_from_ticks() {
        let judged = |book: fn([f64; 2]) -> [f64; 2]| judge(&mut Kernel(book, [0.0; 2]));
        assert_eq!(judged(|exact| exact), Capability::Present);
        // Every tick found the same mode, as on the machines that showed it.
        assert!(!judged(|[user, system]| [user + system, 0.0]).is_present());
        assert!(!judged(|[user, system]| [0.0, user + system]).is_present());
        // Whole ticks of 4 ms.
        let ticks = |exact: [f64; 2]| exact.map(|ns: f64| (ns / 4e6).floor() * 4e6);
        assert!(!judged(ticks).is_present());
        // The sum is scaled by the ticks so far: half and half, whatever it is.
        assert!(!judged(|[user, system]| [0.5 * (user + system); 2]).is_present());
    }

    #[test]
    fn this_kernel_has_an_answer() {
        assert_eq!(tells_user_from_system(), tells_user_from_system());
    }
}
