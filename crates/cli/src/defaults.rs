//! `.stallscope.toml`: a repository's defaults of options.
//!
//! The file nearest to the working directory, there or above, is read; its keys are the long names of options, and a
//! table `[compare]` holds for that command alone. Its values become clap's own defaults, so that no option is defined
//! twice, and whatever is typed goes before them. A repository can come from anybody: a file sets how something is
//! measured and judged, never what is run, and the paths in it stay below its folder.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::num::ParseIntError;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use stallscope::foreign;
use stallscope::report::Defaults;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::args::Cli;
use crate::terminal;

const NAME: &str = ".stallscope.toml";
/// There are some forty keys.
const MOST_BYTES: u64 = 1 << 16;

/// The options that a file may set: none that runs something, loads something into what is run, or writes or reads
/// files outside the folder of the file.
const KEYS: &[&str] = &[
    "adjust",
    "as",
    "cpu",
    "cpus",
    "effect",
    "fail-if",
    "fail-on",
    "for",
    "gate",
    "higher-is-better",
    "ignore-failure",
    "json-dir",
    "keep-disturbed",
    "layouts",
    "markdown",
    "metric",
    "no-cure",
    "no-progress",
    "ops-in",
    "order",
    "pairs",
    "profile",
    "quiet",
    "redact-args",
    "repeat-disturbed",
    "rule",
    "runs",
    "seed",
    "source-root",
    "threshold",
    "timeout",
    "top",
    "until",
    "warmup",
];

/// Commands that measure and judge nothing.
const WITHOUT: &[&str] = &["completions", "man"];

/// One line of the file: a key, where it holds, and what is behind it.
#[derive(Debug)]
struct Entry {
    key: String,
    /// The command in whose table it stands.
    command: Option<String>,
    values: Vec<String>,
}

/// What was typed, completed by the file that holds here.
///
/// # Errors
/// When the file cannot be read or says something wrong; for wrong arguments, and for `--help`, what clap has to say.
pub fn parse(typed: Vec<OsString>) -> anyhow::Result<(Cli, Option<Defaults>)> {
    let mut definition = definition();
    let matches = definition.clone().try_get_matches_from(&typed).map_err(worded)?;
    definition.build();
    let cli = Cli::from_arg_matches(&matches)?;
    let Some((name, of_command)) = matches.subcommand() else { return Ok((cli, None)) };
    let is_hidden = definition.find_subcommand(name).is_none_or(Command::is_hide_set);
    if cli.common.no_config || is_hidden || WITHOUT.contains(&name) {
        return Ok((cli, None));
    }
    let file = match &cli.common.config {
        Some(file) => file.clone(),
        None => match nearest(&std::env::current_dir()?) {
            Some(file) => file,
            None => {
                if cli.common.verbose {
                    terminal::note(&format!("there is no {NAME} here or above"));
                }
                return Ok((cli, None));
            }
        },
    };
    let file = std::path::absolute(file)?;
    let text = foreign::read_text(&file, MOST_BYTES)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let reader = Reader { file: &file, text: &text, definition: &definition };
    let entries = reader.entries()?;
    let set = reader.holding(&entries, name, of_command);
    if cli.common.verbose {
        let shown = set.iter().map(|(key, values)| format!("{key} = {}", values.join(", ")));
        let shown = Some(shown.collect::<Vec<_>>().join("; ")).filter(|shown| !shown.is_empty());
        let shown = shown.as_deref().unwrap_or("nothing for this command");
        terminal::note(&format!("{} sets {shown}", file.display()));
    }
    if set.is_empty() {
        return Ok((cli, None));
    }
    let completed =
        completed(self::definition(), name, &set).try_get_matches_from(&typed).map_err(worded)?;
    Ok((Cli::from_arg_matches(&completed)?, Some(Defaults { file, set })))
}

