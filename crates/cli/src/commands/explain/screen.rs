//! One screen: the difference, the function, the site, the mechanism, the grade, what is open.

use stallscope::code::SourceText;
use stallscope::compare::{Arm, Comparison, Decision, Doubt, Metric, Warning};
use stallscope::explain::{
    ArmHeat, BlockedLoad, Built, Cause, Conclusion, Counts, Explanation, FunctionRow, Ledger,
    Tally, Whole, Work,
};
use stallscope::layout::ChangeCounts;
use stallscope::model::{Grade, Measurement, Site};
use stallscope::sim::core::Mechanism;

use super::proof::{cure, ledger_text, placements};
use crate::commands::compare::screen::verdict;
use crate::commands::{site, words};
use crate::terminal::{STRONG, paint, wrap};

/// Places that are listed when no mechanism was found.
const MOST_ROWS: usize = 5;
/// Stores that block a load and are named.
const MOST_STORES: usize = 4;
/// What is left of the difference and is worth a line, in per cent.
const LEAST_REST: f64 = 0.5;
/// Where text starts behind the labels.
const INDENT: usize = 9;
pub(super) const NO_LABEL: &str = "         ";

/// The whole answer as text.
pub fn screen(explanation: &Explanation, text: &mut SourceText) -> String {
    let comparison = &explanation.comparison;
    let mut out = verdict(comparison) + "\n";
    out += &explanation.summary.as_ref().map(|s| wrap("cause    ", s) + "\n").unwrap_or_default();
    out += &(arms(comparison) + "\n");
    out += &explanation.work.as_ref().map(work).unwrap_or_default();
    out += &kernel(explanation);
    out += &explanation.built.as_ref().map(built).unwrap_or_default();
    let named = explanation.named_ledger();
    match (explanation.conclusion, explanation.causes.first()) {
        (Conclusion::NothingToExplain, _) => {
            let verdict = &comparison.analysis.verdict;
            let so = match verdict.decision {
                _ if verdict.doubt == Some(Doubt::IdenticalFiles) => {
                    "the two builds are one and the same, so no cause was looked for in them"
                }
                Decision::Inconclusive => "the runs do not decide, so no cause was looked for",
                _ => "there is nothing to explain, and no cause was looked for",
            };
            out += &wrap("so       ", so);
        }
        (Conclusion::Mechanism, Some(cause)) => out += &cause_text(explanation, cause, text),
        (Conclusion::Mechanism, None) if named.is_some() => {
            out += &named.map(|ledger| named_text(explanation, ledger, text)).unwrap_or_default();
        }
        _ => {
            let labels = std::iter::once("where    ").chain(std::iter::repeat(NO_LABEL));
            for (label, row) in labels.zip(&explanation.rows).take(MOST_ROWS) {
                out += &row_text(label, row);
            }
            out += &elsewhere(explanation.rows.iter().take(MOST_ROWS));
        }
    }
    out += &callers(explanation);
    out += &explanation.cure.as_ref().map(cure).unwrap_or_default();
    out += &explanation.placements.as_ref().map(placements).unwrap_or_default();
    for ledger in &explanation.ledgers {
        out += &ledger_text(ledger);
    }
    let told = |open: &&String| explanation.summary.as_ref() != Some(*open);
    for open in explanation.unexplained.iter().filter(told) {
        out += &wrap("open     ", open);
    }
    if let Some(heat) = &explanation.heat {
        out += &wrap("how      ", &how(heat, &explanation.census));
    }
    for note in &explanation.notes {
        out += &wrap("note     ", note);
    }
    for warning in comparison.analysis.warnings.iter().filter(|w| **w != Warning::OneBuildEach) {
        out += &wrap("note     ", &warning.to_string());
    }
    out + &wrap(
        "note     ",
        "one build of each was run: this is about these two binaries, and layout alone moves \
         programs by 1-3 %",
    )
}

