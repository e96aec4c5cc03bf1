// One buffer for all turns, or AFTER a new one for each.
mod common;
use std::hint::black_box;

fn main() {
    let mut sum = 0;
    let mut kept = Vec::with_capacity(64);
    for i in 0..common::times() {
        let mut fresh = Vec::new();
        let buffer = if cfg!(after) { &mut fresh } else { &mut kept };
        buffer.clear();
        for k in 0..8 {
            buffer.push(black_box(i + k));
        }
        sum += buffer.iter().sum::<u64>();
        black_box(&buffer);
    }
    println!("{sum}");
}
