//! Fits the model of a drive to a probe of the drive.
//!
//! Fitted are the random reads at each depth, one size of large reads, the writes of each size, and the sync. Reads beside a
//! writer are not fitted: the model predicts them.

use std::sync::Arc;
use std::time::Duration;

use device::{DeviceError, Disk, MemoryDisk, PAGE_BYTES};
use emulated::measure::{Probe, Profile, probe};
use emulated::{DriveModel, PacedDisk};
use runtime::sim::Sim;

/// Returns the model that reproduces `profile`. Accesses missing from the profile take no time.
pub fn drive_model(profile: &Profile) -> DriveModel {
    with_reads(profile, writes(profile))
}

fn writes(profile: &Profile) -> DriveModel {
    let writes = profile.writes.iter();
    let writes = ascending(writes.map(|(bytes, pace)| (*bytes as u32, pace.mean_us)));
    // Microseconds of a write of zero bytes, extrapolated.
    let beside = match writes.as_slice() {
        [small, next, ..] => small.1 - f64::from(small.0) * slope(*small, *next),
        [only] => only.1,
        [] => 0.0,
    };
    let beside = beside.max(0.0);
    let link = |(bytes, us): &(u32, f64)| (*bytes, micros(us - beside));
    let page_link = writes.first().map_or(0.0, |(bytes, us)| {
        (us - beside) * PAGE_BYTES as f64 / f64::from(*bytes)
    });
    DriveModel {
        write: micros(beside),
        write_link: writes.iter().map(link).collect(),
        // The write before a sync is one page.
        sync: micros(profile.syncs.mean_us - beside - page_link),
        ..DriveModel::default()
    }
}

/// Share of the highest read rate that is attributed to the link. The fit attributes the rest to the time beside the link.
const LINK_SHARE: f64 = 0.9;
/// Rounds that correct the read times beside the link.
const ROUNDS: u32 = 8;

/// Adds the reads. How long reads wait for each other on the link shows only in a probe of the model, so each round corrects
/// the times beside the link by the difference between the drive and the model.
fn with_reads(profile: &Profile, mut model: DriveModel) -> DriveModel {
    let reads = profile.reads.iter();
    let reads = ascending(reads.map(|(depth, pace)| (*depth, pace.mean_us)));
    let highest = profile.reads.iter().map(|(_, pace)| pace.per_s);
    let Some(highest) = highest.max_by(f64::total_cmp) else {
        return model;
    };
    let page_us = LINK_SHARE * 1e6 / highest;
    model.read_link = vec![(PAGE_BYTES as u32, micros(page_us))];
    if let (Some((bytes, pace)), Some((_, alone_us))) = (profile.large_reads.last(), reads.first())
    {
        let link = micros(page_us + pace.mean_us - alone_us);
        model.read_link.push((*bytes as u32, link));
    }
    let what = Probe {
        read_depths: reads.iter().map(|read| read.0).collect(),
        duration: Duration::from_millis(50),
        ..Probe::nothing()
    };
    let mut beside: Vec<f64> = reads.iter().map(|(_, us)| us - page_us).collect();
    for _ in 0..ROUNDS {
        let curve = reads.iter().zip(&beside);
        model.read = curve.map(|(read, us)| (read.0, micros(*us))).collect();
        let seen = probe_model(&model, &what, 1).expect("a disk in memory does not fail");
        for ((us, (_, asked)), (_, pace)) in beside.iter_mut().zip(&reads).zip(&seen.reads) {
            *us = (*us + asked - pace.mean_us).max(0.0);
        }
    }
    model
}

fn ascending(points: impl Iterator<Item = (u32, f64)>) -> Vec<(u32, f64)> {
    let mut points: Vec<(u32, f64)> = points.collect();
    points.sort_by_key(|point| point.0);
    points
}

/// Returns the microseconds that each further unit adds, at least 0.
fn slope(small: (u32, f64), large: (u32, f64)) -> f64 {
    match large.0.saturating_sub(small.0) {
        0 => 0.0,
        more => ((large.1 - small.1) / f64::from(more)).max(0.0),
    }
}

/// Converts microseconds to a duration. Measurement noise can make a difference negative: it becomes zero.
fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).max(0.0) as u64)
}

/// Bytes of the disk in memory under the model.
const MODEL_BYTES: u64 = 64 << 20;

/// Probes the model under virtual time.
///
/// # Errors
/// If the probe asks for accesses larger than 64 MiB.
pub fn probe_model(model: &DriveModel, what: &Probe, seed: u64) -> Result<Profile, DeviceError> {
    let contents = Arc::new(MemoryDisk::new(MODEL_BYTES));
    let disk: Arc<dyn Disk> = Arc::new(PacedDisk::new(contents, model.clone()));
    Sim::new(seed).block_on(probe(&disk, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulated::measure::Pace;

    fn pace(depth: u32, mean_us: f64) -> Pace {
        Pace {
            count: 1,
            per_s: f64::from(depth) * 1e6 / mean_us,
            mean_us,
            p50_us: mean_us,
            p99_us: mean_us,
        }
    }

    /// Profile of a virtual disk, as once measured.
    fn measured() -> Profile {
        let reads = [
            (1, 70.0),
            (2, 80.0),
            (4, 110.0),
            (8, 180.0),
            (16, 320.0),
            (32, 600.0),
        ];
        Profile {
            reads: reads.map(|(depth, us)| (depth, pace(depth, us))).into(),
            large_reads: vec![(256 << 10, pace(1, 120.0))],
            writes: vec![(256 << 10, pace(1, 130.0)), (8 << 20, pace(1, 3_100.0))],
            syncs: pace(1, 700.0),
            ..Profile::default()
        }
    }

    #[test]
    fn the_model_does_what_was_measured() {
        let what = Probe {
            duration: Duration::from_millis(200),
            ..Probe::default()
        };
        let model = drive_model(&measured());
        let again = probe_model(&model, &what, 1).unwrap();
        let near =
            |one: f64, other: f64| assert!((one / other - 1.0).abs() < 0.02, "{one} {other}");
        for ((_, seen), (depth, asked)) in again.reads.iter().zip(&measured().reads) {
            near(seen.mean_us, asked.mean_us);
            near(seen.per_s, f64::from(*depth) * 1e6 / asked.mean_us);
        }
        near(again.large_reads[0].1.mean_us, 120.0);
        near(again.writes[0].1.mean_us, 130.0);
        near(again.writes[1].1.mean_us, 3_100.0);
        near(again.syncs.mean_us, 700.0);
        // Each read of the one reader waits for a large write.
        let mixed = again.mixed.iter().find(|mixed| mixed.depth == 1).unwrap();
        near(mixed.reads.per_s, mixed.writes.per_s);
        assert_eq!(probe_model(&model, &what, 1).unwrap(), again);
    }

    #[test]
    fn nothing_measured_takes_no_time() {
        assert_eq!(drive_model(&Profile::default()), DriveModel::default());
    }
}
