//! Probes as pictures: the matrix of store forwarding, and a curve wherever something was measured at several sizes,
//! distances or counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::words;
use super::grid::{Cell, Grid, Plan};
use super::number::{Number, short};
use super::parts::{Figure, Part, Picture};
use super::scale::Steps;
use super::series::{Axes, Point, curves};
use crate::machine::{CacheKind, Machine};
use crate::model::{Measurement, Unit};
use crate::probes::store_forwarding::{CellReport, Class, DelayPoint, Group};
use crate::probes::{IcacheReport, ProbeReport};

/// Loads farther from their store have no column.
const MOST_OFFSET_BYTES: u32 = 128;

/// What the pictures need of a document of probes; each is read alone, so that one of another version leaves the others.
#[derive(Deserialize)]
pub(super) struct Probed {
    probes: Vec<Value>,
}

/// The parts of its page.
pub(super) fn parts(probed: &Probed) -> Vec<Part> {
    let mut parts = Vec::new();
    for value in &probed.probes {
        let Ok(report) = ProbeReport::deserialize(value) else { continue };
        let name = value.get("probe").and_then(Value::as_str).unwrap_or_default();
        parts.push(Part::Title(name.to_owned(), None));
        parts.extend(report.verdict().map(|verdict| Part::Words(verdict.to_owned())));
        parts.extend(figures(&report).into_iter().map(|figure| Part::Figure(Box::new(figure))));
    }
    // Answers alone are in the fields.
    let has_pictures = parts.iter().any(|part| matches!(part, Part::Figure(_)));
    if has_pictures { parts } else { Vec::new() }
}

fn figures(report: &ProbeReport) -> Vec<Figure> {
    match report {
        ProbeReport::StoreForwarding(r) => {
            let mut all = matrices(&r.cells);
            let (d, along) = (&r.delay, ["cycles", "instructions"]);
            all.extend(delay(along[0], &d.steps, d.free_after_cycles));
            all.extend(delay(along[1], &d.fillers, d.free_after_instructions));
            all
        }
        ProbeReport::DataCaches(r) => {
            let axes = Axes {
                about: "core cycles of one load, by the size of the table that the loads go through; the lines are the \
                        sizes of the caches that the processor presents.",
                up_steps: Steps::Factors,
                ..of_bytes("bytes of the table", &r.protocol.machine, CacheKind::Data)
            };
            curves(
                &axes,
                r.chains.iter().map(|chain| {
                    let series = match name_of(&chain.chain) {
                        name if name.contains("in order") => "one line behind the other".to_owned(),
                        name if ["first", "second", "third", "memory"].contains(&name.as_str()) => {
                            "at random, each load behind the one before".into()
                        }
                        name => name,
                    };
                    point("Latency", &series, chain.table_bytes as f64, chain.cycles.as_ref())
                }),
            )
        }
        ProbeReport::StoreElimination(r) => {
            let axes = Axes {
                about: "by the size of the region that is filled; the lines are the sizes of the caches.",
                ..of_bytes("bytes of the region", &r.protocol.machine, CacheKind::Data)
            };
            let speeds = r.regions.iter().map(|region| {
                point(
                    "Speed of filling with ones",
                    "ones",
                    region.bytes as f64,
                    region.speed.as_ref(),
                )
            });
            let ratios = r.regions.iter().flat_map(|region| {
                region.ratios.iter().map(|ratio| {
                    let picture = "Speed over that of ones (of sparse ones for sparse zeros)";
                    let series = name_of(&ratio.fill);
                    Point {
                        samples: &ratio.blocks,
                        ..point(picture, &series, region.bytes as f64, ratio.speed.as_ref())
                    }
                })
            });
            curves(&axes, ratios.chain(speeds))
        }
        ProbeReport::IcacheSets(r) => icache_sets(r),
        ProbeReport::IcacheSync(r) => {
            let axes = Axes {
                about: "time to make new code known and to execute it the first time, by its size.",
                up_steps: Steps::Factors,
                ..of_bytes("bytes of new code", &r.protocol.machine, CacheKind::Instruction)
            };
            curves(
                &axes,
                r.cells.iter().map(|cell| {
                    point(
                        "Synchronising",
                        &name_of(&cell.method),
                        cell.bytes as f64,
                        cell.sum.as_ref(),
                    )
                }),
            )
        }
        ProbeReport::StringCopy(r) => {
            let axes = Axes {
                about: "core cycles, by size.",
                up_steps: Steps::Factors,
                ..of_bytes("bytes", &r.protocol.machine, CacheKind::Data)
            };
            curves(
                &axes,
                r.cells.iter().filter(|cell| cell.case.bytes > 0).map(|cell| {
                    let picture =
                        format!("{}, {}", name_of(&cell.case.job), name_of(&cell.case.form));
                    point(
                        &picture,
                        &name_of(&cell.case.method),
                        cell.case.bytes.into(),
                        cell.cycles.as_ref(),
                    )
                }),
            )
        }
        ProbeReport::Branches(r) => {
            let axes = Axes {
                about: "core cycles of one branch and the loop around it, by the length of the sequence that comes again.",
                along: "branches in the sequence",
                along_steps: Steps::Doublings,
                ..Axes::default()
            };
            curves(
                &axes,
                r.rows.iter().filter_map(|row| {
                    Some(point(
                        "Learning",
                        &name_of(&row.drawn),
                        row.length?.into(),
                        row.cycles.as_ref(),
                    ))
                }),
            )
        }
        ProbeReport::CodeAlignment(r) => {
            let axes = Axes {
                about: "core cycles of one turn, by where in its line the loop starts.",
                along: "bytes into its line",
                ..Axes::default()
            };
            curves(
                &axes,
                r.loops.iter().flat_map(|of| {
                    let series = format!("{} bytes", of.bytes);
                    (0_u32..).zip(&of.cycles).map(move |(offset, cycles)| {
                        point("Loops", &series, offset.into(), cycles.as_ref())
                    })
                }),
            )
        }
        _ => Vec::new(),
    }
}

