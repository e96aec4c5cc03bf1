//! Which file, and where in it, an address of a process belongs to; and the counting of hits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::ObjectSamples;
use crate::model::{Avma, FileOffset};
use crate::run::generated::GeneratedCode;
use crate::run::maps;

/// A file among those seen so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectId(usize);

impl ObjectId {
    /// Its place in [`Tally::files`].
    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }
}

/// Where an address lies: in a file at a position, in memory that no file backs (`None`), or in no
/// mapping that we know of.
pub(super) type Located = Option<(Option<ObjectId>, FileOffset)>;

/// The executable mappings of one process.
pub(super) type AddressSpace = maps::AddressSpace<Option<ObjectId>>;

/// Reads what a process has mapped now; nothing of one that has ended.
pub(super) fn read(pid: i32, tally: &mut Tally) -> AddressSpace {
    enter(maps::read(pid).unwrap_or_default(), tally)
}

fn enter(lines: Vec<maps::Line>, tally: &mut Tally) -> AddressSpace {
    let mut space = AddressSpace::default();
    for m in lines.into_iter().filter(|line| line.executable).map(|line| line.mapping) {
        let (offset, object) = tally.object(&m.path, m.start, m.file_offset);
        space.map(m.start, m.bytes(), offset, object);
    }
    space
}

/// The files seen so far and the hits in each.
#[derive(Debug, Default)]
pub(super) struct Tally {
    ids: HashMap<PathBuf, ObjectId>,
    hits: Vec<BTreeMap<FileOffset, u64>>,
    /// In memory that no file backs, by address.
    generated: BTreeMap<Avma, u64>,
    /// The processes that these are of.
    pids: BTreeSet<i32>,
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
        if !maps::has_code(path) {
            return (FileOffset(start.0), None);
        }
        let is_vdso = path == Path::new("[vdso]");
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

    /// Counts a hit of a process.
    pub(super) fn count(&mut self, place: Located, pid: i32) {
        let hits = match place {
            Some((Some(object), offset)) => {
                self.hits.get_mut(object.0).map(|hits| hits.entry(offset).or_default())
            }
            Some((None, FileOffset(address))) => {
                self.pids.insert(pid);
                Some(self.generated.entry(Avma(address)).or_default())
            }
            None => None,
        };
        *hits.unwrap_or(&mut self.unmapped) += 1;
    }

    /// What the processes with hits in memory without a file wrote about their code since `since`.
    pub(super) fn generated_code(&self, since: SystemTime) -> GeneratedCode {
        GeneratedCode::of_processes(&self.pids, since)
    }

    /// Hits in code that no file holds: by name, as far as it has one, and the others.
    pub(super) fn generated(&self, code: &GeneratedCode) -> (BTreeMap<String, u64>, u64) {
        let (mut named, mut others) = (BTreeMap::new(), self.unmapped);
        for (at, hits) in &self.generated {
            match code.name(*at) {
                Some(name) => *named.entry(name.to_owned()).or_default() += hits,
                None => others += hits,
            }
        }
        (named, others)
    }

    /// The file, or the name that the kernel has for it.
    pub(super) fn path(&self, id: ObjectId) -> Option<&Path> {
        self.ids.iter().find(|(_, other)| **other == id).map(|(path, _)| path.as_path())
    }

    /// All files seen, each at its number, and the number of the main program among them.
    pub(super) fn files(&self, main_program: Option<&Path>) -> (Vec<PathBuf>, Option<u32>) {
        let mut paths: Vec<(ObjectId, &PathBuf)> =
            self.ids.iter().map(|(path, id)| (*id, path)).collect();
        paths.sort_unstable_by_key(|(id, _)| id.0);
        let main = paths.iter().find(|(_, path)| Some(path.as_path()) == main_program);
        let main = main.map(|(id, _)| id.index());
        (paths.into_iter().map(|(_, path)| path.clone()).collect(), main)
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
        let space = enter(text.lines().filter_map(maps::parse_line).collect(), &mut tally);
        let main = object(&mut tally, "/bin/a b").unwrap();
        let at = |address| space.locate(Avma(address));
        assert_eq!(at(0x5555_1234), Some((Some(main), FileOffset(0x1234))));
        assert_eq!((at(0x5555_0000), at(0x5555_3000)), (None, None));
        assert_eq!(at(0x7fff_0010).unwrap().0, None);
        let vdso = object(&mut tally, "[vdso]").unwrap();
        assert_eq!(at(0x7fff_2010), Some((Some(vdso), FileOffset(0x10))));
    }

    #[test]
    fn memory_without_a_file_has_no_object() {
        let mut tally = Tally::default();
        for name in
            ["", "//anon", "[heap]", "[stack]", "/dev/zero (deleted)", "/memfd:doublemapper"]
        {
            assert_eq!(object(&mut tally, name), None, "{name}");
        }
    }

    #[test]
    fn files_come_out_by_samples_and_silent_ones_are_left_out() {
        let mut tally = Tally::default();
        let names = ["/few", "/none", "/many"];
        let ids = names.map(|name| object(&mut tally, name).unwrap());
        tally.count(Some((Some(ids[0]), FileOffset(1))), 7);
        tally.count(Some((Some(ids[2]), FileOffset(1))), 7);
        tally.count(Some((Some(ids[2]), FileOffset(1))), 7);
        tally.count(None, 7);
        let mut code = GeneratedCode::default();
        code.read(&b"1000 10 made"[..]);
        (0..3).for_each(|n| tally.count(Some((None, FileOffset(0x100e + n))), 7));
        assert_eq!(tally.generated(&code), ([("made".to_owned(), 2)].into(), 2));
        let objects = tally.into_objects(Some(Path::new("/few")));
        let paths: Vec<_> = objects.iter().map(|o| o.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/many", "/few"]);
        assert!(objects[1].is_main_program && !objects[0].is_main_program);
        assert_eq!(objects[0].hits[&FileOffset(1)], 2);
    }
}
