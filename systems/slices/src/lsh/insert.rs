//! Inserts of vectors, and the freezing of a full generation.

use std::sync::Arc;

use crate::lsh::batch::{Batch, Listing, Place};
use crate::lsh::index::Index;
use crate::lsh::ring::ClosedSegment;
use crate::lsh::state::{Frozen, Insert, State};

/// Segments of a generation that may wait for their drive, beside the segment that takes vectors: the log has two halves for each
/// generation.
const CLOSED_SEGMENTS: usize = 1;

impl Index {
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
        self.counts.add(|counts| counts.inserts = 1);
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
        self.counts.add(|counts| {
            counts.full = full;
            counts.crowded = crowded;
            counts.unlisted = (full + crowded == places.len() as u64).into();
        });
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
            state.capacity = self.shape.batch;
            self.log.begin_generation(generation + 1, 0, 0);
        }
        self.progress.notify_all();
        self.write_what_is_full();
    }
}
