//! `DIDACache` (TOS 2018), figures 17 and 18: SET and GET against the memory for slabs being filled.

use workload::Mix;

use super::super::{Experiment, ExperimentError, Finding, Outcome, Scale, Setting};
use super::items::{Headed, among};
use super::{COPY_SCALES, Machine, etc, figure, quotient};
use crate::compare::Plan;
use crate::plot::{self, Axis, Line, Plot};
use crate::row::Row;

/// The experiment.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "didacache-fig17-18",
    source: "DIDACache, TOS 2018, figures 17 and 18",
    measures: "throughput and latency of SET and of GET with write buffers of several sizes",
    has_plots: true,
    needs_file: false,
    run,
};

const PRESET: &str = "didacache";
/// 128 MB to 1 GB for each of eight servers are these parts of 32 GB of flash.
const FLASH_OVER_BUFFERS: [u64; 4] = [32, 16, 8, 4];
/// Both operations, each with its weights of GET and SET.
const OPERATIONS: [(&str, f64, f64); 2] = [("SET", 0.0, 1.0), ("GET", 1.0, 0.0)];

fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // Of 30 GB, 25 are filled.
    let (keys, copy_scales) = match setting.scale {
        Scale::Tiny => (machine.etc_keys(1.0 / 30.0), &COPY_SCALES[..1]),
        Scale::Small | Scale::Paper => (machine.etc_keys(25.0 / 30.0), &COPY_SCALES[..]),
    };
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
            cells.extend(Headed::of_each(
                &machine,
                &[PRESET],
                &plan,
                copy_scales,
                &head,
            ));
        }
    }
    let rows = setting.cells.run(&cells, |cell| Ok(cell.row()?.0))?;
    Ok(Outcome {
        plots: OPERATIONS
            .iter()
            .flat_map(|&(operation, ..)| plots(&rows, operation))
            .collect(),
        findings: findings(&rows),
        rows,
        wrong: None,
    })
}

fn plots(rows: &[Row], operation: &str) -> [Plot; 2] {
    let rows = among(rows, "operation", operation);
    let figure = |title: String, y: Axis, field| Plot {
        title,
        x: Axis::new("write buffers", plot::Scale::Log2).unit("parts of the flash"),
        y,
        lines: COPY_SCALES.map(|scale| line(&rows, scale, field)).into(),
    };
    [
        figure(
            format!("Throughput of {operation}"),
            Axis::new("requests", plot::Scale::Linear).unit("1/s"),
            "ops_per_s",
        ),
        figure(
            format!("Mean latency of {operation}"),
            Axis::new("latency", plot::Scale::Linear).unit("us"),
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
                findings.push(Finding {
                    measure: format!(
                        "{what} of {operation}, a {most}th of the flash for buffers / a {least}nd, copying x {copy_scale}"
                    ),
                    paper: Some("about 1"),
                    here: quotient(
                        figure(&large, PRESET, copy_scale, field),
                        figure(&small, PRESET, copy_scale, field),
                    ),
                });
            }
        }
    }
    findings
}
