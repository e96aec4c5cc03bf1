//! The models against invented windows and against naive ones that share no code with them.

use proptest::prelude::*;

use super::super::window::tests::window;
use super::*;
use crate::code::fixture;
use crate::machine::{Design, Microarchitecture};
use crate::model::Avma;

fn lake() -> DecodedCache {
    Design::of(Microarchitecture::CascadeLake).decoded_cache().unwrap().value
}

fn program(code: &[u8]) -> Image {
    fixture::image(&[("f", code)]).unwrap()
}

/// Nothing in it is fused.
fn nops() -> Image {
    program(&[0x90; 64])
}

/// Windows of 8 instructions (two entries) 1024 bytes apart go to one set of eight entries.
#[test]
fn four_windows_of_two_entries_fit_and_five_do_not() {
    for (windows, misses) in [(4, 0), (5, 5)] {
        let blocks: Vec<(u64, usize)> = (0..windows).map(|i| (1024 * i, 8)).collect();
        let order: Vec<u32> = (0..windows as u32).collect();
        let found = decoded_use(&nops(), &window(&blocks, &order), lake(), Fusion::SandyBridge);
        assert_eq!((found.windows as u64, found.entries), (windows, [2 * windows; 2]));
        let overfull = u32::from(misses > 0);
        assert_eq!((found.misses, found.overfull_sets), ([misses; 2], [overfull; 2]));
    }
}

/// A window of the program from its first byte on, with instructions of these sizes.
fn of_sizes(image: &Image, sizes: &[u8], order: &[u32]) -> TracedWindow {
    let start = image.functions()[0].start;
    let mut at = start;
    let mut block = Vec::new();
    for size in sizes {
        block.push(WindowInsn { avma: Avma(at.0), svma: Some(at), size_bytes: *size });
        at = at.offset(i64::from(*size));
    }
    let mut traced = window(&[(0, 1)], order);
    traced.blocks = vec![block];
    traced
}

#[test]
fn what_is_too_dense_is_decoded_each_time() {
    // 19 instructions of one byte in one window: four entries of six.
    let dense = of_sizes(&nops(), &[1; 19], &[0, 0]);
    let mut elsewhere = dense.clone();
    elsewhere.blocks.push(window(&[(1024, 1)], &[0]).blocks[0].clone());
    elsewhere.order = vec![0, 1, 0, 1];
    elsewhere.counts = vec![2, 2];
    let found = decoded_use(&nops(), &elsewhere, lake(), Fusion::SandyBridge);
    assert_eq!((found.too_dense_windows, found.misses), ([1; 2], [2; 2]));
}

/// Seven instructions, of which a compare and a jump are one operation: one entry, not two.
#[test]
fn a_compare_and_its_jump_are_one_operation_when_packed() {
    // 5 * nop, cmp eax, ecx, jne
    let image = program(&[0x90, 0x90, 0x90, 0x90, 0x90, 0x39, 0xc8, 0x75, 0x00]);
    let sizes = [1, 1, 1, 1, 1, 2, 2];
    let found = decoded_use(&image, &of_sizes(&image, &sizes, &[0]), lake(), Fusion::SandyBridge);
    assert_eq!((found.windows, found.entries), (1, [1, 2]));
    // The same sizes without a compare.
    let found = decoded_use(&nops(), &of_sizes(&nops(), &sizes, &[0]), lake(), Fusion::SandyBridge);
    assert_eq!(found.entries, [2, 2]);
}

#[test]
fn a_window_that_is_entered_at_two_places_has_entries_for_both_when_split() {
    // One window: entered at its start and at its fifth instruction, with a stay elsewhere between.
    let blocks = [(0, 8), (16, 4), (512, 1)];
    let found = decoded_use(&nops(), &window(&blocks, &[0, 2, 1, 2]), lake(), Fusion::SandyBridge);
    assert_eq!((found.windows, found.entries), (2, [3, 4]));
    // A block that follows the one before without a jump goes on in the same entries.
    let fallen =
        decoded_use(&nops(), &window(&[(0, 4), (16, 4)], &[0, 1]), lake(), Fusion::SandyBridge);
    assert_eq!(fallen.entries, [2, 2]);
}

/// Every instruction of two passes: (address, size).
fn instructions(traced: &TracedWindow) -> Vec<(u64, u64)> {
    let pass = || traced.order.iter().flat_map(|id| traced.blocks[*id as usize].clone());
    pass().chain(pass()).map(|i| (i.avma.0, u64::from(i.size_bytes))).collect()
}

