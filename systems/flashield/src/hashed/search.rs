//! Look-ups: the candidates are read one after the other until one has the key (Flashield, figure 5).

use crate::compact::{CLOCK_HIGHEST, Rank};

use super::core::{Candidate, Hashed};
use super::dead::CopyRank;
use super::shard::CLOCK_WRITTEN;
use super::spot::Spot;
use engine::Count as _;
use engine::format::item::state;
use engine::format::location::Place;
use engine::format::segment::Position;
use engine::placement::{Counts, Found, Unlocated};
use engine::store::{FlashItem, Patience, ReadError, SegmentPin};
use engine::{Key, KeyHash};

/// Most look-ups of the candidates of a key whose entries change during the read.
const MOST_LOOKS: usize = 8;

const _: () = assert!(CLOCK_WRITTEN < CLOCK_HIGHEST);
// An item keeps its CLOCK value when it moves between memory and index.
const _: () = assert!(CLOCK_HIGHEST == engine::format::item::CLOCK_HIGHEST);

/// Reads the item of a key.
///
/// A candidate's item counts only if its entry is still there after the read: entries of dead copies are removed before
/// their key leaves the list of dead keys. Notes that the item has been read, if the read `counts`.
pub(super) async fn find(
    index: &Hashed,
    key: Key<'_>,
    patience: Patience,
    counts: Counts<'_>,
) -> Result<Found, ReadError> {
    let hash = key.hash();
    let mut tried = Vec::new();
    let mut failed = None;
    for _ in 0..MOST_LOOKS {
        // From the second look-up on: the item has moved, or is gone.
        let mut candidates = index.candidates(&index.shard(hash).lock(), hash);
        candidates.retain(|candidate| !tried.contains(candidate));
        if candidates.is_empty() {
            break;
        }
        for candidate in candidates {
            tried.push(candidate);
            let Some(spot) = index.spot(hash, &candidate) else {
                continue;
            };
            let found = find_at(index, &spot, patience);
            // The pin keeps the segment's generation until the entry has been checked.
            let (_pin, mut item) = match found.await {
                Ok(Some(found)) if found.1.item().key == key.bytes() => found,
                Ok(_) => {
                    index.counters.false_reads.add(1);
                    continue;
                }
                Err(error @ (ReadError::NoMemory { .. } | ReadError::NoAnswer)) => {
                    return Err(error);
                }
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            let rank = spot.rank(item.header().version.get());
            if let Some(was_read) = look_at(index, hash, &candidate, rank, counts) {
                if was_read {
                    item.mark(state::FETCHED);
                }
                return Ok(Found::Item(item));
            }
        }
    }
    failed.map_or(Ok(Found::Absent), Err)
}

/// Returns the item at a spot, whatever its key.
pub(super) async fn find_at<'a>(
    index: &'a Hashed,
    spot: &Spot,
    patience: Patience,
) -> Result<Option<(SegmentPin<'a>, FlashItem)>, ReadError> {
    let (segment, generation) = (spot.segment, spot.generation);
    index
        .store
        .reader()
        .find_at(segment, generation, spot.offset, patience)
        .await
}

/// Checks an item after its read, and notes the read if it `counts`. Returns whether the item is known to have been read
/// before; `None` if the item is dead, or its entry is gone.
fn look_at(
    index: &Hashed,
    hash: KeyHash,
    candidate: &Candidate,
    rank: CopyRank,
    counts: Counts<'_>,
) -> Option<bool> {
    index.change(hash, |shard| {
        // A key leaves the list of dead keys when the segment of its copy goes; an entry and this read may outlast that.
        let is_current =
            index.store.table().sequence(candidate.location.segment) == candidate.generation;
        if !is_current || shard.dead.kills(hash.0, rank) {
            return None;
        }
        let before = if counts() {
            index.touch(shard, candidate)?
        } else {
            let there = shard.table.get(candidate.slot);
            there.filter(|entry| entry.location == candidate.location)?
        };
        Some(matches!(before.rank, Rank::Hot { clock } if clock > CLOCK_WRITTEN))
    })
}

/// Returns the place of the latest copy of a key that the index names.
pub(super) async fn find_latest(index: &Hashed, hash: KeyHash) -> Result<Option<Place>, Unlocated> {
    let candidates = index.candidates(&index.shard(hash).lock(), hash);
    let mut latest: Option<(CopyRank, Place)> = None;
    for candidate in candidates {
        let Some(spot) = index.spot(hash, &candidate) else {
            continue;
        };
        let found = find_at(index, &spot, Patience::Endless);
        let Ok(found) = found.await else {
            // The unreadable copy may be the latest one: no other copy may be named then.
            index.restoring.lock().lose(hash);
            return Err(Unlocated);
        };
        let Some((_pin, item)) = found else {
            continue;
        };
        if index.hash_of(item.item().key) != Some(hash) {
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
