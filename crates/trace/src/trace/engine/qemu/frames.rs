//! Which calls the thread is in: the stack pointer as far as calls and returns tell it.
//!
//! The plugin interface that all versions have shows no registers. Where a call stores its return
//! address, the place of that store is the stack pointer; where it does not (AArch64), frames
//! count downwards from a made-up address, and returns are known by where they lead.

use crate::model::Avma;

/// The first frame's place where calls store nothing.
const MADE_UP_STACK: u64 = 1 << 47;
const MADE_UP_FRAME: u64 = 16;
/// Deeper ones are forgotten from the outside.
const MOST_FRAMES: usize = 1 << 16;

/// The calls that a thread is in.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// Where the return address is, and what it is.
    frames: Vec<(u64, Avma)>,
    /// The stack pointer, as known.
    pointer: u64,
}

impl Frames {
    /// Of a thread that was called from before `back`, with its return address at `slot`; 0 for
    /// what is not known.
    pub(super) fn new(slot: u64, back: Avma) -> Self {
        let slot = if slot == 0 { MADE_UP_STACK } else { slot };
        Self { frames: (back.0 != 0).then_some((slot, back)).into_iter().collect(), pointer: slot }
    }

    /// A call that returns to `back` and has stored that at `slot`, if it stores it.
    pub(super) fn call(&mut self, slot: Option<u64>, back: Avma) {
        let outer = self.frames.last().map_or(self.pointer, |(slot, _)| *slot);
        let slot = slot.unwrap_or(outer - MADE_UP_FRAME);
        while self.frames.last().is_some_and(|(outer, _)| *outer <= slot) {
            self.frames.pop();
        }
        if self.frames.len() >= MOST_FRAMES {
            self.frames.drain(..MOST_FRAMES / 2);
        }
        self.frames.push((slot, back));
        self.pointer = slot;
    }

    /// A return to `back`, which has loaded that from `slot`, if it loads it.
    pub(super) fn leave(&mut self, slot: Option<u64>, back: Avma) {
        match slot {
            Some(slot) => {
                while self.frames.last().is_some_and(|(inner, _)| *inner <= slot) {
                    self.frames.pop();
                }
                self.pointer = slot + 8;
            }
            None => {
                if let Some(at) = self.frames.iter().rposition(|(_, known)| *known == back) {
                    self.pointer = self.frames[at].0 + MADE_UP_FRAME;
                    self.frames.truncate(at);
                }
            }
        }
    }

    /// Anything else that is no call and no return: back to what the innermost frame says.
    pub(super) fn settle(&mut self) {
        if let Some((slot, _)) = self.frames.last() {
            self.pointer = *slot;
        }
    }

    pub(super) fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Where the innermost call returns to.
    pub(super) fn back(&self) -> Option<u64> {
        self.frames.last().map(|(_, back)| back.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_jumped_out_of_goes_with_the_next_call() {
        let mut frames = Frames::new(1000, Avma(1));
        frames.call(Some(900), Avma(2));
        frames.call(Some(800), Avma(3));
        frames.call(Some(960), Avma(4));
        assert_eq!((frames.pointer(), frames.back()), (960, Some(4)));
        frames.leave(Some(960), Avma(4));
        assert_eq!((frames.pointer(), frames.back()), (968, Some(1)));
    }

    #[test]
    fn without_stored_addresses_frames_count() {
        let mut frames = Frames::new(0, Avma(1));
        let outer = frames.pointer();
        frames.call(None, Avma(2));
        frames.call(None, Avma(2));
        assert!(frames.pointer() < outer);
        frames.leave(None, Avma(2));
        assert_eq!(frames.back(), Some(2));
        frames.leave(None, Avma(1));
        assert!(frames.pointer() > outer && frames.back().is_none());
    }
}
