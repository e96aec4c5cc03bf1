//! From times to break-even sizes and a verdict that knows about the hypervisor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sampling::Sampled;
use super::{Method, SIZES};
use crate::model::{Measurement, Unit};
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::{UpdatesProfile, published};

/// One method and size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SyncCell {
    /// How new code is made known.
    pub method: Method,
    /// Size of the code.
    pub bytes: u64,
    /// Time to write the code.
    pub write: Option<Measurement>,
    /// Time of the method itself.
    pub sync: Option<Measurement>,
    /// Time to read the code back as data.
    pub read: Option<Measurement>,
    /// Time of the first execution.
    pub first: Option<Measurement>,
    /// Time of the second execution.
    pub second: Option<Measurement>,
    /// Synchronising and executing it the first time, of the same visits.
    pub sum: Option<Measurement>,
}

/// From which size on one way is cheaper than another, by synchronisation and first execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BreakEven {
    /// Method that flushes each line.
    pub flush: Method,
    /// Costs the same for every size.
    pub serialise: Method,
    /// The smallest measured size from which on the second is clearly cheaper; absent where it is
    /// not, or not clearly.
    pub from_bytes: Option<u64>,
}

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SyncReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Every method and size.
    pub cells: Vec<SyncCell>,
    /// Where methods overtake each other.
    pub break_even: Vec<BreakEven>,
    /// Executions of freshly written code.
    pub executions: u64,
    /// Executions that ran the code from before the write.
    pub stale: u64,
}

impl SyncReport {
    /// Evaluates the visits.
    #[must_use]
    pub fn new(sampled: &Sampled, mut protocol: Protocol) -> Self {
        let cells: Vec<SyncCell> = sampled
            .cells
            .iter()
            .map(|(method, bytes, t)| SyncCell {
                method: *method,
                bytes: *bytes as u64,
                write: sampled.ns(&t.write),
                sync: sampled.ns(&t.sync),
                read: sampled.ns(&t.read),
                first: sampled.ns(&t.first),
                second: sampled.ns(&t.second),
                sum: sampled.ns(&t.sum),
            })
            .collect();
        protocol.samples = sampled.cells.iter().map(|c| c.2.sum.len() + c.2.read.len()).sum();
        let mut report = Self {
            break_even: break_even(&cells),
            executions: sampled.executions,
            stale: sampled.stale,
            cells,
            protocol,
        };
        report.protocol.controls = report.controls();
        let rows = published::compare(report.protocol.machine.microarchitecture, super::ID, |q| {
            report.published(q)
        });
        report.protocol.published = rows;
        let answer = report.answer();
        report.protocol.conclude(answer);
        report
    }

    /// The figures of one method and size.
    #[must_use]
    pub fn cell(&self, method: Method, bytes: usize) -> Option<&SyncCell> {
        self.cells.iter().find(|c| c.method == method && c.bytes == bytes as u64)
    }

    fn sync(&self, method: Method, bytes: usize) -> Option<&Measurement> {
        self.cell(method, bytes)?.sync.as_ref()
    }

    /// Nanoseconds for one more line, between the two largest sizes.
    #[must_use]
    pub fn line_ns(&self, method: Method) -> Option<Measurement> {
        let (small, large) = (SIZES[SIZES.len() - 2], SIZES[SIZES.len() - 1]);
        let (a, b) = (self.sync(method, small)?, self.sync(method, large)?);
        let lines = (large - small) as f64 / 64.0;
        Some(Measurement {
            value: (b.value - a.value) / lines,
            unit: Unit::Nanoseconds,
            low: (b.low - a.high) / lines,
            high: (b.high - a.low) / lines,
            n: a.n.min(b.n),
            how: "slope between the two largest sizes; ends of their intervals".to_owned(),
        })
    }

    fn published(&self, quantity: &str) -> Option<Measurement> {
        match quantity {
            "CLFLUSH, ns a line" => self.line_ns(Method::Clflush),
            "CPUID, ns" => self.sync(Method::Cpuid, SIZES[0]).cloned(),
            "iret to itself, ns" => self.sync(Method::Iret, SIZES[0]).cloned(),
            _ => None,
        }
    }

    fn controls(&self) -> Vec<Control> {
        let (small, large) = (SIZES[2], SIZES[4]);
        let sum = |method| self.cell(method, small).and_then(|c| c.sum.as_ref());
        let words = format!("{} stale results of {}", self.stale, self.executions);
        let stale = Some(self.stale == 0 && self.executions > 0);
        vec![
            Control::compare(
                "positive",
                "CLFLUSH of 4 and of 64 KiB",
                self.sync(Method::Clflush, small),
                self.sync(Method::Clflush, large),
                |a, b| b.low > 2.0 * a.high,
            ),
            Control { kind: "negative".to_owned(), passed: stale, words },
            Control::placebo(
                "first execution of 4 KiB after nothing, twice",
                sum(Method::None),
                sum(Method::NoneAgain),
                0.1,
            ),
        ]
    }

    fn answer(&self) -> Answer {
        let serial = [Method::Serialize, Method::Iret, Method::Cpuid];
        let known = serial.into_iter().filter_map(|m| Some((m, self.sync(m, SIZES[0])?)));
        let Some((best, price)) = known.min_by(|a, b| a.1.value.total_cmp(&b.1.value)) else {
            return Answer::Open("no serialising instruction has enough visits".to_owned());
        };
        let mut words = format!(
            "no synchronisation ran old code in {} executions; the cheapest serialising \
             instruction is {} with {:.0} ns [{:.0}, {:.0}]",
            self.executions,
            best.name(),
            price.value,
            price.low,
            price.high
        );
        if let Some(cpuid) = self.sync(Method::Cpuid, SIZES[0]).filter(|_| best != Method::Cpuid) {
            words += &format!(", CPUID takes {:.0}", cpuid.value);
            if let Some(name) = &self.protocol.machine.hypervisor {
                words += &format!(" (it exits to {name})");
            }
        }
        for even in self.break_even.iter().filter(|b| b.serialise == best) {
            if let Some(bytes) = even.from_bytes {
                words += &format!("; cheaper than {} from {bytes} B on", even.flush.name());
            }
        }
        Answer::Found(words)
    }
}

impl UpdatesProfile for SyncReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }
}

fn break_even(cells: &[SyncCell]) -> Vec<BreakEven> {
    let sum = |method: Method, bytes: usize| {
        let cell = cells.iter().find(|c| c.method == method && c.bytes == bytes as u64)?;
        cell.sum.as_ref()
    };
    let has = |m: &Method| cells.iter().any(|c| c.method == *m);
    let methods = super::METHODS.into_iter().filter(has);
    let mut all = Vec::new();
    for flush in methods.clone().filter(|m| m.flushes()) {
        for serialise in methods.clone().filter(|m| m.serialises()) {
            let wins = |&&bytes: &&usize| {
                let pair = sum(flush, bytes).zip(sum(serialise, bytes));
                pair.is_some_and(|(f, s)| s.high < f.low)
            };
            // From the largest size down, as long as it wins.
            let from = SIZES.iter().rev().take_while(wins).last();
            all.push(BreakEven { flush, serialise, from_bytes: from.map(|b| *b as u64) });
        }
    }
    all
}
