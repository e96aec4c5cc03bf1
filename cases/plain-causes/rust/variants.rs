// An enum's variants, sorted, or AFTER in random order.
mod common;
use std::hint::black_box;

#[derive(Clone, Copy)]
enum Op {
    Add(u64),
    Xor(u64),
    Mul(u64),
    Rotate(u32),
}

#[inline(never)]
fn work(ops: &[Op], mut x: u64) -> u64 {
    for op in ops {
        x = match *op {
            Op::Add(by) => black_box(x.wrapping_add(by)),
            Op::Xor(by) => black_box(x ^ by),
            Op::Mul(by) => black_box(x.wrapping_mul(by)),
            Op::Rotate(by) => black_box(x.rotate_left(by)),
        };
    }
    x
}

fn main() {
    let mut state = 1;
    let mut kinds: Vec<u64> = (0..30_000).map(|_| common::random(&mut state) >> 20 & 3).collect();
    if !cfg!(after) {
        kinds.sort_unstable();
    }
    let of = |kind: &u64| [Op::Add(3), Op::Xor(77), Op::Mul(5), Op::Rotate(7)][*kind as usize];
    let ops: Vec<Op> = kinds.iter().map(of).collect();
    println!("{}", (0..common::times()).fold(1, |x, _| work(&ops, x)));
}
