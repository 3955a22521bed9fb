//! Dumping: visits the live items on flash, a segment at a time, and of a long one a part at a time.
//!
//! For each item of a part it asks the placement whether the index names it. An index in memory tells at once, one on flash is
//! read. No lock is held during the reads.

use std::ops::ControlFlow;

use futures_util::future::join_all;

use super::FlashTier;
use crate::format::item::{ItemHeader, ItemRef};
use crate::format::run_header::is_header;
use crate::format::segment::SummaryEntry;
use crate::key::KeyHash;
use crate::placement::Placement;
use crate::reclaim::{Entered, Resident, next_run};
use crate::store::{ReadError, SegmentRecord, SegmentStore, offset_of};

/// Maximum items for which the placement is asked at once: enough for some replies, since a full reply ends a part.
const PART: usize = 1024;
/// Look-ups on flash at once: requests have most of those that read flash.
const LOOKUPS: usize = 16;

/// An item visited by a dump of the flash.
pub struct DumpItem<'a> {
    /// The item.
    pub item: ItemRef<'a>,
    /// Hash of the item's key.
    pub hash: KeyHash,
}

/// Position of a dump of the flash.
#[derive(Debug, Default)]
pub struct DumpCursor {
    /// The sequence number of the last segment begun.
    after_sequence: u64,
    /// The rest of that segment.
    rest: Option<SegmentRest>,
}

/// Items of a segment still to be visited.
#[derive(Debug)]
struct SegmentRest {
    record: SegmentRecord,
    entries: Vec<SummaryEntry>,
    /// Number of entries already visited.
    visited: usize,
}

/// Callback for each item, called until it breaks.
type Visit<'a> = &'a mut dyn FnMut(DumpItem<'_>) -> ControlFlow<()>;

impl DumpCursor {
    /// Visits live items of the oldest segment after the position, in memory or on flash, until `visit` breaks. Returns
    /// false if there is no further segment, and while recovery hides all items on flash.
    pub(crate) async fn visit(&mut self, tier: &FlashTier, visit: Visit<'_>) -> bool {
        if tier.is_hidden() {
            return false;
        }
        if self.rest.is_none() {
            let Some(record) = next_segment(tier.store(), self.after_sequence) else {
                return false;
            };
            self.after_sequence = record.sequence;
            let entries = entries_of(tier, &record).await;
            self.rest = entries.map(|entries| SegmentRest {
                record,
                entries,
                visited: 0,
            });
        }
        if let Some(rest) = &mut self.rest {
            let visited = rest.visit(tier, visit).await;
            if let Err(error) = &visited {
                let segment = rest.record.segment.0;
                tracing::warn!(segment, %error, "a segment could not be dumped");
            }
            if !matches!(visited, Ok(ControlFlow::Break(()))) {
                self.rest = None;
            }
        }
        true
    }
}

impl SegmentRest {
    /// Visits items of a segment: from its buffer while it has one, else with long reads of the flash.
    async fn visit(
        &mut self,
        tier: &FlashTier,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let (store, record) = (tier.store(), self.record);
        let now = runtime::unix_seconds();
        let is_live =
            |hash, header: &ItemHeader| tier.upkeep.cutoffs.is_item_live(hash, header, now);
        while self.visited < self.entries.len() {
            // The index names nothing in a segment that is gone.
            let Some(pin) = store.table().pin(record.segment, record.sequence) else {
                return Ok(ControlFlow::Continue(()));
            };
            let left = &self.entries[self.visited..];
            let left = &left[..left.len().min(PART)];
            let is_in_memory = store.buffers().is_in_memory(&pin);
            let (part, start, len) = if is_in_memory {
                (left, 0, 0)
            } else {
                next_run(left, record.slot_bytes, store.table().segment_bytes())
            };
            let items: Vec<Resident> = part
                .iter()
                .map(|entry| Resident::of(&record, entry))
                .collect();
            // Reclaim does not wait for look-ups.
            drop(pin);
            let named = names(tier.placement(), &items).await;
            let Some(pin) = store.table().pin(record.segment, record.sequence) else {
                return Ok(ControlFlow::Continue(()));
            };
            let bytes = if is_in_memory || !named.contains(&true) {
                None
            } else {
                let read = store
                    .blocks()
                    .read_range(record.segment, start, len as usize);
                Some(read.await?)
            };
            for (item, is_named) in items.iter().zip(named) {
                self.visited += 1;
                if !is_named {
                    continue;
                }
                let found;
                let contents = match &bytes {
                    Some(bytes) => {
                        let offset = item.place.position.offset();
                        let at = &bytes[(offset - start) as usize..];
                        ItemRef::decode(at, record.sequence, offset).ok()
                    }
                    None => {
                        found = store.reader().read(&pin, item.place.position).await.ok();
                        found.as_ref().map(|found| found.item())
                    }
                };
                let hash = item.hash;
                if let Some(contents) = contents.filter(|item| is_live(hash, item.header))
                    && visit(DumpItem {
                        item: contents,
                        hash,
                    })
                    .is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the oldest segment after a sequence number.
fn next_segment(store: &SegmentStore, after_sequence: u64) -> Option<SegmentRecord> {
    // In this order: a segment written in between is in both lists.
    let in_memory = store.buffers().in_memory();
    let all = store.pool().written().into_iter().chain(in_memory);
    all.filter(|record| record.sequence > after_sequence)
        .min_by_key(|record| record.sequence)
}

/// Returns entries for the items of a segment; `None` if the segment is gone or cannot be read.
async fn entries_of(tier: &FlashTier, record: &SegmentRecord) -> Option<Vec<SummaryEntry>> {
    let store = tier.store();
    let pin = store.table().pin(record.segment, record.sequence)?;
    let entries = async {
        let mut entries = match store.buffers().summary_in_memory(&pin) {
            Some(entries) => entries,
            None => store.reader().read_summary(record).await?,
        };
        if tier.upkeep.dead_copies.are_told_at_reads() {
            let reader = store.reader();
            let others = reader.unlisted(&pin, tier.hash_seed, &entries).await?;
            entries.retain(|entry| !is_header(entry));
            entries.extend(others);
            entries.sort_unstable_by_key(offset_of);
        }
        Ok::<_, ReadError>(entries)
    };
    entries
        .await
        .inspect_err(|error| {
            let segment = record.segment.0;
            tracing::warn!(segment, %error, "a segment could not be dumped");
        })
        .ok()
}

/// Returns which of these items of a segment the index names. Reads a few pages of an index on flash at once.
async fn names(placement: &dyn Placement, items: &[Resident]) -> Vec<bool> {
    let is_named = async |item: &Resident| match placement.entry(item) {
        Entered::No => false,
        Entered::Yes(_) => true,
        Entered::Perhaps => {
            let place = placement.locate(item.hash).await;
            place == Ok(Some(item.place))
        }
    };
    let mut named = Vec::with_capacity(items.len());
    for some in items.chunks(LOOKUPS) {
        named.extend(join_all(some.iter().map(is_named)).await);
    }
    named
}
