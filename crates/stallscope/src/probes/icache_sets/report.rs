//! From knees to ways, sets and lines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fit::{Fit, fit, which};
use super::{BLOCKS, Case, LINE_STRIDE, Layout, ODD, STRIDES};
use crate::machine::{CacheKind, CodeCache, MachineProfile, ProfileEnvironment};
use crate::model::{Measurement, Unit};
use crate::probes::protocol::{Control, Protocol};
use crate::probes::published;
use crate::probes::sampling::Sampled;

/// Blocks a stride apart against the control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrideReport {
    /// Distance of blocks, bytes.
    pub stride_bytes: u32,
    /// Every second block lies so much further on, bytes.
    pub odd_bytes: u32,
    /// Core cycles for one dispatch, by number of blocks: (blocks, in one set, spread).
    pub points: Vec<(u32, Option<Measurement>, Option<Measurement>)>,
    /// The knee, where there is one.
    pub fit: Option<Fit>,
    /// Whether enough points are known for "no knee" to mean something.
    pub decided: bool,
}

impl StrideReport {
    /// What a dispatch costs more than in the control, core cycles, where both are known.
    fn excess(&self) -> Vec<(u32, f64)> {
        let both = |p: &(u32, Option<Measurement>, Option<Measurement>)| {
            Some((p.0, p.1.as_ref()?.value - p.2.as_ref()?.value))
        };
        self.points.iter().filter_map(both).collect()
    }
}

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IcacheReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// By stride.
    pub strides: Vec<StrideReport>,
    /// By distance of every second block: what says how long a line is.
    pub lines: Vec<StrideReport>,
    /// Lines per set.
    pub ways: Option<Measurement>,
    /// Sets.
    pub sets: Option<Measurement>,
    /// Bytes per line.
    pub line_bytes: Option<u32>,
    /// Ways times sets times line, bytes.
    pub capacity_bytes: Option<u64>,
    /// What one evicted line costs when nothing hides it.
    pub miss_cycles: Option<Measurement>,
    /// What CPUID presents, for comparison: ways, sets, line.
    pub presented: Option<(u32, u32, u32)>,
}

impl IcacheReport {
    /// Joins samples into a report.
    #[must_use]
    pub fn new(cases: &[Case], sampled: &Sampled, mut protocol: Protocol) -> Self {
        let look = |layout: Layout, blocks: u32| {
            let at = cases.iter().position(|c| *c == Case { layout, blocks })?;
            sampled.cells.get(at)?.cycles.clone()
        };
        let strides: Vec<StrideReport> = STRIDES.iter().map(|&s| stride(s, 0, look)).collect();
        let lines: Vec<StrideReport> = ODD.iter().map(|&d| stride(LINE_STRIDE, d, look)).collect();
        protocol.count(sampled);
        protocol.controls = controls(&strides);
        let presented = protocol
            .machine
            .cache(1, CacheKind::Instruction)
            .map(|c| (c.ways, c.sets, c.line_bytes));
        let mut report = Self {
            protocol,
            strides,
            lines,
            ways: None,
            sets: None,
            line_bytes: None,
            capacity_bytes: None,
            miss_cycles: None,
            presented,
        };
        let found = report.infer();
        if found.is_err() {
            // Half an answer must not be held against what others published.
            (report.ways, report.sets, report.miss_cycles) = (None, None, None);
            (report.line_bytes, report.capacity_bytes) = (None, None);
        }
        let (ways, sets, miss) =
            (report.ways.clone(), report.sets.clone(), report.miss_cycles.clone());
        report.protocol.published =
            published::compare(report.protocol.machine.microarchitecture, super::ID, |quantity| {
                match quantity {
                    "ways" => ways.clone(),
                    "sets" => sets.clone(),
                    "cost of a miss, cycles" => miss.clone(),
                    _ => None,
                }
            });
        let found = found.and_then(|words| report.against_what_is_presented(words));
        report.protocol.conclude(found);
        report
    }

    /// A curve that contradicts the processor's own word decides nothing: a guest may be lied to,
    /// but what holds decoded instructions bends the curve as well.
    fn against_what_is_presented(&self, words: String) -> Result<String, String> {
        let (Some((ways, sets, line)), Some(found), Some(found_sets)) =
            (self.presented, &self.ways, &self.sets)
        else {
            return Ok(words);
        };
        let (found, found_sets) = (found.value as u32, found_sets.value as u32);
        if (found, found_sets) == (ways, sets) {
            return Ok(words);
        }
        Err(format!(
            "the curve fits {found} ways of {found_sets} sets, and the processor says {ways} of \
             {sets} with lines of {line} bytes: one of the two is wrong, and nothing is kept"
        ))
    }

