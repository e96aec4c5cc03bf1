//! A plain copy of what the processor and the kernel say, taken once.
//!
//! Everything that `Machine` knows is derived from this struct, so a test writes down the CPUID
//! leaves of any machine and gets that machine. CPUID traps to the hypervisor in a
//! guest (about 1 us each), another reason to ask once.

use std::collections::BTreeMap;
use std::fs;

use raw_cpuid::{CpuId, CpuIdResult};

use super::Vendor;
use super::known::Identity;

/// CPUID leaves and kernel texts; `Default` is a machine that says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `[eax, ebx, ecx, edx]` by (leaf, subleaf). A missing leaf reads as zeros.
    pub cpuid: BTreeMap<(u32, u32), [u32; 4]>,
    /// Text of `/proc/cpuinfo`.
    pub cpuinfo: String,
    /// `/sys/devices/system/cpu/cpu*/cache/index*` of one processor.
    pub sysfs_caches: Vec<SysfsCache>,
    /// `/sys/devices/system/cpu/online`, a list such as `0-3,6`.
    pub online: String,
    /// `topology/thread_siblings_list` of one processor.
    pub thread_siblings: String,
    /// `/proc/sys/kernel/osrelease`.
    pub kernel_release: String,
}

/// The texts of one `cache/index*` folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysfsCache {
    /// `level`
    pub level: String,
    /// `type`: `Data`, `Instruction` or `Unified`
    pub kind: String,
    /// `size`, for example `48K`
    pub size: String,
    /// `ways_of_associativity`
    pub ways: String,
    /// `number_of_sets`
    pub sets: String,
    /// `coherency_line_size`
    pub line: String,
}

impl Facts {
    /// Asks the processor and the kernel. What cannot be read stays empty.
    #[must_use]
    pub fn gather() -> Self {
        let cpu = "/sys/devices/system/cpu";
        Self {
            cpuid: gather_cpuid(),
            cpuinfo: text("/proc/cpuinfo"),
            sysfs_caches: gather_sysfs_caches(&format!("{cpu}/cpu0/cache")),
            online: text(&format!("{cpu}/online")),
            thread_siblings: text(&format!("{cpu}/cpu0/topology/thread_siblings_list")),
            kernel_release: text("/proc/sys/kernel/osrelease"),
        }
    }

    /// `[eax, ebx, ecx, edx]`, zeros where the leaf is missing.
    #[must_use]
    pub fn leaf(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.cpuid.get(&(leaf, subleaf)).copied().unwrap_or_default()
    }

    /// The decoder of leaves, reading from this copy.
    pub(super) fn decoder(&self) -> CpuId<impl raw_cpuid::CpuIdReader + '_> {
        CpuId::with_cpuid_reader(|leaf, subleaf| {
            let [eax, ebx, ecx, edx] = self.leaf(leaf, subleaf);
            CpuIdResult { eax, ebx, ecx, edx }
        })
    }

    pub(super) fn identity(&self) -> Identity {
        let id = self.decoder();
        let vendor = match id.get_vendor_info().as_ref().map(|v| v.as_str()) {
            Some("GenuineIntel") => Vendor::Intel,
            Some("AuthenticAMD") => Vendor::Amd,
            Some(other) => Vendor::Other(other.trim_matches('\0').to_owned()),
            None => Vendor::Other(String::new()),
        };
        let feature = id.get_feature_info();
        let part =
            |f: fn(&raw_cpuid::FeatureInfo) -> u8| feature.as_ref().map_or(0, |i| u32::from(f(i)));
        let hybrid = self.leaf(7, 0)[3] & (1 << 15) != 0;
        Identity {
            vendor,
            family: part(raw_cpuid::FeatureInfo::family_id),
            model: part(raw_cpuid::FeatureInfo::model_id),
            stepping: part(raw_cpuid::FeatureInfo::stepping_id),
            hybrid,
            // Leaf 0x1A names the kind of the core that answered: 0x20 efficiency, 0x40 performance.
            efficient_core: hybrid && self.leaf(0x1a, 0)[0] >> 24 == 0x20,
        }
    }

    pub(super) fn brand(&self) -> String {
        let brand = self.decoder().get_processor_brand_string();
        match brand.as_ref().map(|b| b.as_str().trim()) {
            Some(b) if !b.is_empty() => b.to_owned(),
            _ => self.cpuinfo_field("model name").unwrap_or_default(),
        }
    }

    pub(super) fn microcode(&self) -> Option<String> {
        self.cpuinfo_field("microcode")
    }

    pub(super) fn hypervisor(&self) -> Option<String> {
        let info = self.decoder().get_hypervisor_info()?;
        let bytes: Vec<u8> =
            self.leaf(0x4000_0000, 0)[1..].iter().flat_map(|r| r.to_le_bytes()).collect();
        let raw = String::from_utf8_lossy(&bytes);
        Some(match info.identify() {
            raw_cpuid::Hypervisor::KVM => "KVM".to_owned(),
            raw_cpuid::Hypervisor::Xen => "Xen".to_owned(),
            raw_cpuid::Hypervisor::VMware => "VMware".to_owned(),
            raw_cpuid::Hypervisor::HyperV => "Hyper-V".to_owned(),
            raw_cpuid::Hypervisor::QEMU => "QEMU".to_owned(),
            _ if raw.trim_matches('\0').trim().is_empty() => "unnamed".to_owned(),
            _ => raw.trim_matches('\0').trim().to_owned(),
        })
    }

    pub(super) fn logical_cpus(&self) -> u32 {
        match count_cpus(&self.online) {
            0 => self.cpuinfo.lines().filter(|l| l.starts_with("processor")).count() as u32,
            n => n,
        }
    }

    pub(super) fn threads_per_core(&self) -> u32 {
        count_cpus(&self.thread_siblings).max(1)
    }

    fn cpuinfo_field(&self, name: &str) -> Option<String> {
        let line = self.cpuinfo.lines().find(|l| l.starts_with(name))?;
        let value = line.split_once(':')?.1.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }
}

