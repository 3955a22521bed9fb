//! What a failed sync may have lost, and how it is written again.
//!
//! After an error a sync that succeeds says nothing of what was written before it (Linux marks failed pages clean). So
//! everything that has been written since the last good sync began is written again, elsewhere, before the next checkpoint.
//! It is still found meanwhile: reads do not depend on syncs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::partition::{Partition, Spot};

/// Which pages are not known to be durable.
pub(super) struct Doubt {
    state: Mutex<State>,
    /// Partitions that may have some.
    partitions: Box<[AtomicBool]>,
}

struct State {
    /// First numbers of what is being written.
    in_flight: BTreeSet<u64>,
    /// Pages with lower numbers are durable, or have been written again.
    durable: u64,
    /// The numbers of those that a sync may have lost.
    lost: Range<u64>,
    /// Failed syncs that have been taken notice of.
    failures: u64,
}

/// Something that is being written, until it is dropped.
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

    /// Pages with the numbers that `take` takes, from that which it returns on, are written until the guard is dropped. No
    /// sync begins between the two.
    pub(super) fn writing(&self, take: impl FnOnce() -> u64) -> (InFlight<'_>, u64) {
        let mut state = self.state.lock();
        let first = take();
        state.in_flight.insert(first);
        (InFlight(self, first), first)
    }

    /// Whether anything is in doubt.
    pub(super) fn is_any(&self) -> bool {
        let mut partitions = self.partitions.iter();
        partitions.any(|in_doubt| in_doubt.load(Ordering::Acquire))
    }

    /// A sync begins: pages with lower numbers than what this returns have been written. `next_number` tells the first that
    /// nobody has taken.
    pub(super) fn sync_begins(&self, next_number: impl FnOnce() -> u64) -> u64 {
        let state = self.state.lock();
        let next_number = next_number();
        let first = state.in_flight.first();
        first.map_or(next_number, |&first| first.min(next_number))
    }

    /// It has ended, after so many failed ones in all, these of others included. False where one has failed since the last
    /// good one began: then what has been written since is in doubt.
    pub(super) fn sync_ended(
        &self,
        (is_good, failures): (bool, u64),
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

    /// What of the partition is in doubt; when there is nothing, that is noted. Its upkeep alone asks: what it is writing
    /// meanwhile it will find when it asks next.
    pub(super) fn spot(&self, number: usize, partition: &Partition) -> Option<Spot> {
        if !self.partitions[number].load(Ordering::Acquire) {
            return None;
        }
        // Held until it is noted: another sync may fail meanwhile.
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
