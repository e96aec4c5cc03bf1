//! From the words in the ring to a window's events.
//!
//! A block is held back until the next one begins: only then is it known whether it was executed
//! to its end (a fault ends it early) and whether a `rep` goes on, which the emulator executes as
//! one block for each repetition.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::super::calls::Calls;
use super::code::{Code, Parser, Record};
use super::frames::Frames;
use super::pieces::{Piece, Reach};
use super::shape::End;
use crate::code::Architecture;
use crate::model::Avma;
use crate::trace::engine::{AccessKind, Block, BlockId, Length, MemoryAccess, Sink, Window};

/// A block that runs, from this instruction on.
#[derive(Clone, Copy)]
struct Pending {
    code: u32,
    from: usize,
}

/// Makes a window of what the plugin tells.
pub(super) struct Follower<'s> {
    sink: &'s mut dyn Sink,
    architecture: Architecture,
    memory: bool,
    length: Length,
    parser: Parser,
    codes: HashMap<u32, Code>,
    ids: HashMap<(Block, Vec<u8>), BlockId>,
    calls: Option<Calls>,
    frames: Frames,
    start: Avma,
    pending: Option<Pending>,
    pieces: Vec<Piece>,
    reaches: Vec<(u32, Reach)>,
    /// Index of the last instruction that was told to be reached.
    reached: u32,
    accesses: Vec<MemoryAccess>,
    began: Option<Instant>,
    wall_ns: Option<u64>,
    ended_early: bool,
    instructions: u64,
    unreported: u64,
    masked_loads: u64,
}

impl<'s> Follower<'s> {
    /// For one window of a program.
    pub(super) fn new(architecture: Architecture, window: &Window, sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            architecture,
            memory: window.memory,
            length: window.length,
            parser: Parser::default(),
            codes: HashMap::new(),
            ids: HashMap::new(),
            calls: None,
            frames: Frames::new(0, Avma(0)),
            start: Avma(u64::MAX),
            pending: None,
            pieces: Vec::new(),
            reaches: Vec::new(),
            reached: 0,
            accesses: Vec::new(),
            began: None,
            wall_ns: None,
            ended_early: false,
            instructions: 0,
            unreported: 0,
            masked_loads: 0,
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    /// Whether the window has had its length.
    pub(super) fn is_over(&self) -> bool {
        self.wall_ns.is_some()
    }

    /// Whether the window began so long ago and is not over.
    pub(super) fn has_run_for(&self, time: Duration) -> bool {
        !self.is_over() && self.began.is_some_and(|began| began.elapsed() >= time)
    }

    /// Ends the window where it is.
    pub(super) fn stop_early(&mut self) {
        self.end();
        self.ended_early = true;
        self.wall_ns = Some(self.wall_ns());
    }

    /// Whether it was ended by [`Self::stop_early`].
    pub(super) fn ended_early(&self) -> bool {
        self.ended_early
    }

    /// Instructions in the window so far.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Instructions whose accesses the emulator did not report.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported
    }

    /// Loads under a mask, told as if all lanes were wanted.
    pub(super) fn masked_loads(&self) -> u64 {
        self.masked_loads
    }

    /// Time in the window.
    pub(super) fn wall_ns(&self) -> u64 {
        let until_now = || self.began.map_or(0, |b| b.elapsed().as_nanos() as u64);
        self.wall_ns.unwrap_or_else(until_now)
    }

    /// The program has ended: nothing more comes.
    pub(super) fn end(&mut self) {
        if let Some(pending) = self.pending.take().filter(|_| !self.is_over()) {
            self.finish(pending, None);
        }
    }

    /// Takes one word of the ring.
    pub(super) fn word(&mut self, word: u64) {
        if self.is_over() {
            return;
        }
        match self.parser.take(word) {
            Record::More => {}
            Record::Piece(piece) => self.piece(piece),
            Record::Run(code) => self.run(code),
            Record::Reached(insn) => self.reached = insn,
            Record::Describe { number, insns } => {
                self.codes.insert(number, Code::new(self.architecture, &insns));
            }
            Record::Started { code, from, slot, back } => self.started(code, from, slot, back),
        }
    }

    fn started(&mut self, number: u32, from: usize, slot: u64, back: Avma) {
        let Some(code) = self.codes.get(&number).filter(|c| from < c.known.len()) else { return };
        self.start = code.block.insns[from].address;
        self.began = Some(Instant::now());
        self.frames = Frames::new(slot, back);
        if let Length::Calls(count) = self.length {
            self.calls = Some(Calls::new(self.start, count));
        }
        if self.ends_at(self.start) {
            return;
        }
        self.pending = Some(Pending { code: number, from });
    }

    fn piece(&mut self, piece: Piece) {
        let Some(code) = self.pending.and_then(|p| self.codes.get(&p.code)) else { return };
        let known = code.known.get(piece.insn as usize);
        if code.repeats
            && let Some(super::shape::Shape::Repeated { loads, .. }) = known.map(|k| &k.shape)
        {
            let at = self.reaches.iter().position(|(insn, _)| *insn == piece.insn);
            let at = at.unwrap_or_else(|| {
                self.reaches.push((piece.insn, Reach::default()));
                self.reaches.len() - 1
            });
            self.reaches[at].1.add(&piece, *loads);
        } else {
            self.pieces.push(piece);
        }
    }

    fn run(&mut self, number: u32) {
        let Some(next) = self.codes.get(&number).map(|c| c.block.insns[0].address) else { return };
        if let Some(pending) = self.pending.take() {
            if self.goes_on(pending, next) {
                self.carry(pending, number);
                return;
            }
            self.finish(pending, Some(next));
            if self.ends_at(next) {
                return;
            }
        }
        self.pending = Some(Pending { code: number, from: 0 });
        if self.calls.is_some()
            && self.codes.get(&number).is_some_and(|c| c.starts_behind_first(self.start))
        {
            self.ends_at(self.start);
        }
    }

