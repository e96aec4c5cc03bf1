//! Golden pages of invented results, figures against the JSON's, hostile documents.

use serde_json::{Value, json};

mod pictured;

use super::*;
use crate::compare::simulate::{Noise, SimulatedMachine};
use crate::compare::{Comparison, Settings, compare};
use crate::explain::tests::{Scene, executes};
use crate::report::to_json;

fn comparison(effect_log: f64, pairs: u32) -> Comparison {
    let mut machine = SimulatedMachine::new(Noise::Quiet, pairs, 11);
    machine.effect_log = effect_log;
    let settings = Settings { pairs, seed: 42, ..Settings::default() };
    compare(&mut machine, &settings, &mut |_| {}).unwrap()
}

/// The document of an explanation, with a cause and runs without it, the same on every machine.
fn explanation() -> Value {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.settings.seed = 42;
    scene.bench.patched_ns = Some([100_000_000, 200_000_000, 201_000_000, 103_000_000]);
    scene.bench.work = executes([1_000_000_000, 1_040_000_000]);
    scene.called_from_two([[560, 240, 200], [1260, 540, 200]]);
    let mut document = document("explanation", &scene.explain().unwrap());
    document["result"]["programs"] = json!(["before", "after"]);
    document["result"]["ledgers"] =
        json!([ledger(&document["result"]["causes"][0]["finding"]["site"])]);
    document
}

/// What the model could have said of it.
fn ledger(site: &Value) -> Value {
    let number = |unit: &str, [low, value, high]: [f64; 3]| json!({"value": value, "low": low, "high": high, "unit": unit, "n": 4, "how": "model of the core"});
    let part =
        |ends| json!({"percent": number("percent", ends), "of": "difference_in_processor_time"});
    json!({
        "place": "decode", "is_whole": false, "slow_arm": "b", "counted": true, "agrees": true,
        "cycles_per_instruction": [number("cycles", [0.5, 0.5, 0.6]), number("cycles", [1.0, 1.1, 1.1])],
        "predicted": part([96.0, 98.5, 101.25]), "measured": part([88.5, 90.25, 91.75]),
        "renames_memory": "never", "from_memory_percent": 0, "forgotten_percent": 0,
        "lines": [
            {"mechanism": "blocked_loads", "per_thousand": [0.0, 50.0], "cycles_per_instruction": [0.0, 0.6],
             "part": part([91.0, 93.5, 95.0]), "site": site, "is_named": true},
            {"mechanism": "long_chains", "per_thousand": null, "cycles_per_instruction": [0.1, 0.0],
             "part": part([-9.0, -8.5, -8.0]), "site": null, "is_named": false},
        ],
    })
}

fn document(kind: &str, result: &impl serde::Serialize) -> Value {
    serde_json::from_str(&to_json(kind, result).unwrap()).unwrap()
}

fn drawn(document: &Value) -> String {
    let page = page(&document.to_string()).unwrap();
    assert!(page.len() < 400_000, "{} bytes", page.len());
    page
}

/// The page without its style, kept for `make test-html` where that asks for it: with its document, and how long it took.
fn body(name: &str, document: &Value) -> String {
    let start = std::time::Instant::now();
    let page = drawn(document);
    let took_ms = start.elapsed().as_millis().to_string();
    if let Some(folder) = std::env::var_os("STALLSCOPE_PAGES") {
        let path = std::path::Path::new(&folder).join(name);
        let texts = [("html", &page), ("json", &document.to_string()), ("ms", &took_ms)];
        for (ending, text) in texts {
            crate::report::write_file(&path.with_extension(ending), text).unwrap();
        }
    }
    let (head, rest) = page.split_once("<style>").unwrap();
    head.to_owned() + rest.split_once("</style>").unwrap().1
}

#[test]
fn a_comparison() {
    let result = document("comparison", &comparison(0.345, 20));
    insta::assert_snapshot!(body("comparison", &result));
    body("equivalent", &document("comparison", &comparison(0.0, 40)));
}

#[test]
fn an_explanation() {
    insta::assert_snapshot!(body("explanation", &explanation()));
}

