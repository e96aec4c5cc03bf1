//! Instructions of the user's own, timed as the probes time theirs.
//!
//! *Effect.* What a loop over some instructions takes, once around. Where they wait for one another (`imul rax, rax`) that
//! is their latency, where they do not it is how many the core does in a cycle. *Sign.* Core cycles for one copy of the
//! body, of which several stand in each pass of the loop. *Control.* An addition that waits for the last one takes a cycle
//! in the same frame, or the clock is not the core's.
//!
//! The code is run as it is: in a process of its own, please. What cannot be timed in a loop, or would leave it, is refused
//! by [`Snippet::new`].
//!
//! *Literature.* A. Abel and J. Reineke, "nanoBench" (2020); T. Downs, "uarch-bench".

use iced_x86::{
    Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, Register, RflagsBits,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::protocol::{Answer, Control, Protocol};
use super::sampling::Sampled;
#[cfg(target_arch = "x86_64")]
use super::{Bench, ProbeError};
use crate::model::Measurement;

/// Bytes from `rdi` on that the code may touch; zeros in the beginning.
pub const BUFFER_BYTES: usize = 64 << 10;
/// The longest body, and the longest beginning.
pub const MOST_BYTES: usize = 2048;
/// So many instructions stand in a pass of the loop, at least, that the loop's own two are few beside them.
const LEAST_PER_PASS: usize = 128;
/// In the frame of the snippet, an addition takes a cycle.
const ADDITION_CYCLES: [f64; 2] = [0.95, 1.1];
/// The loop counts in it.
const COUNTER: Register = Register::R15;

/// Why instructions are not timed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnippetError {
    /// There is nothing to time.
    #[error("the body has no instruction")]
    Empty,
    /// More than a kernel holds.
    #[error("{what} has {bytes} bytes; at most {MOST_BYTES} are timed")]
    TooLong {
        /// The body, or the beginning.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// An instruction that has no place in a loop.
    #[error("`{instruction}` {why}")]
    Refused {
        /// As a disassembler writes it.
        instruction: String,
        /// A clause that follows it.
        why: &'static str,
    },
    /// The stack is not where it was.
    #[error("{what} pushes and pops different amounts: {bytes:+} bytes")]
    Unbalanced {
        /// The body, or the beginning.
        what: &'static str,
        /// How far the stack pointer moves.
        bytes: i64,
    },
}

/// Machine code that may be timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    init: Vec<u8>,
    body: Vec<u8>,
    instructions: usize,
    uses_wide_vectors: bool,
}

impl Snippet {
    /// Code for the 64-bit mode: `init` runs once before the loop, `body` is timed.
    ///
    /// ```
    /// use stallscope_probes::probes::snippet::Snippet;
    /// // imul rax, rax
    /// assert!(Snippet::new(&[], &[0x48, 0x0f, 0xaf, 0xc0]).is_ok());
    /// // ret
    /// let refused = Snippet::new(&[], &[0xc3]).unwrap_err();
    /// assert_eq!(refused.to_string(), "`ret` leaves the loop");
    /// ```
    ///
    /// # Errors
    /// What keeps it from being timed.
    pub fn new(init: &[u8], body: &[u8]) -> Result<Self, SnippetError> {
        let (_, init_is_wide) = check("the beginning", init)?;
        let (instructions, body_is_wide) = check("the body", body)?;
        if instructions == 0 {
            return Err(SnippetError::Empty);
        }
        let uses_wide_vectors = body_is_wide || init_is_wide;
        Ok(Self { init: init.to_vec(), body: body.to_vec(), instructions, uses_wide_vectors })
    }

    /// Copies of the body in one pass of the loop.
    fn copies(&self) -> usize {
        LEAST_PER_PASS.div_ceil(self.instructions)
    }
}

/// Instructions, and whether any writes more than 16 bytes of a vector register.
fn check(what: &'static str, code: &[u8]) -> Result<(usize, bool), SnippetError> {
    if code.len() > MOST_BYTES {
        return Err(SnippetError::TooLong { what, bytes: code.len() });
    }
    let (mut count, mut depth_bytes, mut is_wide) = (0, 0_i64, false);
    let mut factory = InstructionInfoFactory::new();
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter() {
        let refused = |why| SnippetError::Refused { instruction: instruction.to_string(), why };
        if let Some(why) = no_place_in_a_loop(&instruction, code.len(), &mut factory) {
            return Err(refused(why));
        }
        depth_bytes += i64::from(instruction.stack_pointer_increment());
        if depth_bytes > 0 {
            return Err(refused("pops what it has not pushed"));
        }
        is_wide |= matches!(instruction.encoding(), EncodingKind::VEX | EncodingKind::EVEX);
        count += 1;
    }
    if depth_bytes != 0 {
        return Err(SnippetError::Unbalanced { what, bytes: depth_bytes });
    }
    Ok((count, is_wide))
}

