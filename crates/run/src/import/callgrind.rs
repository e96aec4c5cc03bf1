//! Callgrind's output: how often every instruction ran, and what its cache model missed there.
//!
//! `valgrind --tool=callgrind --dump-instr=yes --cache-sim=yes` counts every instruction of a run by
//! address and simulates an instruction cache with true least-recently-used replacement. Samples
//! find the lines where time goes; this finds every line that is in use, and who misses. Addresses
//! are those of the file, whatever the process was loaded to.
//!
//! This is the one reader of such files: [`Callgrind`] needs addresses, [`hot_spots`] does with
//! functions.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::foreign::{self, plain_bytes};
use crate::model::{HotPlace, HotSpot, Svma};

/// Where the first lines are looked for what says that a file is callgrind's.
const START_BYTES: u64 = 512;
/// Such files have some ten bytes for each instruction that ran.
const MOST_BYTES: u64 = 1 << 30;
/// Names of templates are long, but not like this.
const MOST_LINE_BYTES: u64 = 1 << 20;
const EXECUTIONS: &str = "Ir";
const MISSES: &str = "I1mr";

/// Why callgrind's output cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum CallgrindError {
    #[error("{path} cannot be read: {cause}")]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{0} has no addresses; run valgrind --tool=callgrind --dump-instr=yes --cache-sim=yes")]
    NoAddresses(PathBuf),
    #[error("{path} is damaged at line {line}: {detail}; run callgrind again")]
    Damaged {
        path: PathBuf,
        /// From 1.
        line: usize,
        detail: &'static str,
    },
    #[error("{recording} has nothing of {program}, but of {others}; name the program that ran")]
    NotRecorded { program: PathBuf, recording: PathBuf, others: String },
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
    /// Whether the first lines of a file say that it is callgrind's.
    #[must_use]
    pub fn is_one(path: &Path) -> bool {
        let mut start = Vec::new();
        let read = foreign::open(path).and_then(|f| f.take(START_BYTES).read_to_end(&mut start));
        read.is_ok() && is_start(&start)
    }

    /// Reads a whole output file.
    ///
    /// # Errors
    /// See [`CallgrindError`].
    pub fn read(path: &Path) -> Result<Self, CallgrindError> {
        Self::parse(path, open(path)?)
    }

    /// Reads text that is already at hand; `path` is for messages.
    ///
    /// # Errors
    /// As [`Callgrind::read`].
    pub fn parse(path: &Path, text: impl BufRead) -> Result<Self, CallgrindError> {
        let mut objects: FxHashMap<Rc<str>, BTreeMap<Svma, InsnCounts>> = FxHashMap::default();
        let header = each_cost(path, text, |header, cost| {
            let Some(at) = cost.address else { return };
            let column = |index: Option<usize>| index.and_then(|i| cost.counts.get(i)).copied();
            if !objects.contains_key(cost.object) {
                objects.insert(cost.object.clone(), BTreeMap::new());
            }
            if let Some(object) = objects.get_mut(cost.object) {
                let sum = object.entry(at).or_default();
                let executions = column(header.executions_column).unwrap_or(0);
                sum.executions = sum.executions.saturating_add(executions);
                let misses = column(header.misses_column).unwrap_or(0);
                sum.l1i_misses = sum.l1i_misses.saturating_add(misses);
            }
        })?;
        if !header.has_addresses {
            return Err(CallgrindError::NoAddresses(path.into()));
        }
        let objects = objects.into_iter().map(|(name, counts)| (PathBuf::from(&*name), counts));
        Ok(Self { path: path.into(), cache: header.cache, objects: objects.collect() })
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

pub(super) fn open(path: &Path) -> Result<impl BufRead, CallgrindError> {
    foreign::open_within(path, MOST_BYTES)
        .map(BufReader::new)
        .map_err(|cause| CallgrindError::Unreadable { path: path.into(), cause })
}

/// Whether bytes are the start of callgrind's output, old versions included.
#[must_use]
pub fn is_start(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(START_BYTES as usize)];
    let says_so = |line: &[u8]| {
        line.starts_with(b"# callgrind format") || line.starts_with(b"creator: callgrind")
    };
    start.split(|byte| *byte == b'\n').take(5).any(says_so)
}

/// What the costs of a line are booked on: an address, or where there is none a function.
#[derive(PartialEq, Eq, Hash)]
enum CostTarget {
    At(Svma),
    In(Rc<str>),
}

