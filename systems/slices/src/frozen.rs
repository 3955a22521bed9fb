//! The frozen tables of a partition, which wait until they are in a slicetable, and the state of their flush.
//!
//! A flush writes some of the oldest tables at once. They stay, and answer look-ups, until the log says where they have been
//! written.

use std::collections::VecDeque;
use std::sync::Arc;

use runtime::sync::Permit;

use crate::error::SliceError;
use crate::regions::Region;

/// A full table of a partition that is being flushed or waits for it.
pub(crate) struct Frozen<F> {
    pub(crate) memory: F,
    pub(crate) generation: u32,
    /// Permit for one more frozen table; `None` if a crash has left the table.
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

    /// Returns a table that a crash has left.
    pub(crate) fn left(memory: F, generation: u32) -> Self {
        Self {
            memory,
            generation,
            permit: None,
        }
    }

    /// Returns the table, and the permit to have it in memory, which must be dropped after the table.
    pub(crate) fn into_parts(self) -> (F, Option<Permit>) {
        (self.memory, self.permit)
    }
}

/// The slicetable into which a flush has written frozen tables.
#[derive(Clone)]
pub(crate) struct Written {
    /// Number of the slicetable among those of the partition.
    pub(crate) nth: usize,
    /// Region of the slicetable. Its generation is that of the newest table in it.
    pub(crate) region: Arc<Region>,
}

enum FlushState {
    /// No task flushes, whether tables are frozen or not.
    Idle,
    UnderWay,
    /// The last flush has failed, and its task tries again later.
    Failed(SliceError),
}

/// Whether a task flushes.
pub(crate) enum FlushTask {
    /// No task was flushing: the caller spawns one.
    Begun,
    UnderWay,
    Failed(SliceError),
}

/// All frozen tables of a partition.
pub(crate) struct FrozenQueue<F> {
    all: VecDeque<Frozen<F>>,
    flush: FlushState,
    /// Slicetable that has been written, until the log says so.
    written: Option<Written>,
}

impl<F> FrozenQueue<F> {
    /// Returns a queue of tables that a crash has left, oldest first.
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

    /// Returns the tables from newest to oldest, the order of look-ups.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Frozen<F>> {
        self.all.iter().rev()
    }

    /// Returns the tables from oldest to newest, the order of flushes.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = &Frozen<F>> {
        self.all.iter()
    }

    pub(crate) fn oldest_first_mut(&mut self) -> impl Iterator<Item = &mut Frozen<F>> {
        self.all.iter_mut()
    }

    /// Returns the generation of the table that was frozen last.
    pub(crate) fn newest(&self) -> Option<u32> {
        Some(self.all.back()?.generation)
    }

    /// Returns whether no table up to this generation is frozen.
    pub(crate) fn has_written(&self, generation: u32) -> bool {
        let oldest = self.all.front();
        oldest.is_none_or(|oldest| oldest.generation > generation)
    }

    pub(crate) fn push(&mut self, frozen: Frozen<F>) {
        self.all.push_back(frozen);
    }

    /// Notes that a task flushes from now on, if none does.
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

    /// Notes that the task has ended. Returns whether frozen tables are left.
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

    /// Notes that the oldest tables are in a slicetable, which the log does not say yet.
    pub(crate) fn write(&mut self, written: Written) {
        self.written = Some(written);
    }

    /// Removes the tables up to `generation`, after the log says that a slicetable has them.
    pub(crate) fn pop_written(&mut self, generation: u32) -> Vec<Frozen<F>> {
        self.written = None;
        self.flush = FlushState::UnderWay;
        let is_written = |frozen: &&Frozen<F>| frozen.generation <= generation;
        let count = self.all.iter().take_while(is_written).count();
        self.all.drain(..count).collect()
    }
}
