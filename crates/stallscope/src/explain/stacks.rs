//! Who calls what takes longer: the call stacks of both builds under the names of their functions.
//!
//! Functions of the program go by the names that [`super::rows`] has for them, so that the same function of both builds is one. A
//! function that calls itself is one frame. A stack that does not reach where its thread started stands under a frame that says so.

use std::collections::HashMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::callers::called_from;
use super::rows::{self, FunctionRow};
use super::{CalledFrom, Heat};
use crate::code::Image;
use crate::compare::library_name;
use crate::layout::FunctionMatch;
use crate::model::{Measurement, Svma};
use crate::run::sample;

/// Different stacks that are kept, the heaviest.
const MOST_STACKS: usize = 2000;
/// Of them, and of the names in them: what they take as text.
const MOST_BYTES: usize = 1 << 20;
/// A number on a line of its own.
const BYTES_OF_A_FRAME: usize = 20;
/// From this part of cut-off stacks on it is said, in per cent.
const MANY_CUT_OFF: f64 = 5.0;
pub(super) const CUT_OFF: &str = "(start not reached)";

/// A function in call stacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct StackFunction {
    /// Its name; that of its file where that is all that is known.
    pub name: String,
    /// The file that it is in; absent for the program's own.
    pub file: Option<String>,
}

impl std::fmt::Display for StackFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.file.as_ref().filter(|file| **file != self.name) {
            Some(file) => write!(f, "{} ({file})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// One call stack of both builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoldedStack {
    /// From where the thread started to the function that was executed, as places in [`CallStacks::functions`].
    pub frames: Vec<u32>,
    /// How often it was seen in all sampled runs of BEFORE and of AFTER.
    pub samples: [u64; 2],
}

/// The call stacks of both builds, taken of a share of the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallStacks {
    /// The functions in them.
    pub functions: Vec<StackFunction>,
    /// The heaviest of them first.
    pub stacks: Vec<FoldedStack>,
    /// All that were taken of BEFORE and of AFTER.
    pub samples: [u64; 2],
    /// User time of a run of BEFORE and of AFTER that one stands for, in nanoseconds.
    pub ns_per_sample: [f64; 2],
    /// Of all, those that do not reach where their thread started.
    pub cut_off: [u64; 2],
    /// Of all, those that were followed by frame pointers in part, which leave out what calls a function without one.
    pub by_frame_pointers: [u64; 2],
    /// Of all, those that are not among `stacks`.
    pub left_out: [u64; 2],
    /// From where the place with most of the difference is called.
    pub called_from: Option<CalledFrom>,
}

impl CallStacks {
    /// Folds the stacks of both arms; `user` is their time in user code per run. None where no stacks were taken of one.
    pub(super) fn of(
        images: &[Image; 2],
        matches: &[FunctionMatch<'_>],
        heats: &[Heat; 2],
        rows: &[FunctionRow],
        user: &[Measurement; 2],
        difference_ns: f64,
    ) -> Option<Self> {
        let sum = |of: fn(&sample::Stacks) -> u64| {
            heats.each_ref().map(|heat| heat.stacks.iter().map(of).sum::<u64>())
        };
        let samples = sum(|stacks| stacks.taken);
        if samples.contains(&0) {
            return None;
        }
        let mut names = Names::new(images, matches);
        let mut all: HashMap<Vec<u32>, [u64; 2]> = HashMap::new();
        for (arm, heat) in heats.iter().enumerate() {
            for stacks in &heat.stacks {
                names.fold(arm, stacks, &mut all);
            }
        }
        let mut all: Vec<FoldedStack> =
            all.into_iter().map(|(frames, samples)| FoldedStack { frames, samples }).collect();
        let ns_per_sample = [0, 1].map(|arm| user[arm].value / samples[arm] as f64);
        let weight = |stack: &FoldedStack| {
            let [before, after] = [0, 1].map(|arm| stack.samples[arm] as f64 * ns_per_sample[arm]);
            before.max(after)
        };
        all.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then_with(|| a.frames.cmp(&b.frames)));
        let most = rows::most(rows);
        let called_from = most.and_then(|row| {
            called_from(&row.place, &all, &names.functions, samples, user, difference_ns)
        });
        let mut left_out = sum(|stacks| stacks.left_out);
        let (functions, stacks) = kept(&names.functions, all, &mut left_out);
        Some(Self {
            functions,
            stacks,
            samples,
            ns_per_sample,
            cut_off: sum(|stacks| stacks.cut_off),
            by_frame_pointers: sum(|stacks| stacks.by_frame_pointers),
            left_out,
            called_from,
        })
    }

