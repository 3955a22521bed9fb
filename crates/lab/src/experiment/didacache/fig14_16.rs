//! `DIDACache` (TOS 2018), figures 14 to 16: SET and GET mixed.

use super::super::{Experiment, ExperimentError, Finding, Outcome, Scale, Setting};
use super::items::{Headed, PRESETS, SET_SHARES, USUAL, among};
use super::{COPY_SCALES, Machine, figure, quotient};
use crate::plot::{self, Axis, Line, Plot};
use crate::row::{PART, Row};

/// The experiment.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "didacache-fig14-16",
    source: "DIDACache, TOS 2018, figures 14 to 16",
    measures: "throughput, latency and its distribution for shares of SET, items of 256 bytes",
    has_plots: true,
    needs_file: false,
    run,
};

const REQUESTS: &str = "requests";
const DISTRIBUTION: &str = "distribution of the latency";

fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let requests = USUAL.keys(setting.scale) / 4;
    let mut cells = Vec::new();
    for set_share in SET_SHARES {
        let plan = USUAL.plan(setting, set_share, requests)?;
        let head = Row::new().with("sets_percent", set_share);
        let copy_scales = copy_scales(setting.scale, set_share);
        cells.extend(Headed::of_each(
            &machine,
            &PRESETS,
            &plan,
            copy_scales,
            &head,
        ));
    }
    let measured = setting.cells.run(&cells, measure)?;
    let (rows, distributions): (Vec<Row>, Vec<Vec<Row>>) = measured.into_iter().unzip();
    let findings = findings(&rows);
    let rows: Vec<Row> = rows.into_iter().chain(distributions.concat()).collect();
    Ok(Outcome {
        plots: plots(&rows),
        findings,
        rows,
        wrong: None,
    })
}

/// With which costs of copying requests of so many percent SETs are measured.
fn copy_scales(scale: Scale, set_share: u32) -> &'static [u32] {
    match (scale, set_share) {
        (Scale::Paper, _) | (Scale::Small, 50) => &COPY_SCALES,
        _ => &[1],
    }
}

/// A row for the requests, and one for each step of the distribution of their latency.
fn measure(cell: &Headed) -> Result<(Row, Vec<Row>), ExperimentError> {
    let (row, ran) = cell.row()?;
    let step = |&(percent, latency_us): &(f64, f64)| {
        Row::new()
            .with(PART, DISTRIBUTION)
            .and(cell.head.clone())
            .and(cell.cell.row())
            .with("requests_percent", percent)
            .with("within_us", latency_us)
    };
    let steps = ran.detail.latencies.iter().map(step).collect();
    Ok((Row::new().with(PART, REQUESTS).and(row), steps))
}

fn plots(rows: &[Row]) -> Vec<Plot> {
    let rows = among(rows, "copy_scale", 1u64);
    let requests = among(&rows, PART, REQUESTS);
    let by_share = |title: &str, y: Axis, field| Plot {
        title: title.to_owned(),
        x: Axis::new("SETs", plot::Scale::Linear).unit("%"),
        y,
        lines: PRESETS
            .map(|preset| line(&requests, preset, ("sets_percent", field)))
            .into(),
    };
    let mut plots = vec![
        by_share(
            "14. Throughput",
            Axis::new("requests", plot::Scale::Linear).unit("1/s"),
            "ops_per_s",
        ),
        by_share(
            "15. Mean latency",
            Axis::new("latency", plot::Scale::Linear).unit("us"),
            "mean_us",
        ),
    ];
    let distribution = among(&rows, PART, DISTRIBUTION);
    plots.extend(SET_SHARES.map(|share| {
        let steps = among(&distribution, "sets_percent", share);
        Plot {
            title: format!("16. Distribution of the latency, {share} % SETs"),
            x: Axis::new("latency", plot::Scale::Log10).unit("us"),
            y: Axis::new("requests", plot::Scale::Linear).unit("%"),
            lines: PRESETS
                .map(|preset| line(&steps, preset, ("within_us", "requests_percent")))
                .into(),
        }
    }));
    plots
}

fn line(rows: &[Row], preset: &'static str, (across, upwards): (&str, &str)) -> Line {
    let point = |row: &Row| Some((row.number(across)?, row.number(upwards)?));
    let points = among(rows, "preset", preset);
    Line::new(preset, points.iter().filter_map(point).collect())
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for share in SET_SHARES {
        let rows = among(rows, "sets_percent", share);
        let paper = (share == 0).then_some("about 1");
        for (what, field) in [("throughput", "ops_per_s"), ("mean latency", "mean_us")] {
            for copy_scale in COPY_SCALES {
                let didacache = figure(&rows, "didacache", copy_scale, field);
                for fatcache in ["fatcache-async", "fatcache-sync"] {
                    let here = quotient(didacache, figure(&rows, fatcache, copy_scale, field));
                    let measure = format!(
                        "{what}, didacache / {fatcache}, {share} % SETs, copying x {copy_scale}"
                    );
                    findings.extend(here.map(|here| Finding {
                        measure,
                        paper,
                        here: Some(here),
                    }));
                }
            }
        }
    }
    findings
}
