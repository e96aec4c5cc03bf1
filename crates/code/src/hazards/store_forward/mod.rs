//! `store-forward`: a load that no single recent store can serve.
//!
//! **Effect.** A store waits in the store buffer until it retires and reaches the cache. A load of
//! the same bytes is served straight from the buffer, if *one* store there holds all of them. If
//! the bytes come from two narrower stores, or only some of them are in the buffer, the load has to
//! wait until the stores are in the cache: 13 to 18 cycles from store to load where forwarding
//! takes 4 to 9, and the wait chains from iteration to iteration even when nothing needs the loaded
//! value.
//!
//! **Sign.** The loop's time does not react to code placement, samples pile up on the instructions
//! behind the load, and a counter for failed forwarding (where there is one) goes from nothing to
//! about one per iteration.
//!
//! **What is looked for.** In a loop, walking backwards from each load along every path of at most
//! 64 instructions without a call: stores that surely overlap the load without covering it
//! (*definite*), and sets of stores with one index that tile an element of the array which the load
//! reads with another index (*probable*: data decide whether the two meet). The same goes for stores
//! at a constant distance from a pointer that walks over the array, as decoders do that keep a
//! history: the index counts from the pointer, so what was stored there before the pointer moved on
//! is one of the elements. A covering store ends the path, and so does a whole element under any
//! index. Before a direct call, or a jump to a function in place of one, the loads are those of the function called (`calls`), behind it the
//! stores that it leaves (`exits`); a loop inside counts with its first round (`rounds`). Narrow
//! stores that go anywhere in an array block, *probably*, what reads several of its elements
//! (`scattered`). Short functions that a loop calls, and all that a profile saw, are looked at
//! outside their loops, too (`outside`). Fences and locked operations end each path.
//!
//! **Literature.** A. Kapoulkine, "Load-store conflicts" (2025); Intel Optimization Reference
//! Manual, store forwarding; AMD Software Optimization Guides, load-store unit; H. Wong,
//! "Store-to-Load Forwarding and Memory Disambiguation in x86 Processors" (2014).

mod aliases;
mod calls;
mod exits;
mod outside;
mod reached;
mod rounds;
mod scattered;
mod stores;
mod walk;

use crate::code::{
    Addresses, Architecture, Block, Flow, FunctionCode, Loop, SymbolicAddress, index_mask,
};
use crate::machine::Design;
use crate::model::{Certainty, CyclesLost, Grade};

use super::{Candidate, FunctionView, Hazard, Needs, RuleCard};
use calls::Called;
pub use calls::Callees;
use stores::LoopStores;
use walk::{Blocked, Walk};

/// Longest path from store to load that is looked at. Compilers use 10, 20 and 64; blocked loads
/// of the first story have their stores 20 to 50 instructions away.
pub const WINDOW_INSTRUCTIONS: u32 = 64;

/// The rule.
pub static STORE_FORWARD: StoreForward = StoreForward;

pub struct StoreForward;

