//! The shapes of the first story, its innocent neighbours, and a naive byte-by-byte model.

use super::*;
use crate::machine::{ForwardingRule, Microarchitecture};
use crate::model::Svma;

/// One loop around `body`: `body; dec r15; jnz body; ret`.
fn candidates(body: &[u8]) -> Vec<Candidate> {
    candidates_by(&Design::of(Microarchitecture::Zen5), body)
}

fn by_rule(forwarding_rule: ForwardingRule, body: &[u8]) -> Vec<Candidate> {
    let zen_5 = Design::of(Microarchitecture::Zen5);
    candidates_by(&Design { forwarding_rule, ..zen_5 }, body)
}

fn candidates_by(design: &Design, body: &[u8]) -> Vec<Candidate> {
    let mut bytes = body.to_vec();
    bytes.extend([0x49, 0xff, 0xcf, 0x0f, 0x85]);
    let back = -(bytes.len() as i32 + 4);
    bytes.extend(back.to_le_bytes());
    bytes.push(0xc3);
    let code = FunctionCode::decode(&bytes, Svma(0x1000));
    assert_eq!(code.loops.len(), 1);
    let addresses = Addresses::of(&code);
    each_loop(&code, &addresses, outermost(&code), design, None)
}

// Building blocks, written as an assembler would.
const STORE_LOW: &[u8] = &[0x44, 0x89, 0x5c, 0xdc, 0xf0]; // mov [rsp+rbx*8-0x10], r11d
const STORE_HIGH: &[u8] = &[0x44, 0x89, 0x74, 0xdc, 0xf4]; // mov [rsp+rbx*8-0xc], r14d
const STORE_BOTH: &[u8] = &[0x4c, 0x89, 0x5c, 0xdc, 0xf0]; // mov [rsp+rbx*8-0x10], r11
const NEXT: &[u8] = &[0xff, 0xc3, 0x83, 0xe3, 0x0f]; // inc ebx; and ebx, 15
const OTHER: &[u8] = &[0x41, 0x89, 0xc9, 0x41, 0x83, 0xe1, 0x0f]; // mov r9d, ecx; and r9d, 15
const LOAD_PAIR: &[u8] = &[0xf3, 0x42, 0x0f, 0x7e, 0x44, 0xcc, 0xf0]; // movq xmm0, [rsp+r9*8-0x10]
const LOAD_LOW: &[u8] = &[0x46, 0x8b, 0x54, 0xcc, 0xf0]; // mov r10d, [rsp+r9*8-0x10]

#[test]
fn two_narrow_stores_and_a_wide_load_under_another_index() {
    let found = candidates(&[OTHER, LOAD_PAIR, NEXT, STORE_LOW, STORE_HIGH].concat());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].certainty, Certainty::Probable);
    assert_eq!(found[0].sets.concat().len(), 2);
    assert_eq!(found[0].site, 2);
    // From the last store over the back edge: dec, jnz, mov, and.
    assert_eq!(found[0].distance_instructions, 5);
}

#[test]
fn matching_widths_are_innocent() {
    assert!(candidates(&[OTHER, LOAD_LOW, NEXT, STORE_LOW, STORE_HIGH].concat()).is_empty());
    assert!(candidates(&[OTHER, LOAD_PAIR, NEXT, STORE_BOTH].concat()).is_empty());
}

#[test]
fn one_half_alone_does_not_tile_the_load() {
    assert!(candidates(&[OTHER, LOAD_PAIR, NEXT, STORE_LOW].concat()).is_empty());
}

#[test]
fn an_array_that_is_also_written_whole_is_left_alone() {
    let body = [OTHER, LOAD_PAIR, NEXT, STORE_LOW, STORE_HIGH, NEXT, STORE_BOTH].concat();
    assert!(candidates(&body).is_empty());
}

#[test]
fn a_walk_with_a_constant_stride_never_comes_back() {
    // movq xmm0, [rsi+rcx*8]; mov [rsi+rcx*8], eax; mov [rsi+rcx*8+4], eax; inc rcx
    let body = [
        &[0xf3, 0x0f, 0x7e, 0x04, 0xce][..],
        &[0x89, 0x04, 0xce],
        &[0x89, 0x44, 0xce, 0x04],
        &[0x48, 0xff, 0xc1],
    ];
    assert!(candidates(&body.concat()).is_empty());
}