    /// What to know of them before believing them, if that is much.
    pub(super) fn note(&self) -> Option<String> {
        let percent = |of: [u64; 2]| {
            100.0 * of.iter().sum::<u64>() as f64 / self.samples.iter().sum::<u64>().max(1) as f64
        };
        let (cut_off, by_pointers) = (percent(self.cut_off), percent(self.by_frame_pointers));
        (cut_off.max(by_pointers) >= MANY_CUT_OFF).then(|| {
            format!(
                "{cut_off:.0} % of the call stacks do not reach where their thread started, and {by_pointers:.0} % were followed \
                 by frame pointers in part, which can leave out a caller"
            )
        })
    }
}

/// The names of the functions, which stacks have as numbers.
struct Names<'a> {
    images: &'a [Image; 2],
    /// The names that rows have for functions, by where these start in each build.
    shown: [HashMap<Svma, String>; 2],
    libraries: HashMap<&'a Path, Option<Image>>,
    numbers: HashMap<StackFunction, u32>,
    functions: Vec<StackFunction>,
}

impl<'a> Names<'a> {
    fn new(images: &'a [Image; 2], matches: &[FunctionMatch<'_>]) -> Self {
        let mut shown = [HashMap::new(), HashMap::new()];
        for m in matches {
            let name = m.after.or(m.before).map(|f| f.name()).unwrap_or_default();
            for (shown, function) in shown.iter_mut().zip([m.before, m.after]) {
                shown.extend(function.map(|function| (function.start, name.clone())));
            }
        }
        let (libraries, numbers) = (HashMap::new(), HashMap::new());
        Self { images, shown, libraries, numbers, functions: Vec::new() }
    }

    /// Adds the stacks of a run of one arm to all.
    fn fold(
        &mut self,
        arm: usize,
        stacks: &'a sample::Stacks,
        all: &mut HashMap<Vec<u32>, [u64; 2]>,
    ) {
        let mut known: HashMap<sample::Frame, u32> = HashMap::new();
        for (stack, count) in &stacks.counts {
            let mut frames = Vec::with_capacity(stack.frames.len() + 1);
            if !stack.is_whole {
                frames.push(self.number(StackFunction { name: CUT_OFF.into(), file: None }));
            }
            for frame in &stack.frames {
                let number = *known.entry(*frame).or_insert_with(|| {
                    let function = self.function(arm, stacks, *frame);
                    self.number(function)
                });
                frames.push(number);
            }
            frames.dedup();
            all.entry(frames).or_default()[arm] += count;
        }
    }

    fn number(&mut self, function: StackFunction) -> u32 {
        *self.numbers.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            (self.functions.len() - 1) as u32
        })
    }

    fn function(
        &mut self,
        arm: usize,
        stacks: &'a sample::Stacks,
        frame: sample::Frame,
    ) -> StackFunction {
        let path = frame.file.and_then(|file| stacks.files.get(file as usize));
        let path = path.map_or(Path::new(""), |path| path.as_path());
        let is_main = frame.file.is_some() && frame.file == stacks.main_program;
        let image = match is_main {
            true => Some(&self.images[arm]),
            false => {
                let open = || path.is_absolute().then(|| Image::open(path).ok()).flatten();
                self.libraries.entry(path).or_insert_with(open).as_ref()
            }
        };
        let function = image.and_then(|image| image.function_at(image.svma_of(frame.at)?));
        let name = function.map(|function| match self.shown[arm].get(&function.start) {
            Some(name) if is_main => name.clone(),
            _ => function.name(),
        });
        let file = library_name(path);
        let generated = frame.file.is_none().then(|| stacks.generated.get(&frame.at)).flatten();
        let name = name.or_else(|| generated.cloned());
        StackFunction {
            name: name.unwrap_or_else(|| file.clone()),
            file: (!is_main).then_some(file),
        }
    }
}

