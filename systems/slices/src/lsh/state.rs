//! What is in memory of an index.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::SliceError;
use crate::lsh::batch::Batch;
use crate::lsh::log::Half;
use crate::lsh::ring::{ClosedSegment, OpenSegment, Vector};
use crate::regions::Region;

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
    /// Whether there is a task that writes segments.
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
    /// The vector was the last one of its segment, which can be written.
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
