//! All models on one run, and what they say together.

use schemars::JsonSchema;
use serde::Serialize;

use super::core::{Accounts, CycleReport};
use super::jumps::{BlockCounts, JumpReport};
use super::l1i::{InstructionCache, L1iReport, Replacement};
use super::pairs::{self, LoadPrice};
use super::places::{Location, Places};
use super::store_buffer::{LoadSite, StoreBuffer, StoreBufferReport, StoreBufferShape};
use crate::machine::{Design, Fusion, PriceRange};
use crate::model::Avma;
use crate::trace::engine::{Block, BlockId, Ended, MemoryAccess, Recording, SelfCheck, Sink};

/// Blocked loads whose places are looked up.
const MOST_SITES: usize = 50;

/// How a trace came about.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TraceWindow {
    /// Id of the engine.
    pub engine: String,
    /// Instructions in the window.
    pub instructions: u64,
    /// Time in the window, as slow as the engine made it.
    pub wall_ns: u64,
    /// Why it ended, as a clause.
    pub ended: String,
    /// Whether the engine's check of itself succeeded; absent where there is nothing to compare.
    pub self_check_passed: Option<bool>,
    /// What was compared, or what differed.
    pub self_check: Option<String>,
    /// How the command ended; absent of a process that ran before, and runs on.
    pub command: Option<String>,
}

/// What the models say of a window.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TraceReport {
    /// Extent of the window, and how it was followed.
    pub window: TraceWindow,
    /// Loads and the store buffer.
    pub store_buffer: StoreBufferReport,
    /// What a blocked load costs from store to load, by the design.
    pub blocked_load_cycles: PriceRange,
    /// The same for the loads above whose kind the profile prices by itself, by address.
    pub load_prices: Vec<LoadPrice>,
    /// The instruction cache; absent where its shape is not known.
    pub l1i: Option<L1iReport>,
    /// Jumps on 32-byte boundaries.
    pub jumps: JumpReport,
    /// What each of them costs on the design that is modelled; absent without the erratum.
    pub boundary_jump_cycles: Option<PriceRange>,
    /// Cycles by the model of the core; absent where they were not asked for, or where a note says why.
    pub cycles: Option<CycleReport>,
    /// What stands at the addresses above: of the loads blocked most often, their stores, the
    /// lines of overfull sets, the jumps, and what the cycles name.
    pub places: Vec<Location>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

impl TraceReport {
    /// What stands at an address that the report names.
    #[must_use]
    pub fn place(&self, address: Avma) -> Option<&Location> {
        let at = self.places.binary_search_by_key(&address, |p| p.avma).ok()?;
        self.places.get(at)
    }

    /// What a blocked load costs where its kind was measured; else that of all of them counts.
    #[must_use]
    pub fn load_price(&self, insn: Avma) -> Option<&LoadPrice> {
        let at = self.load_prices.binary_search_by_key(&insn, |p| p.insn).ok()?;
        self.load_prices.get(at)
    }

    /// Blocked loads per thousand instructions.
    #[must_use]
    pub fn blocked_per_thousand(&self) -> f64 {
        1000.0 * self.store_buffer.blocked as f64 / (self.window.instructions.max(1)) as f64
    }
}

/// A window that was run through the model of the core, and how many calls it is of, if that is known.
#[derive(Clone, Copy)]
pub struct Modelled<'a> {
    /// What the model says.
    pub accounts: &'a Accounts,
    /// Whole calls in the window.
    pub calls: Option<u64>,
}

/// All models, fed with the same events.
pub struct Models {
    store_buffer: StoreBuffer,
    l1i: Option<InstructionCache>,
    counts: BlockCounts,
    fusion: Fusion,
}

impl Models {
    /// Models of a design.
    #[must_use]
    pub fn new(design: &Design) -> Self {
        Self {
            store_buffer: StoreBuffer::new(design.forwarding_rule, StoreBufferShape::of(design)),
            l1i: InstructionCache::new(design.code_cache().value, Replacement::Lru),
            counts: BlockCounts::default(),
            fusion: design.fusion().value,
        }
    }

