//! Profiles that other tools took, as weighted places in programs.
//!
//! Read are `perf.data`, the text of `perf script`, callgrind's output and Go's pprof. The kind is
//! told from the content. Only the place where a sample was taken counts, not who called it.
//! `perf.data` and callgrind's files have their readers elsewhere in `trace`; here they become places.

mod perf_data;
mod perf_script;
mod pprof;

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use super::callgrind::{self, Callgrind, CallgrindError};
use super::perf_data::{PerfData, PerfDataError};
use crate::foreign::{self, plain_lines};
use crate::model::HotSpot;

/// Texts and compressed profiles larger than this are refused; `perf.data` and callgrind's output are
/// read as streams.
const LARGEST_BYTES: u64 = 1 << 30;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ProfileDataError {
    #[error("cannot read the profile {path}: {cause}")]
    Unreadable { path: PathBuf, cause: std::io::Error },
    #[error(
        "{0} is no profile that can be read: expected perf.data, the text of `perf script`, \
         callgrind output or a Go profile (pprof)"
    )]
    Unknown(PathBuf),
    /// Its kind is clear, but it is damaged or of an unknown version.
    #[error("the {kind} profile {path} is damaged: {detail}")]
    Damaged { path: PathBuf, kind: &'static str, detail: String },
    /// A `perf.data` that cannot be used.
    #[error(transparent)]
    PerfData(#[from] PerfDataError),
    /// An output of callgrind that cannot be used.
    #[error(transparent)]
    Callgrind(#[from] CallgrindError),
    #[error("the profile {0} holds no samples")]
    Empty(PathBuf),
    /// It is too large to be what it says.
    #[error("the profile {0} is larger than 1 GiB; record for a shorter time")]
    TooLarge(PathBuf),
}

/// Reads a profile of any known kind.
///
/// # Errors
/// See [`ProfileDataError`].
pub fn read(path: &Path) -> Result<Vec<HotSpot>, ProfileDataError> {
    let unreadable = |cause| ProfileDataError::Unreadable { path: path.into(), cause };
    let mut file = BufReader::new(foreign::open(path).map_err(unreadable)?);
    let mut magic = Vec::new();
    file.by_ref().take(8).read_to_end(&mut magic).map_err(unreadable)?;
    let spots = if magic == b"PERFILE2" {
        perf_data::spots(&PerfData::read(path)?)
    } else if Callgrind::is_one(path) {
        callgrind::hot_spots(path, callgrind::open(path)?)?
    } else {
        let mut bytes = magic;
        let room = LARGEST_BYTES - bytes.len() as u64 + 1;
        file.take(room).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > LARGEST_BYTES {
            return Err(ProfileDataError::TooLarge(path.into()));
        }
        of_bytes(&bytes, path)?
    };
    if spots.is_empty() {
        return Err(ProfileDataError::Empty(path.into()));
    }
    Ok(spots)
}

/// The samples of a text that `perf script` printed; `None` for any other file.
#[must_use]
pub fn perf_script_of(path: &Path) -> Option<Vec<HotSpot>> {
    let mut file = BufReader::new(foreign::open(path).ok()?).take(LARGEST_BYTES);
    let mut magic = Vec::new();
    file.by_ref().take(8).read_to_end(&mut magic).ok()?;
    // Not to be read to its end in search of text.
    if magic == b"PERFILE2" {
        return None;
    }
    let mut text = String::from_utf8(magic).ok()?;
    file.read_to_string(&mut text).ok()?;
    Some(perf_script::read(&plain_lines(&text))).filter(|spots| !spots.is_empty())
}

/// Reads a profile that is in memory. `path` is for messages.
///
/// # Errors
/// See [`ProfileDataError`].
pub fn of_bytes(bytes: &[u8], path: &Path) -> Result<Vec<HotSpot>, ProfileDataError> {
    let damaged = |kind, detail| ProfileDataError::Damaged { path: path.into(), kind, detail };
    if bytes.is_empty() {
        return Err(ProfileDataError::Empty(path.into()));
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return pprof::read_compressed(bytes).map_err(|e| damaged("pprof", e.to_string()));
    }
    if bytes.starts_with(b"PERFILE2") {
        return Ok(perf_data::spots(&PerfData::parse(path, bytes)?));
    }
    if callgrind::is_start(bytes) {
        return Ok(callgrind::hot_spots(path, bytes)?);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let spots = perf_script::read(&plain_lines(text));
        if !spots.is_empty() {
            return Ok(spots);
        }
    }
    match pprof::read(bytes) {
        Ok(spots) if !spots.is_empty() => Ok(spots),
        _ => Err(ProfileDataError::Unknown(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_refusal_has_its_own_sentence() {
        let complaint = |bytes: &[u8]| of_bytes(bytes, Path::new("p")).unwrap_err().to_string();
        assert!(complaint(b"").contains("no samples"));
        assert!(complaint(b"hello there\n").contains("expected perf.data"));
        assert!(complaint(&[0x1f, 0x8b, 1, 2]).contains("pprof profile p is damaged"));
        assert!(complaint(b"# callgrind format\nfn=(1\n").contains("callgrind"));
        assert!(complaint(&[0xff; 40]).contains("expected perf.data"));
        let missing = read(Path::new("/no/such")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the profile /no/such"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let cut = folder.path().join("perf.data");
        std::fs::write(&cut, b"PERFILE2 and no more").unwrap();
        assert!(read(&cut).unwrap_err().to_string().contains("is truncated"));
    }

    proptest! {
        #[test]
        fn nonsense_is_refused_and_never_ends_us(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = of_bytes(&bytes, Path::new("p"));
            let text = [b"# callgrind format\npositions: instr line\n".as_slice(), &bytes].concat();
            let _ = of_bytes(&text, Path::new("p"));
        }
    }
}
