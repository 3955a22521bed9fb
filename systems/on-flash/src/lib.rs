//! Parts of an index that lies on flash in whole or in part: the region that it overwrites in place, the numbers by which its
//! entries name segments, the keys that a start has restored, and Bloom filters.
//!
//! | mechanism | section | file |
//! |---|---|---|
//! | the region of an index on flash | - | `systems/on-flash/src/disk.rs` |
//! | segment numbers: the slab sequence counter of SlickCache | SoCC 2018, 4.3 | `systems/on-flash/src/numbers.rs` |
//! | keys that a start has restored | - | `systems/on-flash/src/restored.rs` |
//! | Bloom filters, of jump lists and others | SoCC 2018, 4.1.3 | `systems/on-flash/src/bloom.rs` |

#![forbid(unsafe_code)]

pub mod bloom;
mod disk;
mod numbers;
mod restored;

pub use disk::{IndexDisk, IndexSyncs, PatientStart};
pub use numbers::{Given, Numbered, NumberedSegment, Numbers, TURN_BITS};
pub use restored::{KeyFilter, RestoredKeys};