/// What a load costs by what is between its store and it, free from `free_after` on.
fn delay(between: &'static str, points: &[DelayPoint], free_after: Option<u32>) -> Vec<Figure> {
    let axes = Axes {
        about: "a repetition in which two narrow stores feed the load (blocked), in which one does \
                (forwarded), and in which the load reads other bytes (cached).",
        along: between,
        limits: free_after.map(|at| (at.into(), "free from here".into())).into_iter().collect(),
        ..Axes::default()
    };
    let picture = format!("The delay curve over {between} between store and load");
    let points = points.iter().flat_map(|p| {
        [("blocked", &p.blocked), ("forwarded", &p.forwarded), ("cached", &p.cached)]
            .map(|(name, y)| point(&picture, name, p.between.into(), y.as_ref()))
    });
    curves(&axes, points)
}

fn point<'a>(picture: &str, series: &str, x: f64, y: Option<&'a Measurement>) -> Point<'a> {
    Point { picture: picture.to_owned(), series: series.to_owned(), x, y, samples: &[] }
}

/// What the JSON calls a choice, as words.
fn name_of(choice: &impl Serialize) -> String {
    let name = serde_json::to_value(choice).ok();
    words(name.as_ref().and_then(Value::as_str).unwrap_or_default())
}

/// Sizes along the axis, with those of the caches that hold them.
fn of_bytes(along: &'static str, machine: &Machine, kind: CacheKind) -> Axes {
    let caches =
        machine.caches.iter().filter(|cache| [kind, CacheKind::Unified].contains(&cache.kind));
    let limits = caches.map(|cache| {
        let size = short(cache.size_bytes as f64, Unit::Bytes);
        (cache.size_bytes as f64, format!("L{} {size}", cache.level))
    });
    Axes {
        along,
        along_steps: Steps::Doublings,
        along_unit: Some(Unit::Bytes),
        limits: limits.collect(),
        ..Axes::default()
    }
}

