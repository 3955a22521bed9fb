//! [`LiveSuperblock`]: the superblock of a running cache.

use std::sync::Arc;

use device::{DeviceError, Region};
use runtime::sync::Semaphore;

use crate::durability::superblocks::{SUPERBLOCK_OFFSETS, write_superblock};
use crate::format::journal::VERSION_LIMIT;
use crate::format::superblock::Superblock;
use crate::store::{SavedCheckpoint, SegmentId};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tiers::Tiers;

/// Versions reserved at a time, for all partitions.
pub(crate) const VERSION_RESERVE: u64 = 1 << 36;
/// Versions that stay reserved after an orderly stop, for writes acknowledged during the stop.
const STOP_RESERVE: u64 = 1 << 30;
/// The highest limit on versions that a superblock may name. Writes beyond it are refused.
const LAST_LIMIT: u64 = VERSION_LIMIT - 1;

/// The superblock of a running cache. It is changed in turn, and the copy in memory only once the copy on flash is
/// durable.
pub(crate) struct LiveSuperblock {
    tiers: Arc<Tiers>,
    meta: Region,
    current: Mutex<Superblock>,
    /// Held while the superblock is changed and written.
    turn: Semaphore,
    /// Segments of checkpoints that the superblock may name: the write of the superblock has an unknown outcome.
    perhaps_named: Mutex<Vec<SegmentId>>,
    /// Whether the log has a line since the superblock could last be marked.
    is_failure_told: AtomicBool,
}

impl LiveSuperblock {
    pub(super) fn new(tiers: Arc<Tiers>, meta: Region, superblock: Superblock) -> Self {
        Self {
            tiers,
            meta,
            current: Mutex::new(superblock),
            turn: Semaphore::new(1),
            perhaps_named: Mutex::default(),
            is_failure_told: AtomicBool::new(false),
        }
    }

    /// Returns the superblock on flash.
    pub(crate) fn current(&self) -> Superblock {
        *self.current.lock()
    }

    /// Marks the journal void in the superblock if it has lost records: the superblock survives a power cut.
    pub(super) async fn note_void(&self) {
        // A sync takes its turn at the superblock only if the journal is void.
        if !self.tiers.journal().is_void() {
            return;
        }
        let _turn = self.turn.acquire().await;
        let mut superblock = *self.current.lock();
        if superblock.is_journal_void() || !self.tiers.journal().is_void() {
            return;
        }
        superblock.mark_journal_void(true);
        match self.write(&mut superblock).await {
            Ok(()) => {
                *self.current.lock() = superblock;
                self.is_failure_told.store(false, Ordering::Relaxed);
            }
            Err(error) if self.is_failure_told.swap(true, Ordering::Relaxed) => drop(error),
            Err(error) => {
                tracing::error!(%error, "the superblock cannot be written: a power cut may bring old values back");
            }
        }
    }

    /// Writes the superblock while nobody else syncs the flash, since an error is reported to one sync alone.
    async fn write(&self, superblock: &mut Superblock) -> Result<(), DeviceError> {
        let is_void = superblock.is_journal_void();
        // A power cut may leave the old superblock or the new one: the mark is durable only if both have it.
        self.tiers
            .journal()
            .note_void_durable(is_void && self.tiers.journal().is_void_durable());
        let written = write_superblock(&self.meta, superblock);
        self.tiers.store().syncs().sync_by(written).await?;
        self.tiers.journal().note_void_durable(is_void);
        Ok(())
    }

    /// Reserves more versions when half of the reserved ones have been used.
    pub(super) async fn reserve_versions(&self) {
        let next_version = self.tiers.partitions.next_version();
        let reserved = self.tiers.version_limit.load(Ordering::Relaxed);
        if next_version + VERSION_RESERVE / 2 < reserved || reserved == LAST_LIMIT {
            return;
        }
        let _turn = self.turn.acquire().await;
        let mut superblock = *self.current.lock();
        if superblock.is_clean() {
            // The run has ended and returned its unused versions; the next run may have begun.
            return;
        }
        let limit = (next_version + VERSION_RESERVE).min(LAST_LIMIT);
        superblock.version_limit = limit.into();
        // Both copies: a start that finds one damaged uses the other.
        for _ in SUPERBLOCK_OFFSETS {
            if let Err(error) = self.write(&mut superblock).await {
                tracing::warn!(%error, "no more versions could be reserved; it is tried again");
                return;
            }
            *self.current.lock() = superblock;
        }
        self.tiers.version_limit.fetch_max(limit, Ordering::Relaxed);
    }

    /// Frees checkpoints whose superblock write has an unknown outcome, by writing the superblock in force once more.
    /// Returns false if that fails; no other checkpoint may take flash space then.
    pub(super) async fn free_perhaps_named(&self) -> bool {
        if self.perhaps_named.lock().is_empty() {
            return true;
        }
        let _turn = self.turn.acquire().await;
        let mut superblock = *self.current.lock();
        if let Err(error) = self.write(&mut superblock).await {
            tracing::warn!(%error, "the superblock cannot be written");
            return false;
        }
        *self.current.lock() = superblock;
        let freed = std::mem::take(&mut *self.perhaps_named.lock());
        self.tiers.store().pool().free_checkpoint(&freed);
        true
    }

    /// Keeps the segments of a checkpoint: whether the superblock was written is unknown.
    pub(super) fn note_perhaps_named(&self, segments: Vec<SegmentId>) {
        self.perhaps_named.lock().extend(segments);
    }

    /// Points the superblock to a checkpoint and reserves more versions; at the end of a run returns the unused ones.
    /// Returns false if the journal has lost records since it had counted `losses`: the checkpoint may lack them.
    pub(super) async fn name_checkpoint(
        &self,
        saved: &SavedCheckpoint,
        end: u64,
        losses: u64,
        is_last: bool,
    ) -> Result<bool, DeviceError> {
        let _turn = self.turn.acquire().await;
        if self.tiers.journal().losses() != losses {
            return Ok(false);
        }
        let mut superblock = *self.current.lock();
        let segments: Vec<u32> = saved.segments.iter().map(|segment| segment.0).collect();
        superblock.set_checkpoint(saved.bytes, saved.sequence, &segments, end);
        superblock.mark_journal_void(false);
        let other_copy = superblock.version_limit.get();
        if is_last {
            let limit = self.tiers.partitions.next_version() + STOP_RESERVE;
            superblock.version_limit = limit.min(other_copy).into();
            self.tiers.version_limit.fetch_min(limit, Ordering::Relaxed);
            superblock.mark_clean(true);
        } else {
            let limit = (self.tiers.partitions.next_version() + VERSION_RESERVE).min(LAST_LIMIT);
            superblock.version_limit = limit.max(other_copy).into();
        }
        self.write(&mut superblock).await?;
        *self.current.lock() = superblock;
        if !is_last {
            // The other copy of the superblock has this lower limit, and a start that finds the new copy damaged uses
            // it.
            self.tiers
                .version_limit
                .fetch_max(other_copy, Ordering::Relaxed);
        }
        Ok(true)
    }
}
