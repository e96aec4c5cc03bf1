//! `scan --diff OLD NEW`: which findings a change brought, and which functions grew and why.

use std::collections::HashSet;
use std::path::Path;

use anyhow::bail;
use schemars::JsonSchema;
use serde::Serialize;
use stallscope::code::{DebugInfo, Function, Image, Images};
use stallscope::hazards::{
    FindingsDifference, Heat, PlacedFinding, ScanFilter, ScanReport, describe_sites, scan,
};
use stallscope::layout::{Build, BuildSummary, SizeDifference};

use super::screen::nothing_was_run;
use super::{ScanArgs, diff_screen, filter, gate, hot_spots, most, outcome, target, write_sarif};
use crate::context::{Context, Outcome};
use crate::terminal::{FAINT, paint};
use crate::{output, profile, terminal};

/// How two builds differ: the result of `scan --diff`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScanDifference {
    /// The first build; of an archive, its members.
    pub before: Vec<BuildSummary>,
    /// The second build; of an archive, its members.
    pub after: Vec<BuildSummary>,
    /// The rules that looked.
    pub rules: Vec<String>,
    /// Which findings are new, gone and moved.
    pub findings: FindingsDifference,
    /// New findings that a baseline knows, which are in no list.
    pub known: usize,
    /// Which functions differ in size, and why.
    pub size: SizeDifference,
}

struct Side {
    images: Vec<Image>,
    /// By image: the member's name, if it is one, and the scan.
    reports: Vec<(Option<String>, ScanReport)>,
    note: Option<String>,
}

/// Runs `scan --diff`; what counts for the exit code is new.
pub fn run(args: &ScanArgs, context: &Context) -> anyhow::Result<Outcome> {
    let [old, new] = args.binaries.as_slice() else {
        bail!("--diff takes two files, the old build and the new one, not {}", args.binaries.len());
    };
    let chosen = profile::load(context)?;
    let filter = filter(args)?;
    let baseline = args.baseline.as_deref().map(gate::Baseline::read).transpose()?;
    let hot = hot_spots(args.profile_data.as_deref())?;
    let read = |path: &Path| -> anyhow::Result<Side> {
        let images = images(path)?;
        let mut side = Side { reports: Vec::with_capacity(images.len()), images, note: None };
        for image in &side.images {
            let judge = target::judge(image, &chosen)?;
            let heat = hot.as_deref().map(|spots| Heat::of(image, spots));
            let report = scan(image, &filter, &judge.design, heat.as_ref());
            side.reports.push((member(path, image), report));
            side.note = side.note.or(judge.note);
        }
        Ok(side)
    };
    let (before, mut after) = (read(old)?, read(new)?);
    check(&before, &after, &filter, [old, new])?;
    let sum = |reports: &mut [(Option<String>, ScanReport)]| -> usize {
        reports.iter_mut().map(|(_, r)| baseline.as_ref().map_or(0, |b| b.subtract(r).known)).sum()
    };
    let mut findings = FindingsDifference::of(&before.reports, &after.reports);
    let all_new = findings.new.len();
    if sum(&mut after.reports) > 0 {
        // What the baseline knows is no news, whatever the old build had.
        let kept = FindingsDifference::of(&before.reports, &after.reports).new;
        findings.new = kept;
    }
    let known = all_new - findings.new.len();
    let written = if args.sarif.is_some() { most(args.sarif_most) } else { 0 };
    let shown = most(args.top).max(written);
    let mut size =
        SizeDifference::of(&Build::of(old, &before.images), &Build::of(new, &after.images));
    size.warnings.extend(describe(&after.images, &after.reports, &mut findings.new, shown));
    let gone = describe(&before.images, &before.reports, &mut findings.gone, most(args.top));
    size.warnings.extend(gone);
    if let Some(query) = &filter.function {
        let images = before.images.iter().chain(&after.images);
        let meant: HashSet<String> =
            images.flat_map(|image| query.all_in(image)).map(Function::name).collect();
        size.functions.retain(|f| meant.contains(&f.name));
    }
    let summaries = |side: &Side| side.images.iter().map(BuildSummary::of).collect();
    let difference = ScanDifference {
        before: summaries(&before),
        after: summaries(&after),
        rules: filter.rules.iter().map(|r| r.id().to_owned()).collect(),
        findings,
        known,
        size,
    };
    if context.shows_screen() {
        terminal::print(&paint(FAINT, nothing_was_run(args.profile_data.as_deref())))?;
        match &after.note {
            Some(note) => terminal::print(&paint(FAINT, note))?,
            None => chosen.announce(context)?,
        }
        let names = [old, new].map(|p| p.display().to_string());
        let show =
            diff_screen::Show { names, most: most(args.top), is_part: filter.function.is_some() };
        let text = &mut context.source_text([old, new].map(|p| p.as_path()))?;
        terminal::print(&diff_screen::screen(&difference, &show, text))?;
    }
    write_sarif(args, &only_new(&after.reports, &difference), &filter.rules, &chosen.design)?;
    output::result(context, "scan-difference", &difference)?;
    let new = difference.findings.new.iter().map(|p| &p.finding);
    let reports = before.reports.iter().chain(&after.reports).map(|(_, report)| report);
    Ok(outcome(args, new, reports))
}

