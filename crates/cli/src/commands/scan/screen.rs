//! A scan on the screen: the findings, what was left out, the string instructions.

use std::collections::BTreeMap;
use std::path::Path;

use stallscope::code::{Coverage, FunctionSource, SourceText};
use stallscope::foreign::plain;
use stallscope::hazards::{Hazard, STORE_FORWARD, ScanReport, StringSummary};
use stallscope::model::Finding;

use super::super::site;
use super::gate::LeftOut;
use crate::commands::words::counted as count;
use crate::terminal::{CAUTION, FAINT, STRONG, paint, wrap};

/// Libraries with more code than the program that are named.
const MOST_LIBRARIES: usize = 3;

pub struct Show {
    /// So many findings.
    pub most: usize,
    /// Every string instruction, not only their number.
    pub sites: bool,
    /// What a baseline has hidden.
    pub left_out: LeftOut,
}

pub fn screen(report: &ScanReport, show: &Show, text: &mut SourceText) -> String {
    let mut out = paint(STRONG, &report.program) + "\n";
    let known = match show.left_out {
        LeftOut { known: 0, by_placement: 0 } => String::new(),
        LeftOut { known, by_placement: 0 } => format!(" besides {known} in the baseline"),
        LeftOut { known, by_placement } => {
            format!(" besides {known} in the baseline and {by_placement} by placement")
        }
    };
    let covered = report.coverage.map(|coverage| format!(": {}", covered(&coverage)));
    let line = format!(
        "{}{known} in {}, {} of machine code{}",
        count(report.findings.len(), "finding"),
        count(report.functions, "function"),
        size(report.code_bytes),
        covered.unwrap_or_default()
    );
    out += &wrap("", &line);
    if report.function_source == FunctionSource::EhFrame {
        out += &paint(
            CAUTION,
            "stripped: functions come from the unwind tables; only exported ones have names\n",
        );
    }
    if let Some(found) = report.coverage.map(|c| c.unlisted_functions).filter(|found| *found > 0) {
        let line = format!(
            "{} in no table, found by calls and by where code ends",
            count(found, "function")
        );
        out += &paint(FAINT, wrap("", &line));
    }
    out += &libraries(report);
    if report.function_source == FunctionSource::GoTable {
        out += &paint(FAINT, "stripped: functions come from Go's own table\n");
    }
    if let Some(share) = report.heat_share {
        out += &format!("{:.1} % of the profile is in this program\n", 100.0 * share);
    }
    for (rank, finding) in report.findings.iter().take(show.most).enumerate() {
        out += &entry(rank + 1, finding, text);
    }
    out += &left_out(report, show.most);
    if let Some(strings) = report.strings.as_ref().filter(|s| s.sites > 0) {
        out += &self::strings(strings, show.sites);
    }
    for note in &report.notes {
        out += &wrap("note: ", note);
    }
    out
}

/// The first line of a scan without a run.
pub fn nothing_was_run(profile: Option<&Path>) -> String {
    match profile {
        Some(file) => {
            wrap("", &format!("nothing was run: ranked by {}", plain(&file.to_string_lossy())))
        }
        None => wrap("", "nothing was run: ranked by the code alone (--run -- COMMAND counts)"),
    }
}

/// "98.7 % of the executable bytes", never rounded up.
pub fn covered(coverage: &Coverage) -> String {
    format!("{:.1} % of the executable bytes", (1000.0 * coverage.share()).floor() / 10.0)
}

/// What is to be said of a program with less code than the libraries that it names.
fn libraries(report: &ScanReport) -> String {
    let name =
        |path: &Path| plain(&path.file_name().unwrap_or_default().to_string_lossy()).into_owned();
    let most = report.larger_libraries.iter().take(MOST_LIBRARIES);
    let all: Vec<String> =
        most.map(|l| format!("{} ({})", name(&l.path), size(l.code_bytes))).collect();
    let Some(first) = report.larger_libraries.first() else { return String::new() };
    let text = format!(
        "most of its code is in libraries: {}; scan them, too ({})",
        all.join(", "),
        plain(&first.path.to_string_lossy())
    );
    paint(CAUTION, wrap("", &text))
}

fn left_out(report: &ScanReport, most: usize) -> String {
    let rest = report.findings.get(most..).unwrap_or(&[]);
    if rest.is_empty() {
        return String::new();
    }
    let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
    rest.iter().for_each(|f| *by_rule.entry(&f.rule).or_default() += 1);
    let rules: Vec<String> = by_rule.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
    let text = format!(
        "{} left out ({}): --top 0 shows them all, --rule ID those of one rule",
        count(rest.len(), "finding"),
        rules.join(", ")
    );
    format!("\n{}", wrap("", &text))
}

/// One finding with all that is known about it.
pub fn entry(rank: usize, finding: &Finding, text: &mut SourceText) -> String {
    let title = format!(
        "\n{rank:>3}  {}\n",
        paint(STRONG, site::clip(site::short_name(&finding.site.function), 72)),
    );
    let mut place = format!(
        "     {}: {} {}, score {:.2} (weighted cycles)\n     {}",
        finding.id,
        finding.certainty,
        finding.grade,
        finding.score,
        match finding.loop_depth {
            0 => "outside loops".to_owned(),
            depth => format!("loop depth {depth}"),
        },
    );
    if let Some(share) = finding.heat_share {
        place += &format!(", {:.1} % of the profile", 100.0 * share);
        if let Some(own) = finding.block_share.filter(|own| *own < share) {
            place += &format!(" in its loop, {:.2} % at most here", 100.0 * own);
        }
    }
    let about_stores = finding.rule == STORE_FORWARD.id();
    if about_stores {
        let distance = count(finding.distance_instructions as usize, "instruction");
        place += &format!(", {distance} from store to load or more");
    }
    let mut out = title + &paint(FAINT, place + "\n") + &site::site(&finding.site, 5, text);
    if about_stores {
        out += &format!("     {}\n", site::store_words(finding, 0));
        out += &site::stores(finding, 0, 5, text);
    }
    out + &wrap("     why  ", &finding.mechanism) + &wrap("     try  ", &finding.remedy)
}

