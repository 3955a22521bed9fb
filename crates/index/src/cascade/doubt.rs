//! What a failed sync may have lost, and how it is written again.
//!
//! After an error a sync that succeeds says nothing of what was written before it (Linux marks failed pages clean). So
//! everything that has been written since the last good sync began is written again, elsewhere, before the next checkpoint.
//! It is still found meanwhile: reads do not depend on syncs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Cascade;
use super::block::PageRef;
use super::partition::Partition;

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

/// Where a page in doubt lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// Block of Tier 2, by its number.
    Direct(u64),
    /// Block of a list, by its number.
    Active(usize, u64),
    /// Page of a bucket of a list.
    Bucket(usize, usize, PageRef),
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

    /// Pages with numbers from `number` on are written until the guard is dropped.
    pub(super) fn writing(&self, number: u64) -> InFlight<'_> {
        self.state.lock().in_flight.insert(number);
        InFlight(self, number)
    }

    /// Whether anything is in doubt.
    pub(super) fn is_any(&self) -> bool {
        let mut partitions = self.partitions.iter();
        partitions.any(|in_doubt| in_doubt.load(Ordering::Acquire))
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

impl Cascade {
    /// Makes durable all that has been written. False where a sync has failed since the last good one began, this one or
    /// another of the same device: then what has been written since is in doubt.
    pub(super) async fn sync_region(&self) -> bool {
        let next = |state: &State| {
            let next = self.next_number.load(Ordering::Relaxed);
            state
                .in_flight
                .first()
                .map_or(next, |&first| first.min(next))
        };
        let begun = next(&self.doubt.state.lock());
        let synced = self.segments.sync(self.store.region()).await;
        let failures = self.segments.failed_syncs();
        let mut state = self.doubt.state.lock();
        if synced.is_ok() && failures == state.failures {
            state.durable = state.durable.max(begun);
            return true;
        }
        state.failures = failures;
        let from = if self.doubt.is_any() {
            state.lost.start
        } else {
            state.durable
        };
        state.lost = from..self.next_number.load(Ordering::Relaxed);
        for partition in &self.doubt.partitions {
            partition.store(true, Ordering::Release);
        }
        drop(state);
        self.work.iter().for_each(|work| work.notify_all());
        false
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.is_any()
    }
}
