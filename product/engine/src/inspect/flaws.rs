//! Damage that an inspection finds.

use crate::format::FormatError;

/// Kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// An item does not verify.
    #[error("an item that does not verify: {0}")]
    Item(FormatError),
    /// The item has another key than the summary says.
    #[error("an item of another key than the summary says")]
    Key,
    /// The item has another version than the summary says.
    #[error("another version of an item than the summary says")]
    Version,
    /// This number of items of a run do not verify, or cannot be found behind one that does not.
    #[error("{0} items of a run that do not verify")]
    OfRun(u32),
    /// A copy of a run header does not verify. If the other one does not either, the items of the run are lost.
    #[error("a run header that does not verify: {0}")]
    RunHeader(FormatError),
    /// A summary does not verify: all of the segment's items are lost.
    #[error("a summary that does not verify: {0}")]
    Summary(FormatError),
    /// The device cannot read the place.
    #[error("the device cannot read it")]
    Device,
}

impl Flaw {
    /// Returns the number of live items that the damage is of; `None` if it is of a whole segment.
    pub(crate) fn items(&self) -> Option<u64> {
        match self {
            Self::Item(_) | Self::Key | Self::Version => Some(1),
            Self::OfRun(items) => Some((*items).into()),
            Self::RunHeader(_) => Some(0),
            Self::Summary(_) | Self::Device => None,
        }
    }
}

/// Place and kind of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlawedPlace {
    /// The segment.
    pub segment: u32,
    /// Offset in the segment, in bytes.
    pub offset: u32,
    /// Kind of damage.
    pub flaw: Flaw,
}