fn icache_sets(report: &IcacheReport) -> Vec<Figure> {
    report
        .strides
        .iter()
        .chain(&report.lines)
        .flat_map(|stride| {
            let knee = stride.fit.as_ref().map(|fit| (f64::from(fit.knee), "knee".to_owned()));
            let axes = Axes {
                about: "core cycles of one dispatch, all blocks in one set or in all sets.",
                along: "blocks",
                limits: knee.into_iter().collect(),
                ..Axes::default()
            };
            let picture = match stride.odd_bytes {
                0 => format!("{} bytes apart", stride.stride_bytes),
                odd => format!(
                    "{} bytes apart, every second {odd} bytes further on",
                    stride.stride_bytes
                ),
            };
            curves(
                &axes,
                stride.points.iter().flat_map(|(blocks, crowded, spread)| {
                    [("in one set", crowded), ("spread", spread)]
                        .map(|(name, y)| point(&picture, name, (*blocks).into(), y.as_ref()))
                }),
            )
        })
        .collect()
}

/// What happens to a load at every offset from its store, a picture for each kind of register.
fn matrices(cells: &[CellReport]) -> Vec<Figure> {
    let mut by_registers: BTreeMap<_, Vec<&CellReport>> = BTreeMap::new();
    let is_near =
        |cell: &&CellReport| cell.case.load.offset_bytes.unsigned_abs() <= MOST_OFFSET_BYTES;
    let of_matrix = cells.iter().filter(|cell| cell.case.group == Group::Matrix);
    for cell in of_matrix.filter(is_near) {
        by_registers.entry(cell.case.registers).or_default().push(cell);
    }
    by_registers.iter().map(|(registers, cells)| matrix(&name_of(registers), cells)).collect()
}

fn matrix(registers: &str, cells: &[&CellReport]) -> Figure {
    let offset = |cell: &CellReport| cell.case.load.offset_bytes;
    let first = cells.iter().map(|cell| offset(cell)).min().unwrap_or(0);
    let last = cells.iter().map(|cell| offset(cell)).max().unwrap_or(0);
    let columns = last.abs_diff(first) as usize + 1;
    let mut rows: BTreeMap<[u16; 2], Vec<Cell>> = BTreeMap::new();
    for cell in cells {
        let store = cell.case.stores.first().map_or(0, |store| store.bytes);
        let cycles = cell.cycles.as_ref();
        let drawn = Cell {
            column: offset(cell).abs_diff(first) as usize,
            class: class_of(cell.class),
            opacity: 0.7,
            text: cycles.map_or_else(String::new, |m| format!("{:.0}", m.value)),
            title: match cycles {
                Some(m) => {
                    format!("{}: {}, {}", cell.name, cell.class.word(), Number::of(m, "").text)
                }
                None => format!("{}: {}", cell.name, cell.class.word()),
            },
        };
        rows.entry([store, cell.case.load.bytes]).or_default().push(drawn);
    }
    let ticks = (first..=last).filter(|at| at % (4 * (columns as i32 / 32).max(1)) == 0);
    let plan = Plan {
        title: format!(
            "Store forwarding, {registers}: what happens to a load at each offset from its store; the table below has the same"
        ),
        along: "bytes from the start of the store to that of the load",
        columns,
        ticks: ticks.map(|at| (at.abs_diff(first) as usize, format!("{at:+}"))).collect(),
        rows: rows
            .into_iter()
            .map(|([store, load], cells)| (format!("{store} → {load}"), cells))
            .collect(),
    };
    let listed = cells.iter().map(|cell| {
        let class = Number::new(
            cell.class.word(),
            format!("{:.0} % of the samples are clean", cell.clean_percent),
        );
        let cycles =
            cell.cycles.as_ref().map_or_else(Number::default, |m| Number::of(m, &cell.name));
        (cell.name.clone(), vec![class, cycles])
    });
    let classes = [Class::Renamed, Class::Forwarded, Class::Blocked, Class::Inconclusive];
    Figure {
        caption: format!(
            "Forwarding, {registers}: bytes of the store → bytes of the load, by the load's offset."
        ),
        keys: classes.map(|class| (class_of(class), class.word().to_owned())).into(),
        picture: Picture::Grid(Grid::of(plan)),
        head: ["case", "what happens", "round trip"].map(str::to_owned).into(),
        rows: listed.collect(),
    }
}

fn class_of(class: Class) -> &'static str {
    match class {
        Class::Inconclusive => "undecided",
        class => class.word(),
    }
}
