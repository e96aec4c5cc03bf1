//! Through one call: a block of arguments that the caller fills in pieces, and the function called
//! reads in one.
//!
//! A jump to a function in place of a call and a return hands over the same. The function is read from its first instruction to where it first jumps away for certain; what
//! it loads there from where its arguments point, or from the stack above its return address, is
//! looked for among the stores before the call, in the caller's terms.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::code::{
    Addresses, Architecture, Exports, Flow, FunctionCode, FunctionSource, Image, Insn,
    LONGEST_INSN_BYTES, Reg, RootKind, SymbolicAddress,
};
use crate::machine::Design;
use crate::model::Svma;

use super::super::{Candidate, FunctionView, direct_target};
use super::exits::Exits;
use super::walk::{Blocked, Walk};
use super::{STRADDLING_REMEDY, StoreWidths, WINDOW_INSTRUCTIONS, cycles_lost, weight};

/// Fields further behind the start of a block of arguments are not looked for.
const FARTHEST_FIELD_BYTES: i64 = 512;
/// More code of the called function is not read; loads of arguments come early.
const MOST_BYTES: u64 = 256;

/// What functions load from memory that their callers know, worked out once for each function of a
/// program however often it is called.
#[derive(Debug, Default)]
pub struct Callees {
    known: Mutex<FxHashMap<Svma, Arc<Summary>>>,
    exports: OnceLock<Exports>,
}

/// What a caller can know about a function, each part worked out when somebody asks.
#[derive(Debug)]
pub(super) struct Summary {
    start: Svma,
    loads: OnceLock<Vec<ArgumentLoad>>,
    exits: OnceLock<Exits>,
}

impl Summary {
    fn loads(&self, image: &Image) -> &[ArgumentLoad] {
        self.loads.get_or_init(|| argument_loads(image, self.start))
    }

    pub fn exits(&self, image: &Image) -> &Exits {
        self.exits.get_or_init(|| Exits::of(image, self.start))
    }
}

impl Callees {
    /// The function that a direct call reaches, behind the linker's stub where it is the program's own.
    pub fn reached(&self, image: &Image, target: Svma) -> Svma {
        self.exports.get_or_init(|| Exports::of(image)).behind(image, target)
    }

    fn summary(&self, start: Svma) -> Arc<Summary> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Summary { start, loads: OnceLock::new(), exits: OnceLock::new() };
        Arc::clone(known.entry(start).or_insert_with(|| Arc::new(new())))
    }
}

/// The functions called directly in a stretch of a function, or jumped to at its end, by the
/// instruction that does.
pub(super) type Called = FxHashMap<usize, Arc<Summary>>;

/// All functions called directly from these blocks.
pub(super) fn called<'a>(
    view: &FunctionView<'_>,
    blocks: impl Iterator<Item = &'a usize>,
) -> Called {
    let code = view.code();
    let insns = blocks.flat_map(|b| code.blocks[*b].first..code.blocks[*b].end);
    insns
        .filter_map(|at| {
            let insn = &code.insns[at];
            let callee = match insn.flow {
                Flow::Call => {
                    let target = direct_target(view.bytes_of(insn), insn.end())?;
                    view.callees().reached(view.image, target)
                }
                Flow::Jump(to) if !view.function.contains(to) => {
                    let target = view.callees().reached(view.image, to);
                    view.image.function_from(target)?.start
                }
                _ => return None,
            };
            Some((at, view.callees().summary(callee)))
        })
        .collect()
}

/// The registers that these calls change, where that is less than the convention allows: compilers
/// keep values over such a call in registers that it might change.
pub(super) fn changed_by(view: &FunctionView<'_>, called: &Called) -> FxHashMap<u32, u32> {
    let code = view.code();
    // Stubs between a call and its function may use these.
    let by_linker = match code.architecture {
        Architecture::X86_64 => 0,
        Architecture::Aarch64 => Reg(16).bit() | Reg(17).bit() | Reg(30).bit(),
    };
    let changed = |(at, summary): (&usize, &Arc<Summary>)| {
        let all = code.insns[*at].clobbers;
        let some = all & (summary.exits(view.image).changes? | by_linker);
        (some != all).then_some((*at as u32, some))
    };
    let calls = |(at, _): &(&usize, &Arc<Summary>)| code.insns[**at].flow == Flow::Call;
    called.iter().filter(calls).filter_map(changed).collect()
}

