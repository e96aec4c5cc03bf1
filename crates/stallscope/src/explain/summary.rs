//! The answer in one sentence, to be pasted into a review.

use super::ledger::{Ledger, LedgerLine, Together};
use super::prediction::AS_MUCH;
use super::processor::LEAST_PART;
use super::why_more::{in_place_of, why_more};
use super::work::MOST;
use super::{
    BlockedLoad, Conclusion, Counts, Cure, Explanation, FunctionRow, OnlyInSlow, Place, Removed,
    Share, Whole, Work, rows,
};
use crate::compare::Arm;
use crate::model::Site;
use crate::sim::core::Mechanism;

/// More work beside a mechanism, or one beside more work, is told from this part of the difference on, in per cent.
pub(super) const LEAST_BESIDE: f64 = 25.0;
/// More than so many times the pairs are no advice.
const MOST_TIMES_AS_MANY: f64 = 30.0;
/// Places that are named in the sentence.
const MOST_PLACES: usize = 3;
/// What memory that is asked for and given back takes at the least, in instructions.
const ALLOCATION: f64 = 40.0;
/// That part of what is executed more must be memory that is asked for before it is told.
const LEAST_ALLOCATING: f64 = 0.1;

/// The cause in one sentence without final stop; `None` where there is nothing to explain.
pub(super) fn summary(explanation: &Explanation) -> Option<String> {
    let slow = explanation.slow_arm?;
    let work = explanation.work.as_ref();
    let place = place(explanation);
    Some(match explanation.conclusion {
        Conclusion::NothingToExplain => return None,
        Conclusion::Mechanism => {
            mechanism(explanation) + &beside(explanation, slow) + &kernel_beside(explanation)
        }
        Conclusion::MoreWork => {
            let named = explanation.named_ledger().map(|_| by_model(explanation));
            let named = named.map_or(String::new(), |said| format!("; {said}"));
            let kernel = kernel_beside(explanation);
            more_work(explanation, slow) + &named + &built(explanation, slow) + &kernel
        }
        Conclusion::SlowerWork => {
            let slower = work.map(|work| work.slower_instructions.to_string()).unwrap_or_default();
            let place = most_of_all(explanation);
            let what = match work.filter(|work| !work.is_the_same()) {
                Some(work) => format!("{} and takes longer for them", executes(work, slow)),
                None => format!("{} takes longer for the same instructions", slow.build_name()),
            };
            let (built, kernel) = (built(explanation, slow), kernel_beside(explanation));
            let named = Together::of(&explanation.ledgers);
            let proved = explanation.cure.as_ref().filter(|cure| cure.verdict.is_proof());
            let why = match (proved, named.filter(|named| named.without >= LEAST_BESIDE)) {
                (Some(cure), _) => format!("of that, {}", taken_back(explanation, cure)),
                (None, Some(_)) => format!("of that, {}", by_model(explanation)),
                (None, None) => match explanation.ledgers.iter().find_map(Ledger::parts_words) {
                    Some(parts) => format!("no mechanism alone explains it: {parts}"),
                    None => "no mechanism that was counted explains it".into(),
                },
            };
            format!("slower work: {what}, {slower}{place}; {why}{built}{kernel}")
        }
        Conclusion::Kernel => {
            let more = work.filter(|work| has_more_beside(work)).map(|work| {
                format!(
                    "; besides, {}, which makes up {}",
                    executes(work, slow),
                    work.more_instructions
                )
            });
            kernel(explanation) + &more.unwrap_or_default()
        }
        Conclusion::NotLocated => "not looked for: nothing here may sample the runs".into(),
        Conclusion::InParts => in_parts(explanation, slow),
        Conclusion::NotRunning | Conclusion::NoMechanism => {
            let by_counts = work.and_then(|work| undecided(explanation, work, slow));
            let kernel = || {
                kernel_part(explanation, LEAST_PART)
                    .map(|said| format!("in part the kernel: {said}"))
            };
            let known = by_counts.or_else(kernel);
            match (known, place) {
                (Some(known), _) if work.is_some() => known,
                (Some(known), Some(place)) => {
                    format!("{known}; the rest is most of all in {place}")
                }
                (Some(known), None) => known,
                (None, Some(place)) => format!(
                    "not found: the difference is in {place}, and nothing that was counted explains it"
                ),
                (None, None) if explanation.rows.is_empty() => "not found".into(),
                (None, None) => format!(
                    "not found: no place has {LEAST_PART:.0} % of the difference, which is spread over many"
                ),
            }
        }
    })
}

