//! Through one call: a block of arguments that the caller fills in pieces, and the function called
//! reads in one.
//!
//! The function is read from its first instruction to where it first jumps away for certain; what
//! it loads there from where its arguments point, or from the stack above its return address, is
//! looked for among the stores before the call, in the caller's terms.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::code::{
    Addresses, Architecture, Flow, FunctionCode, FunctionSource, Image, Insn, LONGEST_INSN_BYTES,
    Reg, RootKind, SymbolicAddress,
};
use crate::machine::Design;
use crate::model::Svma;

use super::super::{Candidate, FunctionView, direct_target};
use super::stores::LoopStores;
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
    known: Mutex<FxHashMap<Svma, Arc<[ArgumentLoad]>>>,
}

impl Callees {
    fn loads(&self, image: &Image, start: Svma) -> Arc<[ArgumentLoad]> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loads) = known().get(&start) {
            return Arc::clone(loads);
        }
        // Not while locked: two threads may do the same once, none waits for the other.
        let loads: Arc<[ArgumentLoad]> = argument_loads(image, start).into();
        known().insert(start, Arc::clone(&loads));
        loads
    }
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

/// All loads behind the calls of a loop.
pub(super) fn asked(
    view: &FunctionView<'_>,
    addresses: &Addresses,
    stores: &LoopStores,
) -> Vec<Asked> {
    let code = view.code();
    let mut all = Vec::new();
    for call in stores.calls() {
        let insn = &code.insns[*call];
        let Some(callee) = direct_target(view.bytes_of(insn), insn.end()) else { continue };
        for load in view.callees().loads(view.image, callee).iter() {
            let Some(start) = addresses.handed_over(code, *call, load.reg) else { continue };
            let offset_bytes = start.offset_bytes.wrapping_add(load.offset_bytes);
            let address = SymbolicAddress { offset_bytes, ..start };
            all.push(Asked { call: *call, load: *load, address });
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
        Some(describe(view, addresses, design, *call, load, blocked))
    }
}

/// What the function at `start` loads, from where its registers point when it begins, before
/// anything else can have written it.
fn argument_loads(image: &Image, start: Svma) -> Vec<ArgumentLoad> {
    let known = image.function_at(start).filter(|f| f.start == start);
    let size_bytes = match known {
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
        let plain = address.also.is_none() && address.index.is_none();
        let near = (0..FARTHEST_FIELD_BYTES).contains(&address.offset_bytes);
        if !plain || !near || access.size_bytes < 2 {
            continue;
        }
        // A pair is two loads.
        let parts = if code.insns[index].is_pair { 2 } else { 1 };
        let size_bytes = access.size_bytes / parts;
        for part in 0..parts {
            let offset_bytes = address.offset_bytes + i64::from(part * size_bytes);
            let at = SymbolicAddress { offset_bytes, ..address };
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
    let straight = |i: &&Insn| matches!(i.flow, Flow::Next | Flow::Branch(_));
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
        let Some(bytes) = code.insns[index].store.map(|s| i64::from(s.size_bytes)) else {
            return false;
        };
        let ahead = addresses.store(code, index).and_then(|store| store.minus(at));
        ahead.is_some_and(|ahead| ahead < i64::from(size_bytes) && ahead + bytes > 0)
    })
}

fn describe(
    view: &FunctionView<'_>,
    addresses: &Addresses,
    design: &Design,
    call: usize,
    load: &ArgumentLoad,
    blocked: Blocked,
) -> Candidate {
    let code = view.code();
    let stores = blocked.sets.concat();
    let widths = StoreWidths::of(code, &stores);
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
        elsewhere: vec![load.svma],
        sets: blocked.sets,
        certainty: blocked.certainty,
        distance_instructions: blocked.distance_instructions,
        cycles_lost: cycles_lost(design),
        mechanism,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::fixture;
    use crate::hazards::{Hazard as _, STORE_FORWARD};
    use crate::machine::Microarchitecture;

    /// (loop:) mov [rsp], eax; mov [rsp+4], ecx; mov rdi, rsp; call callee; dec ebx; jnz loop; ret
    const CALLER: [u8; 20] = [
        0x89, 0x04, 0x24, 0x89, 0x4c, 0x24, 0x04, 0x48, 0x89, 0xe7, 0xe8, 0, 0, 0, 0, 0xff, 0xcb,
        0x75, 0xed, 0xc3,
    ];
    const CALL_END: u64 = 15;

    fn found(callee: &[u8]) -> Vec<Candidate> {
        let parse = |caller: &[u8]| {
            let program = fixture::program(&[("caller", caller), ("callee", callee)]);
            Image::parse(Path::new("p"), program).unwrap()
        };
        let image = parse(&CALLER);
        let starts: Vec<u64> = image.functions().iter().map(|f| f.start.0).collect();
        let mut caller = CALLER;
        let distance = (starts[1] - starts[0] - CALL_END) as u32;
        caller[11..15].copy_from_slice(&distance.to_le_bytes());
        let image = parse(&caller);
        let design = Design::of(Microarchitecture::CascadeLake);
        STORE_FORWARD.look(&FunctionView::of(&image, &image.functions()[0]), &design)
    }

    #[test]
    fn a_block_of_arguments_that_is_filled_in_pieces_and_loaded_in_one() {
        // mov rax, [rdi]; ret, and the same through the stack: mov rax, [rsp+8]; ret
        for callee in [&[0x48, 0x8b, 0x07, 0xc3][..], &[0x48, 0x8b, 0x44, 0x24, 0x08, 0xc3]] {
            let found = found(callee);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!((found[0].site, found[0].sets.concat()), (3, vec![0, 1]));
            assert_eq!((found[0].distance_instructions, found[0].elsewhere.len()), (3, 1));
            assert!(found[0].mechanism.starts_with("callee, called here, loads 64 bits"));
        }
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
