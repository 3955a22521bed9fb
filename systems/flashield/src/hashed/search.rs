//! Looking a key up: the candidates are read one after the other until one is the key's (Flashield, figure 5).

use crate::compact::{CLOCK_HIGHEST, CompactEntry, Rank};

use super::core::{Candidate, Hashed};
use super::dead::CopyRank;
use super::shard::{CLOCK_WRITTEN, Shard};
use super::spot::Spot;
use engine::Count as _;
use engine::format::item::state;
use engine::format::location::Place;
use engine::format::segment::Position;
use engine::placement::{Counts, Found, Unlocated};
use engine::store::{FlashItem, Patience, ReadError, SegmentPin};
use engine::{Key, KeyHash};

/// Looks at an index that changes while it is read, at most.
const MOST_LOOKS: usize = 8;

const _: () = assert!(CLOCK_WRITTEN < CLOCK_HIGHEST);
// Values go from memory to the index and back.
const _: () = assert!(CLOCK_HIGHEST == engine::format::item::CLOCK_HIGHEST);

impl Hashed {
    /// Reads the item of a key.
    ///
    /// What a candidate leads to counts only if the entry is still there when it has been read: before a dead key is struck
    /// out, the entries of its copies go.
    /// That the item has been read is noted where it `counts`.
    pub(super) async fn find(
        &self,
        key: Key<'_>,
        patience: Patience,
        counts: Counts<'_>,
    ) -> Result<Found, ReadError> {
        let hash = key.hash();
        let mut tried = Vec::new();
        let mut failed = None;
        for _ in 0..MOST_LOOKS {
            // Otherwise it has moved, or it is gone.
            let mut candidates = self.candidates(&self.shard(hash).lock(), hash);
            candidates.retain(|candidate| !tried.contains(candidate));
            if candidates.is_empty() {
                break;
            }
            for candidate in candidates {
                tried.push(candidate);
                let Some(spot) = self.spot(hash, &candidate) else {
                    continue;
                };
                let found = self.find_at(&spot, patience);
                // The pin keeps the segment in its generation until the entry has been looked at.
                let (_pin, mut item) = match found.await {
                    Ok(Some(found)) if found.1.item().key == key.bytes() => found,
                    Ok(_) => {
                        self.counters.false_reads.add(1);
                        continue;
                    }
                    Err(error @ ReadError::NoMemory { .. }) => return Err(error),
                    Err(error) => {
                        failed = Some(error);
                        continue;
                    }
                };
                let rank = spot.rank(item.header().version.get());
                if let Some(was_read) = self.look_at(hash, &candidate, rank, counts) {
                    if was_read {
                        item.mark(state::FETCHED);
                    }
                    return Ok(Found::Item(item));
                }
            }
        }
        failed.map_or(Ok(Found::Absent), Err)
    }

    /// The item that lies at a place, whatever its key.
    pub(super) async fn find_at(
        &self,
        spot: &Spot,
        patience: Patience,
    ) -> Result<Option<(SegmentPin<'_>, FlashItem)>, ReadError> {
        let (segment, generation) = (spot.segment, spot.generation);
        self.store
            .find_at(segment, generation, spot.offset, patience)
            .await
    }

    /// An item has been looked at, which is noted where it `counts`. Whether it had been read before, for sure; `None` where it
    /// is dead, or lies there no more.
    fn look_at(
        &self,
        hash: KeyHash,
        candidate: &Candidate,
        rank: CopyRank,
        counts: Counts<'_>,
    ) -> Option<bool> {
        self.change(hash, |shard| {
            // A segment that goes takes its keys off the list of the dead, though an entry may be left, and this read.
            let is_current =
                self.store.sequence(candidate.location.segment) == candidate.generation;
            if !is_current || shard.dead.kills(hash.0, rank) {
                return None;
            }
            let before = if counts() {
                self.touch(shard, candidate)?
            } else {
                let there = shard.table.get(candidate.slot);
                there.filter(|entry| entry.location == candidate.location)?
            };
            Some(matches!(before.rank, Rank::Hot { clock } if clock > CLOCK_WRITTEN))
        })
    }

    /// What an entry names has been read. Returns the entry as it was before; `None` where it is there no more.
    pub(super) fn touch(&self, shard: &mut Shard, candidate: &Candidate) -> Option<CompactEntry> {
        let (slot, location) = (candidate.slot, candidate.location);
        let before = shard.table.touch_if_at(slot, location)?;
        if before.is_ghost() {
            self.keep_ghosts(shard);
        }
        Some(before)
    }

    /// Where the latest copy of a key lies that the index names.
    pub(super) async fn find_latest(&self, hash: KeyHash) -> Result<Option<Place>, Unlocated> {
        let candidates = self.candidates(&self.shard(hash).lock(), hash);
        let mut latest: Option<(CopyRank, Place)> = None;
        for candidate in candidates {
            let Some(spot) = self.spot(hash, &candidate) else {
                continue;
            };
            let found = self.find_at(&spot, Patience::Waits);
            let Ok(found) = found.await else {
                // It may be the latest: then no other may be named.
                self.restoring.lock().lose(hash);
                return Err(Unlocated);
            };
            let Some((_pin, item)) = found else {
                continue;
            };
            if self.hash_of(item.item().key) != Some(hash) {
                continue;
            }
            let rank = spot.rank(item.header().version.get());
            let place = Place {
                segment: spot.segment,
                generation: spot.generation,
                position: Position::new(spot.offset, item.item().flash_bytes() as u32),
            };
            if latest.is_none_or(|(highest, _)| rank > highest) {
                latest = Some((rank, place));
            }
        }
        Ok(latest.map(|(_, place)| place))
    }
}
