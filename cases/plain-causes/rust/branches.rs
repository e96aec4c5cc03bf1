// A choice by masks, or AFTER by a branch that nothing predicts.
mod common;
use std::hint::black_box;

#[inline(never)]
fn work(numbers: &[u64]) -> u64 {
    let mut sum = 0_u64;
    for &x in numbers {
        if cfg!(after) {
            sum = if x & 1 == 1 { black_box(sum + x) } else { black_box(sum ^ 3) };
        } else {
            let mask = 0_u64.wrapping_sub(x & 1);
            sum = black_box((sum + x) & mask | (sum ^ 3) & !mask);
        }
    }
    sum
}

fn main() {
    let mut state = 1;
    let numbers: Vec<u64> = (0..65_536).map(|_| common::random(&mut state)).collect();
    let sum = (0..common::times()).fold(0_u64, |sum, _| sum.wrapping_add(work(&numbers)));
    println!("{sum}");
}