/// What can be typed, with negative numbers for values wherever there are some: the option says what is wrong with one,
/// where clap would take it for a flag that does not exist.
fn definition() -> Command {
    fn with_negative(command: Command) -> Command {
        let is_number = |arg: &Arg| {
            arg.get_long().is_some()
                && arg.get_action().takes_values()
                && arg.get_value_parser().type_id() != TypeId::of::<PathBuf>()
        };
        let change =
            |arg: Arg| if is_number(&arg) { arg.allow_negative_numbers(true) } else { arg };
        command.mut_args(change).mut_subcommands(with_negative)
    }
    with_negative(Cli::command())
}

/// The same in a sentence where a negative number was given for one that is not, and Rust's own words would be
/// "invalid digit found in string".
fn worded(error: clap::Error) -> anyhow::Error {
    let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let is_whole = error.source().is_some_and(|cause| cause.is::<ParseIntError>());
    let value = said(ContextKind::InvalidValue);
    if !is_whole || !value.starts_with('-') {
        return error.into();
    }
    let option = said(ContextKind::InvalidArg);
    anyhow::anyhow!(
        "invalid value '{value}' for '{option}': write a whole number that is not negative"
    )
}

/// The file that holds in a folder.
fn nearest(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().map(|folder| folder.join(NAME)).find(|file| file.exists())
}

/// The definition with other defaults.
fn completed(mut all: Command, command: &str, set: &BTreeMap<String, Vec<String>>) -> Command {
    for (key, values) in set {
        let values = values.clone();
        let change = |definition: Command| match option(&definition, key).map(Arg::get_id).cloned()
        {
            Some(id) => definition.mut_arg(id, |arg| arg.default_values(values)),
            None => definition,
        };
        all = match option(&all, key) {
            Some(_) => change(all),
            None => all.mut_subcommand(command, change),
        };
    }
    all
}

fn option<'a>(definition: &'a Command, key: &str) -> Option<&'a Arg> {
    definition.get_arguments().find(|arg| arg.get_long() == Some(key))
}

fn exclude_each_other(definition: &Command, one: &Arg, other: &Arg) -> bool {
    definition.get_arg_conflicts_with(one).contains(&other)
        || definition.get_arg_conflicts_with(other).contains(&one)
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    /// Built, so that every command has the options that all share.
    definition: &'a Command,
}

