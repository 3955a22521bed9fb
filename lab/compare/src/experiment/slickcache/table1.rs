//! `SlickCache` (`SoCC` 2018), table 1: the watermarks of the two-phase GC.

use engine::{Reserve, StaticReserve};

use super::cell::{Cell, SLICKCACHE_GC};
use super::machine::{Machine, Popularity};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Setting};

/// Low and high watermarks, in percent.
const WATERMARKS: [(u32, u32); 5] = [(1, 4), (2, 5), (3, 8), (5, 10), (10, 15)];

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    // More keys than the cache holds, so that items dropped by GC are missed.
    let keys = machine.items();
    let workload = Popularity::Zipfian.workload(setting, keys, 50.0, false)?;
    let number = setting.scale.tiny_or(1, WATERMARKS.len());
    let cell = |&(low_percent, high_percent): &(u32, u32)| {
        let plan = Plan {
            load: true,
            warmup: 3 * keys,
            reserve: Some(Reserve::Static(StaticReserve {
                low_percent,
                high_percent,
            })),
            ..machine.plan(workload.clone(), keys)
        };
        let watermarks = format!("{low_percent}-{high_percent} %");
        Cell::new(SLICKCACHE_GC, plan).with("watermarks", watermarks)
    };
    let cells: Vec<Cell> = WATERMARKS.iter().take(number).map(cell).collect();
    setting.told(&cells, Cell::row, TOLD)
}

const TOLD: &str = "
for watermarks, $hits, $requests, $latency = 1-4 % | 0.890 | 137,000 | 592; 2-5 % | 0.894 | 141,000 | 543; \
  3-8 % | 0.871 | 139,000 | 538; 5-10 % | 0.825 | 133,000 | 526; 10-15 % | 0.766 | 127,000 | 517
 hit ratio, {watermarks} | hit_ratio | {hits}
 requests a second, {watermarks} | requests_per_s | {requests}
 mean latency in us, {watermarks} | mean_us | {latency}
 items kept, {watermarks} | items_kept
hit ratio, 2-5 % less 10-15 %, points | 100 * (hit_ratio[watermarks=2-5 %] - hit_ratio[watermarks=10-15 %]) | 12.8
";
