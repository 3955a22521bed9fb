//! Writing sealed segments and reclaiming old ones, for any index of the items in them.
//!
//! ```text
//!   writing     sealed ──> flash │ failed: items that the index names move to another block, or are forgotten
//!   reclaimer   policy: which segment, which items are kept ──> SEGMENT DEAD ──> summary
//!                 └─> each item: does the index name it? ── dropped │ copied │ back to memory ──> release
//! ```
//!
//! A policy is a pure function from a view of the flash to a choice. [`Reclaimer`] carries the choice out, and asks the
//! index of the items through [`Residents`].

mod free_segments;
mod policy;
mod reclaimer;
mod refusals;
mod unwritten;
mod upkeep;
mod watermarks;
mod writing;

pub use crate::durability::dead::DeadCopies;
pub(crate) use free_segments::{Dirty, ReturnToMemory};
pub(crate) use reclaimer::{Reclaimer, next_run};
pub use upkeep::FlashStats;
pub(crate) use upkeep::{Upkeep, UpkeepPlan};
pub use watermarks::Watermarks;
pub(crate) use writing::Writing;

use std::sync::atomic::AtomicU64;

use crate::counter::Count as _;
use crate::format::location::Place;
use crate::format::segment::{Position, SummaryEntry};
use crate::key::KeyHash;
use crate::store::{Priority, SegmentRecord};

/// An item as its segment's summary names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Hash of the item's key.
    pub hash: KeyHash,
    /// The version under which the item was written.
    pub version: u64,
    /// Place of the item on flash.
    pub place: Place,
}

impl Resident {
    /// Returns the item of a summary entry of a segment.
    pub(crate) fn of(record: &SegmentRecord, entry: &SummaryEntry) -> Self {
        Self {
            hash: KeyHash(entry.hash.get()),
            version: entry.version.get(),
            place: Place {
                segment: record.segment,
                generation: record.sequence,
                position: Position::from_bits(entry.position.get()),
            },
        }
    }
}

/// Answer of [`Residents::check`] for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The index does not name the item: it is dead.
    No,
    /// The index names the item, and continues to.
    Kept,
    /// The index named the item, and no longer does.
    Removed,
}

/// Entry of the index for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether the item has been read since it was written, or the index does not know.
    pub was_read: bool,
    /// CLOCK value of the item, where memory and flash share a CLOCK; else 0.
    pub clock: u8,
    /// Whether the loss of this entry would be recorded as the loss of this copy. False where entries do not tell keys apart,
    /// and the entry may be another key's.
    pub is_own: bool,
}

impl Entry {
    /// An entry of an index that tells keys apart, and does not remember which items return to memory.
    pub const OWN: Self = Self {
        was_read: true,
        clock: 0,
        is_own: true,
    };
}

/// Answer of [`Residents::entry`] for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The index does not name the item: it is dead.
    No,
    /// The index names the item.
    Yes(Entry),
    /// The part of the index on flash may name the item.
    Perhaps,
}

/// The index entries of the items in segments. Called from background tasks.
pub trait Residents: Send + Sync {
    /// Returns the entry for this very copy. Reads memory only, and changes nothing.
    fn entry(&self, item: &Resident) -> Entered;

    /// Asks whether the index still names this very copy. If so, `keep` is called with the priority that reads have given it
    /// since it was written, the lowest without any, and says whether the entry stays; all in one hold of whatever protects
    /// the entry.
    ///
    /// A copy below the last version that was given to `invalidate` for its key is not named. An index that answers a probe with
    /// a place goes by the place alone, and not by the item's version.
    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named;

    /// Makes the index name the copy of an item that has been moved. Returns false if it did not name the old copy.
    fn moved(&self, item: &Resident, to: Place) -> bool;

    /// Removes every entry that names a segment which has gone without its summary, and returns their number. If
    /// entries show by themselves that the segment is gone, only counts them out.
    fn forget_segment(&self, record: &SegmentRecord) -> u64;
}

/// The index may always have its memory divided by this, however much is lent.
const LEAST_SHARE: u64 = 16;

/// Loans leave the index its memory divided by this to grow; when half of that is used, reclaim makes space.
const KEPT_SHARE: u64 = 32;

/// Memory use of the index. The placement keeps it up to date; all threads read it without a lock.
#[derive(Debug)]
pub struct IndexUse {
    /// Number of items that the index finds on flash.
    pub objects: AtomicU64,
    /// Bytes of memory that the index holds.
    pub bytes: AtomicU64,
    /// Bytes of memory held until recovery ends. They do not count towards `max_bytes`, since reclaim cannot free them.
    pub recovery_bytes: AtomicU64,
    /// Bytes of memory at which reclaim has to make space in the index.
    pub max_bytes: u64,
    /// Bytes of memory for the index and loans together.
    pub room_bytes: u64,
    /// Bytes of memory that are lent.
    pub lent_bytes: AtomicU64,
}

impl IndexUse {
    pub(crate) fn new(max_bytes: u64, room_bytes: u64) -> Self {
        Self {
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            recovery_bytes: AtomicU64::new(0),
            max_bytes,
            room_bytes,
            lent_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the bytes of memory that the index may have at present. Loans leave it a minimum; otherwise no item
    /// could leave memory.
    fn most_bytes(&self) -> u64 {
        let left = self.room_bytes.saturating_sub(self.lent_bytes.get());
        left.clamp(self.max_bytes / LEAST_SHARE, self.max_bytes)
    }

    /// Returns whether `lent_bytes` in all can be lent beside an index of `index_bytes` without making reclaim free
    /// space in the index.
    pub(crate) fn leaves(&self, lent_bytes: u64, index_bytes: u64) -> bool {
        let kept = index_bytes + self.max_bytes / KEPT_SHARE;
        lent_bytes + kept.max(self.max_bytes / LEAST_SHARE) <= self.room_bytes
    }

    /// Returns whether the index has next to no space left, so that reclaim makes some.
    pub fn is_short(&self) -> bool {
        self.headroom() < self.most_bytes() / 64
    }

    /// Returns whether `objects` objects fit, at the average size of the present ones.
    pub(crate) fn holds(&self, objects: u64) -> bool {
        let wanted = u128::from(objects) * u128::from(self.bytes.get());
        wanted <= u128::from(self.objects.get()) * u128::from(self.max_bytes)
    }

    /// Returns the bytes by which the index may still grow.
    pub fn headroom(&self) -> u64 {
        self.most_bytes().saturating_sub(self.bytes.get())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn the_index_and_what_is_lent_share_their_room() {
        let index = IndexUse::new(1600, 2000);
        for (lent, most) in [(0, 1600), (400, 1600), (900, 1100), (5000, 100)] {
            index.lent_bytes.store(lent, Ordering::Relaxed);
            assert_eq!(index.headroom(), most, "{lent} lent");
            assert!(!index.is_short());
        }
        assert!(index.leaves(950, 1000));
        assert!(!index.leaves(951, 1000), "reclaim would make space");
        assert!(index.leaves(1900, 0));
        assert!(!index.leaves(1901, 0), "some is left to it in any case");
    }
}
