//! Figure 5 and table 3: look-ups, inserts and both, of SliceHash and BufferHash; memory an entry. Section 7.3: the gain of
//! slicing over BufferHash without filters.

use super::index::{Make, System};
use super::work::{Rates, measure};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
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
    match scale {
        Scale::Tiny => (2, 4_000),
        Scale::Small => (8, 300_000),
        Scale::Paper => (64, 2_400_000),
    }
}

struct Cell {
    make: Make,
    insert_percent: u64,
    requests: u64,
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (slicetables, requests) = extent(setting.scale);
    let mut cells = Vec::new();
    for insert_percent in INSERT_PERCENT {
        for system in SYSTEMS {
            // A look-up takes sixteen reads, so a sixteenth of the requests takes as long.
            let share = if system == System::BareBufferHash {
                16
            } else {
                1
            };
            cells.push(Cell {
                make: Make::usual(system, slicetables, setting.seed),
                insert_percent,
                requests: requests / share,
            });
        }
    }
    let rates = setting.cells.run(&cells, |cell| {
        measure(&cell.make, |filled, random| {
            filled.requests(cell.requests, cell.insert_percent, random)
        })
    })?;
    let all: Vec<(Cell, Rates)> = cells.into_iter().zip(rates).collect();
    let rows = all
        .iter()
        .map(|(cell, rates)| row(&cell.make, cell.insert_percent, rates))
        .collect();
    Ok(Outcome::of(vec![plot(&all)], findings(&all), rows))
}

/// Returns the row of a measurement.
pub(super) fn row(make: &Make, insert_percent: u64, rates: &Rates) -> Row {
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

fn plot(all: &[(Cell, Rates)]) -> Plot {
    let line = |system: System| {
        let of_system = all.iter().filter(|(cell, _)| cell.make.system == system);
        let mut points: Vec<(f64, f64)> = of_system
            .map(|(cell, rates)| (cell.insert_percent as f64, rates.ops_per_s()))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line::new(system.name(), points)
    };
    Plot::new(
        "Look-ups and inserts",
        Axis::linear("inserts").unit("%"),
        Axis::linear("operations").unit("1/s"),
        SYSTEMS.map(line).into(),
    )
}

fn findings(all: &[(Cell, Rates)]) -> Vec<Finding> {
    let of = |system, insert_percent| {
        let is_it = |(cell, _): &&(Cell, Rates)| {
            (cell.make.system, cell.insert_percent) == (system, insert_percent)
        };
        all.iter().find(is_it).map(|(_, rates)| *rates)
    };
    let ops = |system, insert_percent| Some(of(system, insert_percent)?.ops_per_s());
    let over = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let gets = |system| ops(system, 0);
    let bytes = |system| {
        let rates = of(system, 0)?;
        Some(rates.memory_bytes as f64 / rates.entries as f64)
    };
    // Look-ups beside inserts, over the time that the inserts leave.
    let kept = |system| {
        let (alone, mixed) = (of(system, 0)?, of(system, 50)?);
        let insert = 1.0 / of(system, 100)?.inserts_per_s;
        let left = 1.0 - mixed.inserts_per_s * insert;
        Some(mixed.gets_per_s / left / alone.gets_per_s)
    };
    use System::{BareBufferHash, BufferHash, Paper, SliceHash, Unaware};
    vec![
        Finding::new(
            "look-ups a second, SliceHash",
            Some("69,000"),
            gets(SliceHash),
        ),
        Finding::new(
            "over BufferHash",
            Some("1.21"),
            over(gets(SliceHash), gets(BufferHash)),
        ),
        Finding::new(
            "over SliceHash without channels",
            Some("1.18"),
            over(gets(SliceHash), gets(Unaware)),
        ),
        Finding::new(
            "without channels over BufferHash without filters",
            Some("7"),
            over(gets(Unaware), gets(BareBufferHash)),
        ),
        Finding::new(
            "over BufferHash without filters",
            Some("8.6"),
            over(gets(SliceHash), gets(BareBufferHash)),
        ),
        Finding::new(
            "pages read for a look-up, SliceHash",
            Some("about 1"),
            of(SliceHash, 0).map(|rates| rates.page_reads),
        ),
        Finding::new(
            "the same, buckets of 3",
            Some("about 1"),
            of(Paper, 0).map(|rates| rates.page_reads),
        ),
        Finding::new(
            "inserts a second, SliceHash",
            Some("125,000"),
            ops(SliceHash, 100),
        ),
        Finding::new(
            "half inserts, operations a second, SliceHash",
            Some("105,000"),
            ops(SliceHash, 50),
        ),
        Finding::new("the same, BufferHash", Some("121,000"), ops(BufferHash, 50)),
        Finding::new(
            "look-ups beside inserts, in the time these leave, over alone",
            Some("about 1"),
            kept(SliceHash),
        ),
        Finding::new(
            "bytes of memory an entry, SliceHash",
            Some("0.6"),
            bytes(SliceHash),
        ),
        Finding::new("the same, buckets of 3", Some("0.6"), bytes(Paper)),
        Finding::new("the same, BufferHash", Some("4"), bytes(BufferHash)),
    ]
}
