//! Syncs of the flash, and the repair after a sync that failed.
//!
//! The operating system reports an error once and then takes the pages for clean: the next sync succeeds without them.
//! So one sync runs at a time, and when it fails, everything written since the last good sync is in doubt:
//!
//! | data in doubt | repair |
//! |---|---|
//! | flushed part of a segment in a buffer | the next flush or write of the segment: both begin anew |
//! | segment on flash, or being written | [`sync_all`](SegmentStore::sync_all): writes the same bytes to the same place |
//! | checkpoint, superblock | its writer, once it finds that [`failed_syncs`](SegmentStore::failed_syncs) has changed |
//!
//! Emulated flash, whose pages cannot be written twice, never has segments in doubt.

use device::{DeviceError, PAGE_BYTES};

use super::core::SegmentStore;
use super::filling::FLUSH_BYTES;
use super::read::SegmentPin;
use super::segment::SegmentRecord;
use crate::format::segment::{FOOTER_BYTES, Footer, SegmentId, summary_offset};
use crate::sync::atomic::Ordering;

impl SegmentStore {
    /// Makes all written data durable, except segments in doubt.
    ///
    /// The error of the device; all data written since the last good sync is in doubt from then on.
    pub(crate) async fn sync(&self) -> Result<(), DeviceError> {
        // In this order: a segment opened in between has a higher number.
        let next_sequence = self.next_sequence().load(Ordering::Acquire);
        let in_memory = self.in_memory();
        let in_memory = in_memory.iter().map(|record| record.sequence);
        let written_before = in_memory.fold(next_sequence, u64::min);
        self.sync_by(self.flash.sync()).await?;
        self.durable_before
            .fetch_max(written_before, Ordering::AcqRel);
        Ok(())
    }

    /// Runs `sync`, which syncs the device after a write of its own, while no other sync runs.
    ///
    /// The error of `sync`; its consequence is as for [`sync`](SegmentStore::sync).
    pub(crate) async fn sync_by(
        &self,
        sync: impl Future<Output = Result<(), DeviceError>>,
    ) -> Result<(), DeviceError> {
        let _turn = self.syncing.acquire().await;
        let synced = sync.await;
        if synced.is_err() {
            self.begin_doubt();
        }
        synced
    }

    /// Returns a counter that changes twice when a sync fails: before and after the segments in doubt are marked.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::SeqCst)
    }

    fn begin_doubt(&self) {
        self.failed_syncs.fetch_add(1, Ordering::SeqCst);
        if self.flash.can_overwrite() {
            for buffer in &self.buffers {
                if let Some(flushed) = buffer.lock().flushed() {
                    flushed.forget();
                }
            }
            let durable_before = self.durable_before.load(Ordering::Acquire);
            let (live, _) = self.live_segments();
            for record in live {
                if record.sequence >= durable_before {
                    self.set_doubtful(record.segment, true);
                }
            }
        }
        self.failed_syncs.fetch_add(1, Ordering::SeqCst);
    }

    fn set_doubtful(&self, segment: SegmentId, is_doubtful: bool) {
        let mark = &self.segment(segment).is_doubtful;
        mark.store(is_doubtful, Ordering::Release);
    }

    /// Returns whether a part of a segment may be lost because a sync has failed since it was written.
    pub(crate) fn is_doubtful(&self, segment: SegmentId) -> bool {
        self.segment(segment).is_doubtful.load(Ordering::Acquire)
    }

    fn doubtful(&self) -> impl Iterator<Item = SegmentId> + '_ {
        (0..self.segments())
            .map(SegmentId)
            .filter(|&segment| self.is_doubtful(segment))
    }

    /// Returns whether any segment is in doubt.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubtful().next().is_some()
    }

    /// Makes all data on flash durable: writes the segments in doubt again, and syncs. Segments in buffers are not
    /// covered. Segments that a concurrent sync loses stay in doubt, and [`failed_syncs`](Self::failed_syncs) changes.
    ///
    /// Calls `lose` for each segment that cannot be read back or does not verify: no index may name it any more.
    ///
    /// The first error of the device. All segments except those that failed are durable, unless the sync failed.
    pub(crate) async fn sync_all(
        &self,
        lose: &(dyn Fn(&SegmentRecord) + Sync),
    ) -> Result<(), DeviceError> {
        let failed = self.failed_syncs();
        let mut written = Vec::new();
        let mut refused = Ok(());
        for segment in self.doubtful() {
            // One permit: a single piece of a segment is in memory at a time.
            let _turn = self.flushing.acquire().await;
            let sequence = self.sequence(segment);
            let pin = self.pin(segment, sequence).filter(|_| sequence != 0);
            let Some(pin) = pin.filter(|_| self.is_on_flash(segment)) else {
                continue;
            };
            match self.write_again(&pin).await {
                Ok(is_whole) => {
                    if !is_whole {
                        lose(&self.record(segment));
                    }
                    written.push((segment, sequence));
                }
                Err(error) => refused = refused.and(Err(error)),
            }
        }
        self.sync().await?;
        if self.failed_syncs() == failed {
            for (segment, sequence) in written {
                if self.sequence(segment) == sequence {
                    self.set_doubtful(segment, false);
                }
            }
        }
        refused
    }

    /// Writes the bytes of a segment to the place where they lie; a power cut during the write changes nothing. Returns
    /// `false` if the bytes are lost, or if the footer or the summary does not verify. Items are not checked: each is
    /// verified when it is read.
    async fn write_again(&self, pin: &SegmentPin<'_>) -> Result<bool, DeviceError> {
        let record = self.record(pin.segment);
        let footer_at = self.segment_bytes - FOOTER_BYTES;
        let summary = summary_offset(self.segment_bytes, record.items).unwrap_or(footer_at);
        let (mut checksum, mut is_whole) = (0, false);
        for start in (0..self.segment_bytes).step_by(FLUSH_BYTES as usize) {
            let end = self.segment_bytes.min(start + FLUSH_BYTES);
            let len = (end - start) as usize;
            let read = self.read_range(pin.segment, start, len).await;
            let Some(bytes) = self.outages.unless_lost(&record, start, read)? else {
                return Ok(false);
            };
            let entries = summary.max(start)..footer_at.min(end);
            if !entries.is_empty() {
                let entries = (entries.start - start) as usize..(entries.end - start) as usize;
                checksum = crc32c::crc32c_append(checksum, &bytes[entries]);
            }
            if end == self.segment_bytes {
                let page = &bytes[len - PAGE_BYTES..];
                let footer = Footer::read(page, pin.segment.0, self.segment_bytes);
                is_whole = footer.is_ok_and(|footer| {
                    footer.sequence.get() == pin.sequence
                        && footer.content_checksum.get() == checksum
                });
            }
            self.overwrite_at(pin.segment, start, bytes.into()).await?;
        }
        Ok(is_whole)
    }
}
