//! What this system is set to, and which of it disturbs measurements.
//!
//! *Effect.* A governor that follows the load and turbo give a run the clock that the last seconds, the
//! temperature and the other cores allow; a busy sibling thread takes half of a core; a quota stops a run in the
//! middle of it for up to a period; a single processor is shared with whatever else wakes up. All of them are
//! settings that the kernel shows in files, before anything is measured: how the machine really behaves is for
//! [`super::survey()`], which finds what no file tells.
//!
//! *Literature.* V. Stinner, pyperf's `system` command; D. Bakhvalov, "Performance Analysis and Tuning on Modern
//! CPUs", ch. 2; Linux documentation: admin-guide/pm/cpufreq, admin-guide/cgroup-v2, scheduler/sched-bwc,
//! admin-guide/sysctl/kernel.
//!
//! Nothing is changed here: advice is a command for the user to judge.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::environment::load_of;
use super::parse_processor_list;
use crate::foreign;
use crate::machine::Machine;

/// The kernel's files hold a line or two.
const MOST_BYTES: u64 = 1 << 16;
/// Processors at work, of those there are, above which runs wait for each other.
const BUSY_SHARE: f64 = 0.5;
/// Part of the last ten seconds in which something waited for a processor, per cent.
const WAITING_PERCENT: f64 = 10.0;
/// Where processors are.
const CPUS: &str = "sys/devices/system/cpu";

/// What a setting does to measurements.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Influence {
    /// It makes runs differ that are alike.
    Disturbs,
    /// It takes something away that stallscope can use.
    Limits,
    /// The kernel does not show it, which is said and not taken for good.
    Unknown,
    /// As it should be.
    Fine,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// What it is, such as `governor`.
    pub id: String,
    /// What was found.
    pub found: String,
    /// What it does to measurements.
    pub influence: Influence,
    /// What to do about it, as a sentence; absent where there is nothing to do.
    pub advice: Option<String>,
}

/// All settings that were looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SystemReport {
    /// What disturbs first.
    pub settings: Vec<Setting>,
}

/// The kernel's files below a root, which tests make themselves.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    root: PathBuf,
}

impl SystemFiles {
    /// Those of this machine.
    #[must_use]
    pub fn here() -> Self {
        Self::below("/")
    }

    /// Those below another root.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// What stands in a file, without blanks around it; `None` when it is not there.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = foreign::read_text(&self.root.join(path), MOST_BYTES).ok()?;
        Some(foreign::plain_lines(text.trim()).into_owned())
    }

    fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Whether `perf_event_paranoid` does not bind us: CAP_PERFMON, CAP_SYS_ADMIN.
    fn may_look(&self) -> bool {
        const RIGHTS: u64 = 1 << 38 | 1 << 21;
        let status = self.text("proc/self/status").unwrap_or_default();
        let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        held.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
            .is_some_and(|held| held & RIGHTS != 0)
    }
}

/// Looks at the settings that matter to runs on `cpus`.
#[must_use]
pub fn look(files: &SystemFiles, machine: &Machine, cpus: &[usize]) -> SystemReport {
    let mut settings = vec![
        governor(files, cpus),
        turbo(files),
        siblings(files, machine, cpus),
        load(files, cpus),
        quota(files),
        processors(files, cpus),
        virtualisation(machine),
        addresses(files),
        huge_pages(files),
        counters(files),
        tracing(files),
    ];
    // Stable: settings of one kind stay in the order of what they do.
    settings.sort_by_key(|s| s.influence);
    SystemReport { settings }
}

fn setting(id: &str, influence: Influence, found: String, advice: Option<&str>) -> Setting {
    Setting { id: id.into(), found, influence, advice: advice.map(str::to_owned) }
}

use Influence::{Disturbs, Fine, Limits, Unknown};

fn governor(files: &SystemFiles, cpus: &[usize]) -> Setting {
    let of = |name: &str| -> Vec<String> {
        let path = |cpu| format!("{CPUS}/cpu{cpu}/cpufreq/{name}");
        let mut found: Vec<String> = cpus.iter().filter_map(|c| files.text(path(c))).collect();
        found.sort();
        found.dedup();
        found
    };
    let (governors, drivers) = (of("scaling_governor"), of("scaling_driver"));
    if governors.is_empty() {
        let found = "the kernel shows none: whoever runs this machine chooses the clock".to_owned();
        return setting("governor", Unknown, found, Some("`stallscope probe clock` measures it"));
    }
    let driver =
        if drivers.is_empty() { String::new() } else { format!(" ({})", drivers.join(", ")) };
    let found = governors.join(", ") + &driver;
    if governors == ["performance"] {
        return setting("governor", Fine, found, None);
    }
    let advice =
        "`sudo cpupower frequency-set -g performance`: the clock no longer follows the load";
    setting("governor", Disturbs, found, Some(advice))
}

