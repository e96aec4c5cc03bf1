//! The loop over common codes for x86-64, for the baseline instruction set.
//!
//! In assembly because what gains is to spend few instructions and to choose among edges without
//! branches, and compilers turn the choice into branches and move what two turns share.

use core::arch::asm;
use core::mem::offset_of;

use super::{Common, Kind, State, kinds_of};
use crate::Index;
use crate::variants::Paired;

/// The loop in assembly.
pub(crate) struct Assembly;

impl Common for Assembly {
    type Access = Paired;

    #[inline(always)]
    unsafe fn run<I: Index, const CODED: u8>(
        state: &mut State,
        codes: &[u8],
        done: usize,
        out: *mut I,
    ) -> usize {
        // The loop counts `next` in 32 bits and also finds slots by it. It cannot come this near
        // to the end of its range within one block but in streams of more than 4 GB.
        if state.next > u32::MAX - 2 * super::super::BLOCK_TRIANGLES as u32 {
            // SAFETY: the same promises.
            return unsafe { <super::Portable<Paired>>::run::<I, CODED>(state, codes, done, out) };
        }
        let start = codes.as_ptr();
        // SAFETY: as the caller promises.
        unsafe {
            let end = if size_of::<I>() == 4 {
                run_wide(state, kinds_of::<CODED>(), start.add(done), out.add(3 * done).cast())
            } else {
                run_narrow(state, kinds_of::<CODED>(), start.add(done), out.add(3 * done).cast())
            };
            end.offset_from_unsigned(start)
        }
    }
}

/// A new or remembered third vertex, into `c`. The next new one is stored first, in the place
/// that it will have, so that it is found like a remembered one.
macro_rules! load_third {
    () => {
        "add {c}, {next}
         mov dword ptr [{slots} + {next}*4], {next:e}
         add {next:e}, dword ptr [{kinds} + {k}*8 + {new}]
         mov {c:e}, dword ptr [{slots} + {c}*4]\n"
    };
}

