//! What a run takes place on, and what it counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Engine;
use runtime::Instant;

use super::curve::SegmentLevels;
use super::storage::Storage;

#[derive(Clone)]
pub(super) struct Machine {
    pub(super) engine: Arc<Engine>,
    pub(super) storage: Storage,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) flash_reads: u64,
    pub(super) flash_bytes_written: u64,
    pub(super) host_bytes_written: u64,
    pub(super) nand_bytes_programmed: u64,
    pub(super) erases: u64,
    pub(super) gc_items_copied: u64,
    pub(super) gc_bytes_copied: u64,
    pub(super) wear_levelings: u64,
    pub(super) segments_leveled: u64,
    pub(super) bytes_copied_to_level: u64,
}

/// The beginning or the end of what is measured.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) counters: Counters,
    pub(super) processor: Duration,
}

impl Machine {
    /// Now, as the beginning or the end of what is measured.
    pub(super) fn mark(&self) -> Mark {
        let used = runtime::process::usage();
        Mark {
            at: runtime::now(),
            counters: self.counters(),
            processor: used.user + used.system,
        }
    }

    pub(super) fn segments(&self) -> SegmentLevels {
        let placement = self.engine.flash_stats();
        SegmentLevels {
            free: self.engine.store().free_segments(),
            low: placement.low_watermark,
            high: placement.high_watermark,
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let placement = self.engine.flash_stats();
        let store = self.engine.store().counters();
        let flash_bytes_written = store.bytes_written.load(Ordering::Relaxed);
        Counters {
            flash_reads: store.reads.sum(),
            flash_bytes_written,
            host_bytes_written: self
                .storage
                .host_bytes_written()
                .unwrap_or(flash_bytes_written),
            nand_bytes_programmed: self.storage.nand_bytes_programmed().unwrap_or(0),
            erases: self.storage.erases().unwrap_or(0),
            gc_items_copied: placement.items_copied,
            gc_bytes_copied: placement.bytes_copied,
            wear_levelings: placement.wear_levelings,
            segments_leveled: placement.segments_leveled,
            bytes_copied_to_level: placement.bytes_copied_to_level,
        }
    }
}
