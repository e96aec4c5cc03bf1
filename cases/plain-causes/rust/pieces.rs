// A word stored whole, or AFTER in four pieces, and loaded at once.
mod common;
use std::hint::black_box;
use std::ptr::{read_volatile, write_volatile};

#[inline(never)]
fn work(bytes: &mut [u64; 32], i: u64, x: u64) -> u64 {
    let at = std::ptr::from_mut(&mut bytes[i as usize & 31]);
    // SAFETY: pieces and whole lie within one word of the array.
    unsafe {
        if cfg!(after) {
            for k in 0..4 {
                write_volatile(at.cast::<u16>().add(k), (x >> (16 * k)) as u16);
            }
        } else {
            write_volatile(at, x);
            black_box((x >> 16, x >> 32, x >> 48));
        }
        read_volatile(at)
    }
}

fn main() {
    let (mut bytes, mut x) = ([0; 32], 1_u64);
    for i in 0..common::times() {
        x = work(&mut bytes, i, x).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i);
    }
    println!("{x}");
}
