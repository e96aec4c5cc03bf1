//! What is not known of a core: the shapes that it may have, and what lies between two of them.
//!
//! Windows are modelled by each of them, and the one that comes nearest to the clock is told (see `ledger`): both builds run on the
//! same core, and what they share cannot make a difference between them.

use super::ledger::Ledger;
use super::run_count::InsnCounts;
use super::windows::{self, ArmWindows, BothArms, WINDOW_NS, Window};
use super::{Bench, CoreTaken, FunctionRow, WindowCount, ledger, unseen};
use crate::code::Image;
use crate::compare::Arm;
use crate::machine::{CoreShape, Design, MemoryRenaming};
use crate::sim::core::Account;
use crate::trace::engine::{EngineError, Start};
use crate::trace::spread;

/// What a core may be otherwise than it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// As it was measured.
    Measured,
    /// Without its third level.
    NoThirdLevel,
    /// With so many bytes of the third level, more than were left to it while that was probed.
    ThirdLevel(u64),
    /// With tables of the branch predictor that hold less.
    Forgetful,
    /// Beside a neighbour on the core's other thread.
    Shared,
}

impl Variant {
    /// Parts that are tried of what lies between the core as it was measured and this one, in per cent.
    fn percents(self) -> &'static [u64] {
        match self {
            Self::Measured => &[],
            // Each costs much, and few are forgotten at first.
            Self::Forgetful => &[5, 10, 25, 50, 75, 100],
            Self::NoThirdLevel | Self::Shared => &[25, 50, 75, 100],
            Self::ThirdLevel(_) => &[50, 100],
        }
    }

    fn take(self, core: &mut CoreTaken, percent: u64) {
        match self {
            Self::Measured => {}
            Self::NoThirdLevel => core.from_memory_percent = percent,
            Self::ThirdLevel(bytes) => core.third_level_bytes = Some(bytes * (100 + percent) / 200),
            Self::Forgetful => core.forgotten_percent = percent,
            Self::Shared => core.shared_percent = percent,
        }
    }
}

/// Windows, and what the ledgers make of them.
pub(super) struct Judged {
    pub windows: Vec<BothArms>,
    pub ledgers: Vec<Ledger>,
    /// Why there are none.
    pub why_none: Option<EngineError>,
}

/// The windows that were followed, before anything is taken to lie between two shapes.
pub(super) struct Followed {
    count: usize,
    /// Whether they start in code that was made at run time alone.
    in_made_code: bool,
    by_shape: Vec<(Variant, CoreShape, BothArms)>,
}

impl Followed {
    /// No windows, of a core that may have any of its shapes, and that others were seen to share or not; whole runs of each arm
    /// execute instructions so often.
    pub fn none(design: &Design, is_shared: bool, in_run: &[InsnCounts; 2]) -> Self {
        let both = |(variant, shape): (Variant, CoreShape)| {
            let core = CoreTaken::plain(shape.renames_memory);
            let both = BothArms { core, arms: in_run.clone().map(ArmWindows::of_run) };
            (variant, shape, both)
        };
        let by_shape = shapes(design, is_shared).into_iter().map(both).collect();
        Self { count: 0, in_made_code: false, by_shape }
    }

    /// Windows that start in code that was made at run time alone, where `only`: the threads that compile it would be
    /// met as often as those that run it.
    pub fn in_made_code(mut self, only: bool) -> Self {
        self.in_made_code = only;
        self
    }

    /// Those of one way to rename memory alone.
    fn of_way(mut self, way: MemoryRenaming) -> Self {
        self.by_shape.retain(|(_, shape, _)| shape.renames_memory == way);
        self
    }

