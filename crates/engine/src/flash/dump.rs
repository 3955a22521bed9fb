//! Dumping: visits the live items on flash, a segment at a time, and of a long one a part at a time.

use std::ops::ControlFlow;

use super::FlashTier;
use crate::format::item::{ItemHeader, ItemRef};
use crate::format::segment::SummaryEntry;
use crate::key::KeyHash;
use crate::reclaim::{Named, Resident, next_run};
use crate::store::{ReadError, SegmentRecord};

/// An item seen while dumping the flash.
pub struct DumpItem<'a> {
    /// The item.
    pub item: ItemRef<'a>,
    /// Hash of its key.
    pub hash: KeyHash,
}

/// Where a dump of the flash has come to.
#[derive(Debug, Default)]
pub struct DumpCursor {
    /// The sequence number of the last segment begun.
    after_sequence: u64,
    /// What is left of it.
    rest: Option<SegmentRest>,
}

/// Items of a segment that are still to be visited.
#[derive(Debug)]
struct SegmentRest {
    record: SegmentRecord,
    entries: Vec<SummaryEntry>,
    /// How many of the entries have been visited.
    visited: usize,
}

/// What is called for each item, until it has had enough.
type Visit<'a> = &'a mut dyn FnMut(DumpItem<'_>) -> ControlFlow<()>;

impl FlashTier {
    /// Visits live items of the oldest segment after the cursor, in memory or on flash, until `visit` has had enough;
    /// false once there is none.
    pub(crate) async fn dump(&self, cursor: &mut DumpCursor, visit: Visit<'_>) -> bool {
        if cursor.rest.is_none() {
            let Some(record) = self.next_segment(cursor.after_sequence) else {
                return false;
            };
            cursor.after_sequence = record.sequence;
            let entries = self.entries_of(&record).await;
            cursor.rest = entries.map(|entries| SegmentRest {
                record,
                entries,
                visited: 0,
            });
        }
        if let Some(rest) = &mut cursor.rest {
            let visited = self.dump_segment(rest, visit).await;
            if let Err(error) = &visited {
                let segment = rest.record.segment.0;
                tracing::warn!(segment, %error, "a segment could not be dumped");
            }
            if !matches!(visited, Ok(ControlFlow::Break(()))) {
                cursor.rest = None;
            }
        }
        true
    }

    /// The oldest segment after a sequence number.
    fn next_segment(&self, after_sequence: u64) -> Option<SegmentRecord> {
        let store = self.store();
        // In this order: a segment that is written meanwhile is in both.
        let in_memory = store.in_memory();
        let all = store.written().into_iter().chain(in_memory);
        all.filter(|record| record.sequence > after_sequence)
            .min_by_key(|record| record.sequence)
    }

    /// The summary of a segment; `None` when it has gone, or cannot be read.
    async fn entries_of(&self, record: &SegmentRecord) -> Option<Vec<SummaryEntry>> {
        let store = self.store();
        let pin = store.pin(record.segment, record.sequence)?;
        if let Some(entries) = store.summary_in_memory(&pin) {
            return Some(entries);
        }
        store
            .read_summary(record)
            .await
            .inspect_err(|error| {
                let segment = record.segment.0;
                tracing::warn!(segment, %error, "a segment could not be dumped");
            })
            .ok()
    }

    fn is_named(&self, item: &Resident) -> bool {
        self.placement.check(item, &mut |_| true) == Named::Kept
    }

    /// Visits items of a segment: in its buffer while it has one, else in long reads of the flash.
    async fn dump_segment(
        &self,
        rest: &mut SegmentRest,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let (store, record) = (self.store(), rest.record);
        let now = runtime::unix_seconds();
        let is_live =
            |hash, header: &ItemHeader| self.upkeep.cutoffs.is_item_live(hash, header, now);
        // A segment that has gone holds nothing that the index names.
        let Some(pin) = store.pin(record.segment, record.sequence) else {
            return Ok(ControlFlow::Continue(()));
        };
        while rest.visited < rest.entries.len() {
            let left = &rest.entries[rest.visited..];
            if store.is_in_memory(&pin) {
                let resident = Resident::of(&record, &left[0]);
                let (hash, place) = (resident.hash, resident.place);
                rest.visited += 1;
                if self.is_named(&resident)
                    && let Ok(found) = store.read(&pin, place.position).await
                    && is_live(hash, found.header())
                    && visit(DumpItem {
                        item: found.item(),
                        hash,
                    })
                    .is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let (run, start, len) = next_run(left, record.slot_bytes, store.segment_bytes());
            let bytes = store
                .read_range(record.segment, start, len as usize)
                .await?;
            for entry in run {
                let resident = Resident::of(&record, entry);
                let (hash, offset) = (resident.hash, resident.place.position.offset());
                let at = &bytes[(offset - start) as usize..];
                rest.visited += 1;
                if self.is_named(&resident)
                    && let Ok(item) = ItemRef::decode(at, record.sequence, offset)
                    && is_live(hash, item.header)
                    && visit(DumpItem { item, hash }).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
