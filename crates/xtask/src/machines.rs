//! The page of all machines whose profiles are in the tree, `docs/machines.md`.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use stallscope::machine::Design;
use stallscope::machine::survey::Survey;
use stallscope::report::markdown;

/// Where the page stands, from the repository's root.
pub const PAGE: &str = "docs/machines.md";

const HEAD: &str = "\
# Machines that were measured

Written by `cargo xtask generate` from [`profiles/`](../profiles/README.md), which says when and how each was measured. Facts in bold differ
between machines by more than chance and another run explain ([`survey`](survey.md)); in italics what was not measured there but is documented for the design, or assumed.

";

/// The page as it should be.
pub fn page(root: &Path) -> anyhow::Result<String> {
    let folder = root.join("profiles");
    let entries = fs::read_dir(&folder).context("cannot list the profiles")?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    let load = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Ok((name.clone(), Design::from_json(&text).context(name)?))
    };
    let machines = files.iter().map(load).collect::<anyhow::Result<Vec<_>>>()?;
    let survey = Survey::of(machines.iter().map(|(name, design)| (name.clone(), design)));
    Ok(HEAD.to_owned() + &markdown::survey(&survey))
}
