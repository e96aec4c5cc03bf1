//! One loop, one answer: the static rule, the layout and the model of a run agree on which jumps touch
//! a 32-byte boundary, because all of them ask one design.

use proptest::prelude::*;
use stallscope::code::{Image, fixture};
use stallscope::hazards::{FunctionView, Hazard, LOOP_ALIGNMENT};
use stallscope::layout::{JumpCounts, Samples, boundary_jumps};
use stallscope::machine::{Design, Microarchitecture};
use stallscope::model::{Avma, Svma};
use stallscope::sim::jumps::BlockCounts;
use stallscope::trace::engine::{Block, BlockId, BlockInsn, Sink};

const TURNS: u64 = 1000;

/// Instructions that set flags or do not, each in one of the forms that fusion tells apart.
const BODY: &[&[u8]] = &[
    &[0x39, 0xc8],                         // cmp eax, ecx
    &[0x48, 0x39, 0xc8],                   // cmp rax, rcx
    &[0x39, 0x4f, 0x10],                   // cmp [rdi+16], ecx
    &[0x3b, 0x0f],                         // cmp ecx, [rdi]
    &[0x39, 0x0d, 0x00, 0x01, 0x00, 0x00], // cmp [rip+256], ecx
    &[0x83, 0x3c, 0x24, 0x05],             // cmp dword [rsp], 5
    &[0x83, 0xf9, 0x05],                   // cmp ecx, 5
    &[0x85, 0xc0],                         // test eax, eax
    &[0xa9, 0x00, 0x01, 0x00, 0x00],       // test eax, 256
    &[0xff, 0x00],                         // inc dword [rax]
    &[0xff, 0xc9],                         // dec ecx
    &[0x01, 0xc8],                         // add eax, ecx
    &[0x01, 0x08],                         // add [rax], ecx
    &[0x2b, 0x07],                         // sub eax, [rdi]
    &[0x83, 0xe0, 0x07],                   // and eax, 7
    &[0x09, 0xc8],                         // or eax, ecx
    &[0x89, 0xc8],                         // mov eax, ecx
    &[0x8d, 0x4f, 0x08],                   // lea ecx, [rdi+8]
    &[0x90],                               // nop
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
];

/// One piece of a loop: an instruction, and whether a conditional jump over nothing follows.
type Piece = (usize, Option<u8>);

/// A function: nops, the pieces in a loop, and a return.
struct Small {
    image: Image,
    /// Addresses and sizes of the loop's instructions, in blocks that end with a jump.
    blocks: Vec<Vec<(Svma, u8)>>,
}

fn small(nops: usize, pieces: &[Piece], last: (usize, u8)) -> Small {
    let mut code = vec![0x90; nops];
    let start = fixture::CODE_START.0;
    let mut blocks = vec![Vec::new()];
    let mut put = |code: &mut Vec<u8>, bytes: &[u8], ends: bool| {
        let at = start.offset(code.len() as i64);
        blocks.last_mut().unwrap().push((at, bytes.len() as u8));
        code.extend(bytes);
        if ends {
            blocks.push(Vec::new());
        }
    };
    for (insn, jump) in pieces {
        put(&mut code, BODY[*insn], false);
        if let Some(condition) = jump {
            put(&mut code, &[0x70 | condition, 0], true);
        }
    }
    put(&mut code, BODY[last.0], false);
    let back = nops as i32 - code.len() as i32 - 6;
    let jump = [&[0x0f, 0x80 | last.1][..], &back.to_le_bytes()].concat();
    put(&mut code, &jump, true);
    blocks.retain(|block| !block.is_empty());
    code.push(0xc3);
    let image = fixture::image(&[("f", &code)]).unwrap();
    Small { image, blocks }
}

impl Small {
    /// Jumps on a boundary by the rule, the layout and the model of a run; the last two with where they
    /// are.
    fn answers(&self) -> (usize, Vec<Svma>, Vec<Svma>) {
        let design = Design::of(Microarchitecture::CascadeLake);
        let fusion = design.fusion().value;
        (self.by_scan(&design), self.by_layout(fusion), self.by_trace(fusion))
    }

