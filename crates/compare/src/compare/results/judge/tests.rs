//! Where the words about rows of two result files begin and end, and what stands in for samples.

use super::super::Summary;
use super::*;

fn series(values: &[f64]) -> Series {
    Series { values: values.to_vec(), ..Series::named("b", "ns") }
}

fn summed(mean: f64, sd: Option<f64>, n: Option<u64>) -> Series {
    Series { summary: Some(Summary { mean, sd, n }), ..series(&[]) }
}

/// A row of ten samples a side that differ by this (log), and that is what chance gives.
fn row_of(log: f64, reach: f64, adjusted_p: f64) -> Row {
    let centre = Centre { value: 1.0, low: 1.0, high: 1.0, n: 10 };
    let (low_log, high_log) = (log - reach, log + reach);
    Row {
        name: "b".into(),
        unit: "ns".into(),
        better: Better::Lower,
        old: centre,
        new: centre,
        median_ratio: Some(log.exp()),
        change: Some(Change { log_ratio: log, low_log, high_log, confidence: 0.95 }),
        p_value: Some(adjusted_p),
        adjusted_p: Some(adjusted_p),
        decision: Decision::Inconclusive,
        explained_log: 0.0,
        threats: Vec::new(),
        reciprocal_of: None,
    }
}

#[test]
fn a_row_is_worse_where_chance_is_below_five_per_cent_and_the_change_matters() {
    let word = |row: Row| decide(&row, 0.01);
    assert_eq!(word(row_of(0.02, 0.001, 0.049)), Decision::Slower);
    assert_eq!(word(row_of(-0.02, 0.001, 0.049)), Decision::Faster);
    assert_eq!(word(row_of(0.02, 0.001, 0.05)), Decision::Inconclusive);
    let rate = |log| Row { better: Better::Higher, ..row_of(log, 0.001, 0.01) };
    assert_eq!((word(rate(0.02)), word(rate(-0.02))), (Decision::Faster, Decision::Slower));
    // Exactly what matters counts; less does not, and is equivalent where the interval says so.
    let exact = Row { median_ratio: Some(2.0), ..row_of(0.7, 0.1, 0.01) };
    assert_eq!(decide(&exact, 2.0_f64.ln()), Decision::Slower);
    assert_eq!(word(row_of(0.009, 0.002, 0.01)), Decision::Inconclusive);
    assert_eq!(word(row_of(0.005, 0.002, 0.01)), Decision::Equivalent);
    let none = Row { median_ratio: None, ..row_of(0.02, 0.001, 0.01) };
    assert_eq!(word(none), Decision::Inconclusive);
    let zero = Row { median_ratio: Some(0.0), ..row_of(0.02, 0.001, 0.01) };
    assert_eq!(word(zero), Decision::Inconclusive);
    let untested = Row { adjusted_p: None, ..row_of(0.02, 0.001, 0.01) };
    assert_eq!(word(untested), Decision::Inconclusive);
}

#[test]
fn equivalent_takes_six_samples_a_side_and_an_interval_within_what_matters() {
    let word = |row: Row| decide(&row, 0.01);
    let equal = || row_of(0.0, 0.005, 0.5);
    assert_eq!(word(equal()), Decision::Equivalent);
    let of = |old: u64, new: u64| {
        let mut row = equal();
        (row.old.n, row.new.n) = (old, new);
        word(row)
    };
    assert_eq!(of(6, 6), Decision::Equivalent);
    assert_eq!([of(5, 6), of(6, 5)], [Decision::Inconclusive; 2]);
    let with = |confidence, low_log, high_log| {
        let change = Some(Change { log_ratio: 0.0, low_log, high_log, confidence });
        word(Row { change, ..equal() })
    };
    assert_eq!(with(0.945, -0.009, 0.009), Decision::Equivalent);
    assert_eq!(with(0.944, -0.009, 0.009), Decision::Inconclusive);
    assert_eq!(with(0.95, -0.01, 0.009), Decision::Inconclusive);
    assert_eq!(with(0.95, -0.009, 0.01), Decision::Inconclusive);
    assert_eq!(word(Row { change: None, ..equal() }), Decision::Inconclusive);
}

#[test]
fn how_it_was_measured_takes_back_words_that_it_explains() {
    let tempered = |log: f64, explained_log, decision| {
        let mut row = Row { explained_log, decision, ..row_of(log, 0.001, 0.01) };
        temper(&mut row);
        (row.decision, row.threats.len())
    };
    let (open, slower, faster) = (Decision::Inconclusive, Decision::Slower, Decision::Faster);
    assert_eq!(tempered(0.02, 0.03, slower), (open, 1));
    assert_eq!(tempered(-0.02, 0.03, faster), (open, 1));
    assert_eq!(tempered(0.04, 0.03, slower), (slower, 0));
    assert_eq!(tempered(-0.04, 0.03, faster), (faster, 0));
    assert_eq!(tempered(0.0, 0.0, slower), (open, 1), "as much as is explained");
    let equal = Decision::Equivalent;
    assert_eq!(tempered(0.001, 0.03, equal), (equal, 0));
    let mut none = Row { median_ratio: None, decision: slower, ..row_of(0.0, 0.1, 0.01) };
    temper(&mut none);
    assert_eq!(none.decision, slower);
}

