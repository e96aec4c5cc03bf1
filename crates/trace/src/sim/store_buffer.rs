//! The store buffer: which loads of a run could not be served from stores still in flight.
//!
//! A store waits in a buffer until it may reach the cache. A later load of the same bytes is served
//! from the buffer when one store holds all of them in a way that the core can hand on; otherwise
//! the load waits until the store has been committed, 10 to 20 cycles. The measurable sign is a
//! latency from store to load that is three times the usual one. Which pairs can be handed on is
//! the machine's [`ForwardingRule`]; which pairs meet is known only in a run, byte for byte, and
//! that is counted here.
//!
//! The model knows instructions, not cycles: a store counts as in flight while fewer than
//! `depth` stores and `window_instructions` instructions lie behind it. So it gives counts and
//! distances, and what they cost is told by [`super::core`].
//! Literature: A. Fog, "The microarchitecture of Intel, AMD and VIA CPUs", store forwarding
//! stalls; H. Wong, "Store-to-Load Forwarding and Memory Disambiguation in x86 Processors" (2014).

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::{Design, ForwardingRule};
use crate::model::Avma;
use crate::trace::engine::{AccessKind, Block, BlockId, MemoryAccess, Sink};

/// Reports name at most so many stores of one blocked load, the youngest ones.
pub const MOST_STORES: usize = 4;
/// Wider accesses (`rep` strings, `xsave`) are made of many, and are not judged.
pub(super) const WIDEST_BYTES: u32 = 64;
/// Bits of an address that a load compares with stores before it knows the page.
const ALIAS_BYTES: u64 = 4096;
/// Stores are found again by 16-byte pieces of their place in a page.
const PIECE_BYTES: u64 = 16;
const PIECES: usize = (ALIAS_BYTES / PIECE_BYTES) as usize;

/// How large the buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreBufferShape {
    /// Entries, at least 1; Cascade Lake has 56.
    pub depth: u32,
    /// A store further back than so many instructions counts as committed.
    pub window_instructions: u32,
}

impl StoreBufferShape {
    /// That of a design: its store queue, and its reorder window for how far back a store may be.
    #[must_use]
    pub fn of(design: &Design) -> Self {
        Self {
            depth: design.store_queue().value,
            window_instructions: design.reorder_window().value,
        }
    }
}

/// Counts of distances from the youngest store that a blocked load needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Distances {
    /// In instructions: up to 1, 2, 4, 8, 16, 32, 64, 128, and more.
    pub instructions: [u64; 9],
    /// In executions of the storing instruction since (0 is the latest one): 0 to 6, and more.
    pub reuse_iterations: [u64; 8],
}

impl Distances {
    fn count(&mut self, instructions: u64, reuse: u64) {
        let bucket = instructions.max(1).next_power_of_two().trailing_zeros() as usize;
        self.instructions[bucket.min(8)] += 1;
        self.reuse_iterations[reuse.min(7) as usize] += 1;
    }
}

/// Stores that together kept a load from being forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Blockers {
    /// The storing instructions, youngest first, at most [`MOST_STORES`].
    pub stores: Vec<Avma>,
    /// How often it was these.
    pub count: u64,
}

/// What became of one load instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadSite {
    /// Address of the load.
    pub insn: Avma,
    /// Width of its latest execution.
    pub size_bytes: u32,
    /// Number of its executions that were judged.
    pub executions: u64,
    /// Served by a store in flight.
    pub forwarded: u64,
    /// Overlapped stores in flight that could not serve them.
    pub blocked: u64,
    /// Overlapped none, but one in the low 12 bits of its address.
    pub aliased: u64,
    /// Which stores, most frequent first.
    pub blockers: Vec<Blockers>,
    /// How far back the youngest of them was.
    pub distances: Distances,
}

/// Loads of a window and what the modelled store buffer did for them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StoreBufferReport {
    /// When a store may serve a load.
    pub rule: ForwardingRule,
    /// The buffer that was modelled.
    pub shape: StoreBufferShape,
    /// Instructions of the window.
    pub instructions: u64,
    /// Loads that were judged.
    pub loads: u64,
    /// Loads and stores wider than 64 bytes, which were not judged.
    pub unjudged: u64,
    /// Loads that were served from the store buffer.
    pub forwarded: u64,
    /// Loads that could not be forwarded and waited for the cache.
    pub blocked: u64,
    /// Loads that met a store only in the low 12 bits of its address.
    pub aliased: u64,
    /// Load instructions that met any store in flight, most often blocked first.
    pub sites: Vec<LoadSite>,
}

/// Number of an instruction that touches memory.
type SiteNumber = u32;

#[derive(Clone, Copy, Default)]
struct Entry {
    address: u64,
    size_bytes: u32,
    site: SiteNumber,
    /// Count of instructions when it ran.
    at: u64,
    /// Which execution of its instruction it was.
    ordinal: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    size_bytes: u32,
    loads: u64,
    stores: u64,
    forwarded: u64,
    blocked: u64,
    aliased: u64,
    distances: Distances,
}

