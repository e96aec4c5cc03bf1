//! What runs without a mechanism prove, and what they do not.

use super::*;
use crate::compare::layouts::Source;

#[test]
fn what_a_cure_brings_back_is_confirmed() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.patched_ns = Some([100_000_000, 200_000_000, 201_000_000, 103_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Confirmed)));
    assert_eq!(e.causes[0].finding.grade, Grade::Confirmed);
    let summary = e.summary.unwrap();
    assert!(summary.contains("takes back 97 %") && summary.contains("control -1 %"), "{summary}");
}

#[test]
fn what_the_time_that_is_left_does_not_allow_is_left_out_and_said() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.patched_ns = Some([100_000_000, 200_000_000, 201_000_000, 103_000_000]);
    scene.bench.left = TimeLeft { share: 0.4, ns: 1e9 };
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Counted)));
    assert_eq!(e.cure, None);
    let said = |open: &String| open.contains("the time given (--budget) leaves 1 s");
    assert!(e.unexplained.iter().any(said), "{:?}", e.unexplained);
    assert_eq!(e.heat.unwrap().map(|arm| arm.runs), [2, 2]);
}

#[test]
fn what_a_cure_does_not_bring_back_is_no_cause_whatever_was_counted() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.patched_ns = Some([100_000_000, 200_000_000, 201_000_000, 199_000_000]);
    let e = scene.explain().unwrap();
    assert!(e.causes.is_empty() && e.grade.is_none(), "{:?}", e.causes);
    assert_eq!(e.conclusion, Conclusion::NoMechanism);
    let open = e.unexplained.join("\n");
    assert!(open.contains("blocked loads are not the cause: without them 1.0 %"), "{open}");
}

#[test]
fn what_was_counted_is_withdrawn_where_the_model_contradicts_the_clock_and_nothing_proves_it() {
    let explained = |patched_ns| {
        let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
        for (arm, cycles) in [10_000, 200_000].into_iter().enumerate() {
            for (_, account) in &mut scene.bench.counts[arm].as_mut().unwrap().program {
                account.cycles = cycles;
                account.cycles_without = [cycles; Mechanism::ALL.len()];
            }
        }
        scene.bench.patched_ns = patched_ns;
        scene.explain().unwrap()
    };
    let e = explained(None);
    assert!(!e.ledgers[0].agrees && e.causes.is_empty() && e.grade.is_none(), "{:?}", e.ledgers);
    let open = e.unexplained.join("\n");
    assert!(open.contains("blocked in 4000 of 4000 executions and is not named"), "{open}");
    // Hidden by what the detours cost: that proves nothing either.
    let e = explained(Some([100_000_000, 200_000_000, 260_000_000, 190_000_000]));
    assert!(e.causes.is_empty() && e.cure.unwrap().verdict == CureVerdict::Open);
    let e = explained(Some([100_000_000, 200_000_000, 201_000_000, 103_000_000]));
    assert_eq!((e.causes.len(), e.grade), (1, Some(Grade::Confirmed)));
}

#[test]
fn what_the_model_says_is_less_than_half_of_the_difference_is_no_cause() {
    let explained = |without_blocked: u64, patched_ns| {
        let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
        scene.bench.patched_ns = patched_ns;
        for (arm, cycles) in [100_000, 200_000].into_iter().enumerate() {
            for (_, account) in &mut scene.bench.counts[arm].as_mut().unwrap().program {
                account.cycles = cycles;
                account.cycles_without = [cycles; Mechanism::ALL.len()];
                if arm == 1 {
                    account.cycles_without[Mechanism::BlockedLoads as usize] = without_blocked;
                }
            }
        }
        scene.explain().unwrap()
    };
    let e = explained(110_000, None);
    assert!(e.ledgers[0].agrees && e.causes.len() == 1, "{:?}", e.ledgers);
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Counted)));
    let e = explained(155_000, None);
    assert!(e.ledgers[0].agrees && e.causes.is_empty() && e.grade.is_none(), "{:?}", e.ledgers);
    let open = e.unexplained.join("\n");
    assert!(open.contains("predicts 35 % less of the difference"), "{open}");
    // A run that takes back as much as the model foretold proves that it is that much, from two fifths of the difference on.
    let cured = |ms: u64| Some([100_000_000, 200_000_000, 200_000_000, ms * 1_000_000]);
    for (without_blocked, ms, is_proved) in
        [(145_000, 155, true), (145_000, 159, true), (145_000, 161, false), (175_000, 155, false)]
    {
        let e = explained(without_blocked, cured(ms));
        let grade = is_proved.then_some(Grade::Confirmed);
        assert_eq!(e.grade, grade, "{without_blocked} {ms}: {:?} {:?}", e.cure, e.ledgers);
    }
}

