//! The records that the kernel writes into a `perf_event_open` ring, read from plain bytes.
//!
//! Only what sampling needs, in the layout that `super::ring` asks for: samples of instruction
//! pointer, process and time, behind them registers and stack where these are asked for, and process and time behind every other record. Pure, and total: any
//! bytes give records, an error for each that makes no sense, and an end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use perf_event_open_sys::bindings as sys;

use super::Snapshot;
use crate::code::Registers;
use crate::foreign::Bytes;
use crate::model::{Avma, FileOffset};

const HEADER_BYTES: usize = 8;
/// Process, thread and time behind every record that is no sample.
const TRAILER_BYTES: usize = 16;
/// The registers that a sample brings, in its order: the kernel's number for each, and DWARF's.
pub(super) const REGISTERS: [(u32, usize); 17] = [
    (0, 0),
    (1, 3),
    (2, 2),
    (3, 1),
    (4, 4),
    (5, 5),
    (6, 6),
    (7, 7),
    (8, 16),
    (16, 8),
    (17, 9),
    (18, 10),
    (19, 11),
    (20, 12),
    (21, 13),
    (22, 14),
    (23, 15),
];

/// A record and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The kernel's own clock, in nanoseconds, comparable between processors.
    pub time_ns: u64,
    /// What happened.
    pub record: Record,
}

/// What the kernel has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A sample.
    Sample {
        /// The process.
        pid: u32,
        /// The instruction it was about to execute.
        address: Avma,
        /// Whether that is outside user code.
        in_kernel: bool,
    },
    /// A sample of a thread with its registers and the top of its stack.
    Stack {
        /// The process.
        pid: u32,
        /// The thread.
        snapshot: Snapshot,
    },
    /// A process mapped code.
    Map {
        /// The process.
        pid: u32,
        /// First address.
        start: Avma,
        /// Length in bytes.
        len: u64,
        /// What lies at the first address.
        offset: FileOffset,
        /// The file, or a name such as `[vdso]` or `//anon`.
        path: PathBuf,
    },
    /// A process replaced its program; its mappings are gone.
    Exec {
        /// The process.
        pid: u32,
    },
    /// A process or thread was made.
    Fork {
        /// Its process; for a thread, the same as the parent.
        pid: u32,
        /// The process that made it.
        parent: u32,
    },
    /// Records were dropped because the ring was full.
    Lost {
        /// Number of lost records.
        count: u64,
    },
    /// The kernel found that we sample too often and paused.
    Throttled,
    /// Any other record.
    Other,
}

/// A record that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed record of type {kind} and {size_bytes} bytes")]
pub struct Malformed {
    /// The type it claims to be.
    pub kind: u32,
    /// The size it claims to have.
    pub size_bytes: usize,
}

/// The records in `bytes`. Ends at the first header that cannot be followed, after an error for it.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Timed, Malformed>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let header = Header::read(rest);
        let whole = header.and_then(|h| rest.get(..h.size_bytes).map(|bytes| (h, bytes)));
        let Some((header, record)) = whole else {
            rest = &[];
            return Some(Err(header.unwrap_or_default().malformed()));
        };
        rest = &rest[record.len()..];
        let body = &record[HEADER_BYTES..];
        Some(parse(header, body).ok_or(header.malformed()))
    })
}

#[derive(Clone, Copy, Debug, Default)]
struct Header {
    kind: u32,
    misc: u32,
    size_bytes: usize,
}

impl Header {
    /// `None` when there is no room for one, or it claims less than its own size.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Bytes(bytes);
        let kind = fields.u32()?;
        let sizes = fields.u32()?.to_le_bytes();
        let header = Self {
            kind,
            misc: u16::from_le_bytes([sizes[0], sizes[1]]).into(),
            size_bytes: u16::from_le_bytes([sizes[2], sizes[3]]).into(),
        };
        (header.size_bytes >= HEADER_BYTES).then_some(header)
    }

    fn malformed(self) -> Malformed {
        Malformed { kind: self.kind, size_bytes: self.size_bytes }
    }
}

