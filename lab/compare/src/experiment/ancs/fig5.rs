//! Figure 5 and table 3: look-ups, inserts and both, of SliceHash and BufferHash; memory an entry. Section 7.3: the gain of
//! slicing over BufferHash without filters.

use super::index::{Make, System};
use super::work::{Rates, measure};
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

const SYSTEMS: [System; 5] = [
    System::SliceHash,
    System::Paper,
    System::Unaware,
    System::BufferHash,
    System::BareBufferHash,
];
const INSERT_PERCENT: [u64; 3] = [0, 100, 50];

/// Returns the number of slicetables in the flash, and the number of requests of a measurement.
pub(super) fn extent(scale: Scale) -> (u32, u64) {
    scale.pick((2, 4_000), (8, 300_000), (64, 2_400_000))
}

/// An index, and the requests for it.
pub(super) struct Cell {
    pub(super) make: Make,
    pub(super) insert_percent: u64,
    pub(super) requests: u64,
}

impl Cell {
    pub(super) fn rates(&self) -> Result<Rates, ExperimentError> {
        measure(&self.make, |filled, random| {
            filled.requests(self.requests, self.insert_percent, random)
        })
    }

    pub(super) fn row(&self) -> Result<Row, ExperimentError> {
        Ok(row(&self.make, self.insert_percent, &self.rates()?))
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (slicetables, requests) = extent(setting.scale);
    let cells = pairs(&INSERT_PERCENT, &SYSTEMS).map(|(insert_percent, system)| {
        // A look-up takes sixteen reads, so a sixteenth of the requests takes as long.
        let is_bare = system == System::BareBufferHash;
        Cell {
            make: Make::usual(system, slicetables, setting),
            insert_percent,
            requests: requests / if is_bare { 16 } else { 1 },
        }
    });
    setting.told(&cells.collect::<Vec<_>>(), Cell::row, TOLD)
}

/// Returns the row of a measurement.
fn row(make: &Make, insert_percent: u64, rates: &Rates) -> Row {
    let gets = insert_percent < 100;
    Row::new()
        .with("index", make.system.name())
        .with("incarnations", make.system_incarnations())
        .with("drives", make.drives as u64)
        .with("spread", make.spread)
        .with("fill", make.fill)
        .with("inserts_percent", insert_percent)
        .with("ops_per_s", rates.ops_per_s())
        .with("gets_per_s", gets.then_some(rates.gets_per_s))
        .with(
            "inserts_per_s",
            (insert_percent > 0).then_some(rates.inserts_per_s),
        )
        .with("page_reads_per_get", gets.then_some(rates.page_reads))
        .with("hit_ratio", gets.then_some(rates.found))
        .with("get_mean_us", gets.then_some(rates.get_us))
        .with(
            "insert_longest_us",
            (insert_percent > 0).then_some(rates.longest_insert_us),
        )
        .with("entries", rates.entries)
        .with("memory_bytes", rates.memory_bytes)
        .with(
            "bytes_per_entry",
            rates.memory_bytes as f64 / rates.entries as f64,
        )
        .with("virtual_time", true)
}

/// Look-ups beside inserts have the time that the inserts leave.
const TOLD: &str = "
plot Look-ups and inserts | sorted inserts_percent: inserts (%) | ops_per_s: operations (1/s) | index
for inserts_percent = 0
 look-ups a second, SliceHash | ops_per_s[index=slicehash] | 69,000
 over BufferHash | ops_per_s[index=slicehash] / ops_per_s[index=bufferhash] | 1.21
 over SliceHash without channels | ops_per_s[index=slicehash] / ops_per_s[index=slicehash without channels] | 1.18
 without channels over BufferHash without filters \
   | ops_per_s[index=slicehash without channels] / ops_per_s[index=bufferhash without filters] | 7
 over BufferHash without filters | ops_per_s[index=slicehash] / ops_per_s[index=bufferhash without filters] | 8.6
 pages read for a look-up, SliceHash | page_reads_per_get[index=slicehash] | about 1
 the same, buckets of 3 | page_reads_per_get[index=slicehash, buckets of 3] | about 1
inserts a second, SliceHash | ops_per_s[index=slicehash; inserts_percent=100] | 125,000
half inserts, operations a second, SliceHash | ops_per_s[index=slicehash; inserts_percent=50] | 105,000
the same, BufferHash | ops_per_s[index=bufferhash; inserts_percent=50] | 121,000
for index = slicehash
 look-ups beside inserts, in the time these leave, over alone \
   | gets_per_s[inserts_percent=50] / (1 - inserts_per_s[inserts_percent=50] * (1 / inserts_per_s[inserts_percent=100])) \
   / gets_per_s[inserts_percent=0] | about 1
for inserts_percent = 0
 bytes of memory an entry, SliceHash | bytes_per_entry[index=slicehash] | 0.6
 the same, buckets of 3 | bytes_per_entry[index=slicehash, buckets of 3] | 0.6
 the same, BufferHash | bytes_per_entry[index=bufferhash] | 4
";
