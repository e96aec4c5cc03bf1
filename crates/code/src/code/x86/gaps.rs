//! Functions in code that no table names: by where calls go, and by where code ends.
//!
//! Unwind tables name what can be unwound, symbols what was not stripped; between them can lie most of a program. There
//! a function begins behind the one before, at the first byte that is no filler, and ends behind an instruction that
//! surely ends it when no jump before led further and filler, a called address or an aligned one follows. A jump whose
//! target only the run knows may lead behind such an instruction to an aligned one. What does not decode, or holds
//! instructions that only a kernel executes, is data and no function.
//!
//! Literature: D. Andriesse et al., "An In-Depth Analysis of Disassembly on Full-Scale x86/x64 Binaries" (2016), on how
//! well linear decoding does on what compilers emit.

use super::survey::{Step, direct_call, step};
use crate::model::Svma;

/// Where to go on behind bytes that are no code: functions start at multiples of this.
const ALIGNMENT_BYTES: u64 = 16;
/// Between functions stands a byte that traps, or one that does nothing, in up to ten bytes.
const TRAP: u8 = 0xcc;

/// Where the direct calls in a stretch of code go, but for those that only ask where they are. Bytes that are none are
/// passed over.
pub(in crate::code) fn call_targets(code: &[u8], start: Svma) -> Vec<Svma> {
    let (mut targets, mut at) = (Vec::new(), 0);
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(step) = step(rest) else {
            at += 1;
            continue;
        };
        at += step.length_bytes;
        targets.extend(
            direct_call(rest, &step)
                .filter(|d| *d != 0)
                .map(|distance| start.offset(at as i64 + distance)),
        );
    }
    targets
}

/// The functions in a stretch of code that no table names, as starts and sizes; `called` are addresses that are called,
/// ascending.
pub(in crate::code) fn functions(code: &[u8], start: Svma, called: &[Svma]) -> Vec<(Svma, u64)> {
    let first = called.partition_point(|target| *target <= start);
    let inside = called[first..].iter().map_while(|target| {
        target.distance_from(start).filter(|skip| *skip < code.len() as u64).map(|s| s as usize)
    });
    let called: Vec<usize> = inside.collect();
    let next_called = |at: usize| called.get(called.partition_point(|t| *t <= at)).copied();
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        at += filler_bytes(&code[at..]);
        if at >= code.len() {
            return found;
        }
        let limit = next_called(at).unwrap_or(code.len());
        if let Some(end) = end_of_function(code, start, at, limit) {
            found.push((start.offset(at as i64), (end - at) as u64));
            at = end;
        } else {
            let address = start.offset(at as i64 + 1).0;
            let aligned = address.next_multiple_of(ALIGNMENT_BYTES) - start.0;
            at = limit.min(usize::try_from(aligned).unwrap_or(usize::MAX)).min(code.len());
        }
    }
}

/// Where a function that starts at `from` ends, at `limit` at the most; `None` when it is none.
fn end_of_function(code: &[u8], start: Svma, from: usize, limit: usize) -> Option<usize> {
    // The furthest that a jump leads, and whether one leads to where only the run knows.
    let (mut furthest, mut is_open) = (from, false);
    let mut at = from;
    while at < limit {
        let rest = &code[at..limit];
        let step = step(rest).filter(|step| !is_of_kernels(rest, step))?;
        at += step.length_bytes;
        if let Some(distance) = step.jump {
            let target = usize::try_from(at as i64 + distance).unwrap_or(0);
            if target < limit {
                furthest = furthest.max(target);
            }
        }
        is_open |= step.indirect && !is_through_slot(rest, &step);
        let is_aligned = || start.offset(at as i64).0.is_multiple_of(ALIGNMENT_BYTES);
        if step.surely_ends
            && furthest <= at
            && (filler_bytes(&code[at..]) > 0 || !is_open && is_aligned())
        {
            return Some(at);
        }
        // Behind a call that does not return there are traps up to the next function.
        if code.get(at) == Some(&TRAP) && furthest <= at {
            return Some(at);
        }
    }
    // The next function follows a call that does not return, or what this falls into.
    (at == limit && furthest < limit).then_some(limit)
}

/// How many bytes of filler code begins with.
pub(in crate::code) fn filler_bytes(code: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        at += match rest {
            [TRAP | 0x90 | 0, ..] => 1,
            _ => match idle_bytes(rest) {
                0 => return at,
                bytes => bytes,
            },
        };
    }
    at
}

/// The length of a `nop` of several bytes: prefixes, 0x0f 0x1f and what follows, or prefixes and 0x90.
fn idle_bytes(code: &[u8]) -> usize {
    let prefixes = code.iter().take_while(|b| matches!(b, 0x66 | 0x2e)).count();
    match code.get(prefixes..) {
        Some([0x0f, 0x1f, ..]) => step(code).map_or(0, |step| step.length_bytes),
        Some([0x90, ..]) => prefixes + 1,
        _ => 0,
    }
}

