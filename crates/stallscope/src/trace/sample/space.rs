//! Which file, and where in it, an address of a process belongs to; and the counting of hits.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::ObjectSamples;
use crate::model::{Avma, FileOffset};
use crate::trace::maps;

/// A file among those seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectId(usize);

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In this file at this position.
    File(ObjectId, FileOffset),
    /// In memory that no file backs.
    Anonymous,
    /// In no mapping that we know of.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    end: u64,
    file_offset: u64,
    object: Option<ObjectId>,
}

/// The executable mappings of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressSpace {
    by_start: BTreeMap<u64, Mapping>,
}

impl AddressSpace {
    /// Enters a mapping; what it covers is gone, as in the kernel.
    pub(super) fn map(
        &mut self,
        start: Avma,
        len: u64,
        offset: FileOffset,
        object: Option<ObjectId>,
    ) {
        let (start, end) = (start.0, start.0.saturating_add(len));
        if end <= start {
            return;
        }
        let covered: Vec<(u64, Mapping)> = self
            .by_start
            .range(..end)
            .rev()
            // Mappings do not overlap each other, so the first that ends too early is the last.
            .take_while(|(_, old)| old.end > start)
            .map(|(old_start, old)| (*old_start, *old))
            .collect();
        for (old_start, old) in covered {
            self.by_start.remove(&old_start);
            if old_start < start {
                self.by_start.insert(old_start, Mapping { end: start, ..old });
            }
            if old.end > end {
                let file_offset = old.file_offset.wrapping_add(end - old_start);
                self.by_start.insert(end, Mapping { file_offset, ..old });
            }
        }
        let mapping = Mapping { end, file_offset: offset.0, object };
        self.by_start.insert(start, mapping);
    }

    /// Forgets everything, as an exec does.
    pub(super) fn clear(&mut self) {
        self.by_start.clear();
    }

    /// Where an address lies.
    pub(super) fn locate(&self, address: Avma) -> Place {
        let Some((start, mapping)) = self.by_start.range(..=address.0).next_back() else {
            return Place::Unknown;
        };
        if address.0 >= mapping.end {
            return Place::Unknown;
        }
        let offset = mapping.file_offset.wrapping_add(address.0 - start);
        match mapping.object {
            Some(object) => Place::File(object, FileOffset(offset)),
            None => Place::Anonymous,
        }
    }

    /// Reads the text of `/proc/PID/maps`; lines that cannot be read are left out.
    pub(super) fn read_maps(text: &str, tally: &mut Tally) -> Self {
        let mut space = Self::default();
        for line in text.lines() {
            if let Some(m) = maps::parse_line(line).filter(|m| m.executable) {
                let (offset, object) = tally.object(m.path, m.start, m.file_offset);
                space.map(m.start, m.end.0 - m.start.0, offset, object);
            }
        }
        space
    }
}

/// The files seen so far and the hits in each.
#[derive(Debug, Default)]
pub(super) struct Tally {
    ids: HashMap<PathBuf, ObjectId>,
    hits: Vec<BTreeMap<FileOffset, u64>>,
    unmapped: u64,
}

impl Tally {
    /// The number of the file behind a mapping, and the position in it at which the mapping starts.
    /// `None` for memory without a file.
    pub(super) fn object(
        &mut self,
        path: &Path,
        start: Avma,
        offset: FileOffset,
    ) -> (FileOffset, Option<ObjectId>) {
        let is_vdso = path == Path::new("[vdso]");
        // The kernel's name for memory without a file is "//anon"; true paths have one slash.
        let is_anonymous = !path.is_absolute() || path.as_os_str().as_bytes().starts_with(b"//");
        if is_anonymous && !is_vdso {
            return (FileOffset(start.0), None);
        }
        let id = match self.ids.get(path) {
            Some(id) => *id,
            None => {
                let id = ObjectId(self.hits.len());
                self.ids.insert(path.into(), id);
                self.hits.push(BTreeMap::new());
                id
            }
        };
        (if is_vdso { FileOffset(0) } else { offset }, Some(id))
    }

    /// Counts one sample.
    pub(super) fn count(&mut self, place: Place) {
        match place {
            Place::File(ObjectId(id), offset) => match self.hits.get_mut(id) {
                Some(hits) => *hits.entry(offset).or_default() += 1,
                None => self.unmapped += 1,
            },
            Place::Anonymous | Place::Unknown => self.unmapped += 1,
        }
    }

