//! Restoring the items of an earlier run: live items of a segment get entries, and other keys' entries must not lead to dead
//! items.
//!
//! Versions alone decide which copy of a key counts. So a restored key must be remembered until all items are restored, or an
//! older copy would take its place. During that time no entry displaces another, and if one copy of a key finds no slot, no
//! copy of the key gets an entry.

use super::core::Hashed;
use super::restoring::Restoring;
use super::shard;
use engine::Count as _;
use engine::placement::{Batch, Displaced, Restored};
use engine::reclaim::Resident;
use engine::store::SegmentRecord;
use std::sync::atomic::Ordering;

/// Starts restoring items, unless it has started already.
pub(super) fn begin(index: &Hashed) {
    let mut restoring = index.restoring.lock();
    if restoring.is_none() {
        *restoring = Restoring::new(index.index_use.max_bytes);
        index.index_use.recovery_bytes.add(restoring.memory_bytes());
        index.is_restoring.store(true, Ordering::SeqCst);
    }
}

/// Ends restoring: all items have been restored.
pub(super) fn end(index: &Hashed) {
    *index.restoring.lock() = Restoring::default();
    index.index_use.recovery_bytes.store(0, Ordering::Relaxed);
    index.is_restoring.store(false, Ordering::SeqCst);
    index.note_fill();
    index.queue_dead();
}

/// Adds an entry for an item of a batch, if it may have one.
pub(super) fn restore_one(index: &Hashed, item: &Resident, batch: Batch<'_>) -> Restored {
    let (hash, place, beaten) = (item.hash, item.place, batch.beaten);
    let Some(spot) = index.spot_of(hash, place) else {
        index.restoring.lock().lose(hash);
        index.record_dead_below(hash, item.version + 1);
        return Restored::Refused;
    };
    index.change(hash, |shard| {
        if !batch.lost_marks.is_empty() {
            let mut marks = index.marks(shard, hash, &spot).into_iter();
            if marks.any(|mark| batch.lost_marks.binary_search(&mark).is_ok()) {
                return Restored::Lost;
            }
        }
        let mut restoring = index.restoring.lock();
        if restoring.is_lost(hash) {
            index.record_dead_below(hash, item.version + 1);
            return Restored::Refused;
        }
        let may_have_rival = beaten.is_none() && restoring.may_have(hash);
        if may_have_rival && index.has_candidates(shard, hash) {
            return Restored::Unclear;
        }
        if beaten.is_some() {
            // Even if the beaten copy is this item: an entry of another key leads here, and the key's own entry to
            // another copy.
            index.outdate(shard, hash, spot.rank(item.version));
            // This copy may lose its entry, and could then not be found to be the later one.
            index.record_dead_below(hash, item.version);
        }
        if !index.put(shard, hash, shard::restored(spot.own())) {
            // The beaten copy is dead, and no older copy may take its place.
            restoring.lose(hash);
            index.record_dead_below(hash, item.version + 1);
            return Restored::Refused;
        }
        restoring.add(hash);
        index.change_members(|members| {
            members.restore(place.segment, place.generation, hash.0);
        });
        Restored::Taken(Displaced::Unknown)
    })
}

/// Settles a segment of which all items have been restored. Lists its `dead` items to which entries of other keys lead as
/// dead. Removes the entries of `expired` items.
pub(super) fn close_segment(
    index: &Hashed,
    record: &SegmentRecord,
    dead: &[Resident],
    expired: &[Resident],
) {
    // Comes first, because the filter has keys that the segment does not have.
    index.settle(record.segment, record.sequence);
    for item in expired {
        let Some(spot) = index.spot_of(item.hash, item.place) else {
            continue;
        };
        index.change(item.hash, |shard| {
            // The entry is the item's own: none is lost while items are restored.
            shard.remove_dead(item.hash.0, &spot, item.version);
        });
    }
    for item in dead {
        let Some(spot) = index.spot_of(item.hash, item.place) else {
            continue;
        };
        index.change(item.hash, |shard| {
            if index.naming(shard, item.hash, &spot).is_some() {
                let rank = spot.rank(item.version);
                shard.dead.exclude(item.hash.0, rank, None);
            }
        });
    }
}
