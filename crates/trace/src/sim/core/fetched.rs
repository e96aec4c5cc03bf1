//! In what time lines of code are fetched that hold many instructions.
//!
//! A cache of decoded instructions hands out whole entries, a few in a cycle, and an entry holds a few instructions of one line
//! of code. A line of many short instructions takes several cycles, though as many in two lines come in less. *Sign*: a loop
//! of 13 short instructions takes a cycle and a half more in one line than across two. *Literature*: AMD, "Software
//! Optimization Guide for the AMD Zen5 Microarchitecture" (2024), 2.9.
//!
//! Measured on Zen 5, loops of no-ops in one line: 12 and fewer in the time that their dispatch takes, 13 to 24 in 3.0 cycles,
//! 25 to 36 in 5.0; an instruction counts where it starts, and a comparison with its jump once, where the jump does. Of lines that follow on one another
//! only the first takes that long: the others 1.0 up to 12, then a third of a cycle for each up to 18 (3.0), as long up to 24,
//! then a third again up to 30 (5.0). Taken branches to one place after another: 0.5 cycles each, with up to five instructions between,
//! 1.0 with six to eleven; one that leads where the one before led, and those of an inner loop of 3 to 16 turns, 1.0.

/// Parts of a cycle: halves and thirds of it are needed.
pub(super) const SIXTHS: u64 = 6;

pub(super) struct FetchedLines {
    /// Instructions of a line that come in one cycle.
    at_once: u64,
    /// Whether more take longer.
    is_slow: bool,
    line: u64,
    instructions: u64,
    /// Whether a branch led to this line.
    is_first: bool,
    /// Whether the line before it held more than comes in a cycle.
    was_slow: bool,
    /// Sixths of a cycle that have not been counted.
    left: u64,
    /// Sixths that the last taken branch left of a cycle.
    rest: u64,
}

impl FetchedLines {
    pub(super) fn new(at_once: u32, is_slow: bool) -> Self {
        let at_once = at_once.max(1).into();
        Self {
            at_once,
            is_slow,
            line: u64::MAX,
            instructions: 0,
            is_first: false,
            was_slow: false,
            left: 0,
            rest: 0,
        }
    }

    /// An instruction from the first to the second of these lines, which is one with the jump behind it or counts: cycles in
    /// which the lines before the last were fetched, where they are others.
    pub(super) fn executed(&mut self, [first, last]: [u64; 2], is_in_jump: bool) -> u64 {
        let before = self.goes_on(first);
        self.instructions += u64::from(!is_in_jump);
        before + self.goes_on(last)
    }

    fn goes_on(&mut self, line: u64) -> u64 {
        let is_another = std::mem::replace(&mut self.line, line) != line;
        if is_another && self.instructions > 0 { self.end(false, self.sixths()) } else { 0 }
    }

    /// A taken branch was the last instruction in its line, and takes so many sixths of a cycle at the least; whether the
    /// one before, in place of half a cycle, took a whole one.
    pub(super) fn redirected(&mut self, least_sixths: u64, is_parted: bool) -> u64 {
        let took = self.sixths().max(least_sixths);
        let before = std::mem::replace(&mut self.rest, SIXTHS.saturating_sub(took));
        self.left += if is_parted { before } else { 0 };
        self.end(true, took)
    }

    pub(super) fn was_slow(&self) -> bool {
        self.was_slow
    }

    /// Nothing more of this line comes, which took so many sixths of a cycle: whole cycles in which it was fetched.
    fn end(&mut self, is_redirected: bool, took_sixths: u64) -> u64 {
        let all = self.left + took_sixths;
        self.was_slow = self.is_slow && self.instructions > self.at_once;
        self.instructions = 0;
        self.is_first = is_redirected;
        self.left = all % SIXTHS;
        all / SIXTHS
    }

    fn sixths(&self) -> u64 {
        let behind = self.instructions.saturating_sub(1) / self.at_once;
        if behind == 0 || !self.is_slow {
            let halves = (2 * self.instructions).div_ceil(self.at_once).clamp(1, 2);
            return halves * SIXTHS / 2;
        }
        let of_last = self.instructions - behind * self.at_once;
        let last = match self.is_first {
            true => 2 * SIXTHS,
            // The other half of a cycle's worth comes with what follows it.
            false => (of_last * 4 * SIXTHS / self.at_once).min(2 * SIXTHS),
        };
        SIXTHS + 2 * SIXTHS * (behind - 1) + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles for 12 rounds of lines that hold so many instructions each, the last one ended by a taken branch.
    fn of(lines: &[u64], is_slow: bool) -> f64 {
        let mut fetched = FetchedLines::new(12, is_slow);
        let mut round = || {
            let mut cycles = 0;
            for (line, instructions) in lines.iter().enumerate() {
                cycles += (0..*instructions)
                    .map(|_| fetched.executed([line as u64; 2], false))
                    .sum::<u64>();
            }
            cycles + fetched.redirected(3, false)
        };
        round();
        (0..12).map(|_| round()).sum::<u64>() as f64 / 12.0
    }

    #[test]
    fn a_line_takes_a_cycle_for_twelve_instructions_and_two_for_twelve_more() {
        for (instructions, cycles) in [
            (1, 0.5),
            (6, 0.5),
            (7, 1.0),
            (12, 1.0),
            (13, 3.0),
            (24, 3.0),
            (25, 5.0),
            (36, 5.0),
            (37, 7.0),
        ] {
            assert_eq!(of(&[instructions], true), cycles, "{instructions}");
        }
        assert_eq!((of(&[13], false), of(&[6], false)), (1.0, 0.5));
        assert_eq!(of(&[7, 6], true), 1.5, "the same in two lines");
    }

    #[test]
    fn lines_that_follow_on_one_another_take_a_third_of_a_cycle_for_each_of_six_more() {
        let next = |instructions| of(&[12, instructions, 1], true) - 1.5;
        for (instructions, thirds) in [
            (12, 3.0),
            (13, 4.0),
            (15, 6.0),
            (18, 9.0),
            (24, 9.0),
            (25, 10.0),
            (30, 15.0),
            (36, 15.0),
        ] {
            let all = 3.0 * next(instructions);
            assert!((all - thirds).abs() < 0.3, "{instructions}: {all}");
        }
    }

    #[test]
    fn an_instruction_counts_in_the_line_where_it_starts() {
        // Twelve, one across the line's end, the jump.
        let mut fetched = FetchedLines::new(12, true);
        let mut turn = |last: u64| {
            let all = (0..12).map(|_| [0, 0]).chain([[0, last], [1, 1]]);
            all.map(|ends| fetched.executed(ends, false)).sum::<u64>()
                + fetched.redirected(6, false)
        };
        turn(1);
        assert_eq!((turn(0), turn(1)), (4, 4));
        // The jump itself is across the end: what is behind it is fetched, too.
        let mut turn = |last: u64| {
            let all = (0..12).map(|_| [0, 0]).chain([[0, last]]);
            all.map(|ends| fetched.executed(ends, false)).sum::<u64>()
                + fetched.redirected(6, false)
        };
        assert_eq!((turn(0), turn(1)), (3, 4));
    }

    #[test]
    fn an_instruction_that_is_one_with_the_jump_behind_it_counts_once() {
        let mut fetched = FetchedLines::new(12, true);
        let mut turn = |joined| {
            (0..13).for_each(|n| _ = fetched.executed([1; 2], joined && n == 11));
            fetched.redirected(3, false)
        };
        turn(false);
        assert_eq!((turn(true), turn(false)), (1, 3));
    }
}