/// The place that has most of the difference, if it has a part that is worth a word.
fn most(explanation: &Explanation) -> Option<&FunctionRow> {
    rows::most(&explanation.rows).filter(|row| row.share_of_difference.percent.value >= LEAST_PART)
}

fn place(explanation: &Explanation) -> Option<String> {
    most(explanation).map(|row| row.place.where_words())
}

fn most_of_all(explanation: &Explanation) -> String {
    place(explanation).map_or(String::new(), |place| format!(", most of all in {place}"))
}

/// What has a good part of the difference for certain, in a word and in a sentence: more work, slower work, the kernel.
pub(super) fn parts(explanation: &Explanation, slow: Arm) -> Vec<(&'static str, String)> {
    let mut parts = Vec::new();
    let is_good = |share: &Share| share.percent.low >= LEAST_PART;
    if let Some(work) = &explanation.work {
        let slower = &work.slower_instructions;
        if let Some(more) = work.more().filter(|more| is_good(more)) {
            parts.push(("more work", format!("{}, {more}", executes(work, slow))));
        }
        if is_good(slower) {
            parts.push(("slower work", format!("{}, {slower}", takes_longer(slow))));
        }
    }
    parts.extend(kernel_part(explanation, LEAST_PART).map(|said| ("the kernel", said)));
    parts
}

fn in_parts(explanation: &Explanation, slow: Arm) -> String {
    let (words, sentences): (Vec<&str>, Vec<String>) = parts(explanation, slow).into_iter().unzip();
    let place = most_of_all(explanation);
    format!("{}: {}{place}{}", words.join(" and "), sentences.join("; "), built(explanation, slow))
}

/// What `rep` instructions take longer by the model, in per cent of the difference, where that is most of it and the fast build
/// neither moves as much by them nor executes more instructions in their place: a byte that is moved has another price
/// than an instruction, and only the model knows it.
pub(super) fn part_of_strings(explanation: &Explanation) -> Option<f64> {
    let slow = explanation.slow_arm?;
    explanation.work.as_ref().filter(|work| work.fills_more(slow))?;
    let agree = explanation.ledgers.iter().filter(|ledger| ledger.agrees && !ledger.is_whole);
    let part = agree.map(|ledger| ledger.microcode_percent).sum::<f64>();
    (part >= MOST).then_some(part)
}

/// Whether more instructions are a good part of the difference beside what is most of it.
pub(super) fn has_more_beside(work: &Work) -> bool {
    work.more().is_some_and(|more| more.percent.low >= LEAST_BESIDE)
}

/// What is in the kernel, where that is at least such a part of the difference for certain.
fn kernel_part(explanation: &Explanation, least: f64) -> Option<String> {
    let part = explanation.kernel.part.as_ref().filter(|part| part.percent.low >= least)?;
    let events = events(explanation);
    let events = if events.is_empty() { events } else { format!("{events}, ") };
    Some(format!("{events}{part} is there"))
}

/// The kernel's part, where that is a good one beside a mechanism or what user code does.
fn kernel_beside(explanation: &Explanation) -> String {
    let said = kernel_part(explanation, LEAST_BESIDE);
    said.map_or(String::new(), |said| format!("; besides, the kernel: {said}"))
}

fn takes_longer(slow: Arm) -> String {
    format!("{} takes longer for its instructions", slow.build_name())
}

/// What the counts tell where neither more instructions nor slower ones are most of the difference for certain.
fn undecided(explanation: &Explanation, work: &Work, slow: Arm) -> Option<String> {
    let (part, times) = work.undecided().filter(|(_, times)| *times <= MOST_TIMES_AS_MANY)?;
    let said =
        if part == &work.more_instructions { executes(work, slow) } else { takes_longer(slow) };
    let pairs = explanation.comparison.analysis.wall.estimate.n as f64;
    Some(format!(
        "not decided: {said}, which makes up {part}; about {:.0} pairs would tell (--pairs), {pairs} were run",
        (pairs * times).ceil()
    ))
}