/// What was run, with its time.
fn arms(comparison: &Comparison) -> String {
    // The first one is what the verdict is about.
    let Some(contrast) = comparison.analysis.contrasts.first() else { return String::new() };
    let clock = if contrast.metric == Metric::Cpu { " on the processor" } else { "" };
    let line = |name: &str, arm: usize, time: &Measurement| {
        let command = comparison.arms[arm].display();
        wrap(name, &format!("{}{clock} {command}", milliseconds(time)))
    };
    line("BEFORE   ", 0, &contrast.a) + &line("AFTER    ", 1, &contrast.b)
}

/// Whether the difference is in how much is executed, or in how long it takes.
fn work(work: &Work) -> String {
    let mut counts = counts_words(&work.instructions);
    if work.string_bytes.shows_events() {
        counts += &format!("; bytes moved by `rep`: {}", counts_words(&work.string_bytes));
    }
    if work.calls.shows_events() {
        counts += &format!("; calls: {}", counts_words(&work.calls));
    }
    let Measurement { value, low, high, .. } = work.slower_instructions.percent;
    let text = if work.is_the_same() && work.instructions.is_the_same() {
        format!(
            "both execute the same number of instructions, {counts}; in how long they take: {}",
            work.slower_instructions
        )
    } else {
        format!(
            "AFTER executes {:.3} times the instructions, {counts}. In how many are executed: {}; in \
             how long they take: {value:.1} % [{low:.1}, {high:.1}]",
            work.instructions.ratio(),
            work.more_instructions,
        )
    };
    wrap("work     ", &text)
}

fn counts_words(counts: &Counts) -> String {
    let span = |[low, high]: [u64; 2]| match low == high {
        true => words::grouped(low),
        false => format!("{} to {}", words::grouped(low), words::grouped(high)),
    };
    let runs = if counts.runs == 1 { "1 run".to_owned() } else { format!("{} runs", counts.runs) };
    format!("{} -> {} ({runs} of each)", span(counts.before), span(counts.after))
}

/// What the two ask of the kernel, where that differs.
fn kernel(explanation: &Explanation) -> String {
    let mut lines: Vec<String> = explanation
        .kernel
        .events()
        .map(|(what, counts, is_least)| {
            let least = match is_least {
                true => "; the larger number is of a run not counted to its end",
                false => "",
            };
            wrap("kernel   ", &format!("{what}: {}{least}", counts_words(&counts)))
        })
        .collect();
    let most = explanation.kernel.most_of_calls.as_ref();
    if let (Some(calls), Some(most)) = (lines.first_mut(), most) {
        let words = format!("most of all {}: {}", most.words(), counts_words(&most.counts));
        *calls += &wrap(NO_LABEL, &words);
    }
    lines.concat()
}

/// How the files say that they were made, where they differ in it.
fn built(built: &Built) -> String {
    let of = built
        .function
        .as_ref()
        .map_or(String::new(), |name| format!("{}: ", site::short_name(name)));
    let [before, after] = built.only.each_ref().map(|only| match &only[..] {
        [] => "nothing that the other has not".to_owned(),
        only => only.join(" "),
    });
    wrap("built    ", &format!("{of}BEFORE with {before}; AFTER with {after}"))
}

pub(super) fn milliseconds(m: &Measurement) -> String {
    format!("{:.1} ms [{:.1}, {:.1}]", m.value / 1e6, m.low / 1e6, m.high / 1e6)
}

fn row_text(label: &str, row: &FunctionRow) -> String {
    let name = site::clip(site::short_name(row.place.name()), 56);
    let (before, after) = (milliseconds(&row.before), milliseconds(&row.after));
    let share = &row.share_of_difference;
    format!("{label}{} ({})\n", paint(STRONG, name), row.place.change_words())
        + &wrap(NO_LABEL, &format!("user time {before} -> {after}"))
        + &wrap(NO_LABEL, &share.to_string())
}