    fn by_scan(&self, design: &Design) -> usize {
        let view = FunctionView::of(&self.image, &self.image.functions()[0]);
        let found = LOOP_ALIGNMENT.look(&view, design);
        let jumps = found.iter().filter(|c| c.mechanism.contains("32-byte boundary"));
        jumps.map(|c| 1 + c.sets.iter().map(Vec::len).sum::<usize>()).sum()
    }

    fn by_layout(&self, fusion: stallscope::machine::Fusion) -> Vec<Svma> {
        let hits = self.blocks.iter().flatten().map(|(at, _)| (*at, TURNS)).collect();
        let samples = Samples { hits, is_complete: true, ..Samples::default() };
        let sites = boundary_jumps(&self.image, &samples, fusion);
        let counts = JumpCounts::of(&self.image, &samples, fusion);
        assert_eq!(counts.executed_on_boundary, Some(TURNS * sites.len() as u64));
        let start = self.image.functions()[0].start;
        let mut found: Vec<Svma> =
            sites.iter().map(|s| start.offset(s.offset_bytes as i64)).collect();
        found.sort();
        found
    }

    fn by_trace(&self, fusion: stallscope::machine::Fusion) -> Vec<Svma> {
        let mut counts = BlockCounts::default();
        for (id, block) in (0..).zip(&self.blocks) {
            let insn = |(at, size): &(Svma, u8)| BlockInsn {
                address: Avma(at.0),
                size_bytes: *size,
                drains_stores: false,
            };
            counts.describe(BlockId(id), &Block { insns: block.iter().map(insn).collect() });
            (0..TURNS).for_each(|_| counts.run(BlockId(id), &[]));
        }
        let function = &self.image.functions()[0];
        let code = self.image.function_bytes(function);
        let report = counts.jumps(fusion, |at, size| {
            let from = Svma(at.0).distance_from(function.start).unwrap() as usize;
            code[from..from + usize::from(size)].to_vec()
        });
        assert_eq!(report.on_boundary, TURNS * report.sites.len() as u64);
        let mut found: Vec<Svma> = report.sites.iter().map(|s| Svma(s.insn.0)).collect();
        found.sort();
        found
    }
}

proptest! {
    #[test]
    fn rule_layout_and_trace_count_the_same_jumps(
        nops in 0_usize..64,
        pieces in prop::collection::vec((0..BODY.len(), prop::option::of(0_u8..16)), 0..14),
        last in (0..BODY.len(), 0_u8..16),
    ) {
        let (scan, layout, trace) = small(nops, &pieces, last).answers();
        prop_assert_eq!(&layout, &trace);
        prop_assert_eq!(scan, layout.len());
    }
}

/// The position in [`BODY`] of an instruction.
fn insn(bytes: &[u8]) -> usize {
    BODY.iter().position(|b| *b == bytes).unwrap()
}

/// Loops whose last instruction lies over a boundary and whose jump stands behind it: on the boundary
/// only where the two fuse. Commands once gave three answers about the first three.
#[test]
fn the_loops_that_commands_disagreed_on() {
    let (ns, ne) = (9, 5);
    for (first, condition, wanted) in [
        (&[0x48, 0x39, 0xc8][..], ns, 0), // cmp and jns: cmp gives no sign
        (&[0xff, 0x00], ne, 0),           // inc [mem] and jne: it writes memory
        (&[0x39, 0x0d, 0x00, 0x01, 0x00, 0x00], ne, 0), // cmp [rip+x], ecx and jne
        (&[0x39, 0x4f, 0x10], ne, 1),     // cmp [rdi+16], ecx and jne fuse
        (&[0x48, 0x39, 0xc8], ne, 1),     // cmp and jne fuse
    ] {
        let (scan, layout, trace) = small(31, &[], (insn(first), condition)).answers();
        let answers = (scan, layout.len(), trace.len());
        assert_eq!(answers, (wanted, wanted, wanted), "{first:02x?} {condition}");
    }
}

/// Intel's decoders do not fuse a pair that the end of a cache line parts; at a boundary of 32 bytes
/// inside the line they do.
#[test]
fn a_pair_that_a_line_parts_is_no_pair() {
    for (nops, wanted) in [(30, 1), (62, 0)] {
        let (scan, layout, trace) = small(nops, &[], (insn(&[0x39, 0xc8]), 5)).answers();
        assert_eq!((scan, layout.len(), trace.len()), (wanted, wanted, wanted), "{nops}");
    }
}
