//! The simulation: one engine, many clients, crashes at random moments.
//!
//! A run is a few lives of one cache. In each life clients change and read a small set of keys, so that
//! segments fill, are reclaimed and checkpoints are written; some lives end with an orderly stop. At
//! random stores of the journal and accesses of the disk the state of both is kept, with the history up
//! to then: crash points. After the life every crash point is opened by an engine of its own, some of
//! them after that has died in its recovery, and every key is read. One of them is what the next life
//! begins with. One run in eight is on NAND with failing blocks, the others on a disk.
//!
//! In some runs the journal cannot be synced now and then, or the disk fails; pages of the journal rot, while the
//! cache runs or between a crash and the next start; reads are so slow that a recovery takes longer than the clients
//! need to go round the journal's ring; or many clients write to one partition. An index that is overwritten in place has in
//! every other run a device of its own: the power fails on both at once, and each loses what it had not synced.
//!
//! What is wrong: an answer that the history cannot explain; an item on flash, or after an orderly stop
//! anywhere, that is not found again; a CAS unique given twice; damaged items on a healthy device; a
//! start that finds nothing; clients that wait for ever.

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

use device::JournalImage;
use engine::EngineConfig;
use engine::placement::PlacementKind;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::EPOCH_UNIX_SECONDS;

use crate::history::History;
use media::Remains;
use plan::Plan;
use watch::{CrashPoint, Facts};

pub use report::Report;

/// One crash point in so many is opened by an engine that dies in its recovery first.
const CRASHES_PER_STUMBLE: u32 = 4;

/// What was found wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// In which life and at which crash point, and what was found.
    pub what: String,
}

/// Runs one seed.
///
/// # Errors
/// The first thing found wrong.
pub fn simulate(seed: u64) -> Result<Report, Failure> {
    run(seed, |_| ())
}

/// Runs one seed on a disk with the parts of a preset: how items are found and lie on flash, what memory is for, what deserves
/// flash, how segments are reclaimed and written. Its sizes are the seed's. What it should find again is checked where the
/// index tells.
///
/// # Errors
/// The first thing found wrong.
pub fn simulate_preset(seed: u64, preset: &EngineConfig) -> Result<Report, Failure> {
    run(seed, |plan| plan.with_preset(preset, seed))
}

/// Runs one seed with a placement that cannot locate displaced copies, on a disk and with segments reclaimed in order
/// of age. What it should find again is not checked, since nothing tells where its items lie; what it answers is.
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
    let mut left = CrashPoint {
        remains: Remains::new(&plan),
        journal: JournalImage::of(vec![0; plan.journal_words]),
        history: History::default(),
        facts: Facts {
            restart: EPOCH_UNIX_SECONDS,
            is_whole: true,
            label: "new".to_owned(),
            ..Facts::default()
        },
    };
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
