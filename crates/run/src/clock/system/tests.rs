//! Invented machines as folders of files.

use std::fs;

use super::*;
use crate::machine::invented;

struct Invented(tempfile::TempDir);

impl Invented {
    fn with(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(root)
    }

    fn look(&self, machine: &Machine, cpus: &[usize]) -> SystemReport {
        look(&SystemFiles::below(self.0.path()), machine, cpus)
    }

    fn one(&self, id: &str) -> Setting {
        let report = self.look(&metal(), &[0, 1]);
        report.settings.into_iter().find(|s| s.id == id).unwrap()
    }
}

fn metal() -> Machine {
    Machine::from_facts(&invented::raptor_lake())
}

const TUNED: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
    ("sys/devices/system/cpu/smt/active", "0\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("proc/loadavg", "0.10 0.20 0.30 1/99 12345\n"),
    ("proc/pressure/cpu", "some avg10=0.50 avg60=0.00 avg300=0.00 total=1\n"),
    ("proc/self/cgroup", "0::/user.slice/shell\n"),
    ("sys/fs/cgroup/user.slice/shell/cpu.max", "max 100000\n"),
    ("proc/sys/kernel/randomize_va_space", "2\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("proc/sys/kernel/perf_event_paranoid", "1\n"),
    ("proc/sys/kernel/yama/ptrace_scope", "1\n"),
];

#[test]
fn on_a_tuned_machine_everything_is_fine_and_nothing_is_advised() {
    let report = Invented::with(TUNED).look(&metal(), &[0, 1]);
    assert_eq!(report.settings.len(), 11);
    for setting in &report.settings {
        assert_eq!((setting.influence, &setting.advice), (Fine, &None), "{setting:?}");
    }
}

#[test]
fn what_cannot_be_seen_is_not_taken_for_good() {
    let report = Invented::with(&[]).look(&metal(), &[0, 1]);
    let unknown: Vec<&str> =
        report.settings.iter().filter(|s| s.influence == Unknown).map(|s| s.id.as_str()).collect();
    let want = [
        "governor",
        "turbo",
        "sibling-threads",
        "load",
        "quota",
        "random-addresses",
        "huge-pages",
        "counters",
    ];
    assert_eq!(unknown, want);
}

/// What is looked at, the files, what it is called, a part of what is found and of the advice.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Influence, &'a str, &'a str);

#[test]
fn each_disturbance_is_told_with_what_to_do() {
    let cases: [Case<'_>; 10] = [
        (
            "governor",
            &[("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")],
            Disturbs,
            "powersave",
            "cpupower",
        ),
        (
            "turbo",
            &[("sys/devices/system/cpu/intel_pstate/no_turbo", "0")],
            Disturbs,
            "on",
            "no_turbo",
        ),
        (
            "turbo",
            &[("sys/devices/system/cpu/cpufreq/boost", "1")],
            Disturbs,
            "on",
            "cpufreq/boost",
        ),
        (
            "sibling-threads",
            &[
                ("sys/devices/system/cpu/smt/active", "1"),
                ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1,9"),
            ],
            Disturbs,
            "1,9",
            "smt/control",
        ),
        (
            "load",
            &[("proc/loadavg", "1.5 1 1 2/9 9")],
            Disturbs,
            "1.50 processes on 2",
            "--metric cpu",
        ),
        (
            "load",
            &[
                ("proc/loadavg", "0.5 1 1 2/9 9"),
                ("proc/pressure/cpu", "some avg10=44.0 avg60=1 avg300=1 total=9"),
            ],
            Disturbs,
            "44 %",
            "quieter",
        ),
        (
            "random-addresses",
            &[("proc/sys/kernel/randomize_va_space", "0")],
            Disturbs,
            "is 0",
            "randomize_va_space=2",
        ),
        (
            "huge-pages",
            &[("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never")],
            Disturbs,
            "always",
            "madvise",
        ),
        (
            "counters",
            &[("proc/sys/kernel/perf_event_paranoid", "3")],
            Limits,
            "cannot be sampled",
            "paranoid=1",
        ),
        (
            "tracing",
            &[("proc/sys/kernel/yama/ptrace_scope", "3")],
            Limits,
            "cannot be followed",
            "ptrace_scope=1",
        ),
    ];
    for (id, files, influence, found, advice) in cases {
        let setting = Invented::with(files).one(id);
        assert_eq!(setting.influence, influence, "{setting:?}");
        assert!(setting.found.contains(found), "{setting:?}");
        assert!(setting.advice.as_ref().unwrap().contains(advice), "{setting:?}");
    }
}

#[test]
fn the_narrowest_quota_above_counts_in_both_versions() {
    let quota = |files: &[(&str, &str)]| Invented::with(files).one("quota");
    let v2 = quota(&[
        ("proc/self/cgroup", "0::/pod/container"),
        ("sys/fs/cgroup/pod/container/cpu.max", "max 100000"),
        ("sys/fs/cgroup/pod/cpu.max", "150000 100000"),
        (
            "sys/fs/cgroup/pod/cpu.stat",
            "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 7",
        ),
    ]);
    assert_eq!(v2.influence, Disturbs);
    assert!(v2.found.contains("1.50 processors") && v2.found.contains("stopped 4 times"), "{v2:?}");
    let v1 = quota(&[
        ("proc/self/cgroup", "3:cpu,cpuacct:/docker/x\n2:memory:/y"),
        ("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000"),
        ("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000"),
    ]);
    assert!(v1.found.contains("0.50 processors") && v1.found.contains("never stopped"), "{v1:?}");
    let none = quota(&[
        ("proc/self/cgroup", "1:cpu:/"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
    ]);
    assert_eq!(none.influence, Fine, "{none:?}");
    // Of another namespace, or nonsense: nothing outside the tree is opened.
    let out =
        quota(&[("proc/self/cgroup", "0::/../../../etc\nx\n::"), ("etc/cpu.max", "1 100000")]);
    assert_eq!(out.influence, Unknown, "{out:?}");
}

#[test]
fn processors_and_guests() {
    let files = Invented::with(&[("sys/devices/system/cpu/isolated", "3-5")]);
    let of = |machine: &Machine, cpus: &[usize], id: &str| {
        files.look(machine, cpus).settings.into_iter().find(|s| s.id == id).unwrap()
    };
    let isolated = of(&metal(), &[0, 1, 2, 3], "processors");
    assert_eq!(
        (isolated.influence, isolated.advice.unwrap().as_str()),
        (Fine, "choose one of them: --cpu 3")
    );
    let alone = Invented::with(&[]).look(&metal(), &[0]);
    assert!(alone.settings.iter().any(|s| s.id == "processors" && s.influence == Disturbs));
    let guest = Machine::from_facts(&invented::cascade_lake_guest());
    assert_eq!(of(&guest, &[0, 1], "virtualisation").influence, Disturbs);
    assert_eq!(of(&guest, &[0, 1], "sibling-threads").influence, Unknown);
    // What disturbs comes first.
    let order: Vec<Influence> =
        files.look(&guest, &[0]).settings.iter().map(|s| s.influence).collect();
    assert!(order.is_sorted());
}
