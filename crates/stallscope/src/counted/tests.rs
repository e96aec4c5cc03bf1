//! Invented runs of an invented program: what is told, and what must not be.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::code::fixture;
use crate::hazards::{HAZARDS, STORE_FORWARD};
use crate::machine::Microarchitecture;
use crate::model::{Avma, FileOffset};
use crate::run::child::{Exit, Status};
use crate::run::sample::{Engine, ObjectSamples, SampleRun};
use crate::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, Ended, Mapping, MemoryAccess, Recording, SelfCheck, Sink,
};

const BASE: u64 = 0x7000_0000;
const RUNS: u64 = 1000;

/// A program with two functions of the ring: the hot one is the first.
struct Invented {
    path: PathBuf,
    /// Samples on the load of each function, of 1000.
    hits: [u64; 2],
    /// Where the load of the hot one reads: what was just written, or the same place behind this.
    read_from: Option<u64>,
    /// How far into its line the ring starts.
    into_line: u64,
    refuses: bool,
}

/// Where the load of each function is in the file.
fn loads() -> [u64; 2] {
    let wide = fixture::ring_loop(true);
    let (code, file) = fixture::CODE_START;
    let starts = fixture::starts(&[("hot", &wide), ("cold", &wide)]);
    [starts[0], starts[1]].map(|start| start.0 - code.0 + file.0 + 7)
}

impl Runs for Invented {
    fn sample(&mut self) -> Result<SampleRun, SampleError> {
        let hits: BTreeMap<_, _> = loads().into_iter().map(FileOffset).zip(self.hits).collect();
        let total = self.hits.iter().sum();
        Ok(SampleRun {
            engine: Engine::PerfClock,
            period_ns: 200_000,
            samples: vec![ObjectSamples { path: self.path.clone(), is_main_program: true, hits }],
            total,
            lost: 0,
            generated: BTreeMap::new(),
            unmapped: 0,
            kernel: Some(1000 - total),
            exit: Exit { user_ns: 200_000_000, ..Exit::of(Status::Code(0)) },
            stacks: None,
            notes: Vec::new(),
        })
    }

    fn follow(
        &mut self,
        _after: Option<Duration>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        if self.refuses {
            return Err(EngineError::Forbidden("ptrace is not allowed".into()));
        }
        // Of the hot function: the load, then the two stores behind it.
        let load = BASE + loads()[0];
        let insns = [(load, 7), (load + 12, 5), (load + 17, 5)];
        let insns = insns.map(|(at, size_bytes)| BlockInsn {
            address: Avma(at),
            size_bytes,
            drains_stores: false,
        });
        sink.describe(BlockId(0), &Block { insns: insns.to_vec() });
        for n in 0..RUNS {
            let written = 0x9_0000 + self.into_line + 8 * (n % 16);
            let behind = 8 * ((n + 15) % 16);
            let read = self.read_from.unwrap_or(0x9_0000 + self.into_line) + behind;
            let access = |insn, kind, address, size_bytes| MemoryAccess {
                insn,
                kind,
                size_bytes,
                address: Avma(address),
            };
            sink.run(
                BlockId(0),
                &[
                    access(0, AccessKind::Load, read, 8),
                    access(1, AccessKind::Store, written, 4),
                    access(2, AccessKind::Store, written + 4, 4),
                ],
            );
        }
        Ok(Recording {
            engine: "invented",
            instructions: 3 * RUNS,
            wall_ns: 1,
            ended: Ended::Length,
            mappings: vec![Mapping {
                start: Avma(BASE),
                end: Avma(BASE + 0x10_0000),
                path: self.path.clone(),
                file_offset: FileOffset(0),
            }],
            self_check: SelfCheck::NotCompared,
            notes: Vec::new(),
            code: Vec::new(),
            exit: Some(Exit::of(Status::Code(0))),
        })
    }
}

fn counted(rules: &RuleSet, change: impl FnOnce(&mut Invented)) -> CountedScan {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let wide = fixture::ring_loop(true);
    std::fs::write(&path, fixture::program(&[("hot", &wide), ("cold", &wide)])).unwrap();
    let mut runs = Invented { path, hits: [400, 3], read_from: None, into_line: 0, refuses: false };
    change(&mut runs);
    let design = Design::of(Microarchitecture::Zen5);
    count(vec!["program".into()], rules, &design, &mut runs, &mut |_| {}).unwrap()
}

fn store_forward() -> RuleSet {
    vec![&STORE_FORWARD]
}

#[test]
fn what_was_blocked_is_told_with_its_share_its_stores_and_what_the_rule_says() {
    let scan = counted(&store_forward(), |_| {});
    assert_eq!((scan.sampling.samples, scan.sampling.in_kernel), (2000, Some(2 * 597)));
    assert_eq!((scan.windows, scan.instructions), (4, 4 * 3 * RUNS));
    assert_eq!(scan.files.len(), 1);
    assert_eq!((scan.files[0].functions, scan.files[0].findings), (2, 2));
    let [site] = &scan.sites[..] else { panic!("{:#?}", scan.sites) };
    assert_eq!((site.event, site.executions), (Event::Blocked, 4 * RUNS));
    // Not the first of each window: nothing was written yet.
    assert_eq!(site.events, 4 * (RUNS - 1));
    assert!((site.share.value - 40.0).abs() < 1e-9, "{:?}", site.share);
    assert_eq!((site.site.function.as_str(), site.stores.len()), ("hot", 2));
    let finding = site.finding.as_ref().unwrap();
    assert_eq!(finding.grade, crate::model::Grade::Counted);
    // The cold function has the same shape, and nothing is known of it.
    assert_eq!(scan.folded, Folded { below_share: 0, not_counted: 0, not_run: 1 });
}

#[test]
fn what_did_not_happen_is_not_told() {
    let apart = counted(&store_forward(), |runs| runs.read_from = Some(0x5_0800));
    assert!(apart.sites.is_empty(), "{:#?}", apart.sites);
    assert_eq!(apart.folded, Folded { below_share: 0, not_counted: 1, not_run: 1 });
    let cold = counted(&store_forward(), |runs| runs.hits = [4, 600]);
    assert!(cold.sites.is_empty(), "{:#?}", cold.sites);
    assert_eq!(cold.folded, Folded { below_share: 1, not_counted: 0, not_run: 1 });
    let refused = counted(&store_forward(), |runs| runs.refuses = true);
    assert!(refused.sites.is_empty() && refused.windows == 0);
    assert!(refused.not_followed.unwrap().contains("ptrace is not allowed"));
}

#[test]
fn loads_that_meet_a_store_in_the_low_bits_only_are_told_where_most_of_them_do() {
    let scan = counted(&store_forward(), |runs| runs.read_from = Some(0x9_1000));
    let events: Vec<_> = scan.sites.iter().map(|site| (site.event, site.stores.len())).collect();
    assert_eq!(events, [(Event::Aliased, 0)]);
    assert_eq!(scan.folded.not_counted, 1, "it was not blocked");
}

#[test]
fn accesses_across_lines_are_told_where_no_rule_sees_them() {
    // Of sixteen elements at 4 bytes into a line, two reach into the next.
    let scan = counted(&HAZARDS.to_vec(), |runs| runs.into_line = 4);
    let split = scan.sites.iter().find(|site| site.event == Event::Split).unwrap();
    assert_eq!((split.events, split.finding.is_none()), (4 * RUNS / 8, true));
    let of_one_rule = counted(&store_forward(), |runs| runs.into_line = 4);
    assert!(of_one_rule.sites.iter().all(|site| site.event == Event::Blocked));
}
