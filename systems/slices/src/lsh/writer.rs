//! The task that writes: segments first, since inserts wait for them sooner, then the slicetables of a frozen generation.
//!
//! A slicetable is written when all vectors that it names are durably on the drives. So if some slicetables have a generation
//! after a crash, all of its vectors are there.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::error::SliceError;
use crate::lsh::index::Index;
use crate::lsh::page::{Entry, PageMut};
use crate::lsh::ring::ClosedSegment;
use crate::lsh::state::{Frozen, State};
use crate::regions::Region;
use crate::retry::{self, Wrote};

/// The next write.
enum Step {
    Segment(ClosedSegment),
    /// The frozen generation, into the slicetable of one partition on each drive.
    Partitions(Frozen, Vec<u32>),
    Nothing,
}

impl Index {
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
        let cut_short = |inner: &Self| {
            inner.state.lock().is_writing = false;
            inner.progress.notify_all();
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
