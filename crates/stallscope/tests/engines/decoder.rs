//! The first story's decoder: blocked loads per triangle, counted in a window of a real run.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use stallscope::code::{FunctionCode, Image};
use stallscope::machine::{ForwardingRule, Machine, MachineProfile, Microarchitecture};
use stallscope::model::Svma;
use stallscope::sim::Fan;
use stallscope::sim::store_buffer::{StoreBuffer, StoreBufferShape};
use stallscope::trace::child::Limits;
use stallscope::trace::engine::{Length, Start, Window, engine};

use crate::recorder::{Recorder, launch};

const FUNCTION: &str = "meshopt_decodeIndexBuffer";
/// Some thousand triangles.
const INSTRUCTIONS: u64 = 60_000;

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
    let lake = MachineProfile::for_microarchitecture(Microarchitecture::CascadeLake);
    let here = MachineProfile::for_machine(&Machine::detect());
    [lake, here].map(|profile| {
        let mut shape = StoreBufferShape::default();
        if let Some(depth) = profile.microarchitecture.store_buffer_entries() {
            shape.depth = depth;
        }
        (profile.forwarding_rule, shape)
    })
}

/// Triangles in a window: runs of the header of the loop that runs most.
pub fn triangles(path: &Path, start: Svma, recorder: &Recorder) -> u64 {
    let image = Image::open(path).unwrap();
    let function = image.function_at(start).unwrap();
    let code = FunctionCode::of(&image, function);
    let bias = recorder.steps[0].address - start.0;
    let runs = |svma: Svma| {
        recorder.steps.iter().filter(|s| s.address == svma.0.wrapping_add(bias)).count() as u64
    };
    let headers = code.loops.iter().map(|l| code.insns[code.blocks[l.header].first].svma);
    headers.map(runs).max().expect("the decoder has a loop")
}

/// Blocked loads per triangle under each of the subjects.
fn blocked(path: &Path, mesh: &str) -> Vec<f64> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let start = crate::recorder::function(path, FUNCTION);
    let window = Window {
        start: Start::At { object: None, svma: start },
        skip: 1,
        length: Length::Instructions(INSTRUCTIONS),
        memory: true,
    };
    let mut launch = launch(path);
    launch.args = [mesh, "--decodes", "3"].map(Into::into).into();
    let mut models = subjects().map(|(rule, shape)| StoreBuffer::new(rule, shape));
    let mut recorder = Recorder::default();
    let [lake, here] = &mut models;
    let mut fan = Fan(vec![&mut recorder, lake, here]);
    let limits = Limits { timeout: None, interrupt: &NEVER };
    let engine = engine("step").expect("it works everywhere");
    engine.record(&launch, &window, limits, &mut fan).unwrap();
    let triangles = triangles(path, start, &recorder);
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
