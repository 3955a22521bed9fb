//! Checks virtual time against real time: the same presets and workloads on a real file, and on the model of its drive.
//!
//! ```text
//!   file ─┬─ probe ──────▶ drive model ────────────┐
//!     │   └─ scenarios ──▶ costs of this machine ──┤
//!   real time: A B C A B C ... medians          virtual time
//!     └──────────────▶ verdict: ranking, quotients ◀┘
//! ```
//!
//! The file is written through once, and every run starts with an empty cache on it. The real-time runs are sequential, in
//! rounds of all presets, so that other activity of the machine affects all presets alike.

mod verdict;

use std::slice;
use std::time::Duration;

use emulated::DriveModel;
use emulated::measure::Probe;
use engine::preset::Preset;
use workload::{Mix, Settings, Workload};

use self::verdict::{Judged, Spread, judge};
use super::drive_file::DriveFile;
use super::{ExperimentError, Finding, Outcome, Scale, Setting};
use crate::calibrate::{drive_model, measure};
use crate::compare::{CompareRow, DeviceChoice, Plan, run as run_plan};
use crate::cpu::CpuTable;
use crate::row::Row;

const PRESETS: [&str; 4] = ["fatcache-sync", "fatcache-async", "didacache", "flowstone"];
const CLIENTS: u32 = 32;
/// Largest accepted factor between the virtual and the real ratio of a preset to the first one: from 1 / 1.25 to 1.25, which is
/// 20 % less or 25 % more.
const MOST_APART: f64 = 1.25;

/// A workload. Its lengths are multiples of the number of keys. `docs/papers/workloads.md` describes names and items.
struct Work {
    name: &'static str,
    workload: &'static str,
    /// Weights of gets and sets, unless they are the workload's own.
    mix: Option<(f64, f64)>,
    /// Bytes of flash for each key. An item takes 324 bytes of it, an item of `etc` 385.
    flash_bytes_per_key: u64,
    warmup: f64,
    requests: f64,
}

/// Workloads with different bottlenecks: processor and writes; misses and reclaim; reads.
const WORKS: [Work; 3] = [
    Work {
        name: "writes",
        workload: "zipfian",
        mix: Some((1.0, 9.0)),
        flash_bytes_per_key: 512,
        warmup: 1.0,
        requests: 1.0,
    },
    Work {
        name: "look-aside",
        workload: "etc",
        mix: None,
        flash_bytes_per_key: 256,
        warmup: 0.15,
        requests: 0.15,
    },
    Work {
        name: "reads",
        workload: "zipfian",
        mix: Some((19.0, 1.0)),
        flash_bytes_per_key: 512,
        warmup: 0.3,
        requests: 0.3,
    },
];

struct Extent {
    flash_bytes: u64,
    memory_bytes: u64,
    rounds: usize,
    probe: Duration,
}

fn extent(scale: Scale) -> Extent {
    let (flash_mib, memory_mib, rounds, probe_ms) =
        scale.pick((128, 64, 1, 20), (256, 96, 4, 500), (2048, 256, 5, 3000));
    Extent {
        flash_bytes: flash_mib << 20,
        memory_bytes: memory_mib << 20,
        rounds,
        probe: Duration::from_millis(probe_ms),
    }
}

impl Work {
    fn plan(&self, extent: &Extent, scale: Scale, seed: u64) -> Result<Plan, ExperimentError> {
        let keys = match scale {
            // Enough for a run.
            Scale::Tiny => 10_000,
            Scale::Small | Scale::Paper => extent.flash_bytes / self.flash_bytes_per_key,
        };
        let mix = self.mix.map(|(gets, sets)| Mix::new(gets, sets, 0.0));
        let settings = Settings {
            keys,
            clients: CLIENTS.into(),
            seed,
            mix: mix.transpose()?,
            ..Settings::default()
        };
        let share = |share: f64| (keys as f64 * share) as u64;
        let workload = Workload::parse(self.workload, settings)?;
        let device = DeviceChoice::Modelled {
            model: DriveModel::default(),
            bytes: extent.flash_bytes,
        };
        Ok(Plan {
            requests: Some(share(self.requests)),
            warmup: share(self.warmup),
            load: true,
            ..Plan::new(workload, device, extent.memory_bytes, CLIENTS)
        })
    }
}