impl Hazard for StoreForward {
    fn id(&self) -> &'static str {
        "store-forward"
    }

    fn card(&self, design: &Design) -> RuleCard {
        RuleCard {
            id: self.id(),
            title: "a load that no single recent store can serve",
            effect: "A load can take its bytes from a store that has not reached the cache yet, \
                     but only if one store holds all of them. When the bytes come from two \
                     narrower stores, or only in part from one, the load waits until those stores \
                     are in the cache. The wait repeats every time the loop comes round, even when \
                     nothing needs the loaded value.",
            picture: "  mov [fifo+8*j],   ebx   |....BBBB|          two narrow stores\n  \
                      mov [fifo+8*j+4], ecx   |CCCC....|\n  \
                      movq xmm0, [fifo+8*i]   |CCCCBBBB|  i = j   one wide load: blocked\n",
            price: price(design),
            detection: "In loops: loads whose bytes come from stores at most 64 instructions back \
                        (also over the back edge, and before a direct call what the function \
                        called loads from its arguments), none of which covers the load. Same \
                        symbolic address: definite. Same array, other index (or none, at a \
                        pointer that walks over the array), and the stores tile the load: \
                        probable; with little rank where another path writes whole elements, \
                        or where an array is written an element at a time and read in larger \
                        pieces. Behind a direct call, the stores are also those of the function \
                        called; fences and locked operations end a path.",
            remedies: &[
                "load in the widths in which the data are stored (two 4-byte loads)",
                "store in one piece what is loaded in one piece (combine in a register first)",
                "C and C++: an empty asm barrier on one loaded value keeps the compiler from \
                 merging the loads: __asm__ volatile(\"\" : \"+r\"(a));",
                "compare compilers: clang 16 and gcc 16.2 merge such loads where their neighbours \
                 do not",
            ],
            literature: &[
                "A. Kapoulkine: Load-store conflicts, 2025",
                "H. Wong: Store-to-Load Forwarding and Memory Disambiguation in x86 Processors, 2014",
                "Intel 64 and IA-32 Optimization Reference Manual: Store Forwarding",
                "AMD Software Optimization Guide for Zen 4 and Zen 5: Load-Store Unit",
            ],
        }
    }

    fn grade(&self, design: &Design) -> Grade {
        if design.blocked_load_is_probed() { Grade::Priced } else { Grade::Pattern }
    }

    fn needs(&self) -> Needs {
        Needs::Loops
    }

    fn understands(&self, _: Architecture) -> bool {
        true
    }

    fn look(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
        let code = view.code();
        let loops: Vec<&Loop> = outermost(code).filter(|l| may_read(code, l)).collect();
        let called = calls::called(view, loops.iter().flat_map(|l| &l.blocks));
        let writes = |l: &&Loop| writes(view, l, &called);
        let loops: Vec<&Loop> = loops.into_iter().filter(writes).collect();
        if loops.is_empty() {
            return Vec::new();
        }
        let changed = calls::changed_by(view, &called);
        let addresses = Addresses::in_loops(code, loops.iter().copied(), changed);
        each_loop(code, &addresses, loops, design, Some((view, &called)))
    }

    fn looks_where_called(&self) -> bool {
        true
    }

    fn look_where_called(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
        outside::candidates(view, design)
    }
}

fn outermost(code: &FunctionCode) -> impl Iterator<Item = &Loop> {
    code.loops.iter().filter(|l| l.depth == 1)
}

/// Whether a loop loads more than a byte, or a function that it calls may.
fn may_read(code: &FunctionCode, around: &Loop) -> bool {
    code.bodies(around).flat_map(|b| &code.insns[b.first..b.end]).any(|i| {
        i.flow == Flow::Call || i.load.is_some_and(|a| a.size_bytes > 1) && i.flow != Flow::Return
    })
}

/// Whether it stores, or a function called does that is known: without, there is nothing to do.
fn writes(view: &FunctionView<'_>, around: &Loop, called: &Called) -> bool {
    let code = view.code();
    let leaves = |at: &usize| {
        called.get(at).is_some_and(|summary| !summary.exits(view.image).paths.is_empty())
    };
    let mut insns = code.insns_in(around);
    // What a call writes is read by its return.
    insns.clone().any(|at| code.insns[at].store.is_some() && code.insns[at].flow != Flow::Call)
        || insns.any(|at| leaves(&at))
}

