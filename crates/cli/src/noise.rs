//! The noise floor of a command on a machine: what a comparison of it with itself found, kept in the
//! user's cache and told with every later comparison of the same command.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stallscope::compare::{ArmRecord, Comparison};
use stallscope::foreign;
use stallscope::machine::Machine;
use stallscope::report;

use crate::profile;

/// It holds three numbers.
const MOST_BYTES: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseFloor {
    /// The largest difference that its interval held, as a log ratio: what nothing looks like here.
    pub floor_log: f64,
    /// Robust standard deviation of a pair (log).
    pub pair_sd_log: f64,
    pub pairs: u64,
}

impl NoiseFloor {
    pub fn of(comparison: &Comparison) -> Self {
        let wall = &comparison.analysis.wall;
        Self {
            floor_log: wall.low_log.abs().max(wall.high_log.abs()),
            pair_sd_log: comparison.analysis.diagnostics.pair_sd_log,
            pairs: wall.estimate.n as u64,
        }
    }

    /// Keeps it for this machine and command. Without a cache folder there is nothing to do.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, arm: &ArmRecord) -> anyhow::Result<()> {
        let Some(path) = path(arm) else { return Ok(()) };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        report::write_file(&path, &(serde_json::to_string_pretty(self)? + "\n"))?;
        Ok(())
    }

    /// What is known about this command here. A broken file is as good as none: it is a memory.
    pub fn recall(arm: &ArmRecord) -> Option<Self> {
        foreign::from_json(&foreign::read_text(&path(arm)?, MOST_BYTES).ok()?).ok()
    }
}

/// One file per kind of machine and command line; the program's content may change between builds.
fn path(arm: &ArmRecord) -> Option<PathBuf> {
    let words = format!("{}\0{}", arm.program, arm.command.get(1..).unwrap_or_default().join("\0"));
    let hash = words.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let machine = Machine::detect().profile_key();
    Some(profile::cache_root()?.join("noise").join(format!("{machine}-{hash:016x}.json")))
}
