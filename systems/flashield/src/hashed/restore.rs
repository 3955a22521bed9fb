//! Items of an earlier run: what of a segment lives gets entries, and what is dead must not be found by those of others.
//!
//! Versions alone decide which copy of a key counts, so none of those that have come back may be forgotten before all have:
//! an older one would take its place. While items come back no entry makes way for another, and a key of which one has found
//! no place has none at all.

use super::core::Hashed;
use super::restoring::Restoring;
use super::shard;
use engine::Count as _;
use engine::placement::{Batch, Displaced, Restored};
use engine::reclaim::Resident;
use engine::store::SegmentRecord;
use std::sync::atomic::Ordering;

impl Hashed {
    /// Items begin to come back.
    pub(super) fn begin_restoring(&self) {
        let mut restoring = self.restoring.lock();
        if restoring.is_none() {
            *restoring = Restoring::new(self.index_use.max_bytes);
            self.index_use.recovery_bytes.add(restoring.memory_bytes());
            self.is_restoring.store(true, Ordering::SeqCst);
        }
    }

    /// All that was to come back has.
    pub(super) fn end_restoring(&self) {
        *self.restoring.lock() = Restoring::default();
        self.index_use.recovery_bytes.store(0, Ordering::Relaxed);
        self.is_restoring.store(false, Ordering::SeqCst);
        self.note_fill();
        self.queue_dead();
    }

    /// Gives an item of a batch an entry, if it may have one.
    pub(super) fn restore_one(&self, item: &Resident, batch: Batch<'_>) -> Restored {
        let (hash, place, beaten) = (item.hash, item.place, batch.beaten);
        let Some(spot) = self.spot_of(hash, place) else {
            self.restoring.lock().lose(hash);
            self.record_dead_below(hash, item.version + 1);
            return Restored::Refused;
        };
        self.change(hash, |shard| {
            if !batch.lost_marks.is_empty() {
                let mut marks = self.marks(shard, hash, &spot).into_iter();
                if marks.any(|mark| batch.lost_marks.binary_search(&mark).is_ok()) {
                    return Restored::Lost;
                }
            }
            let mut restoring = self.restoring.lock();
            if restoring.is_lost(hash) {
                self.record_dead_below(hash, item.version + 1);
                return Restored::Refused;
            }
            let may_have_rival = beaten.is_none() && restoring.may_have(hash);
            if may_have_rival && self.has_candidates(shard, hash) {
                return Restored::Unclear;
            }
            if beaten.is_some() {
                // Also where that is this place: an entry of another key leads here, and its own to another copy.
                self.outdate(shard, hash, spot.rank(item.version));
                // This copy may lose its entry, and would not be found to be the later one.
                self.record_dead_below(hash, item.version);
            }
            if !self.put(shard, hash, shard::restored(spot.own())) {
                // What has been beaten is dead, and no older copy may take its place.
                restoring.lose(hash);
                self.record_dead_below(hash, item.version + 1);
                return Restored::Refused;
            }
            restoring.add(hash);
            self.change_members(|members| {
                members.restore(place.segment, place.generation, hash.0);
            });
            Restored::Taken(Displaced::Unknown)
        })
    }

    /// All of a segment that was to come back has. Entries of other keys may lead to the rest: what look-ups would find of it
    /// is listed as dead. `expired` items have had entries.
    pub(super) fn close_segment(
        &self,
        record: &SegmentRecord,
        dead: &[Resident],
        expired: &[Resident],
    ) {
        // Before anything is looked up: a filter has keys that the segment has not.
        self.settle(record.segment, record.sequence);
        for item in expired {
            let Some(spot) = self.spot_of(item.hash, item.place) else {
                continue;
            };
            self.change(item.hash, |shard| {
                // Its own: while items come back none is lost.
                shard.remove_dead(item.hash.0, &spot, item.version);
            });
        }
        for item in dead {
            let Some(spot) = self.spot_of(item.hash, item.place) else {
                continue;
            };
            self.change(item.hash, |shard| {
                if self.naming(shard, item.hash, &spot).is_some() {
                    let rank = spot.rank(item.version);
                    shard.dead.exclude(item.hash.0, rank, None);
                }
            });
        }
    }
}
