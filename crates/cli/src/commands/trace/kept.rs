//! A window kept in memory while it is followed: the model of the core runs through it many times.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use stallscope::foreign;
use stallscope::trace::engine::Recording;
use stallscope::trace::recorded::Writer;

/// A window that takes more is refused: some five hundred million instructions.
const MOST_BYTES: usize = 1 << 30;

/// A recording in memory, up to a limit.
pub struct Kept {
    bytes: Vec<u8>,
    most: usize,
}

impl Kept {
    /// A sink that keeps what it is told.
    pub fn writer() -> Writer<Self> {
        Writer::new(Self { bytes: Vec::new(), most: MOST_BYTES })
    }
}

impl Write for Kept {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.most {
            // The window is followed to its end all the same; the memory is better used for that.
            self.bytes = Vec::new();
            let mib = self.most >> 20;
            return Err(io::Error::other(format!(
                "the recording of the window is larger than {mib} MiB, which is the most that is modelled: \
                 make the window shorter with --instructions or --window"
            )));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The recording as a file would hold it.
///
/// # Errors
/// When it is too large.
pub fn finish(kept: Writer<Kept>, recording: &Recording) -> anyhow::Result<Vec<u8>> {
    Ok(kept.finish(recording).context("no cycles")?.bytes)
}

/// The same from a file.
///
/// # Errors
/// When it is too large, or cannot be read.
pub fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    foreign::read(file, MOST_BYTES as u64)
        .with_context(|| format!("cannot open {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_refused_and_let_go() {
        let mut kept = Kept { bytes: Vec::new(), most: 2 << 20 };
        kept.write_all(&[0; 1 << 20]).unwrap();
        kept.write_all(&[0; 1 << 20]).unwrap();
        let error = kept.write_all(&[0]).unwrap_err().to_string();
        assert!(error.contains("larger than 2 MiB") && error.contains("--instructions"), "{error}");
        assert_eq!(kept.bytes.capacity(), 0);
    }
}
