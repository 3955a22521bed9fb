//! What a start does with the records that may not be in the table: those behind the end that the log says.
//!
//! Records follow each other, or begin on the next page where a sync has come between, or in the next segment. Each is taken from
//! the drive or, where it is not there, from the slot of its segment in the log. Then they are written, and their addresses go to
//! the table, in the order in which they came: so the table has the newest change of each key, whatever it had of them before.
//!
//! Records of this start have a new epoch. What lies behind the end has an older one, and is never taken for a later record.

use std::sync::Arc;

use device::{AlignedBuf, PAGE_BYTES};
use format::slices_map::{RECORD_HEAD_BYTES, Record};

use super::state::{State, Unstored};
use super::{Inner, SliceMap};
use crate::error::SliceError;

impl SliceMap {
    /// The map with all that a crash has left, in a new epoch.
    pub(super) async fn recovered(self) -> Result<Self, SliceError> {
        let mut inner = Arc::into_inner(self.0).expect("it has been made just now");
        let end = inner.state.lock().stored;
        let end = inner.recover(end).await?;
        let segment_bytes = inner.ring.segment_bytes();
        *inner.state.lock() = State::new(inner.ring.segment_of(end), segment_bytes);
        // A power cut may have torn the first write of the segment that follows.
        inner.torn = inner.ring.tail(inner.ring.segment_of(end).0 + 1);
        // Before there is a record of the new epoch, all of the old one are durable, and so is the epoch.
        inner.sync_table().await?;
        inner.epoch = inner.epoch.wrapping_add(1);
        inner.log.store_epoch(inner.epoch);
        inner.sync_table().await?;
        Ok(Self(Arc::new(inner)))
    }
}

impl Inner {
    /// Brings records from `end` on to the drives and the table; where they end.
    async fn recover(&self, mut end: u64) -> Result<u64, SliceError> {
        let (mut segment, mut from) = self.ring.segment_of(end);
        loop {
            let found = self.records_left(segment, from).await?;
            match found {
                Some(found) => {
                    self.store(&found).await?;
                    end = self.ring.start_of(segment) + found.range.end as u64;
                }
                // Records may go on behind a segment that had no space left.
                None if from > 0 => {}
                None => return Ok(end),
            }
            (segment, from) = (segment + 1, 0);
        }
    }

    /// The records of a segment from a page's start on that the last start has left.
    async fn records_left(
        &self,
        segment: u64,
        from: usize,
    ) -> Result<Option<Unstored>, SliceError> {
        // What cannot be read there was never synced, or the log has it, too.
        let on_drive = self.ring.read_segment(self.table.drives(), segment).await;
        let on_drive = on_drive.unwrap_or_else(|_| AlignedBuf::new(self.ring.segment_bytes()));
        let in_log = self.log.read_slot(segment)?;
        let mut starts = Vec::new();
        let mut at = from;
        let mut bytes = AlignedBuf::new(self.ring.segment_bytes());
        while at + RECORD_HEAD_BYTES <= bytes.len() {
            let position = self.ring.start_of(segment) + at as u64;
            let record_of = |bytes: &[u8]| {
                let record = Record::decode(self.instance.id, position, &bytes[at..]).ok()?;
                (record.epoch == self.epoch).then(|| record.len())
            };
            let found = record_of(&on_drive).map(|len| (&on_drive, len));
            let found = found.or_else(|| record_of(&in_log).map(|len| (&in_log, len)));
            if let Some((of, len)) = found {
                bytes[at..at + len].copy_from_slice(&of[at..at + len]);
                starts.push(at);
                at += len;
            } else if at.is_multiple_of(PAGE_BYTES) {
                break;
            } else {
                at = at.next_multiple_of(PAGE_BYTES);
            }
        }
        if starts.is_empty() {
            return Ok(None);
        }
        let range = from..at.next_multiple_of(PAGE_BYTES).min(bytes.len());
        let mut pages = AlignedBuf::new(range.len());
        pages.copy_from_slice(&bytes[range.clone()]);
        Ok(Some(Unstored {
            segment,
            pages: Some(Arc::new(pages)),
            starts: starts.into_iter().map(|at| at - from).collect(),
            is_full: false,
            range,
        }))
    }
}
