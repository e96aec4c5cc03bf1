//! Invented recordings: every form that is read, and every way to be broken.

use super::walk::tests::record;
use super::*;

const PROGRAM: &str = "/programs/invented";
const BUILD_ID: [u8; 20] = [0xab; 20];
/// IP, TID, TIME.
const SAMPLE_TYPE: u64 = 0b111;
const ATTR_BYTES: usize = 128;

fn le(fields: &[u64]) -> Vec<u8> {
    fields.iter().flat_map(|f| f.to_le_bytes()).collect()
}

fn pair(a: u32, b: u32) -> Vec<u8> {
    [a.to_le_bytes(), b.to_le_bytes()].concat()
}

fn attr() -> Vec<u8> {
    let mut out = pair(1, ATTR_BYTES as u32);
    // config, period, sample type, read format, flags (sample_id_all)
    out.extend(le(&[0, 10_000, SAMPLE_TYPE, 0, 1 << 18]));
    out.resize(ATTR_BYTES, 0);
    out
}

fn map(pid: u32, path: &str) -> Vec<u8> {
    let mut body = pair(pid, pid);
    body.extend(le(&[0x40_0000, 0x10_0000, 0]));
    body.extend([0; 24]);
    body.extend(pair(5, 0));
    body.extend(path.as_bytes());
    body.resize((body.len() + 8) / 8 * 8, 0);
    // Process and time behind the record.
    body.extend(pair(pid, pid));
    body.extend(le(&[1]));
    record(10, MODE_USER, &body)
}

fn hit(ip: u64) -> Vec<u8> {
    let mut body = le(&[ip]);
    body.extend(pair(7, 7));
    body.extend(le(&[100]));
    record(SAMPLE, MODE_USER, &body)
}

/// A mapping, a thousand samples on four addresses, and records of unknown types.
fn records() -> Vec<u8> {
    let mut out = map(7, PROGRAM);
    out.extend(record(60, 0, &[0; 40]));
    for i in 0..1000_u64 {
        out.extend(hit(0x40_1000 + i % 4 * 0x20));
    }
    out.extend(record(9999, 0, &[]));
    out
}

fn counted(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u32 + 1).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out.push(0);
    out
}

fn build_id_record() -> Vec<u8> {
    let mut body = (-1_i32).to_le_bytes().to_vec();
    body.extend(BUILD_ID);
    body.extend([0; 4]);
    body.extend(PROGRAM.as_bytes());
    body.push(0);
    record(HEADER_BUILD_ID, 0, &body)
}

/// A whole file around `records`.
fn file(records: &[u8], architecture: &str) -> Vec<u8> {
    let (ids_at, attrs_at) = (104, 112);
    let data_at = attrs_at + ATTR_BYTES as u64 + 16;
    let mut out = b"PERFILE2".to_vec();
    out.extend(le(&[104, ATTR_BYTES as u64 + 16, attrs_at, ATTR_BYTES as u64 + 16]));
    out.extend(le(&[data_at, records.len() as u64, 0, 0]));
    // Tables: build ids and architecture.
    out.extend(le(&[1 << 2 | 1 << 6, 0, 0, 0]));
    assert_eq!(out.len(), ids_at);
    out.extend(le(&[42]));
    out.extend(attr());
    out.extend(le(&[ids_at as u64, 8]));
    out.extend(records);
    let (ids, name) = (build_id_record(), counted(architecture));
    let tables_at = out.len() as u64 + 32;
    out.extend(le(&[tables_at, ids.len() as u64]));
    out.extend(le(&[tables_at + ids.len() as u64, name.len() as u64]));
    out.extend(ids);
    out.extend(name);
    out
}

fn pipe(records: &[u8]) -> Vec<u8> {
    let mut out = b"PERFILE2".to_vec();
    out.extend(le(&[16]));
    let mut event = attr();
    event.extend(le(&[42]));
    out.extend(record(HEADER_ATTR, 0, &event));
    out.extend(build_id_record());
    out.extend(records);
    out
}

fn read(bytes: &[u8]) -> Result<PerfData, PerfDataError> {
    PerfData::parse(Path::new("perf.data"), bytes)
}

