//! Times index-codec against meshoptimizer's C++, built by two compilers.
//!
//! Everything is timed in one process, one call of each codec after the other in an order that is
//! shuffled every round, so that a change of the clock or a busy neighbour meets all alike. Each
//! codec comes in 16 libraries that differ only in where the code lies; what is compared is the
//! median over these placements.

mod clock;
mod library;
mod mesh;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clock::Calibration;
use library::{Decoder, Encoder};
use mesh::Mesh;
use table::{Row, Samples};

/// Placements of the code: as many as build.sh makes, 16 start offsets within 256 bytes.
const LAYOUTS: usize = 16;
/// Each measures every codec at every placement once.
const ROUNDS: usize = 41;

const BUILDERS: [&str; 2] = ["clang++-19", "g++-12"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-index-codec: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut filter = String::new();
    let mut rounds = ROUNDS;
    let mut encoders_only = false;
    let mut meshes = mesh::generated();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--only" => filter = value()?,
            "--encoders" => encoders_only = true,
            "--rounds" => rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
            file => meshes.extend(mesh::from_ply(Path::new(file))?),
        }
    }
    let build = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("build");
    let contestants = contestants(&build, &filter)?;
    for mesh in meshes.iter().filter(|_| !encoders_only) {
        decoding::<u32>(mesh, &contestants, rounds)?;
    }
    if filter.is_empty() {
        for mesh in meshes.iter().filter(|_| !encoders_only) {
            decoding::<u16>(mesh, &contestants[..3], rounds)?;
        }
        for mesh in &meshes {
            encoding(mesh, &build, rounds)?;
        }
    }
    Ok(())
}

/// A codec at all its places.
struct Contestant<C> {
    name: String,
    theirs: bool,
    at: Vec<C>,
}

/// Meshoptimizer's two builds, and then all of ours whose name contains `filter`.
fn contestants(build: &Path, filter: &str) -> Result<Vec<Contestant<Decoder>>, String> {
    let at_all_places = |builder: &str, symbol: &str| {
        (0..LAYOUTS)
            .map(|layout| Decoder::load(&build.join(format!("{builder}-{layout}.so")), symbol))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut all = Vec::new();
    for builder in BUILDERS {
        let at = at_all_places(builder, "meshopt_decodeIndexBuffer")?;
        all.push(Contestant { name: format!("meshopt {builder}"), theirs: true, at });
    }
    let symbols = std::fs::read_to_string(build.join("ours.symbols")).map_err(|e| e.to_string())?;
    let mut symbols: Vec<&str> = symbols.lines().filter(|s| *s != "ours_encode").collect();
    symbols.sort_by_key(|symbol| *symbol != "ours_default");
    for symbol in symbols {
        let name = symbol.trim_start_matches("ours_").replace('_', " ");
        if name.contains(filter) {
            all.push(Contestant { name, theirs: false, at: at_all_places("ours", symbol)? });
        }
    }
    Ok(all)
}

fn decoding<I: Copy + Default + PartialEq>(
    mesh: &Mesh,
    contestants: &[Contestant<Decoder>],
    rounds: usize,
) -> Result<(), String> {
    let vertex_count = mesh.indices.iter().max().map_or(0, |last| *last as usize + 1);
    let stream = meshopt::encode_index_buffer(&mesh.indices, vertex_count)
        .map_err(|e| format!("{}: {e}", mesh.name))?;
    let mut out = vec![I::default(); mesh.indices.len()];
    let mut expected = out.clone();
    contestants[0].at[0].decode(&stream, &mut expected)?;
    let rows = measure(contestants, rounds, |codec: Decoder| {
        codec.decode(&stream, &mut out)?;
        Ok(())
    })?;
    for contestant in contestants {
        out.fill(I::default());
        contestant.at[0].decode(&stream, &mut out)?;
        if out != expected {
            return Err(format!("{}: {} decodes differently", mesh.name, contestant.name));
        }
    }
    let title = format!("decoding {} to {}-bit indices", mesh.name, 8 * size_of::<I>());
    table::print(&title, mesh.indices.len() / 3, 3 * size_of::<I>(), &rows);
    Ok(())
}

fn encoding(mesh: &Mesh, build: &Path, rounds: usize) -> Result<(), String> {
    let mut contestants = Vec::new();
    for (builder, symbol, name) in [
        (BUILDERS[0], "meshopt_encodeIndexBuffer", "meshopt clang++-19"),
        (BUILDERS[1], "meshopt_encodeIndexBuffer", "meshopt g++-12"),
        ("ours", "ours_encode", "encoder"),
    ] {
        let at = (0..LAYOUTS)
            .map(|layout| Encoder::load(&build.join(format!("{builder}-{layout}.so")), symbol))
            .collect::<Result<Vec<_>, _>>()?;
        contestants.push(Contestant { name: name.into(), theirs: builder != "ours", at });
    }
    let mut out = vec![0; 64 + 6 * mesh.indices.len()];
    let length_bytes = contestants[0].at[0].encode(&mesh.indices, &mut out)?;
    let expected = out[..length_bytes].to_vec();
    for contestant in &contestants {
        out.fill(0);
        let length_bytes = contestant.at[0].encode(&mesh.indices, &mut out)?;
        if out[..length_bytes] != expected {
            return Err(format!("{}: {} writes other bytes", mesh.name, contestant.name));
        }
    }
    let rows = measure(&contestants, rounds, |codec: Encoder| {
        codec.encode(&mesh.indices, &mut out)?;
        Ok(())
    })?;
    table::print(&format!("encoding {}", mesh.name), mesh.indices.len() / 3, 12, &rows);
    Ok(())
}

/// One call of every codec at every place per round, in shuffled order.
fn measure<C: Copy>(
    contestants: &[Contestant<C>],
    rounds: usize,
    mut call: impl FnMut(C) -> Result<(), String>,
) -> Result<Vec<Row>, String> {
    let mut order: Vec<(usize, usize)> = (0..contestants.len())
        .flat_map(|contestant| (0..LAYOUTS).map(move |layout| (contestant, layout)))
        .collect();
    let mut rows: Vec<Row> = contestants
        .iter()
        .map(|c| Row {
            name: c.name.clone(),
            theirs: c.theirs,
            layouts: vec![Samples::default(); LAYOUTS],
        })
        .collect();
    let mut state = 1;
    for _ in 0..rounds {
        table::shuffle(&mut order, &mut state);
        let before = Calibration::take();
        let first = rows[0].layouts[0].ns.len();
        for (contestant, layout) in &order {
            let codec = contestants[*contestant].at[*layout];
            // The first call brings code and branch history back, the second one is timed.
            call(codec)?;
            let start = Instant::now();
            call(codec)?;
            let ns = start.elapsed().as_nanos() as f64;
            rows[*contestant].layouts[*layout].ns.push(ns);
        }
        let after = Calibration::take();
        let ns_per_cycle = match (before, after) {
            // An interruption can only make the chain look slow, so the faster one is the truth.
            (Some(before), Some(after)) => before.ns_per_cycle.min(after.ns_per_cycle),
            _ => f64::NAN,
        };
        for samples in rows.iter_mut().flat_map(|row| &mut row.layouts) {
            let cycles = samples.ns[first] / ns_per_cycle;
            samples.cycles.push(cycles);
        }
    }
    Ok(rows)
}
