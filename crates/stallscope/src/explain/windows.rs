//! Windows of both builds, spread over the run: what happened in them, place by place.
//!
//! A window starts where the program is after a part of its processor time, not where it comes first: the
//! beginning of a run is not like the rest of it. What a window costs comes from the model of the core
//! ([`crate::sim::core`]), with everything and without each mechanism.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::Arc;

use super::run_count::InsnCounts;
use super::side::LEAST_WINDOWS;
use super::{Bench, CoreTaken, Place};
use crate::code::Image;
use crate::compare::{Arm, library_name};
use crate::model::{FileOffset, Svma};
use crate::sim::core::{Account, BlockedBy, WeightedSum};
use crate::trace::spread;

/// Instructions by their place in files, by what [`library_name`] calls these.
pub type ObjectInsns = HashMap<String, BTreeMap<FileOffset, Account>>;

/// An instruction, by its place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeAt {
    /// The file, where that is not the program's own; empty for code without a file.
    pub object: Option<PathBuf>,
    /// Its place there.
    pub offset: FileOffset,
}

/// What one window of one arm tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowCount {
    /// Instructions of the program's own file, by their place in it.
    pub program: Vec<(FileOffset, Account)>,
    /// Instructions of other files.
    pub objects: ObjectInsns,
    /// Which stores blocked which loads.
    pub blocked_by: Vec<BlockedBy<CodeAt>>,
}

/// Instructions that windows hold more rarely tell nothing of what one takes.
const LEAST_EXECUTIONS: u64 = 50;
/// Windows tell of a place where the instructions that they hold are such a part of what whole runs execute there: measured
/// on Zen 4, a loop of 6.5 % of the instructions had half of the time.
const LEAST_MET: f64 = 0.97;

/// What one window did with each instruction.
#[derive(Clone, PartialEq)]
pub(super) struct Window {
    /// Of the program's own file.
    pub(super) program: BTreeMap<Svma, Account>,
    pub(super) objects: ObjectInsns,
    /// Cycles and executions of all of them.
    all: [u64; 2],
}

impl Window {
    pub fn of(program: BTreeMap<Svma, Account>, objects: ObjectInsns) -> Self {
        let insns = program.values().chain(objects.values().flat_map(BTreeMap::values));
        let all = insns.fold([0, 0], |[cycles, executions], account| {
            [cycles + account.cycles, executions + account.executions]
        });
        Self { program, objects, all }
    }
}

/// The windows of one arm.
#[derive(Clone, Default, PartialEq)]
pub(super) struct ArmWindows {
    pub(super) windows: Vec<Window>,
    /// How often each load was blocked by each store, in all of them.
    pub(super) blocked_by: BTreeMap<[CodeAt; 2], u64>,
    /// Of a whole run; empty where that was not counted.
    pub(super) in_run: InsnCounts,
}

impl ArmWindows {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// No windows, of a run that executes each instruction so often.
    pub fn of_run(in_run: InsnCounts) -> Self {
        Self { in_run, ..Self::default() }
    }