#[test]
fn windows_that_cannot_be_followed_are_said() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.windows_fail = true;
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::NoMechanism, None));
    let open = e.unexplained.join("\n");
    assert!(
        open.contains("no windows were followed: ") && open.contains("a signal came"),
        "{open}"
    );
}

/// The same decoder in both builds, in AFTER 48 bytes further into its page.
fn moved() -> Scene {
    let mut scene = Scene::new([false, false], 1.0, [(800, 200), (1800, 200)]);
    let decoder = fixture::ring_loop(false);
    let functions: [(&str, &[u8]); 3] =
        [("pad", &[0xc3; 48]), ("decode", &decoder), ("helper", HELPER)];
    std::fs::write(scene.folder.path().join("after"), fixture::program(&functions)).unwrap();
    let starts = fixture::starts(&functions);
    scene.bench.hits[1] = vec![(offset(starts[1].offset(12)), 1800), (offset(starts[2]), 200)];
    scene
}

#[test]
fn the_same_code_elsewhere_is_the_cause_only_where_placing_it_as_before_brings_the_time_back() {
    let mut scene = moved();
    scene.bench.patched_ns = Some([100_000_000, 999_000_000, 201_000_000, 103_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Confirmed)));
    let cure = e.cure.unwrap();
    assert_eq!((cure.mechanism, cure.placed.len()), (Removed::CodePlacement, 1));
    let summary = e.summary.unwrap();
    assert!(summary.starts_with("code placement: decode, the same code at "), "{summary}");
    assert!(summary.contains("as in BEFORE takes back 97 %"), "{summary}");

    scene = moved();
    scene.bench.patched_ns = Some([100_000_000, 999_000_000, 201_000_000, 199_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::NoMechanism, None));
    assert_eq!(e.cure.unwrap().verdict, CureVerdict::Refuted);

    // With copies the builds hardly differ: that tells nothing of the builds.
    scene = moved();
    scene.bench.patched_ns = Some([100_000_000, 999_000_000, 108_000_000, 100_000_000]);
    let e = scene.explain().unwrap();
    assert_eq!((e.conclusion, e.grade), (Conclusion::NoMechanism, None));
    let open = e.unexplained.join("\n");
    assert!(e.cure.is_none() && open.contains("copies the builds differ by 8.0 ms"), "{open}");
}

/// Another decoder in AFTER, with a no-op in it, that executes as much and takes longer.
fn shifted() -> Scene {
    let mut scene = moved();
    let decoder = [&[0x90][..], &fixture::ring_loop(false)].concat();
    let functions: [(&str, &[u8]); 2] = [("decode", &decoder), ("helper", HELPER)];
    std::fs::write(scene.folder.path().join("after"), fixture::program(&functions)).unwrap();
    let starts = fixture::starts(&functions);
    scene.bench.hits[1] = vec![(offset(starts[0].offset(13)), 1800), (offset(starts[1]), 200)];
    scene
}