fn moves(work: &Work, slow: Arm) -> String {
    let (more, less) = (slow.build_name(), slow.other().build_name());
    let [here, there] = work.string_bytes.slow_first(slow).map(|bytes| bytes / 1e9);
    format!(
        "{more} fills, copies or searches {here:.3} GB by `rep` instructions ({less} {there:.3} GB)"
    )
}

fn executes(work: &Work, slow: Arm) -> String {
    let (more, less) = (slow.build_name(), slow.other().build_name());
    if work.is_in_strings() {
        return moves(work, slow);
    }
    let ratio = work.instructions.ratio();
    let ratio = if slow == Arm::B { ratio } else { 1.0 / ratio };
    let calls = work.times_the_calls(slow);
    let calls =
        calls.map_or(String::new(), |times| format!(" and makes {times:.1} times the calls"));
    format!("{more} executes {ratio:.3} times the instructions of {less}{calls}")
}

fn more_work(explanation: &Explanation, slow: Arm) -> String {
    if let Some(work) = &explanation.work {
        let place = most_of_it(explanation, slow);
        let memory = allocations(work, slow);
        let what = match part_of_strings(explanation).filter(|_| !work.is_the_cause()) {
            Some(part) => format!(
                "{}, which take {part:.0} % of {} by the model of the core",
                moves(work, slow),
                Whole::DifferenceInProcessorTime
            ),
            None => format!("{}, {}", executes(work, slow), work.more_instructions),
        };
        return format!("more work: {what}{place}{memory}");
    }
    let less = slow.other().build_name();
    let only = explanation.only_in_slow.as_ref();
    only.map_or("more work".to_owned(), |OnlyInSlow { share, places }| {
        let most = places[..places.len().min(MOST_PLACES)].join(", ");
        format!("more work: {share} is in code that {less} hardly enters, most of all {most}")
    })
}

/// That the slow build asks for memory more often, where that is a part of what it executes more.
fn allocations(work: &Work, slow: Arm) -> String {
    let Some(both) = work.allocations else { return String::new() };
    let [here, there] = [slow, slow.other()].map(|arm| both[arm.index()]);
    let [a, b] = work.instructions.typical();
    let of_more = here.saturating_sub(there) as f64 * ALLOCATION / (a - b).abs();
    if here < there.saturating_mul(2) || of_more < LEAST_ALLOCATING {
        return String::new();
    }
    format!("; its own code asks for memory {here} times, in {} {there}", slow.other().build_name())
}

/// Where most of what is executed more is, and why there is more of it.
fn most_of_it(explanation: &Explanation, slow: Arm) -> String {
    most(explanation).map_or(String::new(), |row| {
        let work = explanation.work.as_ref().filter(|_| matches!(row.place, Place::Object { .. }));
        let calls = work.and_then(|work| work.library_calls.as_ref());
        let why = why_more(row, slow).or_else(|| in_place_of(row, &explanation.rows, slow));
        let why = why.into_iter().chain(calls.map(ToString::to_string));
        let why: String = why.map(|why| format!(", {why}")).collect();
        format!(", most of all in {}{why}", row.place.where_words())
    })
}

/// How the slow build was made otherwise, where that is told.
fn built(explanation: &Explanation, slow: Arm) -> String {
    let built = explanation.built.as_ref();
    built.map_or(String::new(), |built| format!("; {}", built.sentence(slow)))
}

/// What the builds ask of the kernel; empty where they do not differ in it.
fn events(explanation: &Explanation) -> String {
    let said = explanation.kernel.events().map(|(what, Counts { before, after, .. }, is_least)| {
        let least = if is_least { "at least " } else { "" };
        let [before_is_least, after_is_least] =
            if before[0] > after[0] { [least, ""] } else { ["", least] };
        format!("{before_is_least}{} -> {after_is_least}{} {what}", before[0], after[0])
    });
    let mut said = said.collect::<Vec<String>>();
    let named = explanation.kernel.most_of_calls.as_ref();
    if let (Some(first), Some(most)) = (said.first_mut(), named) {
        *first += &format!(", most of all {}", most.words());
    }
    said.join(", ")
}

