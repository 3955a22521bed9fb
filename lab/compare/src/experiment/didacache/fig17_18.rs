//! `DIDACache` (TOS 2018), figures 17 and 18: SET and GET against the memory for slabs being filled.

use workload::Mix;

use super::cell::{Cell, Spare, among, quotient};
use super::machine::{Machine, etc};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Line, Plot};
use crate::row::Row;

const PRESET: &str = "didacache";
/// Ratios of flash to write buffers. The paper has 128 MB to 1 GB for each of eight servers, over 32 GB of flash.
const FLASH_OVER_BUFFERS: [u64; 4] = [32, 16, 8, 4];
/// Operations, with their weights of GET and SET.
const OPERATIONS: [(&str, f64, f64); 2] = [("SET", 0.0, 1.0), ("GET", 1.0, 0.0)];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // 25 of 30 GB are filled.
    let keys = machine.etc_keys(match setting.scale {
        Scale::Tiny => 1.0 / 30.0,
        Scale::Small | Scale::Paper => 25.0 / 30.0,
    });
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
            cells.extend(Cell::of_each(
                &machine,
                Spare::Within,
                &[PRESET],
                &plan,
                &head,
            ));
        }
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    let plots = OPERATIONS.map(|(operation, ..)| plots(&rows, operation));
    Ok(Outcome::of(plots.concat(), findings(&rows), rows))
}

fn plots(rows: &[Row], operation: &str) -> [Plot; 2] {
    let rows = among(rows, "operation", operation);
    let figure = |title: String, y: Axis, field| {
        let point = |row: &Row| Some((row.number("flash_over_buffers")?, row.number(field)?));
        let points = rows.iter().filter_map(point).collect();
        Plot::new(
            title,
            Axis::log2("write buffers").unit("parts of the flash"),
            y,
            vec![Line::new(PRESET, points)],
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

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (operation, ..) in OPERATIONS {
        let rows = among(rows, "operation", operation);
        let at = |part: u64, field| {
            let row = among(&rows, "flash_over_buffers", part);
            row.first()?.number(field)
        };
        for part in &FLASH_OVER_BUFFERS[..3] {
            for (what, field) in [("throughput", "ops_per_s"), ("mean latency", "mean_us")] {
                findings.push(Finding::new(
                    format!(
                        "{what} of {operation}, buffers of 1/{part} of the flash / of a fourth"
                    ),
                    Some("about 1"),
                    quotient(at(*part, field), at(FLASH_OVER_BUFFERS[3], field)),
                ));
            }
        }
    }
    findings
}