struct Cell {
    work: &'static str,
    preset: &'static Preset,
    plan: Plan,
}

fn cells(
    setting: &Setting<'_>,
    extent: &Extent,
    costs: &CpuTable,
) -> Result<Vec<Cell>, ExperimentError> {
    let mut cells = Vec::new();
    for work in &WORKS {
        let plan = Plan {
            costs: costs.clone(),
            ..work.plan(extent, setting.scale, setting.seed)?
        };
        for name in PRESETS {
            let preset = systems::PRESETS
                .named(name)
                .expect("the presets are in the list");
            cells.push(Cell {
                work: work.name,
                preset,
                plan: plan.clone(),
            });
        }
    }
    Ok(cells)
}

pub(super) fn run(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let extent = extent(setting.scale);
    let path = setting.file.ok_or(ExperimentError::NoFile)?;
    let costs = match setting.scale {
        Scale::Tiny => CpuTable::frozen(),
        Scale::Small | Scale::Paper => measure(path)?.table,
    };
    let cells = cells(setting, &extent, &costs)?;
    let (file, profile) = DriveFile::probed(path, extent.flash_bytes, &what(&extent))?;
    let model = drive_model(&profile);
    let mut real = vec![Vec::new(); cells.len()];
    for _ in 0..extent.rounds {
        for (cell, rows) in cells.iter().zip(&mut real) {
            let device = DeviceChoice::File {
                path: file.path().to_owned(),
                bytes: Some(file.len_bytes()),
            };
            // One run at a time: concurrent runs would disturb each other.
            rows.extend(
                setting
                    .cells
                    .run(slice::from_ref(&device), |device| row(cell, device.clone()))?,
            );
        }
    }
    drop(file);
    let bytes = extent.flash_bytes;
    let modelled = setting.cells.run(&cells, |cell| {
        let model = model.clone();
        row(cell, DeviceChoice::Modelled { model, bytes })
    })?;
    Ok(outcome(&cells, &real, &modelled))
}

/// Returns the probe for the parameters of a drive model.
fn what(extent: &Extent) -> Probe {
    Probe {
        write_bytes: vec![64 << 10, 256 << 10, 1 << 20, 8 << 20],
        duration: extent.probe,
        ..Probe::default()
    }
}

fn row(cell: &Cell, device: DeviceChoice) -> Result<CompareRow, ExperimentError> {
    let plan = Plan {
        device,
        ..cell.plan.clone()
    };
    Ok(run_plan(&plan, cell.preset, Box::new(|_| ()))?.row)
}

fn outcome(cells: &[Cell], real: &[Vec<CompareRow>], modelled: &[CompareRow]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut wrong = Vec::new();
    let size = PRESETS.len();
    let each = cells.chunks(size).zip(real.chunks(size));
    for ((cells, real), modelled) in each.zip(modelled.chunks(size)) {
        let rates = |row: &CompareRow| row.ops_per_s.unwrap_or(0.0);
        let measured: Vec<Spread> = real
            .iter()
            .map(|rounds| Spread::of(rounds.iter().map(rates).collect()))
            .collect();
        let foretold: Vec<f64> = modelled.iter().map(rates).collect();
        let judged = judge(&measured, &foretold);
        let rates_of = |at: usize| Rates {
            measured: measured[at],
            foretold: foretold[at],
            quotient: judged.quotients[at],
        };
        for (at, cell) in cells.iter().enumerate() {
            let line = line_of(cell, &real[at], &modelled[at], &rates_of(at), &rates_of(0));
            outcome.rows.push(line);
        }
        outcome.findings.extend(findings(cells[0].work, &judged));
        wrong.extend(complaints(cells[0].work, &judged));
    }
    outcome.wrong = (!wrong.is_empty()).then(|| wrong.join("; "));
    outcome
}

/// Rates of a preset, in operations a second.
struct Rates {
    measured: Spread,
    foretold: f64,
    /// Ratio to the rate of the first preset: the predicted ratio over the measured one.
    quotient: f64,
}

