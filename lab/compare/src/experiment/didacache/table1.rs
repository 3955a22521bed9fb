//! `DIDACache` (TOS 2018), table 1: the copies and erases of garbage collection, with the number of items kept.

use workload::Mix;

use super::cell::{CURVE, Cell, Spare};
use super::machine::{Machine, etc};
use crate::compare::Plan;
use crate::experiment::pick::among;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::{PART, Row};

const PRESETS: [&str; 6] = [
    "didacache-space",
    "didacache-locality",
    "didacache",
    "fatcache-sync-greedy",
    "fatcache-sync-kick",
    FIFO,
];
const FIFO: &str = "fatcache-sync-fifo";

/// Share of the flash that is loaded: 25 of 30 GB.
const LOADED_SHARE: f64 = 25.0 / 30.0;
/// Bounds of copying in sixteenths of a slab, for presets that copy: items kept against the cost of keeping them.
const MOST_COPIED: [u32; 4] = [6, 9, 12, 15];
const COPYING: [&str; 3] = ["didacache", "fatcache-sync-greedy", FIFO];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let keys = machine.etc_keys(LOADED_SHARE);
    let sets_only = Mix::new(0.0, 1.0, 0.0)?;
    // The paper makes 80 million SETs of about 80 million keys, once the drive has used up its reserve.
    let plan = Plan {
        warmup: keys,
        ..machine.plan(etc(setting, keys, sets_only)?, keys)
    };
    let mut cells = Vec::new();
    for spare in Spare::BOTH {
        cells.extend(Cell::of_each(&machine, spare, &PRESETS, &plan, &Row::new()));
    }
    for spare in curves(setting.scale) {
        for sixteenths in MOST_COPIED {
            let plan = Plan {
                max_copy_sixteenths: Some(sixteenths),
                ..plan.clone()
            };
            let curve = Cell::of_each(&machine, *spare, &COPYING, &plan, &Row::new());
            cells.extend(curve.into_iter().map(|cell| {
                cell.part(format!("{CURVE}{}", spare.name()))
                    .with("max_copy_sixteenths", sixteenths)
            }));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn curves(scale: Scale) -> &'static [Spare] {
    scale.pick(&[], &[Spare::Within], &Spare::BOTH)
}

const TOLD: &str = "
for part
 for $preset, $erases, $copied = didacache-space | 0.80 | 0.49; didacache-locality | 0.69 | 0; didacache | 0.72 | 0.13; \
   fatcache-sync-greedy | 0.95 | 0.49; fatcache-sync-kick | 0.78 | 0; fatcache-sync-fifo | 1 | 1
  for $what, $field, $paper = erases | slabs_erased | {erases}; item bytes copied | gc_bytes_copied | {copied}; \
    items kept | objects_on_flash
   {what}, {preset} / fatcache-fifo, {part} | {field}[{preset}] / {field}[fatcache-sync-fifo] | {paper}
";

fn findings(rows: &[Row]) -> Vec<Finding> {
    let of = |spare: Spare| {
        let of_spare = among(rows, PART, spare.name());
        let mut findings = Outcome::told(of_spare.clone(), TOLD).findings;
        findings.extend(at_equal_kept(rows, &of_spare, spare.name()));
        findings
    };
    Spare::BOTH.map(of).concat()
}

/// Returns the figures of `didacache` with the fewest erases among the settings that keep 0.95 of the items of Fatcache-FIFO.
fn at_equal_kept(rows: &[Row], of_spare: &[Row], spare: &str) -> Vec<Finding> {
    let curve = among(rows, PART, format!("{CURVE}{spare}"));
    let fifo = among(of_spare, "preset", FIFO);
    let of_fifo = |field| fifo.first().and_then(|row| row.number(field));
    let (Some(erases), Some(copied), Some(kept)) = (
        of_fifo("slabs_erased"),
        of_fifo("gc_bytes_copied"),
        of_fifo("objects_on_flash"),
    ) else {
        return Vec::new();
    };
    let mut all = among(&curve, "preset", "didacache");
    all.extend(among(of_spare, "preset", "didacache"));
    let enough = all.iter().filter_map(|row| {
        let is_enough = row.number("objects_on_flash")? >= 0.95 * kept;
        let figures = (row.number("slabs_erased")?, row.number("gc_bytes_copied")?);
        is_enough.then_some(figures)
    });
    let least = enough.min_by(|(one, _), (other, _)| one.total_cmp(other));
    [
        ("erases", least.map(|(least, _)| least / erases), "0.72"),
        (
            "item bytes copied",
            least.map(|(_, least)| least / copied),
            "0.13",
        ),
    ]
    .map(|(what, here, paper)| {
        let measure =
            format!("{what} at 0.95 of its items kept or more, didacache / fatcache-fifo, {spare}");
        Finding::new(measure, Some(paper), here)
    })
    .into()
}