/// From where the place with most of the difference is called, where that is from several places.
fn callers(explanation: &Explanation) -> String {
    let from = explanation.stacks.as_ref().and_then(|stacks| stacks.called_from.as_ref());
    let Some((from, callers)) = from.and_then(|from| Some((from, from.several()?))) else {
        return String::new();
    };
    let words: Vec<String> = callers
        .iter()
        .map(|caller| {
            let Measurement { value, low, high, .. } = caller.share_of_difference.percent;
            let name = site::clip(site::short_name(&caller.function.name), 56);
            let file = caller.function.file.as_ref().map_or(String::new(), |f| format!(" ({f})"));
            format!("{name}{file} {value:.1} % [{low:.1}, {high:.1}]")
        })
        .collect();
    let text = format!(
        "{} is called from: {} of {}",
        site::clip(site::short_name(&from.place), 56),
        words.join(", "),
        Whole::DifferenceInProcessorTime
    );
    wrap("callers  ", &text)
}

/// What the listed places leave of the whole, so that what is listed adds up.
fn elsewhere<'a>(shown: impl Iterator<Item = &'a FunctionRow>) -> String {
    let shares: Vec<f64> = shown.map(|r| r.share_of_difference.percent.value).collect();
    let rest = 100.0 - shares.iter().sum::<f64>();
    if shares.is_empty() || rest.abs() < LEAST_REST {
        return String::new();
    }
    let whole = Whole::DifferenceInProcessorTime;
    wrap(NO_LABEL, &format!("all else, the kernel included: {rest:.1} % of {whole}"))
}

fn cause_text(explanation: &Explanation, cause: &Cause, text: &mut SourceText) -> String {
    let finding = &cause.finding;
    let row = explanation.rows.iter().find(|r| r.place.name() == finding.site.function);
    let mut out = row.map(|r| row_text("where    ", r)).unwrap_or_default();
    out += &elsewhere(row.into_iter());
    out += &loop_text(cause);
    out += &format!("site     {}\n", site::load_words(&finding.site));
    out += &site::site(&finding.site, INDENT, text);
    for line in &cause.mentions {
        out += &site::indented_line(line, "", INDENT, text);
    }
    let set = cause.hottest_set.unwrap_or(0);
    out += &format!("{NO_LABEL}{}\n", site::store_words(finding, set));
    out += &site::stores(finding, set, INDENT, text);
    out += &wrap(
        NO_LABEL,
        &format!("{} are on the load and the instructions behind it", cause.share_behind_site),
    );
    out += &wrap("why      ", &format!("store-to-load forwarding fails: {}", finding.mechanism));
    let other = match cause.in_other_arm {
        None => "the other build has no function to compare it with".to_owned(),
        Some(0) => "the other build's function has no such site".to_owned(),
        Some(n) => format!("but the other build's function has {n} such sites too"),
    };
    out += &counts(cause);
    out += &wrap("grade    ", &format!("{}: {}; {other}", finding.grade, finding.grade.meaning()));
    out + &wrap("try      ", &finding.remedy)
}

/// A mechanism that the model of the core found, with no rule that knows its shape.
fn named_text(explanation: &Explanation, ledger: &Ledger, text: &mut SourceText) -> String {
    let row = explanation.rows.iter().find(|r| r.place.name() == ledger.place);
    let mut out = row.map(|r| row_text("where    ", r)).unwrap_or_default();
    out += &elsewhere(row.into_iter());
    let Some(line) = ledger.named() else { return out };
    if let Some(site) = &line.site {
        out += "site     ";
        out += site::site(site, INDENT, text).trim_start();
        if line.mechanism == Mechanism::BlockedLoads {
            out += &blocking_stores(explanation, ledger.slow_arm, site, text);
        }
    }
    let most_at = match &line.site {
        Some(site) if row.is_some() && site.function != ledger.place => {
            "; the site, in front of it, has it most often"
        }
        Some(_) => "; the site has it most often",
        None => "",
    };
    let often = match line.per_thousand {
        Some([before, after]) => {
            let [takes_before, takes_after] = line.cycles_per_instruction;
            format!(
                ": {before:.2} in a thousand instructions of BEFORE, {after:.2} of AFTER, which take \
                 {takes_before:.2} and {takes_after:.2} cycles an instruction{most_at}"
            )
        }
        None => "; the site takes most of the time".to_owned(),
    };
    out += &wrap("why      ", &format!("{}{often}", line.mechanism));
    let grade = explanation.grade.unwrap_or(Grade::Counted);
    out + &wrap("grade    ", &format!("{grade}: {}", grade.meaning()))
}

