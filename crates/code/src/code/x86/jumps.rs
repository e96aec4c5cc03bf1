//! The direct jumps of a function, and whether a path through them comes back to where it was.

use smallvec::SmallVec;

use crate::code::loops::Seen;

/// An instruction that does not only go on to the next.
#[derive(Clone, Copy)]
struct Jump {
    /// Bytes from the function's start to behind it.
    end: u32,
    /// Where in the function it may go.
    target: Option<u32>,
    /// It may also go on.
    falls_through: bool,
}

/// Those of one function, by address.
#[derive(Default)]
pub(super) struct Jumps(SmallVec<[Jump; 32]>);

impl Jumps {
    pub fn add(&mut self, end: usize, target: Option<usize>, falls_through: bool) {
        if target.is_some() || !falls_through {
            let (end, target) = (end as u32, target.map(|t| t as u32));
            self.0.push(Jump { end, target, falls_through });
        }
    }

    /// Whether a path from the function's start can come to a jump twice.
    pub fn close_a_circle(&self) -> bool {
        let mut seen: SmallVec<[Seen; 64]> = SmallVec::from_elem(Seen::Never, self.0.len());
        let mut path: SmallVec<[(usize, u8); 32]> = SmallVec::new();
        let mut next = Some(0);
        loop {
            if let Some(jump) = next.take().filter(|jump| *jump < self.0.len()) {
                match seen[jump] {
                    Seen::OnPath => return true,
                    Seen::Never => {
                        seen[jump] = Seen::OnPath;
                        path.push((jump, 0));
                    }
                    Seen::Left => {}
                }
            }
            let Some((jump, ways_tried)) = path.last_mut() else { return false };
            let Jump { target, falls_through, .. } = self.0[*jump];
            *ways_tried += 1;
            match ways_tried {
                1 => next = falls_through.then_some(*jump + 1),
                2 => next = target.map(|target| self.first_behind(target)),
                _ => {
                    seen[*jump] = Seen::Left;
                    path.pop();
                }
            }
        }
    }

    /// The first jump that is met from a place on.
    fn first_behind(&self, place: u32) -> usize {
        self.0.partition_point(|jump| jump.end <= place)
    }
}