#[test]
fn alignment_is_the_cause_only_where_the_slow_build_gains_by_it_and_the_fast_one_does_not() {
    let explained = |patched_ns| {
        let mut scene = shifted();
        scene.bench.patched_ns = Some(patched_ns);
        scene.explain().unwrap()
    };
    let e = explained([100_000_000, 999_000_000, 201_000_000, 103_000_000]);
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Confirmed)));
    let cure = e.cure.unwrap();
    assert_eq!((cure.mechanism, cure.placed.len()), (Removed::CodeAlignment, 1));
    let summary = e.summary.unwrap();
    assert!(summary.starts_with("code alignment: decode at "), "{summary}");
    assert!(
        summary.contains("16 bytes further on, the same instructions take back 97 %"),
        "{summary}"
    );

    // Best by less than a quarter of the difference: not worth a proof.
    let e = explained([100_000_000, 999_000_000, 201_000_000, 190_000_000]);
    assert_eq!((e.conclusion, e.grade), (Conclusion::NoMechanism, None));
    let open = e.unexplained.join("\n");
    assert!(e.cure.is_none() && open.contains("at no other place within a line"), "{open}");
    let e = explained([100_000_000, 999_000_000, 201_000_000, 160_000_000]);
    assert_eq!(
        (e.conclusion, e.cure.unwrap().verdict),
        (Conclusion::NoMechanism, CureVerdict::Partly)
    );
    // Beside as many instructions that take longer, it is told as a part of that.
    let mut scene = shifted();
    scene.bench.work = executes([1_000_000_000, 1_000_000_000]);
    scene.bench.patched_ns = Some([100_000_000, 999_000_000, 201_000_000, 160_000_000]);
    let summary = scene.explain().unwrap().summary.unwrap();
    assert!(summary.starts_with("slower work: ") && !summary.contains("no mechanism"), "{summary}");
    assert!(summary.contains("; of that, code alignment: decode at "), "{summary}");
    assert!(summary.contains("take back 41 % of the difference"), "{summary}");
    // With copies the builds hardly differ.
    let e = explained([100_000_000, 999_000_000, 108_000_000, 100_000_000]);
    assert!(
        e.cure.is_none()
            && e.unexplained.join("\n").contains("alignment is the reason was not tried")
    );
}

#[test]
fn denormal_numbers_are_the_cause_where_zero_for_them_brings_the_time_back_in_the_slow_build() {
    let explained = |flushed_ns| {
        // The same code in both: the difference is in what it computes with.
        let mut scene = Scene::new([false, false], 1.0, [(800, 200), (1800, 200)]);
        let program = scene.folder.path().join("after").canonicalize().unwrap();
        let offset = offset(fixture::CODE_START.0);
        scene.bench.denormals = vec![DenormalSite { file: program, offset, times: 64 }];
        scene.bench.patched_ns = Some([100_000_000, 200_000_000, 0, 0]);
        scene.bench.flushed_ns = Some(flushed_ns);
        scene.explain().unwrap()
    };
    let e = explained([99_000_000, 101_000_000]);
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Confirmed)));
    let cure = e.cure.unwrap();
    assert_eq!((cure.mechanism, cure.library), (Removed::DenormalNumbers, None));
    let summary = e.summary.unwrap();
    assert!(summary.starts_with("denormal numbers in decode at "), "{summary}");
    assert!(summary.contains("takes back 98 %") && summary.contains("control 1 %"), "{summary}");
    // Without the time to try it, where they were met is told all the same.
    let mut scene = Scene::new([false, false], 1.0, [(800, 200), (1800, 200)]);
    let file = scene.folder.path().join("after").canonicalize().unwrap();
    let offset = offset(fixture::CODE_START.0);
    scene.bench.denormals = vec![DenormalSite { file, offset, times: 64 }];
    scene.bench.left = TimeLeft { share: 1.0, ns: 1e6 };
    let open = scene.explain().unwrap().unexplained.join("\n");
    assert!(open.contains("leaves 0 s for it; it meets them in decode at 0x"), "{open}");
    // What is gained in both is not what they differ by; and what is gained in none is none.
    for flushed_ns in [[50_000_000, 150_000_000], [100_000_000, 199_000_000]] {
        let e = explained(flushed_ns);
        assert_eq!((e.conclusion, e.grade), (Conclusion::NoMechanism, None), "{flushed_ns:?}");
        assert_eq!(e.cure.unwrap().verdict, CureVerdict::Refuted);
    }
}