fn checked(data: &PerfData) {
    let event = data.main_event().unwrap();
    assert_eq!((event.samples, event.unmapped, event.name.as_str()), (1000, 0, "cpu-clock"));
    assert_eq!((event.period, event.frequency_hz), (Some(10_000), None));
    let hits: Vec<(u64, u64)> = event.files[0].hits.iter().map(|(at, n)| (at.0, *n)).collect();
    assert_eq!(hits, [(0x1000, 250), (0x1020, 250), (0x1040, 250), (0x1060, 250)]);
    assert_eq!(event.files[0].build_id.as_deref(), Some("ab".repeat(20).as_str()));
    assert_eq!(data.unknown_records, 2);
}

#[test]
fn files_and_pipes_give_the_same_counts() {
    checked(&read(&file(&records(), "x86_64")).unwrap());
    checked(&read(&pipe(&records())).unwrap());
}

/// A file whose samples carry their period, one of them in the kernel.
fn weighted() -> Vec<u8> {
    let mut out = map(7, PROGRAM);
    let mut kernel = pair(u32::MAX, 0);
    kernel.extend(le(&[0xffff_ffff_8100_0000, 0x100_0000, 0]));
    kernel.extend(b"[kernel.kallsyms]_text\0\0");
    kernel.extend(pair(u32::MAX, 0));
    kernel.extend(le(&[1]));
    out.extend(record(1, 1, &kernel));
    let mut sample = |mode: u16, ip: u64, period: u64| {
        let mut body = le(&[ip]);
        body.extend(pair(7, 7));
        body.extend(le(&[100, period]));
        out.extend(record(SAMPLE, mode, &body));
    };
    sample(MODE_USER, 0x40_1000, 5);
    sample(MODE_USER, 0x40_1000, 70);
    sample(MODE_USER, 0x40_1040, 3);
    sample(1, 0xffff_ffff_8100_0010, 9);
    // Outside of everything that is known of the kernel.
    sample(1, 0xffff_ffff_c000_0000, 1000);
    let mut bytes = file(&out, "x86_64");
    // The period is in the sample type: the second field behind `config` of the only event.
    let sample_type = 112 + 8 + 16;
    bytes[sample_type..sample_type + 8].copy_from_slice(&(SAMPLE_TYPE | 1 << 8).to_le_bytes());
    bytes
}

#[test]
fn samples_that_say_what_they_stand_for_are_weighed_and_the_kernels_are_kept_apart() {
    let data = read(&weighted()).unwrap();
    let event = data.main_event().unwrap();
    assert_eq!((event.samples, event.kernel, event.unmapped), (5, 2, 0));
    let of =
        |map: &BTreeMap<FileOffset, u64>| map.iter().map(|(at, n)| (at.0, *n)).collect::<Vec<_>>();
    assert_eq!(of(&event.files[0].hits), [(0x1000, 2), (0x1040, 1)]);
    assert_eq!(of(&event.files[0].weights), [(0x1000, 75), (0x1040, 3)]);
    let [kernel] = event.kernel_parts.as_slice() else { panic!("{:?}", event.kernel_parts) };
    assert_eq!(kernel.path, Path::new("[kernel.kallsyms]_text"));
    assert_eq!(kernel.weights, BTreeMap::from([(Svma(0xffff_ffff_8100_0010), 9)]));
    // `scan` takes the weights, and the kernel too.
    let spots = crate::import::profile_data::of_bytes(&weighted(), Path::new("p")).unwrap();
    let all: f64 = spots.iter().map(|s| s.weight).sum();
    assert_eq!((spots.len(), all), (3, 87.0));
    // Where samples do not say, each counts once.
    let plain = read(&file(&records(), "x86_64")).unwrap();
    assert!(plain.main_event().unwrap().files[0].weights.is_empty());
    let spots = crate::import::profile_data::of_bytes(&file(&records(), "aarch64"), Path::new("p"));
    assert_eq!(spots.unwrap().iter().map(|s| s.weight).sum::<f64>(), 1000.0);
}

