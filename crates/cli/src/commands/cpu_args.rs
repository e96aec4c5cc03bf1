//! Which logical processors runs stay on, as typed: the arguments of every command that pins its runs.

use clap::Args;
use stallscope::clock::{ClockError, Cpus, Pin};
use stallscope::compare::{allowed_cpus, default_cpu};

#[derive(Clone, Copy, Debug)]
enum CpuArg {
    Last,
    Number(usize),
    None,
}

#[derive(Debug, Args)]
pub struct CpuArgs {
    /// Run on this logical processor, or on any (`none`) [default: the last one allowed, or as many
    /// as it has threads where a program keeps more than one busy]
    #[arg(long, value_name = "N|none", value_parser = cpu)]
    cpu: Option<CpuArg>,
    /// Run on the last N logical processors, for programs with threads
    #[arg(long, value_name = "N", conflicts_with = "cpu", value_parser = several)]
    cpus: Option<Cpus>,
}

impl CpuArgs {
    /// The processors; none when the scheduler chooses.
    pub fn cpus(&self) -> Option<Cpus> {
        match (&self.cpus, self.cpu) {
            (Some(cpus), _) => Some(cpus.clone()),
            (None, None | Some(CpuArg::Last)) => default_cpu(),
            (None, Some(CpuArg::Number(cpu))) => Some(Cpus::one(cpu)),
            (None, Some(CpuArg::None)) => None,
        }
    }

    /// Whether nobody has chosen, so that programs with threads may get more than one.
    pub fn is_left_open(&self) -> bool {
        self.cpus.is_none() && self.cpu.is_none()
    }
}

/// The logical processor that measurements in this process stay on.
#[derive(Debug, Args)]
pub struct OneCpuArgs {
    /// Measure on this logical processor [default: the quietest one]
    #[arg(long, value_name = "N", value_parser = one)]
    cpu: Option<usize>,
}

impl OneCpuArgs {
    /// Holds this thread, and what it starts, there until the value is dropped; nowhere if no processor was chosen.
    pub fn pin(&self) -> Result<Option<Pin>, ClockError> {
        self.cpu.map(Pin::to).transpose()
    }
}

pub fn words(cpus: Option<&Cpus>) -> String {
    cpus.map_or_else(|| "any cpu".into(), Cpus::to_string)
}

fn cpu(text: &str) -> Result<CpuArg, String> {
    match text {
        "last" => Ok(CpuArg::Last),
        "none" => Ok(CpuArg::None),
        number => number.parse().map(CpuArg::Number).map_err(|_| {
            "write the number of a logical processor, or `none` to leave the choice open".into()
        }),
    }
}

fn one(text: &str) -> Result<usize, String> {
    let allowed = allowed_cpus();
    let cpu = text.parse().map_err(|_| "write the number of a logical processor")?;
    if allowed.contains(&cpu) {
        return Ok(cpu);
    }
    let all = Cpus::last(allowed.len(), &allowed).map_or_else(String::new, |cpus| cpus.to_string());
    Err(format!("this process may run on {all} only"))
}

fn several(text: &str) -> Result<Cpus, String> {
    let allowed = allowed_cpus();
    let count = text.parse().map_err(|_| "write how many logical processors")?;
    Cpus::last(count, &allowed).ok_or_else(|| {
        format!("choose between 1 and {}, as many as are allowed here", allowed.len())
    })
}