fn parse(header: Header, body: &[u8]) -> Option<Timed> {
    if header.kind == sys::PERF_RECORD_SAMPLE {
        return parse_sample(header, body);
    }
    let (body, trailer) = body.split_at(body.len().checked_sub(TRAILER_BYTES)?);
    let mut trailer = Bytes(trailer);
    let (_pid, _tid, time_ns) = (trailer.u32()?, trailer.u32()?, trailer.u64()?);
    let mut fields = Bytes(body);
    let record = match header.kind {
        sys::PERF_RECORD_MMAP => parse_map(fields, 0)?,
        // Device, inode and its generation (or a build id), protection and flags.
        sys::PERF_RECORD_MMAP2 => parse_map(fields, 4)?,
        sys::PERF_RECORD_COMM if header.misc & sys::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Record::Exec { pid: fields.u32()? }
        }
        sys::PERF_RECORD_FORK => Record::Fork { pid: fields.u32()?, parent: fields.u32()? },
        sys::PERF_RECORD_LOST => {
            let (_event, count) = (fields.u64()?, fields.u64()?);
            Record::Lost { count }
        }
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost { count: fields.u64()? },
        sys::PERF_RECORD_THROTTLE => Record::Throttled,
        _ => Record::Other,
    };
    Some(Timed { time_ns, record })
}

fn parse_sample(header: Header, body: &[u8]) -> Option<Timed> {
    let mut fields = Bytes(body);
    let address = Avma(fields.u64()?);
    let (pid, _tid, time_ns) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let in_kernel = header.misc & sys::PERF_RECORD_MISC_CPUMODE_MASK != sys::PERF_RECORD_MISC_USER;
    let record = match fields.u64() {
        None => Record::Sample { pid, address, in_kernel },
        Some(abi) if abi == u64::from(sys::PERF_SAMPLE_REGS_ABI_64) && !in_kernel => {
            Record::Stack { pid, snapshot: parse_snapshot(fields)? }
        }
        // Of a program of 32 bits.
        Some(_) => Record::Other,
    };
    Some(Timed { time_ns, record })
}

/// Registers in the order of [`REGISTERS`]; the room for the stack, and how much of it is filled behind that.
fn parse_snapshot(mut fields: Bytes<'_>) -> Option<Snapshot> {
    let mut registers = Registers::default();
    for (_, number) in REGISTERS {
        *registers.0.get_mut(number)? = fields.u64()?;
    }
    let room = usize::try_from(fields.u64()?).ok()?;
    let stack = fields.take(room)?;
    let filled = if room == 0 { 0 } else { usize::try_from(fields.u64()?).ok()? };
    Some(Snapshot { registers, stack: stack.get(..filled)?.to_vec() })
}

