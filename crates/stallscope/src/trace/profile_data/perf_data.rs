//! `perf.data`, record by record: samples become positions in the files that were mapped.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};

use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};

use crate::model::{FileOffset, HotPlace, HotSpot, Svma};

/// One file in the memory of a process.
#[derive(Clone)]
struct Mapped {
    end: u64,
    file_offset: u64,
    path: String,
}

/// What is mapped in each process, by address.
type Spaces = HashMap<i32, BTreeMap<u64, Mapped>>;

/// Samples are summed by place: recordings are long, programs are not.
type Sums = HashMap<(String, bool, u64), f64>;

/// All samples of a recording; the message of the reader where it is damaged.
pub(super) fn read(file: impl Read + Seek) -> Result<Vec<HotSpot>, String> {
    let PerfFileReader { mut perf_file, mut record_iter } =
        PerfFileReader::parse_file(file).map_err(|e| e.to_string())?;
    let (mut spaces, mut sums) = (Spaces::new(), Sums::new());
    while let Some(record) = record_iter.next_record(&mut perf_file).map_err(|e| e.to_string())? {
        if let PerfFileRecord::EventRecord { record, .. } = record {
            take(record.parse().map_err(|e| e.to_string())?, &mut spaces, &mut sums);
        }
    }
    Ok(sums
        .into_iter()
        .map(|((object, is_stated, at), weight)| {
            let place = if is_stated {
                HotPlace::Stated(Svma(at))
            } else {
                HotPlace::InFile(FileOffset(at))
            };
            HotSpot { object: Some(object), place, weight }
        })
        .collect())
}

fn take(record: EventRecord<'_>, spaces: &mut Spaces, sums: &mut Sums) {
    let mut map = |pid: i32, start: u64, length: u64, file_offset: u64, path: &[u8]| {
        let path = String::from_utf8_lossy(path).into_owned();
        let mapped = Mapped { end: start.saturating_add(length), file_offset, path };
        spaces.entry(pid).or_default().insert(start, mapped);
    };
    match record {
        EventRecord::Mmap(m) => {
            map(m.pid, m.address, m.length, m.page_offset, &m.path.as_slice());
        }
        EventRecord::Mmap2(m) => {
            map(m.pid, m.address, m.length, m.page_offset, &m.path.as_slice());
        }
        EventRecord::Fork(fork) if fork.pid != fork.ppid => {
            if let Some(parent) = spaces.get(&fork.ppid).cloned() {
                spaces.insert(fork.pid, parent);
            }
        }
        EventRecord::Sample(sample) => {
            let (Some(ip), Some(pid)) = (sample.ip, sample.pid) else { return };
            let weight = sample.period.map_or(1.0, |p| p as f64);
            // The kernel is mapped in the process -1, at the addresses that its file states unless
            // it was moved at boot.
            let of = |pid| {
                let (start, mapped) = spaces.get(&pid)?.range(..=ip).next_back()?;
                (ip < mapped.end).then_some((*start, mapped))
            };
            let key = match of(pid) {
                Some((start, m)) => {
                    (m.path.clone(), false, m.file_offset.saturating_add(ip - start))
                }
                None => match of(-1) {
                    Some((_, m)) => (m.path.clone(), true, ip),
                    None => return,
                },
            };
            *sums.entry(key).or_default() += weight;
        }
        _ => {}
    }
}
