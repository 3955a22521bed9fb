//! Tracks pages that a failed sync may have lost, so that they are written again.
//!
//! After an error a later successful sync says nothing about earlier writes (Linux marks failed pages clean). So every
//! page written since the last good sync began is written again, elsewhere, before the next checkpoint. Searches still
//! find its mappings: reads do not depend on syncs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::partition::{Partition, Spot};

/// The pages that are not known to be durable.
pub(super) struct Doubt {
    state: Mutex<State>,
    /// Whether each partition may have pages in doubt.
    partitions: Box<[AtomicBool]>,
}

struct State {
    /// First page number of each write in progress.
    in_flight: BTreeSet<u64>,
    /// Pages with lower numbers are durable, or were written again.
    durable: u64,
    /// Numbers of the pages that a sync may have lost.
    lost: Range<u64>,
    /// Number of failed syncs that are accounted for.
    failures: u64,
}

/// A write in progress, until it is dropped.
pub(super) struct InFlight<'d>(&'d Doubt, u64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_flight.remove(&self.1);
    }
}

impl Doubt {
    pub(super) fn new(partitions: usize) -> Self {
        Self {
            state: Mutex::new(State {
                in_flight: BTreeSet::new(),
                durable: 0,
                lost: 0..0,
                failures: 0,
            }),
            partitions: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Begins a write of the page numbers that `take` takes. Returns a guard that ends the write when dropped, and the
    /// first number. No sync can begin between taking the numbers and noting the write.
    pub(super) fn writing(&self, take: impl FnOnce() -> u64) -> (InFlight<'_>, u64) {
        let mut state = self.state.lock();
        let first = take();
        state.in_flight.insert(first);
        (InFlight(self, first), first)
    }

    /// Whether any page is in doubt.
    pub(super) fn is_any(&self) -> bool {
        let mut partitions = self.partitions.iter();
        partitions.any(|in_doubt| in_doubt.load(Ordering::Acquire))
    }

    /// Begins a sync. Returns a number below which all pages are written. `next_number` returns the first number that is
    /// not taken.
    pub(super) fn sync_begins(&self, next_number: impl FnOnce() -> u64) -> u64 {
        let state = self.state.lock();
        let next_number = next_number();
        let first = state.in_flight.first();
        first.map_or(next_number, |&first| first.min(next_number))
    }

    /// Ends a sync. `failures` counts all failed syncs of the device, those of other callers included. Returns false if
    /// one has failed since the last good one began: all pages written since then are in doubt.
    pub(super) fn sync_ended(
        &self,
        is_good: bool,
        failures: u64,
        begun: u64,
        next_number: u64,
    ) -> bool {
        let mut state = self.state.lock();
        if is_good && failures == state.failures {
            state.durable = state.durable.max(begun);
            return true;
        }
        state.failures = failures;
        let from = if self.is_any() {
            state.lost.start
        } else {
            state.durable
        };
        state.lost = from..next_number;
        for partition in &self.partitions {
            partition.store(true, Ordering::Release);
        }
        false
    }

    /// Returns a block or page of the partition that is in doubt, or clears the partition's mark if none is. Only its
    /// upkeep calls this; pages that it writes while a sync fails are found by the next call.
    pub(super) fn spot(&self, number: usize, partition: &Partition) -> Option<Spot> {
        if !self.partitions[number].load(Ordering::Acquire) {
            return None;
        }
        // Held until the mark is cleared, as another sync may fail.
        let state = self.state.lock();
        let spot = find(partition, &state.lost);
        if spot.is_none() {
            self.partitions[number].store(false, Ordering::Release);
        }
        spot
    }
}

fn find(partition: &Partition, lost: &Range<u64>) -> Option<Spot> {
    let mut direct = partition.direct.iter();
    if let Some(block) = direct.find(|block| lost.contains(&block.number)) {
        return Some(Spot::Direct(block.number));
    }
    partition
        .lists
        .iter()
        .enumerate()
        .find_map(|(number, list)| {
            let mut blocks = list.blocks.iter().chain(&list.compacted);
            if let Some(block) = blocks.find(|block| lost.contains(&block.number)) {
                return Some(Spot::Active(number, block.number));
            }
            list.buckets.iter().enumerate().find_map(|(bucket, pages)| {
                let mut pages = pages.pages.iter();
                let page = pages.find(|page| lost.contains(&page.page.number))?;
                Some(Spot::Bucket(number, bucket, page.page))
            })
        })
}
