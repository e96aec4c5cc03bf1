//! False dependencies in the model: what an instruction waits for that its result does not need.
//!
//! [`FalseDependency`] has the physics and the literature. *Sign*: a chain from one turn of a loop to the next, through a register
//! that each turn writes anew.

use super::ops::Op;
use super::{Core, Mechanism};

impl Core<'_> {
    /// When the result is there, where what its destination held may be there later than its operands.
    pub(super) fn wait_for_held(&mut self, number: u32, op: &Op, done: u64) -> u64 {
        let Some((kind, register)) = op.held else { return done };
        let cycles = self.shape.false_dependency_cycles(kind);
        let later = self.state.registers[usize::from(register)] + self.latency(cycles);
        if cycles == 0 || later <= done {
            return done;
        }
        self.event(number, Mechanism::FalseDependencies);
        if self.has(Mechanism::FalseDependencies) { later } else { done }
    }
}