/// The stores that blocked one load: how many, and the youngest of them.
type BlockingStores = ([SiteNumber; MOST_STORES], u8);

/// What a load found in the store buffer.
enum Meeting {
    Forwarded,
    Blocked { blocking: BlockingStores, youngest: Entry },
    Aliased,
    Nothing,
}

/// Sites of a block's instructions, and which of these drain stores.
#[derive(Default)]
struct Sites {
    sites: Vec<SiteNumber>,
    draining: Vec<u32>,
}

/// A model of the store buffer, fed with the accesses of a trace.
pub struct StoreBuffer {
    rule: ForwardingRule,
    shape: StoreBufferShape,
    /// Ring of the last `depth` stores; store number n is at n modulo its length.
    ring: Vec<Entry>,
    stores: u64,
    /// For each piece of a page, one more than the number of the last store that touched it.
    touched: Vec<u64>,
    instructions: u64,
    unjudged: u64,
    numbers: FxHashMap<Avma, SiteNumber>,
    insns: Vec<Avma>,
    counts: Vec<Counts>,
    /// How many stores fences and locked operations have sent to the cache.
    drained: u64,
    blocks: Vec<Sites>,
    blocking: FxHashMap<(SiteNumber, BlockingStores), u64>,
}

impl StoreBuffer {
    /// An empty buffer. A depth of 0 counts as 1.
    #[must_use]
    pub fn new(rule: ForwardingRule, shape: StoreBufferShape) -> Self {
        let shape = StoreBufferShape { depth: shape.depth.clamp(1, 1 << 16), ..shape };
        Self {
            rule,
            shape,
            ring: vec![Entry::default(); shape.depth as usize],
            stores: 0,
            touched: vec![0; PIECES],
            instructions: 0,
            unjudged: 0,
            numbers: FxHashMap::default(),
            insns: Vec::new(),
            counts: Vec::new(),
            drained: 0,
            blocks: Vec::new(),
            blocking: FxHashMap::default(),
        }
    }

    fn number(&mut self, insn: Avma) -> SiteNumber {
        *self.numbers.entry(insn).or_insert_with(|| {
            self.insns.push(insn);
            self.counts.push(Counts::default());
            self.insns.len() as SiteNumber - 1
        })
    }

    fn store(&mut self, site: SiteNumber, address: u64, size_bytes: u32, at: u64) {
        let counts = &mut self.counts[site as usize];
        let ordinal = counts.stores;
        counts.stores += 1;
        let slot = (self.stores % self.ring.len() as u64) as usize;
        self.ring[slot] = Entry { address, size_bytes, site, at, ordinal };
        self.stores += 1;
        for piece in pieces(address, size_bytes) {
            self.touched[piece] = self.stores;
        }
    }

    fn load(&mut self, site: SiteNumber, address: u64, size_bytes: u32, at: u64) {
        let meeting = self.meeting(address, size_bytes, at);
        let counts = &mut self.counts[site as usize];
        counts.size_bytes = size_bytes;
        counts.loads += 1;
        match meeting {
            Meeting::Nothing => {}
            Meeting::Forwarded => counts.forwarded += 1,
            Meeting::Aliased => counts.aliased += 1,
            Meeting::Blocked { blocking, youngest } => {
                counts.blocked += 1;
                let reuse = self.counts[youngest.site as usize].stores - 1 - youngest.ordinal;
                self.counts[site as usize].distances.count(at - youngest.at, reuse);
                *self.blocking.entry((site, blocking)).or_default() += 1;
            }
        }
    }

