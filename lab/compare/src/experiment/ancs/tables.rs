//! Tables 5 and 6: the number of incarnations, and several drives. Section 5.4: its formulas against measurements.

use device::PAGE_BYTES;

use super::fig5::{Cell, extent};
use super::index::{Make, System};
use crate::experiment::pick::pairs;
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::Row;

/// Shares of inserts, in percent: only look-ups, only inserts, half of each.
const INSERT_PERCENT: [u64; 3] = [0, 100, 50];

/// Returns a cell for each index and share of inserts.
fn cells(setting: &Setting<'_>, makes: &[Make], insert_percent: &[u64]) -> Vec<Cell> {
    let (_, requests) = extent(setting.scale);
    let cell = |(make, insert_percent)| Cell {
        make,
        insert_percent,
        requests,
    };
    pairs(makes, insert_percent).map(cell).collect()
}

/// Fill of the tables at which 64 incarnations take the paper's memory.
const FULLER: f64 = 0.93;

/// Runs table 5.
pub(in crate::experiment) fn incarnations(
    setting: &Setting<'_>,
) -> Result<Outcome, ExperimentError> {
    let (slicetables, _) = extent(setting.scale);
    let usual = Make::usual(System::SliceHash, slicetables, setting);
    let mut makes = Vec::from([16, 32, 48, 64].map(|incarnations| Make {
        incarnations,
        ..usual
    }));
    makes.push(Make {
        incarnations: 64,
        fill: FULLER,
        ..usual
    });
    let cells = cells(setting, &makes, &INSERT_PERCENT);
    setting.told(&cells, Cell::row, INCARNATIONS)
}

const INCARNATIONS: &str = "
for incarnations, $inserts, $mixed, $bytes = 16 | 207,000 | 110,000 | 1.1; 32 | 139,000 | 93,000 | 0.6; \
  48 | 85,000 | 79,000 | 0.38; 64 | 66,000 | 70,000 | 0.27
 for fill = !0.93
  {incarnations} incarnations: inserts a second | ops_per_s[inserts_percent=100] | {inserts}
  {incarnations} incarnations: half inserts, operations a second | ops_per_s[inserts_percent=50] | {mixed}
  {incarnations} incarnations: look-ups a second | ops_per_s[inserts_percent=0] | 69,000
  {incarnations} incarnations: bytes of memory an entry | bytes_per_entry[inserts_percent=0] | {bytes}
for fill, inserts_percent = 0.93 | 0
 64 incarnations, tables filled to {fill}: bytes of memory an entry | bytes_per_entry | 0.27
 64 incarnations, tables filled to {fill}: pages read for a look-up | page_reads_per_get | about 1
";

/// Runs table 6.
pub(in crate::experiment) fn drives(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let (slicetables, _) = extent(setting.scale);
    let makes =
        [(1, false), (2, false), (3, false), (2, true), (3, true)].map(|(drives, spread)| Make {
            drives,
            spread,
            ..Make::usual(System::SliceHash, slicetables, setting)
        });
    let cells = cells(setting, &makes, &[0, 50]);
    setting.told(&cells, Cell::row, DRIVES)
}

const DRIVES: &str = "
1 drives: spread: bytes of memory an entry | bytes_per_entry[drives=1; inserts_percent=0] | 0.6
for $drives, $times, $bytes = 2 | 2.0 | 0.3; 3 | 3.0 | 0.2
 for $spread, $of, $paper = false | {drives} drives: | {times}; true | {drives} drives: spread: | 1
  for inserts_percent, $what = 0 | look-ups; 50 | half inserts
   {of} {what} over one drive | ops_per_s[drives={drives}; spread={spread}] / ops_per_s[drives=1] | {paper}
 {drives} drives: spread: bytes of memory an entry \
   | bytes_per_entry[drives={drives}; spread=true; inserts_percent=0] | {bytes}
";

/// Runs section 5.4 with the drive's figures: 284 MB/s both ways, a page in 89 us.
pub(in crate::experiment) fn analysis(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    const LINK_BYTES_PER_US: f64 = 284.0;
    const PAGE_US: f64 = 89.4;
    let (slicetables, _) = extent(setting.scale);
    let makes =
        [System::SliceHash, System::Paper].map(|system| Make::usual(system, slicetables, setting));
    let all = setting
        .cells
        .run(&cells(setting, &makes, &[0, 100]), Cell::rates)?;
    let mut rows = Vec::new();
    for (make, rates) in makes.iter().zip(all.chunks_exact(2)) {
        let (gets, inserts) = (rates[0], rates[1]);
        // Table 2: a flush writes S / (H / s_eff) bytes for each of its entries.
        let bytes_an_insert = inserts.bytes_written as f64 / inserts.flushed_entries as f64;
        let slicetable_bytes = inserts.bytes_written as f64 / inserts.flushes as f64;
        let predicted = [
            (
                "microseconds an insert",
                2.0 * bytes_an_insert / LINK_BYTES_PER_US,
                1e6 / inserts.inserts_per_s,
            ),
            (
                "longest insert, microseconds",
                2.0 * slicetable_bytes / LINK_BYTES_PER_US,
                inserts.longest_insert_us,
            ),
            (
                "pages read for a look-up",
                2.0 - FOUND_FIRST,
                gets.page_reads,
            ),
            (
                "inserts for a block of 128 KiB written",
                (128 << 10) as f64 / (32.0 * 16.0 / systems::slices::FILL),
                (128 << 10) as f64 / bytes_an_insert,
            ),
            (
                "bytes of memory an entry",
                16.0 / systems::slices::FILL / 33.0,
                gets.memory_bytes as f64 / gets.entries as f64,
            ),
            (
                "years of a drive of 256 GB, 10,000 erases, 10,000 inserts a second",
                years(32.0 * 16.0 / systems::slices::FILL),
                years(bytes_an_insert),
            ),
            (
                "microseconds a look-up, one at a time",
                (2.0 - FOUND_FIRST) * PAGE_US,
                gets.page_reads * PAGE_US,
            ),
        ];
        for (what, formula, here) in predicted {
            rows.push(
                Row::new()
                    .with("index", make.system.name())
                    .with("what", what)
                    .with("formula", formula)
                    .with("measured", here)
                    .with("page_bytes", PAGE_BYTES as u64)
                    .with("virtual_time", true),
            );
        }
    }
    Ok(Outcome::told(rows, ANALYSIS))
}

const ANALYSIS: &str = "
for index, what
 {index}: {what}, measured over formula | measured / formula | 1
";

/// Share of look-ups that the first slot answers, as in the paper.
const FOUND_FIRST: f64 = 0.9;

/// Returns the years that a drive of 256 GB with 10,000 erases lasts at 10,000 inserts a second.
fn years(bytes_an_insert: f64) -> f64 {
    256e9 * 1e4 / (1e4 * bytes_an_insert) / (365.25 * 86_400.0)
}
