//! Windows of both builds, spread over the run: what happened in them, place by place.
//!
//! A window starts where the program is after a part of its processor time, not where it comes first: the
//! beginning of a run is not like the rest of it. What a window costs comes from the model of the core
//! ([`crate::sim::core`]), with everything and without each mechanism.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::{Bench, Place};
use crate::code::Image;
use crate::compare::{Arm, library_name};
use crate::machine::{CoreShape, Design, MemoryRenaming};
use crate::model::{FileOffset, Svma};
use crate::sim::core::Account;
use crate::trace::engine::EngineError;
use crate::trace::spread;

/// Instructions by their place in files, by what [`library_name`] calls these.
pub type ObjectInsns = HashMap<String, BTreeMap<FileOffset, Account>>;

/// What one window of one arm tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowCount {
    /// Instructions of the program's own file, by their place in it.
    pub program: Vec<(FileOffset, Account)>,
    /// Instructions of other files.
    pub objects: ObjectInsns,
}

/// The windows of one arm.
#[derive(Clone, Default, PartialEq)]
pub(super) struct ArmWindows {
    windows: Vec<(BTreeMap<Svma, Account>, ObjectInsns)>,
}

impl ArmWindows {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// What each window did from `start` to `end`.
    fn between(&self, start: Svma, end: Svma) -> impl Iterator<Item = Account> {
        let inside = move |insns: &BTreeMap<Svma, Account>| {
            insns.range(start..end.max(start)).map(|(_, account)| account).sum()
        };
        self.windows.iter().map(move |(insns, _)| inside(insns))
    }

    /// What each window did in a place of this arm.
    pub fn in_place(&self, arm: Arm, place: &Place) -> Vec<Account> {
        match place {
            Place::Function { .. } => {
                let function = place.function(arm);
                function.map(|f| self.between(f.start, f.end()).collect()).unwrap_or_default()
            }
            Place::Object { name, .. } => {
                let name = library_name(Path::new(name));
                let insns = |(_, objects): &(_, ObjectInsns)| {
                    objects.get(&name).map(|insns| insns.values().sum()).unwrap_or_default()
                };
                self.windows.iter().map(insns).collect()
            }
        }
    }

    /// What each window did.
    pub fn in_all(&self) -> Vec<Account> {
        let all = |(insns, objects): &(BTreeMap<Svma, Account>, ObjectInsns)| {
            insns.values().chain(objects.values().flat_map(BTreeMap::values)).sum()
        };
        self.windows.iter().map(all).collect()
    }

    /// What all windows together did with each instruction from `start` to `end`.
    pub fn insns(&self, start: Svma, end: Svma) -> BTreeMap<Svma, Account> {
        let range = start..end.max(start);
        added(self.windows.iter().flat_map(|(insns, _)| insns.range(range.clone())))
    }

    /// What all windows together did with each instruction of another file.
    pub fn insns_of_object(&self, path: &Path) -> BTreeMap<FileOffset, Account> {
        let name = library_name(path);
        added(self.windows.iter().filter_map(|(_, objects)| objects.get(&name)).flatten())
    }
}

#[cfg(test)]
impl ArmWindows {
    /// One window of so many instructions, some of them in one object.
    pub fn of_object(name: &str, executions: u64, all: u64) -> Self {
        let account = |executions| Account { executions, ..Account::default() };
        let insns = |executions| BTreeMap::from([(FileOffset(1), account(executions))]);
        let objects = [(name, executions), ("other", all - executions)];
        let objects = objects.map(|(name, executions)| (name.to_owned(), insns(executions)));
        Self { windows: vec![(BTreeMap::new(), objects.into())] }
    }
}

fn added<'a, K: Ord + Copy + 'a>(
    insns: impl Iterator<Item = (&'a K, &'a Account)>,
) -> BTreeMap<K, Account> {
    let mut all: BTreeMap<K, Account> = BTreeMap::new();
    for (at, account) in insns {
        *all.entry(*at).or_default() += account;
    }
    all
}

/// What a window takes about, from its run to the model.
const WINDOW_NS: f64 = 1.5e9;

/// The windows of both arms, as one shape of the core runs them.
#[derive(Clone)]
pub(super) struct BothArms {
    /// Which loads that shape serves while renaming.
    pub renames_memory: MemoryRenaming,
    /// Of the lines behind the second level that a window touches first, those that come from memory, in per cent.
    pub from_memory_percent: u64,
    /// Of the branches that large tables predict and small ones do not, those that are mispredicted, in per cent.
    pub forgotten_percent: u64,
    /// Of the instructions, those that are executed while another thread keeps the core busy, in per cent.
    pub shared_percent: u64,
    /// By arm.
    pub arms: [ArmWindows; 2],
}