/// How many processors a kernel list such as `0-3,6` names; malformed parts count as none.
fn count_cpus(list: &str) -> u32 {
    list.trim()
        .split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((a, b)) => {
                let (a, b) = (a.parse::<u32>().ok()?, b.parse::<u32>().ok()?);
                b.checked_sub(a)?.checked_add(1)
            }
            None => part.parse::<u32>().ok().map(|_| 1),
        })
        .fold(0, u32::saturating_add)
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn gather_sysfs_caches(folder: &str) -> Vec<SysfsCache> {
    let one = |index: usize| {
        let field = |name: &str| text(&format!("{folder}/index{index}/{name}")).trim().to_owned();
        SysfsCache {
            level: field("level"),
            kind: field("type"),
            size: field("size"),
            ways: field("ways_of_associativity"),
            sets: field("number_of_sets"),
            line: field("coherency_line_size"),
        }
    };
    (0..8).map(one).take_while(|c| !c.level.is_empty()).collect()
}

/// The leaves that the room reads. A leaf above the highest supported one answers with another
/// leaf's data on Intel, so the limits are respected here.
#[cfg(target_arch = "x86_64")]
fn gather_cpuid() -> BTreeMap<(u32, u32), [u32; 4]> {
    let ask = |leaf: u32, subleaf: u32| {
        let r = raw_cpuid::native_cpuid::cpuid_count(leaf, subleaf);
        ((leaf, subleaf), [r.eax, r.ebx, r.ecx, r.edx])
    };
    let basic: [(u32, u32); 9] =
        [(0, 1), (1, 1), (4, 8), (7, 2), (0xa, 1), (0xb, 2), (0x15, 1), (0x16, 1), (0x1a, 1)];
    let extended: [(u32, u32); 10] = [
        (0x8000_0000, 1),
        (0x8000_0001, 1),
        (0x8000_0002, 1),
        (0x8000_0003, 1),
        (0x8000_0004, 1),
        (0x8000_0007, 1),
        (0x8000_0008, 1),
        (0x8000_001d, 8),
        (0x8000_001e, 1),
        (0x8000_0022, 1),
    ];
    let top_basic = ask(0, 0).1[0];
    let top_extended = ask(0x8000_0000, 0).1[0];
    let mut leaves = BTreeMap::new();
    for (leaf, subleaves) in basic.into_iter().filter(|(l, _)| *l <= top_basic) {
        leaves.extend((0..subleaves).map(|s| ask(leaf, s)));
    }
    for (leaf, subleaves) in extended.into_iter().filter(|(l, _)| *l <= top_extended) {
        leaves.extend((0..subleaves).map(|s| ask(leaf, s)));
    }
    let is_guest = leaves.get(&(1, 0)).is_some_and(|l| l[2] >> 31 == 1);
    if is_guest {
        leaves.extend([ask(0x4000_0000, 0)]);
    }
    leaves
}

#[cfg(not(target_arch = "x86_64"))]
fn gather_cpuid() -> BTreeMap<(u32, u32), [u32; 4]> {
    BTreeMap::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_kernel_lists() {
        assert_eq!(count_cpus("0-3,6\n"), 5);
        assert_eq!(count_cpus("0"), 1);
        assert_eq!(count_cpus(""), 0);
        assert_eq!(count_cpus("3-1,x,0-4294967295"), 0, "nonsense counts as none");
    }

    #[test]
    fn reads_fields_of_cpuinfo() {
        let facts = Facts {
            cpuinfo: "processor\t: 0\nmodel name\t: Foo\nmicrocode\t: 0x1\n".into(),
            ..Facts::default()
        };
        assert_eq!(facts.brand(), "Foo");
        assert_eq!(facts.microcode().as_deref(), Some("0x1"));
        assert_eq!(facts.logical_cpus(), 1);
        assert_eq!(facts.hypervisor(), None);
    }
}