#[test]
fn a_walk_that_reads_the_element_before_is_definite() {
    // movq xmm0, [rsi+rcx*8-8]; mov [rsi+rcx*8], eax; mov [rsi+rcx*8+4], eax; inc rcx
    let body = [
        &[0xf3, 0x0f, 0x7e, 0x44, 0xce, 0xf8][..],
        &[0x89, 0x04, 0xce],
        &[0x89, 0x44, 0xce, 0x04],
        &[0x48, 0xff, 0xc1],
    ];
    let found = candidates(&body.concat());
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].certainty, found[0].sets.concat().len()), (Certainty::Definite, 2));
}

#[test]
fn fields_written_and_read_back_as_one() {
    // mov [rdi], eax; mov [rdi+4], ecx; mov rdx, [rdi]
    let found = candidates(&[0x89, 0x07, 0x89, 0x4f, 0x04, 0x48, 0x8b, 0x17]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].certainty, found[0].sets.concat().len()), (Certainty::Definite, 2));
    assert_eq!(found[0].distance_instructions, 1);
}

#[test]
fn near_and_certain_finds_weigh_more_and_a_ring_twice() {
    let weight = |body: &[u8]| candidates(body)[0].weight;
    // mov [rdi], eax; mov [rdi+4], ecx; nops; mov rdx, [rdi]
    let fields = |nops| {
        let body = [&[0x89, 0x07, 0x89, 0x4f, 0x04][..], &vec![0x90; nops], &[0x48, 0x8b, 0x17]];
        weight(&body.concat())
    };
    // Half a weight over the 64 instructions that stores are looked for in.
    assert_eq!([fields(0), fields(31)], [1.0 - 0.5 / 64.0, 1.0 - 16.0 / 64.0]);
    // Under a masked index, five instructions from the last store.
    let ring = weight(&[OTHER, LOAD_PAIR, NEXT, STORE_LOW, STORE_HIGH].concat());
    assert_eq!(ring, 2.0 * (1.0 - 2.5 / 64.0));
    let found = candidates(&[0x89, 0x07, 0x89, 0x4f, 0x04, 0x48, 0x8b, 0x17]);
    let design = Design::of(Microarchitecture::Zen5);
    let forwarded = design.store_forward_cycles.as_ref().map_or(4.0, |p| p.low_cycles);
    let high_cycles = design.store_forward_blocked_cycles.high_cycles - forwarded;
    assert_eq!((found[0].cycles_lost.low, found[0].cycles_lost.high), (0.0, high_cycles));
    let said = &found[0].mechanism;
    assert!(said.contains("this 64-bit load") && said.contains("2 stores of 32 bits"), "{said}");
    assert!(said.contains("at least 1 instruction earlier"), "{said}");
    assert!(
        found[0].remedy.contains("pieces of 32 bits")
            && found[0].remedy.contains("one piece of 64")
    );
}

#[test]
fn a_covering_store_in_between_serves_the_load() {
    // mov [rdi], eax; mov [rdi+4], ecx; mov [rdi], rbx; mov rdx, [rdi]
    let body = [0x89, 0x07, 0x89, 0x4f, 0x04, 0x48, 0x89, 0x1f, 0x48, 0x8b, 0x17];
    assert!(candidates(&body).is_empty());
}

#[test]
fn a_covering_store_that_cannot_serve_hides_older_ones() {
    // mov [rdi], eax; mov [rdi+4], ecx; movups [rdi-8], xmm0; mov rdx, [rdi]
    let body = [0x89, 0x07, 0x89, 0x4f, 0x04, 0x0f, 0x11, 0x47, 0xf8, 0x48, 0x8b, 0x17];
    let found = by_rule(ForwardingRule::SameStart, &body);
    assert_eq!((found.len(), found[0].sets.concat()), (1, vec![2]));
}