/// How many string instructions there are, which, and of what size.
fn strings(summary: &StringSummary, sites: bool) -> String {
    let mut out = format!(
        "\n{}: {}, {:.1} % of known size",
        paint(STRONG, "string instructions"),
        count(summary.sites, "site"),
        100.0 * summary.with_size as f64 / summary.sites as f64,
    );
    if summary.behind_prologue > 0 {
        out += &format!(" ({} behind an alignment prologue)", summary.behind_prologue);
    }
    out += "\n";
    let counts: Vec<String> =
        summary.by_instruction.iter().map(|c| format!("{} {}", c.instruction, c.sites)).collect();
    out += &wrap("  ", &counts.join(", "));
    if !summary.by_size.is_empty() {
        let row = |name: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>7}")).collect();
            format!("  {name:<10}{cells}\n")
        };
        let classes = summary.by_size.iter();
        let ends = classes.clone().map(|c| c.up_to_bytes.map_or("more".into(), |n| n.to_string()));
        out += &paint(FAINT, row("bytes to", ends.collect()));
        out += &row("rep movs", classes.clone().map(|c| c.moves.to_string()).collect());
        out += &row("rep stos", classes.map(|c| c.stores.to_string()).collect());
    }
    let unknown = summary.sites - summary.with_size;
    if sites {
        for entry in &summary.list {
            let size = entry.size_bytes.map_or("size unknown".into(), |n| format!("{n} bytes"));
            let function = entry.function.as_deref().unwrap_or("outside any function");
            let address = entry.svma.to_string();
            let line = format!("  {address:<20}{:<11}{size:<14}{function}", entry.instruction);
            out += &(site::clip(&line, crate::terminal::width()) + "\n");
        }
    } else if unknown > 0 {
        out += &format!("  {} of unknown size; --sites lists all\n", count(unknown, "site"));
    }
    out
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

    use stallscope::code::{Image, fixture};
    use stallscope::hazards::{ScanFilter, scan};
    use stallscope::machine::{Design, Microarchitecture};

    use super::*;
    use crate::terminal::plain;

    fn shown(most: usize, functions: &[(&str, &[u8])]) -> String {
        let image = Image::parse(Path::new("./invented"), fixture::program(functions)).unwrap();
        let profile = Design::of(Microarchitecture::Zen5);
        let report = scan(&image, &ScanFilter::default(), &profile, None);
        let show = Show { most, sites: true, left_out: LeftOut::default() };
        plain(&screen(&report, &show, &mut SourceText::default()))
    }

    #[test]
    fn findings_come_with_their_stores() {
        let (wide, narrow) = (fixture::ring_loop(true), fixture::ring_loop(false));
        let functions: [(&str, &[u8]); 3] =
            [("decode", &wide), ("encode", &narrow), ("decode_again", &wide)];
        insta::assert_snapshot!(shown(usize::MAX, &functions));
        let short = shown(1, &functions);
        let left_out = "3 findings left out (loop-alignment 2, store-forward 1): --top 0 shows";
        assert!(short.contains(left_out), "{short}");
    }

    #[test]
    fn stores_and_loads_of_other_functions_stand_under_their_names() {
        // (loop:) mov rdi, rbp; call set; mov rax, [rbp]; dec ebx; jnz loop; ret
        let reader = [
            0x48, 0x89, 0xef, 0xe8, 24, 0, 0, 0, 0x48, 0x8b, 0x45, 0x00, 0xff, 0xcb, 0x75, 0xf0,
            0xc3,
        ];
        // mov [rdi], esi; mov [rdi+4], edx; ret
        let set = [0x89, 0x37, 0x89, 0x57, 0x04, 0xc3];
        let text = shown(9, &[("reader", &reader), ("set", &set)]);
        let places: Vec<&str> = text.lines().map(str::trim).collect();
        let from = places.iter().position(|l| *l == "reads what these two 32-bit stores wrote");
        let stores = &places[from.unwrap() + 1..][..4];
        assert!(stores[0].ends_with("mov dword ptr [rdi], esi"), "{text}");
        assert_eq!([stores[1], stores[3]], ["in set"; 2]);
        assert!(!text.contains("more that can"), "{text}");
        // (loop:) mov [rsp], eax; mov [rsp+4], ecx; mov rdi, rsp; call get; dec ebx; jnz loop; ret
        let writer = [
            0x89, 0x04, 0x24, 0x89, 0x4c, 0x24, 0x04, 0x48, 0x89, 0xe7, 0xe8, 17, 0, 0, 0, 0xff,
            0xcb, 0x75, 0xed, 0xc3,
        ];
        // mov rax, [rdi]; ret
        let text = shown(9, &[("writer", &writer), ("get", &[0x48, 0x8b, 0x07, 0xc3])]);
        let load = text.find("with this load in get").map(|at| &text[at..]);
        assert!(load.is_some_and(|t| t.contains("mov rax, qword ptr [rdi]")), "{text}");
        assert!(!text.contains("more that can"), "{text}");
    }

    #[test]
    fn string_instructions_are_counted() {
        // mov ecx, 21; rep movsq; ret, and rep stosb; ret
        let copy = [0xb9, 21, 0, 0, 0, 0xf3, 0x48, 0xa5, 0xc3];
        insta::assert_snapshot!(shown(9, &[("sync", &copy), ("clear", &[0xf3, 0xaa, 0xc3])]));
    }
}