fn images(path: &Path) -> anyhow::Result<Vec<Image>> {
    let images = Images::open(path)?.collect::<Result<Vec<_>, _>>()?;
    if images.is_empty() {
        bail!("{} is an archive without machine code", path.display());
    }
    Ok(images)
}

/// The name of an image in its archive.
fn member(path: &Path, image: &Image) -> Option<String> {
    let name = image.path().file_name()?.to_string_lossy().into_owned();
    let inner = name.rsplit_once('(').map(|(_, inner)| inner.trim_end_matches(')').to_owned());
    inner.filter(|_| image.path() != path)
}

fn check(
    before: &Side,
    after: &Side,
    filter: &ScanFilter,
    paths: [&std::path::PathBuf; 2],
) -> anyhow::Result<()> {
    let architecture = |side: &Side| side.images.first().map(Image::architecture);
    if let (Some(old), Some(new)) = (architecture(before), architecture(after))
        && old != new
    {
        let [a, b] = paths.map(|p| p.display());
        bail!("{a} is for {old} and {b} for {new}: two builds for one processor are compared");
    }
    let functions = |side: &Side| side.reports.iter().map(|(_, r)| r.functions).sum::<usize>();
    if let Some(name) = &filter.function
        && functions(before) + functions(after) == 0
    {
        bail!("neither build has a function whose name contains `{name}`");
    }
    Ok(())
}

/// Fills in lines and variables of the first findings, image by image; what they lack and why.
fn describe(
    images: &[Image],
    reports: &[(Option<String>, ScanReport)],
    findings: &mut [PlacedFinding],
    most: usize,
) -> Vec<String> {
    let mut notes = Vec::new();
    let shown = findings.len().min(most);
    for (image, (object, report)) in images.iter().zip(reports) {
        let is_here = |p: &&mut PlacedFinding| {
            p.object == *object && report.findings.iter().any(|f| f.id == p.finding.id)
        };
        let mut own: Vec<&mut PlacedFinding> =
            findings[..shown].iter_mut().filter(is_here).collect();
        if own.is_empty() {
            continue;
        }
        let debug = DebugInfo::of(image);
        for placed in &mut own {
            describe_sites(image, &debug, std::slice::from_mut(&mut placed.finding));
        }
        notes.extend(debug.refused());
    }
    notes
}

/// The scans with nothing in them but what is new.
fn only_new(reports: &[(Option<String>, ScanReport)], of: &ScanDifference) -> Vec<ScanReport> {
    let with = |(object, report): &(Option<String>, ScanReport)| {
        let mut report = report.clone();
        let own = of.findings.new.iter().filter(|p| p.object == *object);
        report.findings = own.map(|p| p.finding.clone()).collect();
        report
    };
    reports.iter().map(with).collect()
}
