//! What the kernel says of a process in `/proc`: fields of its status, its threads and its children.

use std::{fs, io};

/// `/proc/PID/status`.
pub struct Status(String);

impl Status {
    /// Reads it; `pid` is a process, a thread or `self`.
    pub fn of(pid: impl std::fmt::Display) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{pid}/status")).map(Self)
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    }

    /// The number of a process, such as `Tgid` or `PPid`.
    pub fn process(&self, name: &str) -> Option<i32> {
        self.field(name)?.parse().ok()
    }

    /// A set of signals, such as `SigIgn`: bit 0 for signal 1. Empty where the kernel does not say.
    pub fn signals(&self, name: &str) -> u64 {
        self.field(name).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
    }
}

/// `/proc/PID/stat`, as far as it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is called; may hold anything.
    pub name: String,
    /// A letter: `S` for asleep, `Z` for dead.
    pub state: char,
    /// The number of its parent.
    pub parent: i32,
    /// Of its process group.
    pub group: i32,
    /// Of its session.
    pub session: i32,
}

impl Stat {
    /// Reads it; `pid` is a process, or `PID/task/TID` for a thread. None of one that is gone.
    pub fn of(pid: impl std::fmt::Display) -> Option<Self> {
        Self::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// What `pid (name) state parent group session ...` says.
    pub fn parse(text: &str) -> Option<Self> {
        let (start, rest) = text.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?.chars().next()?;
        let mut number = || words.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        Some(Self { name: start.split_once('(')?.1.to_owned(), state, parent, group, session })
    }
}

/// Whether a filter (seccomp) judges the system calls of this process or thread; `false` where the
/// kernel does not say.
pub fn has_filter(pid: impl std::fmt::Display) -> bool {
    Status::of(pid).is_ok_and(|status| status.field("Seccomp").is_some_and(|mode| mode != "0"))
}

/// The threads of a process; none of one that is gone.
pub fn threads(pid: i32) -> Vec<i32> {
    numbers_in(&format!("/proc/{pid}/task")).collect()
}

/// All processes that `/proc` shows.
pub fn processes() -> impl Iterator<Item = i32> {
    numbers_in("/proc")
}

fn numbers_in(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The child processes of a process, whichever of its threads started them.
pub fn children(pid: i32) -> Vec<i32> {
    let list = |tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok();
    let lists: Vec<String> = threads(pid).into_iter().filter_map(list).collect();
    if lists.is_empty() {
        // A kernel that does not keep such lists.
        return children_by_parent(pid);
    }
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|p| p.parse().ok()).collect()
}

fn children_by_parent(of: i32) -> Vec<i32> {
    processes().filter(|pid| Stat::of(pid).is_some_and(|stat| stat.parent == of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_list_children_agree() {
        let (us, parent) = (std::process::id() as i32, std::os::unix::process::parent_id() as i32);
        assert!(children(parent).contains(&us) && children_by_parent(parent).contains(&us));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "Name:\tx\nSigIgn:\t0000000000001000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let status = Status(text.into());
        assert_eq!((status.field("Seccomp"), status.field("Sec")), (Some("2"), None));
        assert_eq!((status.signals("SigIgn"), status.signals("SigCgt")), (0x1000, 0));
        assert!(Status::of("self").unwrap().field("Name").is_some());
        let own = Status::of("thread-self").unwrap();
        let parent = std::os::unix::process::parent_id() as i32;
        assert_eq!(own.process("Tgid"), Some(std::process::id() as i32));
        assert_eq!((own.process("PPid"), own.process("Name")), (Some(parent), None));
    }
}
