//! Invented builds whose difference is known.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::code::fixture;

fn image(functions: &[(&str, &[u8])]) -> Vec<Image> {
    let path = PathBuf::from("p");
    vec![Image::parse(&path, fixture::program(functions)).unwrap()]
}

fn difference(before: &[(&str, &[u8])], after: &[(&str, &[u8])]) -> SizeDifference {
    let (before, after) = (image(before), image(after));
    let build = |images| Build::of(Path::new("p"), images);
    SizeDifference::of(&build(&before), &build(&after))
}

/// mov ecx, 6; rep stosq; ret
const WITH_REP: &[u8] = &[0xb9, 6, 0, 0, 0, 0xf3, 0x48, 0xab, 0xc3];
/// Six times mov [rdi], rax with a displacement; ret
const WITH_STORES: &[u8] = &[
    0x48, 0x89, 0x07, 0x48, 0x89, 0x47, 8, 0x48, 0x89, 0x47, 16, 0x48, 0x89, 0x47, 24, 0x48, 0x89,
    0x47, 32, 0x48, 0x89, 0x47, 40, 0xc3,
];

#[test]
fn a_function_that_lost_its_string_instruction_says_so() {
    let found = difference(
        &[("clear", WITH_REP), ("other", &[0xc3])],
        &[("clear", WITH_STORES), ("other", &[0xc3])],
    );
    assert_eq!((found.counts.grew, found.counts.same), (1, 1));
    let clear = &found.functions[0];
    assert_eq!((clear.name.as_str(), clear.change_bytes), ("clear", 15));
    let removed = StringChange { instruction: "rep stosq".into(), size_bytes: Some(48), sites: 1 };
    assert_eq!(clear.why.rep_removed, [removed]);
    assert_eq!(found.rep_sites, [1, 0]);
    assert_eq!(found.lost_rep, StringEffect { functions: 1, sites: 1, change_bytes: 15 });
    assert_eq!(found.change_bytes(), 15);
}

#[test]
fn a_function_that_became_its_clone_has_not_changed() {
    let found = difference(&[("f", WITH_REP)], &[("f.isra.0", WITH_REP)]);
    assert!(found.functions.is_empty(), "{found:?}");
    // Nor one that is in two parts now, of which one is cold: by its first half.
    let found = difference(
        &[("f", &[0x90, 0x31, 0xc0, 0xc3])],
        &[("f", &[0x31, 0xc0, 0xc3]), ("f.cold", &[0x31, 0xc0, 0xc3])],
    );
    assert_eq!((found.counts.new, found.counts.gone), (0, 0));
    assert_eq!((found.hot_change_bytes, found.cold_change_bytes), (-1, 3));
    assert_eq!(found.functions[0].after.unwrap().parts, 2);
}

#[test]
fn a_callee_that_is_gone_from_a_function_that_grew_was_inlined() {
    // call g (the second function, 16 bytes on); ret, and the body instead.
    let calls = [0xe8, 11, 0, 0, 0, 0xc3];
    let before: [(&str, &[u8]); 2] = [("f", &calls), ("g", &[0x31, 0xc0, 0xc3])];
    let after: [(&str, &[u8]); 1] =
        [("f", &[0x31, 0xc0, 0x31, 0xc9, 0x31, 0xd2, 0x31, 0xc0, 0xc3])];
    let found = difference(&before, &after);
    let f = found.functions.iter().find(|f| f.name == "f").unwrap();
    assert_eq!(f.why.inlined, ["g"]);
    assert!(f.why.calls_removed.is_empty());
    let back = difference(&after, &before);
    let f = back.functions.iter().find(|f| f.name == "f").unwrap();
    assert_eq!(f.why.split_off, ["g"]);
}

/// call of the second function, 16 bytes on; inc eax as often as asked for; ret
fn calling(incs: usize) -> Vec<u8> {
    [vec![0xe8, 11, 0, 0, 0], counting(incs)].concat()
}

/// inc eax as often as asked for; ret
fn counting(incs: usize) -> Vec<u8> {
    [[0xff, 0xc0].repeat(incs), vec![0xc3]].concat()
}

#[test]
fn calls_come_and_go_and_only_growth_inlines_and_only_shrinking_splits_off() {
    let why = |before: &[(&str, &[u8])], after: &[(&str, &[u8])]| {
        let found = difference(before, after);
        let f = found.functions.into_iter().find(|f| f.name == "f").unwrap();
        let calls = |all: &[CallChange]| all.iter().map(|c| c.callee.clone()).collect::<Vec<_>>();
        let (removed, added) = (calls(&f.why.calls_removed), calls(&f.why.calls_added));
        (f.change_bytes, [removed, added, f.why.inlined, f.why.split_off])
    };
    let g: (&str, &[u8]) = ("g", &[0x31, 0xc0, 0xc3]);
    let (called, short, long) = (calling(2), counting(1), counting(6));
    let one = |i: usize| {
        let mut found: [Vec<String>; 4] = Default::default();
        found[i].push("g".into());
        found
    };
    // Shorter without the call: nothing was inlined. Longer without it: it was.
    assert_eq!(why(&[("f", &called), g], &[("f", &short), g]), (-7, one(0)));
    assert_eq!(why(&[("f", &called), g], &[("f", &long), g]), (3, one(2)));
    // A call of what was there before splits nothing off, and neither does a function that grew.
    assert_eq!(why(&[("f", &long), g], &[("f", &called), g]), (-3, one(1)));
    assert_eq!(why(&[("f", &short)], &[("f", &called), g]), (7, one(1)));
    assert_eq!(why(&[("f", &long)], &[("f", &called), g]), (-3, one(3)));
}

