//! Counts how often a native copy passes an address, without stopping it each time.
//!
//! A stop costs microseconds, and a loop passes the end of a window a hundred million times. So the
//! instructions there are moved behind a counter in memory near them, and a jump to it takes their
//! place:
//!
//! ```text
//! at:   jmp counter              counter:  mov [saved], rcx
//!                                          mov rcx, [left]
//!                                          lea rcx, [rcx-1]
//!                                          mov [left], rcx
//!                                          jrcxz stop
//!                                          mov rcx, [saved]
//!                                          the instructions that stood there
//!                                          jmp behind them
//!                                stop:     mov rcx, [saved]
//!                                          int3
//! ```
//!
//! Neither flags nor stack are touched. This is done to native copies alone, never to the original.

use std::io;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, IcedError,
    Instruction, InstructionBlock,
};

use super::block::goes_on;
use super::emit::{Address, Emitter, Gpr};
use super::setup::{self, SetupError};
use crate::model::PAGE_BYTES;
use crate::run::maps;
use crate::trace::engine::process::Memories;
use crate::trace::engine::process::{Process, Registers};

/// A jump to anywhere near.
const JUMP_BYTES: u64 = 5;
/// As far as the counter may be from what it counts, with room to spare.
const NEAR_BYTES: u64 = 1 << 30;
/// Keeps the number that the decoder gives to the moved instruction apart from real addresses.
const MOVED: u64 = 1;

/// The instructions at an address that a jump can take the place of.
#[derive(Clone, Debug)]
pub(super) struct Passage {
    at: u64,
    insns: Vec<Instruction>,
}

/// A counter in a copy.
#[derive(Debug)]
pub(super) struct Counter {
    at: u64,
    home: u64,
    stop: u64,
    original: Vec<u8>,
}

impl Passage {
    /// The passage at `at`, or why what stands there cannot be moved. `is_entered` says whether the
    /// window jumps to an address.
    pub(super) fn of(
        memory: &dyn Memories,
        at: u64,
        is_entered: impl Fn(u64) -> bool,
    ) -> Result<Self, &'static str> {
        let mut code = [0; JUMP_BYTES as usize + 15];
        let got = memory.read(at, &mut code);
        let mut decoder = Decoder::with_ip(64, &code[..got], at, DecoderOptions::NONE);
        let mut insns = Vec::new();
        while decoder.ip() < at + JUMP_BYTES {
            let insn = decoder.decode();
            let moves = match insn.flow_control() {
                FlowControl::Next => goes_on(&insn),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    insn.op0_kind() == iced_x86::OpKind::NearBranch64
                }
                _ => false,
            };
            if insn.is_invalid() || !moves {
                return Err("what stands there cannot be moved");
            }
            insns.push(insn);
        }
        if (at + 1..at + JUMP_BYTES).any(is_entered) {
            return Err("the program jumps into what stands there");
        }
        Ok(Self { at, insns })
    }

    /// Lets `copy` stop when it comes there for the `arrivals`-th time.
    pub(super) fn count(&self, copy: &mut Process, arrivals: u64) -> Result<Counter, SetupError> {
        let maps = maps::read(copy.pid)?;
        let is_free = |at: &u64| maps.iter().all(|m| !m.mapping.overlaps(*at..at + 2 * PAGE_BYTES));
        // Far from where the kernel would put the program's own next mapping.
        let page = self.at & !(PAGE_BYTES - 1);
        let below = (0..8).filter_map(|n| page.checked_sub(NEAR_BYTES + (n << 24)));
        let above = (0..8).map(|n| page + NEAR_BYTES + (n << 24));
        let home = below.filter(|at| *at >= 1 << 20).chain(above).find(is_free);
        let home = home.ok_or_else(|| {
            SetupError::Unsuitable("there is no room for a counter near the window's end".into())
        })?;
        setup::map_pages(copy, home, PAGE_BYTES, setup::READ | setup::EXEC)?;
        let data = home + PAGE_BYTES;
        setup::map_pages(copy, data, PAGE_BYTES, setup::READ | setup::WRITE)?;
        // Else this native copy is lost, and nothing more: the original must go on.
        let (code, stop) = self.encode(home, data).map_err(|cause| {
            SetupError::Unsuitable(format!(
                "what stands at the window's end cannot be moved: {cause}"
            ))
        })?;
        let mut original = [0; JUMP_BYTES as usize];
        if copy.read(self.at, &mut original) < original.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        copy.write(home, &code)?;
        copy.write(data + 8, &arrivals.to_le_bytes())?;
        let distance = home.wrapping_sub(self.at + JUMP_BYTES) as i32;
        let mut jump = vec![0xe9];
        jump.extend(distance.to_le_bytes());
        copy.write(self.at, &jump)?;
        Ok(Counter { at: self.at, home, stop, original: original.to_vec() })
    }

    /// The counter's code for the address `home` with its two words at `data`, and where in it the
    /// copy stops.
    fn encode(&self, home: u64, data: u64) -> Result<(Vec<u8>, u64), IcedError> {
        let (saved, left) = (data, data + 8);
        let mut code = [0; PAGE_BYTES as usize];
        let mut e = Emitter::new(&mut code, home, 0);
        e.save(Gpr::CX, saved);
        e.load(Gpr::CX, left);
        e.lea(Gpr::CX, Address::of(Gpr::CX, -1));
        e.save(Gpr::CX, left);
        let none_left = e.skip_if_cx_zero();
        let some_left = e.jump();
        e.land_short(none_left);
        e.load(Gpr::CX, saved);
        let stop = e.address();
        e.stop();
        let on = e.used();
        e.patch_distance(some_left, on);
        e.load(Gpr::CX, saved);
        let mut moved = self.insns.clone();
        let behind = moved.last().map_or(self.at, Instruction::next_ip);
        if let Some(first) = moved.first_mut() {
            // A jump back to where it stood must come past the counter again.
            first.set_ip(MOVED);
        }
        moved.push(Instruction::with_branch(Code::Jmp_rel32_64, behind)?);
        let block = InstructionBlock::new(&moved, e.address());
        e.bytes(&BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)?.code_buffer);
        let used = e.used();
        Ok((code[..used].to_vec(), stop))
    }
}

