// The high half of a product, or AFTER a quotient.
mod common;

#[inline(never)]
fn work(n: u64, by: u64) -> u64 {
    let (mut sum, mut x) = (0_u64, 0x9e37_79b9_7f4a_7c15_u64);
    for i in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let part = if cfg!(after) { x / (by | x >> 60) } else { (x as u128 * by as u128 >> 64) as u64 | x >> 60 };
        sum = sum.wrapping_add(part) ^ i;
    }
    sum
}

fn main() {
    println!("{}", work(common::times(), common::times() | 1));
}