#[test]
fn string_instructions_add_up_over_functions() {
    let found = difference(
        &[("clear", WITH_STORES), ("fill", WITH_STORES), ("same", WITH_REP)],
        &[("clear", WITH_REP), ("fill", WITH_REP), ("same", WITH_REP)],
    );
    assert_eq!(found.rep_sites, [1, 3]);
    assert_eq!(found.gained_rep, StringEffect { functions: 2, sites: 2, change_bytes: -30 });
    assert_eq!((found.lost_rep, found.counts.same), (StringEffect::default(), 1));
    assert_eq!((found.hot_change_bytes, found.counts.shrank), (-30, 2));
    // A function that is new has no string instruction instead of something.
    let new = difference(&[("same", WITH_REP)], &[("same", WITH_REP), ("clear", WITH_REP)]);
    assert_eq!((new.rep_sites, new.gained_rep), ([1, 2], StringEffect::default()));
    let size =
        FunctionSize { hot_bytes: 1, cold_bytes: 2, init_bytes: 4, ..FunctionSize::default() };
    assert_eq!(size.code_bytes(), 7);
}

#[test]
fn fewer_than_half_of_the_functions_are_hardly_one_program() {
    let images = image(&[("a", &[0x31, 0xc0, 0xc3]), ("b", &[0x31, 0xc9, 0xc3])]);
    let build = Build::of(Path::new("p"), &images);
    assert_eq!(warnings(&build, &build, 1), Vec::<String>::new());
    let said = warnings(&build, &build, 0);
    assert!(said.len() == 1 && said[0].starts_with("only 0 of 2 functions"), "{said:?}");
}

#[test]
fn a_renamed_function_is_found_by_its_code() {
    let found = difference(&[("old", WITH_STORES)], &[("new", WITH_STORES)]);
    assert_eq!(found.counts.same, 1, "{found:?}");
}

#[test]
fn padding_under_a_name_is_no_new_function() {
    let found = difference(&[("f", &[0xc3])], &[("__pfx_f", &[0x90; 16]), ("f", &[0xc3])]);
    assert_eq!((found.counts.new, found.counts.same), (0, 1));
    assert_eq!((found.alignment_change_bytes, found.change_bytes()), (16, 0));
}

#[test]
fn section_names_fold_into_families() {
    assert_eq!(family(".text.unlikely.f"), ".text.unlikely");
    assert_eq!(family(".text.f"), ".text");
    assert_eq!(family(".textual"), ".textual");
    assert_eq!(family(".rodata.str1.1"), ".rodata");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the functions: the parts of the difference add up to what the symbols say, and the
    /// way back is the same with the other sign.
    #[test]
    fn the_parts_add_up(
        sizes in prop::collection::vec((0_usize..4, 1_usize..40, 1_usize..40), 1..12),
    ) {
        const NAMES: [&str; 12] =
            ["a", "b", "c.part.0", "c", "d", "d.cold", "e", "f", "g.isra.1", "g", "h", "i"];
        let body = |n: usize| {
            let mut code = [0x31, 0xc0].repeat(n);
            code.push(0xc3);
            code
        };
        let side = |keep: fn(usize) -> bool, pick: fn(&(usize, usize, usize)) -> usize| {
            sizes.iter().zip(NAMES).filter(|(s, _)| keep(s.0))
                .map(|(s, name)| (name, body(pick(s)))).collect::<Vec<_>>()
        };
        let before = side(|kind| kind != 0, |s| s.1);
        let after = side(|kind| kind != 1, |s| if s.0 == 2 { s.1 } else { s.2 });
        prop_assume!(!before.is_empty() && !after.is_empty());
        let borrow = |side: &[(&'static str, Vec<u8>)]| -> Vec<Image> {
            let all: Vec<(&str, &[u8])> = side.iter().map(|(n, c)| (*n, c.as_slice())).collect();
            image(&all)
        };
        let (old, new) = (borrow(&before), borrow(&after));
        let path = Path::new("p");
        let (old, new) = (Build::of(path, &old), Build::of(path, &new));
        let there = SizeDifference::of(&old, &new);
        let naive = new.function_bytes() as i64 - old.function_bytes() as i64;
        prop_assert_eq!(there.change_bytes() + there.alignment_change_bytes, naive);
        let by_function: i64 = there.functions.iter().map(|f| f.change_bytes).sum();
        prop_assert_eq!(by_function, there.change_bytes());
        let back = SizeDifference::of(&new, &old);
        prop_assert_eq!(back.change_bytes(), -there.change_bytes());
        prop_assert_eq!(back.counts.new, there.counts.gone);
    }
}
