//! The answer in one sentence, to be pasted into a review.

use super::{Conclusion, Counts, Explanation, Ledger};
use crate::compare::Arm;
use crate::model::Site;

/// The cause in one sentence without final stop; `None` where there is nothing to explain.
pub(super) fn summary(explanation: &Explanation) -> Option<String> {
    let slow = explanation.slow_arm?;
    let work = explanation.work.as_ref();
    let place = explanation.rows.first().map(|row| row.place.name());
    Some(match explanation.conclusion {
        Conclusion::NothingToExplain => return None,
        Conclusion::Mechanism => mechanism(explanation),
        Conclusion::MoreWork => {
            let ratio = work.map_or(1.0, |work| work.instructions.ratio());
            let (more, less, ratio) = match slow {
                Arm::B => ("AFTER", "BEFORE", ratio),
                Arm::A => ("BEFORE", "AFTER", 1.0 / ratio),
            };
            format!("more work: {more} executes {ratio:.3} times the instructions of {less}")
        }
        Conclusion::Kernel => {
            let calls = work.map(|work| work.system_calls);
            let events = [("system calls", calls), ("page faults", explanation.page_faults)];
            let said = events.into_iter().filter_map(|(what, counts)| {
                let Counts { before, after, .. } = counts.filter(Counts::shows_events)?;
                Some(format!("{} -> {} {what}", before[0], after[0]))
            });
            format!("the kernel: {}", said.collect::<Vec<String>>().join(", "))
        }
        Conclusion::NotLocated => "not looked for: nothing here may sample the runs".into(),
        Conclusion::NoMechanism => match (work, place) {
            (Some(work), Some(place)) if work.is_the_same() => format!(
                "not found: the same instructions take longer, most of all in {place}, and nothing that was \
                 counted explains it"
            ),
            (_, Some(place)) => {
                format!(
                    "not found: the difference is in {place}, and nothing that was counted explains it"
                )
            }
            (_, None) => "not found".into(),
        },
    })
}

fn mechanism(explanation: &Explanation) -> String {
    let Some(cure) = explanation.cure.as_ref().filter(|_| explanation.is_confirmed()) else {
        return by_model(explanation);
    };
    let library = cure.library.as_ref().and_then(|path| path.file_name());
    let library = library.map_or(String::new(), |name| format!(" of {}", name.to_string_lossy()));
    let site = cure.sites.first().map(at).unwrap_or_default() + &library;
    format!(
        "{}{site}; a run without them takes back {:.0} % of {} (the control {:.0} %)",
        cure.mechanism, cure.recovered.percent.value, cure.recovered.of, cure.control.percent.value,
    )
}

fn by_model(explanation: &Explanation) -> String {
    let named = explanation.named_ledger().and_then(|ledger| Some((ledger, ledger.named()?)));
    let cause = explanation.causes.first();
    match (cause, named) {
        (Some(cause), _) => {
            let site = &cause.finding.site;
            let ledger = explanation.ledgers.iter().find(|l| l.place == site.function && l.agrees);
            format!("blocked loads{}; {}", at(site), prediction(ledger))
        }
        (None, Some((ledger, line))) => {
            let site = line.site.as_ref().map(at);
            let place = site.unwrap_or_else(|| format!(" in {}", ledger.place));
            format!("{}{place}; {}", line.mechanism, prediction(Some(ledger)))
        }
        (None, None) => "not found".into(),
    }
}

fn at(site: &Site) -> String {
    let line = site.source.first().filter(|line| line.line > 0);
    let line = line.map(|line| format!(" ({line})")).unwrap_or_default();
    format!(" in {} at {}{line}", site.function, site.svma)
}

fn prediction(ledger: Option<&Ledger>) -> String {
    let Some(ledger) = ledger else {
        return "how much of the difference that is was not predicted".into();
    };
    let measured = ledger.measured.percent.value;
    let line = ledger.named();
    let without = line.map_or(String::new(), |line| {
        format!(", and without it {:.0} % less", line.part.percent.value)
    });
    format!(
        "the model of the core predicts {:.0} % of {}{without}, where {measured:.0} % was measured",
        ledger.predicted.percent.value, ledger.predicted.of
    )
}
