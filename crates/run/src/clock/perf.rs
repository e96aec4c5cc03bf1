//! The Linux kernel behind `PerfKernel`: one thin call, no library of events.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use perf_event_open_sys as sys;
use sys::bindings::perf_event_attr;

use super::chains::HardwareClock;
use super::counters::EventCounter;
use super::{Clock, PerfEvent, PerfKernel};
use crate::foreign::u64_at;

/// Additions run under an event: some 30 us, enough for a clock event to be above zero.
const WORK_ADDS: u64 = 100_000;

/// Counts through `perf_event_open`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxPerf;

impl PerfKernel for LinuxPerf {
    fn count(&mut self, event: PerfEvent) -> Result<u64, i32> {
        let (kind, config) = match event {
            PerfEvent::HardwareCycles => {
                (sys::bindings::PERF_TYPE_HARDWARE, sys::bindings::PERF_COUNT_HW_CPU_CYCLES)
            }
            PerfEvent::SoftwareClock => {
                (sys::bindings::PERF_TYPE_SOFTWARE, sys::bindings::PERF_COUNT_SW_CPU_CLOCK)
            }
        };
        count(kind, u64::from(config), &mut || match HardwareClock::new() {
            Ok(mut clock) => clock.run_latency_chain(WORK_ADDS),
            Err(_) => std::thread::yield_now(),
        })
    }

    fn paranoid(&self) -> Option<i32> {
        let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
        text.trim().parse().ok()
    }

    fn pmu_names(&self) -> Option<Vec<String>> {
        let entries = fs::read_dir("/sys/bus/event_source/devices").ok()?;
        Some(entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
    }

    fn is_filtered(&self) -> bool {
        crate::foreign::has_filter("self")
    }
}

/// Counts over `run`: enabled just before, disabled just behind it.
fn count(kind: u32, config: u64, run: &mut dyn FnMut()) -> Result<u64, i32> {
    count_all(&[open(kind, config, Whose::ThisThread)?], run)
}

fn count_all(events: &[OwnedFd], run: &mut dyn FnMut()) -> Result<u64, i32> {
    events.iter().try_for_each(enable)?;
    run();
    events.iter().try_for_each(disable)?;
    events.iter().map(value).sum()
}

fn value(event: &OwnedFd) -> Result<u64, i32> {
    let [count, enabled, running] = read_counter(event).map_err(|e| e as i32)?;
    // An event that took turns with others on one counter is an estimate, not a count.
    if enabled == running { Ok(count) } else { Err(Errno::EBUSY as i32) }
}

/// Units outside the cores, all of one kind: they count for the whole machine.
#[derive(Clone, Copy, Debug)]
pub struct UncorePerf {
    /// Prefix of the units' names below `/sys/bus/event_source/devices`.
    pub units: &'static str,
}

impl EventCounter for UncorePerf {
    fn count(&mut self, config: u64, run: &mut dyn FnMut()) -> Result<u64, i32> {
        let events = self
            .each()
            .map(|(kind, cpu)| open(kind, config, Whose::Everybodys { cpu }))
            .collect::<Result<Vec<_>, _>>()?;
        if events.is_empty() {
            return Err(Errno::ENODEV as i32);
        }
        count_all(&events, run)
    }
}

impl UncorePerf {
    /// The kernel's number of each unit, and the processor through which it is asked.
    fn each(self) -> impl Iterator<Item = (u32, i32)> {
        let folders = fs::read_dir("/sys/bus/event_source/devices").into_iter().flatten().flatten();
        folders.filter_map(move |folder| {
            folder.file_name().to_str().filter(|name| name.starts_with(self.units))?;
            let text = |file: &str| fs::read_to_string(folder.path().join(file)).ok();
            let kind = text("type")?.trim().parse().ok()?;
            // `0` or `0,28` or `0-3`: the first will do, one package is what we fill.
            let mask = text("cpumask")?;
            let cpu = mask.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
            Some((kind, cpu))
        })
    }
}

impl EventCounter for LinuxPerf {
    fn count(&mut self, config: u64, run: &mut dyn FnMut()) -> Result<u64, i32> {
        count(sys::bindings::PERF_TYPE_RAW, config, run)
    }
}

/// Whose events are counted.
#[derive(Clone, Copy)]
enum Whose {
    /// In user mode only: the least that is asked for, so that a refusal means that nothing is
    /// allowed.
    ThisThread,
    /// By a unit that does not know who: asked through this processor.
    Everybodys { cpu: i32 },
}

fn open(kind: u32, config: u64, whose: Whose) -> Result<OwnedFd, i32> {
    let mut attr =
        perf_event_attr { type_: kind, config, read_format: WITH_TIMES, ..Default::default() };
    attr.set_disabled(1);
    let (thread, cpu) = match whose {
        Whose::ThisThread => {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            (0, -1)
        }
        Whose::Everybodys { cpu } => (-1, cpu),
    };
    open_event(&mut attr, thread, cpu).map_err(|e| e as i32)
}

/// What [`read_counter`] reads.
pub(crate) const WITH_TIMES: u64 = (sys::bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | sys::bindings::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// Opens an event of a thread on a processor; -1 stands for all.
pub(crate) fn open_event(
    attr: &mut perf_event_attr,
    thread: i32,
    cpu: i32,
) -> Result<OwnedFd, Errno> {
    attr.size = size_of::<perf_event_attr>() as u32;
    let flags = sys::bindings::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attr` is initialised, states its own size and outlives the call.
    let fd = Errno::result(unsafe { sys::perf_event_open(attr, thread, cpu, -1, flags) })?;
    // SAFETY: the kernel has just returned this descriptor and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The count of an event, how long it was enabled, and how much of that it counted.
pub(crate) fn read_counter(event: &OwnedFd) -> Result<[u64; 3], Errno> {
    let mut bytes = [0; 24];
    if nix::unistd::read(event, &mut bytes)? < bytes.len() {
        return Err(Errno::ENODATA);
    }
    Ok([0, 8, 16].map(|at| u64_at(&bytes, at).unwrap_or_default()))
}

fn enable(fd: &OwnedFd) -> Result<(), i32> {
    // SAFETY: a perf descriptor that this function borrows; the request takes no pointer.
    let told = unsafe { sys::ioctls::ENABLE(fd.as_raw_fd(), 0) };
    Errno::result(told).map(drop).map_err(|e| e as i32)
}

fn disable(fd: &OwnedFd) -> Result<(), i32> {
    // SAFETY: as above.
    let told = unsafe { sys::ioctls::DISABLE(fd.as_raw_fd(), 0) };
    Errno::result(told).map(drop).map_err(|e| e as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_answers_one_way_or_the_other() {
        // Counted or refused: both are values, neither is a panic.
        let mut kernel = LinuxPerf;
        for event in [PerfEvent::HardwareCycles, PerfEvent::SoftwareClock] {
            if let Err(errno) = PerfKernel::count(&mut kernel, event) {
                assert!(errno > 0);
            }
        }
        let _ = (kernel.paranoid(), kernel.pmu_names(), kernel.is_filtered());
        let nowhere = UncorePerf { units: "no_such_unit_" }.count(0x04, &mut || ());
        assert_eq!(nowhere, Err(Errno::ENODEV as i32));
    }
}