/// The stores that block the load which a place names.
fn blocking_stores(
    explanation: &Explanation,
    slow: Arm,
    load: &Site,
    text: &mut SourceText,
) -> String {
    let mut out = String::new();
    let stores = explanation.blocking_stores(slow, load).take(MOST_STORES);
    for BlockedLoad { store, percent, .. } in stores {
        let function = match store.function == load.function {
            true => String::new(),
            false => format!(" in {}", site::clip(site::short_name(&store.function), 40)),
        };
        let words = format!("waits in {percent:.1} % of its executions for this store{function}");
        out += &wrap(NO_LABEL, &words);
        out += &site::site(store, INDENT, text);
    }
    out
}

/// How often it happened in windows of both builds.
fn counts(cause: &Cause) -> String {
    let Some(counted) = &cause.counted else { return String::new() };
    let (here, there) = (cause.arm.build_name(), cause.arm.other().build_name());
    let tally = |name: &str, tally: &Tally| {
        format!(
            "{name} {:.1} of 1000 instructions ({} in {} windows)",
            tally.per_thousand(),
            words::grouped(tally.instructions),
            tally.windows
        )
    };
    let other = match &counted.there {
        Some(other) => format!(", in {}", tally(there, other)),
        None => format!("; {there} has no such function"),
    };
    wrap(
        "counted  ",
        &format!(
            "blocked in {:.1} % of {} executions; all blocked loads of the function: in {}{other}",
            100.0 * counted.blocked_share(),
            words::grouped(counted.executions),
            tally(here, &counted.here),
        ),
    )
}

fn loop_text(cause: &Cause) -> String {
    let heat = &cause.loop_heat;
    let lines = match &heat.lines {
        Some((first, last)) => format!(" ({first} to {})", last.line),
        None => String::new(),
    };
    let share = &heat.share_of_function;
    let place = format!("loop {} to {}{lines}: {share}", heat.start, heat.end);
    wrap(NO_LABEL, &place)
}

fn how([before, after]: &[ArmHeat; 2], census: &ChangeCounts) -> String {
    let ChangeCounts { same, moved, changed, new, gone } = census;
    format!(
        "{} every {:.1} ms: {} samples in {} runs of BEFORE, {} in {} of AFTER. Functions: \
         {changed} changed, {moved} moved, {same} the same, {new} new, {gone} gone",
        before.engine,
        before.period_ns as f64 / 1e6,
        before.samples,
        before.runs,
        after.samples,
        after.runs,
    )
}

#[cfg(test)]
mod tests {
    use stallscope::clock::Cpus;
    use stallscope::code::fixture;
    use stallscope::compare::Settings;
    use stallscope::compare::simulate::{Noise, SimulatedMachine};
    use stallscope::explain::{
        ByPlace, CodeAt, Executed, TimeLeft, WindowCount, WorkCount, explain,
        simulate::InventedBench,
    };
    use stallscope::machine::{Design, Microarchitecture};
    use stallscope::model::FileOffset;
    use stallscope::sim::core::{Account, BlockedBy, Mechanism};

    use super::*;
    use crate::terminal::plain;

    fn shown(wide: [bool; 2], effect: f64, millions: Option<[u64; 2]>) -> String {
        let mut text = SourceText::default();
        plain(&screen(&explained(wide, effect, millions, &mut text), &mut text))
    }

