//! The model of a drive from what the drive did when it was probed.
//!
//! Fitted are the random reads at each depth, one size of large reads, the writes of each size, and the
//! sync. Reads beside a writer the model has to foretell.

use std::sync::Arc;
use std::time::Duration;

use device::measure::{Pace, Probe, Profile, probe};
use device::{DeviceError, Disk, DriveModel, MemoryDisk, PAGE_BYTES, PacedDisk};
use runtime::sim::Sim;

/// The model that does what the drive did. What a probe left out takes no time.
#[must_use]
pub fn drive_model(profile: &Profile) -> DriveModel {
    let read = profile
        .reads
        .iter()
        .map(|(depth, pace)| (*depth, pace.mean_us));
    let read = ascending(read);
    let writes = profile
        .writes
        .iter()
        .map(|(bytes, pace)| (*bytes as u32, pace.mean_us));
    let writes = ascending(writes);
    let large = profile.large_reads.last();
    let large = large.map(|(bytes, pace)| (*bytes as u32, pace.mean_us));
    let page = read.first().map(|(_, us)| (PAGE_BYTES as u32, *us));
    let read_link_us_per_byte = page
        .zip(large)
        .map_or(0.0, |(page, large)| slope(page, large));
    // What a write without bytes would take.
    let besides = match writes.as_slice() {
        [small, next, ..] => small.1 - f64::from(small.0) * slope(*small, *next),
        [only] => only.1,
        [] => 0.0,
    };
    let besides = besides.max(0.0);
    let page_link = writes.first().map_or(0.0, |(bytes, us)| {
        (us - besides) * PAGE_BYTES as f64 / f64::from(*bytes)
    });
    let write_link = writes
        .iter()
        .map(|(bytes, us)| (*bytes, micros(us - besides)));
    DriveModel {
        read: read
            .iter()
            .map(|(depth, us)| (*depth, micros(*us)))
            .collect(),
        read_link_ns_per_byte: read_link_us_per_byte * 1e3,
        write: micros(besides),
        // The write before a sync is of a page.
        sync: micros(profile.syncs.mean_us - besides - page_link),
        write_link: write_link.collect(),
    }
}

fn ascending(points: impl Iterator<Item = (u32, f64)>) -> Vec<(u32, f64)> {
    let mut points: Vec<(u32, f64)> = points.collect();
    points.sort_by_key(|point| point.0);
    points
}

/// Microseconds more for each one more.
fn slope(small: (u32, f64), large: (u32, f64)) -> f64 {
    match large.0.saturating_sub(small.0) {
        0 => 0.0,
        more => ((large.1 - small.1) / f64::from(more)).max(0.0),
    }
}

/// Never less than nothing, which noise may make of a difference.
fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).max(0.0) as u64)
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