#[test]
fn the_worst_word_is_that_of_all_rows() {
    let of = |words: &[Decision]| {
        let rows = words.iter().map(|w| Row { decision: *w, ..row_of(0.0, 0.1, 0.5) });
        worst(&rows.collect::<Vec<Row>>())
    };
    let (slower, faster) = (Decision::Slower, Decision::Faster);
    let (equal, open) = (Decision::Equivalent, Decision::Inconclusive);
    assert_eq!(of(&[equal, faster, open, slower]), slower);
    assert_eq!(of(&[equal, faster, open]), open);
    assert_eq!(of(&[equal, faster]), faster);
    assert_eq!((of(&[equal, equal]), of(&[])), (equal, equal));
}

#[test]
fn a_geometric_mean_adds_up_what_its_rows_leave_open() {
    let with = |unit: &str, log: f64, below, above, confidence| Row {
        unit: unit.into(),
        change: Some(Change {
            log_ratio: log,
            low_log: log - below,
            high_log: log + above,
            confidence,
        }),
        ..row_of(log, 0.0, 0.5)
    };
    let rows = [
        with("ns", 0.1, 0.3, 0.6, 0.96),
        with("B", 0.7, 0.1, 0.1, 0.95),
        with("ns", 0.3, 0.4, 0.8, 0.95),
        Row { median_ratio: None, ..with("ns", 9.0, 0.1, 0.1, 0.5) },
        Row { median_ratio: Some(0.0), ..with("ns", 9.0, 0.1, 0.1, 0.5) },
        Row { change: None, ..with("ns", 9.0, 0.1, 0.1, 0.5) },
    ];
    let means = geomeans(&rows);
    assert_eq!(means.len(), 1, "one row is no mean");
    let (mean, change) = (&means[0], means[0].change);
    assert_eq!((mean.unit.as_str(), mean.rows, change.confidence), ("ns", 2, 0.95));
    // The errors are at right angles: 3, 4, 5 and 6, 8, 10, of two rows.
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got} {want}");
    near(change.log_ratio, 0.2);
    near(change.low_log, 0.2 - 0.25);
    near(change.high_log, 0.2 + 0.5);
}

#[test]
fn a_mean_with_its_spread_and_number_stands_in_for_samples() {
    let test = |a: &Series, b: &Series| by_means(a, b);
    let old = summed(100.0, Some(5.0), Some(10));
    let (p, change) = test(&old, &summed(110.0, Some(6.0), Some(12)));
    let errors = [(0.05_f64.powi(2) / 10.0, 9.0), ((6.0_f64 / 110.0).powi(2) / 12.0, 11.0)];
    let want = from_parts(1.1_f64.ln(), errors).unwrap();
    let change = change.unwrap();
    assert!((p.unwrap() - want.p_value).abs() < 1e-9);
    assert!((change.log_ratio - want.difference).abs() < 1e-9);
    assert!((change.low_log - want.low).abs() < 1e-9 && (change.high_log - want.high).abs() < 1e-9);
    assert_eq!(change.confidence, 0.95);
    // Samples on one side: their own mean, spread and number.
    let (p, _) = test(&old, &series(&[100.0, 110.0, 120.0]));
    let errors = [(0.05_f64.powi(2) / 10.0, 9.0), ((10.0_f64 / 110.0).powi(2) / 3.0, 2.0)];
    assert!((p.unwrap() - from_parts(1.1_f64.ln(), errors).unwrap().p_value).abs() < 1e-9);
    // No spread, no number, one sample, or no time: no test.
    for other in [
        summed(110.0, None, Some(12)),
        summed(110.0, Some(6.0), None),
        summed(110.0, Some(6.0), Some(1)),
        summed(0.0, Some(6.0), Some(12)),
        series(&[110.0]),
        series(&[]),
    ] {
        assert_eq!(test(&old, &other), (None, None));
        assert_eq!(test(&other, &old), (None, None));
    }
    assert!(test(&old, &summed(110.0, Some(6.0), Some(2))).0.is_some());
    assert!(test(&old, &series(&[100.0, 110.0])).0.is_some());
}

