//! The engine that lets the kernel's clock do the sampling.
//!
//! A ring that children inherit must belong to one processor, so there is one event and one ring
//! per processor. A process that moves leaves records in several rings; they are put in order of
//! time before they are used, because a mapping must be known before the samples in it. Call stacks
//! come from a second event with rings of its own, so that many bytes of stack displace no sample.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use super::records::{Record, Timed, records};
use super::ring::{Ring, Wanted};
use super::space::{AddressSpace, Tally};
use super::{Collected, Engine, STACK_PERIOD_NS, SampleError, Unwinder};
use crate::clock::parse_processor_list;
use crate::run::child::{Child, Exit, Limits};

const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// Before a ring is full of stacks.
const DRAIN_INTERVAL_OF_STACKS: Duration = Duration::from_millis(7);

/// Events on a held child, and what they have brought so far.
pub(super) struct Sampler {
    rings: Vec<Ring>,
    stack_rings: Vec<Ring>,
    bytes: Vec<u8>,
    pending: Vec<Timed>,
    /// Latest time seen in all rounds, and in all but the last.
    latest_ns: u64,
    settled_ns: u64,
    book: Book,
}

impl Sampler {
    /// Puts one event on each processor that is there; it ticks in the kernel, too, where we may ask for that. Stacks come from
    /// a second event of its own period, where there can be one.
    pub(super) fn attach(pid: i32, period_ns: u64, takes_stacks: bool) -> io::Result<Self> {
        let (rings, has_kernel) = match open_rings(pid, period_ns, Wanted::UserAndKernel) {
            Err(cause) if matches!(cause.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                (open_rings(pid, period_ns, Wanted::User)?, false)
            }
            opened => (opened?, true),
        };
        let mut sampler = Self {
            rings,
            stack_rings: Vec::new(),
            bytes: Vec::new(),
            pending: Vec::new(),
            latest_ns: 0,
            settled_ns: 0,
            book: Book { kernel: has_kernel.then_some(0), ..Book::default() },
        };
        let period_ns = period_ns.max(STACK_PERIOD_NS);
        match takes_stacks.then(|| open_rings(pid, period_ns, Wanted::Stacks)) {
            Some(Ok(rings)) => {
                sampler.stack_rings = rings;
                sampler.book.unwinder = Some(Unwinder::new(period_ns));
            }
            Some(Err(cause)) => sampler.book.no_stacks = Some(cause),
            None => {}
        }
        Ok(sampler)
    }

    pub(super) fn run(
        mut self,
        child: Child,
        limits: &Limits<'_>,
    ) -> Result<(Exit, Collected), SampleError> {
        let has_stacks = self.book.unwinder.is_some();
        let interval = if has_stacks { DRAIN_INTERVAL_OF_STACKS } else { DRAIN_INTERVAL };
        let tick = |_| {
            self.drain();
            Ok(())
        };
        let exit = child.wait_with(limits, tick, interval)?;
        self.drain();
        self.settle(u64::MAX);
        Ok((exit, self.book.into_collected()))
    }

    /// Takes what is in the rings and uses what can no longer be overtaken: whatever is not later
    /// than all of the round before, since each ring has been looked at since.
    fn drain(&mut self) {
        let settled_ns = std::mem::replace(&mut self.settled_ns, self.latest_ns);
        for (rings, has_stacks) in [(&mut self.rings, false), (&mut self.stack_rings, true)] {
            self.bytes.clear();
            rings.iter_mut().for_each(|ring| ring.drain_into(&mut self.bytes));
            for record in records(&self.bytes) {
                match record {
                    // A stack that was lost is no lost sample.
                    Ok(Timed { record: Record::Lost { .. } | Record::Throttled, .. })
                        if has_stacks => {}
                    Ok(timed) => {
                        self.latest_ns = self.latest_ns.max(timed.time_ns);
                        self.pending.push(timed);
                    }
                    Err(_) => self.book.malformed += 1,
                }
            }
        }
        self.settle(settled_ns);
    }

    fn settle(&mut self, until_ns: u64) {
        // Stable: records of one ring and one time keep their order.
        self.pending.sort_by_key(|timed| timed.time_ns);
        let count = self.pending.partition_point(|t| t.time_ns <= until_ns);
        for timed in self.pending.drain(..count) {
            self.book.enter(timed.record);
        }
    }
}

fn open_rings(pid: i32, period_ns: u64, wanted: Wanted) -> io::Result<Vec<Ring>> {
    let mut rings = Vec::new();
    for cpu in online_processors() {
        match Ring::open(pid, cpu, period_ns, wanted) {
            Ok(ring) => rings.push(ring),
            // It was switched off since we read the list.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
            Err(e) => return Err(e),
        }
    }
    if rings.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    Ok(rings)
}