    /// Samples in no file.
    pub(super) fn unmapped(&self) -> u64 {
        self.unmapped
    }

    /// The files with at least one sample, most samples first, then by name.
    pub(super) fn into_objects(mut self, main_program: Option<&Path>) -> Vec<ObjectSamples> {
        let mut objects: Vec<ObjectSamples> = self
            .ids
            .into_iter()
            .map(|(path, ObjectId(id))| ObjectSamples {
                is_main_program: main_program == Some(path.as_path()),
                hits: self.hits.get_mut(id).map(std::mem::take).unwrap_or_default(),
                path,
            })
            .filter(|object| !object.hits.is_empty())
            .collect();
        objects.sort_by(|a, b| b.total().cmp(&a.total()).then_with(|| a.path.cmp(&b.path)));
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(tally: &mut Tally, path: &str) -> Option<ObjectId> {
        tally.object(Path::new(path), Avma(0), FileOffset(0)).1
    }

    #[test]
    fn an_address_becomes_a_position_in_its_file() {
        let mut tally = Tally::default();
        let text = "\
55550000-55551000 r--p 00000000 fe:00 12 /bin/a b
55551000-55553000 r-xp 00001000 fe:00 12 /bin/a b
7fff0000-7fff1000 rwxp 00000000 00:00 0 
7fff2000-7fff3000 r-xp 00000000 00:00 0                  [vdso]
nonsense
";
        let space = AddressSpace::read_maps(text, &mut tally);
        let main = object(&mut tally, "/bin/a b").unwrap();
        let at = |address| space.locate(Avma(address));
        assert_eq!(at(0x5555_1234), Place::File(main, FileOffset(0x1234)));
        assert_eq!(at(0x5555_0000), Place::Unknown);
        assert_eq!(at(0x5555_3000), Place::Unknown);
        assert_eq!(at(0x7fff_0010), Place::Anonymous);
        let vdso = object(&mut tally, "[vdso]").unwrap();
        assert_eq!(at(0x7fff_2010), Place::File(vdso, FileOffset(0x10)));
    }

    #[test]
    fn a_new_mapping_cuts_the_old_one() {
        let mut tally = Tally::default();
        let (old, new) = (object(&mut tally, "/old"), object(&mut tally, "/new"));
        let mut space = AddressSpace::default();
        space.map(Avma(0x1000), 0x3000, FileOffset(0x100), old);
        space.map(Avma(0x2000), 0x1000, FileOffset(0), new);
        let at = |address| space.locate(Avma(address));
        assert_eq!(at(0x1fff), Place::File(old.unwrap(), FileOffset(0x10ff)));
        assert_eq!(at(0x2001), Place::File(new.unwrap(), FileOffset(1)));
        assert_eq!(at(0x3000), Place::File(old.unwrap(), FileOffset(0x2100)));
        space.map(Avma(0), u64::MAX, FileOffset(0), None);
        assert_eq!(space.locate(Avma(0x2001)), Place::Anonymous);
    }

    #[test]
    fn memory_without_a_file_has_no_object() {
        let mut tally = Tally::default();
        for name in ["", "//anon", "[heap]", "[stack]"] {
            assert_eq!(object(&mut tally, name), None, "{name}");
        }
    }

    #[test]
    fn files_come_out_by_samples_and_silent_ones_are_left_out() {
        let mut tally = Tally::default();
        let names = ["/few", "/none", "/many"];
        let ids = names.map(|name| object(&mut tally, name).unwrap());
        tally.count(Place::File(ids[0], FileOffset(1)));
        tally.count(Place::File(ids[2], FileOffset(1)));
        tally.count(Place::File(ids[2], FileOffset(1)));
        tally.count(Place::Unknown);
        assert_eq!(tally.unmapped(), 1);
        let objects = tally.into_objects(Some(Path::new("/few")));
        let paths: Vec<_> = objects.iter().map(|o| o.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/many", "/few"]);
        assert!(objects[1].is_main_program && !objects[0].is_main_program);
        assert_eq!(objects[0].hits[&FileOffset(1)], 2);
    }
}
