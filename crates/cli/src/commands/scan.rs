//! `stallscope scan`: hazards in the machine code of programs.

use std::path::PathBuf;

use clap::Args;
use stallscope::code::{DebugInfo, FunctionSource, Image, SourceText};
use stallscope::hazards::{ScanFilter, ScanReport, describe_sites, scan};
use stallscope::model::Finding;

use super::site;
use crate::context::{Context, Outcome};
use crate::terminal::{CAUTION, FAINT, STRONG, paint, wrap};
use crate::{output, profile, terminal};

const EXAMPLES: &str = "\
Examples:
  The twenty findings that deserve attention most
    stallscope scan ./server
  One function, everything in it
    stallscope scan --function decodeIndexBuffer --top 0 ./codec
  A gate: exit code 1 when anything is found
    stallscope scan --gate --function decode ./codec

A finding is a pattern: the code has a shape that costs when it runs and when its
data make the accesses meet. `stallscope rule store-forward` explains the shape.

Exit codes: 0 scanned (with --gate: nothing found), 1 findings (--gate), 2 bad
usage or a file that cannot be read as a program.";

/// Arguments of `scan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ScanArgs {
    /// Programs or libraries (ELF, x86-64)
    #[arg(required = true, value_name = "BINARY")]
    binaries: Vec<PathBuf>,
    /// Only functions whose name contains NAME
    #[arg(long, short, value_name = "NAME")]
    function: Option<String>,
    /// Show the N findings that rank highest; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Exit with 1 when anything is found
    #[arg(long)]
    gate: bool,
}

/// Runs the command.
pub fn run(args: &ScanArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let chosen = profile::load(context)?;
    let filter = ScanFilter { function: args.function.clone() };
    let most = if args.top == 0 { usize::MAX } else { args.top };
    let mut reports = Vec::new();
    for path in &args.binaries {
        let image = Image::open(path)?;
        let mut report = scan(&image, &filter, &chosen.profile);
        if let (0, Some(name)) = (report.functions, &filter.function) {
            anyhow::bail!("{} has no function whose name contains `{name}`", path.display());
        }
        let listed = report.findings.len().min(most);
        describe_sites(&image, &DebugInfo::of(&image), &mut report.findings[..listed]);
        if reports.is_empty() {
            chosen.announce(context)?;
        }
        if context.shows_screen() {
            terminal::print(&screen(&report, most, &mut SourceText::default()))?;
        }
        reports.push(report);
    }
    output::json(context, "scan", &reports)?;
    let found = reports.iter().any(|r| !r.findings.is_empty());
    Ok(if found && args.gate { Outcome::Gated } else { Outcome::Fine })
}

fn screen(report: &ScanReport, most: usize, text: &mut SourceText) -> String {
    let mut out = paint(STRONG, &report.program) + "\n";
    out += &format!(
        "{} in {}, {} of machine code\n",
        count(report.findings.len(), "finding"),
        count(report.functions, "function"),
        size(report.code_bytes),
    );
    if report.function_source == FunctionSource::EhFrame {
        out += &paint(CAUTION, "stripped: functions come from the unwind tables, without names\n");
    }
    for (rank, finding) in report.findings.iter().take(most).enumerate() {
        out += &entry(rank + 1, finding, text);
    }
    let rest = report.findings.len().saturating_sub(most);
    if rest > 0 {
        out += &format!("\n{} left out: --top 0 shows them all\n", count(rest, "finding"));
    }
    out
}

fn entry(rank: usize, finding: &Finding, text: &mut SourceText) -> String {
    let title = format!(
        "\n{rank:>3}  {}\n",
        paint(STRONG, site::clip(site::short_name(&finding.site.function), 72)),
    );
    let place = format!(
        "     {}: {} {}, score {:.2}\n     loop depth {}, {} from store to load or more\n",
        finding.id,
        finding.certainty,
        finding.grade,
        finding.score,
        finding.loop_depth,
        count(finding.distance_instructions as usize, "instruction"),
    );
    title
        + &paint(FAINT, place)
        + &site::site(&finding.site, 5, text)
        + &format!("     {}\n", site::store_words(finding, 0))
        + &site::stores(finding, 0, 5, text)
        + &wrap("     why  ", &finding.mechanism)
        + &wrap("     try  ", &finding.remedy)
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use stallscope::code::fixture;
    use stallscope::machine::{MachineProfile, Microarchitecture};

    use super::*;
    use crate::terminal::plain;

    fn shown(most: usize) -> String {
        let (wide, narrow) = (fixture::ring_loop(true), fixture::ring_loop(false));
        let program =
            fixture::program(&[("decode", &wide), ("encode", &narrow), ("decode_again", &wide)]);
        let image = Image::parse(Path::new("./invented"), program).unwrap();
        let profile = MachineProfile::for_microarchitecture(Microarchitecture::Zen5);
        let report = scan(&image, &ScanFilter::default(), &profile);
        plain(&screen(&report, most, &mut SourceText::default()))
    }

    #[test]
    fn findings_come_with_their_stores() {
        insta::assert_snapshot!(shown(usize::MAX));
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert!(shown(1).ends_with("1 finding left out: --top 0 shows them all\n"));
    }
}
