//! The shapes of the corpus, drawn by a seed: what a loop stores, and what it then loads.
//!
//! A shape is a relation (what the stores leave for the load) at a place (how addresses are made),
//! in widths, at a distance. Half of them are meant to block the load. What they really do is not
//! said here: each is executed.

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The function's first argument.
    Pointer,
    /// An array on its stack.
    Stack,
    /// A pointer that goes down by an element in each iteration.
    Moving,
    /// The block of arguments that a callee finds on the stack.
    Arguments,
}

/// What picks the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    None,
    /// The iteration, less so many.
    Counter(i32),
    /// The iteration, masked.
    Written,
    /// A number from a table, masked; the table holds the iteration less a lag.
    Read,
}

#[derive(Clone, Copy, Debug)]
pub struct MemoryOperand {
    pub base: Base,
    pub index: Index,
    pub element_bytes: u32,
    pub offset_bytes: i32,
}

impl MemoryOperand {
    pub fn moved(self, bytes: i32) -> Self {
        Self { offset_bytes: self.offset_bytes + bytes, ..self }
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Store {
        place: MemoryOperand,
        bytes: u32,
    },
    Load {
        place: MemoryOperand,
        bytes: u32,
    },
    /// Stores one behind the other; only the run knows how many.
    Fill {
        place: MemoryOperand,
        bytes: u32,
        count: u32,
    },
    /// So many instructions that do nothing.
    Wait(u32),
    /// The first in odd iterations, the second in even ones.
    Choose(Vec<Op>, Vec<Op>),
    /// A function is called that loads what its argument points to, or its arguments themselves.
    Call {
        place: MemoryOperand,
        bytes: u32,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Shape {
    pub number: usize,
    /// Relation and place, for the table.
    pub kind: String,
    pub body: Vec<Op>,
    pub nested: bool,
    /// The moving pointer's element.
    pub step_bytes: u32,
    pub mask: u32,
    /// How many iterations ago the element was written that the table picks.
    pub lag: i32,
    /// Whether loads and stores of 8 bytes and less use vector registers where there is a choice.
    pub vector: bool,
    /// Small choices of spelling.
    pub style: u32,
    /// The whole function as C, where that says more than a body.
    pub text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    // These block.
    Tiles,
    Part,
    Straddles,
    FromMiddle,
    OneArm,
    Filled,
    CallTiles,
    CallBlock,
    // These do not.
    Same,
    Inside,
    Covered,
    Beside,
    Narrow,
    Far,
    BothArms,
    FilledNarrow,
    CallSame,
    CallNarrow,
}

use Relation::*;

const BLOCKING: [(Relation, u32); 8] = [
    (Tiles, 6),
    (Part, 3),
    (Straddles, 3),
    (FromMiddle, 1),
    (OneArm, 2),
    (Filled, 1),
    (CallTiles, 2),
    (CallBlock, 1),
];
const INNOCENT: [(Relation, u32); 10] = [
    (Same, 4),
    (Inside, 3),
    (Covered, 3),
    (Beside, 3),
    (Narrow, 3),
    (Far, 2),
    (BothArms, 2),
    (FilledNarrow, 1),
    (CallSame, 2),
    (CallNarrow, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Pointer,
    Stack,
    Ring,
    RingOnStack,
    Walk,
    History,
}

/// What the drawing is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub widest_bytes: u32,
    pub salt: u64,
}

/// `count` shapes, every other one meant to block.
pub fn shapes(seed: u64, count: usize, kind: Kind) -> Vec<Shape> {
    let mut rng = Pcg64::seed_from_u64(seed ^ kind.salt);
    (0..count).map(|number| draw(&mut rng, number, kind.widest_bytes)).collect()
}

fn draw(rng: &mut Pcg64, number: usize, widest_bytes: u32) -> Shape {
    let weight = |r: &(Relation, u32)| r.1;
    let relation = if number.is_multiple_of(2) {
        BLOCKING.choose_weighted(rng, weight)
    } else {
        INNOCENT.choose_weighted(rng, weight)
    };
    let relation = relation.map_or(Tiles, |r| r.0);
    let (store, load) = widths(rng, relation, widest_bytes);
    let at = place_for(rng, relation);
    let step_bytes = element(rng, relation, at, load);
    let lag = rng.random_range(0..3);
    let mask = *[3, 7, 15].choose(rng).unwrap_or(&7);
    let offset_bytes = *[0, 0, 8, 16, 24, 5, 40].choose(rng).unwrap_or(&0);
    let distance = *[0, 0, 3, 10, 25, 40].choose(rng).unwrap_or(&0);
    let wait = if relation == Far { 260 } else { distance };
    let load_first = matches!(at, Where::History)
        || !matches!(relation, CallTiles | CallBlock | CallSame | CallNarrow)
            && rng.random_ratio(1, 3);
    // What is loaded before it is written was written in an iteration before.
    let lag = if load_first { lag.max(1) } else { lag };
    let (write, read) = places(at, relation, step_bytes, offset_bytes, lag);
    let mut stores = stores(rng, relation, write, store, load);
    stores.push(Op::Wait(wait));
    let loads = loads(rng, relation, read, store, load);
    let body = if load_first { [loads, stores].concat() } else { [stores, loads].concat() };
    let mask = if at == Where::History { 1 } else { mask };
    Shape {
        number,
        kind: format!("{relation:?} {at:?}"),
        body,
        nested: rng.random_ratio(1, 4),
        step_bytes,
        mask,
        lag: if at == Where::History { 0 } else { lag },
        vector: rng.random_ratio(1, 4),
        style: rng.random(),
        text: None,
    }
}

/// Widths of a store and of the load.
fn widths(rng: &mut Pcg64, relation: Relation, widest_bytes: u32) -> (u32, u32) {
    let pick = |rng: &mut Pcg64, of: &[(u32, u32)]| of.choose(rng).copied().unwrap_or((4, 8));
    match relation {
        FromMiddle => pick(rng, &[(16, 8), (16, 4)]),
        Inside | CallNarrow => pick(rng, &[(4, 2), (8, 4), (8, 2), (16, 8), (16, 4)]),
        Same | BothArms | CallSame | Straddles => {
            let width = *[2, 4, 4, 8, 8, 16, widest_bytes].choose(rng).unwrap_or(&8);
            (width, width)
        }
        Filled | FilledNarrow | CallBlock => pick(rng, &[(1, 4), (1, 8), (2, 8), (4, 8), (4, 16)]),
        _ => {
            let wide = (widest_bytes / 2, widest_bytes);
            let all =
                [(4, 8), (4, 8), (4, 8), (1, 2), (2, 4), (1, 4), (2, 8), (8, 16), (4, 16), wide];
            pick(rng, &all)
        }
    }
}

fn place_for(rng: &mut Pcg64, relation: Relation) -> Where {
    use Where::*;
    let all: &[Where] = match relation {
        Filled | FilledNarrow | CallTiles | CallSame | CallNarrow => &[Pointer, Stack],
        CallBlock => &[Stack],
        Part | Straddles | FromMiddle => &[Pointer, Pointer, Stack, Stack, Walk],
        OneArm | Far => &[Pointer, Stack, Walk, Ring],
        _ => &[Pointer, Stack, Ring, Ring, RingOnStack, Walk, History],
    };
    *all.choose(rng).unwrap_or(&Pointer)
}

/// How far apart elements are.
fn element(rng: &mut Pcg64, relation: Relation, at: Where, load: u32) -> u32 {
    let room = match relation {
        Beside | Straddles | Inside | FromMiddle => 2 * load.max(8),
        _ => load,
    };
    let sizes: &[u32] = match at {
        Where::History => &[8, 16, 32],
        _ => &[4, 8, 8, 12, 16, 24, 32],
    };
    let fitting: Vec<u32> = sizes.iter().copied().filter(|s| *s >= room).collect();
    fitting.choose(rng).copied().unwrap_or(64)
}

fn places(
    at: Where,
    relation: Relation,
    element_bytes: u32,
    offset: i32,
    lag: i32,
) -> (MemoryOperand, MemoryOperand) {
    let place = |base, index| MemoryOperand { base, index, element_bytes, offset_bytes: offset };
    if relation == CallBlock {
        let block = MemoryOperand { offset_bytes: 0, ..place(Base::Arguments, Index::None) };
        return (block, block);
    }
    match at {
        Where::Pointer => (place(Base::Pointer, Index::None), place(Base::Pointer, Index::None)),
        Where::Stack => (place(Base::Stack, Index::None), place(Base::Stack, Index::None)),
        Where::Ring => (place(Base::Pointer, Index::Written), place(Base::Pointer, Index::Read)),
        Where::RingOnStack => (place(Base::Stack, Index::Written), place(Base::Stack, Index::Read)),
        Where::Walk => {
            (place(Base::Pointer, Index::Counter(0)), place(Base::Pointer, Index::Counter(lag)))
        }
        Where::History => {
            let element = element_bytes as i32;
            (place(Base::Moving, Index::None).moved(-element), place(Base::Moving, Index::Read))
        }
    }
}

fn tiles(place: MemoryOperand, store: u32, load: u32, upwards: bool) -> Vec<Op> {
    let one = |n: u32| Op::Store { place: place.moved((n * store) as i32), bytes: store };
    let count = load / store;
    if upwards { (0..count).map(one).collect() } else { (0..count).rev().map(one).collect() }
}

fn stores(
    rng: &mut Pcg64,
    relation: Relation,
    place: MemoryOperand,
    store: u32,
    load: u32,
) -> Vec<Op> {
    let up = rng.random_ratio(2, 3);
    let whole = |bytes| Op::Store { place, bytes };
    let tiled = || tiles(place, store, load, up);
    match relation {
        Tiles | Narrow | Far | CallTiles | CallBlock => tiled(),
        Part => {
            let pieces = load / store;
            let at = rng.random_range(0..pieces) * store;
            vec![Op::Store { place: place.moved(at as i32), bytes: store }]
        }
        Straddles => {
            let by = rng.random_range(1..load) as i32;
            vec![Op::Store { place: place.moved(by), bytes: load }]
        }
        FromMiddle | Same | Inside | CallSame | CallNarrow => vec![whole(store)],
        OneArm => vec![Op::Choose(tiled(), vec![whole(load)])],
        BothArms => vec![Op::Choose(vec![whole(load)], vec![Op::Wait(1), whole(load)])],
        Filled | FilledNarrow => vec![Op::Fill { place, bytes: store, count: load / store }],
        Covered => [tiled(), vec![whole(load)]].concat(),
        Beside => tiles(place.moved(load as i32), store, load, up),
    }
}

fn loads(
    rng: &mut Pcg64,
    relation: Relation,
    place: MemoryOperand,
    store: u32,
    load: u32,
) -> Vec<Op> {
    let narrow = |n: u32| Op::Load { place: place.moved((n * store) as i32), bytes: store };
    match relation {
        FromMiddle => {
            // Neither inside the lower nor inside the upper 8 bytes.
            let at = 8 - load as i32 + rng.random_range(1..load as i32);
            vec![Op::Load { place: place.moved(at), bytes: load }]
        }
        Inside => {
            let half = rng.random::<bool>() && store > load;
            vec![Op::Load {
                place: place.moved(if half { store as i32 / 2 } else { 0 }),
                bytes: load,
            }]
        }
        Narrow | FilledNarrow => (0..load / store).map(narrow).collect(),
        CallTiles | CallBlock | CallSame | CallNarrow => vec![Op::Call { place, bytes: load }],
        _ => vec![Op::Load { place, bytes: load }],
    }
}