    /// The ways are the knee that two neighbouring strides share; a way holds as many bytes as the
    /// smaller of them; at half of it the knee must be twice as large.
    fn infer(&mut self) -> Result<String, String> {
        let knees: Vec<Option<&Fit>> = self.strides.iter().map(|s| s.fit.as_ref()).collect();
        // Two knees of one cache: as sharp and as dear as each other. Half a way's stride has points
        // for neither.
        let sharp = |f: &Fit| 2 * f.knee_high <= 3 * f.knee_low;
        let same = |a: &Fit, b: &Fit| {
            let (least, most) =
                (a.miss_cycles.min(b.miss_cycles), a.miss_cycles.max(b.miss_cycles));
            let overlap = a.knee_low <= b.knee_high && b.knee_low <= a.knee_high;
            overlap && sharp(a) && sharp(b) && 2.0 * most <= 3.0 * least
        };
        let two = |a: &Fit, b: &Fit| {
            2 * b.knee_low <= a.knee_high + 2 && a.knee_low <= 2 * b.knee_high + 2
        };
        let pair = (0..knees.len() - 1).find_map(|i| {
            let (a, b) = (knees[i]?, knees[i + 1]?);
            same(a, b).then_some((i, a, b))
        });
        let Some((at, first, second)) = pair else {
            return Err("no two neighbouring strides have the same knee".to_owned());
        };
        if let Some(before) = at.checked_sub(1).and_then(|i| knees[i])
            && !two(before, first)
        {
            return Err(format!(
                "at half the stride the knee is {}, not twice {}",
                before.knee, first.knee
            ));
        }
        let (low, high) =
            (first.knee_low.max(second.knee_low), first.knee_high.min(second.knee_high));
        let ways = if (low..=high).contains(&first.knee) { first.knee } else { second.knee };
        let n = self.strides[at].points.iter().filter_map(|p| p.1.as_ref()).map(|m| m.n).min();
        let whole = |value: u32, low: u32, high: u32, how: &str| Measurement {
            value: f64::from(value),
            unit: Unit::Count,
            low: f64::from(low),
            high: f64::from(high),
            n: n.unwrap_or(0),
            how: how.to_owned(),
        };
        let (one, other) = (first.miss_cycles, second.miss_cycles);
        self.ways = Some(whole(ways, low, high, "knee that two strides share"));
        self.miss_cycles = Some(Measurement {
            value: (one + other) / 2.0,
            unit: Unit::Cycles,
            low: one.min(other),
            high: one.max(other),
            n: n.unwrap_or(0),
            how: "mean and range of two strides".to_owned(),
        });
        let span = self.strides[at].stride_bytes;
        self.line_bytes = self.line(ways);
        // Without a measured line the usual 64 bytes would be a guess, and sets would be too.
        let Some(line) = self.line_bytes else {
            return Err(format!("{ways} ways of {span} bytes, but the size of a line is open"));
        };
        let sets = span / line;
        self.sets = Some(whole(sets, sets, sets, "bytes of a way over bytes of a line"));
        self.capacity_bytes = Some(u64::from(ways) * u64::from(span));
        if low != high {
            return Err(format!("{low} to {high} ways of {span} bytes fit equally well"));
        }
        if at == 0 {
            return Err(format!("the smallest stride, {span} bytes, already fills one set"));
        }
        Ok(format!(
            "{ways} ways, {sets} sets of {line}-byte lines ({} KiB); a line that was evicted costs \
             {:.0} cycles when nothing hides it",
            ways * span / 1024,
            (one + other) / 2.0
        ))
    }

    /// The smallest distance of every second block that doubles the knee.
    fn line(&self, ways: u32) -> Option<u32> {
        // The question has two answers, so the best of all knees is not asked for.
        let doubled = |s: &StrideReport| {
            s.fit.and_then(|_| which(&s.excess(), ways, 2 * ways)).map(|knee| knee != ways)
        };
        let at = self.lines.iter().position(|s| doubled(s) == Some(true))?;
        let before = self.lines[..at].iter().all(|s| doubled(s) == Some(false));
        (before && at > 0).then_some(self.lines[at].odd_bytes)
    }

    /// Puts what was found into a profile. An inconclusive report changes nothing.
    pub fn apply_to(&self, profile: &mut MachineProfile) {
        let (Some(ways), Some(sets), Some(line_bytes)) = (&self.ways, &self.sets, self.line_bytes)
        else {
            return;
        };
        if self.protocol.conclusive {
            let (ways, sets) = (ways.value as u32, sets.value as u32);
            profile.code_cache = Some(CodeCache { sets, ways, line_bytes });
            profile.environment = Some(ProfileEnvironment::of(&self.protocol.machine));
        }
    }
}

/// Of all points this share must be known.
const LEAST_KNOWN: f64 = 0.8;

fn stride(
    stride_bytes: u32,
    odd_bytes: u32,
    look: impl Fn(Layout, u32) -> Option<Measurement>,
) -> StrideReport {
    let layout = |spread| Layout { stride_bytes, odd_bytes, spread };
    let points: Vec<_> =
        BLOCKS.iter().map(|&n| (n, look(layout(false), n), look(layout(true), n))).collect();
    let mut report = StrideReport { stride_bytes, odd_bytes, points, fit: None, decided: false };
    let known = report.excess();
    report.decided = known.len() as f64 >= LEAST_KNOWN * report.points.len() as f64;
    report.fit = if report.decided { fit(&known) } else { None };
    report
}

fn controls(strides: &[StrideReport]) -> Vec<Control> {
    let at = |stride: Option<&StrideReport>, blocks| {
        let point = stride?.points.iter().find(|p| p.0 == blocks)?.clone();
        Some((point.1?, point.2?))
    };
    // The widest stride but one: on every known design it fills one set. Two blocks as near as
    // possible lie in different sets of everything.
    let many = at(strides.iter().rev().nth(1), 40);
    let few = at(strides.first(), 2);
    let one = |pair: &Option<(Measurement, Measurement)>| pair.as_ref().map(|p| p.0.clone());
    let spread = |pair: &Option<(Measurement, Measurement)>| pair.as_ref().map(|p| p.1.clone());
    vec![
        Control::compare(
            "positive",
            "40 blocks in one set, and spread",
            one(&many).as_ref(),
            spread(&many).as_ref(),
            |one, spread| one.low > spread.high,
        ),
        Control::compare(
            "negative",
            "2 blocks 1 KiB apart, and spread",
            one(&few).as_ref(),
            spread(&few).as_ref(),
            |one, spread| (one.value - spread.value).abs() < 3.0,
        ),
    ]
}
