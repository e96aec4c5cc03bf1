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

/// Whether a filter (seccomp) judges the system calls of this process or thread; `false` where the
/// kernel does not say.
pub fn has_filter(pid: impl std::fmt::Display) -> bool {
    Status::of(pid).is_ok_and(|status| status.field("Seccomp").is_some_and(|mode| mode != "0"))
}

/// The threads of a process; none of one that is gone.
pub fn threads(pid: i32) -> Vec<i32> {
    numbers_in(&format!("/proc/{pid}/task")).collect()
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
    let of = of.to_string();
    numbers_in("/proc")
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
            parent == Some(of.as_str())
        })
        .collect()
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
