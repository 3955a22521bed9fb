//! What engine and device count, and the figures that follow.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Engine;
use runtime::Instant;

use super::clients::{Run, Seen};
use super::plan::Plan;
use super::row::{CompareRow, ratio};
use super::storage::Storage;
use crate::presets::Preset;

/// What a run takes place on.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) engine: Arc<Engine>,
    pub(super) storage: Storage,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    flash_reads: u64,
    flash_bytes_written: u64,
    host_bytes_written: u64,
    nand_bytes_programmed: u64,
    erases: u64,
    gc_items_copied: u64,
    gc_bytes_copied: u64,
}

/// The beginning or the end of what is measured.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: Instant,
    pub(super) counters: Counters,
    /// Processor time of the process so far.
    pub(super) processor: Duration,
}

impl Counters {
    fn since(self, earlier: Self) -> Self {
        Self {
            flash_reads: self.flash_reads - earlier.flash_reads,
            flash_bytes_written: self.flash_bytes_written - earlier.flash_bytes_written,
            host_bytes_written: self.host_bytes_written - earlier.host_bytes_written,
            nand_bytes_programmed: self.nand_bytes_programmed - earlier.nand_bytes_programmed,
            erases: self.erases - earlier.erases,
            gc_items_copied: self.gc_items_copied - earlier.gc_items_copied,
            gc_bytes_copied: self.gc_bytes_copied - earlier.gc_bytes_copied,
        }
    }
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

    /// The counters now.
    pub(super) fn counters(&self) -> Counters {
        let placement = self.engine.placement().stats();
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
        }
    }
}

/// The figures of what was measured. The runtime of the run is still there.
pub(super) fn row(plan: &Plan, preset: &Preset, run: &Run, seen: &Seen) -> CompareRow {
    let machine = &run.machine;
    let end = machine.mark();
    let begun = run.begun().unwrap_or(end);
    let did = end.counters.since(begun.counters);
    let seconds = end.at.since(begun.at).as_secs_f64();
    let (hits, misses) = (seen.hits(), seen.gets - seen.hits());
    let reads_of_hits = did.flash_reads.saturating_sub(seen.misses_on_flash);
    let stats = machine.engine.stats();
    let objects = stats.placement.objects;
    let index_bytes = stats.memory.index_bytes;
    let quantile = |share| {
        let micros = seen.latencies.value_at_quantile(share) as f64 / 1000.0;
        (!seen.latencies.is_empty()).then_some(micros)
    };
    let spread = machine.storage.erase_spread();
    let nand = machine.storage.nand_bytes_programmed();
    CompareRow {
        preset: preset.name.to_owned(),
        workload: plan.workload.name(),
        requests: seen.requests,
        gets: seen.gets,
        sets: seen.sets,
        deletes: seen.deletes,
        hits,
        hit_ratio: ratio(hits as f64, seen.gets as f64),
        dram_hits: Some(seen.dram_hits),
        flash_hits: Some(seen.flash_hits),
        flash_reads_per_hit: ratio(reads_of_hits as f64, seen.flash_hits as f64),
        flash_reads_per_miss: ratio(seen.misses_on_flash as f64, misses as f64),
        ops_per_s: ratio(seen.operations() as f64, seconds),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p999_us: quantile(0.999),
        item_bytes_set: Some(seen.item_bytes_set),
        flash_bytes_written: Some(did.flash_bytes_written),
        clwa: ratio(did.flash_bytes_written as f64, seen.item_bytes_set as f64),
        nand_bytes_programmed: nand.map(|_| did.nand_bytes_programmed),
        dlwa: nand.and_then(|_| {
            ratio(
                did.nand_bytes_programmed as f64,
                did.host_bytes_written as f64,
            )
        }),
        erases: nand.map(|_| did.erases),
        erase_min: spread.map(|(least, _)| least),
        erase_max: spread.map(|(_, most)| most),
        gc_items_copied: Some(did.gc_items_copied),
        gc_bytes_copied: Some(did.gc_bytes_copied),
        objects_on_flash: Some(objects),
        index_dram_bytes: Some(index_bytes),
        dram_bits_per_object: ratio(index_bytes as f64 * 8.0, objects as f64),
        low_watermark: Some(stats.placement.low_watermark.into()),
        high_watermark: Some(stats.placement.high_watermark.into()),
        virtual_time: true,
        seed: plan.workload.settings().seed,
        ..CompareRow::default()
    }
}