#[test]
fn stores_count_up_to_64_instructions_ahead_of_the_load() {
    // mov [rdi], eax; mov [rdi+4], ecx; nops; mov rdx, [rdi]
    let stores = |nops| {
        let body = [&[0x89, 0x07, 0x89, 0x4f, 0x04][..], &vec![0x90; nops], &[0x48, 0x8b, 0x17]];
        candidates(&body.concat()).first().map_or(0, |found| found.sets.concat().len())
    };
    assert_eq!([62, 63, 64].map(stores), [2, 1, 0]);
}

#[test]
fn two_halves_serve_a_load_where_the_design_joins_them() {
    // mov [rdi], eax; mov [rdi+4], ecx; mov rdx, [rdi]
    let fields = vec![0x89, 0x07, 0x89, 0x4f, 0x04, 0x48, 0x8b, 0x17];
    let array = [OTHER, LOAD_PAIR, NEXT, STORE_LOW, STORE_HIGH].concat();
    for body in [fields, array] {
        assert_eq!(by_rule(ForwardingRule::StartOrMiddle, &body).len(), 1);
        assert!(by_rule(ForwardingRule::StartOrMiddleOrHalves, &body).is_empty());
    }
}

#[test]
fn a_straddling_load_is_found() {
    // mov [rdi], rax; mov rdx, [rdi+4]
    let found = candidates(&[0x48, 0x89, 0x07, 0x48, 0x8b, 0x57, 0x04]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].sets.concat().len(), 1);
    // As wide as its store: no narrower load would be "as it is stored".
    assert!(!found[0].remedy.contains("pieces of 64"), "{}", found[0].remedy);
    assert!(found[0].remedy.contains("from where one store began"), "{}", found[0].remedy);
}

