//! Three commands and more, or one alone: rounds instead of pairs, and each command held against the fastest.
//!
//! A round runs every command once, in an order that is drawn for it. So the runs of any two commands form
//! pairs, and each command is compared with the one of the smallest median as two commands always are. Because
//! several are, their p-values are adjusted (Holm), and a word that does not stand that is taken back.

use std::mem::discriminant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::analysis::{Metric, SHORT_NS, typical};
use super::measure::Measure;
use super::schedule::{self, Arm, Slot};
use super::{
    Analysis, ArmRecord, CompareError, Comparison, Progress, RunSample, Runner, Settings, Warning,
    run_all,
};
use crate::model::Measurement;
use crate::stats::ALPHA;
use crate::stats::families::{Adjustment, adjust};
use crate::stats::power::fewest_pairs;

/// One command of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranked {
    /// What was run.
    pub arm: ArmRecord,
    /// Median and quartiles of what the ranking is about.
    pub typical: Measurement,
    /// This command as B against the fastest as A; absent for the fastest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_fastest: Option<Analysis>,
    /// The p-value of that, adjusted for all commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_p: Option<f64>,
    /// Its runs in order of time; a round stands for a pair.
    pub runs: Vec<RunSample>,
}

/// Commands in the order of their times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// Settings; `pairs` is the number of rounds.
    pub settings: Settings,
    /// The commands in the order given: A, B, C.
    pub commands: Vec<Ranked>,
    /// Their letters, the smallest median first.
    pub order: Vec<Arm>,
    /// What to know before believing it; those about two commands are about the fastest and another.
    pub warnings: Vec<Warning>,
}

impl Ranking {
    /// The command of a letter.
    #[must_use]
    pub fn command(&self, arm: Arm) -> Option<&Ranked> {
        self.commands.get(arm.index())
    }
}