/// The rest of a triangle: finds its edge, writes the triangle, remembers its two other edges, and
/// looks up the code after it. Arguments: where that code is, where the edges are, and the stores
/// of the triangle before and after the edge is taken apart.
macro_rules! finish_triangle {
    ($next_code:literal, $edges:literal, $write_whole:expr, $write_parts:expr) => {
        concat!(
            "movzx {x:e}, byte ptr [{kinds} + {k}*8 + {loaded}]
             cmp byte ptr [{kinds} + {k}*8 + {class}], 1
             mov {x}, qword ptr [{edges} + {x}*8 - ",
            $edges,
            "]
             cmove {x}, {e1}
             cmovb {x}, {e0}
             mov {k:e}, {x:e}\n",
            $write_whole,
            "xor {x}, {k}
             lea {e1}, [{x} + {c}]\n",
            $write_parts,
            "shl {c}, 32
             lea {e0}, [{k} + {c}]
             mov qword ptr [{edges} - ",
            $edges,
            " - 8], {e1}
             mov qword ptr [{edges} - ",
            $edges,
            " - 16], {e0}
             movzx {k:e}, byte ptr [{codes} + ",
            $next_code,
            "]
             movsx {c}, byte ptr [{kinds} + {k}*8 + {vertex}]
             test {c:e}, {c:e}\n"
        )
    };
}

/// The loop, for a width of indices.
macro_rules! define_run {
    ($name:ident, $index:ty, [$whole0:literal, $parts0:literal], [$whole1:literal, $parts1:literal]) => {
        /// Decodes common codes from `codes` on and returns where it stopped.
        ///
        /// # Safety
        ///
        /// See [`Common::run`]; and `state.next` is not within a block of its largest value.
        #[inline(always)]
        unsafe fn $name(
            state: &mut State,
            kinds: &'static [Kind; 256],
            mut codes: *const u8,
            out: *mut $index,
        ) -> *const u8 {
            let mut next = u64::from(state.next);
            let mut slots = state.vertices.wrapping_sub(next as usize);
            let mut last = u64::from(state.last);
            // SAFETY: reads codes up to the first that is not common; per code writes a triangle,
            // two edges, and at most one vertex and the one after it; reads edges and vertices of
            // at most 16 triangles back; reads two bytes of data at most, after comparing with
            // their end, behind which the tail is. Nothing else is touched, not the stack.
            unsafe {
                asm!(
                    "movzx {k:e}, byte ptr [{codes}]",
                    "movsx {c}, byte ptr [{kinds} + {k}*8 + {vertex}]",
                    "test {c:e}, {c:e}",
                    "jg 3f",
                    ".p2align 6",
                    // Two triangles per turn.
                    "2:",
                    load_third!(),
                    "22:",
                    finish_triangle!("1", "0", $whole0, $parts0),
                    "jg 33f",
                    load_third!(),
                    finish_triangle!("2", "16", $whole1, $parts1),
                    // None of these touches the flags.
                    "lea {edges}, [{edges} - 32]",
                    "lea {out}, [{out} + 2*{step}]",
                    "lea {codes}, [{codes} + 2]",
                    "jle 2b",
                    "jmp 3f",
                    // After the first of two triangles: as if it were the second.
                    "33:",
                    "sub {edges}, 16",
                    "add {out}, {step}",
                    "inc {codes}",
                    // The third vertex is coded: by one step from the last one so coded,
                    "3:",
                    "cmp {c:e}, {difference}",
                    "ja 9f",
                    "je 5f",
                    "lea {last:e}, [{last} + {c}*2 - 3]",
                    "4:",
                    "mov {c:e}, {last:e}",
                    "mov dword ptr [{slots} + {next}*4], {c:e}",
                    "add {slots}, 4",
                    "jmp 22b",
                    // or by a difference of one byte
                    "5:",
                    "movq {x}, {data_end}",
                    "cmp {data}, {x}",
                    "ja 9f",
                    "movzx {c:e}, byte ptr [{data}]",
                    "test {c:l}, {c:l}",
                    "js 7f",
                    "inc {data}",
                    "6:",
                    "mov {x:e}, {c:e}",
                    "shr {c:e}",
                    "and {x:e}, 1",
                    "neg {x:e}",
                    "xor {c:e}, {x:e}",
                    "add {last:e}, {c:e}",
                    "jmp 4b",
                    // or of two; longer ones are left to the caller.
                    "7:",
                    "movzx {x:e}, byte ptr [{data} + 1]",
                    "test {x:l}, {x:l}",
                    "js 9f",
                    "and {c:e}, 127",
                    "shl {x:e}, 7",
                    "or {c:e}, {x:e}",
                    "add {data}, 2",
                    "jmp 6b",
                    "9:",
                    codes = inout(reg) codes,
                    kinds = in(reg) kinds.as_ptr(),
                    edges = inout(reg) state.edges,
                    slots = inout(reg) slots,
                    next = inout(reg) next,
                    last = inout(reg) last,
                    data = inout(reg) state.data,
                    data_end = in(xmm_reg) state.data_end.addr() as u64,
                    out = inout(reg) out => _,
                    e0 = inout(reg) state.edges.read() => _,
                    e1 = inout(reg) state.edges.add(1).read() => _,
                    k = out(reg) _,
                    x = out(reg) _,
                    c = out(reg) _,
                    new = const offset_of!(Kind, new_vertices),
                    loaded = const offset_of!(Kind, loaded_edge),
                    vertex = const offset_of!(Kind, vertex),
                    class = const offset_of!(Kind, edge_class),
                    difference = const super::DIFFERENCE,
                    step = const 3 * size_of::<$index>(),
                    options(nostack),
                );
            }
            state.next = next as u32;
            state.last = last as u32;
            state.vertices = slots.wrapping_add(next as usize);
            codes
        }
    };
}

define_run!(
    run_wide,
    u32,
    ["mov qword ptr [{out}], {x}\nmov dword ptr [{out} + 8], {c:e}\n", ""],
    ["mov qword ptr [{out} + 12], {x}\nmov dword ptr [{out} + 20], {c:e}\n", ""]
);

define_run!(
    run_narrow,
    u16,
    [
        "mov word ptr [{out}], {k:x}\nmov word ptr [{out} + 4], {c:x}\n",
        "shr {x}, 32\nmov word ptr [{out} + 2], {x:x}\n"
    ],
    [
        "mov word ptr [{out} + 6], {k:x}\nmov word ptr [{out} + 10], {c:x}\n",
        "shr {x}, 32\nmov word ptr [{out} + 8], {x:x}\n"
    ]
);