/// Whether any of these functions loads what its caller may have stored.
pub(super) fn any_loads(view: &FunctionView<'_>, called: &Called) -> bool {
    called.values().any(|summary| !summary.loads(view.image).is_empty())
}

/// What a function loads from memory that its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ArgumentLoad {
    svma: Svma,
    /// The register that points there when the function begins.
    reg: Reg,
    offset_bytes: i64,
    size_bytes: u16,
    /// Instructions from the call to it.
    distance: u32,
}

/// What a function called in a loop loads, in the caller's terms.
pub(super) struct Asked {
    call: usize,
    load: ArgumentLoad,
    pub address: SymbolicAddress,
}

/// All loads behind the calls of these instructions.
pub(super) fn asked(
    view: &FunctionView<'_>,
    addresses: &Addresses,
    insns: impl Iterator<Item = usize>,
    called: &Called,
) -> Vec<Asked> {
    let code = view.code();
    let mut all = Vec::new();
    for call in insns.filter(|at| matches!(code.insns[*at].flow, Flow::Call | Flow::Jump(_))) {
        let Some(summary) = called.get(&call) else { continue };
        for load in summary.loads(view.image) {
            let Some(start) = addresses.handed_over(code, call, load.reg) else { continue };
            let address = start.ahead(load.offset_bytes);
            all.push(Asked { call, load: *load, address });
        }
    }
    all
}

impl Asked {
    /// The candidate, if stores before the call block the load.
    pub fn blocked(
        &self,
        view: &FunctionView<'_>,
        addresses: &Addresses,
        design: &Design,
        walk: &Walk<'_>,
    ) -> Option<Candidate> {
        let Self { call, load, address } = self;
        let blocked = walk.blocked_behind(*call, *address, load.size_bytes, load.distance)?;
        Some(describe(view, addresses, design, walk, *call, load, blocked))
    }
}

/// What the function at `start` loads, from where its registers point when it begins, before
/// anything else can have written it.
fn argument_loads(image: &Image, start: Svma) -> Vec<ArgumentLoad> {
    let size_bytes = match image.function_from(start) {
        Some(function) => function.size_bytes.min(MOST_BYTES),
        None if image.function_source() == FunctionSource::Symbols => return Vec::new(),
        None => MOST_BYTES,
    };
    let insns = beginning(image.architecture(), image.code_at(start, size_bytes), start);
    if !loads_from_arguments(&insns) {
        return Vec::new();
    }
    let end = insns.last().map_or(start, Insn::end);
    let read_bytes = end.distance_from(start).unwrap_or(0) as usize;
    let code = FunctionCode::of_insns(image.architecture(), insns, read_bytes, start);
    let addresses = Addresses::of(&code);
    let mut found: Vec<ArgumentLoad> = Vec::new();
    for index in 0..code.insns.len() {
        let (Some(access), Some(address)) = (code.insns[index].load, addresses.load(&code, index))
        else {
            continue;
        };
        let Some(RootKind::Entry(reg)) = address.base.map(|root| root.kind()) else { continue };
        let near = (0..FARTHEST_FIELD_BYTES).contains(&address.offset_bytes);
        if !address.is_plain() || !near || access.size_bytes < 2 {
            continue;
        }
        // A pair is two loads.
        let parts = if code.insns[index].is_pair { 2 } else { 1 };
        let size_bytes = access.size_bytes / parts;
        for part in 0..parts {
            let at = address.ahead(i64::from(part * size_bytes));
            let offset_bytes = at.offset_bytes;
            let seen = |l: &ArgumentLoad| {
                (l.reg, l.offset_bytes, l.size_bytes) == (reg, offset_bytes, size_bytes)
            };
            if !is_written_before(&code, &addresses, index, &at, size_bytes)
                && !found.iter().any(seen)
            {
                let (svma, distance) = (code.insns[index].svma, index as u32 + 1);
                found.push(ArgumentLoad { svma, reg, offset_bytes, size_bytes, distance });
            }
        }
    }
    found
}

