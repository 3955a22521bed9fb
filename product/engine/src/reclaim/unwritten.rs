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
//! Claimed and unwritten bytes together never exceed [`UnwrittenCopies::most_bytes`]: a victim with items to copy is taken
//! only if the most that it may copy fits. If it does not fit, the reclaimer writes the copies in its way. A sealed
//! segment is written before its turn and stays in its buffer, so that this costs no flash byte and no read from
//! memory. A segment being filled is flushed, at most once for each half of the bound, or when nothing else can go on.
//!
//! Without [`ReclaimSettings::bound_copies`](crate::ReclaimSettings::bound_copies) nothing is claimed, and copies wait
//! for their buffers like other items. The same holds on flash whose pages cannot be written twice, because segments
//! cannot be flushed in parts: all items in the buffers may then be copies.

use std::sync::Arc;

use super::Residents;
use super::policy::Keep;
use super::upkeep::Upkeep;
use super::writing::Writing;
use crate::settings::{ReclaimPolicy, ReclaimSettings};
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

/// The copies in memory alone. If they are bounded, claimed and unwritten bytes together never exceed the bound.
pub(crate) struct UnwrittenCopies {
    upkeep: Arc<Upkeep>,
    writing: Arc<Writing>,
    policy: ReclaimPolicy,
    levels_wear: bool,
    is_bounded: bool,
    /// Bytes that the reclaims in progress may copy.
    claimed: AtomicU64,
}

impl UnwrittenCopies {
    pub(super) fn new(
        upkeep: Arc<Upkeep>,
        writing: Arc<Writing>,
        reclaim: &ReclaimSettings,
    ) -> Self {
        Self {
            is_bounded: reclaim.bound_copies && upkeep.store.flusher().can_flush(),
            upkeep,
            writing,
            policy: reclaim.policy,
            levels_wear: reclaim.wear_leveling.is_some(),
            claimed: AtomicU64::new(0),
        }
    }

    /// Returns the most bytes of a victim that the policy copies.
    pub(super) fn max_copy_bytes(&self) -> u64 {
        let segment_bytes = u64::from(self.upkeep.store.table().segment_bytes());
        let sixteenths = u64::from(self.policy.max_copy_sixteenths());
        // Copying a whole segment frees nothing.
        (segment_bytes * sixteenths / 16).min(segment_bytes - 1)
    }

    /// Returns the most bytes of copies that a kill may lose.
    fn most_bytes(&self) -> u64 {
        let segments =
            (self.upkeep.store.table().segments() / UNWRITTEN_SHARE).max(LEAST_UNWRITTEN);
        u64::from(segments) * u64::from(self.upkeep.store.table().segment_bytes())
    }

    /// Returns whether a kill could lose more than the bound if another victim were copied now. A task that takes
    /// victims asks and claims in one hold of the lock.
    pub(super) fn are_most(&self) -> bool {
        if !self.is_bounded {
            return false;
        }
        let next = match self.levels_wear {
            true => u64::from(self.upkeep.store.table().segment_bytes()),
            false => self.max_copy_bytes(),
        };
        let claimed = self.claimed.load(Ordering::SeqCst);
        // In this order: bytes that are no longer claimed have been copied.
        let unwritten = self.upkeep.store.buffers().unwritten_copies();
        let waiting = claimed + unwritten.filling + unwritten.sealed;
        next > 0 && waiting + next > self.most_bytes()
    }

    /// Claims the most bytes that a reclaim with this `keep` copies from a segment.
    pub(super) fn claim(&self, record: &SegmentRecord, keep: Keep) -> Claim<'_> {
        let valid_bytes = self.upkeep.store.table().valid_bytes(record.segment);
        let bytes = match keep {
            _ if !self.is_bounded => 0,
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
            self.upkeep.store.pool().work().notify_all();
            self.upkeep.store.pool().space().notify_all();
        }
    }

    /// Writes the copies that keep other copies from being made. Returns false if none may be written, or others do so.
    pub(super) async fn write(&self, residents: &dyn Residents) -> bool {
        if self.writing.write_sealed_copies(residents).await {
            return true;
        }
        if !self.are_flushed() {
            return false;
        }
        self.flush().await;
        self.upkeep.progress.notify_all();
        true
    }

    /// Writes a sealed segment with copies before its turn if copies come near the bound. Returns false if none is due.
    pub(crate) async fn write_ahead(&self, residents: &dyn Residents) -> bool {
        let is_near = || {
            let claimed = self.claimed.load(Ordering::SeqCst);
            let unwritten = self.upkeep.store.buffers().unwritten_copies();
            let waiting = claimed + unwritten.filling + unwritten.sealed;
            unwritten.sealed > 0 && waiting > self.most_bytes() / 2
        };
        if !self.is_bounded || !self.upkeep.works_in_background() || !is_near() {
            return false;
        }
        self.writing.write_sealed_copies(residents).await
    }

    /// Returns whether a flush of the segments being filled is worth its pages, by the number of copies, or nothing else
    /// can go on.
    fn are_flushed(&self) -> bool {
        let unwritten = self.upkeep.store.buffers().unwritten_copies().filling;
        let is_still = self.claimed.load(Ordering::SeqCst) == 0;
        unwritten > self.most_bytes() / 2 || is_still && unwritten > 0
    }

    async fn flush(&self) {
        if self.writing.flush_filling(Unflushed::Copies).await.is_err() {
            // A segment that cannot be flushed is written like any other segment, or given up.
            self.upkeep.store.appender().flush();
        }
        self.upkeep.store.pool().work().notify_all();
    }
}
