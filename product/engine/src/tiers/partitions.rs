//! [`Partitions`]: the partitions of the key space behind their locks, and `flush_all` over all of them.

use std::sync::Arc;

use super::marks::VersionMarks;
use crate::counter::CacheLine;
use crate::durability::FlushCutoffs;
use crate::durability::flush::REPLACED;
use crate::durability::journal::Journal;
use crate::flash::FlashTier;
use crate::format::journal::Record;
use crate::key::KeyHash;
use crate::partition::Partition;
use crate::sync::{Mutex, MutexGuard};

/// All partitions. A flush that is due is applied to a partition before any operation under its lock.
pub(crate) struct Partitions {
    partitions: Box<[CacheLine<Mutex<Partition>>]>,
    bits: u32,
    cutoffs: Arc<FlushCutoffs>,
    journal: Arc<Journal>,
    flash: Arc<FlashTier>,
    /// Held by a `flush_all` from its record to the last partition, and by a checkpoint while it notes the cutoffs.
    flushing: Mutex<()>,
    marks: Mutex<VersionMarks>,
}

impl Partitions {
    /// Puts the partitions, a power of two of them, above the flash tier.
    pub(crate) fn new(partitions: impl Iterator<Item = Partition>, flash: &Arc<FlashTier>) -> Self {
        let partitions: Box<[_]> = partitions
            .map(|partition| CacheLine(Mutex::new(partition)))
            .collect();
        let versions = partitions
            .iter()
            .map(|partition| partition.0.lock().next_version);
        let marks = VersionMarks::new(runtime::unix_seconds(), versions.collect());
        Self {
            marks: Mutex::new(marks),
            bits: partitions.len().trailing_zeros(),
            partitions,
            cutoffs: Arc::clone(&flash.upkeep.cutoffs),
            journal: Arc::clone(&flash.upkeep.journal),
            flash: Arc::clone(flash),
            flushing: Mutex::new(()),
        }
    }

    pub(crate) fn cutoffs(&self) -> &FlushCutoffs {
        &self.cutoffs
    }

    /// Returns the number of partitions.
    pub(crate) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Returns the number of the partition of a key.
    #[inline]
    pub(crate) fn number_of(&self, hash: KeyHash) -> usize {
        hash.partition(self.bits)
    }

    /// Locks the partition of `hash` and brings it up to date with `flush_all`.
    #[inline]
    pub(crate) fn lock(&self, hash: KeyHash, now: u32) -> MutexGuard<'_, Partition> {
        self.lock_number(self.number_of(hash), now)
    }

    /// Locks the partition with this number and brings it up to date with `flush_all`.
    #[inline]
    pub(crate) fn lock_number(&self, number: usize, now: u32) -> MutexGuard<'_, Partition> {
        let mut partition = self.partitions[number].0.lock();
        let Partition {
            tier,
            flush_generation,
            next_version,
            ..
        } = &mut *partition;
        let is_new = self
            .cutoffs
            .apply_due(number, flush_generation, *next_version, now);
        if is_new {
            self.journal.append(Record::Cutoff {
                partition: number as u32,
                version: *next_version,
                chunk: 0,
            });
            tier.items.flush(*next_version);
            self.flash.count_flush(*flush_generation);
        }
        partition
    }

    /// Locks one partition after the other, to read or reset its counters. Applies no flush.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Partition>> {
        self.partitions.iter().map(|partition| partition.0.lock())
    }

    /// Returns the next version of the partition with this number.
    pub(crate) fn next_version_of(&self, number: usize) -> u64 {
        self.partitions[number].0.lock().next_version
    }

    /// Returns the highest next version of all partitions.
    pub(crate) fn next_version(&self) -> u64 {
        let next = self.each().map(|partition| partition.next_version);
        next.max().unwrap_or(0)
    }

    /// Makes everything stored before Unix second `deadline` dead from that second on. Returns false, and changes
    /// nothing, if the journal has no space at present.
    pub(crate) fn try_flush_all(&self, deadline: u32) -> bool {
        // One flush at a time: a delayed flush would replace another one that is still being applied.
        let _flushing = self.flushing.lock();
        if !self.flash.may_displace() {
            return false;
        }
        let now = runtime::unix_seconds();
        // Applies an earlier flush whose deadline has passed, even if no request has come since.
        self.apply_due_flush(now);
        self.replace_flush(deadline, now);
        if deadline <= now {
            // Applied now, so that it affects nothing stored after this call.
            self.apply_due_flush(now);
        }
        true
    }

    /// Makes everything stored before Unix second `second` of this run dead, as far as marks tell. Replaces a flush that is
    /// pending. Returns false, and changes nothing, if the journal has no space at present.
    pub(crate) fn try_flush_older(&self, second: u32) -> bool {
        let _flushing = self.flushing.lock();
        if !self.flash.may_displace() {
            return false;
        }
        let now = runtime::unix_seconds();
        self.apply_due_flush(now);
        if self.cutoffs.pending(now).is_some() {
            self.replace_flush(REPLACED, now);
        }
        let marks = self.marks.lock();
        let older = marks.before(second).unwrap_or_default();
        for (number, &version) in older.iter().enumerate() {
            let mut partition = self.partitions[number].0.lock();
            if version > self.cutoffs.cutoff(number) {
                self.journal.append(Record::Cutoff {
                    partition: number as u32,
                    version,
                    chunk: 0,
                });
                self.cutoffs.set_cutoff(number, version);
                partition.tier.items.flush_some();
            }
        }
        true
    }

    /// Notes the next versions, for flushes with a past time. Does so once a second at most.
    pub(crate) fn mark(&self) {
        if !self.marks.lock().is_due(runtime::unix_seconds()) {
            return;
        }
        let versions = self.each().map(|partition| partition.next_version);
        let versions = versions.collect();
        // The second is read behind the versions: none of them was taken later.
        self.marks.lock().add(runtime::unix_seconds(), versions);
    }

    /// Records a flush in place of the last one.
    fn replace_flush(&self, deadline: u32, now: u32) {
        // All partitions at once: otherwise a request could apply the earlier flush now and record it behind the
        // record of this one, and a start would take this one for applied.
        let numbers = 0..self.partitions.len();
        let _partitions: Vec<_> = numbers
            .map(|number| self.lock_number(number, now))
            .collect();
        self.journal.append(Record::FlushAt {
            deadline,
            chunk: 0,
            replaces_come: self.cutoffs.has_come(),
        });
        self.cutoffs.flush_at(deadline);
    }

    fn apply_due_flush(&self, now: u32) {
        for number in 0..self.partitions.len() {
            drop(self.lock_number(number, now));
        }
    }

    /// Keeps a `flush_all` from beginning until the result is dropped.
    pub(crate) fn hold_flushes(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// Returns the cutoff of each partition. A flush that is due at Unix second `now` is applied before.
    pub(crate) fn cutoffs_at(&self, now: u32) -> Vec<u64> {
        let cutoff = |number| {
            // Taking the lock applies a flush that is due.
            let _partition = self.lock_number(number, now);
            self.cutoffs.cutoff(number)
        };
        (0..self.partitions.len()).map(cutoff).collect()
    }
}