const OUTSIDE: &str = "asks the kernel, or raises an exception";

fn no_place_in_a_loop(
    instruction: &Instruction,
    code_bytes: usize,
    factory: &mut InstructionInfoFactory,
) -> Option<&'static str> {
    if instruction.is_invalid() {
        return Some("is no instruction");
    }
    if matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) {
        return Some(OUTSIDE);
    }
    match instruction.flow_control() {
        FlowControl::Next => {}
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            if instruction.near_branch_target() > code_bytes as u64 {
                return Some("jumps out of the code");
            }
        }
        FlowControl::Return
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::IndirectBranch => return Some("leaves the loop"),
        _ => return Some(OUTSIDE),
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some("names an address relative to itself; rdi points to memory");
    }
    if instruction.rflags_modified() & RflagsBits::DF != 0 {
        return Some("changes the direction of string instructions");
    }
    let used = factory.info(instruction).used_registers();
    if used.iter().any(|used| used.register().full_register() == COUNTER) {
        return Some("uses r15, in which the loop counts");
    }
    let writes_stack_pointer = used.iter().any(|used| {
        let writes =
            !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        writes && used.register().full_register() == Register::RSP
    });
    (writes_stack_pointer && !instruction.is_stack_instruction())
        .then_some("moves the stack pointer")
}

/// What once around takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnippetReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Instructions of the body.
    pub instructions: usize,
    /// Bytes of the body.
    pub bytes: usize,
    /// Copies of the body in each pass of the loop.
    pub copies: usize,
    /// Core cycles for one copy; absent where too few samples were clean.
    pub cycles: Option<Measurement>,
}

impl SnippetReport {
    fn new(snippet: &Snippet, sampled: &Sampled, mut protocol: Protocol) -> Self {
        protocol.count(sampled);
        let cell = |n: usize| sampled.cells.get(n).and_then(|cell| cell.cycles.clone());
        let (cycles, addition) = (cell(0), cell(1));
        let [least, most] = ADDITION_CYCLES;
        let is_one = |a: &Measurement, _: &Measurement| (least..=most).contains(&a.value);
        let (added, words) = (addition.as_ref(), "an addition that waits for the last");
        protocol.controls = vec![Control::compare("negative", words, added, added, is_one)];
        protocol.conclude(match &cycles {
            Some(m) => Answer::Found(format!(
                "{:.2} cycles [{:.2}, {:.2}] once around, {:.2} an instruction",
                m.value,
                m.low,
                m.high,
                m.value / snippet.instructions as f64
            )),
            None => Answer::Open("too few clean samples".into()),
        });
        Self {
            protocol,
            instructions: snippet.instructions,
            bytes: snippet.body.len(),
            copies: snippet.copies(),
            cycles,
        }
    }
}

