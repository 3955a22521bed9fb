//! Flashield (NSDI 2019), tables 5 to 7, and hit ratio against bytes written: admission to flash, and its cost in hits.
//!
//! Clients are look-aside. The cache has half of the drive, so that only the cache's own writes matter. Memory has space for
//! items and for an index and buffers, the same for all presets. A preset with a smaller index or buffers has more memory for
//! items (`dram_tier_bytes`).

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use engine::preset::Preset;
use engine::{AdmissionKind, AdmitGhosts, AdmitRandom};
use systems::flashield::Learning;
use workload::{Settings, Workload};

use super::belady;
use crate::compare::Plan;
use crate::experiment::pick::{among, emulated, preset, ran};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::{PART, Row};

const FLASHIELD: &str = "flashield";
const RANDOM: &str = "random";
const RANDOM_FLOWSTONE: &str = "random-flowstone";
const FLOWSTONE: &str = "flowstone";
const S3_FIFO: &str = "s3-fifo";
/// Systems compared with flashield.
const FAMILIES: [&str; 3] = [RANDOM, RANDOM_FLOWSTONE, S3_FIFO];
/// Systems of table 5.
const SYSTEMS: [&str; 3] = [FLASHIELD, "ripq", "victim"];
/// Seven applications. As in the paper, those with the most memory, except the one with objects of 141 kB.
const APPLICATIONS: [u16; 7] = [23, 31, 1, 10, 29, 7, 20];
/// Label of flashield as in the paper: it knows only the paper's two numbers, remembers nothing, and each mistake costs the
/// same.
const AS_PAPER: &str = "n = 1, as in the paper";
/// Numbers of reads from which an item counts as flashy: table 6.
const READS: [u32; 3] = [1, 10, 100];
/// Numbers of hits that 100 writes must bring, other than the usual one.
const HITS_PER_100_WRITES: [u32; 4] = [50, 100, 300, 600];
/// Shares admitted at random, close enough to interpolate between two.
const RANDOM_PERCENT: [u32; 7] = [100, 70, 50, 30, 20, 10, 3];
/// Ratios of flash to memory: table 7.
const RATIOS: [u64; 3] = [15, 7, 3];
pub(super) const USUAL_RATIO: u64 = 7;
/// Workloads of the frontier: many applications, and two of Twitter's clusters with small items, of which a fifth and a half
/// are requested once.
const WORKLOADS: [&str; 3] = ["memcachier", "twitter:52", "twitter:54"];
const RATIOS_OF_FRONTIER: [u64; 2] = [7, 50];
/// Size of the cache, in percent of the bytes of all items.
const SPACE_PERCENT: u64 = 50;
const CLIENTS: u32 = 16;
/// Time between an answer and the client's next request: long enough that the processor is not the bottleneck.
const TURNAROUND: Duration = Duration::from_micros(400);
/// Learning windows until the last request.
pub(super) const WINDOWS: u32 = 16;
/// Bytes of an item beside key and value: header, checksum, summary entry.
const ITEM_OVERHEAD: u64 = 60;
/// Bytes of memory for an object in the index, and bytes that do not grow with the flash beside segments in memory.
const INDEX_BYTES: f64 = 10.5;
const FIXED_BYTES: u64 = 3 << 20;
const SEGMENTS_IN_MEMORY: u64 = 4;
/// Number of keys sampled for the mean size of items.
const SAMPLE: u64 = 4096;

/// Returns the bytes of flash, and the numbers of requests before the measurement and in it.
fn sizes(scale: Scale) -> (u64, u64, u64) {
    scale.pick(
        (24 << 20, 50_000, 50_000),
        (64 << 20, 2_500_000, 2_500_000),
        (1 << 30, 24_000_000, 24_000_000),
    )
}

fn segment_bytes(scale: Scale) -> u32 {
    scale.pick(512 << 10, 512 << 10, 2 << 20)
}

/// A system with one setting, and its workload.
pub(super) struct Cell {
    pub(super) part: String,
    /// Name of the system in its row.
    system: &'static str,
    pub(super) label: String,
    pub(super) preset: &'static Preset,
    pub(super) plan: Plan,
}

/// A workload, and its ratio of flash to memory.
pub(super) struct Ground {
    name: String,
    ratio: u64,
    pub(super) plan: Plan,
}

