//! One fingerprint for whatever has to be told apart: FNV-1a of 64 bits. Not for security.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::foreign;

const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

fn add(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

pub(crate) fn of(bytes: &[u8]) -> u64 {
    add(START, bytes)
}

/// Length in bytes and fingerprint, in hexadecimal, of what is left to read of `file`.
///
/// # Errors
/// When it cannot be read.
pub(super) fn of_file(mut file: File) -> io::Result<(u64, String)> {
    let mut buffer = vec![0_u8; 1 << 16];
    let (mut bytes, mut hash) = (0_u64, START);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, format!("{hash:016x}"))),
            n => {
                bytes += n as u64;
                hash = add(hash, &buffer[..n]);
            }
        }
    }
}

/// The same of the file at a path that input may have named.
///
/// # Errors
/// When it is no regular file or cannot be read.
pub(super) fn of_path(path: &Path) -> io::Result<(u64, String)> {
    of_file(foreign::open(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_fnv1a() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"foobar").unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        // From the test vectors of FNV: fnv1a_64("foobar").
        assert_eq!(of_file(file).unwrap(), (6, "85944171f73967e8".into()));
        assert_eq!(of(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
