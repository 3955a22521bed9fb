//! What is full in a partition and waits until it is in a slicetable, the oldest first; and what is known of the flush.
//!
//! A flush writes some of the oldest at once. They stay, and answer look-ups, until the log says where they have been written to.

use std::collections::VecDeque;
use std::sync::Arc;

use runtime::sync::Permit;

use crate::error::SliceError;
use crate::regions::Region;

/// What is full in a partition, and is being flushed or waits for it.
pub(crate) struct Frozen<F> {
    pub(crate) memory: F,
    pub(crate) generation: u32,
    /// One of so many that there may be; none where a crash has left it.
    permit: Option<Permit>,
}

impl<F> Frozen<F> {
    pub(crate) fn new(memory: F, generation: u32, permit: Permit) -> Self {
        Self {
            memory,
            generation,
            permit: Some(permit),
        }
    }

    /// What a crash has left.
    pub(crate) fn left(memory: F, generation: u32) -> Self {
        Self {
            memory,
            generation,
            permit: None,
        }
    }

    /// What is in memory, and the right to have it there: to be given up after it.
    pub(crate) fn into_parts(self) -> (F, Option<Permit>) {
        (self.memory, self.permit)
    }
}

/// Where a flush has written what was frozen.
#[derive(Clone)]
pub(crate) struct Written {
    /// Which of the partition's slicetables.
    pub(crate) nth: usize,
    /// Where it is now. Its generation is the last that it has.
    pub(crate) region: Arc<Region>,
}

enum FlushState {
    /// No task flushes what is frozen, if anything is.
    Idle,
    UnderWay,
    /// The task tries again later.
    Failed(SliceError),
}

/// Whether there is a task that flushes.
pub(crate) enum FlushTask {
    /// No task was flushing: the caller spawns one.
    Begun,
    UnderWay,
    Failed(SliceError),
}

/// All that is frozen in a partition.
pub(crate) struct FrozenQueue<F> {
    all: VecDeque<Frozen<F>>,
    flush: FlushState,
    /// What the log does not say yet.
    written: Option<Written>,
}

impl<F> FrozenQueue<F> {
    /// What a crash has left, the oldest first.
    pub(crate) fn left(all: impl IntoIterator<Item = Frozen<F>>) -> Self {
        Self {
            all: all.into_iter().collect(),
            flush: FlushState::Idle,
            written: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// From the newest to the oldest, as look-ups ask them.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Frozen<F>> {
        self.all.iter().rev()
    }

    /// From the oldest to the newest, as flushes write them.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = &Frozen<F>> {
        self.all.iter()
    }

    pub(crate) fn oldest_first_mut(&mut self) -> impl Iterator<Item = &mut Frozen<F>> {
        self.all.iter_mut()
    }

    /// The generation of what was frozen last.
    pub(crate) fn newest(&self) -> Option<u32> {
        Some(self.all.back()?.generation)
    }

    /// Whether nothing is frozen of the generations up to this one.
    pub(crate) fn has_written(&self, generation: u32) -> bool {
        let oldest = self.all.front();
        oldest.is_none_or(|oldest| oldest.generation > generation)
    }

    pub(crate) fn push(&mut self, frozen: Frozen<F>) {
        self.all.push_back(frozen);
    }

    /// From now on a task flushes what is frozen, if anything is.
    pub(crate) fn begin_flush(&mut self) -> FlushTask {
        match &self.flush {
            FlushState::Failed(error) => FlushTask::Failed(error.clone()),
            FlushState::UnderWay => FlushTask::UnderWay,
            FlushState::Idle => {
                self.flush = FlushState::UnderWay;
                FlushTask::Begun
            }
        }
    }

    /// The task has ended: whether it has left something.
    pub(crate) fn end_flush(&mut self) -> bool {
        self.flush = FlushState::Idle;
        !self.all.is_empty()
    }

    pub(crate) fn fail(&mut self, error: SliceError) {
        self.flush = FlushState::Failed(error);
    }

    pub(crate) fn written(&self) -> Option<&Written> {
        self.written.as_ref()
    }

    /// The oldest are in a slicetable, though the log does not say so yet.
    pub(crate) fn write(&mut self, written: Written) {
        self.written = Some(written);
    }

    /// The log says so: takes what the slicetable has out.
    pub(crate) fn pop_written(&mut self, generation: u32) -> Vec<Frozen<F>> {
        self.written = None;
        self.flush = FlushState::UnderWay;
        let is_written = |frozen: &&Frozen<F>| frozen.generation <= generation;
        let count = self.all.iter().take_while(is_written).count();
        self.all.drain(..count).collect()
    }
}
