//! Two builds that hold the same code, all of it or all that is hot: then a difference is not in what
//! the functions are, but may be in how often they run, on what data, and where they lie.
//!
//! Whole programs are compared without running them. Where some functions differ, a sampled run of each
//! arm (a few of a short one) tells whether these matter. Functions count as alike by their normalised bytes, and code
//! in other files when both arms use the very same file; code that no file holds is never alike.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Image;
use crate::layout::{Change, FunctionMatch, match_functions};
use crate::model::Svma;
use crate::run::child::{Launch, Limits};
use crate::run::sample::{ObjectSamples, SampleRun, SampleSettings, sample};

/// Programs above this are not taken apart for a remark.
const MOST_BYTES: u64 = 64 << 20;
/// Samples of each arm below which nothing is said about what is hot.
const FEWEST_SAMPLES: u64 = 100;
/// Samples of an arm after which no further run is needed, and the most runs that may take.
const ENOUGH_SAMPLES: u64 = 1000;
const MOST_RUNS: u32 = 20;
/// Share of the samples of each arm that has to lie in code that both have.
const ALIKE_SHARE: f64 = 0.99;

/// What equal code leaves open, in words: everything else that decides how long a program takes.
pub(crate) const COUNTS_NOT_COMPARED: &str = "how often each is called, and on what data, was \
     not compared here, so a difference can come from that as well as from where code and data lie or \
     from the environment";

/// The code of two builds is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SameCode {
    /// Functions that both programs have.
    pub functions: u64,
    /// Of these, how many lie elsewhere.
    pub moved: u64,
}

/// The code in which both arms spend their time is the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SameHotCode {
    /// Samples of A and of B, in user code.
    pub samples: [u64; 2],
    /// Which share of them lies in code that both have alike.
    pub alike_share: [f64; 2],
    /// Functions of the programs in which samples fell.
    pub functions: u64,
    /// Of these, how many lie elsewhere in B.
    pub moved: u64,
}

impl fmt::Display for SameHotCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the hot code is the same in both: {:.1} % of A's {} samples and {:.1} % of B's {} lie in \
             functions with the same bytes ({} of the programs, {} of them elsewhere) or in the same \
             libraries; {COUNTS_NOT_COMPARED}",
            100.0 * self.alike_share[0],
            self.samples[0],
            100.0 * self.alike_share[1],
            self.samples[1],
            self.functions,
            self.moved
        )
    }
}

/// Looks at both programs; `None` when any function differs, or either cannot be taken apart.
#[must_use]
pub fn same_code(a: &Path, b: &Path) -> Option<SameCode> {
    let [a, b] = open([a, b])?;
    let matches = match_functions(&a, &b);
    if matches.is_empty() || !matches.iter().all(|m| is_alike(m.change)) {
        return None;
    }
    let moved = matches.iter().filter(|m| m.change != Change::Same).count() as u64;
    Some(SameCode { functions: matches.len() as u64, moved })
}

/// Runs each arm again, sampled; `None` when hot code differs, or when that cannot be found out.
#[must_use]
pub fn sample_hot_code(launches: [&Launch; 2], limits: &Limits<'_>) -> Option<SameHotCode> {
    // Before any run: what cannot be taken apart need not be sampled.
    let images = open(launches.map(|l| l.program.as_path()))?;
    let runs = [sampled(launches[0], limits)?, sampled(launches[1], limits)?];
    same_hot_code(&images, &runs)
}

/// Sampled runs of one arm as one, until there are enough samples.
fn sampled(launch: &Launch, limits: &Limits<'_>) -> Option<SampleRun> {
    let take = || sample(launch, &SampleSettings::default(), limits).ok();
    let mut all = take()?;
    for _ in 1..MOST_RUNS {
        if all.total >= ENOUGH_SAMPLES {
            break;
        }
        add(&mut all, take()?);
    }
    Some(all)
}

fn add(all: &mut SampleRun, run: SampleRun) {
    all.total += run.total;
    for object in run.samples {
        let known = all
            .samples
            .iter_mut()
            .find(|o| o.path == object.path && o.is_main_program == object.is_main_program);
        match known {
            Some(known) => object
                .hits
                .into_iter()
                .for_each(|(offset, hits)| *known.hits.entry(offset).or_insert(0) += hits),
            None => all.samples.push(object),
        }
    }
}

