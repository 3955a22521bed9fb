//! [`FlushCutoffs`]: expiry and `flush_all`, which make items dead without a removal.
//!
//! `flush_all` is a version cutoff for each partition, with a deadline. When the deadline has come, each partition sets
//! its cutoff to its next version, under its own lock, before its next operation; items below the cutoff are dead. A
//! later `flush_all` replaces one whose deadline has not come.

use std::sync::OnceLock;

use super::clock::OldClocks;
use crate::format::item::{ItemHeader, is_expired};
use crate::key::KeyHash;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Deadline when no flush has been requested.
const NEVER: u32 = u32::MAX;
/// Deadline of a pending flush that a flush with a past time has replaced: the last second there is.
pub(crate) const REPLACED: u32 = NEVER - 1;
/// Deadline of a flush that has come: it stays so if the clock is set back.
const COME: u32 = 0;

/// The flush cutoffs of all partitions. Shared by the request paths and reclaim.
#[derive(Debug)]
pub(crate) struct FlushCutoffs {
    partition_bits: u32,
    /// Unix second from which the flush of this generation holds.
    deadline: AtomicU32,
    /// Number of calls of `flush_all`.
    generation: AtomicU64,
    cutoffs: Box<[AtomicU64]>,
    /// The clocks of earlier runs; not set in a run that takes over none of their items.
    old_clocks: OnceLock<OldClocks>,
}

impl FlushCutoffs {
    /// Returns cutoffs without a flush, for `1 << partition_bits` partitions.
    pub(crate) fn new(partition_bits: u32) -> Self {
        Self {
            partition_bits,
            deadline: AtomicU32::new(NEVER),
            generation: AtomicU64::new(0),
            cutoffs: (0..1usize << partition_bits)
                .map(|_| AtomicU64::new(0))
                .collect(),
            old_clocks: OnceLock::new(),
        }
    }

    /// Sets the clocks by which items of earlier runs are judged: once, before the first operation.
    pub(crate) fn set_old_clocks(&self, clocks: OldClocks) {
        let _ = self.old_clocks.set(clocks);
    }

    fn old_clocks_of(&self, version: u64) -> Option<&OldClocks> {
        let clocks = self.old_clocks.get();
        clocks.filter(|clocks| version < clocks.first_version)
    }

    /// Returns the Unix second by which the expiry of an item with this version is judged at Unix second `now`.
    #[inline]
    pub(crate) fn second_of(&self, version: u64, now: u32) -> u32 {
        let clocks = self.old_clocks_of(version);
        clocks.map_or(now, |clocks| clocks.second(version, now))
    }

    /// Returns the seconds by which the clock of an item with this version is ahead of this run's.
    pub(crate) fn clock_ahead(&self, version: u64) -> i64 {
        let clocks = self.old_clocks_of(version);
        clocks.map_or(0, |clocks| clocks.ahead(version))
    }

    /// Returns whether a version was taken by this run.
    pub(crate) fn is_of_this_run(&self, version: u64) -> bool {
        self.old_clocks_of(version).is_none()
    }

    /// Requests a flush: items written before Unix second `deadline` are dead from then on.
    pub(crate) fn flush_at(&self, deadline: u32) {
        self.deadline
            .store(deadline.min(REPLACED), Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the deadline of a flush that has not come by Unix second `now`.
    pub(crate) fn pending(&self, now: u32) -> Option<u32> {
        let deadline = self.deadline.load(Ordering::Acquire);
        (deadline != NEVER && deadline > now).then_some(deadline)
    }

    /// Returns whether the last flush has come: at least one partition has applied it.
    pub(crate) fn has_come(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == COME
    }

    /// Brings a partition up to date. Called under its lock before every operation, with the generation that it has
    /// `applied` and its next version. Returns whether that version is its cutoff from now on.
    #[inline]
    pub(crate) fn apply_due(
        &self,
        partition: usize,
        applied: &mut u64,
        next_version: u64,
        now: u32,
    ) -> bool {
        let generation = self.generation.load(Ordering::Acquire);
        let due = generation != *applied && now >= self.deadline.load(Ordering::Acquire);
        if due {
            *applied = generation;
            self.deadline.store(COME, Ordering::Release);
            self.cutoffs[partition].store(next_version, Ordering::Release);
        }
        due
    }

    /// Returns the cutoff of a partition: versions below it are dead.
    #[inline]
    pub(crate) fn cutoff(&self, partition: usize) -> u64 {
        self.cutoffs[partition].load(Ordering::Acquire)
    }

    /// Sets the cutoff of a partition.
    pub(crate) fn set_cutoff(&self, partition: usize, cutoff: u64) {
        self.cutoffs[partition].store(cutoff, Ordering::Release);
    }

    /// Returns whether an item with these properties can be served at Unix second `now`.
    #[inline]
    pub(crate) fn is_live(&self, hash: KeyHash, version: u64, expiry: u32, now: u32) -> bool {
        // Most items never expire: then no clock is looked at.
        (expiry == 0 || !is_expired(expiry, self.second_of(version, now)))
            && version >= self.cutoff(hash.partition(self.partition_bits))
    }

    /// Returns [`is_live`](FlushCutoffs::is_live) for an item's header.
    #[inline]
    pub(crate) fn is_item_live(&self, hash: KeyHash, header: &ItemHeader, now: u32) -> bool {
        self.is_live(hash, header.version.get(), header.expiry.get(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_takes_what_was_written_before_its_deadline() {
        let cutoffs = FlushCutoffs::new(0);
        let mut applied = 0;
        cutoffs.flush_at(100);
        cutoffs.apply_due(0, &mut applied, 50, 99);
        assert!(cutoffs.is_live(KeyHash(0), 49, 0, 99));
        assert_eq!(cutoffs.pending(99), Some(100));
        cutoffs.apply_due(0, &mut applied, 60, 100);
        assert!(!cutoffs.is_live(KeyHash(0), 59, 0, 100));
        assert!(cutoffs.is_live(KeyHash(0), 60, 0, 100));
        cutoffs.apply_due(0, &mut applied, 70, 101);
        assert!(
            cutoffs.is_live(KeyHash(0), 60, 0, 101),
            "a flush is applied once"
        );
    }

    #[test]
    fn a_flush_that_has_come_does_not_come_again_when_the_clock_is_set_back() {
        let cutoffs = FlushCutoffs::new(1);
        let (mut first, mut second) = (0, 0);
        cutoffs.flush_at(100);
        cutoffs.apply_due(0, &mut first, 50, 100);
        assert_eq!(
            cutoffs.pending(10),
            None,
            "a checkpoint takes it for pending"
        );
        assert!(
            cutoffs.apply_due(1, &mut second, 60, 10),
            "another partition waits for the clock"
        );
    }

    #[test]
    fn a_later_flush_replaces_a_pending_one() {
        let cutoffs = FlushCutoffs::new(0);
        let mut applied = 0;
        cutoffs.flush_at(100);
        cutoffs.flush_at(200);
        cutoffs.apply_due(0, &mut applied, 50, 150);
        assert!(cutoffs.is_live(KeyHash(0), 1, 0, 150));
    }
}
