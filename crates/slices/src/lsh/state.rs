//! What is in memory of an index, and inserts.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::SliceError;
use crate::lsh::batch::{Batch, Listing, Place};
use crate::lsh::log::Half;
use crate::lsh::ring::{ClosedSegment, OpenSegment, Vector};
use crate::lsh::stats::add;
use crate::lsh::{Inner, SliceLsh};
use crate::regions::Region;

/// Segments of a generation that are not on a drive yet, beside the one that takes vectors: the log has two halves for each.
const CLOSED_SEGMENTS: usize = 1;

/// Under the lock of the index.
pub(super) struct State {
    /// The generation that takes vectors, how many it has, and how many it may have.
    pub(super) generation: u32,
    pub(super) count: u32,
    pub(super) capacity: u32,
    pub(super) batch: Batch,
    /// The segment that takes vectors; none where the next vector begins one.
    pub(super) open: Option<(OpenSegment, Half)>,
    /// Those that are not on a drive yet, oldest first: this generation's and the frozen one's.
    pub(super) closed: VecDeque<(ClosedSegment, Half)>,
    pub(super) frozen: Option<Frozen>,
    /// The slicetable of each partition.
    pub(super) slicetables: Vec<Option<Arc<Region>>>,
    /// What has been written of the frozen generation, where the log does not say so yet: for each drive at most one
    /// partition's slicetable.
    pub(super) written: Vec<Option<(u32, Arc<Region>)>>,
    /// The last generation that all slicetables have.
    pub(super) flushed: u32,
    /// There is a task that writes.
    pub(super) is_writing: bool,
    /// Why that has failed last, until something succeeds.
    pub(super) failing: Option<SliceError>,
}

/// A generation that is being flushed.
#[derive(Clone)]
pub(super) struct Frozen {
    pub(super) generation: u32,
    pub(super) count: u32,
    pub(super) batch: Arc<Batch>,
}

/// What has become of a vector.
pub(super) enum Insert {
    Inserted(Vector),
    /// It was the last one of its segment, which can be written.
    InsertedLast(Vector),
    /// Its generation is full, and can be frozen.
    Full(u32),
    /// Something has to be written first.
    Wait,
}

impl State {
    /// Of an index before its log has been read.
    pub(super) fn empty() -> Self {
        Self {
            generation: 1,
            count: 0,
            capacity: 0,
            batch: Batch::new(0, 0, 0),
            open: None,
            closed: VecDeque::new(),
            frozen: None,
            slicetables: Vec::new(),
            written: Vec::new(),
            flushed: 0,
            is_writing: false,
            failing: None,
        }
    }

    /// The logs of all segments that are not on a drive.
    pub(super) fn halves(&mut self) -> impl Iterator<Item = &mut Half> {
        let open = self.open.iter_mut().map(|(_, half)| half);
        self.closed.iter_mut().map(|(_, half)| half).chain(open)
    }

    /// How many vectors a generation has that is in memory.
    pub(super) fn count_of(&self, generation: u32) -> Option<u32> {
        let frozen = self.frozen.as_ref();
        match generation == self.generation {
            true => Some(self.count),
            false => frozen
                .filter(|frozen| frozen.generation == generation)
                .map(|frozen| frozen.count),
        }
    }

    /// The segment that takes vectors takes no more.
    pub(super) fn close(&mut self) {
        if let Some((segment, half)) = self.open.take() {
            self.closed.push_back((segment.close(), half));
        }
    }
}

impl Inner {
    pub(super) fn insert(&self, state: &mut State, places: &[Place], components: &[u8]) -> Insert {
        if state.count == state.capacity {
            return match state.frozen {
                Some(_) => Insert::Wait,
                None => Insert::Full(state.generation),
            };
        }
        if state.open.is_none() {
            let of_generation = |(segment, _): &&(_, _)| {
                let segment: &ClosedSegment = segment;
                segment.generation == state.generation
            };
            if state.closed.iter().filter(of_generation).count() > CLOSED_SEGMENTS {
                return Insert::Wait;
            }
            let number = state.count / self.ring.shape.segment_vectors;
            let half = self.log.begin_segment(state.generation, number);
            state.open = Some((self.ring.open_segment(state.generation, number), half));
        }
        let (segment, half) = state.open.as_mut().expect("one was opened");
        let vector = self.ring.put(segment, components);
        self.log.append(half, components);
        let is_full = segment.count == self.ring.capacity(segment.number);
        state.count += 1;
        self.list(&mut state.batch, places, vector.ordinal);
        add(&self.counts.inserts, 1);
        if !is_full {
            return Insert::Inserted(vector);
        }
        state.close();
        Insert::InsertedLast(vector)
    }

    /// Lists a vector in all tables.
    pub(super) fn list(&self, batch: &mut Batch, places: &[Place], ordinal: u32) {
        let (mut full, mut crowded) = (0, 0);
        for &place in places {
            match batch.insert(place, ordinal) {
                Listing::Listed => {}
                Listing::Full => full += 1,
                Listing::Crowded => crowded += 1,
            }
        }
        add(&self.counts.full, full);
        add(&self.counts.crowded, crowded);
        let is_unlisted = full + crowded == places.len() as u64;
        add(&self.counts.unlisted, is_unlisted.into());
    }
}

impl SliceLsh {
    /// Freezes a generation, if it is still the one that takes vectors and nothing is frozen.
    pub(super) async fn freeze(&self, generation: u32) {
        let inner = &self.0;
        // The next generation takes the place of one that queries may know which began before the last flush.
        inner.readers.none_before(generation - 1).await;
        let may_freeze = |state: &State| {
            state.generation == generation && state.frozen.is_none() && state.count > 0
        };
        if !may_freeze(&inner.state.lock()) {
            return;
        }
        let next_batch = inner.new_batch();
        {
            let mut state = inner.state.lock();
            if !may_freeze(&state) {
                return;
            }
            let mut batch = std::mem::replace(&mut state.batch, next_batch);
            batch.complete();
            state.frozen = Some(Frozen {
                generation,
                count: state.count,
                batch: Arc::new(batch),
            });
            state.close();
            state.generation += 1;
            state.count = 0;
            state.capacity = inner.shape.batch;
            inner.log.begin_generation(generation + 1, 0, 0);
        }
        inner.progress.notify_all();
        self.write_what_is_full();
    }
}
