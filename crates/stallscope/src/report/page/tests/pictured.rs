//! Golden pages of an invented sweep, layout, probe, history, trace and scanned run: pictures above the fields.

use super::*;
use crate::machine::{Facts, Machine};
use crate::model::{Measurement, Unit};
use crate::probes::data_caches::Chain;
use crate::probes::store_forwarding::case::all_cases;
use crate::probes::store_forwarding::{Case, Group};
use crate::probes::{Cell, DataCacheReport, ForwardingReport, ProbeReport, Protocol, Sampled};

fn part(percent: f64, reach: f64) -> Value {
    let log = |percent: f64| (percent / 100.0).ln_1p();
    json!({"log_ratio": log(percent), "low_log": log(percent - reach), "high_log": log(percent + reach)})
}

/// Two builds in three random layouts each, on two machines, one of which is not believed.
pub(super) fn swept() -> Value {
    let time = |variant: u64, layout: u64, round: u64| {
        1_000_000 * (100 + 3 * variant + layout % 3) + 10_000 * round
    };
    let run = |n: u64| {
        let (variant, layout, round) = (n % 2, n / 2 % 4, n / 8);
        json!({"variant": variant, "layout": layout, "round": round, "wall_ns": time(variant, layout, round),
            "cpu_ns": time(variant, layout, round), "run_queue_ns": 0, "voluntary_switches": 0,
            "involuntary_switches": 0, "page_faults": 80, "peak_memory_bytes": 1_000_000, "repeats": 0})
    };
    let spread = |variant: &str, ms: f64| {
        json!({"variant": variant, "unit": "nanoseconds", "as_built": 1e6 * ms, "layouts": 3,
            "typical": 1e6 * (ms + 1.0), "best_log": -0.01, "worst_log": 0.01, "layout_sd_log": 0.01,
            "run_sd_log": 0.002})
    };
    let host = |name: &str, aside: Value| {
        json!({"kind": "intel-6-143-8-sapphire-rapids", "name": name, "id": name, "blocks": 3, "runs": 24,
            "disturbances": null, "set_aside": aside})
    };
    let layouts = [0, 1, 2, 3]
        .map(|layout| json!({"layout": layout, "median_log": 18.4, "runs": 3, "disturbed": 0}));
    let level = json!({
        "level": "", "by_rounds": part(3.0, 0.4), "decision": "slower",
        "split": {"layouts": [layouts, layouts], "observed": part(3.0, 0.3), "code": part(2.5, 1.5), "welch": null,
            "placement": part(0.5, 1.8), "layout_sd_log": 0.01, "layout_sd_interval_log": [0.005, 0.02],
            "run_sd_log": 0.002, "decision": "slower", "source": "code", "detectable_log": 0.02,
            "layouts_needed": 5},
        "machines": {
            "kinds": [{"kind": "intel-6-143-8-sapphire-rapids", "machines": 1, "effect": part(2.5, 1.5),
                "machine_sd_log": 0.0, "another": null, "decision": "slower"}],
            "agreement": "holds",
            "each": [{"machine": 0, "log_ratio": 0.0247, "alone": part(2.5, 1.5)},
                {"machine": 1, "log_ratio": 0.2, "alone": null}],
        },
    });
    json!({
        "settings": {"axes": [{"name": "opt", "values": ["O1", "O2"]}], "layouts": 3, "knob": "lld", "build": "cc",
            "run": "{out}", "rounds": 3, "effect": 0.01, "seed": 1, "timeout_ms": null, "guard": true,
            "measure": "auto"},
        "metric": "wall", "earlier_runs": 0, "cells": [], "disturbances": null,
        "variants": [{"values": [["opt", "O1"]]}, {"values": [["opt", "O2"]]}],
        "spreads": [spread("opt=O1", 100.0), spread("opt=O2", 103.0)],
        "comparisons": [{"base": "opt=O1", "candidate": "opt=O2", "levels": [level], "matched": null,
            "decision": "slower", "source": "code"}],
        "notes": [{"id": "stack-only"}],
        "machines": [host("node-1", Value::Null), host("node-2", json!({"id": "clock", "log_ratio": 0.01}))],
        "runs": (0..24).map(run).collect::<Vec<_>>(),
    })
}

#[test]
fn a_sweep() {
    insta::assert_snapshot!(body("sweep", &document("sweep", &swept())));
}

#[test]
fn each_layout_is_a_dot_and_its_ends_where_no_runs_are_kept() {
    let mut result = swept();
    let dots = |result: &Value| drawn(&document("sweep", result)).matches("layout 1: ").count();
    assert_eq!(dots(&result), 2);
    result["runs"] = json!([]);
    assert_eq!(dots(&result), 0);
    assert_eq!(drawn(&document("sweep", &result)).matches("worst layout: ").count(), 2);
}