#[test]
fn charts_of_their_own() {
    let document = explanation().to_string();
    let drawn_page = |document: &Value| page(&document.to_string()).unwrap();
    let drawn = |chart| svg(&document, chart).unwrap();
    let without_style = |svg: String| {
        let (head, rest) = svg.split_once("<style>").unwrap();
        head.to_owned() + rest.split_once("</style>").unwrap().1
    };
    insta::assert_snapshot!(without_style(drawn(None)));
    assert_eq!(drawn(None), drawn(Some("flame")));
    for chart in ["Flame", "pairs", "runs", "steps by mechanism", "steps by work"] {
        let svg = drawn(Some(chart));
        assert!(
            svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>")
        );
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        for forbidden in ["https:", "url(", "@import", "href=", "<script"] {
            assert!(!svg.contains(forbidden), "{forbidden}");
        }
    }
    insta::assert_snapshot!("steps_by_mechanism", without_style(drawn(Some("steps"))));
    let case = json!({"sentence": "this machine has it", "explanation": explanation()["result"]});
    let case = self::document("case", &case);
    let page = drawn_page(&case);
    assert!(page.contains(">this machine has it<") && page.contains("class=\"code load\""));
    assert_eq!(svg(&case.to_string(), None).unwrap(), drawn(None));
    let refused = |text: &str, chart| svg(text, Some(chart)).unwrap_err().to_string();
    let comparison = self::document("comparison", &comparison(0.3, 8)).to_string();
    assert!(svg(&comparison, None).unwrap().contains("class=\"dot pair\""));
    assert!(refused(&comparison, "flame").contains("has no chart `flame`; it has `pairs`, `runs`"));
    let other = self::document("probe", &json!([1])).to_string();
    assert!(refused(&other, "pairs").contains("it has none"));
    assert!(svg(&other, None).unwrap_err().to_string().contains("has no chart; it has none"));
}

#[test]
fn what_has_no_picture_is_laid_out_field_by_field() {
    let measurement = json!({"value": 12.5, "low": 12.0, "high": 13.0, "unit": "cycles", "n": 9, "how": "median"});
    let result = json!({
        "seed": 7, "latency": measurement, "time_ns": 1_500_000, "notes": ["a", "b"], "nothing": null,
        "caches": [{"kind": "data", "address": 0x0040_1000_0000_u64}, {"kind": "unified", "is_shared": true}],
        "findings": [{"rule": "store-forward", "site": {"text": "mov eax, [rdi]"}}],
    });
    insta::assert_snapshot!(body("fields", &document("probe", &result)));
}

#[test]
fn the_figures_are_those_of_the_json() {
    let document = explanation();
    let page = drawn(&document);
    let result = &document["result"];
    let share = |share: &Value| {
        let part = |name: &str| share["percent"][name].as_f64().unwrap();
        format!("{:.1} % [{:.1}, {:.1}]", part("value"), part("low"), part("high"))
    };
    let rows = result["rows"].as_array().unwrap();
    let shares = rows.iter().map(|row| share(&row["share_of_difference"]));
    let lines = result["ledgers"].as_array().unwrap().iter().flat_map(|ledger| {
        let lines = ledger["lines"].as_array().unwrap().iter().map(|line| share(&line["part"]));
        lines
            .chain([share(&ledger["predicted"]), share(&ledger["measured"])])
            .collect::<Vec<String>>()
    });
    let cure = [share(&result["cure"]["recovered"]), share(&result["cure"]["control"])];
    let cause = [share(&result["causes"][0]["share_behind_site"])];
    let mut figures = 0;
    for figure in shares.chain(lines).chain(cure).chain(cause) {
        assert!(page.contains(&format!(">{figure}<")), "{figure}");
        figures += 1;
    }
    assert!(figures >= 8, "{figures}");
    for caller in result["stacks"]["called_from"]["callers"].as_array().unwrap() {
        assert!(page.contains(&format!(">{}<", share(&caller["share_of_difference"]))), "{caller}");
    }
    assert!(page.contains(&escaped(result["summary"].as_str().unwrap())));
    let samples = result["comparison"]["samples"].as_array().unwrap();
    assert_eq!(page.matches("class=\"dot ").count(), samples.len() + samples.len() / 2);
    assert_eq!(page.matches("class=\"head\"").count(), 2, "an arrow from each store");
    assert_eq!(page.matches("class=\"code load\"").count(), 1);
    for build in result["hot_code"][0]["builds"].as_array().unwrap() {
        let insns = build["instructions"].as_array().unwrap();
        assert!(insns.len() > 5, "{build}");
        assert!(insns.iter().all(|insn| page.contains(&escaped(insn["text"].as_str().unwrap()))));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&#38;").replace('<', "&#60;").replace('>', "&#62;").replace('\'', "&#39;")
}

/// Puts `text` into every string of a document that names something.
fn poison(value: &mut Value, text: &str) {
    const NAMES: [&str; 14] = [
        "name",
        "command",
        "program",
        "path",
        "function",
        "text",
        "summary",
        "place",
        "variable",
        "file",
        "notes",
        "how",
        "candidate",
        "variant",
    ];
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| match field {
            Value::String(old) if NAMES.contains(&name.as_str()) => old.push_str(text),
            Value::Array(all)
                if NAMES.contains(&name.as_str()) && all.iter().all(Value::is_string) =>
            {
                all.push(text.into());
            }
            other => poison(other, text),
        }),
        Value::Array(all) => all.iter_mut().for_each(|item| poison(item, text)),
        _ => {}
    }
}