/// A jump to where the linker or loader has put an address: into another function.
fn is_through_slot(code: &[u8], step: &Step) -> bool {
    step.mod_rm_at.and_then(|at| code.get(at)).is_some_and(|mod_rm| mod_rm & 0xc7 == 5)
}

/// Instructions that end a program with a fault: input, output, halt, interrupts on and off.
fn is_of_kernels(code: &[u8], step: &Step) -> bool {
    let op = code.iter().find(|b| !matches!(b, 0x66 | 0xf2 | 0xf3 | 0x40..=0x4f));
    step.mod_rm_at.is_none()
        && matches!(op, Some(0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef | 0xf4 | 0xfa | 0xfb))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Svma = Svma(0x1000);

    fn found(code: &[u8], called: &[u64]) -> Vec<(u64, u64)> {
        let called: Vec<Svma> = called.iter().map(|at| Svma(*at)).collect();
        functions(code, START, &called).into_iter().map(|(at, size)| (at.0, size)).collect()
    }

    #[test]
    fn a_function_ends_where_no_jump_leads_further() {
        // test edi, edi; je to the second ret; ret; ret: one; then nothing for 9 bytes; xor eax, eax; ret
        let mut code = vec![0x85, 0xff, 0x74, 0x01, 0xc3, 0xc3, 0xcc];
        code.extend([0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
        code.extend([0x31, 0xc0, 0xc3]);
        assert_eq!(found(&code, &[]), [(0x1000, 6), (0x1010, 3)]);
        // What is neither aligned nor called may be a part of what is before it.
        code[2..4].copy_from_slice(&[0x31, 0xc0]);
        assert_eq!(found(&code, &[])[0], (0x1000, 6));
        assert_eq!(found(&code, &[0x1005])[..2], [(0x1000, 5), (0x1005, 1)]);
        let aligned = [&[0x90; 15][..], &[0xc3, 0xc3]].concat();
        assert_eq!(found(&aligned, &[]), [(0x100f, 1), (0x1010, 1)]);
    }

    #[test]
    fn cases_behind_a_jump_through_a_table_belong_to_it() {
        // jmp rax; ret; ret; int3
        let code = [0xff, 0xe0, 0xc3, 0xc3, 0xcc];
        assert_eq!(found(&code, &[]), [(0x1000, 4)]);
        // jmp [rip + 0]; ret: what the linker has put there is another function.
        let through_slot = [&[0x50; 10][..], &[0xff, 0x25, 0, 0, 0, 0, 0xc3]].concat();
        assert_eq!(found(&through_slot, &[]), [(0x1000, 16), (0x1010, 1)]);
        // The same through a register.
        let through_table = [&[0x50; 14][..], &[0xff, 0xe0, 0xc3]].concat();
        assert_eq!(found(&through_table, &[]), [(0x1000, 17)]);
        assert_eq!(found(&code, &[0x1003]), [(0x1000, 3), (0x1003, 1)], "it is called");
    }

    #[test]
    fn a_call_that_does_not_return_ends_a_function_before_traps_and_before_what_is_called() {
        // call far; int3; int3; ret
        assert_eq!(found(&[0xe8, 0, 1, 0, 0, 0xcc, 0xcc, 0xc3], &[]), [(0x1000, 5), (0x1007, 1)]);
        // call far; ret
        let code = [0xe8, 0, 1, 0, 0, 0xc3];
        assert_eq!(found(&code, &[0x1005]), [(0x1000, 5), (0x1005, 1)]);
        assert_eq!(found(&code, &[]), [(0x1000, 6)]);
        assert_eq!(call_targets(&code, START), [Svma(0x1105)]);
        // call of the next instruction: it asks where it is.
        assert_eq!(call_targets(&[0xe8, 0, 0, 0, 0, 0x58], START), []);
    }

    #[test]
    fn text_and_what_does_not_decode_are_no_functions() {
        assert_eq!(found(b"the quick brown fox jumps", &[]), []);
        // An undefined opcode, then a function at the next multiple of 16.
        let mut code = vec![0x06; 16];
        code.extend([0x31, 0xc0, 0xc3]);
        assert_eq!(found(&code, &[]), [(0x1010, 3)]);
        // What has no end falls into what follows.
        assert_eq!(found(&[0x31, 0xc0], &[]), [(0x1000, 2)]);
        assert_eq!(found(&[0x0f], &[]), []);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(code in proptest::collection::vec(0_u8.., 0..300), called in 0_u64..300) {
            let mut end = 0x1000;
            for (at, size) in found(&code, &[0x1000 + called]) {
                proptest::prop_assert!(at >= end && size > 0);
                end = at + size;
            }
            proptest::prop_assert!(end <= 0x1000 + code.len() as u64);
        }
    }
}