    /// What the windows and whole runs do from `start` to `end`.
    fn held_between(&self, start: Svma, end: Svma) -> Held<'_, Svma> {
        let range = start..end.max(start);
        let windows = self.windows.iter().map(|it| entries(it.program.range(range.clone())));
        self.held(windows.collect(), entries(self.in_run.program.range(range)))
    }

    /// The same in another file.
    fn held_in(&self, name: &str) -> Held<'_, FileOffset> {
        let windows =
            self.windows.iter().map(|it| entries(it.objects.get(name).into_iter().flatten()));
        let in_run = entries(self.in_run.objects.get(name).into_iter().flatten());
        self.held(windows.collect(), in_run)
    }

    fn held<'a, K>(
        &self,
        windows: Vec<Vec<(K, &'a Account)>>,
        in_run: Vec<(K, &'a u64)>,
    ) -> Held<'a, K> {
        Held { windows: windows.into_iter().zip(self.weights()).collect(), in_run }
    }

    /// How many times each window counts. Where one starts was drawn by time, so each stands for as much time as any other,
    /// however much was executed in it: one of slow instructions is met more often than they are executed (D. R. Cox, "Some
    /// Sampling Problems in Technology", 1969: length-biased sampling).
    fn weights(&self) -> Vec<f64> {
        let [executions, per_cycle] = self.windows.iter().fold([0.0; 2], |[sum, rates], it| {
            let [cycles, executions] = it.all.map(|n| n as f64);
            [sum + executions, rates + executions / cycles.max(1.0)]
        });
        let same = executions / per_cycle.max(f64::MIN_POSITIVE);
        self.windows.iter().map(|it| same / (it.all[0] as f64).max(1.0)).collect()
    }

    /// Whether the windows hold most of what whole runs execute in a place of this arm, as far as that is known.
    pub fn meet(&self, arm: Arm, place: &Place) -> bool {
        match place {
            Place::Function { .. } => {
                place.function(arm).is_none_or(|f| self.held_between(f.start, f.end()).is_met())
            }
            Place::Object { .. } => self.held_in(&place.object_name()).is_met(),
        }
    }

    /// What each window did in a place of this arm, weighed by whole runs.
    pub fn in_place(&self, arm: Arm, place: &Place) -> Vec<Account> {
        match place {
            Place::Function { .. } => {
                let function = place.function(arm);
                function.map(|f| self.held_between(f.start, f.end()).weighed()).unwrap_or_default()
            }
            Place::Object { .. } => self.held_in(&place.object_name()).weighed(),
        }
    }

    /// What each window did in all places, weighed by whole runs.
    pub fn in_whole_run(&self) -> Vec<Account> {
        let windows = self.windows.iter().map(|it| everywhere(&it.program, &it.objects));
        let in_run = everywhere(&self.in_run.program, &self.in_run.objects);
        self.held(windows.collect(), in_run).weighed()
    }

    /// What each window did.
    pub fn in_all(&self) -> Vec<Account> {
        let all = |it: &Window| {
            it.program.values().chain(it.objects.values().flat_map(BTreeMap::values)).sum()
        };
        self.windows.iter().map(all).collect()
    }

    /// What all windows together did with each instruction from `start` to `end`.
    pub fn insns(&self, start: Svma, end: Svma) -> BTreeMap<Svma, Account> {
        let range = start..end.max(start);
        added(self.windows.iter().flat_map(|it| it.program.range(range.clone())))
    }

    /// The same of the program's whole file.
    pub fn insns_of_program(&self) -> BTreeMap<Svma, Account> {
        self.insns(Svma(0), Svma(u64::MAX))
    }

    /// What all windows together did with each instruction of another file.
    pub fn insns_of_object(&self, path: &Path) -> BTreeMap<FileOffset, Account> {
        self.insns_of(&library_name(path))
    }

    /// The same of what [`ObjectInsns`] calls so, which need be no file.
    pub fn insns_of(&self, name: &str) -> BTreeMap<FileOffset, Account> {
        added(self.windows.iter().filter_map(|it| it.objects.get(name)).flatten())
    }
}

#[cfg(test)]
impl ArmWindows {
    /// Two windows of one instruction of the program, of a run that executes instructions so often.
    pub fn of_insn(at: Svma, executions: u64, in_run: &[(Svma, u64)]) -> Self {
        let account = Account { executions: executions / 2, ..Account::default() };
        let program = Arc::new(in_run.iter().copied().collect());
        let in_run = InsnCounts { program, ..InsnCounts::default() };
        let windows = vec![Window::of(BTreeMap::from([(at, account)]), HashMap::new()); 2];
        Self { windows, in_run, ..Self::default() }
    }

    /// Two windows of so many instructions, some of them in one object.
    pub fn of_object(name: &str, executions: u64, all: u64) -> Self {
        let account = |executions| Account { executions: executions / 2, ..Account::default() };
        let insns = |executions| BTreeMap::from([(FileOffset(1), account(executions))]);
        let objects = [(name, executions), ("other", all - executions)];
        let objects = objects.map(|(name, executions)| (name.to_owned(), insns(executions)));
        Self { windows: vec![Window::of(BTreeMap::new(), objects.into()); 2], ..Self::default() }
    }
}

