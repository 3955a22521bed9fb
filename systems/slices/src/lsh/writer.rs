//! The task that writes: segments first, since inserts wait for them sooner, then the slicetables of a frozen generation.
//!
//! A slicetable is written when all vectors that it names are durably on the drives. So if some slicetables have a generation
//! after a crash, all of its vectors are there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use format::slices_log::Pointer;
use futures_util::future::join_all;

use crate::error::SliceError;
use crate::lsh::SliceLsh;
use crate::lsh::index::Inner;
use crate::lsh::page::{Entry, PageMut};
use crate::lsh::ring::ClosedSegment;
use crate::lsh::state::{Frozen, State};
use crate::lsh::stats::add;
use crate::regions::Region;

/// Pauses before a failed write is tried again: the first, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The task that writes. If its runtime ends first, the next waiter spawns another.
struct Writer {
    index: Weak<Inner>,
    is_finished: bool,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Some(inner) = self.index.upgrade() {
            inner.state.lock().is_writing = false;
            inner.progress.notify_all();
        }
    }
}

/// The next write.
enum Step {
    Segment(ClosedSegment),
    /// The frozen generation, into the slicetable of one partition on each drive.
    Partitions(Frozen, Vec<u32>),
    Nothing,
}

impl SliceLsh {
    /// Spawns a task that writes, if there is something to write and no task runs.
    pub(super) fn write_what_is_full(&self) {
        {
            let mut state = self.0.state.lock();
            let has_work = !state.closed.is_empty() || state.frozen.is_some();
            if state.is_writing || !has_work {
                return;
            }
            state.is_writing = true;
        }
        let writer = Writer {
            index: Arc::downgrade(&self.0),
            is_finished: false,
        };
        runtime::spawn_detached(write(writer));
    }
}

/// Writes full segments and generations, again and again until nothing is left to write or the index is no longer used.
async fn write(mut writer: Writer) {
    let mut pause = FIRST_RETRY;
    loop {
        let Some(inner) = writer.index.upgrade() else {
            return;
        };
        match inner.write_next().await {
            Ok(true) => pause = FIRST_RETRY,
            Ok(false) => {
                writer.is_finished = true;
                return;
            }
            Err(()) => {
                drop(inner);
                runtime::sleep(pause).await;
                pause = (2 * pause).min(LAST_RETRY);
            }
        }
    }
}

impl Inner {
    /// Does the next write. Returns whether there was one. After a failure the state has the error.
    async fn write_next(&self) -> Result<bool, ()> {
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
                return Ok(false);
            }
        };
        let outcome = {
            let mut state = self.state.lock();
            state.failing = outcome.err();
            match state.failing {
                Some(_) => Err(()),
                None => Ok(true),
            }
        };
        self.progress.notify_all();
        outcome
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
        add(&self.counts.flushes, 1);
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
        let pointer = Pointer {
            generation: region.generation,
            region: region.number,
        };
        self.log.point(number, pointer).await?;
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
        let own = self.incarnation(*generation);
        let is_kept = |incarnation: usize, ordinal: u32| {
            let generation = self.generation(*generation, incarnation);
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
        let drive = self.drive_of(number);
        let turn = drive.rewriting().await;
        let region = drive
            .rewrite(turn, old, number, *generation, change)
            .await?;
        add(&self.counts.evicted, evicted);
        add(&self.counts.erased, erased);
        add(&self.counts.flushed_entries, flushed);
        Ok(Arc::new(region))
    }
}
