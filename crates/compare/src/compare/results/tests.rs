//! Every format, every way to be broken, and benchstat's own numbers.

use super::*;
use crate::compare::verdict::Decision;
use crate::stats::families::Adjustment;

const OLD: &str = include_str!("../../../tests/results/old.txt");
const NEW: &str = include_str!("../../../tests/results/new.txt");

fn judged(old: &str, new: &str) -> Result<Judgement, ResultError> {
    judge(&parse("old", old)?, &parse("new", new)?, 0.01, Adjustment::Holm)
}

fn complaint(text: &str) -> String {
    parse("f", text).unwrap_err().to_string()
}

#[test]
fn medians_and_p_values_are_those_of_benchstat() {
    // benchstat old.txt new.txt, golang.org/x/perf of 2026: medians as CSV, p to three digits.
    let want = [
        ("Encode/js-2", "ns/op", 5394.0, 5575.0, 0.000),
        ("Decode-2", "ns/op", 821.6, 823.45, 0.315),
        ("Ties-2", "ns/op", 12.0, 12.0, 0.3182),
        ("Many-2", "ns/op", 98.545, 99.39, 0.092),
        ("Few-2", "ns/op", 101.0, 102.5, 0.200),
        ("Encode/js-2", "MB/s", 949.215, 918.42, 0.000),
        ("Encode/js-2", "B/op", 1024.0, 1024.0, 1.0),
        ("Decode-2", "allocs/op", 0.0, 0.0, 1.0),
    ];
    let found = judged(OLD, NEW).unwrap();
    for (name, unit, old, new, p) in want {
        let row = found.rows.iter().find(|r| r.name == name && r.unit == unit).unwrap();
        assert!((row.old.value / old - 1.0).abs() < 2e-4 || row.old.value == old, "{row:?}");
        assert!((row.new.value / new - 1.0).abs() < 2e-4 || row.new.value == new, "{row:?}");
        assert!((row.p_value.unwrap() - p).abs() <= 0.0005, "{name} {unit}: {:?}", row.p_value);
    }
    let word = |unit: &str| found.rows.iter().find(|r| r.unit == unit).unwrap().decision;
    assert_eq!(word("ns/op"), Decision::Slower);
    // A lower rate is worse.
    assert_eq!(word("MB/s"), Decision::Slower);
    assert_eq!(found.files[0].config["cpu"], "Example CPU @ 2.50GHz");
    // benchstat: geomean +1.18 %.
    let mean = found.geomeans.iter().find(|g| g.unit == "ns/op").unwrap();
    assert!((mean.change.log_ratio.exp_m1() - 0.0118).abs() < 5e-5, "{mean:?}");
}

const HYPERFINE: &str = r#"{"results":[{"command":"./a","mean":0.1,"stddev":0.01,"median":0.1,
    "times":[0.101,0.099,0.1,0.102,0.1,0.098],"exit_codes":[0,0,0,0,0,0]}]}"#;

const GOOGLE: &str = r#"{"context":{"date":"d","host_name":"h","library_build_type":"release"},
 "benchmarks":[
 {"name":"BM_x/8","run_name":"BM_x/8","run_type":"iteration","repetition_index":0,"iterations":10,
  "real_time":1.0,"cpu_time":0.9,"time_unit":"us","items_per_second":5.0},
 {"name":"BM_x/8","run_name":"BM_x/8","run_type":"iteration","repetition_index":1,"iterations":10,
  "real_time":1.1,"cpu_time":0.95,"time_unit":"us","items_per_second":4.8},
 {"name":"BM_x/8_mean","run_name":"BM_x/8","run_type":"aggregate","aggregate_name":"mean",
  "repetitions":2,"iterations":2,"real_time":1.05,"cpu_time":0.92,"time_unit":"us"}]}"#;