fn kernel(explanation: &Explanation) -> String {
    let kernel = &explanation.kernel;
    let mut said = vec![events(explanation)];
    said.retain(|said| !said.is_empty());
    let part = kernel.part.as_ref().filter(|part| part.percent.low >= LEAST_PART);
    said.extend(part.map(|part| format!("{part} is there")));
    let priced =
        kernel.least_part_of_calls.filter(|priced| part.is_none() && *priced >= LEAST_PART);
    said.extend(kernel.cheapest_call_ns.zip(priced).map(|(ns, part)| {
        let whole = Whole::DifferenceInProcessorTime;
        format!("at {ns:.0} ns, what the cheapest call takes here, at least {part:.0} % of {whole}")
    }));
    format!("the kernel: {}", said.join("; "))
}

fn mechanism(explanation: &Explanation) -> String {
    match explanation.confirmed_cure() {
        Some(cure) => taken_back(explanation, cure),
        None => by_model(explanation),
    }
}

/// What runs without it take back.
fn taken_back(explanation: &Explanation, cure: &Cure) -> String {
    let (recovered, control) = (&cure.recovered, &cure.control.percent);
    let others = match cure.placed.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more functions", n - 1),
    };
    let function = cure.sites.first().map(|site| site.function.clone()).unwrap_or_default();
    if let (Removed::CodeAlignment, Some([here, _])) = (cure.mechanism, cure.placed.first()) {
        return format!(
            "code alignment: {function}{others} at {here}; run from copies {} bytes further on, the same \
             instructions take back {:.0} % of {} (the best place of the fast build {:.0} %)",
            cure.moved_bytes(),
            recovered.percent.value,
            recovered.of,
            control.value,
        );
    }
    if let (Removed::CodePlacement, Some([here, there])) = (cure.mechanism, cure.placed.first()) {
        return format!(
            "code placement: {function}{others}, the same code at {here} and not at {there}; a run with all \
             of it as far into its pages as in {} takes back {:.0} % of {} (the control {:.0} %)",
            cure.arm.other().build_name(),
            recovered.percent.value,
            recovered.of,
            control.value,
        );
    }
    if cure.mechanism == Removed::SharedLines {
        let place = most_of_all(explanation);
        return format!(
            "{}{place} (false sharing, a lock, or data that they both need); with all threads on one \
             processor {:.0} % of {} is gone (the control {:.0} %)",
            cure.mechanism, recovered.percent.value, recovered.of, control.value,
        );
    }
    if cure.mechanism == Removed::HugePages {
        let slow = cure.arm.build_name();
        return format!(
            "small pages: {} gets huge pages where {slow} does not; without huge pages for both, {:.0} % of {} \
             is gone (the control {:.0} %)",
            cure.arm.other().build_name(),
            recovered.percent.value,
            recovered.of,
            control.value,
        );
    }
    let library = cure.library.as_ref().and_then(|path| path.file_name());
    let library = library.map_or(String::new(), |name| format!(" of {}", name.to_string_lossy()));
    let site = cure.sites.first().map(at).unwrap_or_default() + &library;
    let behind = match cure.mechanism {
        Removed::Mechanism(it) => behind(explanation, it, cure.arm, cure.sites.first()),
        _ => String::new(),
    };
    format!(
        "{}{site}{behind}; a run without them takes back {:.0} % of {} (the control {:.0} %)",
        cure.mechanism, recovered.percent.value, recovered.of, control.value,
    )
}

/// More instructions, where they are a good part of the difference beside what a mechanism makes up: what is told together
/// is no more than the whole.
fn beside(explanation: &Explanation, slow: Arm) -> String {
    let told = match explanation.confirmed_cure() {
        Some(cure) => cure.recovered.percent.value,
        None => Together::of(&explanation.ledgers).map_or(0.0, |together| together.without),
    };
    let part = explanation.work.as_ref().filter(|work| has_more_beside(work));
    part.map_or(String::new(), |work| {
        let (executes, more) = (executes(work, slow), &work.more_instructions);
        match 100.0 - told {
            left if more.percent.value <= left => {
                format!("; besides, {executes}, which makes up {more}")
            }
            // Some of them cost little beside the mechanism.
            left if left >= LEAST_BESIDE => {
                format!("; besides, {executes}, for which {left:.0} % are left")
            }
            // As often as what is executed more brings it along, it is more work, too.
            _ => format!("; {executes}{}", most_of_it(explanation, slow)),
        }
    })
}