    /// Follows windows of both arms until there are so many, once for each shape; the inner error says why there are none.
    ///
    /// # Errors
    /// Only when the user wants an end.
    fn follow(
        mut self,
        bench: &mut dyn Bench,
        images: &[Image; 2],
        run_ns: [f64; 2],
        design: &Design,
        count: usize,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Result<Self, EngineError>, EngineError> {
        let shapes = self.shapes();
        let more = count - self.count;
        for arm in [Arm::A, Arm::B] {
            let numbers = self.count..count;
            let windows = spread::follow(run_ns[arm.index()], numbers, &mut |n, after| {
                let done = more * arm.index() + n - self.count;
                progress(done as u32, 2 * more as u32);
                let start = match after {
                    Some(after) if self.in_made_code => Start::AfterInMadeCode(after),
                    after => after.into(),
                };
                bench.window(arm, start, 0, design, &shapes)
            })?;
            let windows = match windows {
                Ok(windows) => windows,
                Err(why) => return Ok(Err(why)),
            };
            windows.into_iter().for_each(|window| self.add(arm, images, window));
        }
        self.count = count;
        Ok(Ok(self))
    }

    /// Follows a few windows of both arms, and more where these leave open what `ledgers` make of them, or have not met what
    /// holds a good part of the difference.
    ///
    /// # Errors
    /// Only when the user wants an end.
    pub fn until_seen(
        self,
        bench: &mut dyn Bench,
        (images, run_ns, design): (&[Image; 2], [f64; 2], &Design),
        rows: &[FunctionRow],
        ledgers: &dyn Fn(&[BothArms]) -> Vec<Ledger>,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Judged, EngineError> {
        let [few, many] = [false, true].map(|many| windows::count(bench, run_ns, many));
        let followed = match self.follow(bench, images, run_ns, design, few, progress)? {
            Ok(followed) => followed,
            Err(why) => {
                return Ok(Judged {
                    why_none: Some(why),
                    ledgers: ledgers(&[]),
                    windows: Vec::new(),
                });
            }
        };
        let windows = followed.with_mixtures();
        let found = ledgers(&windows);
        let judged = |windows, ledgers| Judged { windows, ledgers, why_none: None };
        let more = match ledger::undecided(&found) {
            Some(way) => Some(followed.of_way(way)),
            None => {
                let is_open =
                    unseen::is_unseen(rows, &windows) || found.iter().any(Ledger::may_agree);
                is_open.then_some(followed)
            }
        };
        let Some(more) = more.filter(|_| many > few) else { return Ok(judged(windows, found)) };
        let Ok(more) = more.follow(bench, images, run_ns, design, many, progress)? else {
            return Ok(judged(windows, found));
        };
        let more = more.follow_calls(bench, rows, images, (design, few), progress)?;
        let windows = more.with_mixtures();
        let found = ledgers(&windows);
        Ok(judged(windows, found))
    }

    fn shapes(&self) -> Vec<CoreShape> {
        self.by_shape.iter().map(|(_, shape, _)| shape.clone()).collect()
    }

    /// One window of an arm, as each shape runs it.
    fn add(&mut self, arm: Arm, images: &[Image; 2], window: Vec<WindowCount>) {
        for ((.., both), window) in self.by_shape.iter_mut().zip(window) {
            both.arms[arm.index()].add(&images[arm.index()], window);
        }
    }

    /// Follows so many more windows from calls of functions that hold a good part of the difference and that the windows of an
    /// arm have not met: one that takes a twentieth of a run is rarely where a window starts. Calls are spread like starts.
    ///
    /// # Errors
    /// Only when the user wants an end.
    fn follow_calls(
        mut self,
        bench: &mut dyn Bench,
        rows: &[FunctionRow],
        images: &[Image; 2],
        (design, count): (&Design, usize),
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Self, EngineError> {
        let shapes = self.shapes();
        let unseen = self.by_shape.first().map(|(.., both)| unseen::unseen_calls(rows, both));
        let unseen = unseen.unwrap_or_default();
        let all = (unseen.len() * count) as u32;
        for (done, (n, (arm, svma, calls))) in
            (0..).zip((0..count).flat_map(|n| unseen.iter().map(move |it| (n, *it))))
        {
            if bench.left().too_long(WINDOW_NS).is_some() {
                break;
            }
            progress(done, all);
            let start = Start::At { object: None, svma };
            let skip = (calls as f64 * spread::start(n)) as u64;
            match bench.window(arm, start, skip, design, &shapes) {
                Ok(window) => self.add(arm, images, window),
                Err(error) if error.is_interrupt() => return Err(error),
                // There are others, and those that were met.
                Err(_) => {}
            }
        }
        Ok(self)
    }

    /// The windows by each shape, and by what lies between two of them.
    fn with_mixtures(&self) -> Vec<BothArms> {
        let ways =
            self.by_shape.chunk_by(|(_, a, _), (_, b, _)| a.renames_memory == b.renames_memory);
        let windows =
            |(variant, _, both): &(Variant, CoreShape, BothArms)| (*variant, both.clone());
        ways.flat_map(|way| with_mixtures(way.iter().map(windows).collect())).collect()
    }
}

/// The shapes that the core may have. Whether a load is served while renaming depends on more than is
/// published, so a design that can is modelled both ways. Which lines are in the third level depends on what the
/// window does not show and on neighbours that nobody inside a guest sees (the same pair of programs differed by 57 and, half an
/// hour later, by 20 %), so each is modelled with that level and without it, one behind the other; and, where less of it was left than
/// the machine presents, with two and four times as much (a guest of 32 MiB whose probes found 4 and 8 MiB had chains through 6 to
/// 13 MiB in it from minute to minute). How long a sequence of branches is
/// remembered depends on where the branches lie (Zen 4: one loop, 40,000 random directions, 0 to 11 % mispredicted) and on neighbours,
/// who share the tables: all have twice as large ones as were measured, the forgetful has a quarter of these. A neighbour on the core's
/// other thread, where one was seen, takes half of the core from what keeps all of it busy and hardly anything from what waits.
fn shapes(design: &Design, is_shared: bool) -> Vec<(Variant, CoreShape)> {
    let shape = design.core().value;
    let presented =
        Design { third_level_bytes: None, ..design.clone() }.core().value.cache_bytes[2];
    let mut never = shape.clone();
    never.renames_memory = MemoryRenaming::Never;
    let ways = if shape == never { vec![shape] } else { vec![shape, never] };
    let variants = |mut near: CoreShape| {
        let measured = near.learned;
        near.learned = measured.times(LARGER_TABLES);
        let (mut far, mut forgetful) = (near.clone(), near.clone());
        far.cache_bytes[2] = far.cache_bytes[1];
        forgetful.learned = measured.times(SMALLER_TABLES);
        let of_bytes = |bytes: u64| {
            let mut more = near.clone();
            more.cache_bytes[2] = bytes;
            (Variant::ThirdLevel(bytes), more)
        };
        let left = near.cache_bytes[2];
        let more = [2 * left, 4 * left].into_iter().filter(|bytes| *bytes < presented);
        let more: Vec<_> = more.map(of_bytes).collect();
        let shared = is_shared.then(|| (Variant::Shared, near.beside_another()));
        let known = [
            (Variant::Measured, near),
            (Variant::NoThirdLevel, far),
            (Variant::Forgetful, forgetful),
        ];
        known.into_iter().chain(more).chain(shared)
    };
    ways.into_iter().flat_map(variants).collect()
}

/// So many times as large and as small as measured are the tables of a core that remembers, and of one that forgets.
const LARGER_TABLES: f64 = 2.0;
const SMALLER_TABLES: f64 = 0.25;

/// Of windows by each variant of one core: as it was measured, and what is between that and each other one, where they differ;
/// of larger parts of the third level, what is between each and the next.
fn with_mixtures(variants: Vec<(Variant, BothArms)>) -> Vec<BothArms> {
    let mut found = Vec::new();
    let mut variants = variants.into_iter();
    let Some((_, near)) = variants.next() else { return found };
    let mut half = None;
    for (variant, other) in variants {
        let is_larger = matches!(variant, Variant::ThirdLevel(_));
        let from = half.as_ref().filter(|_| is_larger).unwrap_or(&near);
        if from.arms != other.arms {
            found.extend(variant.percents().iter().map(|percent| {
                let mut both = mixed([from, &other], *percent);
                variant.take(&mut both.core, *percent);
                both
            }));
        }
        if is_larger {
            half = Some(other);
        }
    }
    found.push(near);
    found
}

/// Windows between two variants of a core.
fn mixed([near, far]: [&BothArms; 2], percent: u64) -> BothArms {
    let arms = [0, 1].map(|arm| {
        let both = near.arms[arm].windows.iter().zip(&far.arms[arm].windows);
        let mix = |a: &Account, b: Option<&Account>| b.map_or(*a, |b| a.mixed_with(b, percent));
        let windows = both.map(|(near, far)| {
            let insns = near.program.iter().map(|(at, a)| (*at, mix(a, far.program.get(at))));
            let objects = near.objects.iter().map(|(name, insns)| {
                let far = far.objects.get(name);
                let of = |at| far.and_then(|insns| insns.get(at));
                (name.clone(), insns.iter().map(|(at, a)| (*at, mix(a, of(at)))).collect())
            });
            Window::of(insns.collect(), objects.collect())
        });
        let ArmWindows { in_run, blocked_by, .. } = &near.arms[arm];
        ArmWindows {
            windows: windows.collect(),
            blocked_by: blocked_by.clone(),
            in_run: in_run.clone(),
        }
    });
    BothArms { core: near.core, arms }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;
    use crate::machine::Microarchitecture;
    use crate::model::{FileOffset, Svma};

    #[test]
    fn a_core_is_modelled_with_its_third_level_and_without_and_with_tables_of_two_sizes() {
        let mut design = Design::of(Microarchitecture::Zen4);
        let shapes = |design: &Design| shapes(design, false);
        let all = shapes(&design);
        let ways = all.iter().map(|(_, shape)| {
            let [_, second, third] = shape.cache_bytes;
            (shape.renames_memory, third == second, shape.learned.directions)
        });
        let variants = |of| [(of, false, 140_000), (of, true, 140_000), (of, false, 17_500)];
        let expected = [MemoryRenaming::SameStore, MemoryRenaming::Never].map(variants).concat();
        assert_eq!(ways.collect::<Vec<_>>(), expected);
        // With more than was left of it, up to what is presented.
        const MIB: u64 = 1 << 20;
        design.data_cache_bytes = Some([32 << 10, MIB, 32 * MIB]);
        let mut with_more = |left: u64| -> Vec<u64> {
            design.third_level_bytes = Some(left * MIB);
            let sizes = shapes(&design).into_iter().filter_map(|(variant, _)| match variant {
                Variant::ThirdLevel(bytes) => Some(bytes / MIB),
                _ => None,
            });
            sizes.collect()
        };
        assert_eq!([4, 8, 16].map(&mut with_more), [vec![8, 16, 8, 16], vec![16, 16], vec![]]);
    }

    #[test]
    fn what_lies_between_is_tried_where_the_variants_differ() {
        let both = |cycles: u64| {
            let account = Account { executions: 10, cycles, ..Account::default() };
            let arm = || {
                let insns = BTreeMap::from([(Svma(0x10), account)]);
                let objects = HashMap::from([(
                    "libc.so".to_owned(),
                    BTreeMap::from([(FileOffset(1), account)]),
                )]);
                ArmWindows { windows: vec![Window::of(insns, objects)], ..ArmWindows::default() }
            };
            BothArms { core: CoreTaken::plain(MemoryRenaming::Never), arms: [arm(), arm()] }
        };
        let cycles = |far: u64, forgetful: u64| {
            let mixtures = with_mixtures(vec![
                (Variant::Measured, both(100)),
                (Variant::NoThirdLevel, both(far)),
                (Variant::Forgetful, both(forgetful)),
            ]);
            let of = |it: &BothArms| {
                (
                    it.core.from_memory_percent,
                    it.core.forgotten_percent,
                    it.arms[1].in_all()[0].cycles,
                )
            };
            let mut all: Vec<_> = mixtures.iter().map(of).collect();
            all.sort_unstable();
            all
        };
        let far = [(0, 0, 200), (25, 0, 400), (50, 0, 600), (75, 0, 800), (100, 0, 1000)];
        assert_eq!(cycles(500, 100), far);
        assert_eq!(cycles(100, 100), [(0, 0, 200)]);
        assert_eq!(cycles(100, 300)[2..5], [(0, 10, 240), (0, 25, 300), (0, 50, 400)]);
        assert_eq!(cycles(500, 300).len(), 11, "never both at once");
        let larger = |bytes: u64, cycles: u64| (Variant::ThirdLevel(bytes << 20), both(cycles));
        let larger = vec![(Variant::Measured, both(300)), larger(8, 200), larger(16, 100)];
        let of = |it: &BothArms| {
            let mib = it.core.third_level_bytes.map(|bytes| bytes >> 20);
            (mib, it.arms[0].in_all()[0].cycles)
        };
        let larger: Vec<_> = with_mixtures(larger).iter().map(of).collect();
        let sizes = [(6, 250 * 2), (8, 200 * 2), (12, 150 * 2), (16, 100 * 2)];
        assert_eq!(larger[..4], sizes.map(|(mib, cycles)| (Some(mib), cycles)));
        assert_eq!(larger[4..], [(None, 600)]);
        let beside = vec![(Variant::Measured, both(100)), (Variant::Shared, both(200))];
        let beside = with_mixtures(beside);
        let of = |it: &BothArms| (it.core.shared_percent, it.arms[0].in_all()[0].cycles);
        let beside: Vec<_> = beside.iter().map(of).collect();
        assert_eq!(beside, [(25, 250), (50, 300), (75, 350), (100, 400), (0, 200)]);
    }

    #[test]
    fn beside_another_thread_what_keeps_a_core_busy_has_half_of_it() {
        let shapes = shapes(&Design::of(Microarchitecture::Zen4), true);
        let [(_, near), .., (Variant::Shared, beside)] = &shapes[..4] else { panic!() };
        let of = |shape: &CoreShape| (shape.dispatch_width, shape.store_queue, shape.load_cycles);
        assert_eq!((of(near), of(beside)), ((6, 64, 4), (3, 32, 4)));
        assert_eq!(shapes.len(), 8);
    }
}