impl Reader<'_> {
    /// The whole file, each key and value checked against every command that it holds for.
    fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let at = self.at(error.span().map_or(0, |span| span.start));
            anyhow::anyhow!("{at}: {}", error.message())
        })?;
        let mut entries = Vec::new();
        for (key, value) in table.get_ref() {
            let name = key.get_ref();
            match value.get_ref() {
                DeValue::Table(inner) => {
                    if self.commands(name).next().is_none() {
                        bail!(
                            "{}: there is no command `{name}`; tables are for {}",
                            self.at(key.span().start),
                            self.commands("").map(Command::get_name).collect::<Vec<_>>().join(", ")
                        );
                    }
                    for (key, value) in inner {
                        self.add(&mut entries, Some(name), key, value.get_ref())?;
                    }
                }
                value => self.add(&mut entries, None, key, value)?,
            }
        }
        Ok(entries)
    }

    /// The commands that a file can hold for; all of them for no name.
    fn commands(&self, name: &str) -> impl Iterator<Item = &Command> {
        self.definition.get_subcommands().filter(move |command| {
            let own = command.get_name();
            let is_for_people = !command.is_hide_set() && own != "help" && !WITHOUT.contains(&own);
            is_for_people && (name.is_empty() || own == name)
        })
    }

    fn at(&self, offset: usize) -> String {
        let before = self.text.get(..offset).unwrap_or_default();
        format!("{}:{}", self.file.display(), before.matches('\n').count() + 1)
    }

    fn add(
        &self,
        entries: &mut Vec<Entry>,
        command: Option<&str>,
        key: &Spanned<DeString<'_>>,
        value: &DeValue<'_>,
    ) -> anyhow::Result<()> {
        let at = self.at(key.span().start);
        let key: &str = key.get_ref();
        let known: Vec<&Command> = self
            .commands(command.unwrap_or_default())
            .filter(|command| option(command, key).is_some())
            .collect();
        if !KEYS.contains(&key) || known.is_empty() {
            let here = |key: &&&str| {
                self.commands(command.unwrap_or_default()).any(|c| option(c, key).is_some())
            };
            let keys = KEYS.iter().filter(here).copied().collect::<Vec<_>>().join(", ");
            let what = match (known.is_empty(), command) {
                (true, None) => "is no option".to_owned(),
                (true, Some(command)) => format!("is no option of {command}"),
                (false, _) => "is for the command line alone: a file sets how something is \
                               measured and judged, not what is run"
                    .to_owned(),
            };
            bail!("{at}: `{key}` {what}; known keys: {keys}");
        }
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let mut values = Vec::new();
        for definition in known {
            let Some(option) = option(definition, key) else { continue };
            values = checked(option, value, folder).with_context(|| format!("{at}: {key}"))?;
            let other = entries.iter().find(|other| {
                other.command.as_deref() == command
                    && self::option(definition, &other.key)
                        .is_some_and(|other| exclude_each_other(definition, option, other))
            });
            if let Some(other) = other {
                bail!("{at}: `{key}` and `{}` exclude each other", other.key);
            }
        }
        entries.push(Entry { key: key.into(), command: command.map(Into::into), values });
        Ok(())
    }

    /// What holds for a command: its own table goes before the rest, and what is typed before both, also where it
    /// excludes what the file says.
    fn holding(
        &self,
        entries: &[Entry],
        name: &str,
        typed: &ArgMatches,
    ) -> BTreeMap<String, Vec<String>> {
        let mut set = BTreeMap::new();
        let Some(definition) = self.definition.find_subcommand(name) else { return set };
        let is_typed = |arg: &Arg| {
            let id = arg.get_id().as_str();
            typed.try_contains_id(id).is_ok()
                && typed.value_source(id) == Some(ValueSource::CommandLine)
        };
        let (own, all): (Vec<_>, Vec<_>) = entries.iter().partition(|e| e.command.is_some());
        let own = own.into_iter().filter(|entry| entry.command.as_deref() == Some(name));
        for entry in all.into_iter().chain(own) {
            let Some(option) = option(definition, &entry.key) else { continue };
            let excludes = |other: &Arg| exclude_each_other(definition, option, other);
            if is_typed(option) || definition.get_arguments().any(|a| is_typed(a) && excludes(a)) {
                continue;
            }
            set.retain(|key, _| !self::option(definition, key).is_some_and(excludes));
            set.insert(entry.key.clone(), entry.values.clone());
        }
        set.retain(|_, values| !values.is_empty());
        set
    }
}

/// The value as it would be typed, accepted by the option. A flag that is false has none: it is not there.
fn checked(option: &Arg, value: &DeValue<'_>, folder: &Path) -> anyhow::Result<Vec<String>> {
    if !option.get_action().takes_values() {
        let DeValue::Boolean(is_set) = value else { bail!("write true or false") };
        return Ok(is_set.then(|| "true".to_owned()).into_iter().collect());
    }
    let mut values = match value {
        DeValue::Array(all) if matches!(option.get_action(), ArgAction::Append) => {
            all.iter().map(|value| text(value.get_ref())).collect::<anyhow::Result<_>>()?
        }
        one => vec![text(one)?],
    };
    if option.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
        values = values.iter().map(|path| below(folder, path)).collect::<anyhow::Result<_>>()?;
    }
    // The option by itself: whatever it needs beside it is none of the value's business.
    let alone = Arg::new("value")
        .long(option.get_long().unwrap_or_default().to_owned())
        .value_parser(option.get_value_parser().clone())
        .action(ArgAction::Append);
    let typed = values.iter().map(|value| format!("--{}={value}", alone.get_long().unwrap_or("")));
    let parser = Command::new("file").no_binary_name(true).arg(alone.clone());
    match parser.try_get_matches_from(typed.collect::<Vec<_>>()) {
        Ok(_) => Ok(values),
        Err(error) => {
            let said = error.to_string();
            let said = said.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>();
            bail!("{}", said.join(" ").trim_start_matches("error: "))
        }
    }
}

