//! What engine and device count, and the figures that follow.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Engine;
use runtime::Instant;

use super::Detail;
use super::clients::{Run, Seen};
use super::curve::SegmentLevels;
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
    wear_levelings: u64,
    segments_leveled: u64,
    bytes_copied_to_level: u64,
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
            wear_levelings: self.wear_levelings - earlier.wear_levelings,
            segments_leveled: self.segments_leveled - earlier.segments_leveled,
            bytes_copied_to_level: self.bytes_copied_to_level - earlier.bytes_copied_to_level,
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

    /// Free segments and the watermarks now.
    pub(super) fn segments(&self) -> SegmentLevels {
        let placement = self.engine.flash_stats();
        SegmentLevels {
            free: self.engine.store().free_segments(),
            low: placement.low_watermark,
            high: placement.high_watermark,
        }
    }

    /// The counters now.
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

/// Steps of the latency distribution, in percent.
const LATENCY_STEPS: [f64; 14] = [
    1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0,
];

/// What the row of a run leaves out.
pub(super) fn detail(run: &Run, seen: &Seen) -> Detail {
    let machine = &run.machine;
    let begun = run.begun().map(|begun| begun.counters).unwrap_or_default();
    let did = machine.counters().since(begun);
    let micros = |percent| seen.latencies.value_at_percentile(percent) as f64 / 1000.0;
    Detail {
        mean_us: seen.latencies.mean() / 1000.0,
        latencies: LATENCY_STEPS
            .iter()
            .map(|&percent| (percent, micros(percent)))
            .collect(),
        get_us: seen.get_ns.micros(),
        set_us: seen.set_ns.micros(),
        cpu_busy: None,
        erase_counts: machine.storage.erase_counts(),
        mapping_bytes: machine.storage.mapping_bytes(),
        wear_leveling: (
            did.wear_levelings,
            did.segments_leveled,
            did.bytes_copied_to_level,
        ),
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
