//! Which execution ports are taken in which cycle.

/// Words of 64 cycles that are kept; whatever is further ahead finds every port free.
const WORDS: u64 = 256;
/// Ports that there can be.
const PORTS: usize = 19;

/// Ports by cycle, from the cycle of dispatch on.
pub(super) struct Slots {
    /// A bit for each cycle, by word and port.
    taken: Vec<[u64; PORTS]>,
    /// The first word that is kept.
    first: u64,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { taken: vec![[0; PORTS]; WORDS as usize], first: 0 }
    }

    /// Nothing starts before `cycle` any more.
    pub(super) fn forget_before(&mut self, cycle: u64) {
        let word = cycle / 64;
        if word >= self.first + WORDS {
            self.taken.fill([0; PORTS]);
            self.first = word;
        }
        while self.first < word {
            self.taken[(self.first % WORDS) as usize] = [0; PORTS];
            self.first += 1;
        }
    }

    /// Takes the first free one of `ports` from `cycle` on; in which cycle that is.
    pub(super) fn take(&mut self, ports: u32, cycle: u64) -> u64 {
        let mut word = (cycle / 64).max(self.first);
        let mut allowed = if word == cycle / 64 { u64::MAX << (cycle % 64) } else { u64::MAX };
        while word < self.first + WORDS {
            let row = &mut self.taken[(word % WORDS) as usize];
            let all = each(ports).fold(u64::MAX, |all, port| all & row[port]);
            let free = !all & allowed;
            if free != 0 {
                let bit = free & free.wrapping_neg();
                // The one that does least around this time: those that others need are left to them.
                let is_free = |port: &usize| row[*port] & bit == 0;
                let port = each(ports).filter(is_free).min_by_key(|port| row[*port].count_ones());
                if let Some(port) = port {
                    row[port] |= bit;
                }
                return word * 64 + u64::from(free.trailing_zeros());
            }
            word += 1;
            allowed = u64::MAX;
        }
        cycle
    }
}

fn each(ports: u32) -> impl Iterator<Item = usize> {
    let mut left = ports;
    std::iter::from_fn(move || {
        let port = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_does_one_thing_a_cycle_and_gaps_are_filled() {
        let mut slots = Slots::new();
        assert_eq!([0; 3].map(|_| slots.take(0b11, 5)), [5, 5, 6]);
        assert_eq!(slots.take(0b100, 5), 5);
        let later: Vec<u64> = (0..200).map(|_| slots.take(0b100, 5)).collect();
        assert_eq!(later, (6..206).collect::<Vec<u64>>());
        slots.forget_before(100);
        assert_eq!(slots.take(0b1000, 0), 64, "never in the past");
        assert_eq!(slots.take(0b100, 1 << 40), 1 << 40);
        slots.forget_before(1 << 41);
        assert_eq!([0; 2].map(|_| slots.take(0b1, 1 << 41)), [1 << 41, (1 << 41) + 1]);
    }

    #[test]
    fn what_can_go_elsewhere_leaves_a_port_to_what_cannot() {
        let mut slots = Slots::new();
        // One that needs the first port, one that may take either, in turn.
        let ends = (0..30).map(|n| slots.take(if n % 2 == 0 { 0b01 } else { 0b11 }, 0)).max();
        assert_eq!(ends, Some(14), "15 cycles for both ports, not 22");
    }
}
