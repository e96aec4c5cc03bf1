//! A look at a running process from outside: the files whose code it maps, and its threads. It needs
//! no right beyond that to its own children, and stops nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::maps;

/// Processes of one run that are looked at, at the most.
const MOST_PROCESSES: usize = 64;

/// What was seen of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Files with code that one of its processes had mapped.
    pub files: BTreeSet<PathBuf>,
    /// The most threads that one of its processes had at once.
    pub threads: u32,
    looks: u32,
}

impl Seen {
    /// Looks at a process and its children, at the first call and then ever more seldom: libraries
    /// are mapped at the start, and looking costs time.
    pub fn look(&mut self, pid: i32) {
        self.looks += 1;
        if self.looks.is_power_of_two() {
            self.look_at(pid, &mut 0);
        }
    }

    fn look_at(&mut self, pid: i32, visited: &mut usize) {
        *visited += 1;
        if *visited > MOST_PROCESSES {
            return;
        }
        // A process that has ended meanwhile has nothing to show.
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let maps = read("maps");
        if maps.is_empty() {
            return;
        }
        self.read_maps(&maps);
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        self.threads = self.threads.max(u32::try_from(threads).unwrap_or(u32::MAX));
        for child in read(&format!("task/{pid}/children")).split_whitespace() {
            if let Ok(child) = child.parse() {
                self.look_at(child, visited);
            }
        }
    }

    fn read_maps(&mut self, text: &str) {
        let mapped = text.lines().filter_map(maps::parse_line).filter(|m| m.executable);
        let files = mapped.filter(|m| m.path.is_absolute()).map(|m| m.path.to_owned());
        self.files.extend(files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_code_are_seen_and_other_memory_is_not() {
        let mut seen = Seen::default();
        seen.read_maps(
            "1000-2000 r-xp 00000000 fe:00 12     /bin/a b\n\
             2000-3000 r--p 00001000 fe:00 12     /usr/share/locale\n\
             3000-4000 r-xp 00000000 00:00 0      [vdso]\n\
             4000-5000 r-xp 00000000 fe:00 13     /lib/libc.so.6\n",
        );
        let files: Vec<_> = seen.files.iter().filter_map(|f| f.to_str()).collect();
        assert_eq!(files, ["/bin/a b", "/lib/libc.so.6"]);
    }

    #[test]
    fn our_own_program_and_threads_are_seen() {
        let mut seen = Seen::default();
        seen.look(i32::try_from(std::process::id()).unwrap());
        assert!(seen.files.contains(&fs::read_link("/proc/self/exe").unwrap()));
        assert!(seen.threads >= 1);
    }
}
