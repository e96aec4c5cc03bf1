//! Golden screens of invented machines; `INSTA_UPDATE=always cargo test` accepts new ones.

use stallscope::clock::{Environment, Level, Pmu, PmuVerdict, Reason};
use stallscope::machine::{CounterLeaf, Features, Microarchitecture, Origin, Vendor};
use stallscope::model::{Measurement, Unit};

use super::*;

fn measured(value: f64, unit: Unit, low: f64, high: f64, n: usize, of: &str) -> Measurement {
    Measurement { value, unit, low, high, n, how: format!("median and 5-95 % of {of}") }
}

fn cache(level: u8, kind: CacheKind, ways: u32, sets: u32) -> Cache {
    Cache {
        level,
        kind,
        size_bytes: u64::from(ways * sets * 64),
        ways,
        sets,
        line_bytes: 64,
        origin: Origin::Cpuid,
    }
}

fn desktop() -> Machine {
    Machine {
        vendor: Vendor::Intel,
        brand: "13th Gen Intel(R) Core(TM) i9-13900K".into(),
        family: 6,
        model: 183,
        stepping: 1,
        microcode: Some("0x12b".into()),
        microarchitecture: Microarchitecture::GoldenCove,
        codename: Some("Raptor Lake-S".into()),
        claimed: None,
        jcc_erratum: false,
        hybrid: true,
        caches: vec![
            cache(1, CacheKind::Instruction, 8, 64),
            cache(1, CacheKind::Data, 12, 64),
            cache(2, CacheKind::Unified, 16, 2048),
        ],
        hypervisor: None,
        logical_cpus: 32,
        threads_per_core: 2,
        features: Features { invariant_tsc: true, ..Features::default() },
        counters: CounterLeaf { intel_version: 5, ..CounterLeaf::default() },
        kernel_release: "6.8.0-generic".into(),
    }
}

fn quiet_bare_metal() -> ClockReport {
    let ratio =
        measured(1.9333, Unit::CyclesPerTick, 1.9331, 1.9335, 24_000, "samples at the main level");
    ClockReport {
        machine: desktop(),
        cpu: 6,
        cpus_allowed: 32,
        tick_rate: Some(measured(2995.2, Unit::Megahertz, 2995.199, 2995.201, 8, "windows")),
        tick_spread_ppm: 0.6,
        tick_step_ticks: 2,
        read_overhead: Some(measured(46.0, Unit::Ticks, 44.0, 48.0, 500, "back-to-back reads")),
        core_rate: Reading::Measured(Measurement {
            value: 5790.6,
            unit: Unit::Megahertz,
            low: 5790.0,
            high: 5791.2,
            n: 24_000,
            how: "cycles per tick times tick rate".into(),
        }),
        cycles_per_tick: Reading::Measured(ratio),
        levels: vec![Level { cycles_per_tick: 1.9333, share_percent: 99.9 }],
        wander_percent: 0.02,
        drift_percent: -0.01,
        adds_per_multiply: Some(measured(3.0, Unit::Ratio, 2.999, 3.001, 32, "slopes")),
        throughput: Some(measured(11.2, Unit::Cycles, 11.1, 11.3, 24_500, "steady samples")),
        samples: 24_600,
        clean_percent: 99.4,
        interrupted_percent: 0.6,
        shared_percent: 0.0,
        pmu: Pmu {
            verdict: PmuVerdict::Usable,
            hardware: Capability::Present,
            sampling: Capability::Present,
        },
        environment: Environment {
            grade: EnvironmentGrade::Quiet,
            reasons: vec![reason(EnvironmentGrade::Quiet, "99.4 % of 24600 samples are clean")],
        },
        advice: Vec::new(),
    }
}

fn reason(allows: EnvironmentGrade, text: &str) -> Reason {
    Reason { allows, text: text.into() }
}

fn noisy_guest() -> ClockReport {
    let inconclusive = Reading::Inconclusive { clean_percent: 12.5, n: 4_000 };
    ClockReport {
        machine: Machine {
            brand: String::new(),
            microcode: None,
            microarchitecture: Microarchitecture::Unknown,
            codename: None,
            claimed: None,
            hypervisor: Some("KVM".into()),
            threads_per_core: 1,
            logical_cpus: 2,
            caches: Vec::new(),
            features: Features::default(),
            ..desktop()
        },
        cpu: 1,
        cpus_allowed: 2,
        cycles_per_tick: inconclusive.clone(),
        core_rate: inconclusive,
        levels: Vec::new(),
        adds_per_multiply: None,
        throughput: None,
        samples: 4_000,
        clean_percent: 12.5,
        interrupted_percent: 80.0,
        shared_percent: 7.5,
        pmu: Pmu {
            verdict: PmuVerdict::HiddenByHypervisor { hypervisor: "KVM".into() },
            hardware: Capability::absent("the hypervisor (KVM) passes no counters to this guest"),
            sampling: Capability::Present,
        },
        environment: Environment {
            grade: EnvironmentGrade::Hostile,
            reasons: vec![
                reason(EnvironmentGrade::Hostile, "12.5 % of 4000 samples are clean"),
                reason(
                    EnvironmentGrade::Usable,
                    "guest shows 1 thread per core; a neighbour may still share it",
                ),
            ],
        },
        advice: vec!["Interrupted too often: stop other work on this machine.".into()],
        ..quiet_bare_metal()
    }
}

/// The page as it looks where there are no colours.
fn plain(report: &ClockReport) -> String {
    anstream::adapter::strip_str(&screen(report)).to_string()
}

#[test]
fn golden_quiet_bare_metal() {
    insta::assert_snapshot!(plain(&quiet_bare_metal()));
}

#[test]
fn golden_noisy_guest() {
    insta::assert_snapshot!(plain(&noisy_guest()));
}

#[test]
fn no_line_is_wider_than_the_page() {
    for report in [quiet_bare_metal(), noisy_guest()] {
        for line in plain(&report).lines() {
            assert!(line.chars().count() <= width(), "{line}");
        }
    }
}

#[test]
fn wrapping_keeps_a_number_and_its_sign_together() {
    assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
    assert_eq!(wrap("aaa 5 %", 5), ["aaa", "5 %"]);
    assert_eq!(wrap("", 5), [""]);
    assert_eq!(wrap("longerthanthat x", 5), ["longerthanthat", "x"]);
}
