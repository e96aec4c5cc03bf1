//! Cache geometry: CPUID leaf 4 (Intel) or 0x8000001D (AMD), else sysfs.
//!
//! A hypervisor may present the geometry of another host; the origin is kept so that a probe that
//! measures something else can say whom it contradicts.

use raw_cpuid::CacheType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::facts::{Facts, SysfsCache};

/// What a cache holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// Instructions only.
    Instruction,
    /// Data only.
    Data,
    /// Instructions and data.
    Unified,
}

/// Where the description of a cache comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The CPUID instruction.
    Cpuid,
    /// The kernel's sysfs.
    Sysfs,
}

/// One cache as presented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// Instructions, data or both.
    pub kind: CacheKind,
    /// Capacity in bytes.
    pub size_bytes: u64,
    /// Lines per set.
    pub ways: u32,
    /// Number of sets.
    pub sets: u32,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Source of these figures.
    pub origin: Origin,
}

/// All caches, sorted by level and kind; empty where neither CPUID nor sysfs describes any.
pub(super) fn read(facts: &Facts) -> Vec<Cache> {
    let mut caches = from_cpuid(facts);
    if caches.is_empty() {
        caches = facts.sysfs_caches.iter().filter_map(from_sysfs).collect();
    }
    caches.sort_by_key(|c| (c.level, c.kind));
    caches
}

fn from_cpuid(facts: &Facts) -> Vec<Cache> {
    let decoder = facts.decoder();
    let Some(parameters) = decoder.get_cache_parameters() else {
        return Vec::new();
    };
    parameters
        .filter_map(|p| {
            let kind = match p.cache_type() {
                CacheType::Data => CacheKind::Data,
                CacheType::Instruction => CacheKind::Instruction,
                CacheType::Unified => CacheKind::Unified,
                _ => return None,
            };
            let (ways, sets) = (p.associativity(), p.sets());
            let line = p.coherency_line_size() * p.physical_line_partitions();
            Some(Cache {
                level: p.level(),
                kind,
                size_bytes: ways as u64 * sets as u64 * line as u64,
                ways: u32::try_from(ways).ok()?,
                sets: u32::try_from(sets).ok()?,
                line_bytes: u32::try_from(line).ok()?,
                origin: Origin::Cpuid,
            })
        })
        .collect()
}

fn from_sysfs(texts: &SysfsCache) -> Option<Cache> {
    let kind = match texts.kind.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    let size = texts.size.trim();
    let size_bytes = match size.strip_suffix('K') {
        Some(kib) => kib.parse::<u64>().ok()?.checked_mul(1024)?,
        None => size.parse().ok()?,
    };
    Some(Cache {
        level: texts.level.parse().ok()?,
        kind,
        size_bytes,
        // Some kernels leave these out in guests; the size alone is still worth having.
        ways: texts.ways.parse().unwrap_or(0),
        sets: texts.sets.parse().unwrap_or(0),
        line_bytes: texts.line.parse().unwrap_or(64),
        origin: Origin::Sysfs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_in_sysfs_is_left_out() {
        let texts = SysfsCache {
            level: "1".into(),
            kind: "Data".into(),
            size: "fooK".into(),
            ..SysfsCache::default()
        };
        assert_eq!(from_sysfs(&texts), None);
        let texts = SysfsCache { size: "32K".into(), ..texts };
        let cache = from_sysfs(&texts).unwrap();
        assert_eq!((cache.size_bytes, cache.ways), (32768, 0));
    }
}
