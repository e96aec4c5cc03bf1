//! Sockets: made, and asked of services that are not there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Verdict;
use super::written::full_path;
use crate::trace::engine::process::{Memories as _, Process};

/// A socket concerns nobody before it is connected or bound; many programs ask a service that is not there who their user is.
pub(super) fn judge(copy: &Process, number: i64, arguments: [u64; 6]) -> Option<Verdict> {
    match number {
        libc::SYS_socket => Some(Verdict::Run),
        libc::SYS_connect if is_to_nobody(copy, arguments) => {
            Some(Verdict::Answer(-i64::from(libc::ENOENT)))
        }
        libc::SYS_connect => {
            Some(Verdict::GiveUp("it connects to another program in the window".into()))
        }
        _ => None,
    }
}

/// Whether a socket is to be connected to a name in the file system that does not exist.
fn is_to_nobody(copy: &Process, [_, at, length, ..]: [u64; 6]) -> bool {
    const FAMILY_BYTES: usize = size_of::<libc::sa_family_t>();
    let mut bytes = [0; size_of::<libc::sockaddr_un>()];
    let length = bytes.len().min(length as usize);
    if length <= FAMILY_BYTES || copy.read(at, &mut bytes[..length]) != length {
        return false;
    }
    let (family, name) = bytes[..length].split_at(FAMILY_BYTES);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    // Names that begin with a zero are in no file system.
    if family != (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes() || name.is_empty() {
        return false;
    }
    let there = full_path(copy, libc::AT_FDCWD, Path::new(OsStr::from_bytes(name)));
    there.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
