//! What comes of a run.

use std::time::Duration;

use engine::AdmissionStats;
use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::mappings::MappingStats;
use super::row::CompareRow;

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures.
    pub row: CompareRow,
    /// How the run went on.
    pub curve: Curve,
    /// Sets that the cache refused, because they were too large or there was no memory.
    pub refused_sets: u64,
    /// The device, in words.
    pub device: String,
    /// What else the experiments ask for; it is not passed on between processes.
    #[serde(skip)]
    pub detail: Detail,
}

/// What a run has beside its row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// Average time of an operation, in microseconds.
    pub mean_us: f64,
    /// Shares of the operations, in percent, that took no longer than so many microseconds.
    pub latencies: Vec<(f64, f64)>,
    /// What no more than one request in a hundred, and in a thousand, took longer than, in microseconds; with the database and
    /// the set after a miss.
    pub request_us: [f64; 2],
    /// The shortest and the longest time of a get, in microseconds.
    pub get_us: Option<(f64, f64)>,
    /// The same of a set.
    pub set_us: Option<(f64, f64)>,
    /// Share of the time that the processors were busy under virtual time.
    pub cpu_busy: Option<f64>,
    /// Erases of every good block, by rising number of the block.
    pub erase_counts: Vec<u64>,
    /// What the drive keeps in its own memory to know where pages lie, in bytes.
    pub mapping_bytes: u64,
    /// What the cache did to level wear, while it was measured: levelings, segments erased, bytes copied.
    pub wear_leveling: (u64, u64, u64),
    /// What an index that is partly on flash did while it was measured, and what it holds at the end.
    pub mappings: MappingStats,
    /// Mappings that it had no space for, or dropped, loading included.
    pub mappings_lost: u64,
    /// Bytes written to a drive since the cache was opened, and the most within any ten seconds.
    pub drive_bytes: (u64, u64),
    /// What admission has done since then.
    pub admission: AdmissionStats,
    /// Items that went back to memory when their segments were reclaimed, meanwhile.
    pub items_returned: u64,
    /// Bytes of memory that items may take at the end.
    pub tier_bytes: u64,
    /// How full the segments were that have been sealed since the cache was opened: bytes of items and of what segments know of
    /// them.
    pub segment_utilization: f64,
    /// Items that a limit on writes left no space for since then.
    pub held_back: u64,
    /// Live items that reclaim dropped meanwhile.
    pub items_evicted: u64,
    /// Segments that reclaim took meanwhile, and those of them that it dropped whole.
    pub reclaimed: (u64, u64),
    /// Bytes of memory that do not grow with the number of objects.
    pub fixed_bytes: u64,
    /// Share of all keys that were found in the end, where they were looked for.
    pub kept_share: Option<f64>,
    /// From when the cache was opened to when the first request could come, and to when all was found again that an earlier
    /// run had left.
    pub start: (Duration, Option<Duration>),
}