/// Instructions, with what each window did with them and how often a whole run executes them.
struct Held<'a, K> {
    /// With how many times each counts.
    windows: Vec<(Vec<(K, &'a Account)>, f64)>,
    /// Empty where whole runs were not counted.
    in_run: Vec<(K, &'a u64)>,
}

impl<K: Ord + Copy> Held<'_, K> {
    /// What each window did; weighed, where that can be.
    fn weighed(&self) -> Vec<Account> {
        self.as_in_run().unwrap_or_else(|| {
            let sum = |(window, times): &(Vec<(K, &Account)>, f64)| {
                window.iter().map(|(_, it)| *it).sum::<Account>().times(*times)
            };
            self.windows.iter().map(sum).collect()
        })
    }

    /// Whether the windows hold most of what whole runs execute, as far as that is known.
    fn is_met(&self) -> bool {
        self.in_run.is_empty() || self.as_in_run().is_some()
    }

    /// What each window would have done if it had executed each instruction as often as whole runs do: windows are few,
    /// and meet one loop of a function more often than another. What an instruction takes in one window more than in all
    /// stays in that window (W. Cochran, "Sampling Techniques", 1977, 5A.9: stratification after the sample was drawn).
    /// None where whole runs were not counted, or the windows hold too little of what they execute there.
    fn as_in_run(&self) -> Option<Vec<Account>> {
        let mut all: BTreeMap<K, (u64, WeightedSum)> = BTreeMap::new();
        for (insns, times) in &self.windows {
            for (at, account) in insns {
                let (executions, sum) = all.entry(*at).or_default();
                *executions += account.executions;
                sum.add(account, *times);
            }
        }
        let (mut in_run, mut met) = (0, 0);
        let mut means: BTreeMap<K, (&WeightedSum, u64)> = BTreeMap::new();
        for (at, times) in &self.in_run {
            in_run += **times;
            if let Some((_, sum)) = all.get(at).filter(|(n, _)| *n >= LEAST_EXECUTIONS) {
                met += **times;
                means.insert(*at, (sum, **times));
            }
        }
        if met == 0 || (met as f64) < LEAST_MET * in_run as f64 {
            return None;
        }
        let executions: f64 = all.values().map(|(_, sum)| sum.executions()).sum();
        let each = executions / (self.windows.len() as f64 * met as f64);
        let mut mean = WeightedSum::default();
        for (sum, times) in means.values() {
            mean.add_sum(sum, each * *times as f64 / sum.executions());
        }
        let window = |(insns, times): &(Vec<(K, &Account)>, f64)| {
            let mut sum = mean.clone();
            for (at, account) in insns {
                if let Some((in_all, _)) = means.get(at) {
                    sum.add(account, *times);
                    let part = account.executions as f64 / in_all.executions();
                    sum.add_sum(in_all, -times * part);
                }
            }
            sum.account()
        };
        Some(self.windows.iter().map(window).collect())
    }
}

fn entries<'a, K: Copy + 'a, V>(of: impl Iterator<Item = (&'a K, &'a V)>) -> Vec<(K, &'a V)> {
    of.map(|(at, what)| (*at, what)).collect()
}

/// What is known of the program's own file and of others, by file and place.
fn everywhere<'a, V>(
    program: &'a BTreeMap<Svma, V>,
    objects: &'a HashMap<String, BTreeMap<FileOffset, V>>,
) -> Vec<((Option<&'a str>, u64), &'a V)> {
    let program = program.iter().map(|(at, what)| ((None, at.0), what));
    let objects = objects.iter().flat_map(|(name, insns)| {
        insns.iter().map(|(at, what)| ((Some(name.as_str()), at.0), what))
    });
    program.chain(objects).collect()
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
pub(super) const WINDOW_NS: f64 = 1.5e9;

/// The windows of both arms, as one shape of the core runs them.
#[derive(Clone)]
pub(super) struct BothArms {
    /// What it takes the core for.
    pub core: CoreTaken,
    /// By arm.
    pub arms: [ArmWindows; 2],
}

/// So many windows tell more than a few that differ.
const MANY: usize = 8;

/// How many windows of each arm there is time for: a few, or many.
pub(super) fn count(bench: &dyn Bench, run_ns: [f64; 2], many: bool) -> usize {
    let most = bench.left().for_a_step().ns / (2.0 * WINDOW_NS);
    let few = spread::count(run_ns[0].max(run_ns[1]));
    let wanted = if many { MANY } else { few };
    wanted.min(most as usize).max(LEAST_WINDOWS)
}

impl ArmWindows {
    pub(super) fn add(&mut self, image: &Image, window: WindowCount) {
        let in_image =
            |(at, account): &(FileOffset, Account)| Some((image.svma_of(*at)?, *account));
        let program = window.program.iter().filter_map(in_image).collect();
        self.windows.push(Window::of(program, window.objects));
        for BlockedBy { load, store, times } in window.blocked_by {
            *self.blocked_by.entry([load, store]).or_default() += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ObjectCode;
    use super::*;

    /// Two loops of one function: the first takes a cycle an instruction, the second so many; each window met one of them.
    fn met(second: u64, in_run: &[(u64, u64)], windows: &[&[(u64, u64)]]) -> Vec<Account> {
        let account = |(at, executions): &(u64, u64)| {
            let cycles = executions * if *at == 1 { 1 } else { second };
            (Svma(*at), Account { executions: *executions, cycles, ..Account::default() })
        };
        let window =
            |insns: &&[(u64, u64)]| Window::of(insns.iter().map(account).collect(), HashMap::new());
        let in_run = in_run.iter().map(|(at, times)| (Svma(*at), *times)).collect();
        let windows = windows.iter().map(window).collect();
        let in_run = InsnCounts { program: Arc::new(in_run), ..InsnCounts::default() };
        ArmWindows { windows, in_run, ..ArmWindows::default() }
            .held_between(Svma(0), Svma(9))
            .weighed()
    }

    fn cycles_per_insn(windows: &[Account]) -> f64 {
        let all: Account = windows.iter().sum();
        all.cycles as f64 / all.executions as f64
    }

    #[test]
    fn loops_weigh_what_whole_runs_execute_and_not_how_many_windows_met_them() {
        // Three windows in the first loop and one in the second; the run is in both as often.
        let windows: [&[_]; 4] =
            [&[(1, 3 << 20)], &[(1, 3 << 20)], &[(1, 3 << 20)], &[(2, 1 << 20)]];
        let of_run = met(9, &[(1, 50_000), (2, 50_000)], &windows);
        assert!((cycles_per_insn(&of_run) - 5.0).abs() < 1e-5, "{of_run:?}");
        // As many executions as the windows hold, and no window apart from the others: the loops are as they always are.
        let alike =
            |it: &Account| it.executions.abs_diff(5 << 19) < 9 && it.cycles.abs_diff(25 << 19) < 99;
        assert!(of_run.iter().all(alike), "{of_run:?}");
        // Nothing was counted: a quarter of the time is in the second loop, and not a tenth of the instructions.
        let rate = (3.0 + 1.0 / 9.0) / 4.0;
        assert!((cycles_per_insn(&met(9, &[], &windows)) - 1.0 / rate).abs() < 1e-5);
    }

    #[test]
    fn what_windows_hardly_met_is_left_out_or_leaves_all_as_it_is() {
        let windows: [&[_]; 2] = [&[(1, 3000)], &[(1, 3000), (2, 49)]];
        let cycles = |run: &[(u64, u64)]| cycles_per_insn(&met(900, run, &windows));
        // Of too few executions nothing follows: the first loop stands for all, as long as it is most of the run.
        assert!((cycles(&[(1, 97_000), (2, 3000)]) - 1.0).abs() < 1e-9);
        let raw = 2.0 / (1.0 + 3049.0 / (3000.0 + 49.0 * 900.0));
        assert!((cycles(&[(1, 96_000), (2, 4000)]) - raw).abs() < 1e-3);
        // Fifty are enough.
        let windows: [&[_]; 2] = [&[(1, 3000)], &[(1, 3000), (2, 50)]];
        let half = cycles_per_insn(&met(900, &[(1, 50_000), (2, 50_000)], &windows));
        assert!((half - 450.5).abs() < 0.1, "{half}");
    }

    #[test]
    fn what_an_instruction_takes_longer_in_one_window_stays_in_that_window() {
        let arm = ArmWindows {
            windows: [100, 300]
                .map(|cycles| {
                    let account = Account { executions: 100, cycles, ..Account::default() };
                    Window::of(BTreeMap::from([(Svma(1), account)]), HashMap::new())
                })
                .into(),
            in_run: InsnCounts {
                program: Arc::new(BTreeMap::from([(Svma(1), 7)])),
                ..InsnCounts::default()
            },
            ..ArmWindows::default()
        };
        let held = arm.held_between(Svma(0), Svma(9)).weighed();
        // An instruction takes 1.5 cycles: as much time was met at one as at three. It is the first window that had more of them.
        assert_eq!(held.iter().map(|it| it.cycles).collect::<Vec<_>>(), [75, 225]);
    }

    #[test]
    fn loops_of_other_files_weigh_what_whole_runs_execute_too() {
        let account = |executions, cycles| Account { executions, cycles, ..Account::default() };
        let library = "libx.so".to_owned();
        // Three windows of its cheap loop and one of its expensive one; the program's own instruction is in all.
        let window = |at, cycles| {
            let objects = HashMap::from([(
                library.clone(),
                BTreeMap::from([(FileOffset(at), account(1000, cycles))]),
            )]);
            Window::of(BTreeMap::from([(Svma(at), account(1000, 1000))]), objects)
        };
        let windows = vec![window(1, 1000), window(1, 1000), window(1, 1000), window(2, 9000)];
        let in_library = BTreeMap::from([(FileOffset(1), 500), (FileOffset(2), 500)]);
        let in_run = InsnCounts {
            program: Arc::new(BTreeMap::from([(Svma(1), 500), (Svma(2), 500)])),
            objects: Arc::new(HashMap::from([(library.clone(), in_library)])),
        };
        let arm = ArmWindows { windows: windows.clone(), in_run, ..ArmWindows::default() };
        let place = Place::Object { name: library, code: ObjectCode::NotCompared, most_in: None };
        assert!((cycles_per_insn(&arm.in_place(Arm::A, &place)) - 5.0).abs() < 1e-9);
        assert!(arm.meet(Arm::A, &place));
        // The program's instructions take a cycle each, and are as many.
        assert!((cycles_per_insn(&arm.in_whole_run()) - 3.0).abs() < 1e-9);
        let uncounted = ArmWindows { windows, ..ArmWindows::default() };
        assert!((cycles_per_insn(&uncounted.in_place(Arm::A, &place)) - 1.5).abs() < 1e-9);
        assert!((cycles_per_insn(&uncounted.in_whole_run()) - 1.25).abs() < 1e-9);
    }
}
