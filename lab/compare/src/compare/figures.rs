//! The figures of a finished run.

use std::sync::atomic::Ordering;

use engine::preset::Preset;
use engine::store::SegmentStore;

use super::clients::{Run, Seen};
use super::machine::Counters;
use super::mappings::MappingStats;
use super::outcome::{Detail, Outcome};
use super::plan::Plan;
use super::row::{CompareRow, ratio};

/// Returns the outcome of a run on `device`. The runtime of the run must still exist.
pub(super) fn outcome(
    plan: &Plan,
    preset: &Preset,
    run: &Run,
    seen: &Seen,
    device: String,
) -> Outcome {
    Outcome {
        row: row(plan, preset, run, seen),
        detail: detail(run, seen),
        curve: run.finish(),
        refused_sets: seen.refused_sets,
        device,
    }
}

/// Steps of the latency distribution, in percent.
const LATENCY_STEPS: [f64; 14] = [
    1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0,
];

/// Returns the figures that the row leaves out.
fn detail(run: &Run, seen: &Seen) -> Detail {
    let machine = &run.machine;
    let begun = run.begun().map(|begun| begun.counters).unwrap_or_default();
    let mappings = MappingStats::of(&machine.engine).since(&begun.mappings);
    let (begun, end) = (begun.placement, machine.engine.flash_stats());
    let stats = machine.engine.stats();
    let micros = |percent| seen.latencies.value_at_percentile(percent) as f64 / 1000.0;
    Detail {
        mean_us: seen.latencies.mean() / 1000.0,
        latencies: LATENCY_STEPS
            .iter()
            .map(|&percent| (percent, micros(percent)))
            .collect(),
        request_us: [99.0, 99.9]
            .map(|percent| seen.request_latencies.value_at_percentile(percent) as f64 / 1000.0),
        get_us: seen.get_ns.micros(),
        set_us: seen.set_ns.micros(),
        erase_counts: machine.storage.erase_counts(),
        mapping_bytes: machine.storage.mapping_bytes(),
        wear_leveling: (
            end.wear_levelings - begun.wear_levelings,
            end.segments_leveled - begun.segments_leveled,
            end.bytes_copied_to_level - begun.bytes_copied_to_level,
        ),
        mappings_lost: machine.engine.index_stats().mappings_dropped() + end.index_full,
        mappings,
        drive_bytes: (machine.meter.bytes(), machine.meter.most()),
        held_back: stats.tier.held_back,
        learner: machine.engine.learner_stats(),
        items_returned: end.items_returned - begun.items_returned,
        tier_bytes: stats.dram_limit_bytes,
        segment_utilization: utilization(machine.engine.store()),
        items_evicted: end.items_evicted - begun.items_evicted,
        reclaimed: (
            end.segments_reclaimed - begun.segments_reclaimed,
            end.segments_dropped - begun.segments_dropped,
        ),
        fixed_bytes: stats.memory.fixed_bytes,
        ..Detail::default()
    }
}

fn utilization(store: &SegmentStore) -> f64 {
    let counters = store.counters();
    let sealed =
        counters.segments_sealed.load(Ordering::Relaxed) * u64::from(store.table().segment_bytes());
    counters.bytes_sealed.load(Ordering::Relaxed) as f64 / sealed.max(1) as f64
}

fn row(plan: &Plan, preset: &Preset, run: &Run, seen: &Seen) -> CompareRow {
    let machine = &run.machine;
    let end = machine.mark(None);
    let begun = run.begun().unwrap_or(end);
    let did = |count: fn(&Counters) -> u64| count(&end.counters) - count(&begun.counters);
    let flash_bytes_written = did(|count| count.flash_bytes_written);
    let programmed = did(|count| count.nand_bytes_programmed);
    let seconds = end.at.since(begun.at).as_secs_f64();
    let (hits, misses) = (seen.hits(), seen.gets - seen.hits());
    let stats = machine.engine.stats();
    let objects = stats.placement.objects;
    let index_bytes = stats.memory.index_bytes;
    let quantile = |share| {
        let micros = seen.latencies.value_at_quantile(share) as f64 / 1000.0;
        (!seen.latencies.is_empty()).then_some(micros)
    };
    let has_tiers = end.counters.mappings != MappingStats::default();
    let tiers = |count: fn(&MappingStats) -> u64| {
        let did = count(&end.counters.mappings) - count(&begun.counters.mappings);
        has_tiers.then_some(did)
    };
    let item_reads = did(|count| count.flash_reads);
    // If the index is in memory, a miss reads an item. Otherwise it reads pages of the index.
    let (reads_of_hits, reads_of_misses) = if has_tiers {
        let index_reads = did(|count| count.mappings.reads[0] + count.mappings.reads[1]);
        (
            item_reads + index_reads,
            did(|count| count.mappings.reads[2]),
        )
    } else {
        let of_misses = seen.misses_on_flash;
        (item_reads.saturating_sub(of_misses), of_misses)
    };
    let erase_counts = machine.storage.erase_counts();
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
        byte_hit_ratio: ratio(seen.item_bytes_found as f64, seen.item_bytes_asked as f64),
        dram_hits: Some(seen.dram_hits),
        flash_hits: Some(seen.flash_hits),
        flash_reads_per_hit: ratio(reads_of_hits as f64, seen.flash_hits as f64),
        flash_reads_per_miss: ratio(reads_of_misses as f64, misses as f64),
        ops_per_s: ratio(seen.operations() as f64, seconds),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p999_us: quantile(0.999),
        item_bytes_set: Some(seen.item_bytes_set),
        flash_bytes_written: Some(flash_bytes_written),
        clwa: ratio(flash_bytes_written as f64, seen.item_bytes_set as f64),
        nand_bytes_programmed: nand.map(|_| programmed),
        dlwa: nand.and_then(|_| {
            let host_bytes_written = did(|count| count.host_bytes_written);
            ratio(programmed as f64, host_bytes_written as f64)
        }),
        erases: nand.map(|_| did(|count| count.erases)),
        erase_min: erase_counts.iter().min().copied(),
        erase_max: erase_counts.iter().max().copied(),
        gc_items_copied: Some(did(|count| count.placement.items_copied)),
        gc_bytes_copied: Some(did(|count| count.placement.bytes_copied)),
        objects_on_flash: Some(objects),
        index_dram_bytes: Some(index_bytes),
        dram_bits_per_object: ratio(index_bytes as f64 * 8.0, objects as f64),
        index_bytes_written: tiers(|tiers| tiers.bytes_written),
        tier1_hits: tiers(|tiers| tiers.hits[0]),
        tier2_hits: tiers(|tiers| tiers.hits[1]),
        tier3_hits: tiers(|tiers| tiers.hits[2]),
        tier2_reads: tiers(|tiers| tiers.reads[0]),
        tier3_reads: tiers(|tiers| tiers.reads[1]),
        low_watermark: Some(stats.placement.low_watermark.into()),
        high_watermark: Some(stats.placement.high_watermark.into()),
        virtual_time: true,
        seed: plan.workload.settings().seed,
        ..CompareRow::default()
    }
}
