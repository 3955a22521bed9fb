//! The model of a drive from what the drive did when it was probed.
//!
//! Fitted are the random reads at each depth, one size of large reads, the smallest and the largest
//! writes, and the sync. Everything else that a probe measures, reads beside a writer above all, the model has to
//! foretell.

use std::sync::Arc;
use std::time::Duration;

use device::measure::{Pace, Probe, Profile, probe};
use device::{DeviceError, Disk, DriveModel, MemoryDisk, PAGE_BYTES, PacedDisk};
use runtime::sim::Sim;

/// The model that does what the drive did. A probe that left something out leaves it at zero.
#[must_use]
pub fn drive_model(profile: &Profile) -> DriveModel {
    let read = profile
        .reads
        .iter()
        .map(|(depth, pace)| (*depth, mean(pace)));
    let mut read: Vec<(u32, Duration)> = read.collect();
    read.sort_by_key(|point| point.0);
    let page_ns = read.first().map_or(0.0, |point| nanos(point.1));
    let page = (PAGE_BYTES, page_ns);
    let large = profile.large_reads.iter().map(by_bytes).next_back();
    let read_ns_per_byte = large.map_or(0.0, |large| per_byte(page, large));
    let write = profile.writes.iter().map(by_bytes);
    let (small, large) = (
        write.clone().min_by_key(|point| point.0),
        write.max_by_key(|point| point.0),
    );
    let (small, large) = (small.unwrap_or_default(), large.unwrap_or_default());
    let write_ns_per_byte = per_byte(small, large);
    let besides = |(bytes, took_ns): (usize, f64)| {
        let besides = took_ns - bytes as f64 * write_ns_per_byte;
        Duration::from_nanos(besides.max(0.0) as u64)
    };
    let write = besides(small);
    let write_and_sync = besides((PAGE_BYTES, profile.syncs.mean_us * 1e3));
    DriveModel {
        read,
        write,
        sync: write_and_sync.saturating_sub(write),
        read_ns_per_byte,
        write_ns_per_byte,
    }
}

fn mean(pace: &Pace) -> Duration {
    Duration::from_nanos((pace.mean_us * 1e3) as u64)
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Bytes, and the nanoseconds that they took.
fn by_bytes((bytes, pace): &(usize, Pace)) -> (usize, f64) {
    (*bytes, pace.mean_us * 1e3)
}

fn per_byte(small: (usize, f64), large: (usize, f64)) -> f64 {
    let more = large.0.saturating_sub(small.0);
    if more == 0 {
        return 0.0;
    }
    ((large.1 - small.1) / more as f64).max(0.0)
}

/// Bytes of a disk that is only there to be waited for.
const MODEL_BYTES: u64 = 64 << 20;

/// What the model does when it is probed, under virtual time.
///
/// # Errors
/// When the probe asks for accesses larger than 64 MiB.
pub fn probe_model(model: &DriveModel, what: &Probe, seed: u64) -> Result<Profile, DeviceError> {
    let contents = Arc::new(MemoryDisk::new(MODEL_BYTES));
    let disk: Arc<dyn Disk> = Arc::new(PacedDisk::new(contents, model.clone()));
    Sim::new(seed).block_on(probe(&disk, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(mean_us: f64) -> Pace {
        Pace {
            count: 1,
            per_s: 1e6 / mean_us,
            mean_us,
            p50_us: mean_us,
            p99_us: mean_us,
        }
    }

    /// As a virtual disk was once measured.
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
            reads: reads.map(|(depth, us)| (depth, pace(us))).into(),
            large_reads: vec![(256 << 10, pace(120.0))],
            writes: vec![(256 << 10, pace(130.0)), (8 << 20, pace(3_100.0))],
            syncs: pace(700.0),
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
        // A reader finds a large write in front of it each time.
        let mixed = again.mixed.iter().find(|mixed| mixed.depth == 1).unwrap();
        near(mixed.reads.per_s, mixed.writes.per_s);
        assert_eq!(probe_model(&model, &what, 1).unwrap(), again);
    }

    #[test]
    fn nothing_measured_takes_no_time() {
        assert_eq!(drive_model(&Profile::default()), DriveModel::default());
    }
}
