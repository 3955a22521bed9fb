//! `DIDACache` (TOS 2018), figures 10 and 11: a cache in front of a database, with more and less flash.

use workload::Workload;

use super::cell::{Cell, DATABASE, Spare};
use super::machine::{LOOK_ASIDE_DEVIATION, Machine, look_aside_settings, of_one_length};
use crate::compare::Plan;
use crate::experiment::{ExperimentError, Outcome, Scale, Setting};
use crate::row::Row;

const PRESETS: [&str; 3] = ["fatcache-sync", "fatcache-async", "didacache"];
/// Size at which the paper compares, in percent of the data set.
const COMPARED_PERCENT: u64 = 10;
/// Deviations and drifts of the popularity. The paper does not give a deviation: beside ours, half and twice its value are
/// measured. The paper's mean moves by an unknown amount: here by nothing, and by half a standard deviation over the measured
/// part.
const DEVIATIONS: [f64; 3] = [
    LOOK_ASIDE_DEVIATION / 2.0,
    LOOK_ASIDE_DEVIATION,
    LOOK_ASIDE_DEVIATION * 2.0,
];
const DRIFTS: [f64; 2] = [0.0, 0.5];

/// Returns the sizes of the cache, in percent of the data set.
fn percents(scale: Scale) -> &'static [u64] {
    scale.pick(&[10], &[5, 10, 12], &[5, 8, 10, 12])
}

/// Lengths of the items: those of the ETC pool, or their mean for all items. With one length, no preset can gain by preferring
/// small items.
const ETC: &str = "etc";
const ONE: &str = "one";

/// Variables of a cell beside the preset.
#[derive(Clone, Copy)]
struct Case {
    percent: u64,
    deviation: f64,
    drift: f64,
    lengths: &'static str,
    spare: Spare,
}

impl Case {
    const fn usual(percent: u64) -> Self {
        Self {
            percent,
            deviation: LOOK_ASIDE_DEVIATION,
            drift: DRIFTS[0],
            lengths: ETC,
            spare: Spare::Within,
        }
    }
}

fn cases(scale: Scale) -> Vec<Case> {
    let mut cases: Vec<_> = percents(scale).iter().copied().map(Case::usual).collect();
    if scale == Scale::Tiny {
        return cases;
    }
    let compared = Case::usual(COMPARED_PERCENT);
    let others = DEVIATIONS
        .into_iter()
        .filter(|&deviation| deviation != LOOK_ASIDE_DEVIATION);
    cases.extend(others.map(|deviation| Case {
        deviation,
        ..compared
    }));
    cases.push(Case {
        drift: DRIFTS[1],
        ..compared
    });
    for spare in Spare::BOTH {
        for lengths in [ETC, ONE] {
            if spare == Spare::Beside || lengths == ONE {
                cases.push(Case {
                    lengths,
                    spare,
                    ..compared
                });
            }
        }
    }
    cases
}

pub(in crate::experiment) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let machine = Machine::of(setting.scale);
    let mut cells = Vec::new();
    for case in cases(setting.scale) {
        let head = Row::new()
            .with("cache_percent", case.percent)
            .with("deviation", case.deviation)
            .with("drift_deviations", case.drift)
            .with("lengths", case.lengths);
        let plan = plan(setting, &machine, case)?;
        cells.extend(Cell::of_each(&machine, case.spare, &PRESETS, &plan, &head));
    }
    setting.told(&cells, Cell::row, TOLD)
}

/// Returns the plan for a flash of `case.percent` percent of the data set. The data set varies; the flash is the same.
fn plan(setting: &Setting<'_>, machine: &Machine, case: Case) -> Result<Plan, ExperimentError> {
    let keys = machine.data_set_keys(case.percent as f64);
    // The warm-up, three times as long, fills the cache and turns over its contents.
    let requests = machine.data_set_keys(COMPARED_PERCENT as f64) / 8;
    let of_a_client = requests as f64 / f64::from(machine.clients());
    let drift = case.drift * case.deviation * keys as f64 / of_a_client;
    let settings = look_aside_settings(setting, keys, case.deviation, drift)?;
    let settings = match case.lengths {
        ONE => of_one_length(settings),
        _ => settings,
    };
    Ok(Plan {
        load: false,
        warmup: 3 * requests,
        database: DATABASE,
        ..machine.plan(Workload::parse("normal", settings)?, requests)
    })
}

/// The last loop but one splits the gain in hits: the part due to the conventional drive's reserve, and the part due to the
/// preference for small items.
const TOLD: &str = "
for part, lengths, deviation, drift_deviations = same flash | etc | 0.025 | 0
 for $title, $figure, $field = Throughput | requests (1/s) | requests_per_s; Hit ratio | hit ratio | hit_ratio
  plot {title} against cache size | cache_percent: cache size (% of the data set) | {field}: {figure} \
    | preset = fatcache-sync; fatcache-async; didacache
for part, lengths, cache_percent = same flash | etc | 10
 for deviation = 0.0125; 0.025; 0.05
  for drift_deviations = 0; 0.5
   for $at = at 10 %, deviation {deviation}, drift {drift_deviations}
    hit ratio {at}, didacache - fatcache-sync, points \
      | 100 * (hit_ratio[didacache] - hit_ratio[fatcache-sync]) | 7.5 at 12 %
    for $other, $paper = fatcache-sync | 1.097; fatcache-async | 1.092
     throughput {at}, didacache / {other} | requests_per_s[didacache] / requests_per_s[{other}] | {paper}
     slabs erased {at}, didacache / {other} | slabs_erased[didacache] / slabs_erased[{other}]
     items kept {at}, didacache / {other} | objects_on_flash[didacache] / objects_on_flash[{other}]
for cache_percent, deviation, drift_deviations = 10 | 0.025 | 0
 for part = same flash; reserve beside
  for lengths, $items = etc | ETC lengths; one | one length
   hit ratio at 10 %, {items}, {part}, didacache - fatcache-sync, points \
     | 100 * (hit_ratio[didacache] - hit_ratio[fatcache-sync])
   hit ratio of bytes at 10 %, {items}, {part}, didacache - fatcache-sync, points \
     | 100 * (byte_hit_ratio[didacache] - byte_hit_ratio[fatcache-sync])
for part, lengths, deviation, drift_deviations = same flash | etc | 0.025 | 0
 for preset, cache_percent, $paper = didacache | 5 | 0.765; fatcache-sync | 5 | 0.711; \
   didacache | 12 | 0.948; fatcache-sync | 12 | 0.873
  hit ratio at {cache_percent} %, {preset} | hit_ratio | {paper}
";
