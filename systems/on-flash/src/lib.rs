//! Parts of an index that lies on flash in whole or in part: the region that it overwrites in place, the numbers by which its
//! entries name segments, the keys that a start has restored, and Bloom filters.

#![forbid(unsafe_code)]

pub mod bloom;
mod disk;
mod numbers;
mod restored;

pub use disk::{IndexDisk, IndexSyncs, PatientStart};
pub use numbers::{Given, Numbered, NumberedSegment, Numbers, TURN_BITS};
pub use restored::{KeyFilter, RestoredKeys};
