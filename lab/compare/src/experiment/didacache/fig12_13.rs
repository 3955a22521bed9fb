//! `DIDACache` (TOS 2018), figures 12 and 13: throughput and latency of SET against the length of the items.

use super::cell::{CURVE, Cell, Spare, among, lines, over};
use super::items::{Items, LENGTHS, PRESETS, SHORTEST};
use super::machine::Machine;
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::{PART, Row};

fn lengths(scale: Scale) -> Vec<Items> {
    match scale {
        Scale::Tiny => vec![SHORTEST],
        Scale::Small => vec![SHORTEST, LENGTHS[2], LENGTHS[4], LENGTHS[6]],
        Scale::Paper => LENGTHS.into(),
    }
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
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
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

fn plots(rows: &[Row]) -> Vec<Plot> {
    let of = |spare: Spare| {
        let rows = among(rows, PART, spare.name());
        let figure = |title, y, field| {
            Plot::new(
                format!("{title}, {}", spare.name()),
                Axis::log2("item").unit("bytes"),
                y,
                lines(&rows, &PRESETS, "item_bytes", field),
            )
        };
        [
            figure(
                "12. Throughput of SET",
                Axis::linear("requests").unit("1/s"),
                "ops_per_s",
            ),
            figure(
                "13. Mean latency of SET",
                Axis::log10("latency").unit("us"),
                "mean_us",
            ),
            figure(
                "Items kept",
                Axis::linear("share of the items"),
                "kept_share",
            ),
        ]
    };
    Spare::BOTH.map(of).concat()
}

/// Results of the paper for the shortest items. For other lengths it has only curves.
const PAPER: [(&str, &str, [&str; 2], Option<&str>); 7] = [
    (
        "throughput",
        "ops_per_s",
        ["didacache", "fatcache-async"],
        Some("1.355"),
    ),
    (
        "throughput",
        "ops_per_s",
        ["didacache", "fatcache-sync"],
        Some("2.3"),
    ),
    (
        "throughput",
        "ops_per_s",
        ["fatcache-async", "fatcache-sync"],
        Some("1.7"),
    ),
    (
        "mean latency",
        "mean_us",
        ["didacache", "fatcache-async"],
        Some("0.764"),
    ),
    (
        "items kept",
        "kept_share",
        ["didacache", "fatcache-async"],
        None,
    ),
    (
        "slabs erased",
        "slabs_erased",
        ["didacache", "fatcache-async"],
        None,
    ),
    (
        "item bytes copied",
        "gc_bytes_copied",
        ["didacache", "fatcache-async"],
        None,
    ),
];

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for spare in Spare::BOTH {
        let of_spare = among(rows, PART, spare.name());
        for items in LENGTHS {
            let rows = among(&of_spare, "item_bytes", items.bytes);
            let (bytes, spare) = (items.bytes, spare.name());
            findings.extend(PAPER.map(|(what, field, presets, paper)| {
                Finding::new(
                    format!(
                        "{what}, {} / {}, {bytes} bytes, {spare}",
                        presets[0], presets[1]
                    ),
                    paper.filter(|_| items == SHORTEST),
                    over(&rows, presets, field),
                )
            }));
        }
    }
    findings
}