/// What the records say, taken in order.
#[derive(Default)]
struct Book {
    spaces: HashMap<u32, AddressSpace>,
    tally: Tally,
    /// Absent where they are not asked for.
    kernel: Option<u64>,
    lost: u64,
    throttled: u64,
    malformed: u64,
    unwinder: Option<Unwinder>,
    /// Why there is none, where there should be.
    no_stacks: Option<io::Error>,
}

impl Book {
    fn enter(&mut self, record: Record) {
        match record {
            Record::Sample { in_kernel: true, .. } => {
                self.kernel.iter_mut().for_each(|samples| *samples += 1);
            }
            Record::Sample { pid, address, .. } => {
                let space = self.spaces.get(&pid);
                let place = space.and_then(|space| space.locate(address));
                self.tally.count(place, pid.cast_signed());
            }
            Record::Stack { pid, snapshot } => {
                let parts = self.unwinder.as_mut().zip(self.spaces.get(&pid));
                if let Some((unwinder, space)) = parts {
                    unwinder.add(&snapshot, space, &self.tally);
                }
            }
            Record::Map { pid, start, len, offset, path } => {
                let (offset, object) = self.tally.object(&path, start, offset);
                let space = self.spaces.entry(pid).or_default();
                space.map(start, len, offset, object);
            }
            Record::Exec { pid } => self.spaces.entry(pid).or_default().clear(),
            Record::Fork { pid, parent } if pid != parent => {
                let space = self.spaces.get(&parent).cloned().unwrap_or_default();
                self.spaces.insert(pid, space);
            }
            Record::Lost { count } => self.lost += count,
            Record::Throttled => self.throttled += 1,
            Record::Fork { .. } | Record::Other => {}
        }
    }

    fn into_collected(self) -> Collected {
        let mut notes = Vec::new();
        if self.lost > 0 {
            notes.push(format!("{} samples were lost", self.lost));
        }
        if self.throttled > 0 {
            let times = self.throttled;
            notes.push(format!(
                "the kernel paused the sampling {times} times (kernel.perf_cpu_time_max_percent)"
            ));
        }
        if let Some(cause) = self.no_stacks {
            notes.push(format!("call stacks were not taken: the kernel refuses them ({cause})"));
        }
        if self.malformed > 0 {
            notes.push(format!("{} records of the kernel were not understood", self.malformed));
        }
        Collected {
            engine: Engine::PerfClock,
            tally: self.tally,
            lost: self.lost,
            kernel: self.kernel,
            unwinder: self.unwinder,
            notes,
        }
    }
}

/// Numbers of the processors that are switched on.
fn online_processors() -> Vec<i32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let listed = parse_processor_list(&list);
    if !listed.is_empty() {
        return listed;
    }
    let count = std::thread::available_parallelism().map_or(1, |n| n.get());
    (0..i32::try_from(count).unwrap_or(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Avma, FileOffset};
    use crate::run::generated::GeneratedCode;
    use std::path::Path;

    fn map(pid: u32, path: &str) -> Record {
        Record::Map {
            pid,
            start: Avma(0x1000),
            len: 0x1000,
            offset: FileOffset(0x400),
            path: path.into(),
        }
    }

    fn sample(pid: u32) -> Record {
        Record::Sample { pid, address: Avma(0x1010), in_kernel: false }
    }

    #[test]
    fn a_fork_inherits_the_mappings_and_an_exec_drops_them() {
        let mut book = Book::default();
        let story = [
            map(1, "/a"),
            Record::Fork { pid: 2, parent: 1 },
            Record::Fork { pid: 1, parent: 1 },
            sample(1),
            sample(2),
            Record::Exec { pid: 2 },
            sample(2),
            map(2, "/b"),
            sample(2),
            sample(3),
        ];
        story.into_iter().for_each(|record| book.enter(record));
        let collected = book.into_collected();
        assert_eq!(collected.tally.generated(&GeneratedCode::default()).1, 2);
        let objects = collected.tally.into_objects(Some(Path::new("/a")));
        let found: Vec<_> = objects
            .iter()
            .map(|o| (o.path.to_str().unwrap(), o.hits[&FileOffset(0x410)]))
            .collect();
        assert_eq!(found, [("/a", 2), ("/b", 1)]);
    }

    #[test]
    fn losses_and_pauses_are_said() {
        let mut book = Book::default();
        book.enter(Record::Lost { count: 3 });
        book.enter(Record::Throttled);
        let collected = book.into_collected();
        assert_eq!(collected.lost, 3);
        assert_eq!(collected.notes.len(), 2);
    }
}