/// Packed, by distances: a window is still there unless what else of its set was used since then
/// needs, together with it, more entries than there are.
fn naive_packed(traced: &TracedWindow, shape: DecodedCache) -> u64 {
    let all = instructions(traced);
    let needed = |window: u64| {
        let mut own: Vec<u64> = all.iter().map(|(at, _)| *at).collect();
        own.retain(|at| at / shape.window_bytes == window);
        own.sort_unstable();
        own.dedup();
        (own.len() as u32).div_ceil(shape.entry_operations)
    };
    let mut visits: Vec<u64> = all.iter().map(|(at, _)| at / shape.window_bytes).collect();
    visits.dedup();
    // The second pass begins behind the visits of the first; one may be common to both.
    let half = all.len() / 2;
    let mut first: Vec<u64> = all[..half].iter().map(|(at, _)| at / shape.window_bytes).collect();
    first.dedup();
    (first.len()..visits.len())
        .filter(|&now| {
            let window = visits[now];
            let own = needed(window);
            let Some(before) = visits[..now].iter().rposition(|w| *w == window) else {
                return true;
            };
            let mut others = visits[before + 1..now].to_vec();
            others.retain(|w| w % u64::from(shape.sets) == window % u64::from(shape.sets));
            others.sort_unstable();
            others.dedup();
            let fits = |w: &u64| needed(*w) <= most_entries(shape);
            let taken: u32 = others.iter().filter(|w| fits(w)).map(|w| needed(*w)).sum();
            own > most_entries(shape) || taken + own > shape.ways
        })
        .count() as u64
}

/// Split, by times of last use: (entered at, entries, last used).
fn naive_split(traced: &TracedWindow, shape: DecodedCache) -> u64 {
    let mut stays: Vec<Vec<(u64, u64)>> = Vec::new();
    for (at, size) in instructions(traced) {
        match stays.last_mut() {
            Some(stay)
                if stay[0].0 / shape.window_bytes == at / shape.window_bytes
                    && stay[stay.len() - 1].0 + stay[stay.len() - 1].1 == at =>
            {
                stay.push((at, size));
            }
            _ => stays.push(vec![(at, size)]),
        }
    }
    let entries = |start: u64| {
        let longest = stays.iter().filter(|s| s[0].0 == start).map(Vec::len).max().unwrap();
        (longest as u32).div_ceil(shape.entry_operations)
    };
    let window = |start: u64| start / shape.window_bytes;
    let mut held: Vec<(u64, usize)> = Vec::new();
    let (mut misses, mut first_half) = (0, 0);
    for (now, stay) in stays.iter().enumerate() {
        if now == stays.len() / 2 {
            first_half = misses;
        }
        let start = stay[0].0;
        if entries(start) > most_entries(shape) {
            misses += 1;
        } else if let Some(hit) = held.iter_mut().find(|(at, _)| *at == start) {
            hit.1 = now;
        } else {
            misses += 1;
            held.push((start, now));
            let same_window = |at: u64| window(at) == window(start);
            let same_set = |at: u64| {
                window(at) % u64::from(shape.sets) == window(start) % u64::from(shape.sets)
            };
            let limits: [(&dyn Fn(u64) -> bool, u32); 2] =
                [(&same_window, most_entries(shape)), (&same_set, shape.ways)];
            for (counts, room) in limits {
                let taken = |held: &[(u64, usize)]| {
                    held.iter().filter(|h| counts(h.0)).map(|h| entries(h.0)).sum::<u32>()
                };
                while taken(&held) > room {
                    let oldest = held.iter().filter(|h| counts(h.0)).min_by_key(|h| h.1).unwrap().0;
                    held.retain(|h| h.0 != oldest);
                }
            }
        }
    }
    misses - first_half
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Windows that are a few sets of few entries, blocks of 1 to 20 instructions of four bytes.
    #[test]
    fn both_models_are_what_they_say(
        blocks in prop::collection::vec((0_u64..48, 1_usize..20), 1..12),
        runs in prop::collection::vec(0_usize..12, 1..60),
        most in prop::option::of(1_u32..4),
    ) {
        let shape = DecodedCache {
            sets: 2, ways: 4, entry_operations: 3, window_bytes: 32, most_entries: most,
        };
        let blocks: Vec<(u64, usize)> = blocks.into_iter().map(|(at, n)| (4 * at, n)).collect();
        let mut order: Vec<u32> = runs.iter().map(|i| (i % blocks.len()) as u32).collect();
        // A jump back to the start, so that both passes begin with a stay of their own.
        order.push(blocks.len() as u32);
        let mut all = blocks.clone();
        all.push((4096, 1));
        let traced = window(&all, &order);
        let found = decoded_use(&nops(), &traced, shape, Fusion::SandyBridge);
        prop_assert_eq!(found.misses[0], naive_packed(&traced, shape));
        prop_assert_eq!(found.misses[1], naive_split(&traced, shape));
    }
}
