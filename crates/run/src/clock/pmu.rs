//! Whether performance counters work here, and if not, what would help or that nothing would.
//!
//! The same message, "no counters", has causes with nothing in common: a hypervisor that passes
//! none through (most cloud machines), a sysctl, a container's filter, a kernel without `perf`. Advice for
//! one is noise for the others, so the cause is found first, and a setting is named only where
//! that setting decides. Counters that open and then count nothing are a hypervisor's zero, not
//! an idle machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::model::Capability;

/// Events that decide the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfEvent {
    /// Core cycles in user mode, a hardware counter.
    HardwareCycles,
    /// The CPU clock as a sampling event, a software counter.
    SoftwareClock,
}

/// The part of the kernel that is asked, so that tests can be another kernel.
pub trait PerfKernel {
    /// Opens `event` for the calling thread in user mode, runs some work under it and returns the
    /// count.
    ///
    /// # Errors
    /// The `errno` of the call that failed.
    fn count(&mut self, event: PerfEvent) -> Result<u64, i32>;
    /// `/proc/sys/kernel/perf_event_paranoid`; `None` when it cannot be read.
    fn paranoid(&self) -> Option<i32>;
    /// Names below `/sys/bus/event_source/devices`; `None` when the folder cannot be read.
    fn pmu_names(&self) -> Option<Vec<String>>;
    /// Whether a seccomp filter is installed on this process.
    fn is_filtered(&self) -> bool;
}

/// Why hardware counters work or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
#[non_exhaustive]
pub enum PmuVerdict {
    /// Cycles were counted.
    Usable,
    /// The hypervisor passes no counters through.
    HiddenByHypervisor {
        /// Name of the hypervisor.
        hypervisor: String,
    },
    /// Bare metal, but the kernel has no driver for these counters.
    NoDriver,
    /// `perf_event_paranoid` forbids it.
    Paranoid {
        /// The present value of `perf_event_paranoid`.
        value: i32,
        /// Whether a seccomp filter is installed as well, which may forbid it on its own.
        filtered: bool,
    },
    /// The setting would allow it, but a seccomp filter is installed, as in most containers.
    Filtered,
    /// The setting would allow it and no filter is installed: a security module or lockdown.
    Forbidden,
    /// The kernel was built without `perf`.
    NoPerf,
    /// The counter opens and stays at zero.
    CountsNothing {
        /// The hypervisor's name; `None` on bare metal.
        hypervisor: Option<String>,
    },
    /// Something else holds all counters.
    Busy,
    /// Another answer of the kernel.
    Other {
        /// The kernel's `errno`.
        errno: i32,
    },
}

/// What can be counted here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pmu {
    /// Hardware counters: the verdict.
    pub verdict: PmuVerdict,
    /// Hardware counters in the words of the report.
    pub hardware: Capability,
    /// Sampling by the software clock: where a program spends its time can be sampled even
    /// without hardware counters.
    pub sampling: Capability,
}

impl Pmu {
    /// Asks the kernel and judges its answers.
    pub fn detect(kernel: &mut impl PerfKernel, machine: &Machine) -> Self {
        let verdict = hardware_verdict(kernel, machine);
        Self {
            hardware: match verdict {
                PmuVerdict::Usable => Capability::Present,
                _ => Capability::absent(cause(&verdict)),
            },
            verdict,
            sampling: sampling(kernel),
        }
    }
}

