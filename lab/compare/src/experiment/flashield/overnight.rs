//! Flashield (NSDI 2019), no figure: a workload that changes overnight. From the middle of a run, all requests come from
//! another application, which the classifiers do not know.

use workload::Workload;

use super::systems::{Cell, Ground, USUAL_RATIO, WINDOWS};
use crate::compare::Curve;
use crate::experiment::pick::ran;
use crate::experiment::{ExperimentError, Outcome, Setting};
use crate::row::{PART, Row};

/// Applications before and after the change.
const APPLICATIONS: [&str; 2] = ["memcachier:app23", "memcachier:app20"];
/// Label in [`SYSTEMS`] of flashield that starts with the second application. The others are flashield with the change, and a
/// victim cache, which admits everything.
const ALONE: &str = "flashield, the second application alone";
const SYSTEMS: [(&str, &str); 3] = [
    ("flashield", "flashield"),
    ("flashield", ALONE),
    ("victim", "victim"),
];
/// Learning windows until the change.
const BEFORE: u32 = WINDOWS / 2;

pub(in crate::experiment) fn run_all(setting: &Setting<'_>) -> Result<Outcome, ExperimentError> {
    let ground = Ground::new(setting, APPLICATIONS[0], USUAL_RATIO)?;
    let end = ground.plan.warmup + ground.plan.requests.unwrap_or(0);
    let settings = ground.plan.workload.settings().clone();
    let second = Workload::parse(APPLICATIONS[1], settings)?;
    let cells = SYSTEMS.map(|(preset, called)| {
        let mut cell = ground.cell(preset, called.to_owned(), None);
        // All requests count.
        (cell.plan.warmup, cell.plan.requests) = (0, Some(end));
        if called == ALONE {
            cell.plan.workload = second.clone();
        } else {
            let from = end * u64::from(BEFORE) / u64::from(WINDOWS);
            cell.plan.changes = Some((from, second.clone()));
        }
        cell
    });
    let curves = setting
        .cells
        .run(&cells, |cell| hits_of_windows(cell, end))?;
    let mut rows = Vec::new();
    for (cell, hits) in cells.iter().zip(&curves) {
        for (window, hits) in hits.iter().enumerate() {
            let row = Row::new().with(PART, cell.label.as_str());
            rows.push(
                row.with("window", window as u64 + 1)
                    .with("hit_ratio", *hits),
            );
        }
    }
    Ok(Outcome::told(rows, TOLD))
}

const TOLD: &str = "
plot Work that changes overnight | window: window | hit_ratio: hit ratio | part
for part
 for window, $called = 8 | the last window before the change; 9 | window 1 after it; 10 | window 2 after it; \
   11 | window 3 after it; 12 | window 4 after it; 16 | window 8 after it
  {part}: hits in {called}, % | 100 * hit_ratio
";

/// Returns the hit ratio in each window.
fn hits_of_windows(cell: &Cell, end: u64) -> Result<Vec<f64>, ExperimentError> {
    let ran = ran(&cell.plan, cell.preset)?;
    let window = |number: u32| end * u64::from(number) / u64::from(WINDOWS);
    let counted: Vec<(u64, u64)> = (0..=WINDOWS)
        .map(|number| at(&ran.curve, window(number)))
        .collect();
    let between = |pair: &[(u64, u64)]| {
        let (gets, hits) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        hits as f64 / gets.max(1) as f64
    };
    Ok(counted.windows(2).map(between).collect())
}

/// Returns the gets and hits up to the sample nearest to a request.
fn at(curve: &Curve, request: u64) -> (u64, u64) {
    let samples = curve.samples.iter();
    let nearest = samples.min_by_key(|sample| sample.requests.abs_diff(request));
    nearest.map_or((0, 0), |sample| (sample.gets, sample.hits))
}
