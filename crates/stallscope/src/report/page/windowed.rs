//! Followed windows as pictures: what a window waits for and where, and what a scanned run counted.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::bar::Bar;
use super::number::Number;
use super::parts::{Part, Row};
use super::scale::Scale;
use super::series::SERIES;
use crate::counted::Event;
use crate::model::{Avma, Measurement, Site};
use crate::report::words::grouped;
use crate::sim::core::Mechanism;

/// Rows of each table; the rest is in the JSON.
const MOST_ROWS: usize = 20;
/// What takes less of the window is no row.
const LEAST_SHARE: f64 = 0.001;

/// What the pictures need of a trace.
#[derive(Deserialize)]
pub(super) struct Traced {
    store_buffer: Loads,
    cycles: Option<Cycles>,
    places: Vec<Place>,
}

#[derive(Deserialize)]
struct Loads {
    loads: u64,
    blocked: u64,
    sites: Vec<Load>,
}

#[derive(Deserialize)]
struct Load {
    insn: Avma,
    executions: u64,
    blocked: u64,
    blockers: Vec<Blocking>,
}

#[derive(Deserialize)]
struct Blocking {
    stores: Vec<Avma>,
}

#[derive(Deserialize)]
struct Cycles {
    instructions: u64,
    cycles: u64,
    cycles_per_instruction: f64,
    waits: Vec<WaitFound>,
    functions: Vec<FunctionFound>,
}

#[derive(Deserialize)]
struct WaitFound {
    mechanism: Mechanism,
    share: f64,
    events_per_thousand: f64,
    events: u64,
    most_at: Option<Avma>,
}

#[derive(Deserialize)]
struct FunctionFound {
    start: Avma,
    account: AccountFound,
    cycles_per_instruction: f64,
}

#[derive(Deserialize)]
struct AccountFound {
    executions: u64,
    cycles: u64,
}

#[derive(Deserialize)]
struct Place {
    avma: Avma,
    site: Option<Site>,
}

type Places<'a> = BTreeMap<Avma, &'a Site>;

/// The parts of a trace's page.
pub(super) fn of_trace(traced: &Traced) -> Vec<Part> {
    let places: Places<'_> =
        traced.places.iter().filter_map(|place| Some((place.avma, place.site.as_ref()?))).collect();
    let mut parts = Vec::new();
    if let Some(cycles) = &traced.cycles {
        parts.push(Part::Title("What the window waits for".into(), None));
        parts.push(Part::Words(format!(
            "{} instructions take {} cycles by a model of the core, {:.2} an instruction: nothing here was measured. Each row is \
             what is gone without one cause alone; of two that hide behind one another neither saves any.",
            grouped(cycles.instructions),
            grouped(cycles.cycles),
            cycles.cycles_per_instruction
        )));
        parts.push(waits(cycles, &places));
        parts.push(Part::Title("Where its cycles are".into(), None));
        parts.push(functions(cycles, &places));
    }
    let loads = &traced.store_buffer;
    if loads.blocked > 0 {
        parts.push(Part::Title("Loads that stores in flight blocked".into(), None));
        parts.push(Part::Words(format!(
            "{} of {} loads could not be forwarded.",
            grouped(loads.blocked),
            grouped(loads.loads)
        )));
        parts.push(blocked(loads, &places));
    }
    parts
}

fn told(places: &Places<'_>, at: Avma) -> String {
    places.get(&at).map_or_else(|| at.to_string(), |site| site_words(site))
}

fn site_words(site: &Site) -> String {
    let source = site.line().map(|line| format!(" ({line})")).unwrap_or_default();
    format!("{} {} in {}{source}", site.svma, site.text, site.function)
}

fn waits(cycles: &Cycles, places: &Places<'_>) -> Part {
    let shown =
        || cycles.waits.iter().filter(|wait| wait.share.abs() >= LEAST_SHARE).take(MOST_ROWS);
    let scale = Scale::over(shown().map(|wait| 100.0 * wait.share).chain([0.0, 100.0]));
    let row = |(class, wait): (&'static str, &WaitFound)| Row {
        name: wait.mechanism.to_string(),
        note: wait.most_at.map(|at| told(places, at)).unwrap_or_default(),
        numbers: vec![
            Number::told(
                format!("{:.1} %", 100.0 * wait.share),
                "cycles of the window that are gone without it, by the model",
                wait.share,
            ),
            match wait.events {
                0 => Number::default(),
                events => Number::told(
                    format!("{:.2}", wait.events_per_thousand),
                    format!("{} executions had it, by 1000 instructions", grouped(events)),
                    wait.events_per_thousand,
                ),
            },
        ],
        bar: Bar::between(scale, [0.0, 100.0 * wait.share], None, class),
    };
    Part::Rows {
        head: vec!["without", "of the window's cycles", "in 1000 instructions", "picture"],
        rows: SERIES.into_iter().cycle().zip(shown()).map(row).collect(),
    }
}

