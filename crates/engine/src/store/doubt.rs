//! Syncs of the flash, and what one that fails may have lost.
//!
//! The system tells of an error once and takes the pages for clean: the sync after it succeeds without them. So one
//! goes on at a time, and when it fails all that was written since the last good one is in doubt:
//!
//! | what | is made good by |
//! |---|---|
//! | what a segment in a buffer has flushed | its next flush, or its write: both begin anew |
//! | a segment that is on flash, or being written | [`sync_all`](SegmentStore::sync_all): the same bytes, in the same place |
//! | a checkpoint, a superblock | whoever writes it and finds that [`failed_syncs`](SegmentStore::failed_syncs) has risen |
//!
//! Emulated flash, whose pages cannot be written twice, has no doubts.

use device::DeviceError;

use super::core::{Content, SegmentStore};
use super::filling::FLUSH_BYTES;
use super::read::SegmentPin;
use crate::sync::atomic::Ordering;

impl SegmentStore {
    /// Makes everything written durable, but for what is in doubt.
    ///
    /// # Errors
    /// What the device says; what has been written since the last good sync is in doubt from then on.
    pub(crate) async fn sync(&self) -> Result<(), DeviceError> {
        self.sync_by(self.flash.sync()).await
    }

    /// [`sync`](SegmentStore::sync), by something that syncs the device after a write of its own.
    ///
    /// # Errors
    /// Its own; as for `sync`.
    pub(crate) async fn sync_by(
        &self,
        sync: impl Future<Output = Result<(), DeviceError>>,
    ) -> Result<(), DeviceError> {
        let _turn = self.syncing.acquire().await;
        // In this order: what is opened meanwhile has a higher number.
        let next_sequence = self.next_sequence().load(Ordering::Acquire);
        let in_memory = self.in_memory();
        let in_memory = in_memory.iter().map(|record| record.sequence);
        let written_before = in_memory.fold(next_sequence, u64::min);
        let synced = sync.await;
        match synced {
            Ok(()) => self.doubt.lock().durable_before = written_before,
            Err(_) => self.begin_doubt(),
        }
        synced
    }

    /// Syncs that have failed so far.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::Acquire)
    }

    /// Whether anything that was written may be lost.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.doubt.lock().segments.is_empty()
    }

    fn begin_doubt(&self) {
        // First: a flush that ends after its buffer has been looked at finds that it counts for nothing.
        self.failed_syncs.fetch_add(1, Ordering::AcqRel);
        if !self.flash.can_overwrite() {
            return;
        }
        for buffer in &self.buffers {
            match &mut *buffer.lock() {
                Content::Filling(filling) => filling.flushed.forget(),
                Content::Sealed { flushed, .. } => flushed.forget(),
                Content::Free(_) | Content::Lost => {}
            }
        }
        let (live, _) = self.live_segments();
        let mut doubt = self.doubt.lock();
        let since = doubt.durable_before;
        let unsure = live.iter().filter(|record| record.sequence >= since);
        doubt
            .segments
            .extend(unsure.map(|record| (record.sequence, record.segment)));
    }

    /// Makes everything on flash durable: writes what is in doubt again, and syncs. What is in a buffer stays in doubt.
    ///
    /// # Errors
    /// The first error of the device.
    pub(crate) async fn sync_all(&self) -> Result<(), DeviceError> {
        let doubtful = self.doubt.lock().segments.clone();
        let failed = self.failed_syncs();
        let mut settled = Vec::new();
        for (sequence, segment) in doubtful {
            // Its copy is the one piece in memory.
            let _turn = self.flushing.acquire().await;
            match self.pin(segment, sequence) {
                Some(_) if !self.is_on_flash(segment) => continue,
                Some(pin) => self.write_again(&pin).await?,
                // It has been reclaimed.
                None => {}
            }
            settled.push((sequence, segment));
        }
        self.sync().await?;
        if self.failed_syncs() == failed {
            let mut doubt = self.doubt.lock();
            for segment in &settled {
                doubt.segments.remove(segment);
            }
        }
        Ok(())
    }

    /// Writes the bytes of a segment to where they lie. A power cut meanwhile leaves what it is, half written or not.
    async fn write_again(&self, pin: &SegmentPin<'_>) -> Result<(), DeviceError> {
        for start in (0..self.segment_bytes).step_by(FLUSH_BYTES as usize) {
            let len = FLUSH_BYTES.min(self.segment_bytes - start);
            let bytes = self.read_range(pin.segment, start, len as usize).await?;
            self.overwrite_at(pin.segment, start, bytes.into()).await?;
        }
        Ok(())
    }
}