#[test]
fn the_middle_of_a_series_is_its_median_or_what_the_file_kept() {
    let middle = |s: &Series| {
        let c = centre(s);
        (c.low, c.value, c.high, c.n)
    };
    assert_eq!(middle(&series(&[1.0, 2.0, 3.0, 4.0, 5.0])), (2.0, 3.0, 4.0, 5));
    assert_eq!(middle(&summed(10.0, Some(3.0), Some(9))), (7.0, 10.0, 13.0, 0));
    assert_eq!(middle(&summed(10.0, None, None)), (10.0, 10.0, 10.0, 0));
    assert_eq!(middle(&series(&[])), (0.0, 0.0, 0.0, 0));
    // In another unit everything but the number is another.
    let scaled =
        scaled(&Series { values: vec![1.0, 2.0], ..summed(10.0, Some(3.0), Some(9)) }, 4.0);
    assert_eq!(scaled.values, [4.0, 8.0]);
    assert_eq!(scaled.summary, Some(Summary { mean: 40.0, sd: Some(12.0), n: Some(9) }));
    assert_eq!(
        (label(&scaled), word("ns"), word("")),
        ("b (ns)".into(), "ns".into(), "no unit".into())
    );
    assert_eq!(label(&Series { unit: String::new(), ..scaled }), "b");
}

#[test]
fn samples_of_zero_have_a_test_and_no_ratio() {
    let (a, b) = (series(&[0.0, 1.0, 2.0, 3.0]), series(&[5.0, 6.0, 7.0, 8.0]));
    let (by_ranks, by_test) = (
        |a: &Series, b: &Series| super::by_ranks(&a.values, &b.values),
        |a: &Series, b: &Series| super::by_test(&a.values, &b.values),
    );
    assert_eq!((by_ranks(&a, &b), by_ranks(&b, &a)), (None, None));
    // The least of two in 70 ways to deal four of eight.
    assert!((by_test(&a, &b).unwrap() - 2.0 / 70.0).abs() < 1e-12);
    assert_eq!(by_test(&series(&[3.0; 4]), &series(&[3.0; 4])), Some(1.0));
    let change = by_ranks(&series(&[1.0; 6]), &series(&[2.0; 6])).unwrap();
    assert!((change.log_ratio - 2.0_f64.ln()).abs() < 1e-12 && change.confidence > 0.9);
}

/// A file of hyperfine with these commands, each with six runs around so many seconds.
fn commands(of: &[(&str, f64)]) -> ResultFile {
    let one = |(name, s): &(&str, f64)| {
        let times: Vec<String> = (0..6).map(|i| format!("{}", s + f64::from(i) / 1e4)).collect();
        format!(r#"{{"command":"{name}","times":[{}]}}"#, times.join(","))
    };
    let all: Vec<String> = of.iter().map(one).collect();
    super::super::parse("f", &format!(r#"{{"results":[{}]}}"#, all.join(","))).unwrap()
}

#[test]
fn repeated_names_belong_together_in_their_order() {
    let both = commands(&[("a", 1.0), ("b", 5.0), ("a", 2.0)]);
    let (pairs, only_in) =
        pair_up(&both, &commands(&[("a", 1.0), ("a", 2.0), ("b", 5.0)])).unwrap();
    assert!(pairs.iter().all(|(a, b)| a.values == b.values) && pairs.len() == 3);
    assert!(only_in.iter().all(Vec::is_empty));
    for (old, new) in
        [(&both, &commands(&[("a", 1.0)])), (&commands(&[("a", 2.0), ("b", 1.0)]), &both)]
    {
        let said = pair_up(old, new).unwrap_err().to_string();
        assert!(said.contains("`a (s)` is there") && said.contains("which belong"), "{said}");
    }
    // A name that one file does not have at all is only in the other.
    let (_, only_in) = pair_up(&both, &commands(&[("b", 5.0)])).unwrap();
    assert_eq!(only_in[0], ["a (s)", "a (s)"]);
}

#[test]
fn counts_of_nothing_are_the_same_and_from_none_to_some_is_worse() {
    let go = |allocs: &[&str]| -> ResultFile {
        let line = |n: &&str| format!("BenchmarkX 10 {n} allocs/op\n");
        super::super::parse("f", &allocs.iter().map(line).collect::<String>()).unwrap()
    };
    let of = |old: &[&str], new: &[&str]| {
        judge(&go(old), &go(new), 0.01, Adjustment::Holm).unwrap().decision
    };
    let (none, some) = (["0"; 8], ["3"; 8]);
    assert_eq!(of(&none, &none), Decision::Equivalent);
    assert_eq!((of(&none, &some), of(&some, &none)), (Decision::Slower, Decision::Faster));
    // One run that allocates is none of the rule, and three samples a side are too few for any word.
    let mut one = none;
    one[5] = "3";
    assert_eq!(
        (of(&none, &one), of(&one, &none)),
        (Decision::Inconclusive, Decision::Inconclusive)
    );
    assert_eq!(
        (of(&none[..3], &some[..3]), of(&none[..5], &none[..5])),
        (Decision::Inconclusive, Decision::Inconclusive)
    );
    // More of a rate is better; a time of zero is a timer that saw nothing.
    let with =
        |unit: &str, better, value| Series { unit: unit.into(), better, ..series(&[value; 8]) };
    let word =
        |unit, better| of_zeros(&with(unit, better, 0.0), &with(unit, better, 5.0), Some(0.01));
    assert_eq!(word("hits", Better::Higher), Some(Decision::Faster));
    assert_eq!(word("ns/op", Better::Lower), None);
}