fn parse_map(mut fields: Bytes<'_>, words_before_path: usize) -> Option<Record> {
    let (pid, _tid) = (fields.u32()?, fields.u32()?);
    let (start, len, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    for _ in 0..words_before_path {
        fields.u64()?;
    }
    Some(Record::Map {
        pid,
        start: Avma(start),
        len,
        offset: FileOffset(offset),
        path: PathBuf::from(OsStr::from_bytes(fields.text())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((HEADER_BYTES as u16 + 8 * body.len() as u16).to_ne_bytes());
        bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    /// Two 32-bit fields as they lie in memory.
    fn pair(first: u32, second: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_ne_bytes());
        bytes[4..].copy_from_slice(&second.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    fn read(bytes: &[u8]) -> Vec<Result<Timed, Malformed>> {
        records(bytes).collect()
    }

    fn at(time_ns: u64, record: Record) -> Result<Timed, Malformed> {
        Ok(Timed { time_ns, record })
    }

    #[test]
    fn reads_what_sampling_needs() {
        let name = u64::from_ne_bytes(*b"/bin/sh\0");
        let user = sys::PERF_RECORD_MISC_USER as u16;
        let exec = sys::PERF_RECORD_MISC_COMM_EXEC as u16;
        let mut bytes = record(sys::PERF_RECORD_SAMPLE, user, &[0x1234, pair(7, 8), 100]);
        let trailer = [pair(7, 8), 101];
        let mut add = |kind, misc, body: &[u64]| {
            bytes.extend(record(kind, misc, &[body, &trailer[..]].concat()));
        };
        add(sys::PERF_RECORD_COMM, exec, &[pair(7, 8), name]);
        add(sys::PERF_RECORD_COMM, 0, &[pair(7, 8), name]);
        let map = [pair(7, 8), 0x1000, 0x2000, 0x3000];
        add(sys::PERF_RECORD_MMAP, user, &[&map[..], &[name]].concat());
        add(sys::PERF_RECORD_MMAP2, user, &[&map[..], &[1, 2, 3, 4, name]].concat());
        add(sys::PERF_RECORD_FORK, 0, &[pair(9, 7), pair(9, 8), 101]);
        add(sys::PERF_RECORD_LOST, 0, &[1, 42]);
        add(sys::PERF_RECORD_THROTTLE, 0, &[1, 2, 3]);
        let mapped = Record::Map {
            pid: 7,
            start: Avma(0x1000),
            len: 0x2000,
            offset: FileOffset(0x3000),
            path: "/bin/sh".into(),
        };
        let sample = Record::Sample { pid: 7, address: Avma(0x1234), in_kernel: false };
        let expected = [
            at(100, sample),
            at(101, Record::Exec { pid: 7 }),
            at(101, Record::Other),
            at(101, mapped.clone()),
            at(101, mapped),
            at(101, Record::Fork { pid: 9, parent: 7 }),
            at(101, Record::Lost { count: 42 }),
            at(101, Record::Throttled),
        ];
        assert_eq!(read(&bytes), expected);
    }

    #[test]
    fn a_stack_comes_with_its_registers_and_as_long_as_it_was_copied() {
        let user = sys::PERF_RECORD_MISC_USER as u16;
        let registers: Vec<u64> = (100..117).collect();
        let of = |abi: u64, behind: &[u64]| {
            let body = [&[0x1234, pair(7, 8), 100, abi], registers.as_slice(), behind].concat();
            read(&record(sys::PERF_RECORD_SAMPLE, user, &body)).pop().unwrap()
        };
        let Ok(Timed { record: Record::Stack { pid: 7, snapshot }, .. }) =
            of(2, &[24, 11, 12, 13, 16])
        else {
            panic!("no stack");
        };
        // rsp and rip, the eighth and the ninth of the kernel's.
        assert_eq!((snapshot.registers.stack(), snapshot.registers.instruction()), (107, 108));
        assert_eq!(snapshot.registers.0[..6], [100, 103, 102, 101, 104, 105]);
        assert_eq!(snapshot.stack, [11_u64.to_ne_bytes(), 12_u64.to_ne_bytes()].concat());
        assert!(matches!(of(2, &[0]), Ok(Timed { record: Record::Stack { .. }, .. })), "none");
        assert!(matches!(of(1, &[0]), Ok(Timed { record: Record::Other, .. })), "32 bits");
        assert!(of(2, &[24, 11, 12, 13, 32]).is_err(), "more than there is");
        assert!(of(2, &[u64::MAX, 1]).is_err());
    }

    #[test]
    fn a_bad_body_costs_one_record_and_a_bad_header_the_rest() {
        let good = record(sys::PERF_RECORD_LOST, 0, &[1, 2, 0, 5]);
        let short = record(sys::PERF_RECORD_LOST, 0, &[1, 0, 5]);
        let all = read(&[&good[..], &short, &good].concat());
        assert!(all[0].is_ok() && all[1].is_err() && all[2].is_ok());
        let mut tiny = good.clone();
        tiny[6..8].copy_from_slice(&4_u16.to_ne_bytes());
        assert!(matches!(read(&[&tiny[..], &good].concat())[..], [Err(_)]));
        assert!(matches!(read(&good[..good.len() - 1])[..], [Err(_)]));
        assert!(read(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(read(&bytes).len() <= bytes.len() / HEADER_BYTES + 1);
        }

        #[test]
        fn any_body_behind_a_true_header_is_one_record(
            kind in 0_u32..25,
            misc in any::<u16>(),
            body in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            prop_assert_eq!(read(&record(kind, misc, &body)).len(), 1);
        }
    }
}
