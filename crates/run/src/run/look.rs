//! A look at a running process from outside: the files whose code it maps, and its threads. It needs
//! no right beyond that to its own children, and stops nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::maps;
use crate::foreign::{children, threads};

/// Processes of one run that are looked at, at the most.
const MOST_PROCESSES: usize = 64;

/// What was seen of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Files with code that one of its processes had mapped.
    pub files: BTreeSet<PathBuf>,
    /// The most threads that one of its processes had at once.
    pub threads: u32,
    calls: u32,
    /// Calls that are left out until the next look.
    left_out: u32,
}

impl Seen {
    /// Looks at a process and its children, at the first call and then ever more seldom, for most is
    /// mapped at the start and looking costs time. What is mapped later is seen when it stays for an
    /// eighth of the run so far.
    pub fn look(&mut self, pid: i32) {
        self.calls += 1;
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        self.left_out = self.calls / 8;
        self.look_at(pid, &mut 0);
    }

    fn look_at(&mut self, pid: i32, visited: &mut usize) {
        *visited += 1;
        if *visited > MOST_PROCESSES {
            return;
        }
        // A process that has ended meanwhile has nothing to show.
        let lines = maps::read(pid).unwrap_or_default();
        if lines.is_empty() {
            return;
        }
        self.enter(lines);
        self.threads = self.threads.max(u32::try_from(threads(pid).len()).unwrap_or(u32::MAX));
        for child in children(pid) {
            self.look_at(child, visited);
        }
    }

    fn enter(&mut self, lines: Vec<maps::Line>) {
        let files = lines.into_iter().filter(|line| line.executable).map(|line| line.mapping.path);
        self.files.extend(files.filter(|path| path.is_absolute()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_code_are_seen_and_other_memory_is_not() {
        let mut seen = Seen::default();
        let text = "1000-2000 r-xp 00000000 fe:00 12     /bin/a b\n\
         2000-3000 r--p 00001000 fe:00 12     /usr/share/locale\n\
         3000-4000 r-xp 00000000 00:00 0      [vdso]\n\
         4000-5000 r-xp 00000000 fe:00 13     /lib/libc.so.6\n";
        seen.enter(text.lines().filter_map(maps::parse_line).collect());
        let files: Vec<_> = seen.files.iter().filter_map(|f| f.to_str()).collect();
        assert_eq!(files, ["/bin/a b", "/lib/libc.so.6"]);
    }

    #[test]
    fn our_own_program_and_threads_are_seen() {
        let mut seen = Seen::default();
        seen.look(i32::try_from(std::process::id()).unwrap());
        assert!(seen.files.contains(&std::fs::read_link("/proc/self/exe").unwrap()));
        assert!(seen.threads >= 1);
    }

    #[test]
    fn what_is_mapped_late_is_seen_before_long() {
        let mut seen = Seen::default();
        let pid = i32::try_from(std::process::id()).unwrap();
        (0..600).for_each(|_| seen.look(pid));
        seen.files.clear();
        (0..76).for_each(|_| seen.look(pid));
        assert!(!seen.files.is_empty());
    }
}
