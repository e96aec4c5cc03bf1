//! Decodes one mesh many times with meshoptimizer's index decoder.
//!
//! The C function writes into one buffer that is allocated before the clock starts, and the
//! buffer fits the second-level cache, so what is timed is the decoding loop and nothing else.
//! Standard output gets a checksum that is the same whatever compiler built the decoder; standard
//! error gets the speed.

mod clock;
mod mesh;

use std::process::ExitCode;
use std::time::Instant;

use clock::Calibration;
use mesh::Mesh;

const USAGE: &str = "usage: decoder [strips|grid] [--decodes N]";
/// About 0.3 s in one process with the slow build on a 4 GHz core.
const DEFAULT_DECODES: usize = 1800;
/// The core clock is measured anew this often, because it may change while we run.
const DECODES_PER_CALIBRATION: usize = 200;

/// What was asked for.
struct Args {
    shape: mesh::Shape,
    decodes: usize,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut shape = None;
        let mut decodes = DEFAULT_DECODES;
        while let Some(word) = words.next() {
            match word.as_str() {
                "-h" | "--help" => return Ok(None),
                "--decodes" => {
                    let text = words.next().ok_or("--decodes needs a number")?;
                    decodes = text.parse().map_err(|_| {
                        format!("--decodes needs a whole number of at least 1, not `{text}`")
                    })?;
                    if decodes == 0 {
                        return Err("--decodes needs a whole number of at least 1, not `0`".into());
                    }
                }
                option if option.starts_with('-') => {
                    return Err(format!("unknown option `{option}`"));
                }
                _ if shape.is_some() => return Err(format!("one mesh only, and then `{word}`?")),
                "strips" => shape = Some(mesh::Shape::Strips),
                "grid" => shape = Some(mesh::Shape::Grid),
                other => return Err(format!("no mesh is called `{other}`")),
            }
        }
        let shape = shape.unwrap_or(mesh::Shape::Strips);
        Ok(Some(Self { shape, decodes }))
    }
}

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("decoder: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("decoder: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let mesh = Mesh::new(args.shape)?;
    let encoded = mesh.encode()?;
    let mut decoded = vec![0_u32; mesh.indices.len()];
    decode(&encoded, &mut decoded)?;
    mesh.check(&decoded)?;
    let expected = mesh::checksum(&decoded);
    let times = time_decodes(&encoded, &mut decoded, args.decodes)?;
    // Every decode wrote the same buffer, so the last one vouches for the loop.
    if mesh::checksum(&decoded) != expected {
        return Err("a later decode gave other triangles than the first".into());
    }
    println!(
        "{} triangles, checksum {expected:016x}",
        mesh.triangle_count()
    );
    eprintln!("{}", times.describe(args.shape, &mesh));
    Ok(())
}

/// One call of the decoder.
fn decode(encoded: &[u8], out: &mut [u32]) -> Result<(), String> {
    // SAFETY: the decoder writes `out.len()` indices of four bytes and reads `encoded.len()` bytes.
    let code = unsafe {
        meshopt::ffi::meshopt_decodeIndexBuffer(
            out.as_mut_ptr().cast(),
            out.len(),
            size_of::<u32>(),
            encoded.as_ptr(),
            encoded.len(),
        )
    };
    match code {
        0 => Ok(()),
        code => Err(format!(
            "the decoder refuses its own encoding (code {code})"
        )),
    }
}

/// The time of each decode, and in core cycles where the clock is known.
struct Times {
    ns: Vec<f64>,
    cycles: Vec<f64>,
    gigahertz: Vec<f64>,
}

fn time_decodes(encoded: &[u8], out: &mut [u32], decodes: usize) -> Result<Times, String> {
    let mut times = Times {
        ns: Vec::with_capacity(decodes),
        cycles: Vec::with_capacity(decodes),
        gigahertz: Vec::new(),
    };
    while times.ns.len() < decodes {
        let first = times.ns.len();
        let count = DECODES_PER_CALIBRATION.min(decodes - first);
        let before = Calibration::take();
        for _ in 0..count {
            let start = Instant::now();
            decode(encoded, out)?;
            times.ns.push(start.elapsed().as_nanos() as f64);
        }
        let after = Calibration::take();
        if let (Some(before), Some(after)) = (before, after) {
            // An interruption can only make the chain look slow, so the faster one is the truth.
            let ns_per_cycle = before.ns_per_cycle.min(after.ns_per_cycle);
            times.gigahertz.push(1.0 / ns_per_cycle);
            let block = times.ns[first..].iter().map(|ns| ns / ns_per_cycle);
            times.cycles.extend(block);
        }
    }
    Ok(times)
}

impl Times {
    fn describe(&self, shape: mesh::Shape, mesh: &Mesh) -> String {
        let bytes = (mesh.indices.len() * size_of::<u32>()) as f64;
        let triangles = mesh.triangle_count() as f64;
        let (least_ns, median_ns) = least_and_median(&self.ns);
        let speed = format!(
            "decoder: {shape}: {} decodes of {} triangles: {:.2} GB/s written (best {:.2})",
            self.ns.len(),
            mesh.triangle_count(),
            bytes / median_ns,
            bytes / least_ns,
        );
        if self.cycles.is_empty() {
            return format!("{speed}, core clock unknown on this architecture");
        }
        let (least, median) = least_and_median(&self.cycles);
        let (_, gigahertz) = least_and_median(&self.gigahertz);
        format!(
            "{speed}, median {:.2} cycles/triangle (least {:.2}) at the calibrated core clock \
             ({gigahertz:.2} GHz by a chain of dependent adds)",
            median / triangles,
            least / triangles,
        )
    }
}

fn least_and_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}