impl BothArms {
    /// Of a core that is taken as it is.
    pub fn plain(renames_memory: MemoryRenaming, arms: [ArmWindows; 2]) -> Self {
        let (from_memory_percent, forgotten_percent, shared_percent) = (0, 0, 0);
        Self { renames_memory, from_memory_percent, forgotten_percent, shared_percent, arms }
    }
}

/// The shapes that the core may have. Whether a load is served while renaming depends on more than is
/// published, so a design that can is modelled both ways. Which lines are in the third level depends on what the
/// window does not show and on neighbours that nobody inside a guest sees (the same pair of programs differed by 57 and, half an
/// hour later, by 20 %), so each is modelled with that level and without it, one behind the other. How long a sequence of branches is
/// remembered depends on where the branches lie (Zen 4: one loop, 40,000 random directions, 0 to 11 % mispredicted) and on neighbours,
/// who share the tables: all have twice as large ones as were measured, the third has a quarter of these. A neighbour on the core's
/// other thread, where one was seen, takes half of the core from what keeps all of it busy and hardly anything from what waits:
/// the fourth is beside one.
fn shapes(design: &Design, is_shared: bool) -> Vec<CoreShape> {
    let shape = design.core().value;
    let mut never = shape.clone();
    never.renames_memory = MemoryRenaming::Never;
    let ways = if shape == never { vec![shape] } else { vec![shape, never] };
    let variants = |mut near: CoreShape| {
        let measured = near.learned;
        near.learned = measured.times(LARGER_TABLES);
        let (mut far, mut forgetful) = (near.clone(), near.clone());
        far.cache_bytes[2] = far.cache_bytes[1];
        forgetful.learned = measured.times(SMALLER_TABLES);
        let shared = is_shared.then(|| near.beside_another());
        [near, far, forgetful].into_iter().chain(shared)
    };
    ways.into_iter().flat_map(variants).collect()
}

/// So many times as large and as small as measured are the tables of a core that remembers, and of one that forgets.
const LARGER_TABLES: f64 = 2.0;
const SMALLER_TABLES: f64 = 0.25;
/// Parts of the lines that come from memory, in per cent, that are tried.
const FROM_MEMORY_PERCENTS: [u64; 4] = [25, 50, 75, 100];
/// The same of what is executed beside another thread.
const SHARED_PERCENTS: [u64; 4] = FROM_MEMORY_PERCENTS;
/// The same of the branches that are forgotten: each costs much, and few are forgotten at first.
const FORGOTTEN_PERCENTS: [u64; 6] = [5, 10, 25, 50, 75, 100];

/// Of windows by each variant of one core: the first, and what is between it and each other one, where they differ.
fn with_mixtures(variants: Vec<BothArms>) -> Vec<BothArms> {
    let mut found = Vec::new();
    let mut variants = variants.into_iter();
    let Some(near) = variants.next() else { return found };
    let mut between = |other: Option<BothArms>, percents: &[u64], taken: fn(&mut BothArms, u64)| {
        let Some(other) = other.filter(|other| other.arms != near.arms) else { return };
        found.extend(percents.iter().map(|percent| {
            let mut both = mixed([&near, &other], *percent);
            taken(&mut both, *percent);
            both
        }));
    };
    between(variants.next(), &FROM_MEMORY_PERCENTS, |it, percent| it.from_memory_percent = percent);
    between(variants.next(), &FORGOTTEN_PERCENTS, |it, percent| it.forgotten_percent = percent);
    between(variants.next(), &SHARED_PERCENTS, |it, percent| it.shared_percent = percent);
    found.push(near);
    found
}

/// Windows between two variants of a core.
fn mixed([near, far]: [&BothArms; 2], percent: u64) -> BothArms {
    let arms = [0, 1].map(|arm| {
        let both = near.arms[arm].windows.iter().zip(&far.arms[arm].windows);
        let mix = |a: &Account, b: Option<&Account>| b.map_or(*a, |b| a.mixed_with(b, percent));
        let windows = both.map(|((insns, objects), (far_insns, far_objects))| {
            let insns = insns.iter().map(|(at, a)| (*at, mix(a, far_insns.get(at))));
            let objects = objects.iter().map(|(name, insns)| {
                let far = far_objects.get(name);
                let of = |at| far.and_then(|insns| insns.get(at));
                (name.clone(), insns.iter().map(|(at, a)| (*at, mix(a, of(at)))).collect())
            });
            (insns.collect(), objects.collect())
        });
        ArmWindows { windows: windows.collect() }
    });
    BothArms::plain(near.renames_memory, arms)
}

/// So many windows tell more than a few that differ.
const MANY: usize = 8;

/// How many windows of each arm there is time for: a few, or many.
pub(super) fn count(bench: &dyn Bench, run_ns: [f64; 2], many: bool) -> usize {
    let most = bench.left().for_a_step().ns / (2.0 * WINDOW_NS);
    let few = spread::count(run_ns[0].max(run_ns[1]));
    let wanted = if many { MANY } else { few };
    wanted.min(most as usize).max(1)
}

