//! The vectors of an index and their entries, in memory, in the log and on the drives, and the task that writes: segments first,
//! since inserts wait for them sooner, then the slicetables of a frozen generation.
//!
//! A slicetable is written when all vectors that it names are durably on the drives. So if some slicetables have a generation
//! after a crash, all of its vectors are there.

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::counts::Counts;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::incarnations::Incarnations;
use crate::lsh::batch::{Batch, Place};
use crate::lsh::log::Log;
use crate::lsh::page::{Entry, PageMut};
use crate::lsh::readers::Readers;
use crate::lsh::ring::{ClosedSegment, Ring, Vector};
use crate::lsh::settings::LshShape;
use crate::lsh::state::{Frozen, Insert, State};
use crate::lsh::stats::LshStats;
use crate::regions::Region;
use crate::retry::{self, Wrote};

/// The vectors of an index and their entries. A vector lies in the log until it is durably in the ring; its entries lie in the
/// batch of its generation until all slicetables have them.
pub(super) struct Store {
    pub(super) shape: LshShape,
    pub(super) drives: Drives,
    pub(super) incarnations: Incarnations,
    pub(super) ring: Ring,
    pub(super) log: Log,
    pub(super) state: Mutex<State>,
    /// Notified when a write has succeeded or failed.
    pub(super) progress: Notify,
    pub(super) readers: Readers,
    pub(super) counts: Counts<LshStats>,
}

/// The next write.
enum Step {
    Segment(ClosedSegment),
    /// The frozen generation, into the slicetable of one partition on each drive.
    Partitions(Frozen, Vec<u32>),
    Nothing,
}

impl Store {
    pub(super) fn new_batch(&self) -> Batch {
        let slots = self.shape.layout.all_slots();
        Batch::new(self.shape.partitions, slots, self.shape.page.bucket_entries)
    }

    /// Returns whether a vector exists, and has not been deleted.
    pub(super) fn is_live(&self, state: &State, vector: Vector) -> bool {
        let generation = vector.generation;
        let incarnations = self.shape.page.incarnations as u32;
        let is_kept = generation > 0 && generation.saturating_add(incarnations) > state.flushed;
        let count = || match generation == state.generation {
            true => state.count,
            false => state
                .count_of(generation)
                .unwrap_or_else(|| self.log.stored(generation)),
        };
        is_kept
            && generation <= state.generation
            && vector.ordinal < count()
            && !self.log.is_deleted(generation, vector.ordinal)
    }

    /// Adds a vector and its entries, if there is space. Also returns the error of the last write, if it has failed.
    pub(super) fn insert(
        &self,
        places: &[Place],
        components: &[u8],
    ) -> (Insert, Option<SliceError>) {
        let mut state = self.state.lock();
        let inserted = state.insert(&self.ring, &self.log, components);
        if let Insert::Inserted(vector) | Insert::InsertedLast(vector) = inserted {
            state.batch.list(places, vector.ordinal, &self.counts);
            self.counts.add(|counts| counts.inserts = 1);
        }
        (inserted, state.failing.clone())
    }

    /// Freezes a generation, if it still takes vectors and no other is frozen.
    pub(super) async fn freeze(self: &Arc<Self>, generation: u32) {
        // The next generation takes the place of one that queries from before the last flush may know.
        self.readers.none_before(generation - 1).await;
        let may_freeze = |state: &State| {
            state.generation == generation && state.frozen.is_none() && state.count > 0
        };
        if !may_freeze(&self.state.lock()) {
            return;
        }
        let next_batch = self.new_batch();
        {
            let mut state = self.state.lock();
            if !may_freeze(&state) {
                return;
            }
            state.freeze(next_batch, self.shape.batch);
            self.log.begin_generation(generation + 1, 0, 0);
        }
        self.progress.notify_all();
        self.write_what_is_full();
    }

