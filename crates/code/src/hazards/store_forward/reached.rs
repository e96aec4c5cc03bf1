//! Where a walk has been, and how near the load it was there.

use smallvec::SmallVec;

use super::walk::Target;

/// More states than this for one load and the walk gives up looking for more stores.
const MOST_STATES: usize = 2048;

/// Addresses with the least distance to each.
type Addresses = SmallVec<[(Target, u32); 2]>;

/// See the module. Kept from walk to walk for the memory that it has.
#[derive(Default)]
pub(super) struct Reached {
    /// Whether the address changes on the way, so that a block can be reached with several.
    moves: bool,
    /// The least distance to each end of a block with each address, by place, with the number of
    /// the walk that wrote them. Few addresses come to one place.
    moving: Vec<(u32, Addresses)>,
    /// The same for an address that stays as it is, by place and whether its index is known, with
    /// the number of the walk that wrote it.
    fixed: Vec<[(u32, u32); 2]>,
    walk: u32,
    states: usize,
}

impl Reached {
    pub fn begin(&mut self, places: usize, moves: bool) {
        self.moves = moves;
        self.states = 0;
        self.walk = self.walk.wrapping_add(1);
        if self.walk == 0 {
            self.fixed.clear();
            self.moving.clear();
            self.walk = 1;
        }
        if moves {
            self.moving.resize_with(places, Default::default);
        } else {
            self.fixed.resize(places, [(0, 0); 2]);
        }
    }

    /// Whether the end of the block at `place` was not reached yet with this address from so near,
    /// and is worth going to. Notes that it was.
    pub fn is_nearer(&mut self, place: usize, target: &Target, distance: u32) -> bool {
        let states = self.states;
        let known = if self.moves {
            let (walk, known) = &mut self.moving[place];
            if std::mem::replace(walk, self.walk) != self.walk {
                known.clear();
            }
            let at = known.iter().position(|(seen, _)| seen == target).unwrap_or_else(|| {
                known.push((*target, u32::MAX));
                self.states += 1;
                known.len() - 1
            });
            &mut known[at].1
        } else {
            let (walk, known) = &mut self.fixed[place][usize::from(target.index_known)];
            if std::mem::replace(walk, self.walk) != self.walk {
                *known = u32::MAX;
                self.states += 1;
            }
            known
        };
        let is_nearer = distance < *known && states < MOST_STATES;
        if is_nearer {
            *known = distance;
        }
        is_nearer
    }
}
