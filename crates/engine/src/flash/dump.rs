//! Dumping: visits the live items on flash, a segment at a time.

use super::FlashTier;
use crate::format::item::ItemRef;
use crate::format::segment::SummaryEntry;
use crate::key::KeyHash;
use crate::reclaim::{Named, Resident, next_run};
use crate::store::{ReadError, SegmentPin, SegmentRecord};

/// An item seen while dumping the flash.
pub struct DumpItem<'a> {
    /// The item.
    pub item: ItemRef<'a>,
    /// Hash of its key.
    pub hash: KeyHash,
}

/// Where a dump has come to: the sequence number of the last segment visited.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpCursor {
    after_sequence: u64,
}

impl FlashTier {
    /// Visits the live items of the oldest segment after the cursor, in memory or on flash; false once there is
    /// none.
    pub(crate) async fn dump(
        &self,
        cursor: &mut DumpCursor,
        visit: &mut dyn FnMut(DumpItem<'_>),
    ) -> bool {
        let store = self.store();
        // In this order: a segment that is written meanwhile is in both.
        let in_memory = store.in_memory();
        let next = store
            .written()
            .into_iter()
            .chain(in_memory)
            .filter(|record| record.sequence > cursor.after_sequence)
            .min_by_key(|record| record.sequence);
        let Some(record) = next else { return false };
        cursor.after_sequence = record.sequence;
        let Some(pin) = store.pin(record.segment, record.sequence) else {
            return true;
        };
        if let Some(entries) = store.summary_in_memory(&pin) {
            self.dump_entries(&record, &pin, &entries, visit).await;
        } else if let Err(error) = self.dump_segment(&record, visit).await {
            tracing::warn!(segment = record.segment.0, %error, "a segment could not be dumped");
        }
        true
    }

    fn is_named(&self, item: &Resident) -> bool {
        self.placement.check(item, &mut |_| true) == Named::Kept
    }

    /// Visits items of a segment in memory; one that is written meanwhile is read from flash.
    async fn dump_entries(
        &self,
        record: &SegmentRecord,
        pin: &SegmentPin<'_>,
        entries: &[SummaryEntry],
        visit: &mut dyn FnMut(DumpItem<'_>),
    ) {
        let now = runtime::unix_seconds();
        for entry in entries {
            let resident = Resident::of(record, entry);
            let (hash, place) = (resident.hash, resident.place);
            if self.is_named(&resident)
                && let Ok(found) = self.store().read(pin, place.position).await
                && self.upkeep.cutoffs.is_item_live(hash, found.header(), now)
            {
                let item = found.item();
                visit(DumpItem { item, hash });
            }
        }
    }

    async fn dump_segment(
        &self,
        record: &SegmentRecord,
        visit: &mut dyn FnMut(DumpItem<'_>),
    ) -> Result<(), ReadError> {
        let store = self.store();
        let entries = store.read_summary(record).await?;
        let now = runtime::unix_seconds();
        let mut rest = &entries[..];
        while !rest.is_empty() {
            let (run, start, len) = next_run(rest, record.slot_bytes, store.segment_bytes());
            rest = &rest[run.len()..];
            let bytes = store
                .read_range(record.segment, start, len as usize)
                .await?;
            for entry in run {
                let resident = Resident::of(record, entry);
                let (hash, offset) = (resident.hash, resident.place.position.offset());
                let at = &bytes[(offset - start) as usize..];
                if self.is_named(&resident)
                    && let Ok(item) = ItemRef::decode(at, record.sequence, offset)
                    && self.upkeep.cutoffs.is_item_live(hash, item.header, now)
                {
                    visit(DumpItem { item, hash });
                }
            }
        }
        Ok(())
    }
}
