//! No figure of a paper: presets under a write limit of half of their usual writes (`docs/guide/endurance.md`).

use std::num::NonZeroU64;
use std::time::Duration;

use engine::preset::Preset;
use workload::{KeySize, Mix, Settings, ValueSize, Workload};

use super::pick::{emulated, preset, ran};
use super::{ExperimentError, Outcome, Scale, Setting};
use crate::compare::{Outcome as Ran, Plan};
use crate::row::{PART, Row};

const PRESETS: &[&str] = &[
    "flowstone",
    #[cfg(system = "didacache")]
    "fatcache-async",
    #[cfg(system = "didacache")]
    "didacache",
    #[cfg(system = "slickcache")]
    "slickcache-gc",
    #[cfg(system = "flashield")]
    "flashield",
    #[cfg(system = "flashield")]
    "s3-fifo",
    #[cfg(system = "flashield")]
    "ripq",
    #[cfg(system = "flashield")]
    "victim",
];
const FREE: &str = "no limit";
const LIMITED: &str = "half of that";
/// Bytes of flash for an item of 300 bytes, with its share of metadata.
const ITEM_FLASH_BYTES: u64 = 376;
/// Percentage of the keys that the flash has space for.
const SPACE_PERCENT: u64 = 40;
const GETS_PER_SET: f64 = 10.0;
const CLIENTS: u32 = 16;
/// Time between an answer and the client's next request: long enough that the processor is not the bottleneck.
const TURNAROUND: Duration = Duration::from_micros(400);

/// Returns the bytes of flash and the number of measured requests.
const fn sizes(scale: Scale) -> (u64, u64) {
    match scale {
        // With less flash, ripq has too few segments for its priorities.
        Scale::Tiny => (64 << 20, 100_000),
        Scale::Small => (64 << 20, 1_200_000),
        Scale::Paper => (1 << 30, 12_000_000),
    }
}

struct Cell {
    preset: &'static Preset,
    limit: Option<NonZeroU64>,
    plan: Plan,
}

impl Cell {
    fn measure(&self) -> Result<(Row, f64), ExperimentError> {
        let ran = ran(&self.plan, self.preset)?;
        let (all, most) = ran.detail.drive_bytes;
        let seconds = seconds(&ran);
        let written_per_s = all as f64 / seconds;
        let limit = self.limit.map(NonZeroU64::get);
        let row = Row::new()
            .with(PART, if limit.is_some() { LIMITED } else { FREE })
            .with("preset", self.preset.name)
            .with("limit_bytes_per_s", limit)
            .with("bytes_per_s", written_per_s)
            .with(
                "ten_seconds_over_limit",
                limit.map(|limit| most as f64 / 10.0 / limit as f64),
            )
            .with("ops_per_s", ran.row.ops_per_s)
            .and(
                ran.row
                    .figures(&["p50_us", "p99_us", "p999_us", "hit_ratio"]),
            )
            .and(ran.row.figures(&["objects_on_flash"]))
            .with("clwa", ran.row.clwa)
            .with("held_back", ran.detail.held_back);
        Ok((row, written_per_s))
    }
}

/// Returns the seconds from the first request to the end.
fn seconds(ran: &Ran) -> f64 {
    let nanos = ran.curve.samples.last().map_or(0, |sample| sample.nanos);
    nanos as f64 / 1e9
}

pub(super) fn run_all(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let free = cells(setting, &[None; PRESETS.len()])?;
    let free = setting.cells.run(&free, Cell::measure)?;
    let half = |&(_, bytes_per_s): &(Row, f64)| NonZeroU64::new(bytes_per_s as u64 / 2);
    let limits: Vec<_> = free.iter().map(half).collect();
    let limited = setting
        .cells
        .run(&cells(setting, &limits)?, Cell::measure)?;
    let rows: Vec<Row> = free
        .into_iter()
        .chain(limited)
        .map(|(row, _)| row)
        .collect();
    Ok(Outcome::told(rows, TOLD))
}

fn cells(
    setting: &Setting<'_>,
    limits: &[Option<NonZeroU64>],
) -> Result<Vec<Cell>, ExperimentError> {
    let (flash_bytes, requests) = sizes(setting.scale);
    let settings = Settings {
        keys: flash_bytes / ITEM_FLASH_BYTES * 100 / SPACE_PERCENT,
        clients: CLIENTS.into(),
        seed: setting.seed,
        mix: Some(Mix::new(GETS_PER_SET, 1.0, 0.0)?),
        key_size: Some(KeySize::Fixed(30)),
        value_size: Some(ValueSize::Fixed(270)),
        set_on_miss: Some(true),
        ..Settings::default()
    };
    let device = emulated(&format!("ftl:mlc,size={},block=128KiB", 2 * flash_bytes));
    let workload = Workload::parse("zipfian", settings)?;
    let plan = Plan {
        requests: Some(requests),
        cpus: 2,
        turnaround: TURNAROUND,
        cache_bytes: Some(flash_bytes),
        ..Plan::new(workload, device, (32 << 20) + flash_bytes / 8, CLIENTS)
    };
    let cell = |(name, limit): (&&str, &Option<NonZeroU64>)| Cell {
        preset: preset(name),
        limit: *limit,
        plan: Plan {
            flash_write_limit: *limit,
            ..plan.clone()
        },
    };
    Ok(PRESETS.iter().zip(limits).map(cell).collect())
}

const TOLD: &str = "
for preset = flowstone; fatcache-async; didacache; slickcache-gc; flashield; s3-fifo; ripq; victim
 {preset}: written within any ten seconds, over the limit | ten_seconds_over_limit[part=half of that]
 {preset}: written, with the limit / without | bytes_per_s[part=half of that] / bytes_per_s[part=no limit]
 {preset}: throughput, with the limit / without | ops_per_s[part=half of that] / ops_per_s[part=no limit]
 {preset}: p99, with the limit / without | p99_us[part=half of that] / p99_us[part=no limit]
 {preset}: hit ratio, with the limit - without, points \
   | 100 * (hit_ratio[part=half of that] - hit_ratio[part=no limit])
 {preset}: items on flash, with the limit / without | objects_on_flash[part=half of that] / objects_on_flash[part=no limit]
";
