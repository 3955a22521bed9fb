//! The parts of an index.

use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::counts::Counts;
use crate::drives::Drives;
use crate::incarnations::Incarnations;
use crate::lsh::batch::Batch;
use crate::lsh::log::Log;
use crate::lsh::readers::Readers;
use crate::lsh::ring::{Ring, Vector};
use crate::lsh::settings::LshShape;
use crate::lsh::space::Space;
use crate::lsh::state::State;
use crate::lsh::stats::{ChannelCounts, LshMemory, LshStats};
use crate::regions::Region;

/// State that all clones of an index share.
pub(super) struct Index {
    pub(super) shape: LshShape,
    pub(super) space: Space,
    pub(super) probes: u32,
    pub(super) most_candidates: usize,
    pub(super) drives: Drives,
    pub(super) incarnations: Incarnations,
    pub(super) ring: Ring,
    pub(super) log: Log,
    pub(super) state: Mutex<State>,
    /// Notified when a write has succeeded or failed.
    pub(super) progress: Notify,
    pub(super) readers: Readers,
    pub(super) counts: Counts<LshStats>,
    pub(super) channels: ChannelCounts,
}

impl Index {
    pub(super) fn new_batch(&self) -> Batch {
        let slots = self.shape.layout.all_slots();
        Batch::new(self.shape.partitions, slots, self.shape.page.bucket_entries)
    }

    /// Returns whether a vector exists, and has not been deleted.
    pub(super) fn is_live(&self, state: &State, vector: Vector) -> bool {
        let Vector {
            generation,
            ordinal,
        } = vector;
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
            && ordinal < count()
            && !self.log.is_deleted(generation, ordinal)
    }

    pub(super) fn stats(&self) -> LshStats {
        let drives = self.drives.counts();
        let reads = self.channels.reads();
        LshStats {
            table_pages: reads.table_pages.iter().sum(),
            vector_pages: reads.vector_pages.iter().sum(),
            bytes_read: drives.bytes_read,
            bytes_written: drives.bytes_written,
            pages_lost: drives.pages_lost,
            ..self.counts.sums()
        }
    }

    pub(super) fn memory(&self) -> LshMemory {
        let state = self.state.lock();
        let frozen = state
            .frozen
            .as_ref()
            .map_or(0, |frozen| frozen.batch.bytes());
        let segments = state.closed.len() + usize::from(state.open.is_some());
        let regions = state.slicetables.len() * (size_of::<Option<usize>>() + size_of::<Region>());
        let drives = self.drives.iter();
        LshMemory {
            entries: state.batch.bytes() + frozen,
            partitions: regions as u64,
            functions: self.space.functions.bytes(),
            segments: segments as u64 * u64::from(self.ring.shape.segment_bytes),
            deletes: self.log.shape.delete_bytes(),
            pieces: drives.map(|drive| 2 * drive.shape.piece_bytes as u64).sum(),
        }
    }
}
