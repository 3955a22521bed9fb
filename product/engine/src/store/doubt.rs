//! [`Syncs`]: syncs of the flash, and the repair after a sync that failed.
//!
//! The operating system reports an error once and then takes the pages for clean: the next sync succeeds without them.
//! So one sync runs at a time, and when it fails, everything written since the last good sync is in doubt:
//!
//! | data in doubt | repair |
//! |---|---|
//! | flushed part of a segment in a buffer | the next flush or write of the segment: both begin anew |
//! | segment on flash, or being written | [`sync_all`](super::flush::Flusher::sync_all): writes the same bytes to the same place |
//! | checkpoint, superblock | its writer, once it finds that [`failed_syncs`](Syncs::failed_syncs) has changed |
//!
//! Emulated flash, whose pages cannot be written twice, never has segments in doubt.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use device::DeviceError;
use runtime::sync::Semaphore;

use super::append::Appender;
use super::blocks::Blocks;
use super::buffers::Buffers;
use super::parts::Parts;
use super::table::SegmentTable;
use crate::sync::atomic::Ordering;

/// Syncs the flash, one sync at a time, and marks what a failed sync has put in doubt.
///
/// All segments below `durable_before` are durable, except those in doubt.
pub struct Syncs {
    /// Held while the flash is synced.
    syncing: Semaphore,
    /// See [`failed_syncs`](Self::failed_syncs).
    failed_syncs: AtomicU64,
    /// Sequence number below which all segments are durable, except those in doubt.
    durable_before: AtomicU64,
    table: Arc<SegmentTable>,
    blocks: Arc<Blocks>,
    buffers: Arc<Buffers>,
    appender: Arc<Appender>,
}

impl Syncs {
    pub(super) fn new(first_sequence: u64, appender: Arc<Appender>, parts: &Parts) -> Self {
        Self {
            syncing: Semaphore::new(1),
            failed_syncs: AtomicU64::default(),
            // A run begins with a sync.
            durable_before: AtomicU64::new(first_sequence),
            table: Arc::clone(&parts.table),
            blocks: Arc::clone(&parts.blocks),
            buffers: Arc::clone(&parts.buffers),
            appender,
        }
    }

    /// Makes all written data durable, except segments in doubt.
    ///
    /// The error of the device; all data written since the last good sync is in doubt from then on.
    pub(crate) async fn sync(&self) -> Result<(), DeviceError> {
        // In this order: a segment opened in between has a higher number.
        let next_sequence = self.appender.next_sequence().load(Ordering::Acquire);
        let in_memory = self.buffers.in_memory();
        let in_memory = in_memory.iter().map(|record| record.sequence);
        let written_before = in_memory.fold(next_sequence, u64::min);
        self.sync_by(self.blocks.flash().sync()).await?;
        self.durable_before
            .fetch_max(written_before, Ordering::AcqRel);
        Ok(())
    }

    /// Runs `sync`, which syncs the device after a write of its own, while no other sync runs.
    ///
    /// The error of `sync`; its consequence is as for [`sync`](Self::sync).
    pub async fn sync_by(
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

    /// Returns the sequence number below which all segments are durable, except those in doubt.
    pub(crate) fn durable_before(&self) -> u64 {
        self.durable_before.load(Ordering::Acquire)
    }

    /// Returns a counter that changes twice when a sync fails: before and after the segments in doubt are marked.
    pub fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::SeqCst)
    }

    fn begin_doubt(&self) {
        self.failed_syncs.fetch_add(1, Ordering::SeqCst);
        if self.blocks.flash().can_overwrite() {
            self.buffers.forget_flushed();
            let durable_before = self.durable_before.load(Ordering::Acquire);
            let (live, _) = self.appender.live_segments();
            for record in live {
                if record.sequence >= durable_before {
                    self.table.set_doubtful(record.segment, true);
                }
            }
        }
        self.failed_syncs.fetch_add(1, Ordering::SeqCst);
    }
}