/// The windows that were followed, before anything is taken to lie between two shapes.
pub(super) struct Followed {
    count: usize,
    by_shape: Vec<(CoreShape, BothArms)>,
}

impl Followed {
    /// No windows, of a core that may have any of its shapes, and that others were seen to share or not.
    pub fn none(design: &Design, is_shared: bool) -> Self {
        let both = |shape: CoreShape| {
            let both = BothArms::plain(shape.renames_memory, Default::default());
            (shape, both)
        };
        Self { count: 0, by_shape: shapes(design, is_shared).into_iter().map(both).collect() }
    }

    /// Those of one way to rename memory alone.
    pub fn of_way(mut self, way: MemoryRenaming) -> Self {
        self.by_shape.retain(|(shape, _)| shape.renames_memory == way);
        self
    }

    /// Follows windows of both arms until there are so many, once for each shape; the inner error says why there are none.
    ///
    /// # Errors
    /// Only when the user wants an end.
    pub fn follow(
        mut self,
        bench: &mut dyn Bench,
        images: &[Image; 2],
        run_ns: [f64; 2],
        design: &Design,
        count: usize,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Result<Self, EngineError>, EngineError> {
        let shapes: Vec<CoreShape> = self.by_shape.iter().map(|(shape, _)| shape.clone()).collect();
        let more = count - self.count;
        for arm in [Arm::A, Arm::B] {
            let numbers = self.count..count;
            let windows = spread::follow(run_ns[arm.index()], numbers, &mut |n, after| {
                let done = more * arm.index() + n - self.count;
                progress(done as u32, 2 * more as u32);
                bench.window(arm, after, design, &shapes)
            })?;
            let windows = match windows {
                Ok(windows) => windows,
                Err(why) => return Ok(Err(why)),
            };
            for window in windows {
                for ((_, both), window) in self.by_shape.iter_mut().zip(window) {
                    both.arms[arm.index()].add(&images[arm.index()], window);
                }
            }
        }
        self.count = count;
        Ok(Ok(self))
    }

    /// The windows by each shape, and by what lies between two of them.
    pub fn with_mixtures(&self) -> Vec<BothArms> {
        let ways = self.by_shape.chunk_by(|(a, _), (b, _)| a.renames_memory == b.renames_memory);
        ways.flat_map(|way| with_mixtures(way.iter().map(|(_, both)| both.clone()).collect()))
            .collect()
    }
}

impl ArmWindows {
    pub(super) fn add(&mut self, image: &Image, window: WindowCount) {
        let in_image =
            |(at, account): &(FileOffset, Account)| Some((image.svma_of(*at)?, *account));
        self.windows.push((window.program.iter().filter_map(in_image).collect(), window.objects));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Microarchitecture;

    #[test]
    fn a_core_is_modelled_with_its_third_level_and_without_and_with_tables_of_two_sizes() {
        let shapes = shapes(&Design::of(Microarchitecture::Zen4), false);
        let ways = shapes.iter().map(|shape| {
            let [_, second, third] = shape.cache_bytes;
            (shape.renames_memory, third == second, shape.learned.directions)
        });
        let variants = |of| [(of, false, 140_000), (of, true, 140_000), (of, false, 17_500)];
        let expected = [MemoryRenaming::SameStore, MemoryRenaming::Never].map(variants).concat();
        assert_eq!(ways.collect::<Vec<_>>(), expected);
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
                ArmWindows { windows: vec![(insns, objects)] }
            };
            BothArms::plain(MemoryRenaming::Never, [arm(), arm()])
        };
        let cycles = |far: u64, forgetful: u64| {
            let mixtures = with_mixtures(vec![both(100), both(far), both(forgetful)]);
            let of = |it: &BothArms| {
                (it.from_memory_percent, it.forgotten_percent, it.arms[1].in_all()[0].cycles)
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
        let beside = with_mixtures([100, 100, 100, 200].map(both).into());
        let of = |it: &BothArms| (it.shared_percent, it.arms[0].in_all()[0].cycles);
        let beside: Vec<_> = beside.iter().map(of).collect();
        assert_eq!(beside, [(25, 250), (50, 300), (75, 350), (100, 400), (0, 200)]);
    }

    #[test]
    fn beside_another_thread_what_keeps_a_core_busy_has_half_of_it() {
        let shapes = shapes(&Design::of(Microarchitecture::Zen4), true);
        let [near, .., beside] = &shapes[..4] else { panic!() };
        let of = |shape: &CoreShape| (shape.dispatch_width, shape.store_queue, shape.load_cycles);
        assert_eq!((of(near), of(beside)), ((6, 64, 4), (3, 32, 4)));
        assert_eq!(shapes.len(), 8);
    }
}