/// The candidates of outermost loops; with those behind their calls where the program is known.
fn each_loop<'a>(
    code: &'a FunctionCode,
    addresses: &'a Addresses,
    loops: impl IntoIterator<Item = &'a Loop>,
    design: &'a Design,
    program: Option<(&FunctionView<'_>, &Called)>,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    for outer in loops {
        let stores = LoopStores::of(code, addresses, outer, program);
        if stores.is_empty() {
            continue;
        }
        // What stands in the loops of a stretch that does not come round is theirs.
        let is_own = |block: &usize| outer.depth > 0 || code.innermost_loop(*block).is_none();
        let own: Vec<&Block> =
            outer.blocks.iter().filter(|b| is_own(b)).map(|b| &code.blocks[*b]).collect();
        let insns = own.iter().flat_map(|body| body.first..body.end);
        let asked = program
            .map_or_else(Vec::new, |(view, called)| calls::asked(view, addresses, insns, called));
        let places: Vec<SymbolicAddress> = asked.iter().map(|a| a.address).collect();
        let rule = &design.forwarding_rule;
        let view = program.map(|(view, _)| view);
        let walk = Walk::new(code, addresses, outer, rule, stores, &places, view);
        for body in &own {
            for index in body.first..body.end {
                let blocked = walk.blocked_load(index);
                found.extend(blocked.map(|b| describe(code, addresses, design, &walk, index, b)));
            }
        }
        if let Some((view, _)) = program {
            found.extend(asked.iter().filter_map(|a| a.blocked(view, addresses, design, &walk)));
        }
    }
    found
}

fn describe(
    code: &FunctionCode,
    addresses: &Addresses,
    design: &Design,
    walk: &Walk<'_>,
    site: usize,
    blocked: Blocked,
) -> Candidate {
    let load_bytes = code.insns[site].load.map_or(0, |a| a.size_bytes);
    let mut stores: Vec<usize> = blocked.sets.iter().flatten().copied().collect();
    stores.sort_unstable();
    stores.dedup();
    let widths = StoreWidths::of(walk, &stores);
    let distance = match blocked.distance_instructions {
        1 => "1 instruction".to_owned(),
        n => format!("{n} instructions"),
    };
    let is_indexed = |s: &usize| addresses.store(code, *s).is_some_and(|a| a.index.is_some());
    let place = if stores.iter().any(is_indexed) {
        "under another index"
    } else {
        "where its pointer has been"
    };
    let count = stores.len();
    let bits = 8 * load_bytes;
    let mechanism = match blocked.certainty {
        Certainty::Probable if blocked.filled => format!(
            "this {bits}-bit load reads bytes that a loop before it writes {widths} bits at a time, \
             at least {distance} earlier: when the loop is left soon after it wrote them, no one \
             store holds all of them, so it cannot be forwarded and waits until they are in the cache"
        ),
        Certainty::Probable if blocked.scattered => format!(
            "this {bits}-bit load reads several elements of an array that is written {widths} bits \
             at a time under an index of its own, at least {distance} earlier: when it reads an \
             element just written, no store holds all of what it reads, so it cannot be forwarded \
             and waits until they are in the cache"
        ),
        Certainty::Probable if widths.straddled_by(bits) => format!(
            "this {bits}-bit load can lie across the edge of what is written {widths} bits at a \
             time {place}, at least {distance} earlier: when it reads bytes just written, no one \
             store holds all of them, so it cannot be forwarded and waits until they are in the cache"
        ),
        Certainty::Definite => format!(
            "this {bits}-bit load reads bytes that {count} store{} of {widths} bits wrote at least \
             {distance} earlier, and none of them holds all of it: it cannot be \
             forwarded and waits until they are in the cache",
            if count == 1 { "" } else { "s" }
        ),
        Certainty::Probable => format!(
            "this {bits}-bit load reads an array element that is written in pieces of {widths} \
             bits {place}, at least {distance} earlier: when it reads an element just \
             written, no one store holds all of it, so it cannot be forwarded and \
             waits until they are in the cache"
        ),
    };
    let remedy = if blocked.scattered {
        SCATTERED_REMEDY.to_owned()
    } else if widths.straddled_by(bits) {
        STRADDLING_REMEDY.to_owned()
    } else {
        format!(
            "load it in pieces of {widths} bits, as it is stored, or store it in one piece of {bits}"
        )
    };
    let weight = weight(code, addresses, site, &blocked);
    Candidate {
        site,
        sets: walk.here(&blocked.sets),
        elsewhere: walk.elsewhere(&stores),
        pays_elsewhere: None,
        certainty: blocked.certainty,
        by_placement: false,
        distance_instructions: blocked.distance_instructions,
        cycles_lost: cycles_lost(design),
        weight,
        mechanism,
        remedy,
    }
}

