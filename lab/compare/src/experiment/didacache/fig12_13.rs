//! `DIDACache` (TOS 2018), figures 12 and 13: throughput and latency of SET against the length of the items.

use super::cell::{CURVE, Cell, Spare};
use super::items::{Items, LENGTHS, PRESETS, SHORTEST};
use super::machine::Machine;
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

fn lengths(scale: Scale) -> Vec<Items> {
    scale.pick(
        vec![SHORTEST],
        vec![SHORTEST, LENGTHS[2], LENGTHS[4], LENGTHS[6]],
        LENGTHS.into(),
    )
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let mut cells = Vec::new();
    for spare in Spare::BOTH {
        for items in lengths(setting.scale) {
            let plan = items.plan(setting, 100, items.keys(setting.scale) / 4)?;
            let head = Row::new().with("item_bytes", items.bytes);
            cells.extend(Cell::of_each(&machine, spare, &PRESETS, &plan, &head));
        }
    }
    if setting.scale != Scale::Tiny {
        cells.extend(curve(setting, &machine)?);
    }
    setting.told(&cells, Cell::row, TOLD)
}

/// Bounds of copying, in sixteenths of a slab.
const MOST_COPIED: [u32; 5] = [6, 9, 12, 14, 15];
/// Length of the curve's items: one at which flash is the bottleneck.
const OF_CURVE: Items = LENGTHS[4];
const OPEN_FLASH: &str = "no drive";
const CURVED: [&str; 2] = ["fatcache-async", "didacache"];

/// Returns cells with several bounds of copying, for items kept against throughput: with both sources of the reserve, and
/// Fatcache on raw flash, where only its policy differs.
fn curve(setting: &Setting<'_>, machine: &Machine) -> Result<Vec<Cell>, ExperimentError> {
    let usual = OF_CURVE.plan(setting, 100, OF_CURVE.keys(setting.scale) / 4)?;
    let head = Row::new().with("item_bytes", OF_CURVE.bytes);
    let mut cells = Vec::new();
    for sixteenths in MOST_COPIED {
        let plan = Plan {
            max_copy_sixteenths: Some(sixteenths),
            ..usual.clone()
        };
        let on_drive = Spare::BOTH.map(|spare| {
            Cell::of_each(machine, spare, &CURVED, &plan, &head)
                .into_iter()
                .map(move |cell| cell.part(format!("{CURVE}{}", spare.name())))
        });
        let open = Cell::of_each(machine, Spare::Within, &CURVED[..1], &plan, &head)
            .into_iter()
            .map(|cell| {
                cell.on_open_flash(machine)
                    .part(format!("{CURVE}{OPEN_FLASH}"))
            });
        let all = on_drive.into_iter().flatten().chain(open);
        cells.extend(all.map(|cell| cell.with("max_copy_sixteenths", sixteenths)));
    }
    Ok(cells)
}

/// The paper has numbers for the shortest items, and only curves for the others.
const TOLD: &str = "
for part = same flash; reserve beside
 for $title, $figure, $field = 12. Throughput of SET | requests (1/s) | ops_per_s; \
   13. Mean latency of SET | log10 latency (us) | mean_us; Items kept | share of the items | kept_share
  plot {title}, {part} | item_bytes: log2 item (bytes) | {field}: {figure} \
    | preset = fatcache-sync; fatcache-async; didacache
 for item_bytes = 64; 128; 256; 512; 1024; 2048; 4096
  for $what, $field, $one, $other, $paper = throughput | ops_per_s | didacache | fatcache-async | 1.355; \
    throughput | ops_per_s | didacache | fatcache-sync | 2.3; \
    throughput | ops_per_s | fatcache-async | fatcache-sync | 1.7; \
    mean latency | mean_us | didacache | fatcache-async | 0.764; \
    items kept | kept_share | didacache | fatcache-async; slabs erased | slabs_erased | didacache | fatcache-async; \
    item bytes copied | gc_bytes_copied | didacache | fatcache-async
   {what}, {one} / {other}, {item_bytes} bytes, {part} | {field}[{one}] / {field}[{other}] | {paper} if item_bytes=64
";
