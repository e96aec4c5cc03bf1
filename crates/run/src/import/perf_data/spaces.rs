//! Which file an address of a process belonged to, at the time of a sample.
//!
//! Records of several processors stand in a file in no strict order, so all changes of address
//! spaces are gathered first and sorted by time. A process gets a new *space* when it executes
//! another program; a child starts with what its parent had.

use std::collections::HashMap;
use std::path::PathBuf;

use super::file::path_of;
use super::walk::Record;
use crate::foreign::{Bytes, hex};
use crate::model::{Avma, FileOffset};
use crate::run::maps::AddressSpace;

const MMAP: u32 = 1;
const COMM: u32 = 3;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
const MISC_DATA: u16 = 1 << 13;
const MISC_EXEC: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const PROTECTION_EXECUTE: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SpaceId(pub u32);

#[derive(Debug)]
enum Change {
    Map { start: u64, length: u64, file_offset: u64, object: usize },
    Exec,
    Fork { parent: u32 },
}

/// A file that was mapped, as the kernel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    pub path: PathBuf,
    pub build_id: Option<String>,
}

/// What is gathered, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Changes {
    all: Vec<(u64, u32, Change)>,
    objects: Vec<MappedFile>,
    by_path: HashMap<PathBuf, usize>,
}

impl Changes {
    /// Takes a record that changes an address space; leaves others alone. `time_ns` is 0 for those
    /// that describe what was there before.
    pub fn take(&mut self, record: Record<'_>, time_ns: u64) -> Option<()> {
        let mut body = Bytes(record.body);
        match record.kind {
            MMAP | MMAP2 if record.misc & MISC_DATA == 0 => {
                let (pid, _tid) = (body.u32()?, body.u32()?);
                let (start, length, file_offset) = (body.u64()?, body.u64()?, body.u64()?);
                let mut build_id = None;
                if record.kind == MMAP2 {
                    let identity = body.take(24)?;
                    if record.misc & MISC_BUILD_ID != 0 {
                        let length = usize::from(identity[0]).min(20);
                        build_id = Some(hex(&identity[4..4 + length]));
                    }
                    let (protection, _flags) = (body.u32()?, body.u32()?);
                    if protection & PROTECTION_EXECUTE == 0 {
                        return Some(());
                    }
                }
                let object = self.object(path_of(body.text()), build_id);
                self.all.push((time_ns, pid, Change::Map { start, length, file_offset, object }));
            }
            COMM if record.misc & MISC_EXEC != 0 => {
                self.all.push((time_ns, body.u32()?, Change::Exec));
            }
            FORK => {
                let (pid, parent) = (body.u32()?, body.u32()?);
                if pid != parent {
                    self.all.push((time_ns, pid, Change::Fork { parent }));
                }
            }
            _ => {}
        }
        Some(())
    }

    fn object(&mut self, path: PathBuf, build_id: Option<String>) -> usize {
        let next = self.objects.len();
        let index = *self.by_path.entry(path.clone()).or_insert(next);
        if index == next {
            self.objects.push(MappedFile { path, build_id });
        } else if self.objects[index].build_id.is_none() {
            self.objects[index].build_id = build_id;
        }
        index
    }

    pub fn sort(mut self) -> Spaces {
        self.all.sort_by_key(|(time, ..)| *time);
        let mut spaces = Spaces { objects: self.objects, ..Spaces::default() };
        for (time, pid, change) in self.all {
            match change {
                Change::Map { start, length, file_offset, object } => {
                    let id = spaces.latest(pid);
                    let maps = &mut spaces.all[id.0 as usize].maps;
                    maps.map(Avma(start), length, FileOffset(file_offset), object);
                }
                Change::Exec => drop(spaces.begin(pid, time, None)),
                Change::Fork { parent } => {
                    let parent = spaces.latest(parent);
                    spaces.begin(pid, time, Some(parent));
                }
            }
        }
        spaces
    }
}