/// What everything cost by itself, in the first event that was counted: per instruction where there
/// are addresses, else per function.
///
/// # Errors
/// As [`Callgrind::read`], but for the addresses.
pub fn hot_spots(path: &Path, text: impl BufRead) -> Result<Vec<HotSpot>, CallgrindError> {
    let mut sums: FxHashMap<(Rc<str>, CostTarget), u64> = FxHashMap::default();
    each_cost(path, text, |_, cost| {
        let weight = cost.counts.first().copied().unwrap_or(0);
        let place =
            cost.address.map_or_else(|| CostTarget::In(cost.function.clone()), CostTarget::At);
        if weight > 0 {
            let sum = sums.entry((cost.object.clone(), place)).or_default();
            *sum = sum.saturating_add(weight);
        }
    })?;
    let mut spots = Vec::new();
    for ((object, place), weight) in sums {
        let place = match place {
            CostTarget::At(at) => HotPlace::Stated(at),
            CostTarget::In(name) if name.is_empty() => continue,
            CostTarget::In(name) => {
                HotPlace::Function { name: name.to_string(), offset_bytes: None }
            }
        };
        let object = Some(object.to_string()).filter(|o| !o.is_empty());
        spots.push(HotSpot { object, place, weight: weight as f64 });
    }
    spots.sort_by(|x, y| y.weight.total_cmp(&x.weight));
    Ok(spots)
}

#[derive(Default)]
struct Header {
    has_addresses: bool,
    /// Positions in front of the counts of a line.
    positions: usize,
    executions_column: Option<usize>,
    misses_column: Option<usize>,
    cache: Option<String>,
}

/// One line of costs that are a function's own.
struct Cost<'a> {
    object: &'a Rc<str>,
    function: &'a Rc<str>,
    address: Option<Svma>,
    counts: &'a [u64],
}

fn each_cost(
    path: &Path,
    mut text: impl BufRead,
    mut take: impl FnMut(&Header, Cost<'_>),
) -> Result<Header, CallgrindError> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let damaged = |detail| CallgrindError::Damaged { path: path.into(), line: number, detail };
        match text.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(bytes) if bytes as u64 == MOST_LINE_BYTES => {
                return Err(damaged("the line is longer than 1 MiB"));
            }
            Ok(_) => {}
            Err(cause) => return Err(CallgrindError::Unreadable { path: path.into(), cause }),
        }
        // Paths need not be text; what is counted is.
        reader.take(&plain_bytes(line.trim_ascii_end()), &mut take).map_err(damaged)?;
    }
    Ok(reader.header)
}

/// Reads line by line; numbers and names may refer to earlier ones.
#[derive(Default)]
struct Reader {
    header: Header,
    objects: Names,
    functions: Names,
    object: Rc<str>,
    function: Rc<str>,
    address: u64,
    counts: Vec<u64>,
    /// The next line is what a call cost inside, which is counted at the callee.
    skips_next: bool,
}

impl Reader {
    fn take(
        &mut self,
        line: &str,
        sink: &mut impl FnMut(&Header, Cost<'_>),
    ) -> Result<(), &'static str> {
        if let Some(b'0'..=b'9' | b'+' | b'-' | b'*') = line.bytes().next() {
            return self.take_counts(line, sink);
        }
        let header = &mut self.header;
        if let Some(positions) = line.strip_prefix("positions:") {
            let names: Vec<&str> = positions.split_whitespace().collect();
            header.has_addresses = names.first() == Some(&"instr");
            header.positions = names.len();
        } else if let Some(events) = line.strip_prefix("events:") {
            let column = |name: &str| events.split_whitespace().position(|e| e == name);
            (header.executions_column, header.misses_column) = (column(EXECUTIONS), column(MISSES));
        } else if let Some(cache) = line.strip_prefix("desc: I1 cache:") {
            header.cache = Some(cache.trim().to_owned());
        } else if let Some(object) = line.strip_prefix("ob=") {
            self.object = self.objects.full(object)?;
        } else if let Some(function) = line.strip_prefix("fn=") {
            self.function = self.functions.full(function)?;
        } else if let Some(callee) = line.strip_prefix("cob=") {
            // Only to learn what the number stands for, here and below.
            self.objects.full(callee)?;
        } else if let Some(callee) = line.strip_prefix("cfn=") {
            self.functions.full(callee)?;
        } else if line.starts_with("calls=") {
            self.skips_next = true;
        }
        // Source files, jumps and what newer versions add are stepped over.
        Ok(())
    }

