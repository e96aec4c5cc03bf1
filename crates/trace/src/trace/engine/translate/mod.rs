//! The fast engine: the window runs in a translated copy of the process.
//!
//! At the window's start the process is forked by a system call put into it. The copy has one
//! thread, is killed at the window's end, and never runs the program's own code: blocks are
//! translated into a code cache, where each first writes its number and then every address that
//! it touches into a log (`translation`, `log`). The original stands still meanwhile. Then native
//! copies, and at last the original, run the same stretch by themselves, and where they end their
//! registers and memory must be what the copy's are (`verify`). What the copy cannot do, and what
//! native copies do not confirm, is followed in the original, instruction by instruction.
//!
//! In the copy, and nowhere else, live: the region described in `region`; a private twin of each
//! mapping that the program shares with others for writing; read-only pages where the program has
//! written code. The original is changed only by breakpoints, which are gone before it runs on.

mod block;
mod calls;
mod driver;
mod emit;
mod finish;
mod log;
mod operands;
mod passage;
mod present;
mod records;
mod region;
mod session;
mod setup;
mod signals;
mod supervision;
#[cfg(test)]
mod tests;
mod threads;
mod translation;
mod translator;
mod verify;
mod watch;

use super::target::{self, Target};
use super::{Engine, EngineError, Recording, Sink, Subject, Window};
use crate::model::Capability;
use crate::run::child::Limits;

/// The engine.
#[derive(Clone, Copy, Debug)]
pub struct Translate;

const ID: &str = "translate";

impl Engine for Translate {
    fn id(&self) -> &'static str {
        ID
    }

    fn summary(&self) -> &'static str {
        "a forked copy runs translated code that logs itself: hundreds of millions of instructions a second"
    }

    fn available(&self) -> Capability {
        target::capability()
    }

    fn follow(
        &self,
        subject: Subject<'_>,
        window: &Window,
        limits: Limits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        session::record(Target::of(subject, limits)?, window, limits, sink)
    }
}
