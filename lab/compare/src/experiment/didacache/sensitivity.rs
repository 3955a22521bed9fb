//! How much the other experiments' results depend on values that the paper does not give, and on the scaling of its machine.
//!
//! Each variant differs in one value from the other experiments.

use std::time::Duration;

use workload::Workload;

use super::cell::{Cell, DATABASE, Spare};
use super::items::{PRESETS, SHORTEST};
use super::machine::{LOOK_ASIDE_DEVIATION, Machine, REQUEST, TURNAROUND, look_aside_settings};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::Row;

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
    let each = setting.scale.tiny_or(2, usize::MAX);
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
    setting.told(&cells, Cell::row, TOLD)
}

fn cells_of(machine: &Machine, part: &str, what: &str, plan: &Plan) -> Vec<Cell> {
    let head = Row::new().with("differs", what);
    let cells = Cell::of_each(machine, Spare::Within, &PRESETS, plan, &head);
    cells.into_iter().map(|cell| cell.part(part)).collect()
}

const TOLD: &str = "
for part = SETs of 64 bytes
 for differs
  for $other = fatcache-async; fatcache-sync
   {part}, {differs}: throughput, didacache / {other} | ops_per_s[didacache] / ops_per_s[{other}]
   {part}, {differs}: items kept, didacache / {other} | kept_share[didacache] / kept_share[{other}]
for part = a cache of 10 % before a database
 for differs
  {part}, {differs}: hit ratio, didacache - fatcache-sync, points | 100 * (hit_ratio[didacache] - hit_ratio[fatcache-sync])
";