/// Returns the row of a preset. Its ratios are to `first`, the first preset.
fn line_of(
    cell: &Cell,
    rounds: &[CompareRow],
    modelled: &CompareRow,
    rates: &Rates,
    first: &Rates,
) -> Row {
    let median = |field: fn(&CompareRow) -> Option<f64>| {
        let values: Vec<f64> = rounds.iter().filter_map(field).collect();
        (!values.is_empty()).then(|| Spread::of(values).median)
    };
    Row::new()
        .with("workload", cell.work)
        .with("preset", cell.preset.name)
        .with("real_ops_per_s", rates.measured.median)
        .with("real_least_per_s", rates.measured.least)
        .with("real_most_per_s", rates.measured.most)
        .with("virtual_ops_per_s", rates.foretold)
        .with("real_ratio", rates.measured.median / first.measured.median)
        .with("virtual_ratio", rates.foretold / first.foretold)
        .with("quotient", rates.quotient)
        .with("real_hit_ratio", median(|row| row.hit_ratio))
        .with("virtual_hit_ratio", modelled.hit_ratio)
        .with("real_p50_us", median(|row| row.p50_us))
        .with("virtual_p50_us", modelled.p50_us)
        .with("real_p99_us", median(|row| row.p99_us))
        .with("virtual_p99_us", modelled.p99_us)
        .with("real_clwa", median(|row| row.clwa))
        .with("virtual_clwa", modelled.clwa)
        .with("real_cpu_us_per_op", median(|row| row.cpu_us_per_op))
}

fn findings(work: &str, judged: &Judged) -> [Finding; 3] {
    let distance = |quotient: &f64| quotient.ln().abs();
    let mut quotients = judged.quotients.iter().copied();
    let first = quotients.next();
    let worst = quotients.fold(first, |worst, next| {
        worst
            .into_iter()
            .chain([next])
            .max_by(|one, other| distance(one).total_cmp(&distance(other)))
    });
    [
        (
            "pairs of presets in another order",
            Some(judged.misordered.len() as f64),
        ),
        (
            "throughput over the first preset's, virtual over real, at worst",
            worst,
        ),
        ("the same of any two presets", Some(judged.worst)),
    ]
    .map(|(measure, here)| Finding::new(format!("{work}: {measure}"), None, here))
}

fn complaints(work: &str, judged: &Judged) -> Vec<String> {
    let mut complaints = Vec::new();
    for &(one, other) in &judged.misordered {
        let (one, other) = (PRESETS[one], PRESETS[other]);
        complaints.push(format!(
            "{work}: {one} is faster than {other} on the file and slower under virtual time"
        ));
    }
    if !judged.is_within(MOST_APART) {
        let others = judged.quotients.iter().skip(1);
        let quotients: Vec<String> = others.map(|quotient| format!("{quotient:.2}")).collect();
        complaints.push(format!(
            "{work}: throughput over that of {} under virtual time is {} times that on the file",
            PRESETS[0],
            quotients.join(" and ")
        ));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_fits_every_workload_at_every_scale() {
        for scale in [Scale::Tiny, Scale::Small, Scale::Paper] {
            let extent = extent(scale);
            for work in &WORKS {
                let plan = work.plan(&extent, scale, 1).unwrap();
                for name in PRESETS {
                    plan.check(systems::PRESETS.named(name).unwrap()).unwrap();
                }
            }
        }
    }

    #[test]
    fn what_differs_is_complained_of_by_name() {
        let spread = |rate| Spread::of(vec![rate]);
        let measured = [100.0, 200.0, 50.0, 10.0].map(spread);
        let judged = judge(&measured, &[100.0, 90.0, 60.0, 11.0]);
        let said = complaints("writes", &judged);
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("fatcache-async is faster than fatcache-sync"));
        assert!(
            said[1].contains("is 0.45 and 1.20 and 1.10 times"),
            "{}",
            said[1]
        );
        let judged = judge(&measured, &[10.0, 21.0, 5.0, 1.0]);
        assert!(complaints("writes", &judged).is_empty());
    }
}