impl Ground {
    pub(super) fn new(
        setting: &Setting<'_>,
        name: &str,
        ratio: u64,
    ) -> Result<Self, ExperimentError> {
        // Memory cannot shrink: no engine works with less. With a larger ratio the flash grows instead, and with it the number of
        // requests.
        let times = match ratio {
            0..=7 => 1,
            8..=15 => 2,
            _ => 4,
        };
        let (flash_bytes, warmup, requests) = sizes(setting.scale);
        let (flash_bytes, warmup, requests) =
            (times * flash_bytes, times * warmup, times * requests);
        let settings = |keys| Settings {
            keys,
            clients: CLIENTS.into(),
            seed: setting.seed,
            ..Settings::default()
        };
        let of_some = Workload::parse(name, settings(SAMPLE))?;
        let bytes = |nth| u64::from(of_some.load(nth).value_len);
        let item_bytes = (0..SAMPLE).map(bytes).sum::<u64>() / SAMPLE + ITEM_OVERHEAD;
        let dram_bytes = flash_bytes / ratio;
        let keys = (flash_bytes + dram_bytes) / item_bytes * 100 / SPACE_PERCENT;
        let workload = Workload::parse(name, settings(keys))?;
        let index_bytes = (flash_bytes / item_bytes) as f64 * INDEX_BYTES;
        let segment_bytes = segment_bytes(setting.scale);
        let buffer_bytes = SEGMENTS_IN_MEMORY * u64::from(segment_bytes);
        let memory_bytes = dram_bytes + index_bytes as u64 + buffer_bytes + FIXED_BYTES;
        let device = emulated(&format!("ftl:mlc,size={},block=128KiB", 2 * flash_bytes));
        let rate = u128::from(CLIENTS) * 1_000_000_000 / TURNAROUND.as_nanos();
        let seconds = (warmup + requests) as f64 / rate as f64;
        let plan = Plan {
            requests: Some(requests),
            warmup,
            cpus: 2,
            turnaround: TURNAROUND,
            admission_window: Some(Duration::from_secs_f64(seconds) / WINDOWS),
            cache_bytes: Some(flash_bytes),
            segment_bytes: Some(segment_bytes),
            ..Plan::new(workload, device, memory_bytes.max(17 << 20), CLIENTS)
        };
        Ok(Self {
            name: name.to_owned(),
            ratio,
            plan,
        })
    }

    pub(super) fn cell(
        &self,
        system: &'static str,
        label: String,
        admission: Option<Arc<dyn AdmissionKind>>,
    ) -> Cell {
        let named = match system {
            // Only admission differs.
            RANDOM => FLASHIELD,
            RANDOM_FLOWSTONE => FLOWSTONE,
            other => other,
        };
        Cell {
            part: self.part(),
            system,
            label,
            preset: preset(named),
            plan: Plan {
                admission,
                ..self.plan.clone()
            },
        }
    }

    fn learned(&self, label: String, learning: Learning) -> Cell {
        self.cell(FLASHIELD, label, Some(Arc::new(learning)))
    }

    fn flashield(&self, reads: u32) -> Cell {
        let learning = Learning {
            reads,
            ..Learning::default()
        };
        self.learned(format!("n = {reads}"), learning)
    }

    /// Returns flashield with n = 1 and a number of hits that 100 writes must bring.
    fn flashield_worth(&self, hits_per_100_writes: u32) -> Cell {
        let learning = Learning {
            hits_per_100_writes,
            ..Learning::default()
        };
        let label = format!("n = 1, {hits_per_100_writes} hits for 100 writes");
        self.learned(label, learning)
    }

    /// Returns flashield with n = 1, as in the paper.
    fn flashield_as_paper(&self) -> Cell {
        let learning = Learning {
            hits_per_100_writes: 0,
            remembers: false,
            ..Learning::default()
        };
        self.learned(AS_PAPER.to_owned(), learning)
    }

    fn random(&self, system: &'static str, percent: u32) -> Cell {
        let admission = AdmitRandom {
            per_mille: 10 * percent,
        };
        self.cell(system, format!("{percent} %"), Some(Arc::new(admission)))
    }

    fn s3_fifo(&self, reads: u32) -> Cell {
        let admission = AdmitGhosts { reads };
        self.cell(S3_FIFO, format!("{reads} reads"), Some(Arc::new(admission)))
    }

    fn other(&self, system: &'static str) -> Cell {
        self.cell(system, String::new(), None)
    }
}

impl Cell {
    pub(super) fn measure(&self) -> Result<Row, ExperimentError> {
        let ran = ran(&self.plan, self.preset)?;
        let (row, detail) = (&ran.row, &ran.detail);
        let learned = |name| detail.learner.find(name);
        let samples = &ran.curve.samples;
        let seconds = samples.last().map_or(0.0, |last| last.nanos as f64 / 1e9);
        let limit = self.plan.flash_write_limit.map(NonZeroU64::get);
        Ok(Row::new()
            .with(PART, self.part.as_str())
            .with("preset", self.system)
            .with("setting", self.label.as_str())
            .and(row.figures(&["hit_ratio", "dram_hits", "flash_hits", "clwa", "dlwa"]))
            .and(row.figures(&["flash_bytes_written", "objects_on_flash"]))
            .and(row.figures(&["flash_reads_per_hit", "p99_us"]))
            .with("items_returned", detail.items_returned)
            .with("segment_utilization", detail.segment_utilization)
            .with("held_back", detail.held_back)
            .with("bytes_per_s", detail.drive_bytes.0 as f64 / seconds)
            .with(
                "ten_seconds_over_limit",
                limit.map(|limit| detail.drive_bytes.1 as f64 / 10.0 / limit as f64),
            )
            .with("dram_tier_bytes", detail.tier_bytes)
            .with("lessons", learned("lessons"))
            .with(
                "samples_right",
                learned("samples_right_per_mille").map(|right| right as f64 / 1000.0),
            ))
    }
}