fn turbo(files: &SystemFiles) -> Setting {
    let intel = files.number(format!("{CPUS}/intel_pstate/no_turbo")).map(|off| off == 0);
    let other = files.number(format!("{CPUS}/cpufreq/boost")).map(|on| on != 0);
    let advice = match (intel, other) {
        (Some(true), _) => {
            "`echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo`: the clock no longer depends \
             on heat and on the other cores"
        }
        (None, Some(true)) => {
            "`echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost`: the clock no longer depends on heat \
             and on the other cores"
        }
        (None, None) => {
            return setting("turbo", Unknown, "the kernel does not show it".into(), None);
        }
        _ => return setting("turbo", Fine, "off".into(), None),
    };
    setting("turbo", Disturbs, "on".into(), Some(advice))
}

fn siblings(files: &SystemFiles, machine: &Machine, cpus: &[usize]) -> Setting {
    let active = files.number(format!("{CPUS}/smt/active"));
    let last = cpus.last().copied().unwrap_or_default();
    let list = files.text(format!("{CPUS}/cpu{last}/topology/thread_siblings_list"));
    if machine.smt_is_doubtful() {
        let found = "this guest shows one thread a core, which need not be true".to_owned();
        let advice =
            "`compare --repeat-disturbed` sees a neighbour on the core and repeats the run";
        return setting("sibling-threads", Unknown, found, Some(advice));
    }
    match (active, list) {
        (Some(0), _) => setting("sibling-threads", Fine, "off".into(), None),
        (_, Some(list)) if list.contains(['-', ',']) => {
            let advice = "keep them idle (`taskset` for what else runs), or switch them off: `echo off | sudo \
                          tee /sys/devices/system/cpu/smt/control`";
            let found = format!("processors {list} share the core that runs stay on");
            setting("sibling-threads", Disturbs, found, Some(advice))
        }
        (_, Some(list)) => {
            setting("sibling-threads", Fine, format!("none of processor {list}"), None)
        }
        _ => setting("sibling-threads", Unknown, "the kernel does not show them".into(), None),
    }
}

fn load(files: &SystemFiles, cpus: &[usize]) -> Setting {
    let Some(load) = files.text("proc/loadavg").and_then(|text| load_of(&text)) else {
        return setting("load", Unknown, "the kernel does not show it".into(), None);
    };
    let waiting = files.text("proc/pressure/cpu").and_then(|text| some_avg10(&text));
    let pressure = waiting.map_or(String::new(), |percent| {
        format!("; something waited for a processor in {percent:.0} % of the last ten seconds")
    });
    // The load is that of all processors, not only of those that we may use.
    let online = files.text("sys/devices/system/cpu/online").unwrap_or_default();
    let processors = parse_processor_list(&online).len().max(cpus.len());
    let found = format!("{load:.2} processes on {processors} processors{pressure}");
    let is_busy = load > BUSY_SHARE * processors as f64;
    if is_busy || waiting.is_some_and(|percent| percent > WAITING_PERCENT) {
        let advice = "end what else runs, or choose a quieter moment; `compare --for 60s` and processor time \
                      (`--metric cpu`) help where that cannot be";
        return setting("load", Disturbs, found, Some(advice));
    }
    setting("load", Fine, found, None)
}

/// The first number of "some avg10=1.53 avg60=0.87 …".
fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// The narrowest limit of this process' group and of all above it.
fn quota(files: &SystemFiles) -> Setting {
    let groups = files.text("proc/self/cgroup").unwrap_or_default();
    let folders = group_folders(&groups);
    let limits = folders.iter().filter_map(|folder| limit_of(files, folder));
    let narrowest = limits.fold(None, |least: Option<f64>, limit| {
        Some(least.map_or(limit, |least| least.min(limit)))
    });
    let throttled: i64 =
        folders.iter().filter_map(|folder| throttled(files, folder)).max().unwrap_or(0);
    let known = folders.iter().any(|folder| {
        ["cpu.max", "cpu.cfs_quota_us", "cpu.stat"]
            .iter()
            .any(|f| files.text(folder.join(f)).is_some())
    });
    match narrowest {
        None if !known => {
            setting("quota", Unknown, "the kernel shows no limit on processor time".into(), None)
        }
        None => setting("quota", Fine, "no limit on processor time".into(), None),
        Some(processors) => {
            let times = match throttled {
                0 => "never stopped so far".to_owned(),
                n => format!("stopped {n} times so far"),
            };
            let found = format!("at most {processors:.2} processors' time; {times}");
            let advice = "a run that reaches it is stopped for the rest of the period (100 ms): lift the limit \
                          (`docker run` without --cpus, no `limits.cpu` in Kubernetes)";
            setting("quota", Disturbs, found, Some(advice))
        }
    }
}

/// Folders of the group that counts processor time, and of all above it; of both versions.
fn group_folders(groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => "sys/fs/cgroup".to_owned(),
            list if list.split(',').any(|c| c == "cpu") => format!("sys/fs/cgroup/{list}"),
            _ => continue,
        };
        // A path that leads out of the tree is another namespace's: what is seen is the root.
        let path = Path::new(path.trim_start_matches('/'));
        let inside = !path.components().any(|c| c == std::path::Component::ParentDir);
        let below = if inside { path } else { Path::new("") };
        folders.extend(below.ancestors().map(|above| Path::new(&root).join(above)));
    }
    folders
}