    fn take_counts(
        &mut self,
        line: &str,
        sink: &mut impl FnMut(&Header, Cost<'_>),
    ) -> Result<(), &'static str> {
        let mut words = line.split_whitespace();
        let has_addresses = self.header.has_addresses;
        if has_addresses {
            let word = words.next().unwrap_or_default();
            self.address = moved(self.address, word).ok_or("an address that is none")?;
        }
        if std::mem::take(&mut self.skips_next) {
            return Ok(());
        }
        self.counts.clear();
        // Without a word about positions there is one, the line.
        let lines = self.header.positions.max(1) - usize::from(has_addresses);
        for count in words.skip(lines) {
            self.counts.push(count.parse().map_err(|_| "a count that is none")?);
        }
        let address = has_addresses.then_some(Svma(self.address));
        let (object, function, counts) = (&self.object, &self.function, &self.counts);
        sink(&self.header, Cost { object, function, address, counts });
        Ok(())
    }
}

/// A position: absolute in hex or decimal, or relative to the last one.
fn moved(last: u64, word: &str) -> Option<u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match word.split_at_checked(1)? {
        ("*", "") => Some(last),
        ("+", by) => last.checked_add(number(by)?),
        ("-", by) => last.checked_sub(number(by)?),
        _ => number(word),
    }
}

/// `(5) name` says what 5 stands for, `(5)` means it again, anything else is a name without a number.
#[derive(Default)]
struct Names(FxHashMap<u64, Rc<str>>);

impl Names {
    fn full(&mut self, text: &str) -> Result<Rc<str>, &'static str> {
        let Some(rest) =
            text.strip_prefix('(').filter(|r| r.starts_with(|c: char| c.is_ascii_digit()))
        else {
            return Ok(text.into());
        };
        let (number, name) = rest.split_once(')').ok_or("a name whose number does not end")?;
        let number = number.parse().map_err(|_| "a name with a number that is none")?;
        match name.trim() {
            "" => Ok(self.0.get(&number).cloned().unwrap_or_default()),
            name => {
                let name: Rc<str> = name.into();
                self.0.insert(number, name.clone());
                Ok(name)
            }
        }
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
    fn lines_without_end_and_files_that_are_too_large_are_refused() {
        let endless = format!("{TEXT}fn={}", "x".repeat(MOST_LINE_BYTES as usize));
        let said = parse(&endless).unwrap_err().to_string();
        assert!(said.contains("longer than 1 MiB"), "{said}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("callgrind.out.1");
        std::fs::write(&path, TEXT).unwrap();
        assert!(Callgrind::read(&path).is_ok());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let said = Callgrind::read(&path).unwrap_err().to_string();
        assert!(said.contains("larger than the 1024 MiB"), "{said}");
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

    fn spots(text: &str) -> Vec<HotSpot> {
        let mut spots = hot_spots(Path::new("c"), text.as_bytes()).unwrap();
        spots.sort_by_key(|s| format!("{:?}", s.place));
        spots
    }

    #[test]
    fn own_costs_are_summed_per_address_or_per_function() {
        let seen: Vec<_> = spots(TEXT).iter().map(|s| (s.place.clone(), s.weight)).collect();
        let at = |svma| HotPlace::Stated(Svma(svma));
        assert_eq!(seen.len(), 4);
        for spot in [(at(0x1000), 15.0), (at(0x1003), 10.0), (at(0x5000), 1.0), (at(0x5000), 7.0)] {
            assert!(seen.contains(&spot), "{spot:?} in {seen:?}");
        }
        let without = "version: 1\ncreator: callgrind-3.19.0\nevents: Ir\nob=(1) /bin/p\nfn=(1) hot\n\
            5 10\n+1 20\ncfn=(2) (anonymous namespace)::other(int)\ncalls=1 9\n* 500\nfn=(2)\n9 3\n\
            fn=(anonymous namespace)::third()\n1 4\n";
        assert!(is_start(without.as_bytes()) && !is_start(b"version: 1\nevents: Ir\n"));
        let named = |name: &str, weight| HotSpot {
            object: Some("/bin/p".into()),
            place: HotPlace::Function { name: name.into(), offset_bytes: None },
            weight,
        };
        let other = named("(anonymous namespace)::other(int)", 3.0);
        let third = named("(anonymous namespace)::third()", 4.0);
        assert_eq!(spots(without), [other, third, named("hot", 30.0)]);
        let said = |text: &str| hot_spots(Path::new("c"), text.as_bytes()).unwrap_err().to_string();
        assert!(said("# callgrind format\nfn=(1\n").contains("line 2: a name whose number"));
    }

    #[test]
    fn positions_may_be_relative_in_hex() {
        let text = TEXT.replace("+3 *", "+0x3 *");
        assert_eq!(parse(&text).unwrap(), parse(TEXT).unwrap());
    }
}
