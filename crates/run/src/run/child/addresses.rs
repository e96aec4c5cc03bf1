//! Children whose stack, heap and libraries lie where they lay in the run before.
//!
//! The kernel moves the stack of every new process by a random number of 16 bytes. Whatever moves it
//! on purpose, to see what that costs, must have that off, else every run is a placement of its own.

use std::marker::PhantomData;

use nix::sys::personality::{self, Persona};

/// While it lives, the children that this thread starts have no random addresses.
#[derive(Debug)]
pub struct FixedAddresses {
    before: Persona,
    /// The kernel keeps this for each thread.
    of_this_thread: PhantomData<*const ()>,
}

impl FixedAddresses {
    /// `None` where the kernel, or a container's filter, refuses.
    #[must_use]
    pub fn new() -> Option<Self> {
        let before = personality::get().ok()?;
        personality::set(before | Persona::ADDR_NO_RANDOMIZE).ok()?;
        Some(Self { before, of_this_thread: PhantomData })
    }
}

impl Drop for FixedAddresses {
    fn drop(&mut self) {
        // What was in force a moment ago is not refused.
        let _ = personality::set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_comes_back() {
        let before = personality::get().unwrap();
        let fixed = FixedAddresses::new();
        if fixed.is_some() {
            assert!(personality::get().unwrap().contains(Persona::ADDR_NO_RANDOMIZE));
        }
        drop(fixed);
        assert_eq!(personality::get().unwrap(), before);
    }
}