    /// Looks from the youngest store to the oldest in flight.
    fn meeting(&self, address: u64, size_bytes: u32, at: u64) -> Meeting {
        let oldest = self.stores.saturating_sub(self.ring.len() as u64).max(self.drained);
        let newest_near = pieces(address, size_bytes).map(|p| self.touched[p]).max().unwrap_or(0);
        if newest_near <= oldest {
            return Meeting::Nothing;
        }
        let every_byte = u64::MAX >> (64 - size_bytes);
        let (mut missing, mut aliased) = (every_byte, false);
        let mut blocking: BlockingStores = ([SiteNumber::MAX; MOST_STORES], 0);
        let mut youngest = None;
        for number in (oldest..newest_near).rev() {
            let store = self.ring[(number % self.ring.len() as u64) as usize];
            if at - store.at > u64::from(self.shape.window_instructions) {
                break;
            }
            let covered = covered_bytes(address, size_bytes, &store);
            if covered & missing == 0 {
                aliased |= covered == 0 && overlaps_in_page(address, size_bytes, &store);
                continue;
            }
            if youngest.is_none() {
                let offset = address.wrapping_sub(store.address).cast_signed();
                let (wide, load) = (store.size_bytes as u16, size_bytes as u16);
                if self.rule.merges() || self.rule.forwards(offset, wide, load) {
                    return Meeting::Forwarded;
                }
                youngest = Some(store);
            }
            if usize::from(blocking.1) < MOST_STORES {
                blocking.0[usize::from(blocking.1)] = store.site;
                blocking.1 += 1;
            }
            missing &= !covered;
            if missing == 0 {
                break;
            }
        }
        match youngest {
            Some(youngest) => Meeting::Blocked { blocking, youngest },
            None if aliased => Meeting::Aliased,
            None => Meeting::Nothing,
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn report(&self) -> StoreBufferReport {
        let mut blockers: FxHashMap<SiteNumber, Vec<Blockers>> = FxHashMap::default();
        for ((site, (stores, many)), count) in &self.blocking {
            let stores = stores[..usize::from(*many)].iter().map(|s| self.insns[*s as usize]);
            let entry = Blockers { stores: stores.collect(), count: *count };
            blockers.entry(*site).or_default().push(entry);
        }
        let met = |c: &Counts| c.forwarded + c.blocked + c.aliased > 0;
        let mut sites: Vec<LoadSite> = (0_u32..)
            .zip(self.insns.iter().zip(&self.counts))
            .filter(|(_, (_, counts))| met(counts))
            .map(|(number, (insn, counts))| LoadSite {
                insn: *insn,
                size_bytes: counts.size_bytes,
                executions: counts.loads,
                forwarded: counts.forwarded,
                blocked: counts.blocked,
                aliased: counts.aliased,
                blockers: blockers.remove(&number).unwrap_or_default(),
                distances: counts.distances,
            })
            .collect();
        sites.sort_by_key(|s| (std::cmp::Reverse((s.blocked, s.aliased)), s.insn));
        for site in &mut sites {
            site.blockers.sort_by(|a, b| (b.count, &a.stores).cmp(&(a.count, &b.stores)));
        }
        let total = |of: fn(&Counts) -> u64| self.counts.iter().map(of).sum();
        StoreBufferReport {
            rule: self.rule,
            shape: self.shape,
            instructions: self.instructions,
            loads: total(|c| c.loads),
            unjudged: self.unjudged,
            forwarded: total(|c| c.forwarded),
            blocked: total(|c| c.blocked),
            aliased: total(|c| c.aliased),
            sites,
        }
    }
}

/// The pieces of a page that an access touches; an access is at most 64 bytes long.
fn pieces(address: u64, size_bytes: u32) -> impl Iterator<Item = usize> {
    let first = address / PIECE_BYTES;
    let last = address.wrapping_add(u64::from(size_bytes) - 1) / PIECE_BYTES;
    (0..=last.wrapping_sub(first).min(4)).map(move |n| (first.wrapping_add(n)) as usize % PIECES)
}

/// Which bytes of a load a store wrote: bit n is the load's byte n.
fn covered_bytes(address: u64, size_bytes: u32, store: &Entry) -> u64 {
    let ahead = store.address.wrapping_sub(address).cast_signed();
    let (from, to) = (ahead.max(0), ahead.saturating_add(i64::from(store.size_bytes)));
    let to = to.min(i64::from(size_bytes));
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << from
}

/// Whether a store overlaps a load when only their places in a page are compared.
fn overlaps_in_page(address: u64, size_bytes: u32, store: &Entry) -> bool {
    let ahead = store.address.wrapping_sub(address) % ALIAS_BYTES;
    ahead < u64::from(size_bytes) || ALIAS_BYTES - ahead < u64::from(store.size_bytes)
}

impl Sink for StoreBuffer {
    fn describe(&mut self, id: BlockId, block: &Block) {
        let sites = block.insns.iter().map(|insn| self.number(insn.address)).collect();
        let draining = (0..).zip(&block.insns).filter(|(_, insn)| insn.drains_stores);
        let draining = draining.map(|(n, _)| n).collect();
        id.put(Sites { sites, draining }, &mut self.blocks);
    }

    fn restart(&mut self) {
        *self = Self::new(self.rule, self.shape);
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        let Some(block) = self.blocks.get(id.0 as usize) else { return };
        let (start, length) = (self.instructions, block.sites.len() as u64);
        let mut drained = 0;
        for access in accesses {
            let block = &self.blocks[id.0 as usize];
            let Some(site) = block.sites.get(access.insn as usize).copied() else {
                continue;
            };
            // What locks finds no older stores in flight and leaves none: its own is not served either.
            while let Some(at) = block.draining.get(drained).filter(|at| **at <= access.insn) {
                self.drained = self.stores;
                if *at == access.insn {
                    break;
                }
                drained += 1;
            }
            if access.size_bytes == 0 || access.size_bytes > WIDEST_BYTES {
                self.unjudged += 1;
                continue;
            }
            let at = start + u64::from(access.insn);
            match access.kind {
                AccessKind::Load => self.load(site, access.address.0, access.size_bytes, at),
                AccessKind::Store => self.store(site, access.address.0, access.size_bytes, at),
                AccessKind::Prefetch | AccessKind::Value => {}
            }
        }
        if self.blocks[id.0 as usize].draining.len() > drained {
            self.drained = self.stores;
        }
        self.instructions = start + length;
    }
}

#[cfg(test)]
mod tests;
