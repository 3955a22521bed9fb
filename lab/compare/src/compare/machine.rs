//! The engine and the storage of a run, and their counters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Journal, JournalError, NewJournal, WriteMeter};
use engine::config::{journal_bytes, new_journal};
use engine::placement::DeadCopies;
use engine::preset::Preset;
use engine::reclaim::FlashStats;
use engine::{Engine, Opening};
use runtime::Instant;

use super::curve::SegmentLevels;
use super::error::CompareError;
use super::mappings::MappingStats;
use super::plan::Plan;
use super::storage::Storage;
use crate::cpu::Cpus;

/// Window in which the most bytes written to the drive are reported.
const METERED: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Machine {
    pub(super) engine: Arc<Engine>,
    pub(super) storage: Storage,
    /// Counts writes to a drive.
    pub(super) meter: Arc<WriteMeter>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) flash_reads: u64,
    pub(super) flash_bytes_written: u64,
    pub(super) host_bytes_written: u64,
    pub(super) nand_bytes_programmed: u64,
    pub(super) erases: u64,
    pub(super) placement: FlashStats,
    pub(super) mappings: MappingStats,
}

/// Start or end of the measured part.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) counters: Counters,
    /// Busy time of the processors under virtual time, otherwise the processor time of this process.
    pub(super) processor: Duration,
}

impl Machine {
    /// Opens the engine of a preset on `storage`, with the journal that `journal` creates.
    pub(super) async fn open(
        plan: &Plan,
        preset: &Preset,
        storage: Storage,
        journal: impl FnOnce(NewJournal) -> Result<Arc<dyn Journal>, JournalError>,
    ) -> Result<Self, CompareError> {
        let config = plan.config(preset, &storage);
        let (memory_bytes, bits) = (config.memory_bytes, config.partition_bits);
        let limit = config.flash_write_limit;
        let bytes = journal_bytes(storage.bytes(), memory_bytes, bits, limit);
        let journal = || journal(new_journal(bytes, bits, false));
        let is_saved = config.placement.describe().dead_copies == DeadCopies::BySection;
        let index_device = plan.index_device.clone().filter(|_| is_saved);
        let meter = Arc::new(WriteMeter::new(METERED));
        let mut opening = Opening::new(storage.medium(&meter), config);
        if let Some(spec) = index_device {
            let seed = !plan.seed();
            opening = opening.with_index_device(move |need| spec.open(seed, need.bytes).map(Some));
        }
        let opened = opening.open(journal).await;
        let engine = opened.map_err(|source| CompareError::Setup {
            preset: preset.name,
            device: plan.device.to_string(),
            source: source.into(),
        })?;
        Ok(Self {
            engine,
            storage,
            meter,
        })
    }

    /// Marks the present as the start or the end of the measured part. `cpus` are the processors of virtual time.
    pub(super) fn mark(&self, cpus: Option<&Cpus>) -> Mark {
        let used = runtime::process::usage();
        let busy = cpus.map(|cpus| Duration::from_nanos(cpus.busy_ns()));
        Mark {
            at: runtime::now(),
            counters: self.counters(),
            processor: busy.unwrap_or(used.user + used.system),
        }
    }

    pub(super) fn segments(&self) -> SegmentLevels {
        let placement = self.engine.flash_stats();
        SegmentLevels {
            free: self.engine.store().pool().counts().free,
            low: placement.low_watermark,
            high: placement.high_watermark,
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let (store, storage) = (self.engine.store().counters(), &self.storage);
        let flash_bytes_written = store.bytes_written.load(Ordering::Relaxed);
        let index_bytes_written = self.engine.index_stats().get("index_bytes_written");
        let host_bytes_written = storage.host_bytes_written();
        Counters {
            flash_reads: store.reads.sum(),
            flash_bytes_written: flash_bytes_written + index_bytes_written,
            host_bytes_written: host_bytes_written.unwrap_or(flash_bytes_written),
            nand_bytes_programmed: storage.nand_bytes_programmed().unwrap_or(0),
            erases: storage.erases().unwrap_or(0),
            placement: self.engine.flash_stats(),
            mappings: MappingStats::of(&self.engine),
        }
    }
}
