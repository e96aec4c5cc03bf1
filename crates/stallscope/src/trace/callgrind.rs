//! Callgrind's output: how often every instruction ran, and what its cache model missed there.
//!
//! `valgrind --tool=callgrind --dump-instr=yes --cache-sim=yes` counts every instruction of a run by
//! address and simulates an instruction cache with true least-recently-used replacement. Samples
//! find the lines where time goes; this finds every line that is in use, and who misses. Addresses
//! are those of the file, whatever the process was loaded to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::model::Svma;

/// Why callgrind's output cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallgrindError {
    /// Missing or forbidden.
    #[error("{path} cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's word for it.
        cause: io::Error,
    },
    /// Counted by source line only.
    #[error("{0} has no addresses; run valgrind --tool=callgrind --dump-instr=yes --cache-sim=yes")]
    NoAddresses(PathBuf),
    /// A line that is not in the format.
    #[error("{path} is damaged at line {line}: {detail}; run callgrind again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What does not fit.
        detail: &'static str,
    },
    /// The program does not occur.
    #[error("{recording} has nothing of {program}, but of {others}; name the program that ran")]
    NotRecorded {
        /// The program.
        program: PathBuf,
        /// The output.
        recording: PathBuf,
        /// The programs that it has.
        others: String,
    },
}

/// What happened at one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsnCounts {
    /// How often it ran.
    pub executions: u64,
    /// How often fetching it missed the simulated instruction cache.
    pub l1i_misses: u64,
}

/// One output file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callgrind {
    /// The file.
    pub path: PathBuf,
    /// The simulated instruction cache as callgrind describes it: size, line, ways; absent
    /// without `--cache-sim=yes`.
    pub cache: Option<String>,
    /// Counts per program or library.
    pub objects: BTreeMap<PathBuf, BTreeMap<Svma, InsnCounts>>,
}

impl Callgrind {
    /// Whether the first line of a file says that it is callgrind's.
    #[must_use]
    pub fn is_one(path: &Path) -> bool {
        let mut start = Vec::new();
        let read = File::open(path).and_then(|file| {
            BufReader::new(io::Read::take(file, 64)).read_until(b'\n', &mut start)
        });
        read.is_ok() && start.starts_with(b"# callgrind format")
    }

    /// Reads a whole output file.
    ///
    /// # Errors
    /// See [`CallgrindError`].
    pub fn read(path: &Path) -> Result<Self, CallgrindError> {
        let unreadable = |cause| CallgrindError::Unreadable { path: path.into(), cause };
        Self::parse(path, BufReader::new(File::open(path).map_err(unreadable)?))
    }

    /// Reads text that is already at hand; `path` is for messages.
    ///
    /// # Errors
    /// As [`Callgrind::read`].
    pub fn parse(path: &Path, mut text: impl BufRead) -> Result<Self, CallgrindError> {
        let mut reader =
            Reader { found: Self { path: path.into(), ..Self::default() }, ..Reader::default() };
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = text.read_until(b'\n', &mut line);
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(cause) => return Err(CallgrindError::Unreadable { path: path.into(), cause }),
            }
            // Paths need not be text; what is counted is.
            let text = String::from_utf8_lossy(&line);
            reader.take(text.trim_end()).map_err(|detail| CallgrindError::Damaged {
                path: path.into(),
                line: number,
                detail,
            })?;
        }
        if !reader.has_addresses {
            return Err(CallgrindError::NoAddresses(path.into()));
        }
        Ok(reader.found)
    }

    /// The counts of one program, by its path, else by its name.
    ///
    /// # Errors
    /// [`CallgrindError::NotRecorded`].
    pub fn in_program(
        &self,
        program: &Path,
    ) -> Result<&BTreeMap<Svma, InsnCounts>, CallgrindError> {
        let real = program.canonicalize().unwrap_or_else(|_| program.into());
        let named = || self.objects.iter().find(|(path, _)| path.file_name() == real.file_name());
        self.objects.get(&real).or_else(|| named().map(|(_, counts)| counts)).ok_or_else(|| {
            let others: Vec<String> =
                self.objects.keys().take(3).map(|path| path.display().to_string()).collect();
            CallgrindError::NotRecorded {
                program: program.into(),
                recording: self.path.clone(),
                others: if others.is_empty() { "nothing".into() } else { others.join(", ") },
            }
        })
    }
}

/// Reads line by line; numbers and names may refer to earlier ones.
#[derive(Default)]
struct Reader {
    found: Callgrind,
    has_addresses: bool,
    /// Positions in front of the counts of a line.
    positions: usize,
    executions_column: Option<usize>,
    misses_column: Option<usize>,
    names: BTreeMap<String, PathBuf>,
    object: PathBuf,
    address: u64,
    /// The next line is what a call cost inside, which is counted at the callee.
    skips_next: bool,
}