    /// What they say of a finished recording, at the prices of `design`; with cycles, where the core was
    /// modelled, too.
    #[must_use]
    pub fn report(
        &self,
        recording: Recording,
        core: Option<Modelled<'_>>,
        design: &Design,
    ) -> TraceReport {
        let (self_check_passed, self_check) = match recording.self_check {
            SelfCheck::NotCompared => (None, None),
            SelfCheck::Equal(what) => (Some(true), Some(what)),
            SelfCheck::Differs(what) => (Some(false), Some(what)),
        };
        let window = TraceWindow {
            engine: recording.engine.to_owned(),
            instructions: recording.instructions,
            wall_ns: recording.wall_ns,
            ended: ended(recording.ended),
            self_check_passed,
            self_check,
            command: recording.exit.as_ref().map(|exit| exit.status.to_string()),
        };
        let mut notes = recording.notes;
        let left_behind = recording.exit.map_or_else(Vec::new, |exit| exit.left_behind);
        if !left_behind.is_empty() {
            notes.push(format!(
                "the command left {} processes behind ({}), which were killed",
                left_behind.len(),
                left_behind.join(", ")
            ));
        }
        let mut places = Places::new(recording.mappings, recording.code);
        let jumps = self.counts.jumps(self.fusion, |address, size| places.x86_code(address, size));
        let store_buffer = self.store_buffer.report();
        let l1i = self.l1i.as_ref().map(InstructionCache::report);
        let cycles = core.map(|m| CycleReport::of(m.accounts, m.calls, design, &mut places));
        let cycles = cycles.and_then(|cycles| cycles.map_err(|why| notes.push(why)).ok());
        let mut named = addresses(&store_buffer, l1i.as_ref(), &jumps);
        named.extend(cycles.iter().flat_map(CycleReport::addresses));
        let named = places.places(named);
        let load_prices = pairs::prices(blocked(&store_buffer), &mut places, design);
        notes.extend(places.notes());
        TraceReport {
            window,
            store_buffer,
            blocked_load_cycles: design.store_forward_blocked_cycles.clone(),
            load_prices,
            l1i,
            jumps,
            boundary_jump_cycles: design.jump_at_boundary_price(),
            cycles,
            places: named,
            notes,
        }
    }
}

/// The loads that are reported in full.
fn blocked(stores: &StoreBufferReport) -> impl Iterator<Item = &LoadSite> {
    stores.sites.iter().take(MOST_SITES).filter(|s| s.blocked > 0)
}

fn addresses(stores: &StoreBufferReport, l1i: Option<&L1iReport>, jumps: &JumpReport) -> Vec<Avma> {
    let mut all = Vec::new();
    for site in blocked(stores) {
        all.push(site.insn);
        all.extend(site.blockers.iter().take(1).flat_map(|b| b.stores.iter().copied()));
    }
    let lines = |l: &L1iReport| -> Vec<Avma> {
        let sets = l.overfull().into_iter().take(MOST_SITES);
        sets.flat_map(|s| s.lines.iter().map(|line| line.first_insn)).collect()
    };
    all.extend(l1i.map(lines).unwrap_or_default());
    all.extend(jumps.sites.iter().take(MOST_SITES).map(|s| s.insn));
    all
}

fn ended(ended: Ended) -> String {
    match ended {
        Ended::Length => "at the length asked for".into(),
        Ended::Short => "early, where the engine could not follow any further".into(),
        Ended::Exit => "because the thread or its process ended".into(),
        Ended::Exec => "because the program replaced itself (exec)".into(),
        Ended::Signal(number) => match nix::sys::signal::Signal::try_from(number) {
            Ok(signal) => format!("because {signal} ended the process"),
            Err(_) => format!("because signal {number} ended the process"),
        },
    }
}

impl Sink for Models {
    fn describe(&mut self, id: BlockId, block: &Block) {
        self.store_buffer.describe(id, block);
        if let Some(l1i) = &mut self.l1i {
            l1i.describe(id, block);
        }
        self.counts.describe(id, block);
    }

    fn restart(&mut self) {
        self.store_buffer.restart();
        if let Some(l1i) = &mut self.l1i {
            l1i.restart();
        }
        self.counts.restart();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        self.store_buffer.run(id, accesses);
        if let Some(l1i) = &mut self.l1i {
            l1i.run(id, accesses);
        }
        self.counts.run(id, accesses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_window_ended_is_said() {
        let all = [
            Ended::Length,
            Ended::Short,
            Ended::Exit,
            Ended::Exec,
            Ended::Signal(11),
            Ended::Signal(9999),
        ];
        let said = all.map(ended);
        assert!(said[4].contains("SIGSEGV") && said[5].contains("signal 9999"), "{said:?}");
        let different: std::collections::BTreeSet<&String> = said.iter().collect();
        assert_eq!(different.len(), 6);
        assert!(said[3].contains("exec") && said[0].contains("length"), "{said:?}");
    }
}