#[test]
fn names_of_others_stay_text() {
    let hostile =
        "<script>alert(1)</script>\"'><img src=x onerror=y>&\u{202e}\u{1b}[31m</style>{{ 7 * 7 }}";
    let field = json!([{"<b>": hostile, "name": hostile}]);
    let pictured = [
        document("sweep", &pictured::swept()),
        document("layout", &pictured::laid_out()),
        document("probe", &pictured::data_caches()),
        document("history", &pictured::dated()),
        document("trace", &pictured::traced()),
        document("scan-run", &pictured::scanned()),
    ];
    let others =
        [explanation(), document("comparison", &comparison(0.3, 8)), document("other", &field)];
    for mut document in others.into_iter().chain(pictured) {
        let clean = drawn(&document);
        poison(&mut document, hostile);
        let page = page(&document.to_string()).unwrap();
        assert!(page.contains("alert(1)"));
        for forbidden in ["<script", "<img", "<b>\"", "\u{202e}", "\u{1b}"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        let tags = |page: &str, tag: &str| page.matches(tag).count();
        for tag in ["<svg", "<span", "<h1", "<style", "</style"] {
            assert_eq!(tags(&page, tag), tags(&clean, tag), "{tag}");
        }
    }
}

#[test]
fn a_page_fetches_nothing() {
    for document in
        [explanation(), document("comparison", &comparison(0.3, 8)), document("probe", &json!([1]))]
    {
        let page = drawn(&document);
        for forbidden in ["http:", "https:", "url(", "@import", "src=", "href=", "<link", "<script"]
        {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn a_comparison_of_the_most_pairs_fits() {
    let page =
        page(&document("comparison", &comparison(0.1, crate::compare::MAX_PAIRS)).to_string())
            .unwrap();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

#[test]
fn documents_that_are_none_are_refused_in_a_sentence() {
    let refused = |text: &str| page(text).unwrap_err().to_string();
    let envelope = |version: u32, kind: &str, result: Value| {
        json!({"format": "stallscope", "version": version, "kind": kind, "result": result})
            .to_string()
    };
    assert!(refused("{").starts_with("it is no JSON: "));
    for foreign in
        ["[]", "7", "{}", r#"{"format": "other", "version": 1, "kind": "x", "result": 1}"#]
    {
        assert!(refused(foreign).starts_with("it is no result of stallscope"), "{foreign}");
    }
    assert!(
        refused(&envelope(99, "comparison", json!({}))).contains("newer stallscope (format 99)")
    );
    let unfit = refused(&envelope(1, "comparison", json!({})));
    assert!(
        unfit.starts_with("it is no `comparison` as this stallscope writes it: missing field"),
        "{unfit}"
    );
    let mut torn = document("comparison", &comparison(0.1, 8));
    torn["result"]["samples"].as_array_mut().unwrap().pop();
    assert!(refused(&torn.to_string()).starts_with("its parts do not belong together: "));
}

#[test]
fn what_is_deep_or_long_is_cut() {
    let deep = (0..100).fold(json!(1), |inner, _| json!({ "x": inner }));
    let long =
        Value::Array((0..200_000).map(|n| json!({ "n": n, "text": "x".repeat(5) })).collect());
    for result in [deep, long, json!("y".repeat(3_000_000)), json!({ "k".repeat(100_000): 1 })] {
        let page = drawn(&document("other", &result));
        assert!(["are in the JSON", "… (in", "…<", "kkkk<"].iter().any(|cut| page.contains(cut)));
    }
}

#[test]
fn numbers_without_sense_are_drawn_without_harm() {
    let mut document = document("comparison", &comparison(0.3, 8));
    for sample in document["result"]["samples"].as_array_mut().unwrap() {
        sample["wall_ns"] = json!(0);
    }
    document["result"]["analysis"]["wall"]["log_ratio"] = json!(1e308);
    drawn(&document);
}