/// The heaviest stacks that there is room for, with their functions alone; the others are added to `left_out`.
fn kept(
    functions: &[StackFunction],
    all: Vec<FoldedStack>,
    left_out: &mut [u64; 2],
) -> (Vec<StackFunction>, Vec<FoldedStack>) {
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let (mut named, mut stacks, mut bytes) = (Vec::new(), Vec::new(), 0);
    for mut stack in all {
        if stacks.len() == MOST_STACKS || bytes > MOST_BYTES {
            left_out.iter_mut().zip(stack.samples).for_each(|(sum, n)| *sum += n);
            continue;
        }
        for frame in &mut stack.frames {
            *frame = *numbers.entry(*frame).or_insert_with_key(|old| {
                let function = &functions[*old as usize];
                bytes += function.name.len();
                named.push(function.clone());
                (named.len() - 1) as u32
            });
        }
        bytes += BYTES_OF_A_FRAME * stack.frames.len();
        stacks.push(stack);
    }
    (named, stacks)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::code::fixture;
    use crate::layout::match_functions;
    use crate::model::FileOffset;
    use crate::run::sample::{CallStack, Frame};

    const FUNCTIONS: [&str; 3] = ["parse", "flush", "sum"];

    /// A program of three functions, behind `padding` bytes.
    fn image(padding: usize) -> Image {
        let before = vec![0x90; padding];
        let names = [("first", before.as_slice())].into_iter();
        let code: Vec<(&str, &[u8])> =
            names.chain(FUNCTIONS.map(|f| (f, &[0x90, 0xc3][..]))).collect();
        fixture::image(&code).unwrap()
    }

    /// A stack of functions of the program, or, by other names, of files that cannot be read.
    fn stacks(image: &Image, of: &[(&[&str], u64, bool)]) -> sample::Stacks {
        let mut files = vec!["/invented".into()];
        let mut frame = |name: &&str| {
            let own = image.functions().iter().find(|f| f.symbol == *name);
            let at = own.and_then(|function| image.offset_of(function.start));
            let file = at.map_or_else(
                || {
                    files.push(Path::new("/none").join(name));
                    files.len() - 1
                },
                |_| 0,
            );
            Frame { file: Some(file as u32), at: at.unwrap_or(FileOffset(64)) }
        };
        let mut counts = sample::Stacks::default().counts;
        for (names, count, is_whole) in of {
            let frames = names.iter().map(&mut frame).collect();
            *counts.entry(CallStack { frames, is_whole: *is_whole }).or_default() += count;
        }
        let taken = counts.values().sum();
        let cut_off = counts.iter().filter(|(s, _)| !s.is_whole).map(|(_, n)| n).sum();
        sample::Stacks {
            files,
            main_program: Some(0),
            counts,
            taken,
            cut_off,
            ..Default::default()
        }
    }

    fn folded(of: [&[(&[&str], u64, bool)]; 2]) -> HashMap<Vec<String>, [u64; 2]> {
        let images = [image(2), image(200)];
        let matches = match_functions(&images[0], &images[1]);
        let runs = [0, 1].map(|arm| stacks(&images[arm], of[arm]));
        let (mut names, mut all) = (Names::new(&images, &matches), HashMap::new());
        (0..2).for_each(|arm| names.fold(arm, &runs[arm], &mut all));
        let named = |frames: Vec<u32>| {
            frames.iter().map(|n| names.functions[*n as usize].to_string()).collect()
        };
        all.into_iter().map(|(frames, samples)| (named(frames), samples)).collect()
    }

    #[test]
    fn stacks_of_both_builds_meet_under_the_names_of_their_functions() {
        let before: [(&[&str], u64, bool); 2] =
            [(&["parse", "sum"], 5, true), (&["libc.so.6", "flush", "sum"], 2, true)];
        let after: [(&[&str], u64, bool); 3] = [
            (&["parse", "sum"], 7, true),
            (&["parse", "sum", "sum", "sum"], 1, true),
            (&["flush", "sum"], 3, false),
        ];
        let all = folded([&before, &after]);
        let of = |names: &[&str]| all[&names.iter().map(ToString::to_string).collect::<Vec<_>>()];
        assert_eq!(of(&["parse", "sum"]), [5, 8], "a call of itself is no frame");
        assert_eq!(of(&["libc.so", "flush", "sum"]), [2, 0]);
        assert_eq!(of(&[CUT_OFF, "flush", "sum"]), [0, 3]);
        assert_eq!(all.len(), 3);
    }

    fn function(name: &str) -> StackFunction {
        StackFunction { name: name.into(), file: None }
    }

    #[test]
    fn the_heaviest_are_kept_and_the_others_counted() {
        let functions: Vec<_> = (0..3000).map(|n| function(&n.to_string())).collect();
        let all: Vec<_> =
            (0..3000).map(|n| FoldedStack { frames: vec![2999 - n], samples: [2, 1] }).collect();
        let mut left_out = [5, 0];
        let (named, stacks) = kept(&functions, all, &mut left_out);
        assert_eq!((stacks.len(), named.len()), (MOST_STACKS, MOST_STACKS));
        assert_eq!(left_out, [2005, 1000]);
        assert_eq!((stacks[1].frames[0], named[1].name.as_str()), (1, "2998"));
        let long = function(&"x".repeat(MOST_BYTES + 1));
        let two = [0, 0].map(|n| FoldedStack { frames: vec![n], samples: [1, 1] });
        assert_eq!(kept(&[long], two.to_vec(), &mut left_out).1.len(), 1);
    }

    proptest! {
        #[test]
        fn folding_is_naming_and_adding_up(
            of in [0, 1].map(|_| prop::collection::vec((prop::collection::vec(0_usize..5, 1..6), 1_u64..9, any::<bool>()), 0..20)),
        ) {
            let names = ["parse", "flush", "sum", "x", "y"];
            let named: Vec<Vec<(Vec<&str>, u64, bool)>> = of
                .iter()
                .map(|arm| arm.iter().map(|(f, n, w)| (f.iter().map(|i| names[*i]).collect(), *n, *w)).collect())
                .collect();
            let mut naive: BTreeMap<Vec<String>, [u64; 2]> = BTreeMap::new();
            for (arm, stacks) in named.iter().enumerate() {
                for (frames, count, is_whole) in stacks {
                    let mut path: Vec<String> = if *is_whole { vec![] } else { vec![CUT_OFF.into()] };
                    for name in frames {
                        if path.last().is_none_or(|last| last != name) {
                            path.push((*name).into());
                        }
                    }
                    naive.entry(path).or_default()[arm] += count;
                }
            }
            let borrowed: Vec<Vec<(&[&str], u64, bool)>> =
                named.iter().map(|arm| arm.iter().map(|(f, n, w)| (f.as_slice(), *n, *w)).collect()).collect();
            let all: BTreeMap<_, _> = folded([&borrowed[0], &borrowed[1]]).into_iter().collect();
            prop_assert_eq!(all, naive);
        }
    }
}
