//! The copy's records and counters, told to the sink: whole ones, those of a block that was left in the middle, and
//! where the next ones go.

use std::io;

use super::driver::{DriveError, Driver, Next, Outcome};
use super::log::CachedInsn;
use super::region::{LOG_BYTES, Slot};
use super::translator::Translator;
use crate::trace::engine::process::Registers;

impl Driver<'_> {
    /// Reads the log to where the copy has written whole records.
    pub(super) fn drain(&mut self) -> Result<(), DriveError> {
        let position = self.translator.region.slot(Slot::LogPosition);
        self.drain_to(position)?;
        self.place_log();
        Ok(())
    }

    fn drain_to(&mut self, position: u64) -> Result<(), DriveError> {
        self.counts.drains += 1;
        let start = self.translator.region.log_start();
        let region = &self.translator.region;
        let blocks = &mut self.translator.blocks;
        blocks.bases = [0, self.program.fs_base, self.program.gs_base];
        let counted = blocks
            .drain(region.log(start, position), self.sink)
            .map_err(|_| io::Error::other("the program wrote into the log"))?;
        self.counts.instructions += counted;
        Ok(())
    }

    /// Sets where the next record goes: at the log's start, or so close to its end that the window
    /// cannot run over. Every record has at least a word and at most so many instructions.
    pub(super) fn place_log(&mut self) {
        let words = self.words_allowed(1);
        let at = self.translator.region.log_end() - 8 * words;
        self.translator.region.set_log_start(at);
        self.translator.region.set_slot(Slot::LogPosition, at);
    }

    fn words_allowed(&self, at_least: u64) -> u64 {
        let all = (LOG_BYTES / 8) as u64;
        let Some(enough) = self.enough else {
            return all;
        };
        let left = enough.saturating_sub(self.counts.instructions);
        (left / super::block::LONGEST_INSNS as u64).clamp(at_least.min(all), all)
    }

    /// The log is full: tells its records, and repeats the store that had no room.
    pub(super) fn log_is_full(&mut self, mut registers: Registers) -> Result<Next, DriveError> {
        let Some(place) = self
            .translator
            .region
            .code_offset(registers.rip)
            .and_then(|at| self.translator.blocks.place(at))
        else {
            return self.interrupted(registers, libc::SIGSEGV);
        };
        let record = self.translator.region.slot(Slot::LogPosition);
        self.drain_to(record)?;
        let end = self.translator.region.log_end();
        let begun = end.saturating_sub(record);
        let ending = match begun {
            0 if self.may_end(place.block, place.runs) => Some(Outcome::Length),
            0 if self.is_out_of_time() => Some(self.short_of_time()),
            _ => None,
        };
        if let Some(outcome) = ending {
            self.program = registers;
            self.give_back_borrowed(place.borrowed);
            self.program.rip = place.block;
            return Ok(Next::End(outcome));
        }
        let words = self.words_allowed(u64::from(place.record_words));
        let at = end - 8 * words;
        self.translator.region.move_record(record, begun, at);
        self.translator.region.set_log_start(at);
        self.translator.region.set_slot(Slot::LogPosition, at);
        if let Some(log) = place.borrowed.log {
            log.set(&mut registers, at);
        }
        self.copy.set_registers(&registers)?;
        Ok(Next::Resume)
    }

    /// Tells of what was only counted so far.
    pub(super) fn collect(&mut self) {
        if self.translator.counts {
            let Translator { blocks, region, .. } = &mut self.translator;
            self.counts.instructions += blocks.collect(region, self.sink);
        }
    }

    /// Tells all whole records and the part of the block at hand before instruction `insn`.
    pub(super) fn drain_partly(&mut self, at: &CachedInsn, insn: u32) -> Result<(), DriveError> {
        let region = &mut self.translator.region;
        let position = region.slot(Slot::LogPosition);
        let end = match at.borrowed.log {
            Some(_) => region.log_end(),
            // It was counted where it began.
            None => {
                region.set_counter(at.id, region.counter(at.id).saturating_sub(1));
                position
            }
        };
        self.drain_to(position)?;
        let Translator { blocks, region, .. } = &mut self.translator;
        let counted = blocks
            .drain_partly(at.id, region.log(position, end), insn, self.sink)
            .map_err(|_| io::Error::other("the program wrote into the log"))?;
        self.counts.instructions += counted;
        self.place_log();
        Ok(())
    }
}
