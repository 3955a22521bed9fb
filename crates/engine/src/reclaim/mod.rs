//! Writing sealed segments and reclaiming old ones, whatever indexes the items in them.
//!
//! ```text
//!   upkeep      sealed ──> flash │ failed: what the index names moves to another block, or is forgotten
//!   reclaimer   policy: which segment, what of it is kept ──> SEGMENT DEAD ──> summary
//!                 └─> each item: does the index name it? ── dropped │ copied │ back to memory ──> release
//! ```
//!
//! A policy is a pure function from what is seen to a choice; [`Upkeep`] carries it out and asks whoever
//! indexes the items through [`Residents`].

mod policy;
mod reclaimer;
mod upkeep;
mod watermarks;

pub(crate) use reclaimer::next_run;
pub use upkeep::FlashStats;
pub(crate) use upkeep::{Dirty, ReturnToMemory, Upkeep};
pub use watermarks::Watermarks;

use std::sync::atomic::AtomicU64;

use crate::counter::Count as _;
use crate::format::location::Place;
use crate::format::segment::{Position, SummaryEntry};
use crate::key::KeyHash;
use crate::store::SegmentRecord;

/// An item as its segment's summary names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Hash of its key.
    pub hash: KeyHash,
    /// The version under which the item was written.
    pub version: u64,
    /// Where the item lies.
    pub place: Place,
}

impl Resident {
    /// The item of a summary entry of a segment.
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

/// What an index said of an item, and what has become of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The index does not name the item: it is dead.
    No,
    /// The index names the item, and goes on naming it.
    Kept,
    /// The index named the item, and does not any more.
    Removed,
}

/// The index entries of the items in segments. Called from background tasks, without a partition's lock.
pub trait Residents: Send + Sync {
    /// Asks whether the index still names this very copy. If so, `keep` is called with whether it has been read
    /// since it was written, and says whether the entry stays; all in one hold of whatever protects the entry.
    ///
    /// A copy below the last version that was given to `invalidate` for its key is not named.
    fn check(&self, item: &Resident, keep: &mut dyn FnMut(bool) -> bool) -> Named;

    /// The item has been copied. Whether the index names the copy now; false when it did not name the old one.
    fn moved(&self, item: &Resident, to: Place) -> bool;

    /// A segment has gone without its summary: removes every entry that names it, and returns how many there
    /// were. Nothing is to do where entries hold the generation of their segment.
    fn forget_segment(&self, _record: &SegmentRecord) -> u64 {
        0
    }
}

/// How much the index holds; kept by the placement, read by everybody without a lock.
#[derive(Debug)]
pub struct IndexUse {
    /// Items that are found on flash.
    pub objects: AtomicU64,
    /// Bytes of memory that the index holds.
    pub bytes: AtomicU64,
    /// Bytes of memory held until everything is recovered, no part of `max_bytes`: reclaim cannot free them.
    pub recovery_bytes: AtomicU64,
    /// Bytes of memory at which reclaim has to make space in the index, while no more is lent than may be.
    pub max_bytes: u64,
    /// Bytes of memory that are lent to others.
    pub lent_bytes: AtomicU64,
    /// Bytes of memory that are theirs in any case, and no part of `max_bytes`.
    pub lendable_bytes: u64,
}

impl IndexUse {
    pub(crate) fn new(max_bytes: u64, lendable_bytes: u64) -> Self {
        Self {
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            recovery_bytes: AtomicU64::new(0),
            max_bytes,
            lent_bytes: AtomicU64::new(0),
            lendable_bytes,
        }
    }

    /// Bytes of memory that it may have at present.
    fn most_bytes(&self) -> u64 {
        let lent_bytes = self.lent_bytes.get();
        let more = lent_bytes.saturating_sub(self.lendable_bytes);
        self.max_bytes.saturating_sub(more)
    }

    /// Whether it has next to no space left, so that reclaim makes some.
    pub(crate) fn is_short(&self) -> bool {
        self.headroom() < self.most_bytes() / 64
    }

    /// Whether so many objects fit, at as many bytes each as those that are there take.
    pub(crate) fn holds(&self, objects: u64) -> bool {
        let wanted = u128::from(objects) * u128::from(self.bytes.get());
        wanted <= u128::from(self.objects.get()) * u128::from(self.max_bytes)
    }

    /// Bytes by which the index may still grow.
    pub(crate) fn headroom(&self) -> u64 {
        self.most_bytes().saturating_sub(self.bytes.get())
    }
}
