//! `DIDACache` (TOS 2018), figures 10 and 11: a cache before a database, of more and less flash.

use super::super::{Experiment, ExperimentError, Finding, Outcome, Scale, Setting};
use super::{
    COPY_SCALES, Cell, DATABASE, Machine, figure_of, look_aside, quotient, request_us,
    requests_per_s,
};
use crate::compare::Plan;
use crate::plot::{self, Axis, Line, Plot};
use crate::row::Row;

/// The experiment.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "didacache-fig10-11",
    source: "DIDACache, TOS 2018, figures 10 and 11",
    measures: "throughput and hit ratio of look-aside clients against the size of the cache",
    has_plots: true,
    needs_file: false,
    run,
};

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

struct Sized {
    percent: u64,
    cell: Cell,
}

fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let mut cells = Vec::new();
    for &percent in percents(setting.scale) {
        let of_size = of_size(setting, percent)?;
        let wanted = match (setting.scale, percent) {
            (Scale::Tiny, _) => PRESETS.len(),
            (_, COMPARED_PERCENT) => of_size.len(),
            _ => PRESETS.len(),
        };
        let wanted = of_size.into_iter().take(wanted);
        cells.extend(wanted.map(|cell| Sized { percent, cell }));
    }
    let rows = setting.cells.run(&cells, row)?;
    Ok(Outcome {
        findings: findings(&rows),
        plots: plots(&rows),
        rows,
        ..Outcome::default()
    })
}

/// The presets with flash for `percent` of the data set. It is the data set that differs: the flash is the same.
fn of_size(setting: &Setting<'_>, percent: u64) -> Result<Vec<Cell>, ExperimentError> {
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
    Ok(Cell::of_each(&machine, &PRESETS, &plan))
}

fn row(sized: &Sized) -> Result<Row, ExperimentError> {
    let ran = sized.cell.run()?;
    let (requests_per_s, request_us) = (requests_per_s(&ran), request_us(&ran));
    let row = ran.row;
    Ok(sized
        .cell
        .row()
        .with("cache_percent", sized.percent)
        .with_some("requests_per_s", requests_per_s)
        .with_some("hit_ratio", row.hit_ratio)
        .with("request_us", request_us)
        .with_some("p99_us", row.p99_us)
        .with_some("cpu_busy", ran.detail.cpu_busy)
        .with_some("erases", row.erases)
        .with_some("gc_bytes_copied", row.gc_bytes_copied)
        .with_some("clwa", row.clwa)
        .with_some("dlwa", row.dlwa)
        .with_some("objects_on_flash", row.objects_on_flash)
        .with_some("low_watermark", row.low_watermark)
        .with_some("high_watermark", row.high_watermark))
}

/// The rows of a preset as they are compared: the cost of copying is the measured one.
fn of_preset<'a>(rows: &'a [Row], preset: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| {
        row.text("preset") == Some(preset) && row.number("copy_scale") == Some(1.0)
    })
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let lines = |field: &str| {
        let point = |row: &Row| Some((row.number("cache_percent")?, row.number(field)?));
        PRESETS
            .iter()
            .map(|preset| Line::new(*preset, of_preset(rows, preset).filter_map(point).collect()))
            .collect()
    };
    let plot = |title: &str, y: Axis, field: &str| Plot {
        title: title.to_owned(),
        x: Axis::new("cache size", plot::Scale::Linear).unit("% of the data set"),
        y,
        lines: lines(field),
    };
    vec![
        plot(
            "Throughput against cache size",
            Axis::new("requests", plot::Scale::Linear).unit("1/s"),
            "requests_per_s",
        ),
        plot(
            "Hit ratio against cache size",
            Axis::new("hit ratio", plot::Scale::Linear),
            "hit_ratio",
        ),
    ]
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let at = |percent: u64, preset, scale, field| {
        let of_size = rows
            .iter()
            .filter(|row| row.number("cache_percent") == Some(percent as f64));
        figure_of(of_size, preset, scale, field)
    };
    let mut findings = Vec::new();
    for scale in COPY_SCALES {
        let compared = |preset, field| at(COMPARED_PERCENT, preset, scale, field);
        let hits = |preset| Some(100.0 * compared(preset, "hit_ratio")?);
        findings.push(Finding {
            measure: format!(
                "hit ratio at 10 %, didacache - fatcache-sync, points, copying x {scale}"
            ),
            paper: None,
            here: (|| Some(hits("didacache")? - hits("fatcache-sync")?))(),
        });
        for (preset, paper) in [("fatcache-sync", "1.097"), ("fatcache-async", "1.092")] {
            findings.push(Finding {
                measure: format!("throughput at 10 %, didacache / {preset}, copying x {scale}"),
                paper: Some(paper),
                here: quotient(
                    compared("didacache", "requests_per_s"),
                    compared(preset, "requests_per_s"),
                ),
            });
        }
    }
    for (preset, percent, paper) in [
        ("didacache", 5, "0.765"),
        ("fatcache-sync", 5, "0.711"),
        ("didacache", 12, "0.948"),
        ("fatcache-sync", 12, "0.873"),
    ] {
        findings.push(Finding {
            measure: format!("hit ratio at {percent} %, {preset}"),
            paper: Some(paper),
            here: at(percent, preset, 1, "hit_ratio"),
        });
    }
    findings
}