#[test]
fn what_threads_share_is_the_cause_where_one_processor_brings_the_time_back() {
    let explained = |threads, one_ns| {
        let mut scene = Scene::new([false, false], 1.0, [(800, 200), (1800, 200)]);
        scene.bench.machine.threads = threads;
        scene.bench.patched_ns = Some([100_000_000, 200_000_000, 0, 0]);
        scene.bench.flushed_ns = Some(one_ns);
        scene.explain().unwrap()
    };
    let e = explained(Some(2), [98_000_000, 101_000_000]);
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Confirmed)));
    let summary = e.summary.unwrap();
    assert!(summary.starts_with("lines or locks that threads"), "{summary}");
    assert!(summary.contains("most of all in decode (false sharing"), "{summary}");
    let e = explained(Some(2), [98_000_000, 199_000_000]);
    assert_eq!(
        (e.conclusion, e.cure.unwrap().verdict),
        (Conclusion::NoMechanism, CureVerdict::Refuted)
    );
    // One thread has nobody to share with.
    assert!(explained(Some(1), [98_000_000, 101_000_000]).cure.is_none());
    assert!(explained(None, [98_000_000, 101_000_000]).cure.is_none());
}

#[test]
fn huge_pages_are_the_cause_where_the_fast_build_alone_loses_them() {
    let explained = |page_faults, small_ns| {
        let mut scene = Scene::new([false, false], 1.0, [(800, 200), (1800, 200)]);
        scene.bench.machine.page_faults = page_faults;
        scene.bench.patched_ns = Some([100_000_000, 200_000_000, 0, 0]);
        scene.bench.flushed_ns = Some(small_ns);
        scene.explain().unwrap()
    };
    let e = explained([100, 611], [198_000_000, 201_000_000]);
    assert_eq!((e.conclusion, e.grade), (Conclusion::Mechanism, Some(Grade::Confirmed)));
    let summary = e.summary.unwrap();
    assert!(summary.starts_with("small pages: BEFORE gets huge pages where AFTER"), "{summary}");
    let e = explained([100, 611], [198_000_000, 300_000_000]);
    assert_eq!(
        (e.conclusion, e.cure.unwrap().verdict),
        (Conclusion::NoMechanism, CureVerdict::Open)
    );
    // Less than one huge page saves, or saved in the slow build.
    assert!(explained([100, 610], [198_000_000, 201_000_000]).cure.is_none());
    assert!(explained([611, 100], [198_000_000, 201_000_000]).cure.is_none());
}

#[test]
fn a_cure_that_cannot_be_tried_is_said_and_the_count_stands() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    let e = scene.explain().unwrap();
    assert_eq!(e.grade, Some(Grade::Counted));
    let open = e.unexplained.join("\n");
    assert!(open.contains("was not measured: cannot trace: ptrace is forbidden"), "{open}");
}

#[test]
fn random_places_tell_the_code_from_where_it_lies() {
    let explained = |placements: u32, left: TimeLeft| {
        let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
        scene.bench.patched_ns = Some([100_000_000, 200_000_000, 201_000_000, 199_000_000]);
        (scene.bench.placements, scene.bench.left) = (placements, left);
        scene.explain().unwrap()
    };
    let e = explained(4, TimeLeft::ANY);
    let places = e.placements.unwrap();
    assert_eq!((places.functions, places.rounds), (vec!["decode".to_owned()], 5));
    assert_eq!((places.split.placed(), places.split.source), ([4, 4], Source::Code));
    let code = places.split.code.unwrap().log_ratio;
    assert!((code - 1.99_f64.ln()).abs() < 0.01, "{code}");
    assert_eq!(explained(0, TimeLeft::ANY).placements, None);
    let e = explained(16, TimeLeft { share: 0.9, ns: 1e9 });
    assert_eq!(e.placements, None);
    let said =
        |open: &String| open.starts_with("whether it is the code or its place was not tried");
    assert!(e.unexplained.iter().any(said), "{:?}", e.unexplained);
}