#[test]
fn no_remedy_asks_for_the_width_that_is_there() {
    // Every width of load behind every width of store, at every offset that overlaps.
    let store: [(u16, &[u8]); 3] =
        [(16, &[0x66, 0x89, 0x07]), (32, &[0x89, 0x07]), (64, &[0x48, 0x89, 0x07])];
    let load: [(u16, &[u8]); 3] =
        [(16, &[0x66, 0x8b, 0x57]), (32, &[0x8b, 0x57]), (64, &[0x48, 0x8b, 0x57])];
    let mut seen = 0;
    for ((stored, store), (loaded, load), at) in store
        .iter()
        .flat_map(|s| load.iter().map(move |l| (*s, *l)))
        .flat_map(|(s, l)| (-7_i8..8).map(move |at| (s, l, at)))
    {
        for found in candidates(&[store, load, &[at.cast_unsigned()]].concat()) {
            seen += 1;
            let same = format!("pieces of {loaded} ");
            assert!(!found.remedy.contains(&same), "{stored} {loaded} {at}: {}", found.remedy);
            assert!(stored < loaded || !found.remedy.contains("store it in one piece"));
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_call_in_between_ends_the_walk() {
    // mov [rdi], eax; mov [rdi+4], ecx; call next; mov rdx, [rdi]
    let found = candidates(&[0x89, 0x07, 0x89, 0x4f, 0x04, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x17]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_base_that_is_loaded_anew_is_not_guessed_at() {
    // mov [rdi], eax; mov [rdi+4], ecx; mov rdi, [rsi]; mov rdx, [rdi]
    let found = candidates(&[0x89, 0x07, 0x89, 0x4f, 0x04, 0x48, 0x8b, 0x3e, 0x48, 0x8b, 0x17]);
    assert!(found.is_empty(), "{found:?}");
}

// A history that grows downwards, as a decoder keeps it: the load counts from where the pointer is.
const LOAD_AGE: &[u8] = &[0x0f, 0xb6, 0x0e, 0x48, 0x8b, 0x04, 0xcf]; // movzx ecx, [rsi]; mov rax, [rdi+rcx*8]
const PUSH_LOW: &[u8] = &[0x89, 0x47, 0xf8]; // mov [rdi-8], eax
const PUSH_HIGH: &[u8] = &[0x89, 0x57, 0xfc]; // mov [rdi-4], edx
const PUSH_BOTH: &[u8] = &[0x48, 0x89, 0x47, 0xf8]; // mov [rdi-8], rax
const MOVE_ON: &[u8] = &[0x48, 0x83, 0xef, 0x08]; // sub rdi, 8

#[test]
fn a_history_behind_a_moving_pointer() {
    let found = candidates(&[LOAD_AGE, PUSH_LOW, PUSH_HIGH, MOVE_ON].concat());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].certainty, Certainty::Probable);
    assert_eq!((found[0].site, found[0].sets.concat().len()), (1, 2));
    assert!(found[0].mechanism.contains("where its pointer has been"), "{}", found[0].mechanism);
    // The same with start and distance in two registers, and the index shifted by hand:
    // movzx edx, [rsi]; shl edx, 3; add rdx, rdi; mov rdx, [rdx+r14];
    // mov [rdi+r14-8], ecx; mov [rdi+r14-4], edx; sub r14, 8
    let unoptimised = [
        &[0x0f, 0xb6, 0x16, 0xc1, 0xe2, 0x03, 0x48, 0x01, 0xfa, 0x4a, 0x8b, 0x14, 0x32][..],
        &[0x42, 0x89, 0x4c, 0x37, 0xf8, 0x42, 0x89, 0x54, 0x37, 0xfc, 0x49, 0x83, 0xee, 0x08],
    ];
    let found = candidates(&unoptimised.concat());
    assert_eq!((found.len(), found[0].site), (1, 3), "{found:#?}");
}

#[test]
fn histories_in_matching_widths_are_innocent() {
    assert!(candidates(&[LOAD_AGE, PUSH_BOTH, MOVE_ON].concat()).is_empty());
    // One half alone, and an entry that is written again in one piece.
    assert!(candidates(&[LOAD_AGE, PUSH_LOW, MOVE_ON].concat()).is_empty());
    assert!(candidates(&[LOAD_AGE, PUSH_LOW, PUSH_HIGH, PUSH_BOTH, MOVE_ON].concat()).is_empty());
}

#[test]
fn a_pointer_that_stays_says_nothing_about_an_array() {
    // The stores may go to fields, or on the stack to other variables.
    assert!(candidates(&[LOAD_AGE, PUSH_LOW, PUSH_HIGH].concat()).is_empty());
    // sub rdi, 4: not whole elements
    let half_steps: &[u8] = &[0x48, 0x83, 0xef, 0x04];
    assert!(candidates(&[LOAD_AGE, PUSH_LOW, PUSH_HIGH, half_steps].concat()).is_empty());
}

#[test]
fn the_head_of_a_record_is_not_in_the_array_behind_it() {
    // add rdi, 64 in place of the step down: the index never counts back to the stores.
    let next_record: &[u8] = &[0x48, 0x83, 0xc7, 0x40];
    assert!(candidates(&[LOAD_AGE, PUSH_LOW, PUSH_HIGH, next_record].concat()).is_empty());
}

/// A buffer filled by an inner loop, byte by byte, and then `load`ed from its start.
fn filled(load: &[u8]) -> Vec<Candidate> {
    // outer: xor ecx, ecx; inner: mov [rdi+rcx], al; inc ecx; cmp ecx, edx; jne inner
    let mut bytes = vec![0x31, 0xc9, 0x88, 0x04, 0x0f, 0xff, 0xc1, 0x39, 0xd1, 0x75, 0xf7];
    bytes.extend(load);
    // dec r15d; jnz outer; ret
    bytes.extend([0x41, 0xff, 0xcf, 0x75]);
    bytes.extend([(-(bytes.len() as i8 + 1)) as u8, 0xc3]);
    let code = FunctionCode::decode(&bytes, Svma(0x1000));
    assert_eq!(code.loops.len(), 2);
    let profile = Design::of(crate::machine::Microarchitecture::Zen5);
    each_loop(&code, &Addresses::of(&code), outermost(&code), &profile, None)
}

#[test]
fn a_loop_that_fills_the_buffer_begins_somewhere() {
    // mov rax, [rdi]
    let found = filled(&[0x48, 0x8b, 0x07]);
    assert_eq!((found.len(), found[0].certainty), (1, Certainty::Definite), "{found:#?}");
    // mov rax, [rdi-8]; mov al, [rdi]
    assert!(filled(&[0x48, 0x8b, 0x47, 0xf8]).is_empty());
    assert!(filled(&[0x8a, 0x07]).is_empty());
}

#[test]
fn a_ring_whose_index_is_counted_in_bytes() {
    // mov ecx, edx; and ecx, 0x78; mov [rdi+rcx], eax; mov [rdi+rcx+4], eax;
    // and ebx, 0x78; mov rsi, [rdi+rbx]; add edx, 8
    let body = [
        0x89, 0xd1, 0x83, 0xe1, 0x78, 0x89, 0x04, 0x0f, 0x89, 0x44, 0x0f, 0x04, 0x83, 0xe3, 0x78,
        0x48, 0x8b, 0x34, 0x1f, 0x83, 0xc2, 0x08,
    ];
    let found = candidates(&body);
    assert_eq!((found.len(), found[0].certainty), (1, Certainty::Probable), "{found:#?}");
}

mod against_a_naive_model {
    //! Straight-line bodies of stores and one load at constant offsets, against a model that
    //! keeps, byte for byte, which store wrote last.

    use super::*;
    use proptest::prelude::*;

    /// `mov [rdi+at], register of width`, the load likewise.
    fn encode(at: i8, width: u8, load: bool) -> Vec<u8> {
        let op = |store: u8| if load { store + 2 } else { store };
        let at = at as u8;
        match width {
            1 => vec![op(0x88), 0x47, at],
            2 => vec![0x66, op(0x89), 0x47, at],
            4 => vec![op(0x89), 0x47, at],
            _ => vec![0x48, op(0x89), 0x47, at],
        }
    }

    fn width() -> impl Strategy<Value = u8> {
        prop_oneof![Just(1_u8), Just(2), Just(4), Just(8)]
    }

    proptest! {
        #[test]
        fn the_rule_says_what_the_bytes_say(
            stores in prop::collection::vec((0_i8..12, width()), 1..5),
            load in (0_i8..12, prop_oneof![Just(2_u8), Just(4), Just(8)]),
        ) {
            let mut body = Vec::new();
            for (at, width) in &stores {
                body.extend(encode(*at, *width, false));
            }
            body.extend(encode(load.0, load.1, true));
            // The next time round the same stores come again, so one round tells all.
            let writer = |byte: i8| {
                stores.iter().rposition(|(at, w)| (*at..*at + *w as i8).contains(&byte))
            };
            let writers: Vec<_> = (load.0..load.0 + load.1 as i8).map(writer).collect();
            let youngest = writers.iter().flatten().max().copied();
            let blocked = youngest.is_some_and(|s| writers.iter().any(|w| *w != Some(s)));
            prop_assert_eq!(!candidates(&body).is_empty(), blocked, "{:?} {:?}", stores, load);
        }
    }
}

#[test]
fn a_probed_price_raises_the_grade_and_a_merging_core_has_no_such_finding() {
    let mut profile = Design::of(Microarchitecture::Zen5);
    assert_eq!(STORE_FORWARD.grade(&profile), Grade::Pattern);
    profile.store_forward_blocked_cycles.origin =
        crate::machine::PriceOrigin::Probed { probe: "p".into() };
    profile.forwarding_rule_origin = crate::machine::PriceOrigin::Probed { probe: "p".into() };
    profile.store_forward_free_after_cycles = Some(9);
    assert_eq!(STORE_FORWARD.grade(&profile), Grade::Priced);
    let price = STORE_FORWARD.card(&profile).price;
    assert!(price.contains("measured here") && price.contains("9 cycles behind"), "{price}");

    let body = [OTHER, LOAD_PAIR, NEXT, STORE_LOW, STORE_HIGH].concat();
    assert_eq!(candidates_by(&profile, &body).len(), 1);
    assert!(by_rule(ForwardingRule::AnyOverlap, &body).is_empty());
}

const STORE_4: &[u8] = &[0x89, 0x06]; // mov [rsi], eax
const STORE_4_BEHIND: &[u8] = &[0x89, 0x46, 0x04]; // mov [rsi+4], eax
const LOAD_8: &[u8] = &[0x48, 0x8b, 0x1e]; // mov rbx, [rsi]

#[test]
fn what_drains_the_store_buffer_lies_between() {
    let with = |between: &[u8]| candidates(&[STORE_4, STORE_4_BEHIND, between, LOAD_8].concat());
    assert_eq!(with(&[]).len(), 1);
    assert_eq!(with(&[0x0f, 0xae, 0xf8]).len(), 1, "sfence");
    assert!(with(&[0x0f, 0xae, 0xf0]).is_empty(), "mfence");
    assert!(with(&[0xf0, 0x83, 0x04, 0x24, 0x00]).is_empty(), "lock add dword ptr [rsp], 0");
    assert!(with(&[0x87, 0x07]).is_empty(), "xchg [rdi], eax");
    // lock xadd [rsi], rbx in place of the load: it waits for all stores anyway.
    let locked = [STORE_4, STORE_4_BEHIND, &[0xf0, 0x48, 0x0f, 0xc1, 0x1e]].concat();
    assert!(candidates(&locked).is_empty());
}

const PICK: &[u8] = &[0x41, 0x8b, 0x08, 0x83, 0xe1, 0x1f]; // mov ecx, [r8]; and ecx, 31
const STORE_BYTE: &[u8] = &[0x88, 0x14, 0x0f]; // mov [rdi+rcx], dl
const LOAD_FIRST_16: &[u8] = &[0xf3, 0x0f, 0x6f, 0x07]; // movdqu xmm0, [rdi]
const LOAD_NEXT_16: &[u8] = &[0xf3, 0x0f, 0x6f, 0x4f, 0x10]; // movdqu xmm1, [rdi+16]

#[test]
fn elements_written_one_by_one_and_read_many_at_once() {
    let found = candidates(&[PICK, STORE_BYTE, LOAD_FIRST_16, LOAD_NEXT_16].concat());
    assert_eq!(found.iter().map(|c| c.site).collect::<Vec<_>>(), [3, 4], "{found:#?}");
    assert!(found.iter().all(|c| c.certainty == Certainty::Probable && c.sets == [[2]]));
    assert_eq!((found[0].distance_instructions, found[1].distance_instructions), (1, 2));
    assert!(found[0].mechanism.contains("written 8 bits at a time under an index of its own"));
}

#[test]
fn what_lies_behind_an_array_is_no_part_of_it() {
    assert!(candidates(&[PICK, STORE_BYTE, LOAD_NEXT_16].concat()).is_empty(), "no first element");
    // mov [rdi+rcx+8], dl: the array begins behind what is loaded first, mov rax, [rdi]
    let head = [PICK, &[0x88, 0x54, 0x0f, 0x08][..], &[0x48, 0x8b, 0x07]].concat();
    assert!(candidates(&head).is_empty());
    // mov al, [rdi]: as wide as the elements
    assert!(candidates(&[PICK, STORE_BYTE, &[0x8a, 0x07]].concat()).is_empty());
}

#[test]
fn masks_that_keep_indices_apart_keep_accesses_apart() {
    // movq xmm0, [rsp+r9*8+AT]: of the 16 elements from -0x10 on that are written, the last is at 0x68.
    let at = |at: u8| {
        let load = [0xf3, 0x42, 0x0f, 0x7e, 0x44, 0xcc, at];
        candidates(&[OTHER, &load, NEXT, STORE_LOW, STORE_HIGH].concat()).len()
    };
    assert_eq!([0x60, 0x68, 0x70, 0x78].map(at), [1, 1, 0, 0]);
    // Elements before them: 16 that are read up to -0x18.
    assert_eq!([0x78, 0x70, 0x68].map(|below: u8| at(below.wrapping_neg())), [1, 1, 1]);
    // mov ecx, edx; and ecx, 0x3c; mov [rdi+rcx*4], eax; mov [rdi+rcx*4+4], eax: the last at 0xf0.
    let write = [0x89, 0xd1, 0x83, 0xe1, 0x3c, 0x89, 0x04, 0x8f, 0x89, 0x44, 0x8f, 0x04];
    // and ebx, 0x1e; mov rsi, [rdi+rbx*8+FROM]; add edx, 4
    let scaled = |from: u32| {
        let mut body = [&write[..], &[0x83, 0xe3, 0x1e, 0x48, 0x8b, 0xb4, 0xdf]].concat();
        body.extend(from.to_le_bytes());
        body.extend([0x83, 0xc2, 0x04]);
        candidates(&body).len()
    };
    assert_eq!([0xf0, 0x100, 0x110].map(scaled), [1, 0, 0]);
}

#[test]
fn a_masked_index_does_not_reach_all_that_is_read() {
    // movdqu xmm2, [rdi+32]: behind the 32 bytes that are written
    let behind: &[u8] = &[0xf3, 0x0f, 0x6f, 0x57, 0x20];
    let loads = [PICK, STORE_BYTE, LOAD_FIRST_16, LOAD_NEXT_16, behind].concat();
    let sites: Vec<usize> = candidates(&loads).iter().map(|c| c.site).collect();
    assert_eq!(sites, [3, 4]);
    // mov ecx, [r8]
    let unmasked = [&[0x41, 0x8b, 0x08][..], STORE_BYTE, LOAD_FIRST_16, LOAD_NEXT_16, behind];
    assert_eq!(candidates(&unmasked.concat()).len(), 3);
}

#[test]
fn an_array_that_is_filled_in_order_has_left_its_beginning_behind() {
    // inc rcx; mov [rdi+rcx], dl; movdqu xmm0, [rdi]
    let body = [&[0x48, 0xff, 0xc1][..], STORE_BYTE, LOAD_FIRST_16].concat();
    assert!(candidates(&body).is_empty());
}

const POINTER: &[u8] = &[0x48, 0x8b, 0x07]; // mov rax, [rdi]
const THROUGH: &[u8] = &[0x89, 0x14, 0xc8, 0x89, 0x54, 0xc8, 0x04]; // mov [rax+rcx*8], edx; ..+4
const POINTER_AGAIN: &[u8] = &[0x48, 0x8b, 0x37]; // mov rsi, [rdi]
const THROUGH_AGAIN: &[u8] = &[0x48, 0x8b, 0x1c, 0xce]; // mov rbx, [rsi+rcx*8]

#[test]
fn a_pointer_that_is_loaded_again_is_the_same() {
    let with = |between: &[u8]| {
        candidates(&[POINTER, THROUGH, between, POINTER_AGAIN, THROUGH_AGAIN].concat())
    };
    let found = with(&[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].site, found[0].certainty), (4, Certainty::Definite));
    assert_eq!(with(&[0x4d, 0x89, 0x41, 0x08]).len(), 1, "mov [r9+8], r8: another member");
    assert!(with(&[0x4c, 0x89, 0x07]).is_empty(), "mov [rdi], r8: another pointer");
    assert!(with(&[0x4d, 0x89, 0x01]).is_empty(), "mov [r9], r8: r9 may be rdi");
    // mov byte ptr [rdi+1], 0: a part of it, which blocks both loads of the pointer itself.
    let sites: Vec<usize> = with(&[0xc6, 0x47, 0x01, 0x00]).iter().map(|c| c.site).collect();
    assert_eq!(sites, [0, 4]);
    assert!(with(&[0xe8, 0, 0, 0, 0]).is_empty(), "a call may change it");
}

#[test]
fn an_index_is_followed_through_the_member_that_keeps_it() {
    // mov eax, [rdi+8]; mov [rsi+rax*8], edx; mov [rsi+rax*8+4], edx
    let write = [0x8b, 0x47, 0x08, 0x89, 0x14, 0xc6, 0x89, 0x54, 0xc6, 0x04];
    // inc eax; mov [rdi+8], eax; mov ecx, [rdi+8]
    let count = [0xff, 0xc0, 0x89, 0x47, 0x08, 0x8b, 0x4f, 0x08];
    // mov rbx, [rsi+rcx*8-8]; the same without -8, which is the element behind
    let found = candidates(&[&write[..], &count, &[0x48, 0x8b, 0x5c, 0xce, 0xf8]].concat());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].site, found[0].certainty), (6, Certainty::Definite));
    let beside = [&write[..], &count, &[0x48, 0x8b, 0x5c, 0xce, 0x00]].concat();
    assert!(candidates(&beside).iter().all(|c| c.certainty != Certainty::Definite));
}