fn by_model(explanation: &Explanation) -> String {
    let named = explanation.named_ledger().and_then(|ledger| Some((ledger, ledger.named()?)));
    let together = Together::of(&explanation.ledgers);
    match (explanation.causes.first(), named) {
        (Some(cause), _) => {
            let site = &cause.finding.site;
            let ledger = explanation.ledgers.iter().find(|l| l.place == site.function && l.agrees);
            let alone = ledger.map(|ledger| Together::alone(ledger, Mechanism::BlockedLoads));
            let behind = behind(explanation, Mechanism::BlockedLoads, cause.arm, Some(site));
            format!("blocked loads{}{behind}; {}", at(site), prediction(alone.as_ref()))
        }
        (None, Some((ledger, line))) => {
            let place = at_line(ledger, line);
            let behind = behind(explanation, line.mechanism, ledger.slow_arm, line.site.as_ref());
            let said =
                format!("{}{place}{behind}; {}", line.mechanism, prediction(together.as_ref()));
            said + &as_much(ledger, line) + &others(explanation, line.mechanism)
        }
        (None, None) => "not found".into(),
    }
}

/// Another mechanism of the same place without which nearly as much is gone: neither can be told from the other.
fn as_much(ledger: &Ledger, named: &LedgerLine) -> String {
    let is_as_much = |line: &&LedgerLine| {
        line.mechanism != named.mechanism
            && line.mechanism.has_events()
            && line.part.percent.low >= AS_MUCH * named.part.percent.value
    };
    ledger.lines.iter().find(is_as_much).map_or(String::new(), |line| {
        let part = line.part.percent.value;
        format!("; without {} alone {part:.0} % less: each hides behind the other", line.mechanism)
    })
}

/// What other places are named for, where that is a good part of the difference, too.
fn others(explanation: &Explanation, told: Mechanism) -> String {
    let mut told = vec![told];
    let mut said = String::new();
    for ledger in &explanation.ledgers {
        let Some(line) = ledger.named() else { continue };
        if line.part.percent.low < LEAST_BESIDE || told.contains(&line.mechanism) {
            continue;
        }
        told.push(line.mechanism);
        let place = at_line(ledger, line);
        let part = line.part.percent.value;
        said += &format!("; besides, {}{place}, without which {part:.0} % less", line.mechanism);
    }
    said
}

/// The instruction that has it most often, or its place.
fn at_line(ledger: &Ledger, line: &LedgerLine) -> String {
    line.site.as_ref().map_or_else(|| format!(" in {}", ledger.place), at)
}

fn at(site: &Site) -> String {
    let line = site.line().map(|line| format!(" ({line})")).unwrap_or_default();
    format!(" in {} at {}{line}", site.function, site.svma)
}

/// The store that a blocked load waits for most often.
fn behind(
    explanation: &Explanation,
    mechanism: Mechanism,
    arm: Arm,
    load: Option<&Site>,
) -> String {
    let load = load.filter(|_| mechanism == Mechanism::BlockedLoads);
    let most = load.and_then(|load| Some((load, explanation.blocking_stores(arm, load).next()?)));
    most.map_or(String::new(), |(load, BlockedLoad { store, .. })| {
        let line = store.line().map(|line| format!(" ({line})")).unwrap_or_default();
        let by = if store.function == load.function { "it" } else { &store.function };
        format!(", behind what {by} stores at {}{line}", store.svma)
    })
}

fn prediction(together: Option<&Together>) -> String {
    let Some(Together { places, predicted, without, measured, .. }) = together else {
        return "how much of the difference that is was not predicted".into();
    };
    let whole = Whole::DifferenceInProcessorTime;
    let without = match without / predicted {
        // Something else hides behind it in the slow build and not in the fast one.
        part if part > 1.0 => "and without it nothing of that is left".to_owned(),
        _ => format!("and without it {without:.0} % less"),
    };
    let places = match places.len() {
        1 => String::new(),
        n => format!(" in {n} places together"),
    };
    format!(
        "the model of the core predicts {predicted:.0} % of {whole}{places}, {without}, where \
         {measured:.0} % was measured"
    )
}
