//! When a window of so many calls is over.

use crate::model::Avma;

/// Calls inside a call after which the function's start is no longer watched in it: each costs a stop.
const MANY_INSIDE: u32 = 1000;

/// Watches one thread's calls of the function at the start of a window.
///
/// A call has returned when execution is back behind the call with the return address taken off
/// the stack. A call that never returns there (`longjmp`, an exception) is over, uncounted, when
/// the function is entered again and not from below: a call inside the call would be.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    start: Avma,
    left: u64,
    /// Return address and the stack pointer at the entry, while inside.
    inside: Option<(Avma, u64)>,
    /// Calls inside this one so far.
    deeper: u32,
}

impl Calls {
    /// A window of `count` calls of the function at `start`.
    pub(super) fn new(start: Avma, count: u64) -> Self {
        Self { start, left: count, inside: None, deeper: 0 }
    }

    /// To be told of every instruction before it is executed (or of those at [`Calls::new`]'s
    /// start and at the awaited return, which is enough); `top_of_stack` reads the word there.
    /// True when the window is over.
    pub(super) fn is_over_at(
        &mut self,
        address: Avma,
        stack_pointer: u64,
        top_of_stack: impl FnOnce() -> Option<u64>,
    ) -> bool {
        if let Some((back, entry)) = self.inside
            && address == back
            && stack_pointer > entry
        {
            self.inside = None;
            self.left = self.left.saturating_sub(1);
        }
        if self.left == 0 {
            return true;
        }
        if address != self.start {
            return false;
        }
        if self.inside.is_some_and(|(_, entry)| stack_pointer < entry) {
            self.deeper = self.deeper.saturating_add(1);
        } else if let Some(back) = top_of_stack() {
            self.inside = Some((Avma(back), stack_pointer));
            self.deeper = 0;
        }
        false
    }

    /// Where a thread must be stopped for [`Calls::is_over_at`]. In a call that calls the function
    /// again and again the start is left out: that the call was jumped out of shows then only
    /// where it would have returned to.
    pub(super) fn watched(&self) -> Vec<Avma> {
        match self.inside {
            Some((back, _)) if self.deeper >= MANY_INSIDE => vec![back],
            Some((back, _)) => vec![back, self.start],
            None => vec![self.start],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(calls: &mut Calls, address: u64, stack: u64) -> bool {
        calls.is_over_at(Avma(address), stack, || Some(0x900))
    }

    #[test]
    fn calls_inside_calls_are_not_counted() {
        let mut calls = Calls::new(Avma(0x100), 2);
        assert!(!told(&mut calls, 0x100, 80));
        assert!(!told(&mut calls, 0x100, 60));
        assert!(!told(&mut calls, 0x900, 68));
        assert!(!told(&mut calls, 0x900, 88));
        assert!(!told(&mut calls, 0x100, 80));
        assert!(told(&mut calls, 0x900, 88));
    }

    #[test]
    fn the_start_of_a_function_that_calls_itself_often_is_not_watched_for_ever() {
        let mut calls = Calls::new(Avma(0x100), 1);
        assert_eq!(calls.watched(), [Avma(0x100)]);
        told(&mut calls, 0x100, 80);
        assert_eq!(calls.watched(), [Avma(0x900), Avma(0x100)]);
        assert!((0..MANY_INSIDE).all(|_| !told(&mut calls, 0x100, 60)));
        assert_eq!(calls.watched(), [Avma(0x900)]);
        assert!(told(&mut calls, 0x900, 88));
    }

    #[test]
    fn a_call_that_was_jumped_out_of_does_not_count() {
        let mut calls = Calls::new(Avma(0x100), 1);
        assert!(!told(&mut calls, 0x100, 80));
        assert!(!told(&mut calls, 0x100, 96));
        assert!(!told(&mut calls, 0x900, 88));
        assert!(!told(&mut calls, 0x100, 96));
        assert!(told(&mut calls, 0x900, 104));
    }
}