fn text(value: &DeValue<'_>) -> anyhow::Result<String> {
    Ok(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        other => bail!("write a number or a text, not a {}", other.type_str()),
    })
}

/// A path of the file, which must lie below its folder, links followed: a repository that was fetched writes nowhere
/// else.
fn below(folder: &Path, path: &str) -> anyhow::Result<String> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    let whole = folder.join(path);
    let there = whole.ancestors().find_map(|path| path.canonicalize().ok());
    let is_below = there.zip(folder.canonicalize().ok()).is_some_and(|(p, f)| p.starts_with(f));
    if !Path::new(path).components().all(is_plain) || !is_below {
        bail!("`{path}` does not lie below {}, where this file is", folder.display());
    }
    whole.into_os_string().into_string().map_err(|_| anyhow::anyhow!("the folder is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, typed: &[&str]) -> anyhow::Result<(Cli, Option<Defaults>)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(NAME);
        std::fs::write(&file, text).unwrap();
        let config = ["stallscope", "--config", file.to_str().unwrap()];
        parse(config.iter().chain(typed).map(Into::into).collect())
    }

    fn set(text: &str, typed: &[&str]) -> String {
        let Some(defaults) = read(text, typed).unwrap().1 else { return "nothing".into() };
        let set = defaults.set.iter().map(|(key, values)| format!("{key}={}", values.join(",")));
        set.collect::<Vec<_>>().join(" ")
    }

    const FILE: &str = "pairs = 40\neffect = '2%'\ncpu = 0\nseed = 7\nquiet = false\n\
                        [compare]\nuntil = 'verdict'\npairs = 60\n[scan]\ngate = true\n";

    #[test]
    fn a_command_gets_what_it_knows_its_own_table_first() {
        assert_eq!(
            set(FILE, &["compare", "a", "b"]),
            "cpu=0 effect=2% pairs=60 seed=7 until=verdict"
        );
        assert_eq!(set(FILE, &["explain", "a", "b"]), "cpu=0 effect=2% pairs=40 seed=7");
        assert_eq!(set(FILE, &["scan", "a"]), "gate=true seed=7");
        assert_eq!(set("", &["scan", "a"]), "nothing");
        // These must work whatever a file says.
        for without in [&["man"][..], &["completions", "bash"], &["--no-config", "list"]] {
            let typed = [&["stallscope"], without].concat();
            assert!(parse(typed.iter().map(Into::into).collect()).unwrap().1.is_none());
        }
    }

    #[test]
    fn a_negative_number_is_a_value_and_its_option_says_what_is_wrong_with_it() {
        let said = |typed: &[&str]| {
            let typed = [&["stallscope", "--no-config"], typed].concat();
            parse(typed.iter().map(Into::into).collect()).map(|_| ()).unwrap_err().to_string()
        };
        for (typed, why) in [
            (&["trace", "--pid", "-1"][..], "'--pid <PID>': -1 is not in 1..=2147483647"),
            (&["compare", "a", "b", "--cpu", "-1"], "write the number of a logical processor"),
            (
                &["scan", "a", "--top", "-1"],
                "'--top <N>': write a whole number that is not negative",
            ),
            (&["trace", "--skip", "-3", "--", "a"], "whole number that is not negative"),
            (&["--seed", "-1", "list"], "whole number that is not negative"),
            (&["compare", "a", "b", "--effect", "-1"], "above 0"),
        ] {
            let said = said(typed);
            assert!(said.contains(why) && !said.contains("'--'"), "{typed:?}: {said}");
        }
        // Where such numbers mean something they stay what they were, and so does what is behind `--`.
        let typed = ["layout", "a", "b", "--measured", "-3%", "--takes", "1s"];
        assert!(read("", &typed).is_ok());
        assert!(read("", &["trace", "--", "a", "-1"]).is_ok());
    }

    #[test]
    fn what_is_typed_wins_also_where_it_excludes_what_the_file_says() {
        let typed = ["compare", "a", "b", "--pairs", "6", "--seed=1"];
        assert_eq!(set(FILE, &typed), "cpu=0 effect=2% until=verdict");
        assert_eq!(read(FILE, &typed).unwrap().0.common.seed, Some(1));
        assert_eq!(read(FILE, &["compare", "a"]).unwrap().0.common.seed, Some(7));
        assert_eq!(read(FILE, &["--seed=3", "compare", "a"]).unwrap().0.common.seed, Some(3));
        assert!(!set(FILE, &["compare", "a", "b", "--cpus", "1"]).contains("cpu="));
        assert_eq!(set("cpu = 0\n[compare]\ncpus = 1", &["compare", "a"]), "cpus=1");
        assert!(!set("json-dir = 'r'", &["compare", "a", "--json", "x"]).contains("json-dir"));
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line_whatever_is_run() {
        for (text, parts) in [
            ("\npears = 4", &[":2: `pears` is no option; known keys: adjust, as, cpu,"][..]),
            ("[compare]\nfail-on = 'x'", &[":2: `fail-on` is no option of compare; known keys: "]),
            ("prepare = 'rm -rf /'", &[":1: `prepare` is for the command line alone"]),
            ("env = 'LD_PRELOAD=x'", &["command line alone"]),
            ("json = 'x'", &["command line alone"]),
            (
                "[compote]\npairs = 1",
                &[":1: there is no command `compote`; tables are for bisect, case, "],
            ),
            ("[man]\nseed = 1", &["there is no command `man`"]),
            ("pairs = 0", &[":1: pairs: invalid value '0' for '--pairs"]),
            ("effect = 2", &["effect: invalid value '2'", "mean per cent"]),
            ("[explain]\norder = 'x'", &[":2: order: ", "possible values: random, abba"]),
            ("gate = 'yes'", &["gate: write true or false"]),
            ("pairs = [1, 2]", &["pairs: write a number or a text, not a array"]),
            ("cpu = 1\ncpus = 1", &["exclude each other"]),
            ("a = ", &[":1: "]),
            ("seed = 1\nseed = 2", &[":2: duplicate key"]),
            ("profile = '../p.json'", &[":1: profile: `../p.json` does not lie below "]),
            ("json-dir = '/etc'", &["does not lie below "]),
        ] {
            let said = format!("{:#}", read(text, &["list"]).unwrap_err());
            for part in parts {
                assert!(said.contains(part), "{text:?} lacks {part:?}: {said}");
            }
        }
    }

    #[test]
    fn a_link_does_not_lead_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
        assert!(below(folder.path(), "out/x").is_err());
        assert!(below(folder.path(), "in/x").unwrap().ends_with("in/x"));
    }

    #[test]
    fn every_key_is_an_option_and_none_of_them_runs_or_writes() {
        let mut definition = Cli::command();
        definition.build();
        for key in KEYS {
            let has = |command: &Command| option(command, key).is_some();
            assert!(definition.get_subcommands().any(has), "{key}");
        }
        let never =
            ["prepare", "setup", "shell", "env", "json", "html", "build", "run", "ssh", "cc"];
        assert!(never.iter().all(|key| !KEYS.contains(key)));
        assert!(KEYS.is_sorted());
    }
}