#[test]
fn each_format_is_recognised_and_read() {
    let file = parse("f", HYPERFINE).unwrap();
    assert_eq!((file.format, file.series.len()), (Format::Hyperfine, 1));
    assert_eq!(file.series[0].values.len(), 6);

    let file = parse("f", GOOGLE).unwrap();
    assert_eq!(file.format, Format::GoogleBenchmark);
    let real = file.series.iter().find(|s| s.unit == "real ns").unwrap();
    assert_eq!(real.values, [1000.0, 1100.0]);
    let rate = file.series.iter().find(|s| s.unit == "items_per_second").unwrap();
    assert_eq!((rate.better, rate.values.len()), (Better::Higher, 2));

    let text = "# started on Sat\n\n12.5,msec,task-clock,12500000,100.00,0.9,CPUs utilized\n\
        <not supported>,,cycles,0,100.00,,\n12.7,msec,task-clock,12700000,100.00,0.9,CPUs utilized\n";
    let file = parse("f", text).unwrap();
    assert_eq!((file.format, file.series[0].name.as_str()), (Format::PerfStat, "task-clock"));
    assert_eq!(file.series[0].values, [12.5, 12.7]);
    assert!(file.config.contains_key("not counted: cycles"));

    let text = r#"{"counter-value" : "44.5", "unit" : "msec", "event" : "task-clock", "variance" : 1.5, "event-runtime" : 1}"#;
    let file = parse("f", text).unwrap();
    let summary = file.series[0].summary.unwrap();
    assert!(file.series[0].values.is_empty() && (summary.sd.unwrap() - 0.6675).abs() < 1e-9);

    let file = parse("f", "1.5\n2.5\n\n3\n").unwrap();
    assert_eq!((file.format, file.series[0].values.len()), (Format::Numbers, 3));

    let file = parse("f", "name,time_ms,size (B)\nx,1.5,10\ny,2.5,20\n").unwrap();
    assert_eq!(file.format, Format::Csv);
    let units: Vec<&str> = file.series.iter().map(|s| s.unit.as_str()).collect();
    assert_eq!(units, ["ms", "B"]);
}

