//! `DIDACache` (TOS 2018), figures 10 and 11: a cache before a database, of more and less flash.

use super::cell::{
    COPY_SCALES, Cell, DATABASE, among, copy_scales, figure, lines, over, request_us,
    requests_per_s,
};
use super::machine::{Machine, look_aside};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::Row;

const PRESETS: [&str; 3] = ["fatcache-sync", "fatcache-async", "didacache"];
/// The size at which the paper compares, in percent of the data set.
const COMPARED_PERCENT: u64 = 10;

/// Sizes of the cache, in percent of the data set.
const fn percents(scale: Scale) -> &'static [u64] {
    match scale {
        Scale::Tiny => &[10],
        Scale::Small => &[5, 10, 12],
        Scale::Paper => &[5, 6, 7, 8, 9, 10, 11, 12],
    }
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let mut cells = Vec::new();
    for &percent in percents(setting.scale) {
        let scales = match percent {
            COMPARED_PERCENT => copy_scales(setting.scale),
            _ => &COPY_SCALES[..1],
        };
        let of_size = of_size(setting, percent, scales)?.into_iter();
        cells.extend(of_size.map(|cell| cell.with("cache_percent", percent)));
    }
    let rows = setting.cells.run(&cells, row)?;
    Ok(Outcome::of(plots(&rows), findings(&rows), rows))
}

/// The presets with flash for `percent` of the data set. It is the data set that differs: the flash is the same.
fn of_size(
    setting: &Setting<'_>,
    percent: u64,
    copy_scales: &[u32],
) -> Result<Vec<Cell>, ExperimentError> {
    let machine = Machine::lean(setting.scale);
    let keys = machine.data_set_keys(percent as f64);
    // Enough to fill the cache and to turn over what it holds; then a third of that.
    let requests = machine.data_set_keys(COMPARED_PERCENT as f64) / 8;
    let plan = Plan {
        load: false,
        warmup: 3 * requests,
        database: DATABASE,
        clients: machine.few_clients(),
        ..machine.plan(look_aside(setting, keys)?, requests)
    };
    Ok(Cell::of_each(
        &machine,
        &PRESETS,
        &plan,
        copy_scales,
        &Row::new(),
    ))
}

fn row(cell: &Cell) -> Result<Row, ExperimentError> {
    let ran = cell.run()?;
    Ok(cell
        .head
        .clone()
        .with("requests_per_s", requests_per_s(&ran))
        .and(ran.row.figures(&["hit_ratio"]))
        .with("request_us", request_us(&ran))
        .and(ran.row.figures(&["p99_us"]))
        .with("cpu_busy", ran.detail.cpu_busy)
        .and(ran.row.figures(&[
            "erases",
            "gc_bytes_copied",
            "clwa",
            "dlwa",
            "objects_on_flash",
            "low_watermark",
            "high_watermark",
        ])))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let plot = |title, y, field| {
        let x = Axis::linear("cache size").unit("% of the data set");
        Plot::new(title, x, y, lines(rows, &PRESETS, "cache_percent", field))
    };
    vec![
        plot(
            "Throughput against cache size",
            Axis::linear("requests").unit("1/s"),
            "requests_per_s",
        ),
        plot(
            "Hit ratio against cache size",
            Axis::linear("hit ratio"),
            "hit_ratio",
        ),
    ]
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let at = |percent: u64| among(rows, "cache_percent", percent);
    let compared = at(COMPARED_PERCENT);
    let mut findings = Vec::new();
    for scale in COPY_SCALES {
        let hits = |preset| Some(100.0 * figure(&compared, preset, scale, "hit_ratio")?);
        findings.push(Finding::new(
            format!("hit ratio at 10 %, didacache - fatcache-sync, points, copying x {scale}"),
            None,
            (|| Some(hits("didacache")? - hits("fatcache-sync")?))(),
        ));
        for (preset, paper) in [("fatcache-sync", "1.097"), ("fatcache-async", "1.092")] {
            findings.push(Finding::new(
                format!("throughput at 10 %, didacache / {preset}, copying x {scale}"),
                Some(paper),
                over(&compared, ["didacache", preset], scale, "requests_per_s"),
            ));
        }
    }
    for (preset, percent, paper) in [
        ("didacache", 5, "0.765"),
        ("fatcache-sync", 5, "0.711"),
        ("didacache", 12, "0.948"),
        ("fatcache-sync", 12, "0.873"),
    ] {
        findings.push(Finding::new(
            format!("hit ratio at {percent} %, {preset}"),
            Some(paper),
            figure(&at(percent), preset, 1, "hit_ratio"),
        ));
    }
    findings
}