    /// Whether the next block goes on with the `rep` that the pending one ends with.
    fn goes_on(&self, pending: Pending, next: Avma) -> bool {
        self.codes.get(&pending.code).is_some_and(|code| {
            code.repeats
                && code.known.last().is_some_and(super::shape::Known::repeats)
                && code.block.insns.last().is_some_and(|insn| insn.address == next)
        })
    }

    /// What came before the `rep` is done; what the `rep` has touched so far is the next block's.
    fn carry(&mut self, pending: Pending, next: u32) {
        let last = self.codes.get(&pending.code).map_or(0, |c| c.known.len() - 1);
        self.emit(pending, last);
        self.pieces.clear();
        self.reaches.retain(|(insn, _)| *insn as usize == last);
        self.reaches.iter_mut().for_each(|(insn, _)| *insn = 0);
        self.reached = 0;
        self.pending = Some(Pending { code: next, from: 0 });
    }

    /// The pending block is done, and `next` is where execution went on.
    fn finish(&mut self, pending: Pending, next: Option<Avma>) {
        let end = self.executed_end(pending, next);
        self.emit(pending, end);
        if self.calls.is_some() {
            self.follow_calls(pending, end, next);
        }
        self.pieces.clear();
        self.reaches.clear();
        self.reached = 0;
    }

    /// Index behind the last instruction that was executed.
    fn executed_end(&mut self, pending: Pending, next: Option<Avma>) -> usize {
        let Some(code) = self.codes.get(&pending.code) else { return pending.from };
        let last_piece = self.pieces.last().map_or(-1, |p| i64::from(p.insn));
        let last_seen = last_piece.max(i64::from(self.reached) - 1);
        let certain = if self.memory { code.last_certain } else { -1 };
        if certain.max(code.last_division) <= last_seen {
            return code.executable;
        }
        let leads = next.is_some_and(|next| code.leads_to(next));
        for (index, known) in code.known.iter().enumerate().skip(pending.from) {
            let at = index as i64;
            let is_silent = known.certain && self.memory || known.divides && at + 1 < code.len();
            if !is_silent || at <= last_seen {
                continue;
            }
            if !leads {
                return index;
            }
            self.unreported += u64::from(known.certain);
        }
        code.executable
    }

    fn emit(&mut self, pending: Pending, end: usize) {
        let Some(code) = self.codes.get_mut(&pending.code).filter(|_| pending.from < end) else {
            return;
        };
        let (from, is_whole) = (pending.from, pending.from == 0 && end == code.known.len());
        let id = match code.id.filter(|_| is_whole) {
            Some(id) => id,
            None => {
                let key = code.part(from, end);
                let next = BlockId(self.ids.len() as u32);
                let id = *self.ids.entry(key).or_insert_with_key(|(block, _)| {
                    self.sink.describe(next, block);
                    next
                });
                if is_whole {
                    code.id = Some(id);
                }
                id
            }
        };
        self.accesses.clear();
        if self.memory {
            join(code, from..end, &self.pieces, &self.reaches, &mut self.accesses);
        }
        self.sink.run(id, &self.accesses);
        self.instructions += (end - from) as u64;
        self.masked_loads += code.masked_loads;
    }

    fn follow_calls(&mut self, pending: Pending, end: usize, next: Option<Avma>) {
        let (Some(code), Some(next)) = (self.codes.get(&pending.code), next) else { return };
        if end != code.known.len() {
            self.frames.settle();
            return;
        }
        let of_last = |kind| {
            let own = self.pieces.iter().rev().take_while(|p| p.insn as usize == end - 1);
            own.filter(|p| p.kind == kind).map(|p| p.address).min()
        };
        match code.known[end - 1].end {
            End::Call => self.frames.call(of_last(AccessKind::Store), code.behind()),
            End::Return => self.frames.leave(of_last(AccessKind::Load), next),
            _ => self.frames.settle(),
        }
    }

    /// Whether the window is over before the instruction at `next`.
    fn ends_at(&mut self, next: Avma) -> bool {
        let frames = &self.frames;
        let over = match (&mut self.calls, self.length) {
            (Some(calls), _) => calls.is_over_at(next, frames.pointer(), || frames.back()),
            (None, Length::Instructions(count)) => self.instructions >= count,
            (None, Length::Calls(_) | Length::ToEnd) => false,
        };
        if over {
            self.wall_ns = Some(self.wall_ns());
            self.pending = None;
        }
        over
    }
}

/// The accesses of some instructions of a block, from what was reported of it.
fn join(
    code: &Code,
    part: std::ops::Range<usize>,
    pieces: &[Piece],
    reaches: &[(u32, Reach)],
    out: &mut Vec<MemoryAccess>,
) {
    let mut push = |insn: u32, (kind, size_bytes, address): (AccessKind, u32, u64)| {
        let insn = insn - part.start as u32;
        out.push(MemoryAccess { insn, kind, size_bytes, address: Avma(address) });
    };
    let is_inside = |insn: u32| part.contains(&(insn as usize));
    for same in pieces.chunk_by(|a, b| a.insn == b.insn) {
        let insn = same[0].insn;
        if let Some(known) = code.known.get(insn as usize).filter(|_| is_inside(insn)) {
            known.shape.join(same, known.swapped, |kind, size, at| push(insn, (kind, size, at)));
        }
    }
    for (insn, reach) in reaches.iter().filter(|(insn, _)| is_inside(*insn)) {
        reach.accesses().for_each(|access| push(*insn, access));
    }
    if code.repeats {
        out.sort_by_key(|access| access.insn);
    }
}
