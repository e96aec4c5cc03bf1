//! The code cache: which block of the program has which translation, and how they are linked.
//!
//! When a block is missing, everything that the program can reach from it by direct jumps and calls
//! is translated with it, nearest first, up to a limit: a stop for each block would cost more than
//! the program's run. What lies behind a call is entered as a target of returns at once.

use std::collections::VecDeque;

use iced_x86::{Decoder, DecoderOptions, Encoder, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::block::{self, End, Pages, Source};
use super::emit::{Address, Emitter, Gpr};
use super::log::Blocks;
use super::operands::Memory;
use super::passage::Passage;
use super::region::{CODE_BYTES, MOST_COUNTERS, Region, Slot};
use super::translation::{Exits, Slots, Writer};
use crate::trace::engine::process::Memories;

/// Blocks translated at one stop.
const BATCH_BLOCKS: usize = 64;
/// What one batch can take at most; a batch is not begun with less room left.
const BATCH_BYTES: usize = 2 << 20;

/// Why translated code stopped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The program goes to this address, which has no translation yet.
    Missing(u64),
    /// The instruction at this address must be executed under supervision.
    Supervise(u64),
    /// The program jumps to the address in `rax`, which is no known target; `rax`, `rcx` and `rdx`
    /// are saved.
    Unknown,
}

/// The registers that an indirect jump needs, whose values lie in their slots meanwhile.
pub(super) const JUMP_REGISTERS: [Gpr; 3] = [Gpr(0), Gpr(1), Gpr(2)];

/// Jumps that wait for the translation of one address.
#[derive(Default)]
struct Waiting {
    /// Where their distances are.
    sites: Vec<u32>,
    /// Where they go meanwhile.
    stub: Option<u32>,
}

/// Translates, links, remembers.
pub(super) struct Translator {
    pub(super) region: Region,
    pub(super) blocks: Blocks,
    pub(super) pages: Pages,
    used: usize,
    /// Translation of each block start, as an offset in the code cache.
    known: FxHashMap<u64, u32>,
    /// Jumps to addresses without translation.
    waiting: FxHashMap<u64, Waiting>,
    /// Those of them that have no stub yet.
    fresh: Vec<u64>,
    /// Where stubs stop, and why.
    stops: FxHashMap<u32, Stop>,
    /// Targets that indirect jumps find.
    targets: FxHashSet<u64>,
    unknown: u32,
    /// Addresses at which a block must begin.
    pub(super) cuts: Vec<u64>,
    pub(super) with_memory: bool,
    /// Whether blocks are counted where that is all there is to log.
    pub(super) counts: bool,
    pub(super) factory: InstructionInfoFactory,
    encoder: Encoder,
}

