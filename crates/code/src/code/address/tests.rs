//! Values seen through, roots, and what moves.

use super::*;
use crate::model::Svma;

fn addresses(bytes: &[u8]) -> (FunctionCode, Addresses) {
    let code = FunctionCode::decode(bytes, Svma(0));
    let addresses = Addresses::of(&code);
    (code, addresses)
}

#[test]
fn copies_and_lea_are_seen_through() {
    // sub rsp, 0x18; lea r9, [rsp-8]; mov eax, [r9+rcx*8]; mov edx, [rsp+rcx*8-8]
    let (code, a) = addresses(&[
        0x48, 0x83, 0xec, 0x18, 0x4c, 0x8d, 0x4c, 0x24, 0xf8, 0x41, 0x8b, 0x04, 0xc9, 0x8b, 0x54,
        0xcc, 0xf8,
    ]);
    let (hoisted, plain) = (a.load(&code, 2).unwrap(), a.load(&code, 3).unwrap());
    assert_eq!(hoisted, plain);
    assert_eq!(plain.base, Some(Root::entry(Reg::STACK)));
    assert_eq!(plain.offset_bytes, -0x20);
}

#[test]
fn a_push_and_the_load_that_reads_it_agree() {
    // push rbx; mov rax, [rsp]
    let (code, a) = addresses(&[0x53, 0x48, 0x8b, 0x04, 0x24]);
    assert_eq!(a.store(&code, 0).unwrap().minus(&a.load(&code, 1).unwrap()), Some(0));
}

#[test]
fn a_loaded_index_has_a_root_of_its_own() {
    // mov ecx, [rdi]; mov [rsi+rcx*4], eax; mov ecx, [rdi]; mov [rsi+rcx*4], eax
    let (code, a) = addresses(&[0x8b, 0x0f, 0x89, 0x04, 0x8e, 0x8b, 0x0f, 0x89, 0x04, 0x8e]);
    assert_eq!(a.store(&code, 1).unwrap().minus(&a.store(&code, 3).unwrap()), None);
    assert_eq!(a.store(&code, 1).unwrap().base, a.store(&code, 3).unwrap().base);
}

#[test]
fn sums_and_shifts_are_seen_through_in_any_order() {
    // shl edx, 3; add rdx, rdi; mov rdx, [rdx+r14]
    let (code, a) = addresses(&[0xc1, 0xe2, 0x03, 0x48, 0x01, 0xfa, 0x4a, 0x8b, 0x14, 0x32]);
    // lea rax, [rdx*8]; lea rax, [rax+r14]; mov rdx, [rdi+rax]
    let (code_b, b) = addresses(&[
        0x48, 0x8d, 0x04, 0xd5, 0, 0, 0, 0, 0x4a, 0x8d, 0x04, 0x30, 0x48, 0x8b, 0x14, 0x07,
    ]);
    let expected = SymbolicAddress {
        base: Some(Root::entry(Reg(7))),
        also: Some(Root::entry(Reg(14))),
        index: Some((Root::entry(Reg(2)), 8)),
        offset_bytes: 0,
    };
    assert_eq!((a.load(&code, 2), b.load(&code_b, 2)), (Some(expected), Some(expected)));
    // add rdi, rsi; add rdi, rdx; mov rax, [rdi]: more parts than can be written down
    let (code, a) = addresses(&[0x48, 0x01, 0xf7, 0x48, 0x01, 0xd7, 0x48, 0x8b, 0x07]);
    assert_eq!(a.load(&code, 2).unwrap().base, Some(Root::result(1, Reg(7))));
}

#[test]
fn a_pointer_that_moves_is_told_from_one_that_stays() {
    // loop: mov [rdi+rsi], rax; sub rdi, 16; jmp loop
    let (code, a) = addresses(&[0x48, 0x89, 0x04, 0x37, 0x48, 0x83, 0xef, 0x10, 0xeb, 0xf6]);
    let at = a.store(&code, 0).unwrap();
    let (stays, moves) = (at.base.unwrap(), at.also.unwrap());
    assert_eq!(moves, Root::merge(0, Reg(7)));
    assert!(a.walks_by(&code, moves, 8) && !a.walks_by(&code, moves, 32));
    assert!(!a.walks_by(&code, stays, 8));
}