impl Counter {
    /// Whether the copy, which stopped for a trap with these registers, has come to the last of the
    /// arrivals; then takes the counter away, and hands back the registers there.
    pub(super) fn finish(
        &self,
        copy: &mut Process,
        stopped: &Registers,
    ) -> Result<Option<Registers>, SetupError> {
        if stopped.rip != self.stop + 1 {
            return Ok(None);
        }
        copy.write(self.at, &self.original)?;
        let mut registers = *stopped;
        registers.rip = self.at;
        copy.set_registers(&registers)?;
        setup::unmap_pages(copy, self.home, 2 * PAGE_BYTES)?;
        Ok(Some(registers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static [u8]);

    impl Memories for Fixed {
        fn read(&self, address: u64, into: &mut [u8]) -> usize {
            let bytes = &self.0[(address - 0x1000) as usize..];
            let n = bytes.len().min(into.len());
            into[..n].copy_from_slice(&bytes[..n]);
            n
        }
    }

    #[test]
    fn what_cannot_be_moved_is_refused() {
        let never = |_| false;
        // L: dec rcx; jne L; nop
        assert_eq!(
            Passage::of(&Fixed(b"\x48\xff\xc9\x75\xfb\x90"), 0x1000, never).unwrap().insns.len(),
            2
        );
        // call; syscall; ret; cut off
        for code in
            [&b"\xe8\0\0\0\0"[..], b"\x90\x0f\x05\x90\x90", b"\xc3\x90\x90\x90\x90", b"\x90"]
        {
            assert!(Passage::of(&Fixed(code), 0x1000, never).is_err(), "{code:x?}");
        }
        // Somebody jumps to the second of five no-ops; to the first is the arrival itself.
        let no_ops = Fixed(b"\x90\x90\x90\x90\x90");
        assert!(Passage::of(&no_ops, 0x1000, |at| at == 0x1001).is_err());
        assert!(Passage::of(&no_ops, 0x1000, |at| at == 0x1000 || at == 0x1005).is_ok());
    }

    #[test]
    fn a_jump_back_to_the_passage_comes_past_the_counter() {
        let passage = Passage::of(&Fixed(b"\x48\xff\xc9\x75\xfb\x90"), 0x1000, |_| false).unwrap();
        let (code, _) = passage.encode(0x4000_0000, 0x4000_1000).unwrap();
        let insns: Vec<_> =
            Decoder::with_ip(64, &code, 0x4000_0000, DecoderOptions::NONE).iter().collect();
        let targets: Vec<_> =
            insns.iter().rev().take(2).map(Instruction::near_branch_target).collect();
        assert_eq!(targets, [0x1005, 0x1000]);
    }
}