#[test]
fn a_truncated_file_says_so_wherever_it_ends() {
    let whole = file(&records(), "x86_64");
    for cut in (0..whole.len()).step_by(1024).chain([8, 100, 200, whole.len() - 1]) {
        let error = read(&whole[..cut]).unwrap_err();
        assert!(matches!(error, PerfDataError::Truncated { .. }), "{cut}: {error}");
    }
    let mut unfinished = whole;
    unfinished[48..56].fill(0);
    assert!(read(&unfinished).unwrap_err().to_string().contains("did not end by itself"));
    // A pipe that ends between two records cannot be told from a short one.
    let whole = pipe(&records());
    for cut in (1024..whole.len()).step_by(1024) {
        match read(&whole[..cut]) {
            Ok(data) => assert!(data.main_event().unwrap().samples < 1000),
            Err(error) => assert!(matches!(error, PerfDataError::Truncated { .. }), "{error}"),
        }
    }
}

#[test]
fn foreign_and_other_files_are_refused() {
    let said = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let foreign = read(&file(&records(), "aarch64")).unwrap();
    assert_eq!(foreign.architecture.as_deref(), Some("aarch64"));
    let refused = foreign.of_x86_64().unwrap_err().to_string();
    assert!(refused.contains("recorded on aarch64; only x86-64"), "{refused}");
    assert!(read(&file(&records(), "x86_64")).unwrap().of_x86_64().is_ok());
    assert!(said(b"2ELIFREP\0\0\0\0\0\0\0\x68").contains("big-endian"));
    assert!(said(b"PERFFILE\0\0\0\0\0\0\0\x68").contains("before Linux 3.0"));
    assert!(said(b"# comment of a text file").contains("no perf.data file"));
    assert!(said(b"").contains("truncated"));
    assert!(said(&file(&map(7, PROGRAM), "x86_64")).contains("no samples"));
    let mut nonsense = records();
    nonsense.extend([0; 16]);
    assert!(said(&file(&nonsense, "x86_64")).contains("makes no sense"));
    let missing = PerfData::read(Path::new("/no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("/no/such/file"), "{missing}");
}

#[test]
fn a_program_is_found_by_its_build_id_and_refused_when_it_was_rebuilt() {
    let data = read(&file(&records(), "x86_64")).unwrap();
    let event = data.main_event().unwrap();
    let find = |program: &str, id: Option<&str>| data.in_program(event, Path::new(program), id);
    let id = "ab".repeat(20);
    // Copied elsewhere under another name: still the same program.
    let (hits, note) = find("/elsewhere/copy", Some(&id)).unwrap();
    assert_eq!((hits.total(), note), (1000, None));
    let error = find("/elsewhere/invented", Some("cd")).unwrap_err();
    assert!(matches!(error, PerfDataError::Rebuilt { .. }), "{error}");
    let (_, note) = find("/elsewhere/invented", None).unwrap();
    assert!(note.unwrap().contains("cannot be told"));
    let error = find("/bin/other", Some("cd")).unwrap_err().to_string();
    assert!(error.contains("has no samples in /bin/other, but in /programs/invented"), "{error}");
}

/// One frame that is never ended, in pieces, as perf writes it: raw blocks serve as well as packed.
#[test]
fn packed_records_are_unpacked() {
    let plain = records();
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x58];
    for block in plain.chunks(5000) {
        stream.extend(&(block.len() as u32 * 8).to_le_bytes()[..3]);
        stream.extend(block);
    }
    let pieces: Vec<u8> =
        stream.chunks(777).flat_map(|piece| record(COMPRESSED, 0, piece)).collect();
    checked(&read(&file(&pieces, "x86_64")).unwrap());
    let cut = &pieces[..pieces.len() / 785 * 785 / 2 / 785 * 785];
    assert!(matches!(read(&file(cut, "x86_64")), Err(PerfDataError::Truncated { .. })));
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn changed_bytes_give_an_error_or_counts_and_an_end(
            changes in proptest::collection::vec((0_usize..3000, any::<u8>()), 1..8),
        ) {
            let mut bytes = file(&records(), "x86_64");
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(data) = read(&bytes) {
                for event in &data.events {
                    let in_files: u64 = event.files.iter().map(FileHits::total).sum();
                    prop_assert_eq!(in_files + event.unmapped + event.kernel, event.samples);
                }
            }
        }
    }
}