/// How many processors' time a group may take.
fn limit_of(files: &SystemFiles, folder: &Path) -> Option<f64> {
    let ratio = |quota: &str, period: &str| -> Option<f64> {
        let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    if let Some(text) = files.text(folder.join("cpu.max")) {
        let (quota, period) = text.split_once(' ')?;
        return ratio(quota, period);
    }
    let text = |name: &str| files.text(folder.join(name));
    ratio(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?)
}

fn throttled(files: &SystemFiles, folder: &Path) -> Option<i64> {
    let text = files.text(folder.join("cpu.stat"))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "nr_throttled")?;
    words.get(at + 1)?.parse().ok()
}

fn processors(files: &SystemFiles, cpus: &[usize]) -> Setting {
    let online = files.text(format!("{CPUS}/online")).unwrap_or_else(|| "?".into());
    let isolated = files.text(format!("{CPUS}/isolated")).filter(|list| !list.is_empty());
    let of = format!("{} allowed, {online} online", cpus.len());
    match (isolated, cpus.len()) {
        (Some(list), _) => {
            let found = format!("{of}, {list} kept free of other work");
            let advice = format!(
                "choose one of them: --cpu {}",
                list.split([',', '-']).next().unwrap_or("N")
            );
            setting("processors", Fine, found, Some(&advice))
        }
        (None, 0 | 1) => {
            let advice =
                "everything else on this machine runs on the same one: give it a second processor";
            setting("processors", Disturbs, of, Some(advice))
        }
        (None, _) => setting("processors", Fine, of, None),
    }
}

fn virtualisation(machine: &Machine) -> Setting {
    match &machine.hypervisor {
        Some(name) => {
            let advice = "others share the machine below, unseen: `stallscope probe clock` measures how much; \
                          compare in pairs, never one day with the next";
            setting("virtualisation", Disturbs, format!("guest of {name}"), Some(advice))
        }
        None => setting("virtualisation", Fine, "none".into(), None),
    }
}

fn addresses(files: &SystemFiles) -> Setting {
    let id = "random-addresses";
    match files.number("proc/sys/kernel/randomize_va_space") {
        Some(2) => {
            let found =
                "on: each run has another placement of stack and heap, so that none decides";
            setting(id, Fine, found.into(), None)
        }
        Some(level) => {
            let found =
                format!("randomize_va_space is {level}: all runs have one placement of the heap");
            let advice = "`sudo sysctl kernel.randomize_va_space=2`: runs then differ in it, and a comparison is \
                          about more than one placement";
            setting(id, Disturbs, found, Some(advice))
        }
        None => setting(id, Unknown, "the kernel does not show it".into(), None),
    }
}

fn huge_pages(files: &SystemFiles) -> Setting {
    let id = "huge-pages";
    let Some(text) = files.text("sys/kernel/mm/transparent_hugepage/enabled") else {
        return setting(id, Unknown, "the kernel does not show them".into(), None);
    };
    let chosen = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some("always") => {
            let advice = "`echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`: whether a run \
                          gets them no longer depends on what memory is free";
            setting(id, Disturbs, "always, where memory is free for them".into(), Some(advice))
        }
        Some(word) => setting(id, Fine, word.to_owned(), None),
        None => setting(id, Unknown, text, None),
    }
}

fn counters(files: &SystemFiles) -> Setting {
    match files.number("proc/sys/kernel/perf_event_paranoid") {
        Some(level) if level <= 1 => {
            setting("counters", Fine, format!("perf_event_paranoid is {level}"), None)
        }
        // It binds only those without the right to look.
        Some(level) if files.may_look() => {
            let found = format!("perf_event_paranoid is {level}, which does not bind this user");
            setting("counters", Fine, found, None)
        }
        Some(level) => {
            let lost = if level > 2 {
                "programs cannot be sampled by perf"
            } else {
                "the kernel is not sampled"
            };
            let found = format!("perf_event_paranoid is {level}: {lost}");
            let advice = "`sudo sysctl kernel.perf_event_paranoid=1`";
            setting("counters", Limits, found, Some(advice))
        }
        None => setting(
            "counters",
            Unknown,
            "the kernel has no perf events, or hides them".into(),
            None,
        ),
    }
}

fn tracing(files: &SystemFiles) -> Setting {
    match files.number("proc/sys/kernel/yama/ptrace_scope") {
        // Without the module nothing is restricted; children may be traced up to 1.
        None | Some(0 | 1) => setting("tracing", Fine, "own children can be followed".into(), None),
        Some(level) => {
            let found = format!("ptrace_scope is {level}: runs cannot be followed");
            setting("tracing", Limits, found, Some("`sudo sysctl kernel.yama.ptrace_scope=1`"))
        }
    }
}

#[cfg(test)]
mod tests;
