//! Tables 5 and 6: the number of incarnations, and several drives. Section 5.4: its formulas against measurements.

use device::PAGE_BYTES;

use super::fig5::{extent, row};
use super::index::{Make, System};
use super::work::{Rates, measure};
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::row::Row;

/// Shares of inserts, in percent: only look-ups, only inserts, half of each.
const INSERT_PERCENT: [u64; 3] = [0, 100, 50];

type Measured = Vec<(Make, u64, Rates)>;

fn measured(
    setting: &Setting<'_>,
    makes: &[Make],
    insert_percent: &[u64],
) -> Result<Measured, ExperimentError> {
    let (_, requests) = extent(setting.scale);
    let cells: Vec<(Make, u64)> = makes
        .iter()
        .flat_map(|make| insert_percent.iter().map(|&percent| (*make, percent)))
        .collect();
    let rates = setting.cells.run(&cells, |(make, percent)| {
        measure(make, |filled, random| {
            filled.requests(requests, *percent, random)
        })
    })?;
    Ok(cells
        .into_iter()
        .zip(rates)
        .map(|((make, percent), rates)| (make, percent, rates))
        .collect())
}

fn rows(all: &Measured) -> Vec<Row> {
    all.iter()
        .map(|(make, percent, rates)| row(make, *percent, rates))
        .collect()
}

fn rates_of(all: &Measured, percent: u64, is_it: impl Fn(&Make) -> bool) -> Option<Rates> {
    let found = all
        .iter()
        .find(|(make, its, _)| *its == percent && is_it(make));
    found.map(|(_, _, rates)| *rates)
}

/// Fill of the tables at which 64 incarnations take the paper's memory.
const FULLER: f64 = 0.93;

fn an_entry(rates: Rates) -> f64 {
    rates.memory_bytes as f64 / rates.entries as f64
}

/// Runs table 5.
pub(in crate::experiment) fn incarnations(
    setting: &Setting<'_>,
) -> Result<Outcome, ExperimentError> {
    const PAPER: [(u32, &str, &str, &str); 4] = [
        (16, "207,000", "110,000", "1.1"),
        (32, "139,000", "93,000", "0.6"),
        (48, "85,000", "79,000", "0.38"),
        (64, "66,000", "70,000", "0.27"),
    ];
    let (slicetables, _) = extent(setting.scale);
    let usual = Make::usual(System::SliceHash, slicetables, setting.seed);
    let of_incarnations = |(incarnations, ..): (u32, &str, &str, &str)| Make {
        incarnations,
        ..usual
    };
    let mut makes = Vec::from(PAPER.map(of_incarnations));
    makes.push(Make {
        incarnations: 64,
        fill: FULLER,
        ..usual
    });
    let all = measured(setting, &makes, &INSERT_PERCENT)?;
    let mut findings = Vec::new();
    for (incarnations, inserts, mixed, bytes) in PAPER {
        let is_it = |make: &Make| make.incarnations == incarnations && make.fill < FULLER;
        let of = |percent| rates_of(&all, percent, is_it);
        let finding = |what: &str, paper, here| {
            Finding::new(
                format!("{incarnations} incarnations: {what}"),
                Some(paper),
                here,
            )
        };
        findings.push(finding(
            "inserts a second",
            inserts,
            of(100).map(|rates| rates.ops_per_s()),
        ));
        findings.push(finding(
            "half inserts, operations a second",
            mixed,
            of(50).map(|rates| rates.ops_per_s()),
        ));
        findings.push(finding(
            "look-ups a second",
            "69,000",
            of(0).map(|rates| rates.ops_per_s()),
        ));
        findings.push(finding(
            "bytes of memory an entry",
            bytes,
            of(0).map(an_entry),
        ));
    }
    let fuller = rates_of(&all, 0, |make| make.fill == FULLER);
    for (what, paper, here) in [
        ("bytes of memory an entry", "0.27", fuller.map(an_entry)),
        (
            "pages read for a look-up",
            "about 1",
            fuller.map(|rates| rates.page_reads),
        ),
    ] {
        let measure = format!("64 incarnations, tables filled to {FULLER}: {what}");
        findings.push(Finding::new(measure, Some(paper), here));
    }
    Ok(Outcome::of(Vec::new(), findings, rows(&all)))
}

/// Runs table 6.
pub(in crate::experiment) fn drives(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    const PAPER: [(usize, &str, &str, &str); 3] = [
        (1, "1", "1", "0.6"),
        (2, "2.0", "2.0", "0.3"),
        (3, "3.0", "3.0", "0.2"),
    ];
    let (slicetables, _) = extent(setting.scale);
    let of_drives = |spread: bool| {
        PAPER.map(|(drives, ..)| Make {
            drives,
            spread,
            ..Make::usual(System::SliceHash, slicetables, setting.seed)
        })
    };
    let mut makes = Vec::from(of_drives(false));
    makes.extend(of_drives(true).into_iter().skip(1));
    let all = measured(setting, &makes, &[0, 50])?;
    let of = |drives: usize, spread: bool, percent| {
        rates_of(&all, percent, |make| {
            (make.drives, make.spread) == (drives, spread)
        })
    };
    let over_one = |drives, spread, percent| {
        Some(of(drives, spread, percent)?.ops_per_s() / of(1, false, percent)?.ops_per_s())
    };
    let mut findings = Vec::new();
    for (drives, gets, mixed, bytes) in PAPER {
        let finding = |what: &str, paper, here| {
            Finding::new(format!("{drives} drives: {what}"), Some(paper), here)
        };
        if drives > 1 {
            findings.push(finding(
                "look-ups over one drive",
                gets,
                over_one(drives, false, 0),
            ));
            findings.push(finding(
                "half inserts over one drive",
                mixed,
                over_one(drives, false, 50),
            ));
            findings.push(finding(
                "spread: look-ups over one drive",
                "1",
                over_one(drives, true, 0),
            ));
            findings.push(finding(
                "spread: half inserts over one drive",
                "1",
                over_one(drives, true, 50),
            ));
        }
        findings.push(finding(
            "spread: bytes of memory an entry",
            bytes,
            of(drives, drives > 1, 0).map(an_entry),
        ));
    }
    Ok(Outcome::of(Vec::new(), findings, rows(&all)))
}

/// Runs section 5.4 with the drive's figures: 284 MB/s both ways, a page in 89 us.
pub(in crate::experiment) fn analysis(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    const LINK_BYTES_PER_US: f64 = 284.0;
    const PAGE_US: f64 = 89.4;
    let (slicetables, _) = extent(setting.scale);
    let makes = [System::SliceHash, System::Paper]
        .map(|system| Make::usual(system, slicetables, setting.seed));
    let all = measured(setting, &makes, &INSERT_PERCENT)?;
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for make in &makes {
        let of = |percent| rates_of(&all, percent, |its| its.system == make.system);
        let (Some(gets), Some(inserts)) = (of(0), of(100)) else {
            continue;
        };
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
            findings.push(Finding::new(
                format!("{}: {what}, measured over formula", make.system.name()),
                Some("1"),
                Some(here / formula),
            ));
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
    Ok(Outcome::of(Vec::new(), findings, rows))
}

/// Share of look-ups that the first slot answers, as in the paper.
const FOUND_FIRST: f64 = 0.9;

/// Returns the years that a drive of 256 GB with 10,000 erases lasts at 10,000 inserts a second.
fn years(bytes_an_insert: f64) -> f64 {
    256e9 * 1e4 / (1e4 * bytes_an_insert) / (365.25 * 86_400.0)
}
