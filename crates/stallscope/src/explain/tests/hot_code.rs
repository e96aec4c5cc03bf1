//! The hot code of both builds: which instructions, what they had, and which stores blocked their loads.

use super::*;

fn story() -> Explanation {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.work = executes([1_000_000_000; 2]);
    scene.explain().unwrap()
}

#[test]
fn the_hot_loops_of_both_builds_stand_side_by_side() {
    let e = story();
    let [hot] = &e.hot_code[..] else { panic!("{:?}", e.hot_code) };
    assert_eq!(hot.place, "decode");
    let builds = hot.builds.each_ref().map(|build| build.as_ref().unwrap());
    for (build, length) in builds.iter().zip([0x25, 0x22]) {
        let start = fixture::CODE_START.0;
        assert_eq!((build.extent.start, build.extent.end), (start, start.offset(length)));
        assert_eq!(build.function, "decode");
        // The return behind the loop is not of it.
        assert!(build.instructions.iter().all(|insn| insn.text != "ret"));
    }
    let samples = builds.map(|build| build.instructions.iter().map(|it| it.samples).sum::<u64>());
    assert_eq!(samples, [800 * 8, 1800 * 8]);
    let [_, after] = builds;
    let load = after.instructions.iter().find(|it| it.svma == e.causes[0].finding.site.svma);
    assert_eq!(load.unwrap().executions, 4000);
}

#[test]
fn a_blocked_load_has_its_stores_and_the_summary_names_one() {
    let e = story();
    let site = &e.causes[0].finding.site;
    let stores: Vec<_> = e.blocking_stores(Arm::B, site).collect();
    let start = fixture::CODE_START.0;
    let at: Vec<_> = stores.iter().map(|it| (it.store.svma, it.times, it.percent)).collect();
    assert_eq!(at, [(start.offset(19), 4000, 100.0), (start.offset(24), 4000, 100.0)]);
    assert_eq!(e.blocking_stores(Arm::A, site).count(), 0);
    let summary = e.summary.unwrap();
    assert!(summary.contains(", behind what it stores at 0x401013;"), "{summary}");
}

#[test]
fn stores_that_hardly_ever_block_are_not_told() {
    for (times, told) in [(9, 0), (10, 1)] {
        let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
        let window = scene.bench.counts[1].as_mut().unwrap();
        window.blocked_by.truncate(1);
        window.blocked_by[0].times = times;
        let e = scene.explain().unwrap();
        let blocked = &e.hot_code[0].builds[1].as_ref().unwrap().blocked;
        assert_eq!(blocked.len(), told, "{blocked:?}");
    }
}

#[test]
fn without_windows_samples_are_told_alone() {
    let mut scene = Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]);
    scene.bench.windows_fail = true;
    let e = scene.explain().unwrap();
    let builds = &e.hot_code[0].builds;
    let builds = builds.each_ref().map(|build| build.as_ref().unwrap());
    assert!(builds.iter().all(|build| build.blocked.is_empty()));
    let mut insns = builds.iter().flat_map(|build| &build.instructions);
    assert!(insns.clone().any(|it| it.samples > 0) && insns.all(|it| it.executions == 0));
}

#[test]
fn a_function_without_a_hot_loop_is_shown_whole() {
    // All samples are on the return behind the loop.
    let mut scene = Scene::new([false, true], 1.0, [(0, 200), (0, 200)]);
    let start = fixture::CODE_START.0;
    for (arm, ret) in [0x25, 0x22].into_iter().enumerate() {
        scene.bench.hits[arm][0] = (offset(start.offset(ret)), [800, 1800][arm]);
    }
    let e = scene.explain().unwrap();
    let build = e.hot_code[0].builds[1].as_ref().unwrap();
    assert_eq!(build.extent.end, start.offset(0x23));
    assert_eq!(build.instructions.last().unwrap().text, "ret");
    assert!((build.extent.share_of_function.percent.value - 100.0).abs() < 1e-9);
}