impl Reader {
    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let first = line.bytes().next();
        if let Some(b'0'..=b'9' | b'+' | b'-' | b'*') = first {
            return self.take_counts(line);
        }
        if let Some(positions) = line.strip_prefix("positions:") {
            let names: Vec<&str> = positions.split_whitespace().collect();
            self.has_addresses = names.first() == Some(&"instr");
            self.positions = names.len();
        } else if let Some(events) = line.strip_prefix("events:") {
            let column = |name: &str| events.split_whitespace().position(|e| e == name);
            (self.executions_column, self.misses_column) = (column("Ir"), column("I1mr"));
        } else if let Some(cache) = line.strip_prefix("desc: I1 cache:") {
            self.found.cache = Some(cache.trim().to_owned());
        } else if let Some(object) = line.strip_prefix("ob=") {
            self.object = self.name(object);
        } else if let Some(callee) = line.strip_prefix("cob=") {
            // Only to learn what the number stands for.
            self.name(callee);
        } else if line.starts_with("calls=") {
            self.skips_next = true;
        }
        Ok(())
    }

    /// `(5) /path` says what 5 stands for, `(5)` means it again.
    fn name(&mut self, text: &str) -> PathBuf {
        let Some((number, name)) = text.split_once(')') else { return text.into() };
        match name.trim() {
            "" => self.names.get(number).cloned().unwrap_or_default(),
            name => {
                self.names.insert(number.to_owned(), name.into());
                name.into()
            }
        }
    }

    fn take_counts(&mut self, line: &str) -> Result<(), &'static str> {
        if !self.has_addresses {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        self.address = match word.split_at_checked(1) {
            Some(("*", "")) => Some(self.address),
            Some(("+", by)) => by.parse().ok().and_then(|by| self.address.checked_add(by)),
            Some(("-", by)) => by.parse().ok().and_then(|by| self.address.checked_sub(by)),
            _ => match word.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => word.parse().ok(),
            },
        }
        .ok_or("an address that is none")?;
        if std::mem::take(&mut self.skips_next) {
            return Ok(());
        }
        let mut counts = InsnCounts::default();
        for (column, count) in words.skip(self.positions.saturating_sub(1)).enumerate() {
            let count: u64 = count.parse().map_err(|_| "a count that is none")?;
            if Some(column) == self.executions_column {
                counts.executions = count;
            } else if Some(column) == self.misses_column {
                counts.l1i_misses = count;
            }
        }
        if !self.found.objects.contains_key(&self.object) {
            self.found.objects.insert(self.object.clone(), BTreeMap::new());
        }
        if let Some(object) = self.found.objects.get_mut(&self.object) {
            let sum = object.entry(Svma(self.address)).or_default();
            sum.executions = sum.executions.saturating_add(counts.executions);
            sum.l1i_misses = sum.l1i_misses.saturating_add(counts.l1i_misses);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# callgrind format
desc: I1 cache: 32768 B, 64 B, 8-way associative
positions: instr line
events: Ir Dr I1mr
ob=(1) /bin/work
fn=(1) main
0x1000 3 10 0 2
+3 * 10
cob=(2) /lib/libc.so
calls=1 0x5000 0
* * 999 999 999
-3 0 5 0 1
ob=(2)
0x5000 0 7
ob=(1)
* 0 1
";

    fn parse(text: &str) -> Result<Callgrind, CallgrindError> {
        Callgrind::parse(Path::new("callgrind.out"), text.as_bytes())
    }

    #[test]
    fn counts_are_summed_per_address_and_calls_are_left_to_the_callee() {
        let found = parse(TEXT).unwrap();
        let work = found.in_program(Path::new("/elsewhere/work")).unwrap();
        let counts = |at: u64| (work[&Svma(at)].executions, work[&Svma(at)].l1i_misses);
        assert_eq!((counts(0x1000), counts(0x1003)), ((15, 3), (10, 0)));
        assert_eq!(counts(0x5000), (1, 0));
        assert_eq!(found.objects[Path::new("/lib/libc.so")].len(), 1);
        assert!(found.cache.unwrap().contains("8-way"));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert!(said("# callgrind format\npositions: line\nevents: Ir\n").contains("--dump-instr"));
        assert!(said(&TEXT.replace("0x1000 3", "0xg 3")).contains("line 7"));
        assert!(said(&TEXT.replace("10 0 2", "x")).contains("a count that is none"));
        let found = parse(TEXT).unwrap();
        let error = found.in_program(Path::new("/bin/other")).unwrap_err().to_string();
        assert!(error.contains("/bin/work"), "{error}");
    }
}
