//! What the kernel forbids a tracer, and what it takes from a traced program.

use std::io;
use std::path::Path;

use nix::unistd::{getegid, geteuid};

use super::OPTIONS;
use crate::model::Capability;
use crate::run::child::{Child, Launch};
use crate::run::tracee;

/// Why tracing would take rights from the program that its owner gave it, if it would.
pub(super) fn loses_rights(program: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let file = program.metadata().ok()?;
    let us = (geteuid().as_raw(), getegid().as_raw());
    lost_rights(file.mode(), (file.uid(), file.gid()), us).then(|| {
        format!(
            "{} runs with its owner's rights (set-uid or set-gid), which the kernel takes from it \
             while another user traces it; run stallscope as root",
            program.display()
        )
    })
}

fn lost_rights(mode: u32, owner: (u32, u32), us: (u32, u32)) -> bool {
    us.0 != 0
        && (mode & libc::S_ISUID != 0 && owner.0 != us.0
            || mode & libc::S_ISGID != 0 && owner.1 != us.1)
}

/// What forbids `ptrace`, and what to do about it.
pub(super) fn why_forbidden(cause: &io::Error) -> String {
    match tracee::scope().trim() {
        "2" => format!(
            "ptrace fails ({cause}): kernel.yama.ptrace_scope is 2; run as root, or set it to 1 \
             (sysctl kernel.yama.ptrace_scope=1)"
        ),
        "3" => format!(
            "ptrace fails ({cause}): kernel.yama.ptrace_scope is 3, which lasts until the machine \
             is started anew with another setting"
        ),
        _ => format!(
            "ptrace fails ({cause}): a container's filter or another tracer forbids it; start the \
             container with --cap-add=SYS_PTRACE --security-opt seccomp=unconfined, and do not run \
             under a debugger or strace"
        ),
    }
}

/// Whether a command of ours can be traced here.
pub(in crate::trace::engine) fn capability() -> Capability {
    if !cfg!(target_arch = "x86_64") {
        return Capability::absent("only x86-64 programs can be followed");
    }
    let launch = Launch { program: Path::new("/proc/self/exe").into(), ..Launch::default() };
    // Held before it executes anything, and killed when dropped.
    match Child::hold(&launch).map(|child| (tracee::seize(child.pid(), OPTIONS), child)) {
        Ok((Ok(()), _)) => Capability::Present,
        Ok((Err(cause), _)) => Capability::absent(why_forbidden(&cause)),
        Err(error) => Capability::absent(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_lost_by_what_has_others_than_ours() {
        let root = (0, 0);
        assert!(lost_rights(0o104_755, root, (1000, 1000)));
        assert!(lost_rights(0o102_755, (1000, 5), (1000, 1000)));
        assert!(!lost_rights(0o104_755, (1000, 1000), (1000, 1000)));
        assert!(!lost_rights(0o100_755, root, (1000, 1000)));
        assert!(!lost_rights(0o104_755, (1000, 1000), root), "root keeps them");
    }
}
