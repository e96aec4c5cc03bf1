//! What an explanation leaves open, said as plainly as what it found.

use super::ledger::Together;
use super::{Conclusion, Explanation, FunctionRow, Ledger, ObjectCode, Place};
use crate::code::{FunctionSource, Image};
use crate::machine::{Design, PriceOrigin};
use crate::run::sample::SampleError;
use crate::sim::core::Mechanism;

/// Rows outside the cause's function that are named.
const MOST_ELSEWHERE: usize = 3;
/// Parts of the difference below this are not worth a sentence, in per cent.
const LEAST_PART: f64 = 1.0;

/// The sentence about a machine on which no run can be sampled.
pub(super) fn not_located(cause: &SampleError) -> String {
    format!(
        "where the difference is was not looked for: {cause}. One of the two is enough: \
         `sysctl kernel.perf_event_paranoid=2`, or in a container --cap-add PERFMON or \
         --cap-add SYS_PTRACE"
    )
}

/// The sentence about a core whose other thread somebody keeps busy.
pub(super) fn is_shared(percent: f64) -> String {
    format!(
        "another process shared the core in {percent:.0} % of short stretches, which nothing inside a guest shows: what keeps the \
         core busy takes up to twice as long meanwhile, and what waits hardly longer, so the difference is another one \
         where nobody does"
    )
}

/// What the causes leave open.
pub(super) fn what_is_open(explanation: &Explanation, profile: &Design) -> Vec<String> {
    let Some(cause) = explanation.causes.first() else {
        return match Together::of(&explanation.ledgers) {
            Some(together) => elsewhere(explanation, &together.places),
            None if explanation.is_confirmed() => Vec::new(),
            None => without_cause(explanation, profile),
        };
    };
    let function = &cause.finding.site.function;
    let is_predicted = |ledger: &Ledger| ledger.place == *function && ledger.agrees;
    let mut open = Vec::new();
    if !explanation.ledgers.iter().any(is_predicted) {
        let priced = match profile.store_forward_blocked_cycles.origin {
            PriceOrigin::Probed { .. } => "",
            _ => " (run `stallscope probe store-forwarding` for this machine's own price)",
        };
        open.push(format!(
            "how much of the difference it accounts for is not known: what a blocked load costs depends \
             on what runs beside it; {}{priced}",
            profile.blocked_load_sentence()
        ));
    }
    open.extend(elsewhere(explanation, std::slice::from_ref(function)));
    open
}

fn elsewhere(explanation: &Explanation, places: &[String]) -> Vec<String> {
    if explanation.named_ledger().is_some_and(|ledger| ledger.is_whole) {
        return Vec::new();
    }
    let sentence = |row: &FunctionRow| {
        format!(
            "{} is in {} ({}), which this does not touch",
            row.share_of_difference,
            row.place.name(),
            row.place.change_words(),
        )
    };
    explanation
        .rows
        .iter()
        .filter(|r| !places.iter().any(|place| place == r.place.name()))
        .filter(|r| r.share_of_difference.percent.value.abs() >= LEAST_PART)
        .take(MOST_ELSEWHERE)
        .map(sentence)
        .collect()
}

fn without_cause(explanation: &Explanation, profile: &Design) -> Vec<String> {
    if explanation.conclusion == Conclusion::Kernel {
        return vec![
            "which system calls or pages these are was not looked for (strace -c, perf trace)"
                .to_owned(),
        ];
    }
    if explanation.conclusion == Conclusion::MoreWork {
        let flags = match explanation.built {
            Some(_) => "",
            None => "flags that the files do not tell of (build logs do), ",
        };
        return vec![format!(
            "what the reason for more work is in the source was not looked for: {flags}other source, or other data"
        )];
    }
    let mut open = Vec::new();
    let disagree = explanation.ledgers.iter().find(|ledger| !ledger.agrees);
    if let Some(ledger) = disagree
        && profile.data_miss_cycles.is_none()
        && ledger.lines.iter().any(|line| line.mechanism == Mechanism::DataCacheMisses)
    {
        open.push(
            "the model counts data cache misses at published latencies, and machines differ in them: \
             `stallscope probe data-caches` measures this one's"
                .to_owned(),
        );
    }
    open.push(match explanation.ledgers.iter().find_map(|it| Some((it, it.undecided?))) {
        Some((ledger, mechanism)) => format!(
            "{mechanism} in {} are not named as the cause: the windows that were followed there are too few, or differ \
             too much",
            ledger.place
        ),
        None if explanation.ledgers.iter().any(|it| it.parts_words().is_some()) => {
            "what causes it is in the code that is hot and differs, and no mechanism alone is most of it".to_owned()
        }
        None => "no known mechanism was found in the code that is hot and differs; what there is to see \
                 is where the difference lies"
            .to_owned(),
    });
    let Some(row) = explanation.rows.first() else { return open };
    match &row.place {
        Place::Object {
            name, code: ObjectCode::Differs { paths: [before, after], .. }, ..
        } if !row.place.is_unchanged() => {
            open.push(format!(
                "{name} holds other code in each: BEFORE maps {}, AFTER {}; its functions were not \
                 searched for mechanisms",
                before.display(),
                after.display()
            ));
        }
        place if place.is_unchanged() => open.push(format!(
            "{} has the same code in both builds; how often it is called and on what data was not \
             compared: that, or where code and data lie, can make the difference",
            place.name()
        )),
        _ => {}
    }
    open
}

/// Programs without the names of their functions.
pub(super) fn stripped(images: &[Image; 2]) -> Vec<String> {
    let stripped = images.iter().filter(|i| i.function_source() == FunctionSource::EhFrame);
    let mut paths: Vec<_> = stripped.map(|image| image.path().display().to_string()).collect();
    paths.dedup();
    let said = |path| {
        format!("{path} is stripped: its functions come from the unwind tables and have no names")
    };
    paths.into_iter().map(said).collect()
}
