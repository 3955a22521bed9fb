//! Reclaim's copies that a killed process would lose, and the bound on their bytes.
//!
//! A victim is declared dead before its first item moves. From then on, until the copies are on flash, memory alone has
//! its items, whether or not they have been copied yet:
//!
//! ```text
//!   victim taken ──> copied to a buffer ──> buffer sealed ──> written
//!   claimed          unwritten                                on flash
//! ```
//!
//! Claimed and unwritten bytes together never exceed [`Upkeep::most_unwritten`]: a victim with items to copy is taken
//! only if the most that it may copy fits. If it does not fit, the reclaimer writes the copies in its way. A sealed
//! segment is written before its turn and stays in its buffer, so that this costs no flash byte and no read from
//! memory. A segment being filled is flushed, at most once for each half of the bound, or when nothing else can go on.
//!
//! Without [`ReclaimSettings::bound_copies`](crate::ReclaimSettings::bound_copies) nothing is claimed, and copies wait
//! for their buffers like other items. The same holds on flash whose pages cannot be written twice, because segments
//! cannot be flushed in parts: all items in the buffers may then be copies.

use super::Residents;
use super::policy::Keep;
use super::upkeep::Upkeep;
use crate::store::{SegmentRecord, Unflushed};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Copies may have the flash divided by this in memory alone.
const UNWRITTEN_SHARE: u32 = 256;
/// Minimum of that bound, in segments: copies go to one while another is written.
const LEAST_UNWRITTEN: u32 = 2;

/// Bytes that a reclaim in progress may copy.
pub(super) struct Claim<'a> {
    claimed: &'a AtomicU64,
    pub(super) bytes: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claimed.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Upkeep {
    /// Returns the most bytes of a victim that the policy copies.
    pub(super) fn max_copy_bytes(&self) -> u64 {
        let segment_bytes = u64::from(self.store.table().segment_bytes());
        let sixteenths = u64::from(self.policy.max_copy_sixteenths());
        // Copying a whole segment frees nothing.
        (segment_bytes * sixteenths / 16).min(segment_bytes - 1)
    }

    /// Returns the most bytes of copies that a kill may lose.
    fn most_unwritten(&self) -> u64 {
        let segments = (self.store.table().segments() / UNWRITTEN_SHARE).max(LEAST_UNWRITTEN);
        u64::from(segments) * u64::from(self.store.table().segment_bytes())
    }

    /// Returns whether a kill could lose more than the bound if another victim were copied now. A task that takes
    /// victims asks and claims in one hold of the lock.
    pub(super) fn copies_wait(&self) -> bool {
        if !self.bounds_copies {
            return false;
        }
        let next = match self.wear_leveling {
            Some(_) => u64::from(self.store.table().segment_bytes()),
            None => self.max_copy_bytes(),
        };
        let claimed = self.claimed.load(Ordering::SeqCst);
        // In this order: bytes that are no longer claimed have been copied.
        let unwritten = self.store.buffers().unwritten_copies();
        let waiting = claimed + unwritten.filling + unwritten.sealed;
        next > 0 && waiting + next > self.most_unwritten()
    }

    /// Claims the most bytes that a reclaim with this `keep` copies from a segment.
    pub(super) fn claim(&self, record: &SegmentRecord, keep: Keep) -> Claim<'_> {
        let valid_bytes = self.store.table().valid_bytes(record.segment);
        let bytes = match keep {
            _ if !self.bounds_copies => 0,
            Keep::Recent(most) => valid_bytes.min(most),
            _ if keep.may_copy() => valid_bytes,
            _ => 0,
        };
        self.claimed.fetch_add(bytes, Ordering::SeqCst);
        Claim {
            claimed: &self.claimed,
            bytes,
        }
    }

    /// Ends a claim whose items have all been copied or dropped, and wakes waiting reclaims.
    pub(super) fn end_claim(&self, claim: Claim<'_>) {
        let was_any = claim.bytes > 0;
        drop(claim);
        if was_any {
            self.store.pool().work().notify_all();
            self.store.pool().space().notify_all();
        }
    }

    /// Writes the copies that keep other copies from being made. Returns false if none may be written, or others do so.
    pub(super) async fn write_copies(&self, residents: &dyn Residents) -> bool {
        if self.write_sealed_copies(residents).await {
            return true;
        }
        if !self.flushes_copies() {
            return false;
        }
        self.flush_copies().await;
        self.progress.notify_all();
        true
    }

    /// Writes the next sealed segment with copies. Returns false if none waits.
    async fn write_sealed_copies(&self, residents: &dyn Residents) -> bool {
        let ahead = async || self.sync_deaths().await;
        let written = self.store.writer().write_copies(ahead).await;
        self.note_written(residents, written).await
    }

    /// Writes a sealed segment with copies before its turn if copies come near the bound. Returns false if none is due.
    pub(crate) async fn write_copies_ahead(&self, residents: &dyn Residents) -> bool {
        let is_near = || {
            let claimed = self.claimed.load(Ordering::SeqCst);
            let unwritten = self.store.buffers().unwritten_copies();
            let waiting = claimed + unwritten.filling + unwritten.sealed;
            unwritten.sealed > 0 && waiting > self.most_unwritten() / 2
        };
        if !self.bounds_copies || !self.works_in_background() || !is_near() {
            return false;
        }
        self.write_sealed_copies(residents).await
    }

    /// Returns whether a flush of the segments being filled is worth its pages, by the number of copies, or nothing else
    /// can go on.
    fn flushes_copies(&self) -> bool {
        let unwritten = self.store.buffers().unwritten_copies().filling;
        let is_still = self.claimed.load(Ordering::SeqCst) == 0;
        unwritten > self.most_unwritten() / 2 || is_still && unwritten > 0
    }

    async fn flush_copies(&self) {
        if self.flush_filling(Unflushed::Copies).await.is_err() {
            // A segment that cannot be flushed is written like any other segment, or given up.
            self.store.appender().flush();
        }
        self.store.pool().work().notify_all();
    }
}