    /// Spawns a task that writes, if there is something to write and no task runs. If its runtime ends first, the next waiter
    /// spawns another.
    pub(super) fn write_what_is_full(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let has_work = !state.closed.is_empty() || state.frozen.is_some();
            if state.is_writing || !has_work {
                return;
            }
            state.is_writing = true;
        }
        let cut_short = |store: &Self| {
            store.state.lock().is_writing = false;
            store.progress.notify_all();
        };
        retry::spawn(self, Self::write, cut_short);
    }

    /// Does the next write. After a failure the state has the error.
    async fn write(&self) -> Wrote {
        let step = {
            let mut state = self.state.lock();
            let step = self.next_step(&mut state);
            state.is_writing = !matches!(step, Step::Nothing);
            step
        };
        let outcome = match step {
            Step::Segment(segment) => self.write_segment(&segment).await,
            Step::Partitions(frozen, partitions) => {
                let flushes = partitions
                    .into_iter()
                    .map(|number| self.flush(&frozen, number));
                join_all(flushes).await.into_iter().collect()
            }
            Step::Nothing => {
                self.progress.notify_all();
                return Wrote::All;
            }
        };
        let wrote = match &outcome {
            Ok(()) => Wrote::Some,
            Err(_) => Wrote::None,
        };
        self.state.lock().failing = outcome.err();
        self.progress.notify_all();
        wrote
    }

    fn next_step(&self, state: &mut State) -> Step {
        if let Some((segment, _)) = state.closed.front() {
            return Step::Segment(segment.clone());
        }
        let Some(frozen) = state.frozen.clone() else {
            return Step::Nothing;
        };
        let drives = self.drives.len();
        let has_it = |number: usize| {
            let region = state.slicetables[number].as_ref();
            region.is_some_and(|region| region.generation == frozen.generation)
        };
        let of_drive = |drive| {
            let mut partitions = (drive..state.slicetables.len()).step_by(drives);
            partitions.find(|&number| !has_it(number))
        };
        let partitions: Vec<u32> = (0..drives)
            .filter_map(of_drive)
            .map(|number| number as u32)
            .collect();
        if !partitions.is_empty() {
            return Step::Partitions(frozen, partitions);
        }
        state.flushed = frozen.generation;
        state.frozen = None;
        self.counts.add(|counts| counts.flushes = 1);
        Step::Nothing
    }

    async fn write_segment(&self, segment: &ClosedSegment) -> Result<(), SliceError> {
        self.ring.write(&self.drives, segment).await?;
        let first = segment.number * self.ring.shape.segment_vectors;
        let stored = first + segment.count;
        self.log.store(segment.generation, stored).await?;
        self.state.lock().closed.pop_front();
        Ok(())
    }

    /// Writes the frozen generation into the slicetable of a partition, and stores its pointer in the log.
    async fn flush(&self, frozen: &Frozen, number: u32) -> Result<(), SliceError> {
        let drive = number as usize % self.drives.len();
        let (written, old) = {
            let state = self.state.lock();
            (
                state.written[drive].clone(),
                state.slicetables[number as usize].clone(),
            )
        };
        let region = match written {
            Some((of, region)) if of == number => region,
            _ => {
                let region = self.rewrite(frozen, number, old.as_deref()).await?;
                self.state.lock().written[drive] = Some((number, Arc::clone(&region)));
                region
            }
        };
        self.log.pointers.set(number, 0, region.pointer()).await?;
        let mut state = self.state.lock();
        state.written[drive] = None;
        state.slicetables[number as usize] = Some(region);
        Ok(())
    }

    async fn rewrite(
        &self,
        frozen: &Frozen,
        number: u32,
        old: Option<&Region>,
    ) -> Result<Arc<Region>, SliceError> {
        let Frozen {
            generation, batch, ..
        } = frozen;
        let shape = &self.shape.page;
        let own = self.incarnations.of(*generation);
        let is_kept = |incarnation: usize, ordinal: u32| {
            let generation = self.incarnations.generation(*generation, incarnation);
            generation.is_some_and(|generation| !self.log.is_deleted(generation, ordinal))
        };
        let (mut evicted, mut erased, mut flushed) = (0, 0, 0);
        let mut bucket: Vec<Entry> = Vec::new();
        let change = |page_number: u32, bytes: &mut [u8]| {
            let Some(slot) = self.shape.layout.slot_of(page_number) else {
                return;
            };
            let mut page = PageMut { shape, bytes };
            evicted += page.evict(own);
            erased += page.retain(is_kept);
            let entries = batch.bucket(number, slot).iter().copied();
            bucket.clear();
            bucket.extend(entries.filter(|entry| is_kept(own, entry.ordinal)));
            flushed += bucket.len() as u64;
            page.put(own, &bucket);
            for tag in batch.overflowed(number, slot) {
                page.note_overflow(own, tag);
            }
        };
        let drive = self.drives.of(number);
        let turn = drive.rewriting().await;
        let region = drive
            .rewrite(turn, old, number, *generation, change)
            .await?;
        self.counts.add(|counts| {
            counts.evicted = evicted;
            counts.erased = erased;
            counts.flushed_entries = flushed;
        });
        Ok(Arc::new(region))
    }
}
