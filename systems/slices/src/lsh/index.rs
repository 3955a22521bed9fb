//! The parts of an index, and its checks of a vector.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::drive::Drive;
use crate::lsh::batch::{Batch, Place, Places};
use crate::lsh::error::VectorError;
use crate::lsh::family::{Family, Functions};
use crate::lsh::log::Log;
use crate::lsh::readers::Readers;
use crate::lsh::ring::{Ring, Vector};
use crate::lsh::settings::{Components, LshShape};
use crate::lsh::state::State;
use crate::lsh::stats::{Counts, LshMemory, LshStats, load};
use crate::regions::Region;

/// State that all clones of an index share.
pub(super) struct Inner {
    pub(super) shape: LshShape,
    pub(super) family: Family,
    pub(super) components: Components,
    pub(super) dimensions: u32,
    pub(super) probes: u32,
    pub(super) most_candidates: usize,
    pub(super) functions: Functions,
    pub(super) places: Places,
    pub(super) drives: Box<[Drive]>,
    pub(super) ring: Ring,
    pub(super) log: Log,
    pub(super) state: Mutex<State>,
    /// Notified when a write has succeeded or failed.
    pub(super) progress: Notify,
    pub(super) readers: Readers,
    pub(super) counts: Counts,
}

impl Inner {
    /// Refuses a vector that the index cannot keep or look for.
    pub(super) fn check(&self, vector: &[f32]) -> Result<(), VectorError> {
        let (has, needs) = (vector.len(), self.dimensions);
        if has != needs as usize {
            return Err(VectorError::Dimensions { has, needs });
        }
        if let Some(at) = vector.iter().position(|value| !value.is_finite()) {
            let value = vector[at];
            return Err(VectorError::NotFinite { at, value });
        }
        match self.family == Family::Cosine && vector.iter().all(|&value| value == 0.0) {
            true => Err(VectorError::NoDirection),
            false => Ok(()),
        }
    }

    /// Returns the components of a vector as they are kept.
    pub(super) fn kept(&self, vector: &[f32]) -> Result<Vec<u8>, VectorError> {
        let is_byte = |value: f32| f32::from(value as u8) == value;
        match self.components {
            Components::Floats => Ok(vector
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()),
            Components::Bytes => match vector.iter().position(|&value| !is_byte(value)) {
                Some(at) => Err(VectorError::NotAByte {
                    at,
                    value: vector[at],
                }),
                None => Ok(vector.iter().map(|&value| value as u8).collect()),
            },
        }
    }

    /// Returns the vector whose components are kept as `bytes`.
    pub(super) fn vector_of(&self, bytes: &[u8]) -> Vec<f32> {
        self.components
            .values(bytes)
            .map(|value| value as f32)
            .collect()
    }

    /// Returns the places of a vector's entries, one for each table.
    pub(super) fn places_of(&self, vector: &[f32]) -> Vec<Place> {
        let keys = self.functions.keys(vector).into_iter().enumerate();
        keys.map(|(table, key)| self.places.of(table as u32, key))
            .collect()
    }

    /// Returns the drive that has the slicetable of a partition.
    pub(super) fn drive_of(&self, partition: u32) -> &Drive {
        &self.drives[partition as usize % self.drives.len()]
    }

    pub(super) fn new_batch(&self) -> Batch {
        let slots = self.places.layout.all_slots();
        Batch::new(self.shape.partitions, slots, self.shape.page.bucket_entries)
    }

    /// Returns which incarnation of its slicetables a generation is.
    pub(super) fn incarnation(&self, generation: u32) -> usize {
        (generation - 1) as usize % self.shape.page.incarnations
    }

    /// Returns the generation of an incarnation in a slicetable that generation `written` was the last to write; `None` if the
    /// incarnation is still empty.
    pub(super) fn generation(&self, written: u32, incarnation: usize) -> Option<u32> {
        let incarnations = self.shape.page.incarnations;
        let behind = (self.incarnation(written) + incarnations - incarnation) % incarnations;
        written
            .checked_sub(behind as u32)
            .filter(|&generation| generation > 0)
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
        let counts = &self.counts;
        let drives = |count: fn(&Drive) -> &AtomicU64| {
            self.drives.iter().map(|drive| load(count(drive))).sum()
        };
        LshStats {
            inserts: load(&counts.inserts),
            deletes: load(&counts.deletes),
            queries: load(&counts.queries),
            candidates: load(&counts.candidates),
            vectors_read: load(&counts.vectors_read),
            table_pages: counts.table_pages.iter().map(load).sum(),
            vector_pages: counts.vector_pages.iter().map(load).sum(),
            damaged: load(&counts.damaged),
            flushes: load(&counts.flushes),
            flushed_entries: load(&counts.flushed_entries),
            full: load(&counts.full),
            crowded: load(&counts.crowded),
            unlisted: load(&counts.unlisted),
            evicted: load(&counts.evicted),
            erased: load(&counts.erased),
            bytes_read: drives(|drive| &drive.counts.bytes_read),
            bytes_written: drives(|drive| &drive.counts.bytes_written),
            pages_lost: drives(|drive| &drive.counts.pages_lost),
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
            functions: self.functions.bytes(),
            segments: segments as u64 * u64::from(self.ring.shape.segment_bytes),
            deletes: self.log.shape.delete_bytes(),
            pieces: drives.map(|drive| 2 * drive.shape.piece_bytes as u64).sum(),
        }
    }
}
