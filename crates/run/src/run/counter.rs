//! One performance counter over one run of a command, children included, user mode only.
//!
//! One counter at a time: several share the hardware's few, and what a counter did not see would have
//! to be made up. A counter that had to share all the same is refused, not scaled.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use perf_event_open_sys::bindings as sys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::perf::{WITH_TIMES, open_event, read_counter};

/// Why there is no count of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The kernel does not hand it out.
    #[error("cannot read the counter of {0}: {1}")]
    Unreadable(CounterEvent, io::Error),
    /// The event, and the percentage of the run that was counted.
    #[error(
        "the counter of {0} saw only {1:.0} % of the run, others use the counters too: stop them \
         and try again"
    )]
    Shared(CounterEvent, f64),
}

/// What can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CounterEvent {
    /// Core cycles.
    Cycles,
    /// Instructions that retired.
    Instructions,
    /// Branches that were predicted wrongly.
    BranchMisses,
    /// Accesses that missed the last level of cache, as the kernel maps them.
    CacheMisses,
    /// Page faults: counted by the kernel, so there without hardware counters.
    PageFaults,
}

impl CounterEvent {
    /// All of them with the names that are typed.
    pub const ALL: [(&'static str, Self); 5] = [
        ("cycles", Self::Cycles),
        ("instructions", Self::Instructions),
        ("branch-misses", Self::BranchMisses),
        ("cache-misses", Self::CacheMisses),
        ("page-faults", Self::PageFaults),
    ];

    /// The event with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, event)| *event)
    }

    /// Whether it needs a hardware counter.
    #[must_use]
    pub fn is_hardware(self) -> bool {
        self != Self::PageFaults
    }

    fn type_and_config(self) -> (u32, u32) {
        match self {
            Self::Cycles => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CPU_CYCLES),
            Self::Instructions => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_INSTRUCTIONS),
            Self::BranchMisses => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_BRANCH_MISSES),
            Self::CacheMisses => (sys::PERF_TYPE_HARDWARE, sys::PERF_COUNT_HW_CACHE_MISSES),
            Self::PageFaults => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_PAGE_FAULTS),
        }
    }
}

impl fmt::Display for CounterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, event)| event == self).map_or("", |(name, _)| name);
        f.pad(name)
    }
}

/// A counter that waits for the exec of a held child.
#[derive(Debug)]
pub struct Counter {
    counted: OwnedFd,
    event: CounterEvent,
}

impl Counter {
    /// Counts `event` in the process `pid` and all it will start, from its next exec on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn attach(pid: i32, event: CounterEvent) -> io::Result<Self> {
        let (type_, config) = event.type_and_config();
        let mut attr = sys::perf_event_attr {
            type_,
            config: config.into(),
            read_format: WITH_TIMES,
            ..Default::default()
        };
        attr.set_disabled(1);
        attr.set_enable_on_exec(1);
        attr.set_inherit(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Ok(Self { counted: open_event(&mut attr, pid, -1)?, event })
    }

    /// The count after the process has ended.
    ///
    /// # Errors
    /// When the counter cannot be read or did not see the whole run.
    pub fn read(self) -> Result<u64, CounterError> {
        let unreadable = |cause: Errno| CounterError::Unreadable(self.event, cause.into());
        let [count, enabled, running] = read_counter(&self.counted).map_err(unreadable)?;
        if running < enabled {
            let percent = 100.0 * running as f64 / enabled as f64;
            return Err(CounterError::Shared(self.event, percent));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::run::child::{Child, Launch, Limits};

    #[test]
    fn a_run_with_children_has_more_page_faults_than_one_without() {
        let count = |script: &str| -> io::Result<u64> {
            let child = Child::hold(&Launch::shell(script)).unwrap();
            let counter = Counter::attach(child.pid(), CounterEvent::PageFaults)?;
            child.wait(&Limits::default()).unwrap();
            Ok(counter.read().unwrap())
        };
        match (count(":"), count("/bin/sh -c :; /bin/sh -c :")) {
            (Ok(one), Ok(three)) => assert!(one > 0 && three > one, "{one} {three}"),
            (Err(cause), _) | (_, Err(cause)) => {
                let text = format!("SKIPPED: no counters of software events here: {cause}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        }
    }

    #[test]
    fn names_are_those_that_are_typed() {
        for (name, event) in CounterEvent::ALL {
            assert_eq!(
                (CounterEvent::named(name), event.to_string().as_str()),
                (Some(event), name)
            );
        }
        assert_eq!(CounterEvent::named("speed"), None);
    }
}