pub(super) fn applications(scale: Scale) -> &'static [u16] {
    scale.tiny_or(&APPLICATIONS[3..4], &APPLICATIONS)
}

/// Returns the cells of each application.
fn of_applications(
    setting: &Setting<'_>,
    ratio: u64,
    cells: impl Fn(&Ground) -> Vec<Cell>,
) -> Result<Vec<Cell>, ExperimentError> {
    let mut all = Vec::new();
    for application in applications(setting.scale) {
        let name = format!("memcachier:app{application}");
        all.extend(cells(&Ground::new(setting, &name, ratio)?));
    }
    Ok(all)
}

/// Runs table 5: three systems.
pub(in crate::experiment) fn table5(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let cells = of_applications(setting, USUAL_RATIO, |ground| {
        let of_paper = SYSTEMS.map(|system| match system {
            FLASHIELD => ground.flashield(1),
            other => ground.other(other),
        });
        of_paper
            .into_iter()
            .chain([ground.flashield_as_paper()])
            .chain(HITS_PER_100_WRITES.map(|hits| ground.flashield_worth(hits)))
            .collect()
    })?;
    setting.told(&cells, Cell::measure, TABLE5)
}

const TABLE5: &str = "
for $system, $setting, $paper = flashield | n = 1 | 0.54; ripq | | 2.85; victim | | 3.67
 median CLWA of the applications, {system} | median(clwa)[{system}; setting={setting}] | {paper}
the same, flashield / ripq | median(clwa)[flashield; setting=n = 1] / median(clwa)[ripq] | 0.19
for $other, $paper = ripq | -0.2; victim | -2.4
 mean hit ratio, flashield - {other}, points \
   | 100 * (mean(hit_ratio)[flashield; setting=n = 1] - mean(hit_ratio)[{other}]) | {paper}
for $setting = n = 1, 50 hits for 100 writes; n = 1, 100 hits for 100 writes; n = 1, 300 hits for 100 writes; \
  n = 1, 600 hits for 100 writes; n = 1, as in the paper
 {setting}: median CLWA, flashield / ripq | median(clwa)[flashield; setting={setting}] / median(clwa)[ripq]
 {setting}: mean hit ratio, flashield - ripq, points \
   | 100 * (mean(hit_ratio)[flashield; setting={setting}] - mean(hit_ratio)[ripq])
";

/// Runs table 6: the number of reads that makes an item flashy.
pub(in crate::experiment) fn table6(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let cells = of_applications(setting, USUAL_RATIO, |ground| {
        READS.map(|reads| ground.flashield(reads)).into()
    })?;
    setting.told(&cells, Cell::measure, TABLE6)
}

const TABLE6: &str = "
for setting, $clwa, $hits = n = 1 | 0.5 | 94.6; n = 10 | 0.5 | 93.9; n = 100 | 0.4 | 93.4
 median CLWA, {setting} | median(clwa) | {clwa}
 mean hit ratio, {setting}, % | 100 * mean(hit_ratio) | {hits}
";

/// Runs table 7: the share of memory in the cache.
pub(in crate::experiment) fn table7(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let mut cells = Vec::new();
    for ratio in RATIOS {
        cells.extend(of_applications(setting, ratio, |ground| {
            vec![ground.flashield(1)]
        })?);
    }
    setting.told(&cells, Cell::measure, TABLE7)
}

const TABLE7: &str = "
for part, $ratio, $clwa, $hits = * 1 : 15 | 1 : 15 | 0.7 | 94.0; * 1 : 7 | 1 : 7 | 0.8 | 94.8; * 1 : 3 | 1 : 3 | 0.9 | 96.7
 median CLWA, {ratio} | median(clwa) | {clwa}
 mean hit ratio, {ratio}, % | 100 * mean(hit_ratio) | {hits}
";