/// The code cache is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Translator {
    pub(super) fn new(region: Region, with_memory: bool, counts: bool) -> Self {
        Self::of_image(region, with_memory, counts, 0)
    }

    /// As [`Self::new`]; see [`Blocks::of_image`].
    pub(super) fn of_image(region: Region, with_memory: bool, counts: bool, image: u64) -> Self {
        let mut new = Self {
            region,
            blocks: Blocks::of_image(image),
            pages: Pages::default(),
            used: 0,
            known: FxHashMap::default(),
            waiting: FxHashMap::default(),
            fresh: Vec::new(),
            stops: FxHashMap::default(),
            targets: FxHashSet::default(),
            unknown: 0,
            cuts: Vec::new(),
            with_memory,
            counts,
            factory: InstructionInfoFactory::new(),
            encoder: Encoder::new(64),
        };
        new.forget();
        new
    }

    /// Replaces one byte of translated code and hands back what was there.
    pub(super) fn replace_byte(&mut self, address: u64, byte: u8) -> u8 {
        let offset = self.region.code_offset(address);
        let place = offset.and_then(|at| self.region.code_mut().get_mut(at as usize));
        place.map_or(byte, |place| std::mem::replace(place, byte))
    }

    /// Drops all translations. The log must have been read before.
    pub(super) fn forget(&mut self) {
        self.used = 0;
        self.known.clear();
        self.waiting.clear();
        self.stops.clear();
        self.targets.clear();
        self.pages.clear();
        self.blocks.forget_code();
        self.unknown = self.stub(Stop::Unknown);
        let address = self.region.base + u64::from(self.unknown);
        self.region.reset_entries(address);
    }

    /// Why the code stopped, given the address behind the stop.
    pub(super) fn stop_before(&self, rip: u64) -> Option<Stop> {
        let offset = self.region.code_offset(rip.wrapping_sub(1))?;
        self.stops.get(&offset).copied()
    }

    /// Where in the copy the translation of `target` starts, which is made if need be.
    pub(super) fn translate(&mut self, memory: &dyn Memories, target: u64) -> Result<u64, Full> {
        if !self.known.contains_key(&target) {
            self.batch(memory, target)?;
        }
        self.known.get(&target).map(|at| self.region.base + u64::from(*at)).ok_or(Full)
    }

    /// As [`Self::translate`], and lets indirect jumps find it from now on.
    pub(super) fn translate_target(
        &mut self,
        memory: &dyn Memories,
        target: u64,
    ) -> Result<u64, Full> {
        let address = self.translate(memory, target)?;
        if self.targets.insert(target) {
            self.enter(target);
            if let Some(at) = self.known.get(&target).copied() {
                let site = self.jump();
                self.patch(&[site], at);
            }
        }
        Ok(address)
    }

    /// The passage at `at`, for a counter to be put there; see [`Passage::of`].
    pub(super) fn passage(&self, memory: &dyn Memories, at: u64) -> Result<Passage, &'static str> {
        let mut code = [0; 15];
        let jumps: FxHashSet<u64> = self
            .blocks
            .last_insns()
            .map(|last| {
                let got = memory.read(last.address.0, &mut code);
                let bytes = &code[..got.min(last.size_bytes.into())];
                let insn =
                    Decoder::with_ip(64, bytes, last.address.0, DecoderOptions::NONE).decode();
                insn.near_branch_target()
            })
            .collect();
        Passage::of(memory, at, |at| jumps.contains(&at) || self.targets.contains(&at))
    }

    /// Writes the check that an indirect jump passes on its way to `target`; the translation must
    /// follow it. In `rax` is where the program goes; on success the borrowed registers are given
    /// back, else the check written before for the same table entry is next.
    fn enter(&mut self, target: u64) {
        let before = self.region.entry(target);
        let here = self.region.base + self.used as u64;
        self.region.set_entry(target, here);
        let slots = JUMP_REGISTERS.map(|r| (r, self.region.slot_address(Slot::Saved(r))));
        let base = self.region.base;
        let mut e = self.emitter();
        e.constant(Gpr::CX, target.wrapping_neg());
        let sum = Address {
            base: Some(Gpr::CX),
            index: Some(Gpr(0)),
            scale: 1,
            displacement: 0,
            narrow: false,
        };
        e.lea(Gpr::CX, sum);
        let hit = e.skip_if_cx_zero();
        let miss = e.jump();
        e.patch_distance(miss, (before - base) as usize);
        e.land_short(hit);
        for (register, slot) in slots {
            e.load(register, slot);
        }
        self.used = e.used();
    }

    fn stub(&mut self, why: Stop) -> u32 {
        let at = self.used as u32;
        let mut emitter = self.emitter();
        emitter.stop();
        self.used = emitter.used();
        self.stops.insert(at, why);
        at
    }

    /// Translates `first` and what can be reached from it.
    fn batch(&mut self, memory: &dyn Memories, first: u64) -> Result<(), Full> {
        let blocks = self.blocks.next_id() as usize + BATCH_BLOCKS;
        if self.used + BATCH_BYTES > CODE_BYTES || blocks > MOST_COUNTERS {
            return Err(Full);
        }
        let mut queue = VecDeque::from([(first, false)]);
        let mut left = BATCH_BLOCKS;
        while let Some((start, is_target)) = queue.pop_front() {
            let mut next = Some((start, is_target));
            // A chain of blocks, each right behind the one that leads to it.
            while let Some((start, is_target)) = next.take() {
                if left == 0 || self.known.contains_key(&start) {
                    break;
                }
                left -= 1;
                if is_target && self.targets.insert(start) {
                    self.enter(start);
                }
                next = self.block(memory, start, &mut queue, left > 0);
            }
        }
        self.stub_waiting();
        Ok(())
    }

    /// Lets every jump that began to wait in this batch stop and say what it waits for.
    fn stub_waiting(&mut self) {
        for target in std::mem::take(&mut self.fresh) {
            if !self.waiting.contains_key(&target) {
                continue;
            }
            let stub = self.stub(Stop::Missing(target));
            if let Some(waiting) = self.waiting.get_mut(&target) {
                waiting.stub = Some(stub);
                let sites = waiting.sites.clone();
                self.patch(&sites, stub);
            }
        }
    }

    /// Writes behind what is written already.
    fn emitter(&mut self) -> Emitter<'_> {
        let base = self.region.base;
        Emitter::new(self.region.code_mut(), base, self.used)
    }

    /// Writes a jump to nowhere yet; where its distance stands.
    fn jump(&mut self) -> u32 {
        let mut emitter = self.emitter();
        let site = emitter.jump();
        self.used = emitter.used();
        site as u32
    }

    fn patch(&mut self, sites: &[u32], target: u32) {
        let mut emitter = self.emitter();
        for site in sites {
            emitter.patch_distance(*site as usize, target as usize);
        }
    }

    /// Translates one block. Hands back the block that should come right behind it, if it ends by
    /// running into that one; `room` says whether there may be one.
    fn block(
        &mut self,
        memory: &dyn Memories,
        start: u64,
        queue: &mut VecDeque<(u64, bool)>,
        room: bool,
    ) -> Option<(u64, bool)> {
        let source = block::read(
            &mut self.pages,
            memory,
            &mut self.factory,
            start,
            &self.cuts,
            self.with_memory,
        );
        let entry = self.used as u32;
        self.known.insert(start, entry);
        if let Some(waiting) = self.waiting.remove(&start) {
            self.patch(&waiting.sites, entry);
        }
        if source.insns.is_empty() {
            self.stub(Stop::Supervise(start));
            return None;
        }
        let exits = self.emit(start, &source);
        let next = source.next();
        match source.end {
            End::Branch(target) => queue.push_back((target, false)),
            End::Call(_) | End::IndirectCall => queue.push_back((next, true)),
            End::Continue(_) | End::Jump(_) | End::IndirectJump | End::Return(_) | End::Stop(_) => {
            }
        }
        for (target, site) in exits.jumps {
            self.link(target, site);
        }
        match exits.runs_into {
            // A jump is needed when the next block is elsewhere, or will be.
            Some(target) if !room || self.known.contains_key(&target) => {
                let site = self.jump();
                self.link(target, site);
                None
            }
            Some(target) => Some((target, false)),
            None => None,
        }
    }

    fn link(&mut self, target: u64, site: u32) {
        if let Some(at) = self.known.get(&target).copied() {
            self.patch(&[site], at);
            return;
        }
        let waiting = self.waiting.entry(target).or_default();
        waiting.sites.push(site);
        match waiting.stub {
            Some(stub) => self.patch(&[site], stub),
            None => self.fresh.push(target),
        }
    }

    fn emit(&mut self, start: u64, source: &Source) -> Exits {
        let slots = Slots::of(&self.region);
        let id = self.blocks.next_id();
        let base = self.region.base;
        let used = self.used;
        let at = base + used as u64;
        let is_counted = self.counts
            && source.memory.iter().all(|m| matches!(m, Memory::Plain(o) if o.is_empty()));
        let counter = is_counted.then(|| self.region.counter_address(id));
        let e = Emitter::new(self.region.code_mut(), base, used);
        let encoder = &mut self.encoder;
        let mut writer = Writer { e, encoder, slots, source, start, at, counter };
        let (exits, shape) = writer.block(id);
        self.used = writer.e.used();
        self.blocks.add(source, shape, used as u32..self.used as u32);
        exits
    }
}
