//! The state of an index in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::SliceError;
use crate::lsh::batch::Batch;
use crate::lsh::log::Log;
use crate::lsh::ring::{ClosedSegment, OpenSegment, Ring, Vector};
use crate::part::Part;
use crate::regions::Region;

/// Segments of a generation that may wait for their drive, beside the segment that takes vectors: the log has two halves for each
/// generation.
const CLOSED_SEGMENTS: usize = 1;

/// The state of an index. Accessed under the lock of the index.
pub(super) struct State {
    /// Generation that takes vectors, the number of its vectors, and their maximum.
    pub(super) generation: u32,
    pub(super) count: u32,
    pub(super) capacity: u32,
    pub(super) batch: Batch,
    /// Segment that takes vectors; `None` if the next vector begins one.
    pub(super) open: Option<(OpenSegment, Part)>,
    /// Closed segments that are not on a drive yet, oldest first: of this generation and of the frozen one.
    pub(super) closed: VecDeque<(ClosedSegment, Part)>,
    pub(super) frozen: Option<Frozen>,
    /// The slicetable of each partition.
    pub(super) slicetables: Vec<Option<Arc<Region>>>,
    /// Slicetables of the frozen generation that have been written, until the log says so: at most one partition's for each
    /// drive.
    pub(super) written: Vec<Option<(u32, Arc<Region>)>>,
    /// Last generation that all slicetables have.
    pub(super) flushed: u32,
    /// Whether a task writes segments and slicetables.
    pub(super) is_writing: bool,
    /// Error of the last write, until one succeeds.
    pub(super) failing: Option<SliceError>,
}

/// A generation that is being flushed.
#[derive(Clone)]
pub(super) struct Frozen {
    pub(super) generation: u32,
    pub(super) count: u32,
    pub(super) batch: Arc<Batch>,
}

/// The result of an insert.
pub(super) enum Insert {
    Inserted(Vector),
    /// The vector is the last one of its segment, which can be written.
    InsertedLast(Vector),
    /// The generation is full, and can be frozen.
    Full(u32),
    /// A segment or a generation has to be written first.
    Wait,
}

impl State {
    /// Returns the state of an index whose log has not been read yet.
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

    /// Adds a vector to the open segment and to the log, if there is space. The caller lists the vector in the batch.
    pub(super) fn insert(&mut self, ring: &Ring, log: &Log, components: &[u8]) -> Insert {
        if self.count == self.capacity {
            return match self.frozen {
                Some(_) => Insert::Wait,
                None => Insert::Full(self.generation),
            };
        }
        if self.open.is_none() {
            let is_own =
                |(segment, _): &&(ClosedSegment, Part)| segment.generation == self.generation;
            if self.closed.iter().filter(is_own).count() > CLOSED_SEGMENTS {
                return Insert::Wait;
            }
            let number = self.count / ring.shape.segment_vectors;
            let half = log.begin_segment(self.generation, number);
            self.open = Some((ring.open_segment(self.generation, number), half));
        }
        let (segment, half) = self.open.as_mut().expect("one was opened");
        let vector = ring.put(segment, components);
        log.append(half, components);
        let is_full = segment.count == ring.capacity(segment.number);
        self.count += 1;
        if !is_full {
            return Insert::Inserted(vector);
        }
        self.close();
        Insert::InsertedLast(vector)
    }

    /// Freezes the generation that takes vectors. The next one begins with the empty `batch`, and takes `capacity` vectors.
    pub(super) fn freeze(&mut self, batch: Batch, capacity: u32) {
        let mut batch = std::mem::replace(&mut self.batch, batch);
        batch.complete();
        self.frozen = Some(Frozen {
            generation: self.generation,
            count: self.count,
            batch: Arc::new(batch),
        });
        self.close();
        self.generation += 1;
        self.count = 0;
        self.capacity = capacity;
    }

    /// Returns the components of a vector in the open segment.
    pub(super) fn in_open_segment(&self, ring: &Ring, vector: Vector) -> Option<&[u8]> {
        let (segment, _) = self.open.as_ref()?;
        let is_there = ring.is_in(segment, vector);
        is_there.then(|| ring.in_segment(vector, &segment.bytes))
    }

    /// Returns the logs of all segments that are not on a drive.
    pub(super) fn halves(&mut self) -> impl Iterator<Item = &mut Part> {
        let open = self.open.iter_mut().map(|(_, half)| half);
        self.closed.iter_mut().map(|(_, half)| half).chain(open)
    }

    /// Returns the number of vectors of a generation; `None` if the generation is not in memory.
    pub(super) fn count_of(&self, generation: u32) -> Option<u32> {
        let frozen = self.frozen.as_ref();
        match generation == self.generation {
            true => Some(self.count),
            false => frozen
                .filter(|frozen| frozen.generation == generation)
                .map(|frozen| frozen.count),
        }
    }

    /// Closes the segment that takes vectors.
    pub(super) fn close(&mut self) {
        if let Some((segment, half)) = self.open.take() {
            self.closed.push_back((segment.close(), half));
        }
    }
}
