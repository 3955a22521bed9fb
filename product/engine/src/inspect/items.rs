//! Counting items by state, from the summaries of live segments, or from all of their pages where items lie in runs.
//!
//! The latest of several items of a key is found by sorting hashes and versions. If that takes more memory than
//! allowed, the summaries are read several times, each time for a part of the hashes.

use std::collections::HashSet;

use futures_util::stream::{self, StreamExt};

use super::look::Look;
use super::runs::Kind;
use super::{Phase, Progress};
use crate::durability::dead::ItemState;
use crate::durability::find::LastRun;
use crate::format::segment::{FOOTER_BYTES, Footer, Position, SUMMARY_ENTRY_BYTES, SummaryEntry};
use crate::store::{ReadError, SegmentRecord};

/// Bytes of memory for each live item.
pub const ITEM_BYTES: u64 = size_of::<Latest>() as u64;

const _: () = assert!(ITEM_BYTES == 24, "as the documentation says");

/// Number of summaries read at once.
const SUMMARY_DEPTH: usize = 16;

/// Number of whole segments read at once.
pub(super) const SEGMENT_DEPTH: usize = 2;

/// Items in live segments. Each is in one state. The bytes of an item reach up to the next item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCounts {
    /// Items in live segments: those that the summaries list, and those in runs.
    pub listed: u64,
    /// Displaced: their places are listed as dead.
    pub displaced: u64,
    /// Overwritten while a recovery went on: dead by the hash of their key.
    pub overwritten: u64,
    /// Below the cutoff of a `flush_all`.
    pub flushed: u64,
    /// Expired.
    pub expired: u64,
    /// Older than another live item of their key; in runs, than any other.
    pub superseded: u64,
    /// In no run whose header is there.
    pub unnamed: u64,
    /// Items in segments whose summary is damaged.
    pub unreadable: u64,
    /// Live items, which a recovery would find.
    pub alive: u64,
    /// Bytes of live items.
    pub alive_bytes: u64,
    /// Bytes of all other items.
    pub dead_bytes: u64,
    /// Bytes of summaries, footers and run headers.
    pub summary_bytes: u64,
    /// Unused bytes of live segments.
    pub unused_bytes: u64,
}

/// Hash, version and bytes of an item that is found if it is the latest of its key, and whether it is alive then: sorted by
/// hash, the latest version last.
type Latest = (u64, u64, u32, bool);

