//! How much the other experiments' results depend on values that the paper does not give, and on the scaling of its machine.
//!
//! Each variant differs in one value from the other experiments.

use std::time::Duration;

use workload::Workload;

use super::cell::{Cell, DATABASE, Spare, among, over, points};
use super::items::{PRESETS, SHORTEST};
use super::machine::{LOOK_ASIDE_DEVIATION, Machine, REQUEST, TURNAROUND, look_aside_settings};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::row::{PART, Row};

/// SETs of the shortest items (figure 12).
const SETS: &str = "SETs of 64 bytes";
/// A cache of a tenth of the data set before a database (figures 10 and 11).
const LOOK_ASIDE: &str = "a cache of 10 % before a database";
const CACHE_PERCENT: f64 = 10.0;

/// Name of a difference, and the function that makes it.
type Variant = (&'static str, fn(&mut Plan));

const MACHINES: [Variant; 11] = [
    ("as it is", |_| ()),
    ("a request costs next to nothing", |plan| {
        plan.request = Some(Duration::ZERO);
    }),
    ("a request costs twice as much", |plan| {
        plan.request = Some(2 * REQUEST);
    }),
    ("copying costs nothing", |plan| plan.copy_scale = 0),
    ("copying costs twice as much", |plan| plan.copy_scale = 2),
    ("half as many clients", |plan| plan.clients /= 2),
    ("twice as many clients", |plan| plan.clients *= 2),
    ("no time between requests", |plan| {
        plan.turnaround = Duration::ZERO;
    }),
    ("twice the time between requests", |plan| {
        plan.turnaround = 2 * TURNAROUND;
    }),
    ("every client has a server of its own", |plan| {
        plan.servers = None;
    }),
    ("half as many processors", |plan| {
        plan.cpus = plan.cpus.div_ceil(2);
    }),
];

/// Deviation of the popularity, as a multiple of that of the other experiments, and drift in deviations.
const POPULARITIES: [(&str, f64, f64); 6] = [
    ("as it is", 1.0, 0.0),
    ("half the deviation", 0.5, 0.0),
    ("twice the deviation", 2.0, 0.0),
    ("four times the deviation", 4.0, 0.0),
    ("a drift of half a deviation", 1.0, 0.5),
    ("a drift of two deviations", 1.0, 2.0),
];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let mut cells = Vec::new();
    let keys = SHORTEST.keys(setting.scale);
    // Tests run the unchanged case and one variant.
    let each = match setting.scale {
        Scale::Tiny => 2,
        Scale::Small | Scale::Paper => usize::MAX,
    };
    for (what, change) in MACHINES.into_iter().take(each) {
        let mut plan = SHORTEST.plan(setting, 100, keys / 4)?;
        change(&mut plan);
        cells.extend(cells_of(&machine, SETS, what, &plan));
    }
    let keys = machine.data_set_keys(CACHE_PERCENT);
    let requests = keys / 8;
    for (what, deviations, drift) in POPULARITIES.into_iter().take(each) {
        let deviation = LOOK_ASIDE_DEVIATION * deviations;
        let of_a_client = requests as f64 / f64::from(machine.clients());
        let drift = drift * deviation * keys as f64 / of_a_client;
        let settings = look_aside_settings(setting, keys, deviation, drift)?;
        let plan = Plan {
            load: false,
            warmup: 3 * requests,
            database: DATABASE,
            ..machine.plan(Workload::parse("normal", settings)?, requests)
        };
        cells.extend(cells_of(&machine, LOOK_ASIDE, what, &plan));
    }
    let rows = setting.cells.run(&cells, Cell::row)?;
    Ok(Outcome::of(Vec::new(), findings(&rows), rows))
}

fn cells_of(machine: &Machine, part: &str, what: &str, plan: &Plan) -> Vec<Cell> {
    let head = Row::new().with("differs", what);
    let cells = Cell::of_each(machine, Spare::Within, &PRESETS, plan, &head);
    cells.into_iter().map(|cell| cell.part(part)).collect()
}

fn findings(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let of = |part: &str, what: &str| among(&among(rows, PART, part), "differs", what);
    for (what, _) in MACHINES {
        let rows = of(SETS, what);
        for fatcache in ["fatcache-async", "fatcache-sync"] {
            let presets = ["didacache", fatcache];
            for (figure, field) in [("throughput", "ops_per_s"), ("items kept", "kept_share")] {
                findings.push(Finding::new(
                    format!("{SETS}, {what}: {figure}, didacache / {fatcache}"),
                    None,
                    over(&rows, presets, field),
                ));
            }
        }
    }
    for (what, ..) in POPULARITIES {
        let rows = of(LOOK_ASIDE, what);
        findings.push(Finding::new(
            format!("{LOOK_ASIDE}, {what}: hit ratio, didacache - fatcache-sync, points"),
            None,
            points(&rows, ["didacache", "fatcache-sync"], "hit_ratio"),
        ));
    }
    findings
}