/// Runs the frontier, no table of the paper: hit ratio against bytes written, for all ways to admit and for a cache that knows
/// the future.
pub(in crate::experiment) fn frontier(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    // Number of workloads at each ratio.
    let workloads: [usize; 2] = setting.scale.pick([1, 0], [3, 1], [3, 3]);
    let mut grounds = Vec::new();
    for (ratio, count) in RATIOS_OF_FRONTIER.into_iter().zip(workloads) {
        for name in &WORKLOADS[..count] {
            grounds.push(Ground::new(setting, name, ratio)?);
        }
    }
    let cells: Vec<Cell> = grounds.iter().flat_map(of_frontier).collect();
    let mut rows = setting.cells.run(&cells, Cell::measure)?;
    let bounds = setting.cells.run(&grounds, Ground::bound)?;
    rows.extend(bounds);
    rows.sort_by_key(|row| {
        let part = row.text(PART).unwrap_or_default().to_owned();
        grounds.iter().position(|ground| ground.part() == part)
    });
    let mut findings = Vec::new();
    let mut plots = Vec::new();
    for ground in &grounds {
        let part = ground.part();
        let of = among(&rows, PART, part.as_str());
        let families: BTreeMap<&str, Vec<(f64, f64)>> = FAMILIES
            .into_iter()
            .map(|system| (system, points(&of, system)))
            .collect();
        for (hits, bytes) in points(&of, FLASHIELD) {
            for (system, family) in &families {
                let Some(least) = bytes_at(family, hits) else {
                    continue;
                };
                findings.push(Finding::new(
                    format!(
                        "{part}: bytes at {:.1} % hits, flashield / {system}",
                        100.0 * hits
                    ),
                    None,
                    Some(bytes / least),
                ));
            }
        }
        let systems = [
            FLASHIELD,
            RANDOM,
            RANDOM_FLOWSTONE,
            S3_FIFO,
            "ripq",
            "victim",
        ];
        let lines = systems.map(|system| {
            let points = points(&of, system).into_iter();
            Line::new(
                system,
                points.map(|(hits, bytes)| (bytes / 1e6, hits)).collect(),
            )
        });
        let (across, upwards) = (
            Axis::linear("written").unit("MB"),
            Axis::linear("hit ratio"),
        );
        plots.push(Plot::new(part, across, upwards, lines.into()));
    }
    Ok(Outcome::of(plots, findings, rows))
}

fn of_frontier(ground: &Ground) -> Vec<Cell> {
    let mut cells: Vec<Cell> = READS.map(|reads| ground.flashield(reads)).into();
    cells.extend(HITS_PER_100_WRITES.map(|hits| ground.flashield_worth(hits)));
    for system in [RANDOM, RANDOM_FLOWSTONE] {
        cells.extend(RANDOM_PERCENT.map(|percent| ground.random(system, percent)));
    }
    cells.extend([1, 2, 4].map(|reads| ground.s3_fifo(reads)));
    cells.extend(["ripq", "victim"].map(|system| ground.other(system)));
    cells
}

/// Returns (hit ratio, bytes written) of each setting of a system, by ascending hit ratio.
fn points(rows: &[Row], system: &str) -> Vec<(f64, f64)> {
    let of = |row: &&Row| row.text("preset") == Some(system);
    let point = |row: &Row| Some((row.number("hit_ratio")?, row.number("flash_bytes_written")?));
    let mut points: Vec<_> = rows.iter().filter(of).filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// Returns the bytes that a family of settings writes at a hit ratio, interpolated between the nearest two settings. Returns
/// `None` if no setting reaches the ratio, or all are above it. Each further hit costs more bytes than the one before, so the
/// interpolation is geometric.
fn bytes_at(points: &[(f64, f64)], hits: f64) -> Option<f64> {
    let above = points.iter().position(|point| point.0 >= hits)?;
    let (low, high) = (points.get(above.checked_sub(1)?)?, points[above]);
    let share = (hits - low.0) / (high.0 - low.0);
    Some(low.1 * (high.1 / low.1).powf(share))
}

impl Ground {
    fn part(&self) -> String {
        format!("{}, DRAM : flash 1 : {}", self.name, self.ratio)
    }

    /// Returns the hit ratio of a cache of the same bytes that knows the future, whatever it writes.
    fn bound(&self) -> Result<Row, ExperimentError> {
        let flash_bytes = self.plan.cache_bytes.unwrap_or(0);
        let bytes = flash_bytes + flash_bytes / self.ratio;
        let hits = belady::hit_ratio(&self.plan, bytes, ITEM_OVERHEAD)?;
        Ok(Row::new()
            .with(PART, self.part())
            .with("preset", "belady")
            .with("hit_ratio", hits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_a_hit_ratio_is_between_the_nearest_two() {
        let points = [(0.5, 100.0), (0.7, 300.0), (0.8, 1000.0)];
        assert_eq!(bytes_at(&points, 0.4), None);
        assert_eq!(bytes_at(&points, 0.9), None);
        let between = bytes_at(&points, 0.6).unwrap();
        assert!((between - 300f64.sqrt() * 10.0).abs() < 1e-9);
    }
}
