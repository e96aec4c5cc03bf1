//! Measures the decoders in this process and in turns ([`rounds`]), beside what `scan` finds in the
//! machine code of each, in this very program.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, bail, ensure};
use index_codec::{Version, checked, encode_triangles, triangles_bound};
use serde::Serialize;
use stallscope::clock::{HardwareClock, Pin, Reading, allowed_cpus, choose_cpu};
use stallscope::model::Finding;
use stallscope_cli::context::Context;
use stallscope_cli::profile;

use crate::Args;
use crate::decoders::{self, DECODERS};
use crate::mesh::{self, Mesh};
use crate::rounds::{self, Rounds, RoundsPlan};

/// Decoders and meshes of the first story's codec, measured here.
#[derive(Clone, Debug, Serialize)]
pub struct CaseReport {
    /// The case.
    pub case: &'static str,
    /// Seed of the orders.
    pub seed: u64,
    /// The logical processor that everything ran on.
    pub cpu: usize,
    /// This program was built with optimisation, as a release is.
    pub optimised: bool,
    /// What `scan` says about each decoder, in their order.
    pub scans: Vec<ScanOfVariant>,
    /// The figures, mesh by mesh.
    pub meshes: Vec<MeshReport>,
}

/// What `scan` finds in one decoder.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanOfVariant {
    /// Its functions were looked at.
    Looked {
        /// How many.
        functions: usize,
        /// What was found; nothing is an answer.
        findings: Vec<Finding>,
    },
    /// They could not be looked at.
    NotLooked {
        /// Why.
        cause: String,
    },
}

/// All decoders on one mesh.
#[derive(Clone, Debug, Serialize)]
pub struct MeshReport {
    /// The mesh.
    pub name: String,
    /// How many triangles it has.
    pub triangles: usize,
    /// Their stream.
    pub stream_bytes: usize,
    /// Rounds that were not disturbed.
    pub undisturbed: usize,
    /// In the order of the scans.
    pub variants: Vec<VariantReport>,
    /// The raw samples.
    pub samples: Rounds,
}

/// One decoder on one mesh.
#[derive(Clone, Debug, Serialize)]
pub struct VariantReport {
    /// The decoder.
    pub name: &'static str,
    /// Indices written, 10^9 bytes per second.
    pub rate: Reading,
    /// Core cycles per triangle.
    pub cycles: Reading,
    /// How many times as long as the decoder of its family that reads and writes edges whole.
    pub against_paired: Option<Reading>,
}

/// All decoders on the generated meshes, and on the one from `model`.
///
/// # Errors
/// When the model cannot be read, or time cannot be measured here.
pub fn measure(args: &Args, context: &Context) -> anyhow::Result<CaseReport> {
    let mut meshes = mesh::generated();
    if let Some(path) = &args.mesh {
        meshes.push(mesh::from_file(path)?);
    }
    let chosen = profile::load(context)?;
    let scans = decoders::scan_all(&chosen.design);
    let seed = context.seed();
    let mut clock = HardwareClock::new()?;
    let cpus = allowed_cpus()?;
    let mut pin = Pin::to(*cpus.first().unwrap_or(&0))?;
    let cpu = choose_cpu(&mut clock, &cpus, |cpu| pin.move_to(cpu))?;
    let bar = context.progress(meshes.len() as u64, "decoding");
    let mut reports = Vec::new();
    for mesh in &meshes {
        let plan = RoundsPlan { arms: DECODERS.len(), rounds: args.rounds, seed };
        reports.push(on_mesh(mesh, &plan, &mut clock, context)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let optimised = !cfg!(debug_assertions);
    chosen.announce(context)?;
    Ok(CaseReport { case: "index-codec", seed, cpu, optimised, scans, meshes: reports })
}

fn on_mesh(
    mesh: &Mesh,
    plan: &RoundsPlan,
    clock: &mut HardwareClock,
    context: &Context,
) -> anyhow::Result<MeshReport> {
    let vertices = mesh.indices.iter().max().map_or(0, |last| *last as usize + 1);
    let mut stream = vec![0; triangles_bound(mesh.indices.len(), vertices)];
    let stream_bytes = encode_triangles(&mesh.indices, Version::V1, &mut stream)
        .with_context(|| format!("cannot encode {}", mesh.name))?;
    stream.truncate(stream_bytes);
    let mut expected = vec![0; mesh.indices.len()];
    checked::decode_triangles(&stream, &mut expected)?;
    let mut out = vec![0; mesh.indices.len()];
    for decoder in DECODERS {
        out.fill(0);
        (decoder.decode)(&stream, &mut out)?;
        ensure!(out == expected, "{}: `{}` decodes differently", mesh.name, decoder.name);
    }
    let interrupt = context.interrupt();
    let samples = rounds::measure(clock, plan, |arm, _| {
        if interrupt.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        (DECODERS[arm].decode)(&stream, &mut out)?;
        Ok(())
    })?;
    let triangles = mesh.indices.len() / 3;
    Ok(MeshReport::new(mesh.name.clone(), triangles, stream_bytes, samples))
}

impl MeshReport {
    /// The figures that follow from the samples.
    pub fn new(name: String, triangles: usize, stream_bytes: usize, samples: Rounds) -> Self {
        let bytes = (triangles * 3 * size_of::<u32>()) as f64;
        let variants = DECODERS.iter().enumerate().map(|(arm, decoder)| VariantReport {
            name: decoder.name,
            rate: samples.gigabytes_per_second(arm, bytes),
            cycles: samples.cycles(arm, triangles as f64),
            against_paired: decoders::paired_of(decoder)
                .filter(|paired| *paired != arm)
                .map(|paired| samples.ratio(arm, paired)),
        });
        let variants = variants.collect();
        Self {
            name,
            triangles,
            stream_bytes,
            undisturbed: samples.undisturbed(),
            variants,
            samples,
        }
    }
}

/// A report of an invented machine on which the decoders take `cycles` per triangle.
#[cfg(test)]
pub fn invented(clock: &mut stallscope::clock::FakeClock, cycles: &[u64]) -> MeshReport {
    use stallscope::clock::Clock;
    let plan = RoundsPlan { arms: DECODERS.len(), rounds: 8, seed: 1 };
    let triangles = 40_000;
    let samples = rounds::measure(clock, &plan, |arm, clock| {
        clock.run_latency_chain(cycles[arm] * triangles as u64);
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(samples) = samples;
    MeshReport::new("strips".into(), triangles, 41_000, samples)
}
