//! Copies of reclaim that a kill would take, and the bound on their bytes.
//!
//! A victim is declared dead before the first of its items moves, so from then on until its copies are on flash memory
//! alone has them, whether they have been made yet or not:
//!
//! ```text
//!   victim taken ──> copied to a buffer ──> buffer sealed ──> written
//!   claimed          unwritten                                on flash
//! ```
//!
//! Claimed and unwritten bytes together never pass [`Upkeep::most_unwritten`]: a victim of which something may be copied is
//! only taken when all that may be fits. Where it does not, the reclaim writes what is in its way. A sealed segment is
//! written before its turn and stays in its buffer, so that this costs no byte of flash and no read from memory. One that
//! is being filled is flushed, once for each half of the bound at most, or when nothing else goes on.
//!
//! Without [`ReclaimSettings::bound_copies`](crate::ReclaimSettings::bound_copies) nothing is claimed, and copies wait for
//! their buffers as other items do. So it is, too, on flash whose pages cannot be written twice: it cannot be flushed in
//! parts. There all that the buffers hold may be copies.

use super::Residents;
use super::policy::Keep;
use super::upkeep::Upkeep;
use crate::store::{SegmentRecord, Unflushed};
use crate::sync::atomic::{AtomicU64, Ordering};

/// The part of the flash that copies may have in memory alone, as a fraction of this denominator.
const UNWRITTEN_SHARE: u32 = 256;
/// Segments of copies that they may have there at least: one is copied while another is written.
const LEAST_UNWRITTEN: u32 = 2;

/// Bytes that a reclaim may copy, for as long as it goes on.
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
    /// The most bytes of a victim that its policy copies.
    pub(super) fn max_copy_bytes(&self) -> u64 {
        let segment_bytes = u64::from(self.store.segment_bytes());
        let sixteenths = u64::from(self.policy.max_copy_sixteenths());
        // All of it frees nothing.
        (segment_bytes * sixteenths / 16).min(segment_bytes - 1)
    }

    /// The most bytes of copies that a kill takes.
    fn most_unwritten(&self) -> u64 {
        let segments = (self.store.segments() / UNWRITTEN_SHARE).max(LEAST_UNWRITTEN);
        u64::from(segments) * u64::from(self.store.segment_bytes())
    }

    /// Whether a kill could take more than it may, were another victim copied now. Whoever takes victims asks in the hold
    /// in which it claims.
    pub(super) fn copies_wait(&self) -> bool {
        if !self.bounds_copies {
            return false;
        }
        let next = match self.wear_leveling {
            Some(_) => u64::from(self.store.segment_bytes()),
            None => self.max_copy_bytes(),
        };
        let claimed = self.claimed.load(Ordering::SeqCst);
        // In this order: what is no more claimed has been copied.
        let unwritten = self.store.unwritten_copies();
        let waiting = claimed + unwritten.filling + unwritten.sealed;
        next > 0 && waiting + next > self.most_unwritten()
    }

    /// Claims what a reclaim that keeps so much of a segment copies at most.
    pub(super) fn claim(&self, record: &SegmentRecord, keep: Keep) -> Claim<'_> {
        let valid_bytes = self.store.valid_bytes(record.segment);
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

    /// All that was claimed has been copied or dropped: others may go on.
    pub(super) fn end_claim(&self, claim: Claim<'_>) {
        let was_any = claim.bytes > 0;
        drop(claim);
        if was_any {
            self.store.work().notify_all();
            self.store.space().notify_all();
        }
    }

    /// Writes copies that keep others from being made; false where that is not to be done, or done by others.
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

    /// Writes the sealed segment with copies that is the next; false when none waits.
    async fn write_sealed_copies(&self, residents: &dyn Residents) -> bool {
        let ahead = async || self.sync_deaths().await;
        let written = self.store.write_copies(ahead).await;
        self.note_written(residents, written).await
    }

    /// Writes a sealed segment with copies before its turn where they come near the bound: false where none is due.
    pub(crate) async fn write_copies_ahead(&self, residents: &dyn Residents) -> bool {
        let is_near = || {
            let claimed = self.claimed.load(Ordering::SeqCst);
            let unwritten = self.store.unwritten_copies();
            let waiting = claimed + unwritten.filling + unwritten.sealed;
            unwritten.sealed > 0 && waiting > self.most_unwritten() / 2
        };
        if !self.bounds_copies || !self.works_in_background() || !is_near() {
            return false;
        }
        self.write_sealed_copies(residents).await
    }

    /// Whether what is being filled has so many copies that a flush is worth its pages, or nothing else can go on.
    fn flushes_copies(&self) -> bool {
        let unwritten = self.store.unwritten_copies().filling;
        let is_still = self.claimed.load(Ordering::SeqCst) == 0;
        unwritten > self.most_unwritten() / 2 || is_still && unwritten > 0
    }

    async fn flush_copies(&self) {
        if self.flush_filling(Unflushed::Copies).await.is_err() {
            // A segment that cannot be flushed is written as any other, or given up.
            self.store.flush();
        }
        self.store.work().notify_all();
    }
}