fn hardware_verdict(kernel: &mut impl PerfKernel, machine: &Machine) -> PmuVerdict {
    let answer = kernel.count(PerfEvent::HardwareCycles);
    let hypervisor = machine.hypervisor.clone();
    match answer {
        Ok(0) => return PmuVerdict::CountsNothing { hypervisor },
        Ok(_) => return PmuVerdict::Usable,
        Err(_) => {}
    }
    // A refusal says nothing about what lies behind it: with no counters there, lifting the
    // refusal would not help, so their absence is looked for first.
    let no_device = kernel.pmu_names().is_some_and(|names| !names.iter().any(|n| is_core_pmu(n)));
    let promised = machine.counters.promises_counters();
    if let Some(hypervisor) = &hypervisor
        && (no_device || (!promised && answer == Err(libc::ENOENT)))
        && answer != Err(libc::ENOSYS)
    {
        return PmuVerdict::HiddenByHypervisor { hypervisor: hypervisor.clone() };
    }
    match answer {
        Err(libc::ENOSYS) => PmuVerdict::NoPerf,
        Err(libc::EACCES | libc::EPERM) => refusal(kernel),
        Err(libc::EBUSY) => PmuVerdict::Busy,
        Err(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => match hypervisor {
            Some(hypervisor) => PmuVerdict::HiddenByHypervisor { hypervisor },
            None => PmuVerdict::NoDriver,
        },
        Err(errno) => PmuVerdict::Other { errno },
        Ok(_) => PmuVerdict::Usable,
    }
}

/// Up to a value of 2 a thread may count itself in user mode, so a refusal there has another author.
fn refusal(kernel: &impl PerfKernel) -> PmuVerdict {
    match kernel.paranoid() {
        Some(value) if value > 2 => PmuVerdict::Paranoid { value, filtered: kernel.is_filtered() },
        _ if kernel.is_filtered() => PmuVerdict::Filtered,
        _ => PmuVerdict::Forbidden,
    }
}

/// Intel and AMD: `cpu`; hybrid Intel: `cpu_core` and `cpu_atom`; Arm: `armv8_...`.
fn is_core_pmu(name: &str) -> bool {
    matches!(name, "cpu" | "cpu_core" | "cpu_atom") || name.starts_with("armv8")
}

fn cause(verdict: &PmuVerdict) -> String {
    match verdict {
        PmuVerdict::Usable => "counters work".to_owned(),
        PmuVerdict::HiddenByHypervisor { hypervisor } => format!(
            "the hypervisor ({hypervisor}) passes no counters to this guest; no sysctl, \
             capability or privilege inside it can change that, only a bare-metal \
             (\"metal\" type) instance or a host that enables its virtual PMU"
        ),
        PmuVerdict::NoDriver => "the kernel has no driver for this processor's counters, or the \
             firmware reserved them; a newer kernel may help"
            .to_owned(),
        PmuVerdict::Paranoid { value, filtered } => {
            let also = if *filtered {
                "; a seccomp filter is installed too and may need CAP_PERFMON as well"
            } else {
                ""
            };
            format!(
                "kernel.perf_event_paranoid is {value}, which forbids counting to users; \
                 `sysctl kernel.perf_event_paranoid=2` or the capability CAP_PERFMON allows \
                 it{also}"
            )
        }
        PmuVerdict::Filtered => "a seccomp filter forbids perf_event_open; start the container \
             with CAP_PERFMON or with a profile that allows the call"
            .to_owned(),
        PmuVerdict::Forbidden => "the kernel forbids perf_event_open although its own setting \
             would allow it: a security module or lockdown mode; ask the administrator"
            .to_owned(),
        PmuVerdict::NoPerf => {
            "this kernel does not offer perf_event_open (built without it, or a sandbox kernel)"
                .to_owned()
        }
        PmuVerdict::CountsNothing { hypervisor: Some(name) } => format!(
            "the counter opens but stays at zero: the hypervisor ({name}) presents counters \
             that do not count"
        ),
        PmuVerdict::CountsNothing { hypervisor: None } => {
            "the counter opens but stays at zero; another tool may have taken it over".to_owned()
        }
        PmuVerdict::Busy => {
            "all counters are taken, often by the NMI watchdog (`sysctl kernel.nmi_watchdog=0` \
             frees one) or by another profiler"
                .to_owned()
        }
        PmuVerdict::Other { errno } => format!("perf_event_open failed with errno {errno}"),
    }
}

fn sampling(kernel: &mut impl PerfKernel) -> Capability {
    match kernel.count(PerfEvent::SoftwareClock) {
        Ok(_) => Capability::Present,
        Err(libc::ENOSYS) => Capability::absent(cause(&PmuVerdict::NoPerf)),
        Err(libc::EACCES | libc::EPERM) => Capability::absent(cause(&refusal(kernel))),
        Err(errno) => Capability::absent(cause(&PmuVerdict::Other { errno })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::invented;

    struct Fake {
        hardware: Result<u64, i32>,
        software: Result<u64, i32>,
        paranoid: Option<i32>,
        names: Option<Vec<&'static str>>,
        filtered: bool,
    }

    impl PerfKernel for Fake {
        fn count(&mut self, event: PerfEvent) -> Result<u64, i32> {
            match event {
                PerfEvent::HardwareCycles => self.hardware,
                PerfEvent::SoftwareClock => self.software,
            }
        }
        fn paranoid(&self) -> Option<i32> {
            self.paranoid
        }
        fn pmu_names(&self) -> Option<Vec<String>> {
            let names = self.names.as_ref()?;
            Some(names.iter().map(|n| (*n).to_owned()).collect())
        }
        fn is_filtered(&self) -> bool {
            self.filtered
        }
    }

    fn healthy() -> Fake {
        Fake {
            hardware: Ok(100_000),
            software: Ok(1_000),
            paranoid: Some(2),
            names: Some(vec!["breakpoint", "cpu", "software"]),
            filtered: false,
        }
    }

    fn denied(errno: i32) -> Fake {
        Fake { hardware: Err(errno), software: Err(errno), ..healthy() }
    }

    fn guest() -> Machine {
        Machine::from_facts(&invented::zen_5_guest())
    }

    fn metal() -> Machine {
        Machine::from_facts(&invented::raptor_lake())
    }

    fn words(capability: &Capability) -> &str {
        match capability {
            Capability::Present => "",
            Capability::Absent { cause } => cause,
        }
    }

    #[test]
    fn counters_that_count_are_usable() {
        let pmu = Pmu::detect(&mut healthy(), &metal());
        assert_eq!(pmu.verdict, PmuVerdict::Usable);
        assert!(pmu.hardware.is_present() && pmu.sampling.is_present());
    }

    #[test]
    fn a_guest_without_counters_is_told_that_nothing_inside_helps() {
        let mut kernel = Fake {
            hardware: Err(libc::ENOENT),
            names: Some(vec!["breakpoint", "software"]),
            ..healthy()
        };
        let pmu = Pmu::detect(&mut kernel, &guest());
        assert!(matches!(pmu.verdict, PmuVerdict::HiddenByHypervisor { .. }));
        assert!(words(&pmu.hardware).contains("no sysctl"));
        assert!(!words(&pmu.hardware).contains("paranoid"));
        assert!(pmu.sampling.is_present());
    }

    #[test]
    fn a_refusal_in_a_guest_without_counters_names_no_sysctl_for_them() {
        let mut kernel =
            Fake { paranoid: Some(4), names: Some(vec!["software"]), ..denied(libc::EACCES) };
        let pmu = Pmu::detect(&mut kernel, &guest());
        assert!(matches!(pmu.verdict, PmuVerdict::HiddenByHypervisor { .. }));
        assert!(!words(&pmu.hardware).contains("paranoid"));
        // For sampling the same setting does decide.
        assert!(words(&pmu.sampling).contains("paranoid is 4"));
    }

    #[test]
    fn the_sysctl_is_named_where_it_decides() {
        for errno in [libc::EACCES, libc::EPERM] {
            let mut kernel = Fake { paranoid: Some(4), ..denied(errno) };
            let pmu = Pmu::detect(&mut kernel, &metal());
            assert_eq!(pmu.verdict, PmuVerdict::Paranoid { value: 4, filtered: false });
            assert!(words(&pmu.hardware).contains("perf_event_paranoid=2"));
        }
    }

    #[test]
    fn a_container_filter_is_not_a_sysctl() {
        let mut kernel = Fake { filtered: true, ..denied(libc::EPERM) };
        let pmu = Pmu::detect(&mut kernel, &metal());
        assert_eq!(pmu.verdict, PmuVerdict::Filtered);
        assert!(!words(&pmu.hardware).contains("sysctl"));
        let module = Pmu::detect(&mut denied(libc::EPERM), &metal());
        assert_eq!(module.verdict, PmuVerdict::Forbidden);
        assert!(!words(&module.hardware).contains("sysctl"));
        kernel.paranoid = Some(4);
        let both = Pmu::detect(&mut kernel, &metal());
        assert!(words(&both.hardware).contains("filter is installed too"));
    }

    #[test]
    fn the_other_causes_have_their_own_words() {
        let verdict = |errno| Pmu::detect(&mut denied(errno), &metal()).verdict;
        assert_eq!(verdict(libc::ENOSYS), PmuVerdict::NoPerf);
        assert_eq!(verdict(libc::ENOENT), PmuVerdict::NoDriver);
        assert_eq!(verdict(libc::EBUSY), PmuVerdict::Busy);
        assert_eq!(verdict(libc::EINVAL), PmuVerdict::Other { errno: 22 });
    }

    #[test]
    fn a_zero_is_absent() {
        let mut kernel = Fake { hardware: Ok(0), ..healthy() };
        let pmu = Pmu::detect(&mut kernel, &guest());
        assert!(matches!(pmu.verdict, PmuVerdict::CountsNothing { .. }));
        assert!(!pmu.hardware.is_present());
    }

    #[test]
    fn an_unreadable_sysfs_does_not_decide() {
        let mut kernel = Fake { names: None, paranoid: Some(3), ..denied(libc::EACCES) };
        let pmu = Pmu::detect(&mut kernel, &guest());
        assert_eq!(pmu.verdict, PmuVerdict::Paranoid { value: 3, filtered: false });
    }
}
