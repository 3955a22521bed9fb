//! Flashield (NSDI '19), table 3: hit ratio and cache-level write amplification of a victim cache and of RIPQ.

use std::time::Duration;

use engine::preset::Preset;
use workload::{Settings, Workload};

use crate::compare::Plan;
use crate::experiment::pick::{emulated, preset, quotient, ran};
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

const PRESETS: [&str; 2] = ["victim", "ripq"];
const CLIENTS: u32 = 16;
/// Time between an answer and the client's next request: long enough that neither drive nor processor is the bottleneck.
const TURNAROUND: Duration = Duration::from_millis(1);

/// Sizes of a cache and of its workload.
struct Extent {
    memory_bytes: u64,
    flash_bytes: u64,
    segment_bytes: u32,
    keys: u64,
    warmup: u64,
    requests: u64,
}

impl Extent {
    /// Memory and flash are as 1 to 7, except at [`Scale::Tiny`]: no engine works with less memory.
    fn of(scale: Scale) -> Self {
        let tiny = Self {
            memory_bytes: 16 << 20,
            flash_bytes: 24 << 20,
            segment_bytes: 256 << 10,
            keys: 100_000,
            warmup: 100_000,
            requests: 100_000,
        };
        scale.pick(tiny, Self::scaled(1), Self::scaled(8))
    }

    const fn scaled(times: u64) -> Self {
        Self {
            memory_bytes: times * (32 << 20),
            flash_bytes: times * (224 << 20),
            segment_bytes: 256 << 10,
            // With this number a victim cache has the hit ratio of the paper's.
            keys: times * 90_000_000,
            warmup: times * 4_000_000,
            requests: times * 2_000_000,
        }
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = Extent::of(setting.scale);
    let settings = Settings {
        keys: extent.keys,
        clients: CLIENTS.into(),
        seed: setting.seed,
        ..Settings::default()
    };
    let workload = Workload::parse("memcachier", settings)?;
    let device = emulated(&format!(
        "ftl:mlc,size={},block=128KiB",
        2 * extent.flash_bytes
    ));
    let plan = Plan {
        segment_bytes: Some(extent.segment_bytes),
        warmup: extent.warmup,
        requests: Some(extent.requests),
        cpus: 2,
        turnaround: TURNAROUND,
        cache_bytes: Some(extent.flash_bytes),
        ..Plan::new(workload, device, extent.memory_bytes, CLIENTS)
    };
    let presets = PRESETS.map(preset);
    let measure = |preset: &&'static Preset| row(&plan, preset);
    setting.told(&presets, measure, TOLD)
}

fn row(plan: &Plan, preset: &'static Preset) -> Result<Row, ExperimentError> {
    let ran = ran(plan, preset)?;
    let (reclaimed, dropped) = ran.detail.reclaimed;
    // The client stores an item after each miss. The paper's trace has no such sets.
    let row = &ran.row;
    let misses = row.gets - row.hits;
    let asked = row.sets.saturating_sub(misses) as f64 / row.sets as f64;
    Ok(Row::new()
        .with("preset", preset.name)
        .and(row.figures(&["gets", "sets", "hit_ratio", "byte_hit_ratio"]))
        .and(row.figures(&["dram_hits", "flash_hits", "clwa", "item_bytes_set"]))
        .and(row.figures(&["flash_bytes_written", "gc_bytes_copied"]))
        .and(row.figures(&["objects_on_flash", "index_dram_bytes", "dlwa"]))
        .with("clwa_of_asked_sets", quotient(row.clwa, Some(asked)))
        .with("segments_reclaimed", reclaimed)
        .with("segments_dropped", dropped)
        .with("fixed_bytes", ran.detail.fixed_bytes)
        .with("refused_sets", ran.refused_sets))
}

const TOLD: &str = "
for preset, $hits, $clwa = victim | 69.72 | 4.00; ripq | 70.59 | 2.59
 hit ratio of {preset}, % | 100 * hit_ratio | {hits}
 CLWA of {preset} | clwa | {clwa}
 the same over the sets that follow no miss, {preset} | clwa_of_asked_sets | {clwa}
 items kept on flash by {preset} | objects_on_flash
hit ratio, ripq - victim, points | 100 * (hit_ratio[ripq] - hit_ratio[victim]) | 0.87
CLWA, ripq / victim | clwa[ripq] / clwa[victim] | 0.65
";
