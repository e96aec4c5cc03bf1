//! The slow build with its functions placed as the fast one has them.
//!
//! Where both builds hold the same code in a function and it takes longer in one of them, where it lies can be the
//! reason: sets of the instruction cache, windows of fetch and decoding, entries of predictors. Its instructions do
//! not tell, and no model is needed: the functions are run from copies that lie as far into a page as those of the
//! fast build ([`place_functions`]), beside both builds with copies that lie as their originals do.

use super::work::MOST;
use super::{FunctionRow, Place};
use crate::code::x86::{Patch, place_functions, place_in_page};
use crate::code::{Architecture, Function, Image, sections};
use crate::compare::Arm;
use crate::model::Svma;

/// Functions that are placed, at the most.
const MOST_FUNCTIONS: usize = 64;

/// Functions that both builds have with the same code: in the slow one and in the fast one.
pub(super) struct Placement<'a> {
    functions: Vec<[&'a Function; 2]>,
}

impl<'a> Placement<'a> {
    /// Of the functions that hold the difference with the same code in both builds; `None` where these are not most
    /// of it, or lie alike in both.
    pub fn of(rows: &'a [FunctionRow], slow: Arm) -> Option<Self> {
        let same_code = |row: &&FunctionRow| {
            matches!(row.place, Place::Function { .. }) && row.place.is_unchanged()
        };
        let rows: Vec<&FunctionRow> = rows.iter().filter(same_code).take(MOST_FUNCTIONS).collect();
        let held = rows.iter().map(|row| row.share_of_difference.percent.value).sum::<f64>();
        let both = |row: &&'a FunctionRow| {
            Some([row.place.function(slow)?, row.place.function(slow.other())?])
        };
        let functions: Vec<[&Function; 2]> = rows.iter().filter_map(both).collect();
        let lies_alike = |[here, there]: &[&Function; 2]| {
            place_in_page(here.start) == place_in_page(there.start)
        };
        (held >= MOST && !functions.iter().all(lies_alike)).then_some(Self { functions })
    }

    /// Both builds, the fast one first, with copies as far into their pages as their originals, and the slow one with
    /// copies as far as in the fast one; or why there are none. All pay alike for being entered by a jump.
    pub fn patches(&mut self, [slow, fast]: [&Image; 2]) -> Result<[Patch; 3], String> {
        if slow.architecture() != Architecture::X86_64 {
            return Err("only x86-64 code can be placed elsewhere".into());
        }
        if sections(slow).iter().any(|section| section.name.ends_with("gopclntab")) {
            return Err("Go's runtime looks up where its functions lie".into());
        }
        let said = |(svma, error)| format!("the function at {svma} cannot be copied: {error}");
        // Whether a function can be copied does not depend on where to.
        let mut refused = Vec::new();
        self.functions.retain(|[here, there]| {
            let alone = place_functions(slow, &[(here, 0)])
                .and_then(|_| place_functions(fast, &[(there, 0)]));
            refused.extend(alone.as_ref().err().copied().map(said));
            alone.is_ok()
        });
        if self.functions.is_empty() {
            return Err(refused.join("; "));
        }
        let placed = |image: &Image, of: usize, like: usize| {
            let place = |both: &[&'a Function; 2]| (both[of], place_in_page(both[like].start));
            let functions: Vec<_> = self.functions.iter().map(place).collect();
            place_functions(image, &functions).map_err(said)
        };
        Ok([placed(fast, 1, 1)?, placed(slow, 0, 0)?, placed(slow, 0, 1)?])
    }

    /// Where the functions are in the slow build and in the fast one.
    pub fn addresses(&self) -> Vec<[Svma; 2]> {
        self.functions.iter().map(|both| both.map(|function| function.start)).collect()
    }
}
