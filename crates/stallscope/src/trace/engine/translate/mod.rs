//! The fast engine: the window runs in a translated copy of the process.
//!
//! At the window's start the process is forked by a system call put into it. The copy has one
//! thread, is killed at the window's end, and never runs the program's own code: blocks are
//! translated into a code cache, where each first writes its number and then every address that
//! it touches into a log (`translation`, `log`). The original stands still meanwhile. Then it runs the
//! same stretch by itself, and where it ends its registers and memory must be what the copy's are
//! (`verify`). What the copy cannot do is followed in the original, instruction by instruction.
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
mod origin;
mod process;
mod region;
mod session;
mod setup;
mod signals;
mod stepping;
mod supervised;
mod supervision;
#[cfg(test)]
mod tests;
mod translation;
mod translator;
mod vectors;
mod verify;

use std::time::Duration;

use super::{Engine, EngineError, Recording, Sink, Window};
use crate::model::Capability;
use crate::trace::child::{Child, Launch, Limits};
use session::Session;

/// The engine.
#[derive(Clone, Copy, Debug)]
pub struct Translate;

const ID: &str = "translate";

/// How often output is looked after while the original runs.
const TICK: Duration = Duration::from_millis(1);

impl Engine for Translate {
    fn id(&self) -> &'static str {
        ID
    }

    fn summary(&self) -> &'static str {
        "a forked copy runs translated code that logs itself: hundreds of millions of instructions a second"
    }

    fn available(&self) -> Capability {
        if cfg!(target_arch = "x86_64") {
            Capability::Present
        } else {
            Capability::absent("it translates x86-64 only")
        }
    }

    fn record(
        &self,
        launch: &Launch,
        window: &Window,
        limits: Limits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        let child = Child::hold(launch)?;
        let mut session = Session::attach(child.pid(), window, limits, sink)?;
        let exit = child.wait_with(&limits, |_| session.tick(), TICK);
        session.finish(exit)
    }
}
