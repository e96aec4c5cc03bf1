//! What happened at each instruction of a window, by its place in a file.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::machine::Design;
use crate::model::{Avma, FileOffset};
use crate::sim::Fan;
use crate::sim::jumps::BlockCounts;
use crate::sim::splits::Splits;
use crate::sim::store_buffer::{StoreBuffer, StoreBufferShape};
use crate::trace::engine::{EngineError, Mapping, Recording, Sink};

/// What happened at one instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Happened {
    /// Times that it ran.
    pub executions: u64,
    /// Of its loads, those that overlapped stores in flight which could not serve them.
    pub blocked: u64,
    /// Those that met a store only in the low 12 bits of its address.
    pub aliased: u64,
    /// Its accesses that crossed the end of a line.
    pub split: u64,
    /// The stores that blocked it, all in its own file, youngest first, and how often it was these.
    pub stores: BTreeMap<Vec<FileOffset>, u64>,
}

impl Happened {
    fn add(&mut self, other: Self) {
        self.executions += other.executions;
        self.blocked += other.blocked;
        self.aliased += other.aliased;
        self.split += other.split;
        for (stores, count) in other.stores {
            *self.stores.entry(stores).or_default() += count;
        }
    }
}

/// What happened in windows.
#[derive(Default)]
pub(super) struct Windows {
    pub count: usize,
    pub instructions: u64,
    files: HashMap<PathBuf, BTreeMap<FileOffset, Happened>>,
}

impl Windows {
    /// What happened in a file, by place.
    pub fn in_file(&self, path: &Path) -> impl Iterator<Item = (FileOffset, &Happened)> {
        self.files.get(path).into_iter().flatten().map(|(at, happened)| (*at, happened))
    }

    pub fn add(&mut self, window: Self) {
        self.count += window.count;
        self.instructions += window.instructions;
        for (path, insns) in window.files {
            let file = self.files.entry(path).or_default();
            insns.into_iter().for_each(|(at, more)| file.entry(at).or_default().add(more));
        }
    }
}

/// The models that watch a window.
pub(super) struct Watch {
    store_buffer: StoreBuffer,
    splits: Splits,
    counts: BlockCounts,
}

impl Watch {
    pub fn new(design: &Design) -> Self {
        Self {
            store_buffer: StoreBuffer::new(design.forwarding_rule, StoreBufferShape::of(design)),
            splits: Splits::default(),
            counts: BlockCounts::default(),
        }
    }

    /// Shows all of them what `follow` tells.
    pub fn over<T>(&mut self, follow: impl FnOnce(&mut dyn Sink) -> T) -> T {
        let sinks: Vec<&mut dyn Sink> =
            vec![&mut self.store_buffer, &mut self.splits, &mut self.counts];
        follow(&mut Fan(sinks))
    }

    /// What they saw.
    pub fn window(self, recording: &Recording) -> Result<Windows, EngineError> {
        recording.checked()?;
        let mut windows =
            Windows { count: 1, instructions: recording.instructions, ..Windows::default() };
        let place = |at: Avma| Mapping::find(&recording.mappings, at);
        let mut at = |insn: Avma, change: &mut dyn FnMut(&mut Happened, &Path)| {
            if let Some((mapping, offset)) = place(insn) {
                let file = match windows.files.get_mut(&mapping.path) {
                    Some(file) => file,
                    None => windows.files.entry(mapping.path.clone()).or_default(),
                };
                change(file.entry(offset).or_default(), &mapping.path);
            }
        };
        for (_, block, runs) in self.counts.executed() {
            for insn in &block.insns {
                at(insn.address, &mut |happened, _| happened.executions += runs);
            }
        }
        for (insn, count) in self.splits.by_insn() {
            at(*insn, &mut |happened, _| happened.split += count);
        }
        for site in self.store_buffer.report().sites {
            at(site.insn, &mut |happened, path| {
                happened.blocked += site.blocked;
                happened.aliased += site.aliased;
                for blockers in &site.blockers {
                    let own = |at: &Avma| place(*at).filter(|(m, _)| m.path == path);
                    let stores = blockers.stores.iter().map(|at| Some(own(at)?.1));
                    if let Some(stores) = stores.collect::<Option<Vec<_>>>() {
                        *happened.stores.entry(stores).or_default() += blockers.count;
                    }
                }
            });
        }
        Ok(windows)
    }
}