/// A set for each number, with as many lines as its number modulo 20.
pub(super) fn laid_out() -> Value {
    let set = |n: u64| {
        let line = |of: u64| {
            json!({"line": 4096 * of + 64 * n, "samples": 50 - of, "misses": null,
            "function": if of == 3 { Value::Null } else { json!(format!("function_{of}")) }, "offset_bytes": 64 * n})
        };
        let lines: Vec<Value> = (0..n % 20).filter(|_| n < 5 || n == 19).map(line).collect();
        let heat =
            |lines: u64| json!({"function": lines, "peers": 3, "lines": lines, "misses": null});
        json!({"set": n, "before": heat(n % 20), "after": heat(n / 4), "occupants_before": lines,
            "occupants_after": [], "change": if n == 19 { "new_collision" } else { "unchanged" }})
    };
    let heat = |over: u64| {
        json!({"source": "perf cpu-clock", "is_complete": false, "samples": 9000, "lines": 400,
            "overfull_sets": over, "misses": null})
    };
    json!({"sets": {"geometry": {"sets": 64, "ways": 16, "line_bytes": 64}, "heat": [heat(9), heat(0)],
        "function": "hot", "sets": (0..64).map(set).collect::<Vec<_>>(), "clusters": [], "what_if": null,
        "notes": ["samples are few"]}, "design": "cascade_lake", "windows": []})
}

#[test]
fn a_layout() {
    let page = body("layout", &document("layout", &laid_out()));
    assert_eq!(page.matches("class=\"cell ").count(), 128);
    assert_eq!(page.matches("class=\"cell over\"").count(), 9);
    insta::assert_snapshot!(page);
}

fn cycles(value: f64) -> Measurement {
    let how = "median of placements; lowest to highest placement".into();
    Measurement { value, unit: Unit::Cycles, low: value - 0.1, high: value + 0.1, n: 24, how }
}

fn sampled(cells: impl Iterator<Item = f64>) -> Sampled {
    let cell = |value| Cell { cycles: Some(cycles(value)), clean_percent: 90.0, taken: 30 };
    let cells: Vec<Cell> = cells.map(cell).collect();
    Sampled { taken: 30 * cells.len(), cells, clean_percent: 90.0 }
}

fn protocol() -> Protocol {
    Protocol::new(Machine::from_facts(&Facts::default()), 0)
}

pub(super) fn data_caches() -> Value {
    let tables = Chain::ALL.map(|chain| 1 << (14 + 2 * chain as u64));
    let latencies = Chain::ALL.iter().map(|chain| 5.0 * f64::from(1 << (*chain as u32)));
    let caches = DataCacheReport::new(tables, &sampled(latencies), protocol());
    json!({"seed": 1, "probes": [ProbeReport::DataCaches(Box::new(caches))]})
}

#[test]
fn a_probe() {
    insta::assert_snapshot!(body("probe", &document("probe", &data_caches())));
}

#[test]
fn every_sample_of_a_fill_is_a_point_and_every_picture_a_chart_of_its_own() {
    let region = |bytes: u64, blocks: &[f64]| {
        let speed = Measurement { unit: Unit::Ratio, ..cycles(1.2) };
        json!({"bytes": bytes, "level": "l2", "speed": speed, "eliminated": null, "detectable_percent": 1.0, "wide": null,
            "ratios": [{"fill": "zero", "speed": speed, "blocks": blocks}, {"fill": "two", "speed": speed}]})
    };
    let mut fills = serde_json::to_value(protocol()).unwrap();
    fills["regions"] = json!([
        region(4096, &[&[1.15, 1.25].repeat(51)[..], &[400.0]].concat()),
        region(8192, &[1.2])
    ]);
    fills["probe"] = json!("store-elimination");
    let document = document("probe", &json!({"seed": 1, "probes": [fills]})).to_string();
    let speeds = svg(&document, None).unwrap();
    assert_eq!(speeds, svg(&document, Some("speed over that")).unwrap());
    let points = |class: &str| {
        let found = speeds.split(&format!("class=\"sample {class}\" d=\"")).nth(1)?;
        Some(found.split('"').next()?.matches("h0").count())
    };
    assert_eq!([points("s0"), points("s1")], [Some(104), None]);
    // A sample that is far from all others does not flatten them.
    assert!(
        !speeds.contains(">10 x<")
            && page(&document).unwrap().contains("Of 104 samples 1 lie outside"),
        "{speeds}"
    );
    assert_ne!(speeds, svg(&document, Some("filling with ones")).unwrap());
    let refused = svg(&document, Some("flame")).unwrap_err().to_string();
    assert!(refused.ends_with("it has `Speed over that of ones (of sparse ones for sparse zeros)`, `Speed of filling with ones`"), "{refused}");
}