fn functions(cycles: &Cycles, places: &Places<'_>) -> Part {
    let share =
        |function: &FunctionFound| function.account.cycles as f64 / cycles.cycles.max(1) as f64;
    let shown = || cycles.functions.iter().filter(|f| share(f) >= LEAST_SHARE).take(MOST_ROWS);
    let scale = Scale::over(shown().map(|f| 100.0 * share(f)).chain([0.0, 100.0]));
    let row = |function: &FunctionFound| Row {
        name: places
            .get(&function.start)
            .map_or_else(|| function.start.to_string(), |site| site.function.clone()),
        note: format!("{} instructions of it ran", grouped(function.account.executions)),
        numbers: vec![
            Number::new(
                format!("{:.1} %", 100.0 * share(function)),
                format!(
                    "{} of {} cycles in it, without those of what it calls, by the model",
                    function.account.cycles, cycles.cycles
                ),
            ),
            Number::told(
                format!("{:.2}", function.cycles_per_instruction),
                "cycles of an instruction, by the model",
                function.cycles_per_instruction,
            ),
        ],
        bar: Bar::between(scale, [0.0, 100.0 * share(function)], None, "a"),
    };
    Part::Rows {
        head: vec!["function", "of the window's cycles", "cycles an instruction", "picture"],
        rows: shown().map(row).collect(),
    }
}

fn blocked(loads: &Loads, places: &Places<'_>) -> Part {
    let shown = loads.sites.iter().filter(|load| load.blocked > 0).take(MOST_ROWS);
    let scale = Scale::over([0.0, 100.0]);
    let row = |load: &Load| {
        let share = load.blocked as f64 / load.executions.max(1) as f64;
        let mut stores =
            load.blockers.first().map(|first| first.stores.clone()).unwrap_or_default();
        stores.dedup();
        let by: Vec<String> = stores.into_iter().map(|store| told(places, store)).collect();
        let often = format!("{} of {}", grouped(load.blocked), grouped(load.executions));
        let from = format!("executions that were blocked, {:.1} %", 100.0 * share);
        Row {
            name: told(places, load.insn),
            note: format!("by {}", by.join(", ")),
            numbers: vec![Number::told(often, from, load.blocked as f64)],
            bar: Bar::between(scale, [0.0, 100.0 * share], None, "more"),
        }
    };
    Part::Rows {
        head: vec!["load, and the stores that blocked it most often", "blocked", "picture"],
        rows: shown.map(row).collect(),
    }
}

/// What the picture needs of a scanned run.
#[derive(Deserialize)]
pub(super) struct Counted {
    windows: usize,
    instructions: u64,
    files: Vec<FileFound>,
    sites: Vec<SiteFound>,
}

#[derive(Deserialize)]
struct FileFound {
    path: String,
    share: Measurement,
}

#[derive(Deserialize)]
struct SiteFound {
    event: Event,
    events: u64,
    executions: u64,
    share: Measurement,
    site: Site,
    stores: Vec<Site>,
}

/// The parts of a scanned run's page.
pub(super) fn of_scan(counted: &Counted) -> Vec<Part> {
    let ends = counted.sites.iter().map(|site| site.share.high);
    let scale =
        Scale::over(ends.chain(counted.files.iter().map(|file| file.share.high)).chain([0.0]));
    let site = |found: &SiteFound| {
        let what = match found.event {
            Event::Blocked => "blocked by stores in flight",
            Event::Split => "across the end of a cache line",
            Event::Aliased => "met a store in the low 12 bits of its address",
            Event::Ran => "ran, and costs each time",
        };
        let by: Vec<String> = found.stores.iter().map(site_words).collect();
        let by = if by.is_empty() { String::new() } else { format!("; by {}", by.join(", ")) };
        let part = 100.0 * found.events as f64 / found.executions.max(1) as f64;
        let from = format!(
            "{} of {} executions in the windows",
            grouped(found.events),
            grouped(found.executions)
        );
        Row {
            name: site_words(&found.site),
            note: format!("{what}{by}"),
            numbers: vec![
                Number::new(format!("{part:.1} %"), from),
                Number::of(&found.share, "part of the run that was seen there"),
            ],
            bar: Bar::of(scale, &found.share, "more"),
        }
    };
    let file = |file: &FileFound| Row {
        name: file.path.clone(),
        note: String::new(),
        numbers: vec![Number::of(&file.share, "part of the run that was seen in it")],
        bar: Bar::of(scale, &file.share, "a"),
    };
    let mut parts = vec![
        Part::Title("What was counted".into(), None),
        Part::Words(format!(
            "In {} windows of {} instructions in all.",
            counted.windows,
            grouped(counted.instructions)
        )),
    ];
    if counted.sites.is_empty() {
        parts.push(Part::Words("Nothing that any rule or count tells of.".into()));
    } else {
        parts.push(Part::Rows {
            head: vec!["instruction", "how often", "part of the run", "picture"],
            rows: counted.sites.iter().take(MOST_ROWS).map(site).collect(),
        });
    }
    parts.push(Part::Title("The files in which the run spends its time".into(), None));
    parts.push(Part::Rows {
        head: vec!["file", "part of the run", "picture"],
        rows: counted.files.iter().take(MOST_ROWS).map(file).collect(),
    });
    parts
}
