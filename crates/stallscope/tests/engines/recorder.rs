//! What an engine tells, kept flat: one entry per executed instruction.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use stallscope::code::Image;
use stallscope::model::Svma;
use stallscope::run::child::{Launch, Limits};
use stallscope::trace::engine::{
    AccessKind, Block, BlockId, Engine, EngineError, Length, MemoryAccess, Recording, Sink, Start,
    Window,
};

/// One executed instruction: address, size, accesses as (kind, size, address).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub address: u64,
    pub size_bytes: u8,
    pub accesses: Vec<(AccessKind, u32, u64)>,
}

/// Keeps everything.
#[derive(Default)]
pub struct Recorder {
    blocks: HashMap<BlockId, Block>,
    pub steps: Vec<Step>,
}

impl Sink for Recorder {
    fn describe(&mut self, id: BlockId, block: &Block) {
        assert!(!block.insns.is_empty(), "an empty block");
        assert!(self.blocks.insert(id, block.clone()).is_none(), "{id:?} is described twice");
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        let block = &self.blocks[&id];
        let first = self.steps.len();
        self.steps.extend(block.insns.iter().map(|insn| Step {
            address: insn.address.0,
            size_bytes: insn.size_bytes,
            accesses: Vec::new(),
        }));
        for access in accesses {
            assert!(access.size_bytes > 0, "an access without bytes");
            let step = &mut self.steps[first + access.insn as usize];
            step.accesses.push((access.kind, access.size_bytes, access.address.0));
        }
    }
}

/// The stated address of a function.
pub fn function(program: &Path, name: &str) -> Svma {
    let image = Image::open(program).unwrap();
    // Go puts the package before the name.
    let is_it = |symbol: &str| symbol.strip_prefix("main.").unwrap_or(symbol) == name;
    let found = image.functions().iter().find(|f| is_it(&f.symbol));
    found.unwrap_or_else(|| panic!("no {name}")).start
}

/// A window of `calls` calls of the function `window`, after `skip`.
pub fn window(program: &Path, skip: u64, calls: u64) -> Window {
    Window {
        start: Start::At { object: None, svma: function(program, "window") },
        skip,
        length: Length::Calls(calls),
        memory: true,
        budget: None,
    }
}

/// How a program is started.
pub fn launch(program: &Path) -> Launch {
    Launch { program: program.into(), ..Launch::default() }
}

/// Records a window and everything in it.
pub fn record(
    engine: &dyn Engine,
    program: &Path,
    window: &Window,
) -> Result<(Recording, Vec<Step>), EngineError> {
    let limits = Limits { timeout: Some(Duration::from_secs(120)), ..Limits::default() };
    let mut recorder = Recorder::default();
    let recording = engine.record(&launch(program), window, limits, &mut recorder)?;
    assert_eq!(recording.instructions, recorder.steps.len() as u64);
    Ok((recording, recorder.steps))
}
