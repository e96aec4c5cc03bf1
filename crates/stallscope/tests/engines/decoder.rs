//! The first story's decoder: blocked loads per triangle, counted in a window of a real run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use stallscope::code::{FunctionCode, Image};
use stallscope::machine::{Design, ForwardingRule, Machine, Microarchitecture};
use stallscope::model::Svma;
use stallscope::run::child::Limits;
use stallscope::sim::Fan;
use stallscope::sim::store_buffer::{StoreBuffer, StoreBufferShape};
use stallscope::trace::engine::{Block, BlockId, Length, MemoryAccess, Sink, Start, Window};

use crate::available::engines;
use crate::recorder::launch;

const FUNCTION: &str = "meshopt_decodeIndexBuffer";
/// Some hundred triangles, where an engine is too slow for a whole decode.
const INSTRUCTIONS: u64 = 60_000;

/// How often each address was executed.
#[derive(Default)]
pub struct Visits {
    blocks: HashMap<BlockId, (Block, u64)>,
    pub first: Option<u64>,
}

impl Visits {
    fn of(&self, address: u64) -> u64 {
        let runs = |(block, runs): &(Block, u64)| {
            runs * block.insns.iter().filter(|i| i.address.0 == address).count() as u64
        };
        self.blocks.values().map(runs).sum()
    }
}

impl Sink for Visits {
    fn describe(&mut self, id: BlockId, block: &Block) {
        self.blocks.insert(id, (block.clone(), 0));
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, _accesses: &[MemoryAccess]) {
        let (block, runs) = self.blocks.get_mut(&id).expect("described before");
        *runs += 1;
        self.first.get_or_insert(block.insns[0].address.0);
    }
}

/// The builds to judge: those of the case, or those that the environment names, so that builds by
/// other compilers can be judged by hand.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn builds() -> Vec<PathBuf> {
    if let Some(names) = std::env::var_os("STALLSCOPE_DECODERS") {
        return std::env::split_paths(&names).collect();
    }
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/upstream-index-decoder/build");
    let paths = ["decoder-clang-16", "decoder-clang-19"].map(|name| folder.join(name));
    if paths.iter().all(|p| p.exists()) {
        return paths.into();
    }
    let missing = format!("{} is not built: run `make cases`", folder.display());
    assert!(std::env::var_os("CI").is_none(), "{missing}");
    eprintln!("SKIPPED: {missing}");
    Vec::new()
}

/// The rules and depths to judge by: Cascade Lake, and the machine at hand.
fn subjects() -> [(ForwardingRule, StoreBufferShape); 2] {
    let lake = Design::of(Microarchitecture::CascadeLake);
    let here = Design::of_machine(&Machine::detect());
    [lake, here].map(|design| (design.forwarding_rule, StoreBufferShape::of(&design)))
}

/// Triangles in a window: runs of the header of the loop that runs most.
pub fn triangles(path: &Path, start: Svma, visits: &Visits) -> u64 {
    let image = Image::open(path).unwrap();
    let function = image.function_at(start).unwrap();
    let code = FunctionCode::of(&image, function);
    let bias = visits.first.expect("the window is not empty") - start.0;
    let runs = |svma: Svma| visits.of(svma.0.wrapping_add(bias));
    let headers = code.loops.iter().map(|l| code.insns[code.blocks[l.header].first].svma);
    headers.map(runs).max().expect("the decoder has a loop")
}

/// Blocked loads per triangle under each of the subjects.
fn blocked(path: &Path, mesh: &str) -> Vec<f64> {
    let start = crate::recorder::function(path, FUNCTION);
    // The rare triangles are not spread evenly over a mesh.
    let engine = *engines().first().expect("an engine works here");
    let length = match engine.id() {
        "step" => Length::Instructions(INSTRUCTIONS),
        _ => Length::Calls(1),
    };
    let window = Window {
        start: Start::At { object: None, svma: start },
        skip: 1,
        length,
        memory: true,
        budget: None,
    };
    let mut launch = launch(path);
    launch.args = [mesh, "--decodes", "3"].map(Into::into).into();
    let mut models = subjects().map(|(rule, shape)| StoreBuffer::new(rule, shape));
    let mut visits = Visits::default();
    let [lake, here] = &mut models;
    let mut fan = Fan(vec![&mut visits, lake, here]);
    let limits = Limits::default();
    engine.record(&launch, &window, limits, &mut fan).unwrap();
    let triangles = triangles(path, start, &visits);
    assert!(triangles > 500, "only {triangles} triangles in the window");
    models.map(|m| m.report().blocked as f64 / triangles as f64).to_vec()
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are worth reading")]
fn the_merged_load_is_blocked_and_nothing_else_is() {
    for path in builds() {
        let slow = path.to_string_lossy().ends_with("clang-16");
        for (mesh, least) in [("grid", 0.5), ("strips", 0.98)] {
            let shares = blocked(&path, mesh);
            eprintln!("{} {mesh}: {shares:.4?} blocked loads per triangle", path.display());
            for share in shares {
                if slow {
                    assert!(share >= least, "{mesh}: {share}");
                } else {
                    assert!(share <= 0.01, "{mesh}: {share}");
                }
            }
        }
    }
}
