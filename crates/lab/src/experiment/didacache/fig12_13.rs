//! `DIDACache` (TOS 2018), figures 12 and 13: throughput and latency of SET against the length of the items.

use super::cell::{COPY_SCALES, Cell, among, figure, lines, over, quotient};
use super::items::{self, Items, LENGTHS, PRESETS};
use super::machine::Machine;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::{PART, Row};

const RESERVE_BESIDE: &str = "a conventional drive has its reserve beside what it offers";
const SAME_FLASH: &str = "all have the same flash, the conventional drive's reserve included";
const SHORTEST: Items = LENGTHS[0];

/// The lengths, and for which of them copying is scaled.
fn lengths(scale: Scale) -> Vec<(Items, &'static [u32])> {
    let scaled: &[u32] = &COPY_SCALES;
    match scale {
        Scale::Tiny => vec![(SHORTEST, &[1])],
        Scale::Small => vec![
            (SHORTEST, scaled),
            (LENGTHS[2], &[1]),
            (LENGTHS[4], &[1]),
            (LENGTHS[6], &[1]),
        ],
        Scale::Paper => LENGTHS.iter().map(|&items| (items, scaled)).collect(),
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let lengths = lengths(setting.scale);
    let mut cells = Vec::new();
    for &(items, copy_scales) in &lengths {
        let plan = items.plan(setting, 100, items.keys(setting.scale) / 4)?;
        let head = Row::new()
            .with(PART, RESERVE_BESIDE)
            .with("item_bytes", items.bytes);
        cells.extend(items::cells(&machine, &PRESETS, &plan, copy_scales, &head));
    }
    // The shortest items where the reserve of the conventional drive is taken from the same flash.
    let plan = SHORTEST.plan(setting, 100, SHORTEST.keys(setting.scale) / 4)?;
    let head = Row::new()
        .with(PART, SAME_FLASH)
        .with("item_bytes", SHORTEST.bytes);
    cells.extend(Cell::of_each(
        &machine,
        &["fatcache-async"],
        &plan,
        &[1],
        &head,
    ));
    let rows = setting.cells.run(&cells, items::row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let rows = among(rows, PART, RESERVE_BESIDE);
    let figure = |title, y, field| {
        let x = Axis::log2("item").unit("bytes");
        Plot::new(title, x, y, lines(&rows, &PRESETS, "item_bytes", field))
    };
    vec![
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
    ]
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let beside = among(rows, PART, RESERVE_BESIDE);
    let mut findings = Vec::new();
    for (items, copy_scale) in COPY_SCALES
        .map(|scale| (SHORTEST, scale))
        .into_iter()
        .chain(LENGTHS[1..].iter().map(|&items| (items, 1)))
    {
        let rows = among(&beside, "item_bytes", items.bytes);
        if rows.is_empty() {
            continue;
        }
        findings.extend(over_fatcache(&rows, items, copy_scale));
    }
    let shortest = among(&beside, "item_bytes", SHORTEST.bytes);
    let same = among(rows, PART, SAME_FLASH);
    let didacache = figure(&shortest, "didacache", 1, "ops_per_s");
    let fatcache = figure(&same, "fatcache-async", 1, "ops_per_s");
    findings.push(Finding::new(
        "throughput, didacache / fatcache-async, 64 bytes, the same flash",
        None,
        quotient(didacache, fatcache),
    ));
    findings.extend(memory(&shortest));
    findings
}

/// What the paper says of the shortest items, of the others it has only curves.
const PAPER: [(&str, &str, &str, &str); 4] = [
    ("throughput", "ops_per_s", "fatcache-async", "1.355"),
    ("throughput", "ops_per_s", "fatcache-sync", "2.3"),
    ("mean latency", "mean_us", "fatcache-async", "0.764"),
    ("mean latency", "mean_us", "fatcache-sync", "0.455"),
];

fn over_fatcache(rows: &[Row], items: Items, copy_scale: u32) -> Vec<Finding> {
    let bytes = items.bytes;
    let finding = |(what, field, preset, paper): (&str, &str, &str, &'static str)| {
        Finding::new(
            format!("{what}, didacache / {preset}, {bytes} bytes, copying x {copy_scale}"),
            (items == SHORTEST).then_some(paper),
            over(rows, ["didacache", preset], copy_scale, field),
        )
    };
    PAPER.map(finding).into()
}

/// Memory for the map of a drive and for the index of the cache.
fn memory(rows: &[Row]) -> Vec<Finding> {
    let map = ("bytes of the drive's map", "device_mapping_bytes");
    let object = ("memory an object, bytes", "dram_bytes_an_object");
    let finding = |((what, field), preset, paper): ((&str, &str), &str, _)| {
        let here = figure(rows, preset, 1, field);
        Finding::new(format!("{what}, {preset}"), paper, here)
    };
    let findings = [
        (map, "didacache", Some("0")),
        (map, "fatcache-async", None),
        (object, "didacache", Some("44")),
        (object, "fatcache-async", Some("44")),
    ];
    findings.map(finding).into()
}
