//! The second walk: samples per event, address space and address.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use super::event::Places;
use super::file::Frame;
use super::spaces::{SpaceId, Spaces};
use super::walk::Record;
use super::{EventHits, FileHits, KERNEL_PID, KernelHits, MISC_MODE, MODE_USER, SAMPLE};
use crate::foreign::{u32_at, u64_at};
use crate::model::{FileOffset, Svma};
use crate::run::maps::has_code;

/// Sums per address of an address space.
type PerAddress = FxHashMap<(SpaceId, u64), u64>;

#[derive(Default)]
struct Sums {
    samples: u64,
    kernel: u64,
    unmapped: u64,
    /// Samples in user code.
    counts: PerAddress,
    /// Events that those stand for; empty where samples do not say.
    weights: PerAddress,
    /// Weights in the kernel by address.
    in_kernel: FxHashMap<u64, u64>,
}

pub(super) struct Counter<'a> {
    spaces: &'a Spaces,
    event_of_id: &'a HashMap<u64, usize>,
    places: Places,
    sums: Vec<Sums>,
    /// The process and the stretch of time for which the space is known.
    current: Option<(u32, u64, u64, SpaceId)>,
}

impl<'a> Counter<'a> {
    pub fn new(frame: &'a Frame, spaces: &'a Spaces) -> Self {
        Self {
            spaces,
            event_of_id: &frame.event_of_id,
            // perf makes all events of a recording carry their number at the same place.
            places: frame.events.first().map(|e| e.attr.places()).unwrap_or_default(),
            sums: frame.events.iter().map(|_| Sums::default()).collect(),
            current: None,
        }
    }

    pub fn take(&mut self, record: Record<'_>) {
        if record.kind != SAMPLE {
            return;
        }
        let event = self.event(record.body);
        let Some(sums) = self.sums.get_mut(event) else { return };
        sums.samples += 1;
        let field = |place: Option<usize>| place.and_then(|at| u64_at(record.body, at));
        let (ip, period) = (field(self.places.ip), field(self.places.period));
        if record.misc & MISC_MODE != MODE_USER {
            sums.kernel += 1;
            if let Some(ip) = ip {
                add(sums.in_kernel.entry(ip).or_default(), period.unwrap_or(1));
            }
            return;
        }
        let pid = self.places.pid.and_then(|at| u32_at(record.body, at));
        let (Some(ip), Some(pid)) = (ip, pid) else {
            sums.unmapped += 1;
            return;
        };
        // Without times, what a process executed last is the best guess.
        let time = field(self.places.time).unwrap_or(u64::MAX - 1);
        let space = match self.current {
            Some((p, from, until, space)) if p == pid && from <= time && time < until => space,
            _ => match self.spaces.at(pid, time) {
                Some((space, from, until)) => {
                    self.current = Some((pid, from, until, space));
                    space
                }
                None => {
                    sums.unmapped += 1;
                    return;
                }
            },
        };
        *sums.counts.entry((space, ip)).or_insert(0) += 1;
        if let Some(period) = period {
            add(sums.weights.entry((space, ip)).or_default(), period);
        }
    }

    fn event(&self, body: &[u8]) -> usize {
        if self.sums.len() == 1 {
            return 0;
        }
        let id = self.places.id.and_then(|at| u64_at(body, at));
        id.and_then(|id| self.event_of_id.get(&id).copied()).unwrap_or(0)
    }

    pub fn finish(self, frame: &Frame) -> Vec<EventHits> {
        let per_event = frame.events.iter().zip(self.sums);
        per_event
            .map(|(event, sums)| {
                let Sums { samples, kernel, mut unmapped, counts, weights, in_kernel } = sums;
                let files = files(frame, self.spaces, (counts, &weights), &mut unmapped);
                let (period, frequency_hz) = event.attr.rate();
                EventHits {
                    name: event.name.clone(),
                    period,
                    frequency_hz,
                    precision: event.attr.precision(),
                    has_branch_stack: event.attr.has_branch_stack(),
                    has_data_address: event.attr.has_data_address(),
                    samples,
                    kernel,
                    unmapped,
                    files,
                    kernel_parts: kernel_parts(self.spaces, in_kernel),
                }
            })
            .collect()
    }
}

/// Damaged recordings claim any number of events.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Books counts on files, the one with the most samples first.
fn files(
    frame: &Frame,
    spaces: &Spaces,
    (counts, weights): (PerAddress, &PerAddress),
    unmapped: &mut u64,
) -> Vec<FileHits> {
    let mut files: BTreeMap<usize, FileHits> = BTreeMap::new();
    for ((space, ip), count) in counts {
        let Some((object, offset)) = spaces.locate(space, ip) else {
            *unmapped += count;
            continue;
        };
        let mapped = &spaces.objects[object];
        if !has_code(&mapped.path) {
            *unmapped += count;
            continue;
        }
        let file = files.entry(object).or_insert_with(|| FileHits {
            path: mapped.path.clone(),
            build_id: mapped
                .build_id
                .clone()
                .or_else(|| frame.build_ids.get(&mapped.path).cloned()),
            hits: BTreeMap::new(),
            weights: BTreeMap::new(),
        });
        *file.hits.entry(offset).or_default() += count;
        if let Some(weight) = weights.get(&(space, ip)) {
            add(file.weights.entry(offset).or_default(), *weight);
        }
    }
    let mut files: Vec<FileHits> = files.into_values().collect();
    files.sort_by_key(|f| std::cmp::Reverse(f.total()));
    files
}

/// Books weights on the kernel's parts; what is in none is left out.
fn kernel_parts(spaces: &Spaces, in_kernel: FxHashMap<u64, u64>) -> Vec<KernelHits> {
    let Some((space, ..)) = spaces.at(KERNEL_PID, u64::MAX - 1) else { return Vec::new() };
    let mut parts: BTreeMap<usize, BTreeMap<Svma, u64>> = BTreeMap::new();
    for (ip, weight) in in_kernel {
        if let Some((object, FileOffset(_))) = spaces.locate(space, ip) {
            add(parts.entry(object).or_default().entry(Svma(ip)).or_default(), weight);
        }
    }
    let path = |object: usize| spaces.objects[object].path.clone();
    parts.into_iter().map(|(object, weights)| KernelHits { path: path(object), weights }).collect()
}
