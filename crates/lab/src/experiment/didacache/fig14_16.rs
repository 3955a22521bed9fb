//! `DIDACache` (TOS 2018), figures 14 to 16: SET and GET mixed.

use super::cell::{COPY_SCALES, Cell, among, lines, over};
use super::items::{self, PRESETS, SET_SHARES, USUAL};
use super::machine::Machine;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::plot::{Axis, Plot};
use crate::row::{PART, Row};

const REQUESTS: &str = "requests";
const DISTRIBUTION: &str = "distribution of the latency";

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let requests = USUAL.keys(setting.scale) / 4;
    let mut cells = Vec::new();
    for set_share in SET_SHARES {
        let plan = USUAL.plan(setting, set_share, requests)?;
        let head = Row::new().with("sets_percent", set_share);
        let copy_scales = copy_scales(setting.scale, set_share);
        cells.extend(items::cells(&machine, &PRESETS, &plan, copy_scales, &head));
    }
    let measured = setting.cells.run(&cells, measure)?;
    let (rows, distributions): (Vec<Row>, Vec<Vec<Row>>) = measured.into_iter().unzip();
    let findings = findings(&rows);
    let rows: Vec<Row> = rows.into_iter().chain(distributions.concat()).collect();
    Ok(Outcome::of(plots(&rows), findings, rows))
}

/// With which costs of copying requests of so many percent SETs are measured.
fn copy_scales(scale: Scale, set_share: u32) -> &'static [u32] {
    match (scale, set_share) {
        (Scale::Paper, _) | (Scale::Small, 50) => &COPY_SCALES,
        _ => &[1],
    }
}

/// A row for the requests, and one for each step of the distribution of their latency.
fn measure(cell: &Cell) -> Result<(Row, Vec<Row>), ExperimentError> {
    let (row, ran) = items::measure(cell)?;
    let step = |&(percent, latency_us): &(f64, f64)| {
        Row::new()
            .with(PART, DISTRIBUTION)
            .and(cell.head.clone())
            .with("requests_percent", percent)
            .with("within_us", latency_us)
    };
    let steps = ran.detail.latencies.iter().map(step).collect();
    Ok((Row::new().with(PART, REQUESTS).and(row), steps))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let requests = among(rows, PART, REQUESTS);
    let by_share = |title, y, field| {
        let x = Axis::linear("SETs").unit("%");
        Plot::new(
            title,
            x,
            y,
            lines(&requests, &PRESETS, "sets_percent", field),
        )
    };
    let mut plots = vec![
        by_share(
            "14. Throughput",
            Axis::linear("requests").unit("1/s"),
            "ops_per_s",
        ),
        by_share(
            "15. Mean latency",
            Axis::linear("latency").unit("us"),
            "mean_us",
        ),
    ];
    let distribution = among(rows, PART, DISTRIBUTION);
    plots.extend(SET_SHARES.map(|share| {
        let steps = among(&distribution, "sets_percent", share);
        Plot::new(
            format!("16. Distribution of the latency, {share} % SETs"),
            Axis::log10("latency").unit("us"),
            Axis::linear("requests").unit("%"),
            lines(&steps, &PRESETS, "within_us", "requests_percent"),
        )
    }));
    plots
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for share in SET_SHARES {
        let rows = among(rows, "sets_percent", share);
        let paper = (share == 0).then_some("about 1");
        for (what, field) in [("throughput", "ops_per_s"), ("mean latency", "mean_us")] {
            for copy_scale in COPY_SCALES {
                for fatcache in ["fatcache-async", "fatcache-sync"] {
                    let here = over(&rows, ["didacache", fatcache], copy_scale, field);
                    let measure = format!(
                        "{what}, didacache / {fatcache}, {share} % SETs, copying x {copy_scale}"
                    );
                    findings.extend(here.map(|here| Finding::new(measure, paper, Some(here))));
                }
            }
        }
    }
    findings
}
