//! `DIDACache` (TOS 2018), figures 14 to 16: SET and GET mixed.

use super::cell::{Cell, Spare, among, lines, over, points};
use super::items::{PRESETS, SET_SHARES, USUAL};
use super::machine::Machine;
use crate::experiment::{ExperimentError, Finding, Outcome, Setting};
use crate::plot::{Axis, Plot};
use crate::row::{PART, Row};

const DISTRIBUTION: &str = "distribution of the latency";

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let requests = USUAL.keys(setting.scale) / 4;
    let mut cells = Vec::new();
    for spare in Spare::BOTH {
        for set_share in SET_SHARES {
            let plan = USUAL.plan(setting, set_share, requests)?;
            let head = Row::new().with("sets_percent", set_share);
            cells.extend(Cell::of_each(&machine, spare, &PRESETS, &plan, &head));
        }
    }
    let measured = setting.cells.run(&cells, measure)?;
    let (rows, distributions): (Vec<Row>, Vec<Vec<Row>>) = measured.into_iter().unzip();
    let findings = findings(&rows);
    let rows: Vec<Row> = rows.into_iter().chain(distributions.concat()).collect();
    Ok(Outcome::of(plots(&rows), findings, rows))
}

/// Runs a cell. Returns the row of the requests, and a row for each step of their latency distribution.
fn measure(cell: &Cell) -> Result<(Row, Vec<Row>), ExperimentError> {
    let (row, ran) = cell.measure()?;
    let step = |&(percent, latency_us): &(f64, f64)| {
        Row::new()
            .with(PART, DISTRIBUTION)
            .with("of", cell.part.as_str())
            .and(cell.head.clone())
            .with("requests_percent", percent)
            .with("within_us", latency_us)
    };
    let steps = ran.detail.latencies.iter().map(step).collect();
    Ok((row, steps))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let of = |spare: Spare| {
        let requests = among(rows, PART, spare.name());
        let by_share = |title, y, field| {
            Plot::new(
                format!("{title}, {}", spare.name()),
                Axis::linear("SETs").unit("%"),
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
        let distribution = among(&among(rows, PART, DISTRIBUTION), "of", spare.name());
        plots.extend(SET_SHARES.map(|share| {
            let steps = among(&distribution, "sets_percent", share);
            Plot::new(
                format!("16. Latency, {share} % SETs, {}", spare.name()),
                Axis::log10("latency").unit("us"),
                Axis::linear("requests").unit("%"),
                lines(&steps, &PRESETS, "within_us", "requests_percent"),
            )
        }));
        plots
    };
    Spare::BOTH.map(of).concat()
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for spare in Spare::BOTH {
        for share in SET_SHARES {
            let rows = among(&among(rows, PART, spare.name()), "sets_percent", share);
            let of = format!("{share} % SETs, {}", spare.name());
            let paper = if share == 0 { "about 1" } else { "above 1" };
            for fatcache in ["fatcache-async", "fatcache-sync"] {
                let presets = ["didacache", fatcache];
                for (what, paper, here) in [
                    ("throughput", Some(paper), over(&rows, presets, "ops_per_s")),
                    ("mean latency", None, over(&rows, presets, "mean_us")),
                    ("p99", None, over(&rows, presets, "p99_us")),
                    (
                        "hit ratio, points more",
                        None,
                        points(&rows, presets, "hit_ratio"),
                    ),
                    ("items kept", None, over(&rows, presets, "kept_share")),
                ] {
                    let measure = format!("{what}, didacache / {fatcache}, {of}");
                    findings.push(Finding::new(measure, paper, here));
                }
            }
        }
    }
    findings
}
