//! An explanation as a page: the cause, the way from BEFORE to AFTER in steps, the places, the instructions, the proof,
//! what is open.

use askama::Template;

use super::PageError;
use super::bar::Bar;
use super::compared::Compared;
use super::flame::FlameView;
use super::listing::Listing;
use super::number::Number;
use super::scale::Scale;
use super::series::SERIES;
use super::steps::{Waterfall, waterfalls};
use crate::explain::{
    ArmHeat, Counts, Cure, CureVerdict, Explanation, FunctionRow, Ledger, LedgerLine, Removed,
};
use crate::model::{Grade, Measurement};
use crate::report::words::grouped;

/// Places that are listed; the rest is a few per mille each.
const MOST_PLACES: usize = 100;
/// Of these, the ones that are seen at once.
pub(super) const SHOWN_PLACES: usize = 12;

/// The page.
#[derive(Template)]
#[template(path = "explanation.html")]
pub(super) struct ExplanationPage {
    pub title: String,
    pub kind: &'static str,
    pub tool_version: String,
    told_of_case: Option<String>,
    compared: Compared,
    summary: Option<String>,
    grade: Option<Grade>,
    waterfalls: Vec<Waterfall>,
    places: Vec<PlaceRow>,
    more_places: usize,
    flame: Option<FlameView>,
    work: Vec<(&'static str, [Number; 2])>,
    listings: Vec<Listing>,
    ledgers: Vec<LedgerView>,
    cure: Option<CureView>,
    open: Vec<String>,
    notes: Vec<String>,
}

/// One place with its times and its part of the difference.
#[derive(Debug)]
struct PlaceRow {
    name: String,
    change: String,
    times: [(Number, Bar); 2],
    share: Number,
    bar: Bar,
    instructions: Option<Number>,
}

/// What the model says of one place.
#[derive(Debug)]
struct LedgerView {
    place: String,
    /// Cycles of an instruction in both builds, by cause.
    cycles: [(&'static str, Number, Bar); 2],
    /// The causes in these bars, with what each takes in both builds.
    causes: Vec<(&'static str, String, Number)>,
    rows: Vec<LedgerRow>,
    verdict: &'static str,
}

#[derive(Debug)]
struct LedgerRow {
    name: String,
    is_named: bool,
    often: Option<Number>,
    part: Number,
    bar: Bar,
    site: Option<String>,
}

/// The runs without a mechanism.
#[derive(Debug)]
struct CureView {
    what: String,
    verdict: &'static str,
    recovered: Number,
    control: Number,
    runs: Vec<(&'static str, Number, Bar)>,
}

impl ExplanationPage {
    /// With what is said of the case that it is of, where it is of one.
    pub fn of(
        explanation: &Explanation,
        told_of_case: Option<String>,
        tool_version: String,
    ) -> Result<Self, PageError> {
        let compared = Compared::of(&explanation.comparison, ["BEFORE", "AFTER"])?;
        let mut places = place_rows(&explanation.rows);
        let more_places = places.len().saturating_sub(MOST_PLACES);
        places.truncate(MOST_PLACES);
        let told = |line: &&String| explanation.summary.as_ref() != Some(*line);
        let how = explanation.heat.iter().map(how);
        let notes = how.chain(explanation.notes.iter().chain(compared.notes()).cloned()).collect();
        Ok(Self {
            title: format!("{} {}", compared.word, compared.sentence.text),
            kind: "explanation",
            told_of_case,
            tool_version,
            summary: explanation.summary.clone(),
            grade: explanation.grade,
            waterfalls: waterfalls(explanation),
            places,
            more_places,
            flame: FlameView::of(explanation)?,
            work: work_rows(explanation),
            listings: explanation
                .hot_code
                .iter()
                .map(|hot| Listing::of(hot, explanation))
                .collect(),
            ledgers: explanation.ledgers.iter().map(ledger_view).collect(),
            cure: explanation.cure.as_ref().map(cure_view),
            open: explanation.unexplained.iter().filter(told).cloned().collect(),
            notes,
            compared,
        })
    }
}

fn place_rows(rows: &[FunctionRow]) -> Vec<PlaceRow> {
    let times = Scale::over(rows.iter().flat_map(|row| [row.before.high, row.after.high, 0.0]));
    let shares = Scale::of_shares(rows.iter().map(|row| &row.share_of_difference));
    let row = |row: &FunctionRow| {
        let name = row.place.name().to_owned();
        let time = |m: &Measurement, build: &str, class| {
            let number = Number::of(m, &format!("user time of a run of {build} in {name}"));
            (number, Bar::of(times, m, class))
        };
        let share = &row.share_of_difference;
        let class = if share.percent.value < 0.0 { "less" } else { "more" };
        let instructions = row.instructions().map(|[before, after]| {
            let text = format!("{} → {}", grouped(before), grouped(after));
            Number::new(
                text,
                "instructions that a whole run of BEFORE and of AFTER executes here, counted",
            )
        });
        PlaceRow {
            change: row.place.change_words(),
            times: [time(&row.before, "BEFORE", "a"), time(&row.after, "AFTER", "b")],
            share: Number::share(share, &name),
            bar: Bar::of(shares, &share.percent, class),
            instructions,
            name,
        }
    };
    rows.iter().map(row).collect()
}

/// What both builds execute and ask of the kernel.
fn work_rows(explanation: &Explanation) -> Vec<(&'static str, [Number; 2])> {
    let of_work = explanation.work.as_ref().map(|work| {
        let always = [("instructions in user code", work.instructions)];
        let rest = [
            ("bytes moved by rep instructions", work.string_bytes),
            ("calls of functions", work.calls),
        ];
        always.into_iter().chain(rest.into_iter().filter(|(_, counts)| counts.shows_events()))
    });
    let of_kernel = explanation.kernel.events().map(|(what, counts, _)| (what, counts));
    let row = |(what, counts): (&'static str, Counts)| {
        let number = |[low, high]: [u64; 2], build: &str| {
            let text = match low == high {
                true => grouped(low),
                false => format!("{} to {}", grouped(low), grouped(high)),
            };
            Number::new(text, format!("{what}, counted in {} whole runs of {build}", counts.runs))
        };
        (what, [number(counts.before, "BEFORE"), number(counts.after, "AFTER")])
    };
    of_work.into_iter().flatten().chain(of_kernel).map(row).collect()
}

fn ledger_view(ledger: &Ledger) -> LedgerView {
    let shares = [&ledger.predicted, &ledger.measured].into_iter();
    let shares = shares.chain(ledger.lines.iter().map(|line| &line.part));
    let scale = Scale::of_shares(shares);
    let bar = |m: &Measurement, class| Bar::of(scale, m, class);
    let plain = |name: &str, share: &crate::explain::Share, class| LedgerRow {
        name: name.into(),
        is_named: false,
        often: None,
        part: Number::share(share, name),
        bar: bar(&share.percent, class),
        site: None,
    };
    let line = |line: &LedgerLine| {
        LedgerRow {
        name: format!("without {}", line.mechanism),
        is_named: line.is_named,
        often: line.per_thousand.map(|[before, after]| {
            Number::new(
                format!("{before:.2} → {after:.2}"),
                format!("{} in 1000 instructions of BEFORE and of AFTER, in the windows that were followed", line.mechanism),
            )
        }),
        part: Number::share(&line.part, &format!("what is gone without {}", line.mechanism)),
        bar: bar(&line.part.percent, if line.is_named { "named" } else { "part" }),
        site: line.site.as_ref().map(|site| {
            let source = site.line().map(|source| format!(" ({source})")).unwrap_or_default();
            format!("{} {}{source}", site.svma, site.text)
        }),
    }
    };
    let ends =
        [plain("measured", &ledger.measured, "b"), plain("predicted", &ledger.predicted, "a")];
    LedgerView {
        place: ledger.place.clone() + &ledger.with_words(),
        cycles: by_cause(ledger),
        causes: SERIES.into_iter().cycle().zip(&ledger.lines).map(cause_key).collect(),
        rows: ends.into_iter().chain(ledger.lines.iter().map(line)).collect(),
        verdict: match (ledger.agrees, ledger.counted) {
            (true, true) => "The model agrees with the clock.",
            (true, false) => {
                "They agree, so both execute about as many instructions, which were not counted."
            }
            (false, _) => "The model does not agree with the clock: no cause is named by it.",
        },
    }
}

/// Cycles of an instruction of both builds as bars of what is gone without each mechanism alone, and the rest.
fn by_cause(ledger: &Ledger) -> [(&'static str, Number, Bar); 2] {
    let whole = |arm: usize| ledger.cycles_per_instruction[arm].value;
    let gone = |arm: usize| {
        SERIES.into_iter().cycle().zip(&ledger.lines).map(move |(class, line)| {
            let cycles = line.cycles_per_instruction[arm].max(0.0);
            (cycles, class, format!("{}: {cycles:.3} cycles", line.mechanism))
        })
    };
    let sum = |arm: usize| gone(arm).map(|part| part.0).sum::<f64>();
    let ends = [0, 1].map(|arm| whole(arm).max(sum(arm)));
    let scale = Scale::over(ends.into_iter().chain([0.0]));
    [(0, "BEFORE"), (1, "AFTER")].map(|(arm, name)| {
        let rest = (whole(arm) - sum(arm)).max(0.0);
        let rest = (rest, "part", format!("everything else: {rest:.3} cycles"));
        let number = Number::of(
            &ledger.cycles_per_instruction[arm],
            &format!("cycles of an instruction of {name}"),
        );
        (name, number, Bar::stacked(scale, gone(arm).chain([rest]), whole(arm)))
    })
}

fn cause_key((class, line): (&'static str, &LedgerLine)) -> (&'static str, String, Number) {
    let [before, after] = line.cycles_per_instruction;
    let from =
        "cycles of an instruction that are gone without it, in BEFORE and in AFTER, by the model";
    let number = Number::new(format!("{before:.2} → {after:.2}"), from);
    (class, line.mechanism.to_string(), number)
}

fn cure_view(cure: &Cure) -> CureView {
    let scale = Scale::over(cure.times.iter().map(|m| m.high).chain([0.0]));
    let what = match cure.mechanism {
        Removed::CodePlacement => "functions placed as in the fast build".to_owned(),
        Removed::CodeAlignment => "functions placed where each build is fastest".to_owned(),
        Removed::DenormalNumbers => "zero for denormal numbers".into(),
        Removed::SharedLines => "all threads on one processor".into(),
        Removed::HugePages => "both builds without huge pages".into(),
        Removed::Mechanism(mechanism) => {
            format!(
                "without {mechanism}, {} of them replaced in the running process",
                cure.sites.len()
            )
        }
    };
    let names = [
        ("fast build", "a"),
        ("slow build", "b"),
        ("control: the same detours, the instructions as they are", "b"),
        ("cure: without it", "named"),
    ];
    let runs = names.into_iter().zip(&cure.times).map(|((name, class), m)| {
        let time = Number::of(m, &format!("processor time of a run, {name}"));
        (name, time, Bar::of(scale, m, class))
    });
    CureView {
        verdict: match cure.verdict {
            CureVerdict::Confirmed => {
                "Without it most of the difference is gone, and the control changes little: it is the cause."
            }
            CureVerdict::Refuted => {
                "Without it the difference is what it was: it is not the cause."
            }
            CureVerdict::Partly => {
                "Without it a part of the difference is gone, and the control changes little: it is one cause of several."
            }
            CureVerdict::Open => "That neither proves nor refutes it.",
        },
        recovered: Number::share(&cure.recovered, &what),
        control: Number::share(&cure.control, "the control"),
        runs: runs.collect(),
        what,
    }
}

fn how([before, after]: &[ArmHeat; 2]) -> String {
    format!(
        "{} every {:.1} ms: {} samples in {} runs of BEFORE, {} in {} of AFTER",
        before.engine,
        before.period_ns as f64 / 1e6,
        grouped(before.samples),
        before.runs,
        grouped(after.samples),
        after.runs,
    )
}