    /// A decoder that is slower by `effect` in AFTER; `wide` says which arm has the merged load, and
    /// `millions` how many instructions the arms execute, if that can be counted.
    fn explained(
        wide: [bool; 2],
        effect: f64,
        millions: Option<[u64; 2]>,
        text: &mut SourceText,
    ) -> Explanation {
        let folder = tempfile::tempdir().unwrap();
        let programs = ["before", "after"].map(|name| folder.path().join(name));
        let mut hits = [vec![], vec![]];
        for arm in [0, 1] {
            let decoder = fixture::ring_loop(wide[arm]);
            let bytes = fixture::program(&[("decode", &decoder)]);
            std::fs::write(&programs[arm], bytes).unwrap();
            hits[arm] = vec![(FileOffset(fixture::CODE_START.1.0 + 14), 3000)];
        }
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 5);
        machine.effect_log = effect;
        let mut bench = InventedBench {
            machine,
            settings: Settings { seed: 42, cpus: Some(Cpus::one(1)), ..Settings::default() },
            hits,
            kernel_samples: None,
            stacks: [None, None],
            library_hits: [30, 30],
            library: ["/lib/libc.so.6".into(), "/lib/libc.so.6".into()],
            notes: vec!["sampled with ptrace: the kernel forbids perf events".into()],
            samples: true,
            left: TimeLeft::ANY,
            windows_fail: false,
            patched_ns: Some([100_000_000, 200_000_000, 201_000_000, 103_000_000]),
            shared_percents: Vec::new(),
            placements: 0,
            flushed_ns: None,
            denormals: vec![],
            slowest: stallscope::compare::Arm::B,
            control: None,
            work: [0, 1].map(|arm| millions.and_then(|m| executed(m[arm]))),
            counts: wide.map(|wide| {
                let blocked = if wide { 3_996 } else { 0 };
                let mut load = Account { executions: 4000, ..Account::default() };
                load.events[Mechanism::BlockedLoads as usize] = blocked;
                load.store_edges = 1 << 4;
                let others = Account { executions: 76_000, ..Account::default() };
                let start = fixture::CODE_START.1;
                let program = vec![(start.offset(7), load), (start, others)];
                let at = |bytes| CodeAt { object: None, offset: start.offset(bytes) };
                let pair = |store| BlockedBy { load: at(7), store: at(store), times: blocked };
                let blocked_by = [19, 24].map(pair).to_vec();
                Some(WindowCount { program, blocked_by, ..WindowCount::default() })
            }),
        };
        let profile = Design::of(Microarchitecture::Zen5);
        explain(programs, &mut bench, &profile, text, &mut |_| {}).unwrap()
    }

    fn executed(millions: u64) -> Option<WorkCount> {
        let instructions = millions * 1_000_000;
        let program = vec![(
            FileOffset(fixture::CODE_START.1.0),
            Executed { instructions, ..Executed::default() },
        )];
        let executed = ByPlace { program, ..ByPlace::default() };
        Some(WorkCount { instructions, system_calls: 31, executed, ..WorkCount::default() })
    }

    #[test]
    fn the_first_story() {
        insta::assert_snapshot!(shown([false, true], 0.7, Some([1000, 960])));
    }

    #[test]
    fn stores_that_block_a_load_are_named_with_how_often() {
        let text = &mut SourceText::default();
        let story = explained([false, true], 0.7, Some([1000, 960]), text);
        let load = &story.causes[0].finding.site;
        let said = plain(&blocking_stores(&story, Arm::B, load, text));
        assert_eq!(
            said,
            "         waits in 99.9 % of its executions for this store\n         \
             0x401013  mov dword ptr [rsp+rbx*8-0x10], r11d\n         \
             waits in 99.9 % of its executions for this store\n         \
             0x401018  mov dword ptr [rsp+rbx*8-0xc], r14d\n"
        );
        let elsewhere = Site { function: "helper".into(), ..load.clone() };
        assert_eq!(blocking_stores(&story, Arm::B, &elsewhere, text), "");
        assert_eq!(blocking_stores(&story, Arm::A, load, text), "");
    }

    #[test]
    fn markdown() {
        let story = explained([false, true], 0.7, Some([1000, 960]), &mut SourceText::default());
        insta::assert_snapshot!(stallscope::report::markdown::explanation(&story));
    }

    #[test]
    fn no_mechanism() {
        insta::assert_snapshot!(shown([false, false], 0.05, None));
    }

    #[test]
    fn more_work() {
        insta::assert_snapshot!(shown([false, false], 0.7, Some([1000, 2000])));
    }

    #[test]
    fn nothing_to_explain() {
        insta::assert_snapshot!(shown([false, true], 0.0, None));
    }
}
