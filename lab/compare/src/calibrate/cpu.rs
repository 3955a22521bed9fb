//! Measures the table of processor costs on the engine itself, on the code path of every run: the clients of `compare` on the
//! live runtime, and a real file.
//!
//! ```text
//!   hit in memory          request + entry of the memory tier
//!   miss                   request + index step
//!   set                    request + steps, entries, items and bytes copied, writes: of several sizes
//!   hit on flash           request + index step + device command
//! ```
//!
//! Each scenario yields the number of units of every kind of work, which the engine counts, and a processor time. The fitted
//! unit costs come closest to all scenarios. All processors run clients, because a processor is slower while its neighbour is
//! busy, and they share one cache with its locks and counters. The result of a scenario is the median of [`ROUNDS`] rounds.

use std::path::Path;

use engine::preset::{FLOWSTONE, Preset, write_buffers};
use engine::{ReclaimPolicy, Schedule, Victim};
use runtime::work::Work;
use workload::{KeySize, Mix, Settings, ValueSize, Workload, WorkloadError};

use super::fit::{Unknown, fit};
use crate::compare::{CompareError, DeviceChoice, Plan, Spent, spend};
use crate::cpu::{CpuTable, TableError};

const ROUNDS: u64 = 3;
const FLASH_BYTES: u64 = 512 << 20;
const MEMORY_BYTES: u64 = 96 << 20;
const CLIENTS: u32 = 32;
/// Bytes of a stored key. A request for a key of another length is always a miss.
const NAME_BYTES: usize = 30;

/// Error of a measurement, as one line.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum MeasureError {
    #[error(transparent)]
    Run(#[from] CompareError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Table(#[from] TableError),
}

struct Scenario {
    name: &'static str,
    preset: &'static Preset,
    /// Weights of gets and sets.
    mix: (f64, f64),
    keys: u64,
    value_bytes: u32,
    /// Bytes of the requested keys. All stored keys have [`NAME_BYTES`] bytes, so any other length misses.
    name_bytes: usize,
    requests: u64,
}

/// A cache without items in memory: slabs, of which half the memory is being filled, in the schedule of Fatcache with a drain
/// (DIDACache, TOS 2018, section 5.1). Reclaim copies the oldest slab if that gains at least a sixteenth.
static BUFFERS: Preset = Preset::of_drive("write-buffers", "items in write buffers", |sizes| {
    let policy = ReclaimPolicy::CopyValid {
        victim: Victim::Oldest,
        max_copy_sixteenths: 15,
    };
    let for_slabs = sizes.memory_bytes / 2;
    write_buffers(sizes, for_slabs, Schedule::Background, policy)
});

const HIT: Scenario = Scenario {
    name: "hits in memory",
    preset: &FLOWSTONE,
    mix: (1.0, 0.0),
    keys: 100_000,
    value_bytes: 270,
    name_bytes: NAME_BYTES,
    requests: 300_000,
};

const SCENARIOS: [Scenario; 8] = [
    HIT,
    // Misses in an index that is larger than the processor's cache.
    Scenario {
        name: "misses",
        preset: &BUFFERS,
        keys: 600_000,
        name_bytes: NAME_BYTES + 1,
        ..HIT
    },
    // Sets into write buffers, with three value sizes.
    Scenario {
        name: "sets into buffers, 64 B",
        preset: &BUFFERS,
        mix: (0.0, 1.0),
        value_bytes: 64,
        ..HIT
    },
    Scenario {
        name: "sets into buffers, 270 B",
        preset: &BUFFERS,
        mix: (0.0, 1.0),
        ..HIT
    },
    Scenario {
        name: "sets into buffers, 4096 B",
        preset: &BUFFERS,
        mix: (0.0, 1.0),
        keys: 20_000,
        value_bytes: 4096,
        requests: 50_000,
        ..HIT
    },
    // Sets into memory, which demotes items to flash.
    Scenario {
        name: "sets into memory",
        mix: (0.0, 1.0),
        keys: 600_000,
        ..HIT
    },
    // Hits on flash. The first preset never keeps read items in memory, the second sometimes does.
    Scenario {
        name: "hits on flash",
        preset: &BUFFERS,
        keys: 600_000,
        requests: 120_000,
        ..HIT
    },
    Scenario {
        name: "hits in memory and on flash",
        keys: 600_000,
        requests: 120_000,
        ..HIT
    },
];

impl Scenario {
    fn workload(&self, name_bytes: usize, seed: u64) -> Result<Workload, MeasureError> {
        let settings = Settings {
            keys: self.keys,
            clients: CLIENTS.into(),
            seed,
            mix: Some(Mix::new(self.mix.0, self.mix.1, 0.0)?),
            key_size: Some(KeySize::Fixed(name_bytes)),
            value_size: Some(ValueSize::Fixed(self.value_bytes)),
            ..Settings::default()
        };
        Ok(Workload::parse("zipfian", settings)?)
    }

    fn measure(&self, path: &Path) -> Result<Vec<f64>, MeasureError> {
        let device = DeviceChoice::File {
            path: path.to_owned(),
            bytes: Some(FLASH_BYTES),
        };
        let asked_for = self.workload(self.name_bytes, 0)?;
        let plan = Plan {
            requests: Some(self.requests),
            ..Plan::new(asked_for, device, MEMORY_BYTES, CLIENTS)
        };
        let loaded = self.workload(NAME_BYTES, 0)?;
        let rounds: Result<Vec<Workload>, _> = (1..=ROUNDS)
            .map(|seed| self.workload(self.name_bytes, seed))
            .collect();
        let spent = spend(&plan, self.preset, path, FLASH_BYTES, &loaded, &rounds?)?;
        let mut rounds: Vec<Vec<f64>> = spent.iter().map(each).collect();
        rounds.sort_by(|one, other| one[0].total_cmp(&other[0]));
        Ok(rounds.swap_remove(rounds.len() / 2))
    }
}

/// Returns the nanoseconds of an operation, 1 for the request itself, and the units of every kind of work of an operation.
fn each(spent: &Spent) -> Vec<f64> {
    let operations = spent.operations.max(1) as f64;
    let units = Work::ALL.map(|work| spent.done[work] as f64 / operations);
    let nanos = spent.processor.as_nanos() as f64 / operations;
    [nanos, 1.0].into_iter().chain(units).collect()
}

/// Result of [`measure`].
#[derive(Clone, Debug)]
pub struct Measured {
    /// Fitted costs.
    pub table: CpuTable,
    /// For each scenario, nanoseconds of an operation: as measured, and by the table.
    pub scenarios: Vec<(&'static str, f64, f64)>,
}

/// Measures every kind of work of the engine on a new file at `path`, and removes the file. Blocks the thread for a minute.
pub fn measure(path: &Path) -> Result<Measured, MeasureError> {
    let rows: Result<Vec<Vec<f64>>, MeasureError> = SCENARIOS
        .iter()
        .map(|scenario| scenario.measure(path))
        .collect();
    let rows: Vec<Unknown> = rows?
        .into_iter()
        .map(|row| Unknown {
            sum: row[0],
            units: row[1..].to_vec(),
        })
        .collect();
    let costs: Vec<f64> = fit(&rows)
        .into_iter()
        .map(|nanos| (nanos * 100.0).round() / 100.0)
        .collect();
    let table = CpuTable::of_nanos(costs[0], |work| costs[1 + work as usize])?;
    let named = SCENARIOS.iter().zip(&rows);
    let scenarios = named.map(|(scenario, row)| (scenario.name, row.sum, row.at(&costs)));
    Ok(Measured {
        scenarios: scenarios.collect(),
        table,
    })
}