/// Whether the samples of both runs fall into code that both have alike.
#[must_use]
pub fn same_hot_code(images: &[Image; 2], runs: &[SampleRun; 2]) -> Option<SameHotCode> {
    let matches = match_functions(&images[0], &images[1]);
    let alike: Vec<&FunctionMatch<'_>> = matches.iter().filter(|m| is_alike(m.change)).collect();
    let known = [0, 1].map(|arm| alike.iter().filter_map(|m| start(m, arm)).collect());
    let booked = [0, 1].map(|arm| book(&images[arm], &runs[arm], &runs[1 - arm], &known[arm]));
    let is_hot = |m: &FunctionMatch<'_>| {
        [0, 1].iter().any(|arm| start(m, *arm).is_some_and(|s| booked[*arm].hot.contains(&s)))
    };
    let hot: Vec<&&FunctionMatch<'_>> = alike.iter().filter(|m| is_hot(m)).collect();
    let share = |arm: usize| booked[arm].alike as f64 / runs[arm].total.max(1) as f64;
    let found = SameHotCode {
        samples: [0, 1].map(|arm: usize| runs[arm].total),
        alike_share: [share(0), share(1)],
        functions: hot.len() as u64,
        moved: hot.iter().filter(|m| m.change != Change::Same).count() as u64,
    };
    let enough = found.samples.iter().all(|n| *n >= FEWEST_SAMPLES);
    (enough && found.alike_share.iter().all(|s| *s >= ALIKE_SHARE)).then_some(found)
}

/// Where the function of a match starts in that arm.
fn start(pair: &FunctionMatch<'_>, arm: usize) -> Option<Svma> {
    [pair.before, pair.after][arm].map(|f| f.start)
}

/// Samples of one arm in code that the other has as well.
struct Booked {
    alike: u64,
    /// The functions of the program among it.
    hot: BTreeSet<Svma>,
}

fn book(image: &Image, run: &SampleRun, other: &SampleRun, known: &BTreeSet<Svma>) -> Booked {
    let mut booked = Booked { alike: 0, hot: BTreeSet::new() };
    for object in &run.samples {
        if object.is_main_program {
            for (offset, hits) in &object.hits {
                let at = image.svma_of(*offset).and_then(|at| image.function_at(at));
                if let Some(function) = at.filter(|f| known.contains(&f.start)) {
                    booked.alike += hits;
                    booked.hot.insert(function.start);
                }
            }
        } else if is_one_file(object) && other.samples.iter().any(|o| o.path == object.path) {
            booked.alike += object.total();
        }
    }
    booked
}

/// Whether a path means the same bytes for both arms: code in memory has names, too.
fn is_one_file(object: &ObjectSamples) -> bool {
    object.path.is_file() || object.path.as_os_str() == "[vdso]"
}

fn is_alike(change: Change) -> bool {
    matches!(change, Change::Same | Change::Moved { .. })
}

