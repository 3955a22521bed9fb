//! The outcome of a run.

use std::time::Duration;

use engine::NamedStats;
use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::mappings::MappingStats;
use super::row::CompareRow;

/// Outcome of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Figures of the run.
    pub row: CompareRow,
    /// Samples along the run.
    pub curve: Curve,
    /// Sets refused by the cache: items that were too large, or for which there was no memory.
    pub refused_sets: u64,
    /// Description of the device.
    pub device: String,
    /// Figures for the experiments. Not serialized, so it does not pass between processes.
    #[serde(skip)]
    pub detail: Detail,
}

/// Figures of a run beyond its row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// Average time of an operation, in microseconds.
    pub mean_us: f64,
    /// Latency distribution: (percent of the operations, microseconds within which they ended).
    pub latencies: Vec<(f64, f64)>,
    /// 99th and 99.9th percentile of the time of a request, in microseconds, with the database and the set after a miss.
    pub request_us: [f64; 2],
    /// Shortest and longest time of a get, in microseconds.
    pub get_us: Option<(f64, f64)>,
    /// Shortest and longest time of a set, in microseconds.
    pub set_us: Option<(f64, f64)>,
    /// Share of the time in which the processors were busy, under virtual time.
    pub cpu_busy: Option<f64>,
    /// Erases of every good block, by ascending block number.
    pub erase_counts: Vec<u64>,
    /// Bytes of the drive's own memory for its map of pages.
    pub mapping_bytes: u64,
    /// Wear leveling during the measured part: levelings, segments erased, bytes copied.
    pub wear_leveling: (u64, u64, u64),
    /// Counters of an index that is partly on flash, for the measured part, and its size at the end.
    pub mappings: MappingStats,
    /// Mappings that found no space or were dropped, since the cache was opened.
    pub mappings_lost: u64,
    /// Bytes written to the drive since the cache was opened, and the most within any ten seconds.
    pub drive_bytes: (u64, u64),
    /// Statistics of an admission that learns, since the cache was opened.
    pub learner: NamedStats,
    /// Items returned to memory when their segments were reclaimed, during the measured part.
    pub items_returned: u64,
    /// Memory that the DRAM tier may hold at the end, in bytes.
    pub tier_bytes: u64,
    /// Share of the bytes of segments sealed since the cache was opened that items, their slots and segment summaries fill.
    pub segment_utilization: f64,
    /// Items that a limit on writes kept off flash, since the cache was opened.
    pub held_back: u64,
    /// Live items that reclaim dropped during the measured part.
    pub items_evicted: u64,
    /// Segments reclaimed during the measured part, and the number dropped whole among them.
    pub reclaimed: (u64, u64),
    /// Bytes of memory that do not grow with the number of objects.
    pub fixed_bytes: u64,
    /// Share of all keys found at the end of the run, if a census was taken.
    pub kept_share: Option<f64>,
    /// Time from the start of opening until the first request could come, and until all items of an earlier run were found
    /// again.
    pub start: (Duration, Option<Duration>),
}