/// Runs all commands in rounds and ranks them.
///
/// # Errors
/// Whatever the runner reports first; then there is no partial result.
pub fn rank(
    runner: &mut dyn Runner,
    settings: &Settings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Ranking, CompareError> {
    settings.check()?;
    let arms = runner.arms().len();
    if !(1..=Arm::MOST).contains(&arms) {
        let why = format!("{arms} commands: between 1 and {} can be ranked", Arm::MOST);
        return Err(CompareError::Settings(why));
    }
    if settings.until.is_some() {
        let why = "only a comparison of two commands can be stopped when it is known (--until)";
        return Err(CompareError::Settings(why.into()));
    }
    let schedule = schedule::rounds(settings.pairs, arms, settings.seed);
    let mut settings = settings.clone();
    let samples = run_all(runner, &mut settings, &schedule, arms, progress)?;
    judge(runner.arms(), &settings, samples)
}

/// Judges samples of whole rounds.
fn judge(
    arms: Vec<ArmRecord>,
    settings: &Settings,
    samples: Vec<RunSample>,
) -> Result<Ranking, CompareError> {
    // One measure for all: which of them waited for the processor would change what the ratio is about.
    let measure = match &settings.measure {
        Measure::Auto => Measure::Wall,
        other => other.clone(),
    };
    let settings = Settings { measure, ..settings.clone() };
    let metric = Metric::for_verdict(&settings.measure);
    let mut commands: Vec<Ranked> = Vec::new();
    for (arm, record) in Arm::first(arms.len()).zip(arms) {
        let runs: Vec<RunSample> = samples.iter().filter(|s| s.plan.arm == arm).cloned().collect();
        for run in &runs {
            run.amounts.judged(&settings.measure)?;
        }
        let amounts: Vec<f64> = runs.iter().map(|run| metric.of(&run.amounts)).collect();
        let typical = typical(&amounts, metric.unit());
        commands.push(Ranked {
            arm: record,
            typical,
            against_fastest: None,
            adjusted_p: None,
            runs,
        });
    }
    let mut order: Vec<Arm> = Arm::first(commands.len()).collect();
    let median = |arm: &Arm| commands[arm.index()].typical.value;
    order.sort_by(|a, b| median(a).total_cmp(&median(b)));
    let fastest = order[0];
    for other in &order[1..] {
        let both = [fastest, *other].map(|arm| &commands[arm.index()]);
        let samples = paired(both.map(|command| &command.runs[..]));
        let analysis =
            Comparison::new(both.map(|c| c.arm.clone()), settings.clone(), samples)?.analysis;
        commands[other.index()].against_fastest = Some(analysis);
    }
    adjust_words(&mut commands);
    let warnings = warnings(&commands, metric);
    Ok(Ranking { settings, commands, order, warnings })
}

/// The runs of two commands as those of A and B, round by round.
fn paired([a, b]: [&[RunSample]; 2]) -> Vec<RunSample> {
    let mut samples = Vec::new();
    for (a, b) in a.iter().zip(b) {
        let mut both = [(Arm::A, a, b), (Arm::B, b, a)].map(|(arm, own, other)| {
            let mut run = own.clone();
            let is_first = own.plan.order < other.plan.order;
            run.plan.arm = arm;
            run.plan.slot = if is_first { Slot::First } else { Slot::Second };
            run
        });
        both.sort_by_key(|run| run.plan.order);
        samples.extend(both);
    }
    samples
}

/// Adjusts what is said of each command for how many of them are compared.
fn adjust_words(commands: &mut [Ranked]) {
    let compared: Vec<&mut Ranked> =
        commands.iter_mut().filter(|command| command.against_fastest.is_some()).collect();
    let p_value = |command: &&mut Ranked| {
        command.against_fastest.as_ref().map_or(f64::NAN, |a| a.wall.signed_rank.p_value)
    };
    let raw: Vec<f64> = compared.iter().map(p_value).collect();
    for (command, p) in compared.into_iter().zip(adjust(&raw, Adjustment::Holm)) {
        command.adjusted_p = Some(p);
        if let Some(analysis) = command.against_fastest.as_mut().filter(|_| p >= ALPHA) {
            analysis.verdict.doubt_noise();
        }
    }
}

/// One of each kind; what names an arm is said anew, by the letters of all of them.
fn warnings(commands: &[Ranked], metric: Metric) -> Vec<Warning> {
    let mut found: Vec<Warning> = Vec::new();
    let names_an_arm = |warning: &Warning| {
        matches!(
            warning,
            Warning::ShellStart { .. }
                | Warning::OutputVaries { .. }
                | Warning::OutputDiffers
                | Warning::FailuresIgnored { .. }
                | Warning::ThreadsOnOneProcessor { .. }
                | Warning::OneBuildEach
                | Warning::FewPairs { .. }
        )
    };
    let of_pairs = commands.iter().filter_map(|c| c.against_fastest.as_ref());
    for warning in of_pairs.flat_map(|analysis| &analysis.warnings) {
        let is_known = found.iter().any(|other| discriminant(other) == discriminant(warning));
        if !names_an_arm(warning) && !is_known {
            found.push(warning.clone());
        }
    }
    if let ([alone], Metric::Wall) = (commands, metric)
        && alone.typical.value < SHORT_NS
    {
        found.push(Warning::TooShort { median_ns: alone.typical.value });
    }
    let compared = commands.iter().filter(|c| c.against_fastest.is_some()).count();
    let (pairs, fewest) = (commands[0].runs.len(), fewest_pairs(compared));
    if compared > 0 && pairs < fewest {
        found.push(Warning::FewPairs { pairs: pairs as u32, fewest: fewest as u32 });
    }
    let named = || Arm::first(commands.len()).zip(commands);
    let shells = named().filter_map(|(arm, command)| {
        let walls: Vec<f64> = command.runs.iter().map(|r| r.amounts.wall_ns as f64).collect();
        Warning::of_shell(arm, &command.arm, typical(&walls, Metric::Wall.unit()).value)
    });
    found.extend(shells);
    let failed: Vec<u32> = commands
        .iter()
        .map(|c| c.runs.iter().filter(|run| run.failure.is_some()).count() as u32)
        .collect();
    if failed.iter().any(|n| *n > 0) {
        found.push(Warning::FailuresOfSeveral { failed });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Decision;
    use super::super::simulate::{Noise, SimulatedMachine};
    use super::*;

    /// A machine with so many commands, each so much slower than the first (log).
    struct Several(SimulatedMachine, Vec<f64>);

    impl Runner for Several {
        fn arms(&self) -> Vec<ArmRecord> {
            let record = |n: usize| ArmRecord {
                command: vec![format!("./{n}")],
                program: n.to_string(),
                program_fnv1a: n.to_string(),
                ..ArmRecord::default()
            };
            (0..self.1.len()).map(record).collect()
        }

        fn run(&mut self, plan: &schedule::PlannedRun) -> Result<RunSample, CompareError> {
            self.0.effect_log = self.1[plan.arm.index()];
            let as_b = schedule::PlannedRun { arm: Arm::B, ..*plan };
            Ok(RunSample { plan: *plan, ..self.0.run(&as_b)? })
        }
    }

    fn ranked(effects: &[f64], rounds: u32) -> Ranking {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 40 * rounds, 3);
        machine.run_sd_log = 0.01;
        let settings = Settings { pairs: rounds, ..Settings::default() };
        let mut seen = 0;
        let mut machine = Several(machine, effects.to_vec());
        let ranking = rank(&mut machine, &settings, &mut |p| {
            seen += u32::from(matches!(p, Progress::Ran { .. }));
        });
        assert_eq!(seen, rounds * effects.len() as u32);
        ranking.unwrap()
    }

    #[test]
    fn rounds_that_are_too_few_for_so_many_commands_are_said() {
        let few = |effects: &[f64], rounds: u32| {
            let ranking = ranked(effects, rounds);
            let fewest = |w: &Warning| match w {
                Warning::FewPairs { fewest, .. } => Some(*fewest),
                _ => None,
            };
            ranking.warnings.iter().find_map(fewest)
        };
        assert_eq!(few(&[0.0, 0.7, 0.7], 6), Some(7));
        assert_eq!(few(&[0.0, 0.7, 0.7], 7), None);
        assert_eq!(few(&[0.0, 0.7], 6), None);
        assert_eq!(few(&[0.0], 2), None);
    }

    #[test]
    fn commands_come_in_the_order_of_their_times_with_their_ratios() {
        let ranking = ranked(&[0.2, 0.0, 0.7, 0.2], 20);
        assert_eq!(ranking.order[0], Arm::B);
        assert_eq!(ranking.order[3].to_string(), "C");
        assert!(ranking.command(Arm::B).unwrap().against_fastest.is_none());
        let ratio = |n: usize| {
            let analysis = ranking.commands[n].against_fastest.as_ref().unwrap();
            assert_eq!(analysis.verdict.decision, Decision::Slower);
            analysis.wall.log_ratio
        };
        for (n, effect) in [(0, 0.2), (2, 0.7), (3, 0.2)] {
            assert!((ratio(n) - effect).abs() < 0.02, "{n}: {}", ratio(n));
            let command = &ranking.commands[n];
            assert_eq!(command.runs.len(), 20);
            assert!(
                command.adjusted_p
                    >= command.against_fastest.as_ref().map(|a| a.wall.signed_rank.p_value)
            );
        }
    }

    #[test]
    fn equal_commands_are_not_called_slower() {
        let ranking = ranked(&[0.0; 8], 12);
        for command in ranking.commands.iter().filter_map(|c| c.against_fastest.as_ref()) {
            assert_ne!(command.verdict.decision, Decision::Slower);
        }
    }

    #[test]
    fn one_command_is_measured_and_held_against_nothing() {
        let ranking = ranked(&[0.0], 7);
        let alone = ranking.command(Arm::A).unwrap();
        assert_eq!((alone.runs.len(), alone.typical.n, ranking.order.len()), (7, 7, 1));
        assert!(alone.against_fastest.is_none() && ranking.warnings.is_empty());
    }

    #[test]
    fn one_command_that_is_over_in_less_than_a_millisecond_is_short() {
        let of = |base_ns: f64| {
            let mut machine = SimulatedMachine::new(Noise::Quiet, 40, 3);
            (machine.base_ns, machine.run_sd_log) = (base_ns, 0.001);
            let mut machine = Several(machine, vec![0.0]);
            let settings = Settings { pairs: 7, ..Settings::default() };
            rank(&mut machine, &settings, &mut |_| {}).unwrap().warnings
        };
        assert!(matches!(of(0.9e6)[..], [Warning::TooShort { median_ns }] if median_ns < 1e6));
        assert_eq!(of(1.1e6), []);
    }

    #[test]
    fn failures_and_what_pairs_show_are_told_once_and_of_all() {
        let mut machine = SimulatedMachine::new(Noise::LinearDrift(0.2), 120, 3);
        machine.run_sd_log = 0.001;
        let mut machine = Several(machine, vec![0.0, 0.5, 0.5]);
        let settings = Settings { pairs: 20, ..Settings::default() };
        let mut ranking = rank(&mut machine, &settings, &mut |_| {}).unwrap();
        let drifts =
            |found: &[Warning]| found.iter().filter(|w| matches!(w, Warning::Drift { .. })).count();
        assert_eq!(drifts(&ranking.warnings), 1, "{:?}", ranking.warnings);
        assert!(!ranking.warnings.contains(&Warning::OneBuildEach), "that is about pairs");
        ranking.commands[1].runs[3].failure = Some("exit code 1".into());
        let found = warnings(&ranking.commands, Metric::Wall);
        let failed = |w: &Warning| *w == Warning::FailuresOfSeveral { failed: vec![0, 1, 0] };
        assert!(found.iter().any(failed), "{found:?}");
    }

    #[test]
    fn runs_of_two_commands_are_paired_in_the_order_in_which_they_ran() {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 40, 3);
        let mut run = |order, arm| {
            let plan = schedule::PlannedRun {
                order,
                pair: order / 4,
                block: 0,
                slot: Slot::Second,
                arm,
                environment_padding_bytes: 0,
            };
            machine.run(&plan).unwrap()
        };
        let [c, d] = [Arm::A, Arm::B];
        let (first, second) = ([run(1, c), run(6, c)], [run(3, d), run(4, d)]);
        let found: Vec<_> = paired([&first, &second])
            .iter()
            .map(|run| (run.plan.order, run.plan.arm, run.plan.slot))
            .collect();
        assert_eq!(
            found,
            [
                (1, Arm::A, Slot::First),
                (3, Arm::B, Slot::Second),
                (4, Arm::B, Slot::First),
                (6, Arm::A, Slot::Second)
            ]
        );
    }

    #[test]
    fn too_many_commands_are_refused() {
        let mut machine =
            Several(SimulatedMachine::new(Noise::Quiet, 9, 3), vec![0.0; Arm::MOST + 1]);
        let error = rank(&mut machine, &Settings::default(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("27 commands"), "{error}");
    }
}
