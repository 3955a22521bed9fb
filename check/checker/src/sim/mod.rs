//! The simulation: one engine, many clients, crashes at random moments.
//!
//! A run is a few lives of one cache. In each life clients change and read a small set of keys, so that
//! segments fill and are reclaimed, and checkpoints are written. Some lives end with an orderly stop. Crash
//! points are taken at random stores of the journal and accesses of the disk: each keeps the state of journal
//! and disk and the history up to then. After the life a separate engine opens every crash point and reads
//! every key; for some crash points an engine dies in its recovery first. The next life begins with one of
//! the crash points. One run in eight is on NAND with failing blocks, the others are on a disk.
//!
//! Some runs add faults:
//!
//! - The journal cannot be synced for short times, or the disk fails.
//! - Pages of the journal rot, while the cache runs or between a crash and the next start.
//! - Reads are so slow that clients go round the journal's ring before a recovery ends.
//! - Many clients write to one partition.
//! - An index that is overwritten in place has a device of its own in every other run: a power cut hits both
//!   devices at once, and each loses the writes that it had not synced.
//!
//! A run fails on:
//!
//! - an answer that the history cannot explain;
//! - an item on flash, or after an orderly stop also in memory, that is not found again;
//! - a CAS unique given twice;
//! - damaged items on a healthy device;
//! - a start that finds nothing;
//! - clients that wait for ever.

mod client;
mod life;
mod media;
mod plan;
mod report;
#[cfg(test)]
mod tests;
mod verify;
mod watch;
mod watched;

use std::sync::Arc;

use engine::EngineConfig;
use engine::placement::PlacementKind;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use plan::Plan;
use watch::CrashPoint;

pub use report::Report;

/// One crash point in this many is first opened by an engine that dies in its recovery.
const CRASHES_PER_STUMBLE: u32 = 4;

/// The first error of a run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// Life, crash point and error.
    pub what: String,
}

/// Runs one seed.
///
/// # Errors
/// The first thing found wrong.
pub fn simulate(seed: u64) -> Result<Report, Failure> {
    run(seed, |_| ())
}

/// Runs one seed on a disk with the parts of a preset: placement, DRAM tier, admission, reclaim and writing.
/// The seed decides the sizes. Items that must be found again are checked where the index can name them.
///
/// # Errors
/// The first thing found wrong.
pub fn simulate_preset(seed: u64, preset: &EngineConfig) -> Result<Report, Failure> {
    run(seed, |plan| plan.with_preset(preset, seed))
}

/// Runs one seed with a placement that cannot locate displaced copies, on a disk whose segments are reclaimed
/// in order of age. Its answers are checked. Whether it finds every item again is not: nothing tells where
/// its items lie.
///
/// # Errors
/// The first thing found wrong.
pub fn simulate_placement(seed: u64, placement: Arc<dyn PlacementKind>) -> Result<Report, Failure> {
    run(seed, |plan| plan.with_placement(placement, seed))
}

fn run(seed: u64, change: impl FnOnce(&mut Plan)) -> Result<Report, Failure> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut plan = Plan::new(&mut random, seed);
    change(&mut plan);
    let mut report = Report::default();
    let failure = |what: String| Failure {
        seed,
        what: format!(
            "{:?}{}{}, {what}",
            plan.kind,
            plan.nand.as_ref().map_or("", |_| " on NAND"),
            plan.faults(),
        ),
    };
    let mut left = CrashPoint::new(&plan);
    for life in 0..plan.lives {
        let points = life::live(&mut random, &plan, left, &mut report)
            .map_err(|wrong| failure(format!("life {life}: {wrong}")))?;
        let next = random.random_range(0..points.len());
        let mut kept = None;
        for (number, point) in points.into_iter().enumerate() {
            look_at(&mut random, &plan, &point, &mut report)
                .map_err(|wrong| failure(format!("life {life}, {}: {wrong}", point.facts.label)))?;
            if number == next {
                kept = Some(point);
            }
        }
        left = kept.expect("there is at least one");
    }
    Ok(report)
}

fn look_at(
    random: &mut SmallRng,
    plan: &Plan,
    point: &CrashPoint,
    report: &mut Report,
) -> Result<(), String> {
    if random.random_ratio(1, CRASHES_PER_STUMBLE) {
        let again = verify::stumble(random.random(), plan, point)?;
        report.stumbles += 1;
        verify::verify(random.random(), plan, &again, report)
            .map_err(|wrong| format!("{}: {wrong}", again.facts.label))?;
    }
    verify::verify(random.random(), plan, point, report)
}
