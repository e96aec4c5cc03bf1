//! Invented machines: facts for the tests of this room and the rooms below.

use super::facts::{Facts, SysfsCache};

fn word(text: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*text)
}

/// A cache leaf: kind 1 data, 2 instruction, 3 unified.
fn cache(level: u32, kind: u32, ways: u32, sets: u32) -> [u32; 4] {
    [kind | level << 5, (ways - 1) << 22 | 63, sets - 1, 0]
}

fn kvm() -> [u32; 4] {
    [0x4000_0001, word(b"KVMK"), word(b"VMKV"), word(b"M\0\0\0")]
}

const GUEST: u32 = 1 << 31;

fn intel(signature: u32, leaf1_ecx: u32) -> Facts {
    let mut facts = Facts::default();
    let name = [0x1f, word(b"Genu"), word(b"ntel"), word(b"ineI")];
    facts.cpuid.insert((0, 0), name);
    facts.cpuid.insert((1, 0), [signature, 0, leaf1_ecx, 0]);
    facts.cpuid.insert((0x8000_0000, 0), [0x8000_0008, 0, 0, 0]);
    facts.cpuid.insert((0x8000_0001, 0), [0, 0, 0, 1 << 27]);
    facts.cpuid.insert((0x8000_0007, 0), [0, 0, 0, 1 << 8]);
    facts
}

/// Two virtual processors of a Cascade Lake host, no counters, one thread per core presented.
pub fn cascade_lake_guest() -> Facts {
    let mut facts = intel(0x0005_0657, GUEST);
    facts.cpuid.insert((4, 0), cache(1, 1, 8, 64));
    facts.cpuid.insert((4, 1), cache(1, 2, 8, 64));
    facts.cpuid.insert((4, 2), cache(2, 3, 16, 1024));
    facts.cpuid.insert((4, 3), cache(3, 3, 11, 53248));
    let seven = [0, 1 << 9 | 1 << 16 | 1 << 23 | 1 << 24, 0, 0];
    facts.cpuid.insert((7, 0), seven);
    facts.cpuid.insert((0x4000_0000, 0), kvm());
    facts.cpuinfo = "processor\t: 0\nmicrocode\t: 0x1\n".into();
    facts.online = "0-1\n".into();
    facts.thread_siblings = "0\n".into();
    facts.kernel_release = "6.1.0\n".into();
    facts
}

/// A desktop with counters and two kinds of cores, asked on a performance core.
pub fn raptor_lake() -> Facts {
    let mut facts = intel(0x000b_0671, 0);
    facts.cpuid.insert((4, 0), cache(1, 1, 12, 64));
    facts.cpuid.insert((4, 1), cache(1, 2, 8, 64));
    facts.cpuid.insert((4, 2), cache(2, 3, 16, 2048));
    let seven = [0, 1 << 9, 0, 1 << 4 | 1 << 14 | 1 << 15];
    facts.cpuid.insert((7, 0), seven);
    facts.cpuid.insert((0xa, 0), [0x0730_0605, 0, 7, 0]);
    facts.cpuid.insert((0x1a, 0), [0x4000_0001, 0, 0, 0]);
    facts.online = "0-31\n".into();
    facts.thread_siblings = "0-1\n".into();
    facts.kernel_release = "6.8.0\n".into();
    facts
}

/// The same desktop asked on an efficiency core.
pub fn raptor_lake_efficient_core() -> Facts {
    let mut facts = raptor_lake();
    facts.cpuid.insert((0x1a, 0), [0x2000_0001, 0, 0, 0]);
    facts
}

/// Two virtual processors of a Turin host behind a small virtual machine monitor.
pub fn zen_5_guest() -> Facts {
    let mut facts = Facts::default();
    let name = [0x10, word(b"Auth"), word(b"cAMD"), word(b"enti")];
    facts.cpuid.insert((0, 0), name);
    facts.cpuid.insert((1, 0), [0x00b0_0f21, 0, GUEST, 0]);
    let seven = [0, 1 << 9 | 1 << 16 | 1 << 23 | 1 << 24, 0, 1 << 4];
    facts.cpuid.insert((7, 0), seven);
    facts.cpuid.insert((0x8000_0000, 0), [0x8000_0028, 0, 0, 0]);
    // Topology extensions, without which the cache leaf means nothing.
    let extended = [0, 0, 1 << 22, 1 << 27];
    facts.cpuid.insert((0x8000_0001, 0), extended);
    facts.cpuid.insert((0x8000_0007, 0), [0, 0, 0, 1 << 8]);
    facts.cpuid.insert((0x8000_001d, 0), cache(1, 1, 12, 64));
    facts.cpuid.insert((0x8000_001d, 1), cache(1, 2, 8, 64));
    facts.cpuid.insert((0x8000_001d, 2), cache(2, 3, 16, 1024));
    facts.cpuid.insert((0x8000_001d, 3), cache(3, 3, 16, 32768));
    facts.cpuid.insert((0x4000_0000, 0), kvm());
    facts.cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC\n".into();
    facts.online = "0-1\n".into();
    facts.thread_siblings = "0\n".into();
    facts
}

/// A vendor that is not in the table, with the kernel's word on its caches.
pub fn unknown_vendor() -> Facts {
    let mut facts = Facts::default();
    let name = [1, word(b"Cent"), word(b"auls"), word(b"aurH")];
    facts.cpuid.insert((0, 0), name);
    facts.cpuid.insert((1, 0), [0x0000_06f2, 0, 0, 0]);
    facts.sysfs_caches.push(SysfsCache {
        level: "1".into(),
        kind: "Data".into(),
        size: "32K".into(),
        ways: "8".into(),
        sets: "64".into(),
        line: "64".into(),
    });
    facts.online = "0-3\n".into();
    facts
}