#[derive(Debug, Default)]
struct Space {
    maps: AddressSpace<usize>,
    parent: Option<SpaceId>,
}

#[derive(Debug, Default)]
pub(super) struct Spaces {
    all: Vec<Space>,
    by_pid: HashMap<u32, Vec<(u64, SpaceId)>>,
    pub objects: Vec<MappedFile>,
}

impl Spaces {
    fn begin(&mut self, pid: u32, time: u64, parent: Option<SpaceId>) -> SpaceId {
        let id = SpaceId(self.all.len() as u32);
        self.all.push(Space { maps: AddressSpace::default(), parent });
        self.by_pid.entry(pid).or_default().push((time, id));
        id
    }

    fn latest(&mut self, pid: u32) -> SpaceId {
        match self.by_pid.get(&pid).and_then(|spaces| spaces.last()) {
            Some((_, id)) => *id,
            None => self.begin(pid, 0, None),
        }
    }

    /// The space of a process at a time, and from when until when that stays the answer.
    pub fn at(&self, pid: u32, time: u64) -> Option<(SpaceId, u64, u64)> {
        let spaces = self.by_pid.get(&pid)?;
        let next = spaces.partition_point(|(from, _)| *from <= time);
        // A sample from before the first record of its process belongs to that process all the same.
        let current = next.saturating_sub(1);
        let (from, id) = *spaces.get(current)?;
        let until = spaces.get(current + 1).map_or(u64::MAX, |(from, _)| *from);
        Some((id, if current == 0 { 0 } else { from }, until))
    }

    /// The file at an address, the latest mapping first.
    pub fn locate(&self, space: SpaceId, address: u64) -> Option<(usize, FileOffset)> {
        let mut next = Some(space);
        // A chain of parents is no longer than there are spaces.
        for _ in 0..self.all.len() {
            let space = self.all.get(next?.0 as usize)?;
            if let Some(found) = space.maps.locate(Avma(address)) {
                return Some(found);
            }
            next = space.parent;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: u32, start: u64, path: &str) -> Vec<u8> {
        let mut body = pid.to_le_bytes().to_vec();
        body.extend(pid.to_le_bytes());
        for field in [start, 0x1000, 0x2000] {
            body.extend(field.to_le_bytes());
        }
        body.extend(path.as_bytes());
        body.push(0);
        body
    }

    fn two(a: u32, b: u32) -> Vec<u8> {
        [a.to_le_bytes(), b.to_le_bytes()].concat()
    }

    #[test]
    fn programs_children_and_time_are_kept_apart() {
        let mut changes = Changes::default();
        let mut take = |kind, misc, body: &[u8], time| {
            changes.take(Record { kind, misc, body }, time).unwrap();
        };
        // Out of order on purpose.
        take(MMAP, 0, &map(7, 0x5000, "/new"), 31);
        take(MMAP, 0, &map(7, 0x5000, "/old"), 0);
        take(COMM, MISC_EXEC, &two(7, 7), 30);
        take(FORK, 0, &two(8, 7), 20);
        take(FORK, 0, &two(7, 7), 25);
        take(MMAP, MISC_DATA, &map(7, 0x5000, "/data"), 40);
        let spaces = changes.sort();
        let file = |pid, time, address| {
            let (space, from, until) = spaces.at(pid, time)?;
            assert!(from <= time && time < until);
            let (object, offset) = spaces.locate(space, address)?;
            Some((spaces.objects[object].path.to_str()?.to_owned(), offset.0))
        };
        assert_eq!(file(7, 5, 0x5010), Some(("/old".into(), 0x2010)));
        assert_eq!(file(7, 50, 0x5010), Some(("/new".into(), 0x2010)));
        assert_eq!(file(8, 50, 0x5010), Some(("/old".into(), 0x2010)));
        assert_eq!(file(7, 50, 0x6000), None);
        assert_eq!(file(9, 50, 0x5010), None);
    }
}