#[test]
fn a_criterion_folder_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let bench = folder.path().join("group/fast/new");
    fs::create_dir_all(&bench).unwrap();
    assert!(!looks_like_results(folder.path()));
    fs::write(
        bench.join("sample.json"),
        r#"{"sampling_mode":"Linear","iters":[1.0,2.0],"times":[10.0,22.0]}"#,
    )
    .unwrap();
    fs::write(bench.join("benchmark.json"), r#"{"full_id":"group/fast","title":"x"}"#).unwrap();
    assert!(looks_like_results(folder.path()));
    let file = read(folder.path()).unwrap();
    assert_eq!(
        (file.series[0].name.as_str(), &file.series[0].values[..]),
        ("group/fast", &[10.0, 11.0][..])
    );
    fs::write(bench.join("sample.json"), r#"{"iters":[1.0,"#).unwrap();
    assert!(read(folder.path()).unwrap_err().to_string().contains("sample.json is not whole"));
}

#[test]
fn broken_input_has_a_sentence_with_its_place() {
    let cases = [
        ("", "empty"),
        ("  \n", "empty"),
        ("hello world\n", "in no format"),
        (r#"{"results":[{"command":"#, "not whole hyperfine JSON"),
        (r#"{"results":[{"command":"x","times":[null]}]}"#, "no amount"),
        (r#"{"results":[]}"#, "no result"),
        (r#"{"context":{},"benchmarks":[{"na"#, "not whole google-benchmark JSON"),
        (
            r#"{"context":{},"benchmarks":[{"name":"x","real_time":1,"time_unit":"parsec"}]}"#,
            "parsec",
        ),
        (r#"{"something":"else"}"#, "in no format"),
        (r#"{"something"#, "not whole JSON"),
        ("BenchmarkX-2 \t 10 \t 5 ns/op\t 3\n", "line 1: a value without its unit"),
        ("BenchmarkX-2 10 NaN ns/op\n", "NaN is no amount"),
        ("BenchmarkX-2 10 abc ns/op\n", "`abc`"),
        ("1\n2\nx\n", "line 3: `x`"),
        ("1\nNaN\n", "line 2: NaN"),
        ("1\n-4\n", "line 2: -4"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields"),
        ("a,b\n1,2\n3,x\n", "line 3: `x`"),
        ("a,b\n1,2\n3,inf\n", "inf is no amount"),
        ("1.5,msec,task-clock,1,100.00,,\ngarbage\n", "line 2: not a line of `perf stat"),
        (
            "{\"counter-value\" : \"4\", \"unit\":\"\", \"event\":\"x\"}\n{\"cou\n",
            "line 2: not whole JSON",
        ),
    ];
    for (text, want) in cases {
        let said = complaint(text);
        assert!(said.contains(want), "{text:?}: {said}");
    }
}

#[test]
fn files_that_do_not_go_together_are_refused() {
    let mixed = judged("t (ms)\n1,\n", "x").is_err();
    assert!(mixed);
    let error = judged("t_ms,n\n1,1\n", "t (B),m\n1,1\n").unwrap_err().to_string();
    assert!(error.contains("ms") && error.contains("B"), "{error}");
    let error = judged("a,b\n1,2\n", "c,d\n1,2\n").unwrap_err().to_string();
    assert!(error.contains("no benchmark in common") && error.contains('a'), "{error}");
    // Another unit of the same kind converts.
    let row = &judged("t_ms,x\n1,1\n2,2\n", "t_us,x\n1000,1\n2000,2\n").unwrap().rows[0];
    assert_eq!((row.old.value, row.new.value), (1.5, 1.5));
    let only = judged("a,b\n1,2\n", "b,c\n2,3\n").unwrap().only_in;
    assert_eq!(only, [vec!["a".to_owned()], vec!["c".to_owned()]]);
}

#[test]
fn threats_are_seen() {
    let ids = |old: &str, new: &str| -> Vec<String> {
        let found = judged(old, new).unwrap();
        let rows = found.rows.iter().flat_map(|r| r.threats.clone());
        found
            .threats
            .iter()
            .cloned()
            .chain(rows)
            .map(|t| serde_json::to_value(&t).unwrap()["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let has = |old: &str, new: &str, id: &str| ids(old, new).contains(&id.to_owned());
    assert!(has(HYPERFINE, HYPERFINE, "same-content"));
    assert!(has(HYPERFINE, HYPERFINE, "sequential-order") && has(OLD, NEW, "one-layout"));
    assert!(has("1\n2\n", "1\n3\n", "too-few"));
    let column =
        |f: &dyn Fn(u32) -> f64| (0..40).map(|i| format!("{}\n", f(i))).collect::<String>();
    let calm = column(&|i| 100.0 + f64::from(i * 7919 % 41) / 41.0);
    let humps = column(&|i| 100.0 + f64::from(i * 7919 % 41) / 41.0 + f64::from(i % 3 / 2) * 20.0);
    let rising = column(&|i| 100.0 + f64::from(i * 7919 % 41) / 41.0 + f64::from(i) / 10.0);
    assert!(has(&calm, &humps, "bimodal") && !has(&calm, &calm, "bimodal"));
    assert!(has(&calm, &rising, "drift") && !has(&calm, &calm, "drift"));
    let still = "BenchmarkX 1 5 ns/op\n".repeat(6);
    assert!(has(&still, &still, "no-variance"));
    let means = r#"{"results":[{"command":"./a","mean":0.1,"stddev":0.01}]}"#;
    assert!(has(means, means, "no-raw-samples"));
    assert_eq!(judged(means, means).unwrap().decision, Decision::Inconclusive);
}

#[test]
fn every_threat_has_its_sentence() {
    let found = judged(OLD, NEW).unwrap();
    assert!(found.threats.iter().all(|t| t.to_string().len() > 40));
    let text = serde_json::to_string(&found).unwrap();
    let again: Judgement = serde_json::from_str(&text).unwrap();
    assert_eq!((again.rows.len(), again.decision), (found.rows.len(), found.decision));
    assert_eq!(again.threats, found.threats);
}

const JMH: &str = r#"[{"jmhVersion":"1.37","benchmark":"org.x.Bench.encode","mode":"avgt","threads":1,"forks":5,
  "jdkVersion":"21.0.2","vmName":"OpenJDK 64-Bit Server VM","params":{"size":"64"},
  "primaryMetric":{"score":10.5,"scoreError":0.3,"scoreUnit":"ns/op",
   "rawData":[[10.0,11.0],[10.2,10.8],[10.4,10.6],[10.1,10.9],[10.3,10.7]]},"secondaryMetrics":{}},
 {"benchmark":"org.x.Bench.rate","mode":"thrpt","forks":1,
  "primaryMetric":{"score":5.0,"scoreError":"NaN","scoreUnit":"ops/ms","rawData":[[5.0,5.1,4.9]]}},
 {"benchmark":"org.x.Bench.sampled","mode":"sample","forks":1,
  "primaryMetric":{"score":7.0,"scoreUnit":"us/op","rawDataHistogram":[[[[1,2]]]]}}]"#;

const PYTEST: &str = r#"{"machine_info":{"node":"host","python_version":"3.12.1","cpu":{}},"commit_info":{},
 "benchmarks":[{"group":null,"name":"test_a","fullname":"t.py::test_a","params":null,
   "stats":{"min":1.0,"mean":2.0,"stddev":0.5,"rounds":4,"median":2.0,"data":[1.0,2.0,2.5,2.5]}},
  {"name":"test_b","fullname":"t.py::test_b","stats":{"mean":3.0,"stddev":0.1,"rounds":9}}],
 "datetime":"d","version":"4.0.0"}"#;

const PYPERF: &str = r#"{"version":"1.0","metadata":{"name":"sum","unit":"second","python_version":"3.12"},
 "benchmarks":[{"runs":[{"metadata":{},"warmups":[[1,0.2]]},
  {"values":[1.0,3.0],"warmups":[[1,2.0]]},{"values":[2.0,2.2]},{"values":[2.0]},{"values":[2.1,2.3]}]}]}"#;

const DOTNET: &str = r#"{"Title":"x","HostEnvironmentInfo":{"BenchmarkDotNetVersion":"0.13","ProcessorName":"Example"},
 "Benchmarks":[{"DisplayInfo":"B.Run","FullName":"N.B.Run","Statistics":{"N":2,"Mean":11.0,"StandardDeviation":1.0},
  "Measurements":[
   {"IterationMode":"Overhead","IterationStage":"Actual","LaunchIndex":1,"Operations":4,"Nanoseconds":1},
   {"IterationMode":"Workload","IterationStage":"Actual","LaunchIndex":1,"Operations":4,"Nanoseconds":99},
   {"IterationMode":"Workload","IterationStage":"Result","LaunchIndex":1,"Operations":4,"Nanoseconds":40},
   {"IterationMode":"Workload","IterationStage":"Result","LaunchIndex":1,"Operations":4,"Nanoseconds":48}]},
  {"DisplayInfo":"B.Old","Statistics":{"OriginalValues":[5.0,6.0],"N":2,"Mean":5.5}},
  {"DisplayInfo":"B.Brief","Statistics":{"N":20,"Mean":7.0,"StandardDeviation":0.5}}]}"#;

const GOOGLE_CSV: &str = "2026-01-01T00:00:00+00:00\nRunning ./bench\n\
    name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,error_message\n\
    \"BM_x/8, \"\"quoted\"\"\",10,2.0,1.0,us,,5.0,\"a,b\",,\n\
    \"BM_x/8, \"\"quoted\"\"\",10,2.2,1.1,us,,4.8,,,\n\
    \"BM_mean\",10,7,7,ns,,,,,\n\
    \"BM_bad\",,,,,,,,true,\"too small\"\n";

#[test]
fn values_of_processes_count_once_for_each_where_there_are_enough() {
    let file = parse("f", JMH).unwrap();
    assert_eq!((file.format, file.series.len()), (Format::Jmh, 3));
    let [encode, rate, sampled] = &file.series[..] else { panic!("{file:?}") };
    assert_eq!(
        (encode.name.as_str(), encode.unit.as_str()),
        ("org.x.Bench.encode:size=64", "ns/op")
    );
    assert!(encode.values.len() == 5 && encode.values.iter().all(|v| (v - 10.5).abs() < 1e-9));
    assert_eq!((rate.better, &rate.values[..]), (Better::Higher, &[5.0, 5.1, 4.9][..]));
    assert_eq!(sampled.summary.unwrap().mean, 7.0);
    // One fork of the rate is one process.
    assert!(file.one_process && file.config["jdkVersion"] == "21.0.2");

    let file = parse("f", PYPERF).unwrap();
    assert_eq!((file.format, file.series[0].name.as_str()), (Format::Pyperf, "sum"));
    assert_eq!((file.series[0].unit.as_str(), file.series[0].values.len()), ("s", 4));
    assert!((file.series[0].values[0] - 2.0).abs() < 1e-12 && !file.one_process);

    let file = parse("f", DOTNET).unwrap();
    assert_eq!(file.format, Format::BenchmarkDotNet);
    assert_eq!(file.series[0].values, [10.0, 12.0]);
    assert_eq!((file.series[1].values.len(), file.series[2].summary.unwrap().n), (2, Some(20)));
    assert_eq!(file.config["ProcessorName"], "Example");
}

#[test]
fn pytest_benchmark_is_read_with_its_rounds_or_without() {
    let file = parse("f", PYTEST).unwrap();
    assert_eq!((file.format, file.series.len()), (Format::PytestBenchmark, 2));
    assert_eq!(file.series[0].values, [1.0, 2.0, 2.5, 2.5]);
    assert_eq!(file.series[1].summary.unwrap().n, Some(9));
    assert!(file.one_process && file.config["python_version"] == "3.12.1");
}

#[test]
fn google_benchmarks_csv_is_read_like_its_json() {
    let file = parse("f", GOOGLE_CSV).unwrap();
    assert_eq!(file.format, Format::GoogleBenchmark);
    let find = |name: &str, unit: &str| {
        file.series.iter().find(|s| s.name == name && s.unit == unit).unwrap()
    };
    let real = find("BM_x/8, \"quoted\"", "real ns");
    assert_eq!((&real.values[..], real.cpu_share), (&[2000.0, 2200.0][..], Some(0.5)));
    assert_eq!(find("BM_x/8, \"quoted\"", "items_per_second").values, [5.0, 4.8]);
    // Alone it is a benchmark that is called so.
    assert_eq!(find("BM_mean", "real ns").values, [7.0]);
    assert!(
        matches!(&file.threats[..], [Threat::Failed { name: Some(name), what, .. }] if name == "BM_bad" && what.contains("too small"))
    );
    let heading = GOOGLE_CSV.lines().nth(2).unwrap();
    let row = |name: &str, real: &str| format!("\"BM_y_{name}\",3,{real},1,ns,,,,,\n");
    let only =
        format!("{heading}\n{}{}{}", row("mean", "5"), row("median", "5"), row("stddev", "1"));
    let summary = parse("f", &only).unwrap().series[0].summary.unwrap();
    assert_eq!((summary.mean, summary.sd, summary.n), (5.0, Some(1.0), Some(3)));
    let cut = format!("{heading}\n\"BM_x\",10,2.0\n");
    assert!(complaint(&cut).contains("line 2"), "{}", complaint(&cut));
    let word = format!("{heading}\nBM_x,10,fast,1,ns,,,,,\n");
    assert!(complaint(&word).contains("line 2: `fast` stands where the real_time"));
}

#[test]
fn broken_files_of_other_tools_have_their_sentences() {
    let nan = JMH.replace("[10.0,11.0]", "[\"NaN\",11.0]");
    for (text, want) in [
        (&JMH[..300], "not whole JMH JSON"),
        (&nan, "NaN is no amount"),
        (&PYTEST[..200], "not whole pytest-benchmark JSON"),
        (&PYTEST.replace("1.0,2.0,2.5", "-1.0,2.0,2.5"), "-1 is no amount"),
        (&PYPERF[..PYPERF.len() - 3], "not whole pyperf JSON"),
        (&DOTNET[..400], "not whole BenchmarkDotNet JSON"),
    ] {
        assert!(complaint(text).contains(want), "{want}: {}", complaint(text));
    }
}

#[test]
fn two_commands_of_one_file_are_compared() {
    let one = |name: &str, shift: f64| {
        let times: Vec<String> =
            (0..8).map(|i| format!("{}", 0.1 + shift + 1e-4 * f64::from(i % 4))).collect();
        format!(
            r#"{{"command":"{name}","mean":0.1,"stddev":0.01,"user":0.09,"system":0.005,"times":[{}]}}"#,
            times.join(",")
        )
    };
    let both = format!(r#"{{"results":[{},{}]}}"#, one("./a", 0.0), one("./b", 0.05));
    let [old, new] = halves(parse("f", &both).unwrap()).unwrap();
    let found = judge(&old, &new, 0.01, Adjustment::Holm).unwrap();
    assert_eq!((found.rows.len(), found.decision), (1, Decision::Slower));
    assert_eq!((old.path.as_str(), new.path.as_str()), ("f: ./a", "f: ./b"));
    assert!(!found.threats.contains(&Threat::SameContent));
    let said = halves(parse("f", HYPERFINE).unwrap()).unwrap_err().to_string();
    assert!(said.contains("holds 1 series"), "{said}");
    assert!(halves(parse("f", "1\n2\n").unwrap()).is_err());
}

#[test]
fn a_threat_takes_the_word_back_where_it_is_as_large() {
    // 5 % apart for any test, and their thirds are as far apart.
    let column = |shift: f64, step: f64| -> String {
        (0..30)
            .map(|i| {
                format!("{}\n", 100.0 + shift + step * f64::from(i / 10) + f64::from(i % 5) / 10.0)
            })
            .collect()
    };
    let found = judged(&column(0.0, 0.0), &column(5.0, 0.0)).unwrap();
    assert_eq!(found.decision, Decision::Slower);
    assert!(found.rows[0].explained_log < 0.01);
    let found = judged(&column(0.0, 5.0), &column(5.0, 5.0)).unwrap();
    let row = &found.rows[0];
    assert!(row.p_value.unwrap() < 0.01 && row.explained_log > 0.05, "{row:?}");
    assert_eq!(row.decision, Decision::Inconclusive);
    assert!(row.threats.iter().any(|t| matches!(t, Threat::Explained { .. })));
    // Waiting: half of the real time of google-benchmark's series.
    let google = |real: f64| {
        let rows: String = (0..9)
            .map(|i| format!("BM_x,1,{},1.0,us,,,,,\n", real + f64::from(i) / 100.0))
            .collect();
        format!("{}\n{rows}", GOOGLE_CSV.lines().nth(2).unwrap())
    };
    let found = judged(&google(2.0), &google(2.6)).unwrap();
    let real = found.rows.iter().find(|r| r.unit == "real ns").unwrap();
    assert_eq!(real.decision, Decision::Inconclusive);
    assert!(real.threats.iter().any(|t| matches!(t, Threat::MostlyWaiting { .. })), "{real:?}");
}

proptest::proptest! {
    #[test]
    fn mutated_files_are_read_or_refused(
        which in 0_usize..9, at in 0_usize..4000, byte in 0_u8..128, cut in 0_usize..4000,
    ) {
        let text = [
            OLD, HYPERFINE, GOOGLE, "12.5,msec,task-clock,1,100.00,,\n3,,cycles,1,100.00,,\n", JMH, PYTEST,
            PYPERF, DOTNET, GOOGLE_CSV,
        ][which];
        let mut bytes = text.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut.max(1));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(file) = parse("f", &text) {
            let _ = judge(&file, &file, 0.01, Adjustment::Holm);
        }
    }
}

#[test]
fn a_file_that_perf_stat_has_appended_to_begins_with_a_date() {
    let text = "# started on Thu Nov 26 09:00:00 2026\n\n\
        {\"counter-value\" : \"123.5\", \"unit\" : \"msec\", \"event\" : \"task-clock\", \"pcnt-running\" : 100.0}\n\
        # started on Thu Nov 26 09:00:01 2026\n\n\
        {\"counter-value\" : \"125.5\", \"unit\" : \"msec\", \"event\" : \"task-clock\", \"pcnt-running\" : 100.0}\n";
    let file = parse("f", text).unwrap();
    assert_eq!(file.format, Format::PerfStat);
    assert_eq!(file.series[0].values, [123.5, 125.5]);
}

#[test]
fn only_runs_that_took_turns_are_free_of_the_threat_of_order() {
    let two = |more: &str| {
        let one = |name| format!(r#"{{"command":"{name}","times":[1,1.1,1.2,1,1.1,1.2]}}"#);
        let text = format!(r#"{{"results":[{},{}]{more}}}"#, one("a"), one("b"));
        let [old, new] = halves(parse("f", &text).unwrap()).unwrap();
        let judged = judge(&old, &new, 0.01, Adjustment::Holm).unwrap();
        judged.threats.iter().any(|t| matches!(t, Threat::SequentialOrder { .. }))
    };
    assert!(two(""));
    assert!(!two(r#","interleaved":true"#));
}

#[test]
fn what_failed_is_told_and_has_no_word() {
    let hyperfine = |from: f64, code: u8| {
        let times: Vec<String> =
            (0..8).map(|i| format!("{}", from + 1e-4 * f64::from(i))).collect();
        format!(
            r#"{{"results":[{{"command":"x","times":[{}],"exit_codes":[0,0,0,{code},null,0,0,0]}}]}}"#,
            times.join(",")
        ).replace("null", if code == 0 { "0" } else { "null" })
    };
    let of = |old: &str, new: &str| {
        let found = judged(old, new).unwrap();
        let said: Vec<String> = found.threats.iter().map(ToString::to_string).collect();
        (
            found.decision,
            said.iter().any(|text| text.contains("failed:") && text.contains("takes another time")),
        )
    };
    let fine = hyperfine(0.1, 0);
    assert_eq!(of(&fine, &hyperfine(0.2, 0)), (Decision::Slower, false));
    assert_eq!(of(&fine, &hyperfine(0.2, 1)), (Decision::Inconclusive, true));
    assert_eq!(
        of(&fine, &hyperfine(0.1, 1)),
        (Decision::Inconclusive, true),
        "not the same either"
    );
    let go = |ns: u32, end: &str| -> String {
        (0..8).map(|i| format!("BenchmarkA 1000000 {} ns/op\n", ns * 10 + i)).collect::<String>()
            + end
    };
    assert_eq!(of(&go(50, "PASS\n"), &go(100, "PASS\n")), (Decision::Slower, false));
    for end in ["FAIL\n", "FAIL\tpkg\t0.1s\n", "--- FAIL: TestX\n"] {
        assert_eq!(of(&go(50, "PASS\n"), &go(100, end)), (Decision::Inconclusive, true), "{end}");
    }
    // A line that breaks off is named; the name alone stands before what a benchmark logs.
    let cut = |end: &str| parse("f", &go(50, end)).unwrap().threats;
    assert_eq!(cut("BenchmarkA  1000"), [Threat::CutOff { file: "f".into(), line: 9 }]);
    assert_eq!((cut("BenchmarkA\nsaid\n"), cut("BenchmarkA 1000 5 ns/op")), (vec![], vec![]));
    // What an entry of google-benchmark says, also where nothing else is there, and never as it is written.
    let error = r#"{"context":{},"benchmarks":[{"name":"A","error_occurred":true,"error_message":"bo\u001bom"}]}"#;
    let said = complaint(error);
    assert!(
        said.contains("holds no result")
            && said.contains("A: a run says")
            && !said.contains('\u{1b}'),
        "{said:?}"
    );
}

#[test]
fn a_busy_machine_and_short_looks_at_one_process_have_no_word_and_processes_have() {
    let pyperf = |s: f64, load: f64| {
        let runs: Vec<String> = (0..5)
            .map(|i| {
                format!(
                    r#"{{"metadata":{{"load_avg_1min":{load}}},"values":[{}]}}"#,
                    s + 0.001 * f64::from(i)
                )
            })
            .collect();
        format!(
            r#"{{"metadata":{{"name":"x","cpu_count":2}},"benchmarks":[{{"runs":[{}]}}]}}"#,
            runs.join(",")
        )
    };
    let decision = |old: &str, new: &str| judged(old, new).unwrap().decision;
    assert_eq!(decision(&pyperf(1.0, 1.5), &pyperf(4.0, 1.9)), Decision::Slower);
    assert_eq!(decision(&pyperf(1.0, 1.5), &pyperf(4.0, 2.5)), Decision::Inconclusive);
    let pytest = |s: f64, rounds: u32| {
        let data: Vec<String> = (0..rounds)
            .map(|i| format!("{}", s * (1.0 + f64::from(i * 7919 % 41) / 41e3)))
            .collect();
        format!(
            r#"{{"machine_info":{{}},"benchmarks":[{{"name":"t","stats":{{"data":[{}]}}}}]}}"#,
            data.join(",")
        )
    };
    // A look of 40 ms differs by 8 % from the next one; one of 4 s does not.
    assert_eq!(decision(&pytest(1e-3, 40), &pytest(1.08e-3, 40)), Decision::Inconclusive);
    assert_eq!(decision(&pytest(0.1, 40), &pytest(0.108, 40)), Decision::Slower);
    assert_eq!(decision(&pytest(1e-3, 40), &pytest(1.3e-3, 40)), Decision::Slower);
}

#[test]
fn a_rate_that_is_the_reciprocal_of_a_time_is_one_finding() {
    let go = |ns: f64| -> String {
        let line = |i: u32| {
            let t = ns * (1.0 + f64::from(i * 3 % 8) / 1e3);
            format!("BenchmarkA 1000000 {t:.1} ns/op {:.2} MB/s {} hits/s\n", 5e5 / t, 100 + i)
        };
        (0..8).map(line).collect()
    };
    let found = judged(&go(5000.0), &go(6000.0)).unwrap();
    let of = |unit: &str| found.rows.iter().find(|r| r.unit == unit).unwrap();
    assert_eq!(of("MB/s").reciprocal_of.as_deref(), Some("ns/op"));
    assert_eq!((of("MB/s").decision, of("ns/op").decision), (Decision::Slower, Decision::Slower));
    assert_eq!(of("hits/s").reciprocal_of, None);
    // It takes nothing from what chance leaves to the others.
    assert_eq!(of("MB/s").adjusted_p, of("ns/op").adjusted_p);
    assert!((of("ns/op").adjusted_p.unwrap() - 2.0 * of("ns/op").p_value.unwrap()).abs() < 1e-12);
}