fn open(paths: [&Path; 2]) -> Option<[Image; 2]> {
    let small = |p: &Path| p.metadata().is_ok_and(|m| m.len() <= MOST_BYTES);
    if !paths.into_iter().all(small) {
        return None;
    }
    let [a, b] = paths;
    Some([Image::open(a).ok()?, Image::open(b).ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture::{program, ring_loop, starts};
    use crate::model::FileOffset;
    use crate::run::child::{Exit, Status};
    use crate::run::sample::Engine;

    type Function<'a> = (&'a str, &'a [u8]);

    /// A program, and a run with so many samples at the start of each function, and in a library.
    fn arm(functions: &[(Function<'_>, u64)], library: &str, hits: u64) -> (Image, SampleRun) {
        let code: Vec<Function<'_>> = functions.iter().map(|(f, _)| *f).collect();
        let offset = |at: Svma| FileOffset(at.0 - 0x40_0000);
        let hot = starts(&code).into_iter().map(offset).zip(functions.iter().map(|f| f.1));
        let object = |path: &str, is_main_program, hits: Vec<(FileOffset, u64)>| ObjectSamples {
            path: path.into(),
            is_main_program,
            hits: hits.into_iter().filter(|h| h.1 > 0).collect(),
        };
        let samples = vec![
            object("/invented", true, hot.collect()),
            object(library, false, vec![(FileOffset(16), hits)]),
        ];
        let run = SampleRun {
            engine: Engine::PerfClock,
            period_ns: 200_000,
            total: samples.iter().map(ObjectSamples::total).sum(),
            samples,
            lost: 0,
            generated: std::collections::BTreeMap::new(),
            unmapped: 0,
            kernel: None,
            exit: Exit::of(Status::Code(0)),
            stacks: None,
            notes: Vec::new(),
        };
        (Image::parse(Path::new("invented"), program(&code)).unwrap(), run)
    }

    fn judged(a: (Image, SampleRun), b: (Image, SampleRun)) -> Option<SameHotCode> {
        same_hot_code(&[a.0, b.0], &[a.1, b.1])
    }

    #[test]
    fn hot_code_is_the_same_when_only_cold_code_changed() {
        let (hot, other) = (ring_loop(true), ring_loop(false));
        // `cold` grows, so that `decode` behind it moves.
        let a = || arm(&[(("cold", &[0xc3]), 0), (("decode", &hot), 900)], "/bin/true", 100);
        let b = |cold_hits| {
            let functions = [(("cold", other.as_slice()), cold_hits), (("decode", &hot), 900)];
            arm(&functions, "/bin/true", 100)
        };
        let same = judged(a(), b(5)).unwrap();
        assert_eq!((same.functions, same.moved, same.samples), (1, 1, [1000, 1005]));
        assert!(same.alike_share[0] == 1.0 && same.alike_share[1] < 1.0);
        // Too hot to be cold.
        assert_eq!(judged(a(), b(50)), None);
    }

    #[test]
    fn runs_add_up() {
        let hot = ring_loop(true);
        let run = |hits, library| arm(&[(("decode", &hot), hits)], library, 5).1;
        let mut all = run(10, "/lib/a");
        add(&mut all, run(20, "/lib/a"));
        add(&mut all, run(30, "/lib/b"));
        let totals: Vec<u64> = all.samples.iter().map(ObjectSamples::total).collect();
        assert_eq!((all.total, totals), (75, vec![60, 10, 5]));
    }

    #[test]
    fn nothing_is_said_about_few_samples_or_code_that_no_file_holds() {
        let hot = ring_loop(true);
        let with = |hits, library, others| arm(&[(("decode", &hot), hits)], library, others);
        assert!(judged(with(900, "/bin/true", 99), with(900, "/bin/true", 99)).is_some());
        assert_eq!(judged(with(90, "/bin/true", 0), with(900, "/bin/true", 0)), None);
        assert_eq!(judged(with(900, "/no/file", 99), with(900, "/no/file", 99)), None);
        // One arm's library is not the other's.
        assert_eq!(judged(with(900, "/bin/true", 99), with(900, "/bin/false", 99)), None);
    }

    #[test]
    fn a_hundred_samples_and_ninety_nine_of_a_hundred_alike_are_enough() {
        let (hot, other) = (ring_loop(true), ring_loop(false));
        let a = |hits| arm(&[(("cold", &[0xc3]), 0), (("decode", &hot), hits)], "/bin/true", 0);
        let b = |cold, hits| {
            arm(&[(("cold", other.as_slice()), cold), (("decode", &hot), hits)], "/bin/true", 0)
        };
        assert!(judged(a(100), b(0, 100)).is_some());
        assert_eq!(judged(a(99), b(0, 100)), None);
        assert_eq!(judged(a(100), b(0, 99)), None);
        let most = judged(a(100), b(1, 99)).unwrap();
        assert_eq!(most.alike_share, [1.0, 0.99]);
        assert_eq!(judged(a(100), b(2, 98)), None);
        let said = most.to_string();
        assert!(
            said.contains("100.0 % of A's 100") && said.contains("99.0 % of B's 100"),
            "{said}"
        );
        // Where it did not move, none has.
        let still = judged(a(100), a(100)).unwrap();
        assert_eq!((still.functions, still.moved), (1, 0));
    }

    #[test]
    fn the_kernels_page_is_one_file_and_what_has_no_file_is_none() {
        let of = |path: &str| {
            is_one_file(&ObjectSamples {
                path: path.into(),
                is_main_program: false,
                hits: [].into(),
            })
        };
        assert!(of("[vdso]") && of("/bin/true") && !of("[heap]") && !of("/no/file"));
    }

    #[test]
    fn a_program_is_the_same_as_itself_and_text_is_no_program() {
        let own = Path::new("/bin/true");
        let same = same_code(own, own).expect("a system has /bin/true");
        assert!(same.functions > 0 && same.moved == 0);
        assert_eq!(same_code(own, Path::new("/etc/passwd")), None);
    }
}
