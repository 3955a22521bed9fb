//! `DIDACache` (TOS 2018), figures 17 and 18: SET and GET against the memory for slabs being filled.

use workload::Mix;

use super::cell::{COPY_SCALES, among, copy_scales, figure, quotient};
use super::items;
use super::machine::{Machine, etc};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

const PRESET: &str = "didacache";
/// 128 MB to 1 GB for each of eight servers are these parts of 32 GB of flash.
const FLASH_OVER_BUFFERS: [u64; 4] = [32, 16, 8, 4];
/// Both operations, each with its weights of GET and SET.
const OPERATIONS: [(&str, f64, f64); 2] = [("SET", 0.0, 1.0), ("GET", 1.0, 0.0)];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // Of 30 GB, 25 are filled.
    let keys = machine.etc_keys(match setting.scale {
        Scale::Tiny => 1.0 / 30.0,
        Scale::Small | Scale::Paper => 25.0 / 30.0,
    });
    let copy_scales = copy_scales(setting.scale);
    let mut cells = Vec::new();
    for (operation, gets, sets) in OPERATIONS {
        let workload = etc(setting, keys, Mix::new(gets, sets, 0.0)?)?;
        for part in FLASH_OVER_BUFFERS {
            let plan = Plan {
                warmup: keys / 4,
                buffer_bytes: Some(machine.flash_bytes() / part),
                ..machine.plan(workload.clone(), keys / 4)
            };
            let head = Row::new()
                .with("operation", operation)
                .with("flash_over_buffers", part);
            cells.extend(items::cells(&machine, &[PRESET], &plan, copy_scales, &head));
        }
    }
    let rows = setting.cells.run(&cells, items::row)?;
    let plots = OPERATIONS.map(|(operation, ..)| plots(&rows, operation));
    Ok(Outcome::of(plots.concat(), findings(&rows), rows))
}

fn plots(rows: &[Row], operation: &str) -> [Plot; 2] {
    let rows = among(rows, "operation", operation);
    let figure = |title: String, y: Axis, field| {
        Plot::new(
            title,
            Axis::log2("write buffers").unit("parts of the flash"),
            y,
            COPY_SCALES.map(|scale| line(&rows, scale, field)).into(),
        )
    };
    [
        figure(
            format!("Throughput of {operation}"),
            Axis::linear("requests").unit("1/s"),
            "ops_per_s",
        ),
        figure(
            format!("Mean latency of {operation}"),
            Axis::linear("latency").unit("us"),
            "mean_us",
        ),
    ]
}

fn line(rows: &[Row], copy_scale: u32, field: &str) -> Line {
    let point = |row: &Row| {
        let share = 1.0 / row.number("flash_over_buffers")?;
        Some((share, row.number(field)?))
    };
    let rows = among(rows, "copy_scale", u64::from(copy_scale));
    Line::new(
        format!("copying x {copy_scale}"),
        rows.iter().filter_map(point).collect(),
    )
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let [least, .., most] = FLASH_OVER_BUFFERS;
    for (operation, ..) in OPERATIONS {
        let rows = among(rows, "operation", operation);
        let of = |part: u64| among(&rows, "flash_over_buffers", part);
        let (small, large) = (of(least), of(most));
        for (what, field) in [("throughput", "ops_per_s"), ("mean latency", "mean_us")] {
            for copy_scale in COPY_SCALES {
                findings.push(Finding::new(format!(
                        "{what} of {operation}, a {most}th of the flash for buffers / a {least}nd, copying x {copy_scale}"
                    ), Some("about 1"), quotient(
                        figure(&large, PRESET, copy_scale, field),
                        figure(&small, PRESET, copy_scale, field),
                    )));
            }
        }
    }
    findings
}
