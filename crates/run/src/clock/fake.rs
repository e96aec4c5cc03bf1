//! An invented machine: the clock of tests.
//!
//! Time advances only when a kernel runs or the counter is read, by what the invented machine
//! would take, so a verdict can be tested on machines that do not exist and in no time at all.

use super::{ADDS_PER_GROUP, Clock, NOPS_PER_PASS};

/// A scripted machine. Start from [`FakeClock::quiet`] and add disturbances.
#[derive(Clone, Debug)]
pub struct FakeClock {
    now_ns: f64,
    ticks: f64,
    ticks_per_ns: f64,
    core_ghz: f64,
    drift_per_s: f64,
    step: Option<(f64, f64, f64)>,
    sibling_share: f64,
    preemption: Option<(f64, f64)>,
    next_preemption_ns: f64,
    tsc_follows_core: bool,
    cycles_per_add: f64,
    noise: u64,
}

impl FakeClock {
    /// A machine that nothing disturbs; arguments in GHz.
    #[must_use]
    pub fn quiet(tsc_ghz: f64, core_ghz: f64) -> Self {
        Self {
            now_ns: 1_000.0,
            ticks: 1_000_000.0,
            ticks_per_ns: tsc_ghz,
            core_ghz,
            drift_per_s: 0.0,
            step: None,
            sibling_share: 0.0,
            preemption: None,
            next_preemption_ns: f64::INFINITY,
            tsc_follows_core: false,
            cycles_per_add: 1.0,
            noise: 1,
        }
    }

    /// The core clock changes by this share per second.
    #[must_use]
    pub fn drifting(mut self, share_per_s: f64) -> Self {
        self.drift_per_s = share_per_s;
        self
    }

    /// For the last `share` of every `period_ns` the core clock is multiplied by `factor`.
    #[must_use]
    pub fn stepping(mut self, period_ns: f64, share: f64, factor: f64) -> Self {
        self.step = Some((period_ns, share, factor));
        self
    }

    /// For this share of every millisecond another process uses the core's issue width.
    #[must_use]
    pub fn busy_sibling(mut self, share: f64) -> Self {
        self.sibling_share = share;
        self
    }

    /// About every `every_ns` the thread loses the processor for about `for_ns`; both vary by a
    /// half either way, because strictly periodic interrupts would resonate with the samples.
    #[must_use]
    pub fn preempted(mut self, every_ns: f64, for_ns: f64) -> Self {
        self.preemption = Some((every_ns, for_ns));
        self.next_preemption_ns = self.now_ns + every_ns;
        self
    }

    /// The counter ticks with the core clock: no invariant TSC.
    #[must_use]
    pub fn tsc_follows_core(mut self) -> Self {
        self.tsc_follows_core = true;
        self
    }

    /// A core that folds additions at rename.
    #[must_use]
    pub fn folding_adds(mut self, cycles_per_add: f64) -> Self {
        self.cycles_per_add = cycles_per_add;
        self
    }

    fn ghz(&self) -> f64 {
        let mut ghz = self.core_ghz * (1.0 + self.drift_per_s * self.now_ns * 1e-9);
        if let Some((period, share, factor)) = self.step
            && self.now_ns % period >= period * (1.0 - share)
        {
            ghz *= factor;
        }
        ghz
    }

    /// A factor between 0.5 and 1.5, the same sequence in every test.
    fn vary(&mut self) -> f64 {
        self.noise = self
            .noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        0.5 + (self.noise >> 40) as f64 / (1u64 << 24) as f64
    }

    fn pass(&mut self, ns: f64) {
        let rate = if self.tsc_follows_core {
            self.ticks_per_ns * self.ghz() / self.core_ghz
        } else {
            self.ticks_per_ns
        };
        self.now_ns += ns;
        self.ticks += ns * rate;
    }

    fn run_cycles(&mut self, cycles: f64) {
        self.pass(cycles / self.ghz());
        while let Some((every, length)) = self.preemption
            && self.now_ns >= self.next_preemption_ns
        {
            let length = length * self.vary();
            self.pass(length);
            self.next_preemption_ns = self.now_ns + every * self.vary();
        }
    }
}

impl Clock for FakeClock {
    fn now_ticks(&mut self) -> u64 {
        self.pass(8.0);
        self.ticks as u64
    }

    fn now_raw_ns(&mut self) -> u64 {
        self.pass(20.0);
        self.now_ns as u64
    }

    fn run_latency_chain(&mut self, adds: u64) {
        let adds = adds.next_multiple_of(ADDS_PER_GROUP);
        // 20 cycles to leave the loop: what the difference of two lengths must remove.
        self.run_cycles(adds as f64 * self.cycles_per_add + 20.0);
    }

    fn run_multiply_chain(&mut self, multiplies: u64) {
        let multiplies = multiplies.next_multiple_of(ADDS_PER_GROUP);
        self.run_cycles(multiplies as f64 * 3.0 + 20.0);
    }

    fn run_throughput_chain(&mut self, passes: u64) {
        let busy = self.now_ns % 1e6 < 1e6 * self.sibling_share;
        let per_pass = (NOPS_PER_PASS as f64 / 4.0 + 1.0) * if busy { 1.8 } else { 1.0 };
        self.run_cycles(passes as f64 * per_pass);
    }
}
