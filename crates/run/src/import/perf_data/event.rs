//! What was sampled, and where in a record its fields are.
//!
//! A sample holds the fields that `sample_type` asks for, in a fixed order. All that is needed here
//! stands before the first field of variable length, so each has a fixed place.

use crate::foreign::Bytes;

const IP: u64 = 1;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDRESS: u64 = 1 << 3;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const BRANCH_STACK: u64 = 1 << 11;
const IDENTIFIER: u64 = 1 << 16;

const FREQUENCY: u64 = 1 << 10;
const SAMPLE_ID_ALL: u64 = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    kind: u32,
    config: u64,
    /// Period or frequency.
    rate: u64,
    sample_type: u64,
    flags: u64,
}

impl Attr {
    /// Reads the fixed front of an attribute, which every version has.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut b = Bytes(bytes);
        let kind = b.u32()?;
        let _size = b.u32()?;
        let (config, rate, sample_type) = (b.u64()?, b.u64()?, b.u64()?);
        let _read_format = b.u64()?;
        Some(Self { kind, config, rate, sample_type, flags: b.u64()? })
    }

    /// The name of a well-known event; a made-up one for others, which files mostly name.
    pub fn name(&self) -> String {
        let known = match (self.kind, self.config) {
            (0, 0) => "cycles",
            (0, 1) => "instructions",
            (0, 3) => "cache-misses",
            (0, 4) => "branches",
            (0, 5) => "branch-misses",
            (1, 0) => "cpu-clock",
            (1, 1) => "task-clock",
            (1, 2) => "page-faults",
            (kind, config) => return format!("event {kind}:{config:#x}"),
        };
        known.to_owned()
    }

    /// How often it fired: a period, or a frequency that the kernel aimed at.
    pub fn rate(&self) -> (Option<u64>, Option<u64>) {
        match self.flags & FREQUENCY {
            0 => (Some(self.rate), None),
            _ => (None, Some(self.rate)),
        }
    }

    /// How precise the address is, from 0 (anything) to 3 (the very instruction).
    pub fn precision(&self) -> u8 {
        (self.flags >> 15 & 3) as u8
    }

    pub fn has_branch_stack(&self) -> bool {
        self.sample_type & BRANCH_STACK != 0
    }

    /// Whether samples carry the address of the data.
    pub fn has_data_address(&self) -> bool {
        self.sample_type & ADDRESS != 0
    }

    pub fn places(&self) -> Places {
        let mut at = 0;
        let mut place = |bit: u64| {
            (self.sample_type & bit != 0).then(|| {
                at += 8;
                at - 8
            })
        };
        let identifier = place(IDENTIFIER);
        let (ip, tid, time) = (place(IP), place(TID), place(TIME));
        let _address = place(ADDRESS);
        let id = place(ID);
        let (_stream, _cpu) = (place(STREAM_ID), place(CPU));
        let period = place(PERIOD);
        let behind: [u64; 4] = [ID, STREAM_ID, CPU, IDENTIFIER];
        let behind = behind.iter().filter(|bit| self.sample_type & **bit != 0).count();
        let timed = self.flags & SAMPLE_ID_ALL != 0 && self.sample_type & TIME != 0;
        Places {
            ip,
            pid: tid,
            time,
            id: identifier.or(id),
            period,
            time_from_end: timed.then_some(8 * (behind + 1)),
        }
    }
}

/// Byte positions in the body of a sample, and of the time in other records from their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub ip: Option<usize>,
    pub pid: Option<usize>,
    pub time: Option<usize>,
    pub id: Option<usize>,
    /// Events that the sample stands for, where each says so itself.
    pub period: Option<usize>,
    pub time_from_end: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(sample_type: u64, flags: u64) -> Attr {
        Attr { kind: 1, config: 0, rate: 100, sample_type, flags }
    }

    #[test]
    fn fields_stand_where_the_kernel_puts_them() {
        let places = attr(IP | TID | TIME, SAMPLE_ID_ALL).places();
        assert_eq!(
            (places.ip, places.pid, places.time, places.id),
            (Some(0), Some(8), Some(16), None)
        );
        assert_eq!(places.time_from_end, Some(8));
        let places = attr(IDENTIFIER | IP | TIME | CPU | ADDRESS, SAMPLE_ID_ALL).places();
        assert_eq!((places.id, places.ip, places.time), (Some(0), Some(8), Some(16)));
        assert_eq!(places.time_from_end, Some(24));
        assert_eq!((places.period, attr(IP | CPU | PERIOD, 0).places().period), (None, Some(16)));
        assert_eq!(attr(IP | ID, 0).places().id, Some(8));
        assert_eq!(attr(IP | TIME, 0).places().time_from_end, None);
    }

    #[test]
    fn rates_are_periods_or_frequencies() {
        assert_eq!(attr(0, 0).rate(), (Some(100), None));
        assert_eq!(attr(0, FREQUENCY | 2 << 15).rate(), (None, Some(100)));
        assert_eq!(attr(0, 2 << 15).precision(), 2);
        assert_eq!(attr(0, 0).name(), "cpu-clock");
    }
}