/// Counts the items in live segments. Also returns the segments whose summary does not verify.
pub(super) async fn count(
    look: &Look,
    found: &LastRun,
    memory_bytes: u64,
    progress: &mut dyn FnMut(Progress),
) -> (ItemCounts, Vec<SegmentRecord>) {
    let mut counts = ItemCounts::default();
    let runs = look.runs.as_ref();
    let listed = found.items() + runs.map_or(0, |runs| runs.items);
    let passes = (listed * ITEM_BYTES)
        .div_ceil(memory_bytes.max(ITEM_BYTES))
        .max(1);
    let total = passes * found.living.len() as u64;
    let depth = match runs {
        Some(_) => SEGMENT_DEPTH,
        None => SUMMARY_DEPTH,
    };
    let mut done = 0;
    let mut unread: HashSet<SegmentRecord> = HashSet::new();
    for pass in 0..passes {
        let mut latest: Vec<Latest> = Vec::with_capacity((listed / passes) as usize);
        let segments: Vec<&SegmentRecord> = found
            .living
            .iter()
            .filter(|record| !unread.contains(record))
            .collect();
        let mut tails = stream::iter(segments)
            .map(|record| async move { (record, contents(look, record).await) })
            .buffered(depth);
        while let Some((record, tail)) = tails.next().await {
            done += 1;
            let phase = Phase::Summaries;
            progress(Progress { phase, done, total });
            let Ok((footer, entries)) = tail else {
                unread.insert(*record);
                continue;
            };
            if pass == 0 {
                counts.summary_bytes +=
                    u64::from(FOOTER_BYTES + SUMMARY_ENTRY_BYTES * record.items);
            }
            let items = found.dead.of_segment(record);
            for (number, (entry, kind)) in entries.iter().enumerate() {
                let (hash, version) = (entry.hash.get(), entry.version.get());
                if part(hash, passes) != pass {
                    continue;
                }
                let next = entries.get(number + 1).map(|(next, _)| next);
                let bytes = bytes_of(entry, next, &footer);
                match kind {
                    Kind::Header => counts.summary_bytes += u64::from(bytes),
                    Kind::Unnamed => counts.add_dead(|counts| &mut counts.unnamed, bytes),
                    Kind::Found => {
                        let state = look.classify(&items, entry);
                        counts.add(state, bytes);
                        let is_live = state == ItemState::Live;
                        // A dead item hides older ones only where its key is looked for, run by run.
                        if is_live || runs.is_some() {
                            latest.push((hash, version, bytes, is_live));
                        }
                    }
                }
            }
        }
        latest.sort_unstable();
        for pair in latest.windows(2) {
            let ((hash, _, bytes, is_live), (next, ..)) = (pair[0], pair[1]);
            if hash == next && is_live {
                // Counted as live, but not the latest item of its key.
                counts.alive -= 1;
                counts.alive_bytes -= u64::from(bytes);
                counts.superseded += 1;
                counts.dead_bytes += u64::from(bytes);
            }
        }
    }
    let segment_bytes = u64::from(look.store.table().segment_bytes());
    let read_bytes = (found.living.len() - unread.len()) as u64 * segment_bytes;
    let used = counts.alive_bytes + counts.dead_bytes + counts.summary_bytes;
    counts.unused_bytes = read_bytes.saturating_sub(used);
    (counts, unread.into_iter().collect())
}

/// Returns the part, out of `parts`, that a hash belongs to.
fn part(hash: u64, parts: u64) -> u64 {
    ((u128::from(hash) * u128::from(parts)) >> 64) as u64
}

/// Returns the bytes from an item to the next one, or to the end of the data.
fn bytes_of(entry: &SummaryEntry, next: Option<&SummaryEntry>, footer: &Footer) -> u32 {
    let offset = |entry: &SummaryEntry| Position::from_bits(entry.position.get()).offset();
    let end = next.map_or(footer.data_bytes.get(), offset);
    end.saturating_sub(offset(entry))
}

/// Returns the footer of a segment and entries for its items and run headers, in the order in which they lie.
async fn contents(
    look: &Look,
    record: &SegmentRecord,
) -> Result<(Footer, Vec<(SummaryEntry, Kind)>), ReadError> {
    let reader = look.store.reader();
    let Some(runs) = &look.runs else {
        let (footer, listed) = reader.read_tail(record).await?;
        let found = listed.into_iter().map(|entry| (entry, Kind::Found));
        return Ok((footer, found.collect()));
    };
    let (bytes, footer, listed) = reader.read_whole(record).await?;
    Ok((footer, runs.entries(record, listed, &bytes)))
}

impl ItemCounts {
    fn add(&mut self, state: ItemState, bytes: u32) {
        match state {
            ItemState::Live => {
                self.listed += 1;
                self.alive += 1;
                self.alive_bytes += u64::from(bytes);
            }
            ItemState::Displaced => self.add_dead(|counts| &mut counts.displaced, bytes),
            ItemState::Overwritten => self.add_dead(|counts| &mut counts.overwritten, bytes),
            ItemState::Flushed => self.add_dead(|counts| &mut counts.flushed, bytes),
            ItemState::Expired => self.add_dead(|counts| &mut counts.expired, bytes),
        }
    }

    fn add_dead(&mut self, count: impl FnOnce(&mut Self) -> &mut u64, bytes: u32) {
        self.listed += 1;
        *count(self) += 1;
        self.dead_bytes += u64::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_hash_is_in_one_part(hash: u64, parts in 1u64..1000) {
            prop_assert!(part(hash, parts) < parts);
            prop_assert_eq!(part(hash, 1), 0);
        }
    }
}