/// Twelve commits, slower from the seventh on.
pub(super) fn dated() -> Value {
    let key = json!({"reference": ["./reference"], "reference_fnv1a": "1", "command": ["./app", "input"],
        "measure": "auto", "machine": "intel-6-143-8-sapphire-rapids"});
    let entry = |n: u64| {
        let percent = if n < 6 { 0.1 } else { 3.1 } + 0.1 * (n % 3) as f64;
        let mut entry = part(percent, 0.4);
        let more = json!({"label": format!("commit-{n}"), "time_s": 1_700_000_000 + n, "program_fnv1a": "2",
            "metric": "wall", "decision": "inconclusive", "pairs": 20});
        for part in [&more, &key] {
            entry.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        entry
    };
    let step = |word: &str, at: u64| {
        json!({"label": format!("commit-{at}"), "before": format!("commit-{}", at - 1), "at": at, "change": part(3.0, 0.2),
            "p_value": 0.005, "layout_reach_log": 0.01, "word": word})
    };
    json!({"path": "speed.jsonl", "effect": 0.01, "seed": 1, "damaged": [], "series": [{
        "series": key, "entries": (0..12).map(entry).collect::<Vec<_>>(), "left_out": 3,
        "steps": [step("slower", 6), step("within-layout-spread", 9)], "commit_sd_log": 0.001, "enough": true}]})
}

#[test]
fn a_history() {
    let page = body("history", &document("history", &dated()));
    assert_eq!(page.matches("<circle class=\"dot s0").count(), 12);
    insta::assert_snapshot!(page);
}

fn site(svma: u64, text: &str) -> Value {
    json!({"function": "decode", "offset_bytes": svma & 0xff, "svma": svma, "text": text, "access_bytes": 8, "source": [],
        "variable": null})
}

/// A window that waits for blocked loads, with the model's word and the count.
pub(super) fn traced() -> Value {
    let wait = |mechanism: &str, share: f64, events: u64| {
        json!({"mechanism": mechanism, "cycles": 1000.0 * share, "share": share, "events": events,
            "events_per_thousand": events as f64 / 10.0, "most_at": 0x1010, "most_events": events})
    };
    let place = |avma: u64| json!({"avma": avma, "object": "/bin/decoder", "site": site(avma, "mov rax, [rdi]")});
    json!({
        "store_buffer": {"loads": 2000, "blocked": 200, "sites": [
            {"insn": 0x1010, "executions": 250, "blocked": 200, "blockers": [{"stores": [0x1020, 0x1020], "count": 200}]}]},
        "cycles": {"instructions": 10_000, "cycles": 5000, "cycles_per_instruction": 0.5,
            "waits": [wait("blocked_loads", 0.6, 200), wait("long_chains", -0.02, 0), wait("divisions", 0.0, 0)],
            "functions": [{"start": 0x1000, "account": {"executions": 9000, "cycles": 4900}, "cycles_per_instruction": 0.54}]},
        "places": [place(0x1010), place(0x1020)],
    })
}

#[test]
fn a_trace() {
    insta::assert_snapshot!(body("trace", &document("trace", &traced())));
}

/// A run with one blocked load.
pub(super) fn scanned() -> Value {
    let share = Measurement {
        value: 40.0,
        unit: Unit::Percent,
        low: 35.0,
        high: 45.0,
        n: 2000,
        how: "samples".into(),
    };
    json!({"windows": 2, "instructions": 20_000, "files": [{"path": "/bin/decoder", "share": share.clone()}],
        "sites": [{"event": "blocked", "events": 99, "executions": 100, "share": share,
            "site": site(0x1010, "mov rax, [rdi]"), "stores": [site(0x1020, "mov [rdi], ecx")]}]})
}

#[test]
fn a_scanned_run() {
    insta::assert_snapshot!(body("scan-run", &document("scan-run", &scanned())));
}

#[test]
fn every_case_of_the_matrix_is_a_cell_and_every_delay_a_dot() {
    let cases = all_cases(false);
    let of = |case: &Case| match (case.contained(), f64::from(case.steps)) {
        (true, _) => 5.0,
        (false, steps) => (20.0 - steps).max(5.0),
    };
    let report = ForwardingReport::new(&cases, &sampled(cases.iter().map(of)), protocol());
    let in_matrix = cases.iter().filter(|case| case.group == Group::Matrix).count();
    let delays = report.delay.steps.len() + report.delay.fillers.len();
    let result = json!({"seed": 1, "probes": [ProbeReport::StoreForwarding(Box::new(report))]});
    let page = body("forwarding", &document("probe", &result));
    assert_eq!(page.matches("<rect class=\"cell ").count(), in_matrix);
    assert_eq!(page.matches("<circle class=\"dot ").count(), 3 * delays);
    assert!(
        page.contains("<title>8 -&#62; 4 at +4: forwarded, 5.000 cycles [4.900, 5.100]</title>")
    );
    assert!(page.contains(">free from here<"));
}

#[test]
fn what_has_another_shape_is_laid_out_as_fields() {
    for (kind, mut result) in [
        ("sweep", swept()),
        ("layout", laid_out()),
        ("probe", data_caches()),
        ("history", dated()),
        ("trace", traced()),
        ("scan-run", scanned()),
    ] {
        let with =
            |result: &Value| drawn(&document(kind, result)).contains("Everything that is known");
        assert!(with(&result), "{kind}");
        let part = match kind {
            "sweep" => "metric",
            "layout" => "sets",
            "probe" => "probes",
            "history" => "series",
            "trace" => "places",
            _ => "files",
        };
        result[part] = json!("of another version");
        assert!(!with(&result), "{kind}");
    }
}
