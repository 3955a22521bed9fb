//! The replay of a start: slicetables, vectors on the drives, and the log.
//!
//! | state after a crash | replay |
//! |---|---|
//! | one generation in memory | lists its vectors again, from the drives and from the log, and goes on with it |
//! | two generations | the older one is frozen, and flushed again to slicetables that do not have it |
//! | slicetables, some with a generation | the same: all of its vectors are on the drives |
//! | a segment under way, a count not durable yet | the log has its vectors: its half is not reused before |

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::SliceError;
use crate::lsh::batch::Batch;
use crate::lsh::ring::{OpenSegment, Vector};
use crate::lsh::space::Space;
use crate::lsh::state::{Frozen, State};
use crate::lsh::store::Store;
use crate::part::Part;
use crate::regions::Region;

/// A generation as a crash has left it.
struct Found {
    batch: Batch,
    /// Number of its vectors.
    count: u32,
    /// Number of its vectors that are on the drives.
    stored: u32,
    /// Segments with vectors that are in the log and not on the drives, in order.
    segments: Vec<(OpenSegment, Part)>,
    /// Whether the drives have vectors that the log should have and lacks. The generation then takes no more.
    is_complete: bool,
}

/// Sets the state of a store to that of its log and its drives. `space` is the space of its vectors.
pub(super) async fn replay(store: &mut Store, space: &Space) -> Result<(), SliceError> {
    let slicetables: Vec<Option<Arc<Region>>> = (0..store.shape.partitions)
        .map(|partition| {
            let pointer = store.log.pointers.get(partition, 0);
            store.drives.of(partition).found(pointer)
        })
        .collect();
    let generations = slicetables.iter().map(|region| {
        let region = region.as_ref();
        region.map_or(0, |region| region.generation)
    });
    let flushed = generations.clone().min().unwrap_or(0);
    let newest = generations.max().unwrap_or(0);
    if newest > flushed + 1 {
        return Err(SliceError::OtherLog);
    }
    if !store.drives.iter().all(|drive| drive.shape.is_new) {
        store.ring.last_in_doubt = flushed + 2;
    }
    let replay = Replay { store, space };
    let first = replay.find(flushed + 1).await?;
    let second = replay.find(flushed + 2).await?;
    let mut closed = VecDeque::new();
    let is_frozen = newest > flushed || second.count > 0;
    let (generation, mut current, frozen) = match is_frozen {
        false => (flushed + 1, first, None),
        true => {
            let mut batch = first.batch;
            batch.complete();
            for (segment, half) in first.segments {
                closed.push_back((segment.close(), half));
            }
            let frozen = Frozen {
                generation: flushed + 1,
                count: first.count,
                batch: Arc::new(batch),
            };
            (flushed + 2, second, Some(frozen))
        }
    };
    let is_open = |(segment, _): &mut (OpenSegment, Part)| {
        !current.is_complete && segment.count < store.ring.capacity(segment.number)
    };
    let open = current.segments.pop_if(is_open);
    for (segment, half) in current.segments {
        closed.push_back((segment.close(), half));
    }
    store
        .log
        .begin_generation(generation, current.stored, current.count);
    *store.state.get_mut() = State {
        generation,
        count: current.count,
        capacity: match current.is_complete {
            true => current.count,
            false => store.shape.batch,
        },
        batch: current.batch,
        open,
        closed,
        frozen,
        slicetables,
        written: vec![None; store.drives.len()],
        flushed,
        is_writing: false,
        failing: None,
    };
    Ok(())
}

/// The store that a replay reads, and the space of its vectors.
struct Replay<'a> {
    store: &'a Store,
    space: &'a Space,
}

impl Replay<'_> {
    async fn find(&self, generation: u32) -> Result<Found, SliceError> {
        let stored = self.store.log.stored(generation);
        let of_segment = self.store.ring.shape.segment_vectors;
        let mut found = Found {
            batch: self.store.new_batch(),
            count: 0,
            stored,
            segments: Vec::new(),
            is_complete: false,
        };
        for number in 0..stored / of_segment {
            self.list_stored(&mut found, generation, number, of_segment)
                .await?;
        }
        while found.count < self.store.shape.batch && found.segments.len() < 2 {
            let number = found.count / of_segment;
            let Some((half, vectors)) = self.store.log.replay(generation, number)? else {
                break;
            };
            if vectors.is_empty() {
                break;
            }
            let mut segment = self.store.ring.open_segment(generation, number);
            let capacity = self.store.ring.capacity(number);
            for bytes in vectors.iter().take(capacity as usize) {
                let bytes = &bytes[..self.space.kept_bytes()];
                let vector = self.store.ring.put(&mut segment, bytes);
                self.list_components(&mut found.batch, vector, bytes);
            }
            found.count += segment.count;
            let is_full = segment.count == capacity;
            found.segments.push((segment, half));
            if !is_full {
                break;
            }
        }
        if found.count <= stored {
            // The segment was written before it was full, and has taken no vector since.
            if found.count < stored {
                let number = found.count / of_segment;
                let stored = stored - number * of_segment;
                self.list_stored(&mut found, generation, number, stored)
                    .await?;
                found.is_complete = true;
            }
            if found.is_complete || found.count.is_multiple_of(of_segment) {
                found.segments.clear();
            }
        }
        Ok(found)
    }

    /// Lists the first `count` vectors of a segment on a drive, except vectors that have been listed.
    async fn list_stored(
        &self,
        found: &mut Found,
        generation: u32,
        number: u32,
        count: u32,
    ) -> Result<(), SliceError> {
        let segment = self
            .store
            .ring
            .read_segment(&self.store.drives, generation, number)
            .await?;
        let end = number * self.store.ring.shape.segment_vectors + count;
        for ordinal in found.count..end {
            let vector = Vector::new(generation, ordinal);
            match self.store.ring.verified(vector, &segment) {
                Ok(bytes) => self.list_components(&mut found.batch, vector, bytes),
                Err(_) => self.store.counts.add(|counts| counts.damaged = 1),
            }
        }
        found.count = found.count.max(end);
        Ok(())
    }

    fn list_components(&self, batch: &mut Batch, vector: Vector, bytes: &[u8]) {
        let places = self.space.places_of(&self.space.vector_of(bytes));
        batch.list(&places, vector.ordinal, &self.store.counts);
    }
}
