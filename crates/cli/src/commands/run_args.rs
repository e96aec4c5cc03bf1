//! How commands are run and compared: the arguments that `compare` and `explain` share, and `bisect` in part.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stallscope::compare::{MAX_PAIRS, Order, Settings};
use stallscope::run::child::own_input;

use super::arm_args::ArmArgs;
use super::cpu_args::CpuArgs;
use super::stop_args::StopArgs;
use super::words;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArg {
    /// Drawn from the seed, balanced within blocks of four pairs
    Random,
    /// AB BA AB BA …
    Abba,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub arms: ArmArgs,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    pub stop: StopArgs,
}

/// How pairs of runs are made, whatever is run.
#[derive(Debug, Args)]
pub struct PairArgs {
    /// How many pairs of runs: as many of each command [default: 20]
    #[arg(long, short = 'r', visible_alias = "runs", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAIRS)))]
    pairs: Option<u32>,
    /// The smallest effect of interest: smaller ones count as equal
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = words::share)]
    effect: f64,
    /// Give up when one run takes longer than this (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    cpus: CpuArgs,
    /// How the runs of each pair are ordered
    #[arg(long, value_enum, default_value = "random")]
    order: OrderArg,
    /// Count runs that fail instead of giving up
    #[arg(long, short = 'i')]
    ignore_failure: bool,
    /// What every run reads as its standard input; `null` is nothing [default: our own, if that is a file]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

impl RunArgs {
    /// What was asked for, with the seed to use.
    ///
    /// # Errors
    /// As [`PairArgs::settings`].
    pub fn settings(&self, seed: u64) -> anyhow::Result<Settings> {
        let settings = self.pairs.settings(seed)?;
        Ok(Settings {
            warmup: self.arms.warmup,
            until: self.stop.until(),
            budget_ms: self.stop.budget_ms(),
            pairs: match self.stop.is_open_end() {
                true => self.pairs.pairs.unwrap_or(MAX_PAIRS),
                false => settings.pairs,
            },
            ..settings
        })
    }

    /// Whether nothing was said about how many pairs are made.
    pub fn leaves_pairs_open(&self) -> bool {
        self.pairs.pairs.is_none() && !self.stop.is_open_end()
    }

    /// The smallest effect of interest as a share.
    pub fn effect(&self) -> f64 {
        self.pairs.effect
    }
}

impl PairArgs {
    /// What was asked for, with the seed to use.
    ///
    /// # Errors
    /// When our own standard input holds something that can be read once only.
    pub fn settings(&self, seed: u64) -> anyhow::Result<Settings> {
        Ok(Settings {
            pairs: self.pairs.unwrap_or(20),
            order: match self.order {
                OrderArg::Random => Order::Random,
                OrderArg::Abba => Order::Abba,
            },
            seed,
            effect: self.effect,
            timeout_ms: self.timeout.map(|t| t.as_millis().max(1) as u64),
            cpus: self.cpus.cpus(),
            spreads: self.cpus.is_left_open(),
            ignore_failure: self.ignore_failure,
            input: match &self.input {
                Some(input) if input.as_os_str() == "null" && !input.exists() => None,
                Some(input) => Some(input.clone()),
                None => own_input()?,
            },
            ..Settings::default()
        })
    }
}
