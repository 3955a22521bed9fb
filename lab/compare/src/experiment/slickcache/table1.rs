//! `SlickCache` (`SoCC` 2018), table 1: the watermarks of the two-phase GC.

use engine::{Reserve, StaticReserve};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, Popularity};
use crate::compare::Plan;
use crate::experiment::pick::{among, measured};
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::Row;

struct Watermarks {
    low: u32,
    high: u32,
    /// Results of the paper: hit ratio, operations a second, microseconds.
    paper: [&'static str; 3],
}

const fn watermarks(low: u32, high: u32, paper: [&'static str; 3]) -> Watermarks {
    Watermarks { low, high, paper }
}

const ALL: [Watermarks; 5] = [
    watermarks(1, 4, ["0.890", "137,000", "592"]),
    watermarks(2, 5, ["0.894", "141,000", "543"]),
    watermarks(3, 8, ["0.871", "139,000", "538"]),
    watermarks(5, 10, ["0.825", "133,000", "526"]),
    watermarks(10, 15, ["0.766", "127,000", "517"]),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // More keys than the cache holds, so that items dropped by GC are missed.
    let keys = machine.items();
    let workload = Popularity::Zipfian.workload(setting, keys, 50.0, false)?;
    let number = match setting.scale {
        Scale::Tiny => 1,
        Scale::Small | Scale::Paper => ALL.len(),
    };
    let cell = |watermarks: &Watermarks| {
        let plan = Plan {
            load: true,
            warmup: 3 * keys,
            reserve: Some(Reserve::Static(StaticReserve {
                low_percent: watermarks.low,
                high_percent: watermarks.high,
            })),
            ..machine.plan(workload.clone(), keys)
        };
        Cell::new(SLICKCACHE_GC, plan).with("watermarks", watermarks.name())
    };
    let cells: Vec<Cell> = ALL.iter().take(number).map(cell).collect();
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

impl Watermarks {
    fn name(&self) -> String {
        format!("{}-{} %", self.low, self.high)
    }
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for watermarks in &ALL {
        let [hit_ratio, requests, latency] = watermarks.paper.map(Some);
        let name = watermarks.name();
        findings.extend(measured(
            among(rows, "watermarks", name.as_str()).first(),
            &name,
            &[
                ("hit ratio", hit_ratio, "hit_ratio"),
                ("requests a second", requests, "requests_per_s"),
                ("mean latency in us", latency, "mean_us"),
                ("items kept", None, "items_kept"),
            ],
        ));
    }
    let fall = || {
        let hit_ratio = |watermarks: &Watermarks| {
            let rows = among(rows, "watermarks", watermarks.name());
            rows.first()?.number("hit_ratio")
        };
        Some(100.0 * (hit_ratio(&ALL[1])? - hit_ratio(&ALL[4])?))
    };
    findings.push(Finding::new(
        "hit ratio, 2-5 % less 10-15 %, points",
        Some("12.8"),
        fall(),
    ));
    findings
}