/// The instructions from the first to where a function jumps away for certain, at most a window of
/// them. Most are few: the rest is decoded only if they are not.
fn beginning(architecture: Architecture, bytes: &[u8], start: Svma) -> Vec<Insn> {
    const FIRST_BYTES: usize = 64;
    let straight = |i: &&Insn| matches!(i.flow, Flow::Next | Flow::Branch(_)) && !i.drains_stores;
    let mut insns = Vec::new();
    for piece in [&bytes[..bytes.len().min(FIRST_BYTES)], bytes] {
        insns = architecture.decode(piece, start);
        let count = insns.iter().take_while(straight).count();
        // Where the piece ends, an instruction may have been cut in two.
        let ends_before = insns.get(count).and_then(|i| i.svma.distance_from(start));
        insns.truncate(count.min(WINDOW_INSTRUCTIONS as usize));
        if ends_before.is_some_and(|at| at as usize + LONGEST_INSN_BYTES <= piece.len()) {
            break;
        }
    }
    insns
}

/// Whether any of these instructions may load two bytes or more at an address with a register.
fn loads_from_arguments(insns: &[Insn]) -> bool {
    let counts_from_register = |i: &Insn| {
        i.load.is_some_and(|a| {
            a.size_bytes > 1 && (a.address.base.is_some() || a.address.index.is_some())
        })
    };
    insns.iter().any(counts_from_register)
}

/// Whether the function itself stores to what it loads.
fn is_written_before(
    code: &FunctionCode,
    addresses: &Addresses,
    load: usize,
    at: &SymbolicAddress,
    size_bytes: u16,
) -> bool {
    (0..load).any(|index| {
        let Some(access) = code.insns[index].store else { return false };
        let store = addresses.store(code, index);
        store.and_then(|store| store.overlaps(access.size_bytes, at, size_bytes)) == Some(true)
    })
}