/// What a blocked load waits longer than a forwarded one; nothing when its stores are old enough.
fn cycles_lost(design: &Design) -> CyclesLost {
    // Where it was not measured: what the published measurements of all x86-64 designs span.
    let forwarded = design.store_forward_cycles.as_ref().map_or(4.0, |p| p.low_cycles);
    let blocked = &design.store_forward_blocked_cycles;
    CyclesLost { low: 0.0, high: (blocked.high_cycles - forwarded).max(0.0) }
}

/// Price and rule with their origins, and from where on a blocked load is free.
fn price(design: &Design) -> String {
    let mut text = design.blocked_load_sentence();
    if let Some(cycles) = design.store_forward_free_after_cycles {
        text += &format!("; {cycles} cycles behind the store it costs no more than that");
    }
    if design.forwarding_rule_origin.is_probed() {
        text += &format!("; rule inferred here: {}", design.forwarding_rule.sentence());
    }
    text
}

/// What helps a load that no narrower load and no wider store would: its place is what is wrong.
const STRADDLING_REMEDY: &str = "load from where one store began, no wider than it, and shift the \
     bytes together in registers, or keep what was stored in a register";

/// What helps when an array is written by elements and read in one.
const SCATTERED_REMEDY: &str = "keep what is computed from the array up to date with each store \
     instead of reading it all again, keep a small array in registers, or let other work come between";

/// The widths of a finding's stores, in bits, each once, ascending. Shown as "32" or "32 and 64".
struct StoreWidths(Vec<u16>);

impl StoreWidths {
    fn of(walk: &Walk<'_>, stores: &[usize]) -> Self {
        let mut bits: Vec<u16> = stores.iter().map(|s| 8 * walk.store_bytes(*s)).collect();
        bits.sort_unstable();
        bits.dedup();
        Self(bits)
    }

    /// Whether one of them is as wide as the load and still does not hold all of it: then the load
    /// lies across that store's edge, and cutting it to the store's width changes nothing.
    fn straddled_by(&self, load_bits: u16) -> bool {
        self.0.last().is_some_and(|widest| *widest >= load_bits)
    }
}

impl std::fmt::Display for StoreWidths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(" and "))
    }
}

/// Nearness, nesting, completeness, and for arrays whether an index is masked: a ring or a small
/// table meets its elements again soon, while fields read back as one occur everywhere, almost
/// always cold. In libLLVM 16 neither of the two array findings has a mask.
///
/// The weights are judgement, not a fit: the one for a mask was doubled after the merged load of
/// the index decoder, the case this rule was made for, ranked below cold code of the same program.
/// The order has not been checked on programs whose costly sites are known beforehand.
fn weight(code: &FunctionCode, addresses: &Addresses, site: usize, blocked: &Blocked) -> f64 {
    let depth = code.innermost_loop(code.block_of(site)).map_or(0, |l| l.depth);
    let window = f64::from(WINDOW_INSTRUCTIONS);
    let nearness = 1.0 - 0.5 * f64::from(blocked.distance_instructions) / window;
    let completeness = if blocked.complete { 1.0 } else { 0.7 };
    let masked = |a| index_mask(code, &a).is_some();
    let ring = || {
        addresses.load(code, site).is_some_and(masked)
            || blocked.sets.iter().flatten().filter_map(|s| addresses.store(code, *s)).any(masked)
    };
    let kind = match blocked.certainty {
        Certainty::Definite => 1.0,
        // A cold path that writes pieces beside a hot one that writes the whole.
        Certainty::Probable if blocked.also_whole || blocked.scattered || blocked.filled => 0.25,
        Certainty::Probable if ring() => 2.0,
        Certainty::Probable => 0.5,
    };
    nearness * completeness * kind * super::loop_weight(depth)
}

#[cfg(test)]
mod tests;
