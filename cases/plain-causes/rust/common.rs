/// The argument: how often.
pub fn times() -> u64 {
    std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// The next of some numbers without order.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}
