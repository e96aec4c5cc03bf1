//! Where a profile of a run says that time was spent.

use super::{FileOffset, Svma};

/// A place in a program as a profile names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HotPlace {
    /// An address as stated in the file.
    Stated(Svma),
    /// A byte position in the file.
    InFile(FileOffset),
    /// A function, and how far into it where the profile says so.
    Function {
        /// Its name, mangled or not.
        name: String,
        /// Bytes from its start.
        offset_bytes: Option<u64>,
    },
}

/// One place with the weight of the samples that fell on it.
#[derive(Clone, Debug, PartialEq)]
pub struct HotSpot {
    /// The program or library, as the profile names it; `None` where it does not say.
    pub object: Option<String>,
    /// Where in it.
    pub place: HotPlace,
    /// Samples, instructions or whatever the profile counts.
    pub weight: f64,
}
