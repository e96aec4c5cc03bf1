//! What was tried and modelled, on the screen: runs without the mechanism, random places, the model of the core.

use stallscope::explain::{Cure, CureVerdict, Ledger, Placements, Removed, Share};
use stallscope::model::Measurement;
use stallscope::sim::core::Mechanism;

use super::screen::{NO_LABEL, milliseconds};
use crate::commands::site;
use crate::commands::sweep::screen::sentence;
use crate::terminal::wrap;

/// Functions in random places that are named.
const MOST_PLACED: usize = 3;

/// What random places of the hot functions tell.
pub(super) fn placements(of: &Placements) -> String {
    let Placements { functions, rounds, split } = of;
    let more = match functions.len().saturating_sub(MOST_PLACED) {
        0 => String::new(),
        more => format!(" and {more} more functions"),
    };
    let text = format!(
        "{} (processor time, {rounds} rounds; copies in random places of {}{more})",
        sentence(split),
        functions[..functions.len().min(MOST_PLACED)].join(", ")
    );
    wrap("places   ", &text)
}

/// What runs without the mechanism brought back.
pub(super) fn cure(cure: &Cure) -> String {
    let verdict = match cure.verdict {
        CureVerdict::Confirmed => "",
        CureVerdict::Refuted => ": that is not the cause",
        CureVerdict::Partly => ": that is a part of it",
        CureVerdict::Open => ": that neither proves nor refutes it",
    };
    let (done, otherwise) = match cure.mechanism {
        Removed::CodePlacement => (
            format!(
                "with {} run from copies as far into their pages as in {}",
                functions(cure),
                cure.arm.other().build_name()
            ),
            "copies as far into their pages as the originals, with which both builds are run here, once more",
        ),
        Removed::CodeAlignment => (
            format!(
                "with {} run from copies {} bytes further on",
                functions(cure),
                cure.moved_bytes()
            ),
            "the fast build's at their best place",
        ),
        Removed::DenormalNumbers => (
            "with zero for denormal numbers in both builds".to_owned(),
            "zero for them in the fast build alone",
        ),
        Removed::SharedLines => (
            "with all threads of both builds on one processor".to_owned(),
            "those of the fast build alone",
        ),
        Removed::HugePages => {
            ("with both builds on pages of 4 KiB alone".to_owned(), "the slow build alone so")
        }
        Removed::Mechanism(mechanism) => (
            format!(
                "without {mechanism} ({} of them replaced in the running process)",
                cure.sites.len()
            ),
            "the same detours and the instructions as they are",
        ),
    };
    let [fast, slow, control, cured] = cure.times.each_ref().map(milliseconds);
    let Measurement { value, low, high, n, .. } = &cure.control.percent;
    wrap(
        "cure     ",
        &format!(
            "{done} {} is gone{verdict}; with {otherwise}, {value:.1} % [{low:.1}, {high:.1}]. {n} rounds, \
             processor time: fast {fast}, slow {slow}, control {control}, cure {cured}",
            cure.recovered,
        ),
    )
}

fn functions(cure: &Cure) -> String {
    match cure.placed.len() {
        1 => "a function".to_owned(),
        n => format!("{n} functions"),
    }
}

/// What the model of the core predicts for one place.
pub(super) fn ledger_text(ledger: &Ledger) -> String {
    let percent = |share: &Share| {
        let Measurement { value, low, high, .. } = share.percent;
        format!("{value:.1} % [{low:.1}, {high:.1}]")
    };
    let [before, after] = ledger.cycles_per_instruction.each_ref().map(|m| m.value);
    let verdict = match (ledger.agrees, ledger.counted) {
        (true, true) => "",
        (true, false) => {
            ": they agree, so both execute about as many instructions, which were not counted"
        }
        (false, _) => ", which does not agree: no cause is named by it",
    };
    let mut out = wrap(
        "model    ",
        &format!(
            "{}{}: {before:.2} -> {after:.2} cycles an instruction predict {}, where {:.1} % was \
             measured{verdict}",
            site::clip(site::short_name(&ledger.place), 56),
            ledger.with_words(),
            ledger.predicted,
            ledger.measured.percent.value,
        ),
    );
    let taken = |what: &str| wrap(NO_LABEL, &format!("with {what}: that is nearest to the clock"));
    for line in ledger.lines.iter().filter(|_| ledger.agrees) {
        // A place may wait for what happens in another one.
        let often = match line.per_thousand.filter(|both| both.iter().any(|often| *often > 0.0)) {
            Some([before, after]) => format!(" ({before:.2} -> {after:.2} in 1000 instructions)"),
            None => String::new(),
        };
        let text = format!("without {}: {} less{often}", line.mechanism, percent(&line.part));
        out += &wrap(NO_LABEL, &text);
        let core = &ledger.core;
        let nearest = match line.mechanism {
            Mechanism::DataCacheMisses if core.from_memory_percent > 0 => Some(format!(
                "{} % of the lines that the windows do not tell the place of taken to come from memory, and the others from \
                 the third level",
                core.from_memory_percent
            )),
            Mechanism::DataCacheMisses => core.third_level_bytes.map(|bytes| {
                let mib = bytes >> 20;
                format!(
                    "{mib} MiB of the third level taken to be left to it, more than while that was probed"
                )
            }),
            Mechanism::MispredictedBranches if core.forgotten_percent > 0 => Some(format!(
                "{} % of the branches that large tables of the predictor remember, and small ones do not, taken to be \
                 mispredicted",
                core.forgotten_percent
            )),
            _ => None,
        };
        out += &nearest.map(|what| taken(&what)).unwrap_or_default();
    }
    if ledger.core.shared_percent > 0 {
        out += &taken(&format!(
            "{} % of the instructions taken to be executed while another thread keeps the core busy",
            ledger.core.shared_percent
        ));
    }
    out
}
