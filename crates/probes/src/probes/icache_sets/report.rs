//! From knees to ways, sets and lines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fit::{Fit, fit};
use super::geometry::{Curve, DECISIVE, Joint, joint};
use super::line::line;
use super::{BLOCKS, Case, LINE_STRIDE, Layout, ODD, STRIDES};
use crate::machine::{CacheGeometry, CacheKind, Design, PriceOrigin, ProfileEnvironment};
use crate::model::{Measurement, Unit};
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::sampling::Sampled;
use crate::probes::{UpdatesProfile, published};

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
    fn layout(&self) -> Layout {
        Layout { stride_bytes: self.stride_bytes, odd_bytes: self.odd_bytes, spread: false }
    }

    /// What a dispatch costs more than in the control, core cycles, where both are known.
    fn excess(&self) -> Vec<(u32, f64)> {
        let both = |p: &(u32, Option<Measurement>, Option<Measurement>)| {
            Some((p.0, p.1.as_ref()?.value - p.2.as_ref()?.value))
        };
        self.points.iter().filter_map(both).collect()
    }
}

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IcacheReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Curve of each stride.
    pub strides: Vec<StrideReport>,
    /// By distance of every second block: what says how long a line is.
    pub lines: Vec<StrideReport>,
    /// What all strides say together, where they say something.
    #[serde(default)]
    pub joint: Option<Joint>,
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
    /// Evaluates the samples.
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
            joint: None,
            ways: None,
            sets: None,
            line_bytes: None,
            capacity_bytes: None,
            miss_cycles: None,
            presented,
        };
        let found = report.infer();
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
        let found = match found {
            Answer::Found(words) => report.against_what_is_presented(words),
            open => open,
        };
        report.protocol.conclude(found);
        report
    }

    /// A curve that contradicts the processor's own word decides nothing: a guest may be lied to,
    /// but what holds decoded instructions bends the curve as well.
    fn against_what_is_presented(&self, words: String) -> Answer {
        let (Some((ways, sets, line)), Some(found), Some(found_sets)) =
            (self.presented, &self.ways, &self.sets)
        else {
            return Answer::Found(words);
        };
        let (found, found_sets) = (found.value as u32, found_sets.value as u32);
        if (found, found_sets) == (ways, sets) {
            return Answer::Found(words);
        }
        Answer::Open(format!(
            "the curve fits {found} ways of {found_sets} sets, and the processor says {ways} of \
             {sets} with lines of {line} bytes: one of the two is wrong, and nothing is kept"
        ))
    }

    /// Ways, and the bytes of one, are those of the cache that explains all strides at once; a line
    /// is where blocks part. Sets follow.
    fn infer(&mut self) -> Answer {
        if let Some(open) = self.strides.iter().chain(&self.lines).find(|s| !s.decided) {
            return Answer::Open(format!(
                "too few clean samples at a stride of {} bytes",
                open.stride_bytes
            ));
        }
        let curve = |s: &StrideReport| Curve { layout: s.layout(), points: s.excess() };
        self.joint = joint(&self.strides.iter().map(curve).collect::<Vec<_>>());
        let Some(found) = self.joint.clone() else {
            return Answer::Open("no cache explains the strides better than none".to_owned());
        };
        let (ways, span) = (found.ways, found.way_bytes);
        if found.rival_worse_by <= DECISIVE {
            return Answer::Open(format!(
                "{ways} ways of {span} bytes and {} of {} explain the strides equally well",
                found.rival.0, found.rival.1
            ));
        }
        if found.cycles_at_the_top() < 3.0 * found.residual_cycles {
            return Answer::Open(format!(
                "the strides scatter by {:.1} cycles",
                found.residual_cycles
            ));
        }
        // Without a measured line the usual 64 bytes would be a guess, and sets would be too.
        let Some(line) = self.line(&found) else {
            return Answer::Open(format!(
                "{ways} ways of {span} bytes, but the size of a line is open"
            ));
        };
        self.accept(&found, line);
        Answer::Found(format!(
            "{ways} ways, {} sets of {line}-byte lines ({} KiB); a line that was evicted costs \
             {:.0} cycles when nothing hides it",
            span / line,
            ways * span / 1024,
            found.miss_cycles.value
        ))
    }

    fn accept(&mut self, found: &Joint, line: u32) {
        let n = self.strides.iter().flat_map(|s| &s.points).filter_map(|p| p.1.as_ref());
        let n = n.map(|m| m.n).min().unwrap_or(0);
        let whole = |value: u32, how: &str| Measurement {
            value: f64::from(value),
            unit: Unit::Count,
            low: f64::from(value),
            high: f64::from(value),
            n,
            how: how.to_owned(),
        };
        self.ways = Some(whole(found.ways, "the cache that explains all strides"));
        self.sets = Some(whole(found.way_bytes / line, "bytes of a way over bytes of a line"));
        self.line_bytes = Some(line);
        self.capacity_bytes = Some(u64::from(found.ways) * u64::from(found.way_bytes));
        self.miss_cycles = Some(found.miss_cycles.clone());
    }

    /// The distance at which every second block leaves the set.
    fn line(&self, found: &Joint) -> Option<u32> {
        let curves: Vec<_> = self.lines.iter().map(|s| (s.odd_bytes, s.excess())).collect();
        // Farther apart than a way, or the blocks are not in one set to begin with.
        let one_set = found.way_bytes <= LINE_STRIDE;
        one_set.then(|| line(&curves, found.ways, found.miss_cycles.value)).flatten()
    }
}

impl UpdatesProfile for IcacheReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        let (Some(ways), Some(sets), Some(line_bytes)) = (&self.ways, &self.sets, self.line_bytes)
        else {
            return;
        };
        let (ways, sets) = (ways.value as u32, sets.value as u32);
        profile.code_cache = Some(CacheGeometry { sets, ways, line_bytes });
        profile.code_cache_origin = Some(PriceOrigin::Probed { probe: super::ID.to_owned() });
        profile.environment = Some(ProfileEnvironment::of(&self.protocol.machine));
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