fn describe(
    view: &FunctionView<'_>,
    addresses: &Addresses,
    design: &Design,
    walk: &Walk<'_>,
    call: usize,
    load: &ArgumentLoad,
    blocked: Blocked,
) -> Candidate {
    let code = view.code();
    let stores = blocked.sets.concat();
    let widths = StoreWidths::of(walk, &stores);
    let (bits, count) = (8 * load.size_bytes, stores.len());
    let name = view
        .image
        .function_at(load.svma)
        .map_or_else(|| "the function called here".to_owned(), crate::code::Function::name);
    let mechanism = format!(
        "{name}, called here, loads {bits} bits of what its caller hands over, which {count} \
         store{} of {widths} bits wrote at least {} instructions earlier; none of them holds all \
         of it: the load cannot be forwarded and waits until they are in the cache",
        if count == 1 { "" } else { "s" },
        blocked.distance_instructions
    );
    let remedy = if widths.straddled_by(bits) {
        format!("{STRADDLING_REMEDY}, or hand it over in registers")
    } else {
        format!(
            "write it in one piece of {bits} bits, load it in pieces of {widths}, or hand it over \
             in registers"
        )
    };
    Candidate {
        site: call,
        weight: weight(code, addresses, call, &blocked),
        elsewhere: walk.elsewhere(&stores),
        pays_elsewhere: Some(load.svma),
        sets: walk.here(&blocked.sets),
        certainty: blocked.certainty,
        by_placement: false,
        distance_instructions: blocked.distance_instructions,
        cycles_lost: cycles_lost(design),
        mechanism,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::hazards::{Hazard as _, STORE_FORWARD};
    use crate::machine::Microarchitecture;
    use crate::model::Certainty;

    /// (loop:) mov [rsp], eax; mov [rsp+4], ecx; mov rdi, rsp; call callee; dec ebx; jnz loop; ret
    const CALLER: [u8; 20] = [
        0x89, 0x04, 0x24, 0x89, 0x4c, 0x24, 0x04, 0x48, 0x89, 0xe7, 0xe8, 0, 0, 0, 0, 0xff, 0xcb,
        0x75, 0xed, 0xc3,
    ];

    fn found(callee: &[u8]) -> Vec<Candidate> {
        look(&CALLER, callee, |view, design| STORE_FORWARD.look(view, design))
    }

    /// What is found in the first of two functions, whose one call is to the second.
    fn look(
        caller: &[u8],
        callee: &[u8],
        look: impl Fn(&FunctionView<'_>, &Design) -> Vec<Candidate>,
    ) -> Vec<Candidate> {
        let parse =
            |caller: &[u8]| fixture::image(&[("caller", caller), ("callee", callee)]).unwrap();
        let image = parse(caller);
        let starts: Vec<u64> = image.functions().iter().map(|f| f.start.0).collect();
        let mut caller = caller.to_vec();
        if let Some(at) = caller.windows(5).position(|bytes| bytes == [0xe8, 0, 0, 0, 0]) {
            let distance = (starts[1] - starts[0]) as u32 - (at as u32 + 5);
            caller[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
        }
        let image = parse(&caller);
        let design = Design::of(Microarchitecture::CascadeLake);
        look(&FunctionView::of(&image, &image.functions()[0]), &design)
    }

    /// (loop:) mov rdi, rbp; call callee; mov rax, [rbp]; dec ebx; jnz loop; ret
    const READER: [u8; 17] =
        [0x48, 0x89, 0xef, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x45, 0x00, 0xff, 0xcb, 0x75, 0xf0, 0xc3];
    /// mov [rdi], esi; mov [rdi+4], edx; ret
    const SETTER: [u8; 6] = [0x89, 0x37, 0x89, 0x57, 0x04, 0xc3];

    fn read_behind(callee: &[u8]) -> Vec<Candidate> {
        look(&READER, callee, |view, design| STORE_FORWARD.look(view, design))
    }

    #[test]
    fn what_a_function_stores_in_pieces_and_its_caller_loads_in_one() {
        let found = read_behind(&SETTER);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].site, found[0].sets.len(), found[0].elsewhere.len()), (2, 0, 2));
        // From mov [rdi+4]: ret, the load.
        assert_eq!(found[0].distance_instructions, 2);
        assert!(found[0].mechanism.contains("that 2 stores of 32 bits wrote"));
    }

    #[test]
    fn what_a_function_stores_whole_or_elsewhere_is_innocent() {
        // mov [rdi], rsi; ret, and mov [rdi+8], esi; ret, and mov [rsi], esi; ret
        assert!(read_behind(&[0x48, 0x89, 0x37, 0xc3]).is_empty());
        assert!(read_behind(&[0x89, 0x77, 0x08, 0xc3]).is_empty());
        assert!(read_behind(&[0x89, 0x36, 0xc3]).is_empty());
        // mov [rdi], esi; mov [rdi], rdx; ret: the whole comes last
        assert!(read_behind(&[0x89, 0x37, 0x48, 0x89, 0x17, 0xc3]).is_empty());
        // mov [rdi], esi; mfence; ret
        assert!(read_behind(&[0x89, 0x37, 0x0f, 0xae, 0xf0, 0xc3]).is_empty());
    }

    #[test]
    fn a_register_that_the_function_called_leaves_alone_is_kept() {
        // (loop:) call callee; mov rax, [rdi]; dec ebx; jnz loop; ret
        let caller = [0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x07, 0xff, 0xcb, 0x75, 0xf4, 0xc3];
        let rule = |view: &FunctionView<'_>, design: &Design| STORE_FORWARD.look(view, design);
        assert_eq!(look(&caller, &SETTER, rule).len(), 1);
        // mov [rdi], esi; mov [rdi+4], edx; mov rdi, rsi; ret
        let moves = [0x89, 0x37, 0x89, 0x57, 0x04, 0x48, 0x89, 0xf7, 0xc3];
        assert!(look(&caller, &moves, rule).is_empty());
    }

    #[test]
    fn outside_loops_one_look_at_how_addresses_are_spelled_comes_first() {
        let rule = |view: &FunctionView<'_>, design: &Design| {
            STORE_FORWARD.look_where_called(view, design)
        };
        // mov [rdi], esi; mov [rdi+4], edx; mov rax, [rdi]; ret
        let line = [0x89, 0x37, 0x89, 0x57, 0x04, 0x48, 0x8b, 0x07, 0xc3];
        let found = look(&line, &[0xc3], rule);
        assert_eq!((found.len(), found[0].site), (1, 2));
        assert!(look(&line[..5], &[0xc3], rule).is_empty());
        // In a loop it is the loop's.
        assert!(look(&READER, &SETTER, rule).is_empty());
        // sub rsp, 24; mov rdi, rsp; call callee; mov rax, [rsp]; add rsp, 24; ret
        let caller = [
            0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xe7, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x04, 0x24,
            0x48, 0x83, 0xc4, 0x18, 0xc3,
        ];
        assert_eq!(look(&caller, &SETTER, rule).len(), 1);
    }

    #[test]
    fn a_block_of_arguments_that_is_filled_in_pieces_and_loaded_in_one() {
        // mov rax, [rdi]; ret, and the same through the stack: mov rax, [rsp+8]; ret
        for callee in [&[0x48, 0x8b, 0x07, 0xc3][..], &[0x48, 0x8b, 0x44, 0x24, 0x08, 0xc3]] {
            let found = found(callee);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!((found[0].site, found[0].sets.concat()), (3, vec![0, 1]));
            assert_eq!((found[0].distance_instructions, found[0].elsewhere.len()), (3, 0));
            assert!(found[0].pays_elsewhere.is_some());
            assert!(found[0].mechanism.starts_with("callee, called here, loads 64 bits"));
        }
    }

    #[test]
    fn a_function_that_is_called_or_jumped_to_outside_loops_loads_what_was_stored_before() {
        let rule = |view: &FunctionView<'_>, design: &Design| {
            STORE_FORWARD.look_where_called(view, design)
        };
        // mov [rdi], esi; mov [rdi+4], esi; call callee; ret
        let calls = [0x89, 0x37, 0x89, 0x77, 0x04, 0xe8, 0, 0, 0, 0, 0xc3];
        // mov [rdi], esi; mov [rdi+4], esi; jmp to the second function, 6 bytes behind
        let jumps = [0x89, 0x37, 0x89, 0x77, 0x04, 0xe9, 0x06, 0, 0, 0];
        // mov rax, [rdi]; ret, and mov rax, [rdi+8]; ret
        let (reads, beside) = ([0x48, 0x8b, 0x07, 0xc3], [0x48, 0x8b, 0x47, 0x08, 0xc3]);
        for caller in [&calls[..], &jumps] {
            let found = look(caller, &reads, rule);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!((found[0].site, found[0].sets.concat()), (2, vec![0, 1]));
            assert!(look(caller, &beside, rule).is_empty());
        }
        // mov [rsp+8], esi; mov [rsp+12], esi; and the function reads its argument there: a jump pushes no
        // return address as a call does.
        let stack = [0x89, 0x74, 0x24, 0x08, 0x89, 0x74, 0x24, 0x0c, 0xe9, 0x03, 0, 0, 0];
        let (at_8, at_16) =
            ([0x48, 0x8b, 0x44, 0x24, 0x08, 0xc3], [0x48, 0x8b, 0x44, 0x24, 0x10, 0xc3]);
        assert_eq!([at_8, at_16].map(|callee| look(&stack, &callee, rule).len()), [1, 0]);
    }

    /// xor ecx, ecx; (loop:) mov [rdi+rcx], al; inc ecx; LIMIT; jne loop; mov rax, [rdi+AT]; ret
    fn filled(limit: &[u8], at: i8) -> Vec<Candidate> {
        let mut code = vec![0x31, 0xc9, 0x88, 0x04, 0x0f, 0xff, 0xc1];
        code.extend(limit);
        let back = -(code.len() as i8);
        code.extend([0x75, back.cast_unsigned(), 0x48, 0x8b, 0x47, at.cast_unsigned(), 0xc3]);
        look(&code, &[0xc3], |view, design| STORE_FORWARD.look_where_called(view, design))
    }

    #[test]
    fn a_loop_that_fills_a_buffer_is_followed_by_a_load_of_it() {
        let count = |limit: &[u8], at| filled(limit, at).len();
        // cmp ecx, edx: the beginning, as far as is known; what lies behind it may be something else.
        let unknown = filled(&[0x39, 0xd1], 0);
        assert_eq!((unknown.len(), unknown[0].certainty), (1, Certainty::Probable), "{unknown:#?}");
        assert!(unknown[0].mechanism.contains("a loop before it writes 8 bits at a time"));
        assert_eq!([-8, 8].map(|at| count(&[0x39, 0xd1], at)), [0, 0]);
        // cmp ecx, 16: bytes 0 to 15, four instructions a round
        let sixteen = filled(&[0x83, 0xf9, 0x10], 4);
        assert_eq!((sixteen.len(), sixteen[0].certainty), (1, Certainty::Definite), "{sixteen:#?}");
        // From the store of byte 11 four rounds and what is left of its own.
        assert_eq!(sixteen[0].distance_instructions, 4 * 4 + 4);
        let at = [-8, -7, 15, 16].map(|at| count(&[0x83, 0xf9, 0x10], at));
        assert_eq!(at, [0, 1, 1, 0]);
        // cmp ecx, 100: only the last 16 rounds are near.
        let at = [0, 76, 77, 99, 100].map(|at| count(&[0x83, 0xf9, 0x64], at));
        assert_eq!(at, [0, 0, 1, 1, 0]);
    }

    #[test]
    fn what_comes_before_a_loop_is_as_far_away_as_the_loop_is_long() {
        // mov [rdi], eax; mov [rdi+4], eax; mov ecx, COUNT; (loop:) dec ecx; mov [rsi+rcx], al; jne loop;
        // mov rax, [rdi]; ret
        let found = |count: u8| {
            let code = [
                0x89, 0x07, 0x89, 0x47, 0x04, 0xb9, count, 0, 0, 0, 0x88, 0x04, 0x0e, 0xff, 0xc9,
                0x75, 0xf9, 0x48, 0x8b, 0x07, 0xc3,
            ];
            let found =
                look(&code, &[0xc3], |view, design| STORE_FORWARD.look_where_called(view, design));
            found.first().map(|c| c.distance_instructions)
        };
        assert_eq!([4, 20, 100].map(found), [Some(14), Some(62), None]);
    }

    #[test]
    fn a_setter_is_told_where_by_two_arguments() {
        let rule = |view: &FunctionView<'_>, design: &Design| {
            STORE_FORWARD.look_where_called(view, design)
        };
        // mov esi, INDEX; call callee; mov eax, [rdi]; ret
        let caller = |index: u8| {
            [&[0xbe, index, 0, 0, 0, 0xe8, 0, 0, 0, 0][..], &[0x8b, 0x07, 0xc3]].concat()
        };
        // movsxd rax, esi; mov [rdi+rax], dl; ret, and mov [rdi+rax*2], dx; ret
        let byte = [0x48, 0x63, 0xc6, 0x88, 0x14, 0x07, 0xc3];
        let word = [0x48, 0x63, 0xc6, 0x66, 0x89, 0x14, 0x47, 0xc3];
        let found = |index, setter: &[u8]| look(&caller(index), setter, rule).len();
        assert_eq!([0, 3, 4].map(|index| found(index, &byte)), [1, 1, 0]);
        assert_eq!([0, 1, 2].map(|index| found(index, &word)), [1, 1, 0]);
    }

    #[test]
    fn what_the_function_loads_in_pieces_or_wrote_itself_is_innocent() {
        // mov eax, [rdi]; ret
        assert!(found(&[0x8b, 0x07, 0xc3]).is_empty());
        // mov [rdi], rsi; mov rax, [rdi]; ret
        assert!(found(&[0x48, 0x89, 0x37, 0x48, 0x8b, 0x07, 0xc3]).is_empty());
        // jmp over; over: mov rax, [rdi]; ret: only what comes before a jump is read
        assert!(found(&[0xeb, 0x00, 0x48, 0x8b, 0x07, 0xc3]).is_empty());
    }
}