/// Times it on the calling thread, in this process: whatever it does happens here.
///
/// # Errors
/// What keeps it from being run; a restless machine is a report.
#[cfg(target_arch = "x86_64")]
pub fn run(bench: &Bench<'_>, snippet: &Snippet) -> Result<SnippetReport, ProbeError> {
    use super::rig::{KernelRig, Shape};
    use super::sampling::{Plan, measure};
    use iced_x86::code_asm::{r12, r13, r14, r15, rax, rbp, rbx, rsi};
    /// About as many ticks as a visit's K takes.
    const ABOUT_TICKS: u64 = 8_000;
    let copies = snippet.copies();
    let shape = Shape {
        placements: &[0, 16, 32, 48],
        per_pass: copies as u64,
        buffer_bytes: BUFFER_BYTES,
        code_bytes: 8 * (snippet.init.len() + copies * snippet.body.len().max(3) + 512),
    };
    let rig = |clock, _: &_| {
        // SAFETY: saved and restored here is all that the convention wants kept; the rest is the promise of our caller's
        // user, which `Snippet::new` has checked as far as it can be.
        let rig = unsafe {
            KernelRig::new(clock, shape, vec![copies as u64; 2], |case, _, a| {
                let kept = [rbx, rbp, r12, r13, r14, r15];
                kept.into_iter().try_for_each(|register| a.push(register))?;
                a.mov(r15, rsi)?;
                a.db(&snippet.init)?;
                let mut top = a.create_label();
                a.set_label(&mut top)?;
                for _ in 0..copies {
                    match case {
                        0 => a.db(&snippet.body)?,
                        _ => a.add(rax, rax)?,
                    }
                }
                a.dec(r15)?;
                a.jnz(top)?;
                if snippet.uses_wide_vectors {
                    a.vzeroupper()?;
                }
                kept.into_iter().rev().try_for_each(|register| a.pop(register))
            })
        };
        rig.map(|rig| rig.calibrated(ABOUT_TICKS))
    };
    let plan = Plan { limit_ns: 2_000_000_000, ..Plan::new(bench.seed) };
    measure(bench, (2, plan), rig, |sampled, protocol| {
        SnippetReport::new(snippet, sampled, protocol)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, invented};
    use crate::probes::fake;

    fn refused(body: &[u8]) -> String {
        Snippet::new(&[], body).unwrap_err().to_string()
    }

    #[test]
    fn what_would_leave_the_loop_or_break_it_is_refused() {
        assert_eq!(refused(&[]), "the body has no instruction");
        assert_eq!(refused(&[0x90; 2049]), "the body has 2049 bytes; at most 2048 are timed");
        let cases: [(&[u8], &str); 12] = [
            (&[0x06], "is no instruction"),
            (&[0xc3], "leaves the loop"),
            (&[0xff, 0xd0], "leaves the loop"),
            (&[0xe8, 0, 0, 0, 0], "leaves the loop"),
            (&[0x0f, 0x05], "asks the kernel"),
            (&[0xcc], "asks the kernel"),
            (&[0xeb, 0x01], "jumps out"),
            (&[0xfd], "direction"),
            (&[0x49, 0xff, 0xc7], "r15"),
            (&[0x44, 0x89, 0xf8], "r15"),
            (&[0x48, 0x83, 0xc4, 0x08], "stack pointer"),
            (&[0x48, 0x8b, 0x05, 0, 0, 0, 0], "relative to itself"),
        ];
        for (body, why) in cases {
            assert!(refused(body).contains(why), "{body:x?}: {}", refused(body));
        }
        assert!(refused(&[0x50]).ends_with("different amounts: -8 bytes"));
        assert!(refused(&[0x58, 0x50]).contains("pops what it has not pushed"));
        assert!(Snippet::new(&[0xc3], &[0x90]).is_err(), "the beginning is checked, too");
    }

    #[test]
    fn what_stays_in_the_loop_is_taken() {
        // push rax; pop rax; jmp to the end; vaddpd ymm0, ymm0, ymm0
        let body = [0x50, 0x58, 0xeb, 0x04, 0xc5, 0xfd, 0x58, 0xc0];
        let snippet = Snippet::new(&[], &body).unwrap();
        assert_eq!((snippet.instructions, snippet.copies()), (4, 32));
        assert!(snippet.uses_wide_vectors);
        assert_eq!(Snippet::new(&[], &[0x90; 200]).unwrap().copies(), 1);
    }

    #[test]
    fn a_clock_that_is_not_the_cores_gives_no_figure() {
        let snippet = Snippet::new(&[], &[0x48, 0x0f, 0xaf, 0xc0]).unwrap();
        let report = |addition: f64| {
            let cycles = move |case| if case == 0 { 3.0 } else { addition };
            let sampled = fake::sampled(fake::quiet(), 2, cycles);
            let machine = Machine::from_facts(&invented::zen_5_guest());
            SnippetReport::new(&snippet, &sampled, Protocol::new(machine, 0))
        };
        let found = report(1.0);
        assert!(found.protocol.conclusive, "{}", found.protocol.verdict);
        assert!(found.protocol.verdict.starts_with("3.0"), "{}", found.protocol.verdict);
        assert!(!report(1.3).protocol.conclusive);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn code_runs_in_its_frame_and_leaves_it_whole() {
        // mov rbx, rdi | mov [rbx + 8], rax; push rbp; pop rbp; xor ebp, ebp
        let init = [0x48, 0x89, 0xfb];
        let body = [0x48, 0x89, 0x43, 0x08, 0x55, 0x5d, 0x31, 0xed];
        let snippet = Snippet::new(&init, &body).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let report = run(&Bench::new(1, &stop), &snippet).unwrap();
        assert_eq!((report.instructions, report.bytes, report.copies), (4, 8, 32));
    }
}