#[test]
fn an_induction_variable_steps_by_a_constant() {
    // loop: mov [rdi+rcx*8], rax; inc rcx; jmp loop
    let (code, a) = addresses(&[0x48, 0x89, 0x04, 0xcf, 0x48, 0xff, 0xc1, 0xeb, 0xf7]);
    let store = a.store(&code, 0).unwrap();
    assert_eq!(store.index, Some((Root::merge(0, Reg(1)), 8)));
    let earlier = a.before(store, 0, 0).unwrap();
    assert_eq!(earlier.offset_bytes - store.offset_bytes, 8, "{code:?}");
}

#[test]
fn a_branch_inside_a_loop_does_not_hide_what_moves() {
    // xor ebp, ebp; loop: test al, al; jz over; nop; over: mov [rdi+rbp], rax; sub rbp, 16;
    // jmp loop
    let (code, a) = addresses(&[
        0x31, 0xed, 0x84, 0xc0, 0x74, 0x01, 0x90, 0x48, 0x89, 0x04, 0x2f, 0x48, 0x83, 0xed, 0x10,
        0xeb, 0xf1,
    ]);
    let moves = a.store(&code, 4).unwrap().also.unwrap();
    assert_eq!(moves, Root::merge(1, Reg(5)));
    assert!(a.walks_by(&code, moves, 8));
}

#[test]
fn a_mask_is_remembered() {
    // and ecx, 15; mov eax, [rsp+rcx*8]
    let (code, a) = addresses(&[0x83, 0xe1, 0x0f, 0x8b, 0x04, 0xcc]);
    assert_eq!(index_mask(&code, &a.load(&code, 1).unwrap()), Some(15));
}

#[test]
fn a_zero_extension_is_no_mask() {
    // mov ecx, ecx or movzx ecx, cl or movzx ecx, cx; mov eax, [rsp+rcx*8]
    for extension in [&[0x89, 0xc9][..], &[0x0f, 0xb6, 0xc9], &[0x0f, 0xb7, 0xc9]] {
        let (code, a) = addresses(&[extension, &[0x8b, 0x04, 0xcc]].concat());
        assert_eq!(index_mask(&code, &a.load(&code, 1).unwrap()), None, "{extension:x?}");
    }
}

#[test]
fn a_copy_loads_from_its_source_and_stores_to_its_destination() {
    // movsq
    let (code, a) = addresses(&[0x48, 0xa5]);
    assert_eq!(a.load(&code, 0).unwrap().base, Some(Root::entry(Reg(6))));
    assert_eq!(a.store(&code, 0).unwrap().base, Some(Root::entry(Reg(7))));
}

#[test]
fn constants_beyond_four_bytes_are_kept() {
    // add rdi, 0x7fffffff (twice); mov rax, [rdi]; mov rax, [rdi-0x7fffffff]
    let add = [0x48, 0x81, 0xc7, 0xff, 0xff, 0xff, 0x7f];
    let loads = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x87, 0x01, 0x00, 0x00, 0x80];
    let (code, a) = addresses(&[&add[..], &add, &loads].concat());
    let (far, near) = (a.load(&code, 2).unwrap(), a.load(&code, 3).unwrap());
    assert_eq!((far.base, far.offset_bytes), (Some(Root::entry(Reg(7))), 2 * 0x7fff_ffff));
    assert_eq!(far.minus(&near), Some(0x7fff_ffff));
}

#[test]
fn what_is_followed_for_loops_only_is_the_same_there() {
    let image = crate::code::Image::open(&std::env::current_exe().unwrap()).unwrap();
    let mut accesses = 0;
    for function in image.functions().iter().step_by(7) {
        let code = FunctionCode::of(&image, function);
        let (all, some) = (
            Addresses::of(&code),
            Addresses::in_loops(&code, code.loops.iter(), FxHashMap::default()),
        );
        // What is followed through memory depends on all of the code that is asked for.
        if !all.cells.is_empty() || !some.cells.is_empty() {
            continue;
        }
        let in_loop = |index: &usize| code.innermost_loop(code.block_of(*index)).is_some();
        for index in (0..code.insns.len()).filter(in_loop) {
            assert_eq!(some.load(&code, index), all.load(&code, index), "{}", function.symbol);
            assert_eq!(some.store(&code, index), all.store(&code, index), "{}", function.symbol);
            accesses += usize::from(all.load(&code, index).is_some());
        }
    }
    assert!(accesses > 1000, "{accesses}");
}
