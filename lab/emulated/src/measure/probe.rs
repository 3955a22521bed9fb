//! Speed of a disk: the same probe for a real disk under the live runtime and for a model under virtual time.
//!
//! Everything runs on the calling thread. Each concurrent access has a task, which begins its next access when the last has
//! ended.

use std::sync::Arc;
use std::time::Duration;

use runtime::{Instant, now, spawn};

use device::{AlignedBuf, DeviceError, Disk, PAGE_BYTES, SharedBuf};

/// Accesses to measure, and the duration of each measurement.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Depths of random page reads, measured one after the other.
    pub read_depths: Vec<u32>,
    /// Sizes in bytes of reads at depth 1.
    pub read_bytes: Vec<usize>,
    /// Sizes in bytes of writes at depth 1.
    pub write_bytes: Vec<usize>,
    /// Random page reads beside one writer: depth of the reads, and bytes of a write.
    pub mixed: Vec<(u32, usize)>,
    /// Duration of each measurement.
    pub duration: Duration,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            read_depths: vec![1, 2, 4, 8, 16, 32],
            read_bytes: vec![256 << 10],
            write_bytes: vec![256 << 10, 8 << 20],
            mixed: vec![(1, 8 << 20), (8, 8 << 20), (32, 8 << 20)],
            duration: Duration::from_secs(2),
        }
    }
}

impl Probe {
    /// Creates a probe that measures only the sync.
    pub fn nothing() -> Self {
        Self {
            read_depths: Vec::new(),
            read_bytes: Vec::new(),
            write_bytes: Vec::new(),
            mixed: Vec::new(),
            ..Self::default()
        }
    }
}

/// Speed of accesses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Number of accesses.
    pub count: u64,
    /// Accesses a second.
    pub per_s: f64,
    /// Mean latency of an access.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one access in a hundred exceeds.
    pub p99_us: f64,
}

/// Measured speed of a disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Random page reads, by depth.
    pub reads: Vec<(u32, Pace)>,
    /// Random reads at depth 1, by size in bytes.
    pub large_reads: Vec<(usize, Pace)>,
    /// Writes at depth 1, by size in bytes.
    pub writes: Vec<(usize, Pace)>,
    /// Reads beside a writer.
    pub mixed: Vec<Mixed>,
    /// A write of a page followed by a sync, timed together.
    pub syncs: Pace,
}

/// Speed of reads and of a writer side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixed {
    /// Depth of the reads.
    pub depth: u32,
    /// Bytes of a write.
    pub write_bytes: usize,
    /// Speed of the reads.
    pub reads: Pace,
    /// Speed of the writes.
    pub writes: Pace,
}

/// Bytes of one write when a disk is filled.
const FILL_BYTES: usize = 8 << 20;

/// Writes the whole disk and reads it through, so that no measured access is the first to its bytes: a drive answers a read of
/// unwritten bytes at once, and a virtual drive answers a first read slowly.
pub async fn prepare(disk: &Arc<dyn Disk>) -> Result<(), DeviceError> {
    let mut data = AlignedBuf::new(FILL_BYTES);
    scramble(&mut data);
    let data = SharedBuf::from(data);
    for offset in whole(disk, FILL_BYTES) {
        disk.write(offset, data.clone()).await?;
    }
    disk.sync().await?;
    let mut buf = AlignedBuf::new(FILL_BYTES);
    for offset in whole(disk, FILL_BYTES) {
        buf = disk.read(offset, buf).await?;
    }
    Ok(())
}

fn whole(disk: &Arc<dyn Disk>, len: usize) -> impl Iterator<Item = u64> + Clone + use<> {
    (0..disk.len_bytes() / len as u64).map(move |at| at * len as u64)
}

/// Fills `data` with bytes that no drive can compress.
fn scramble(data: &mut [u8]) {
    for part in data.chunks_exact_mut(size_of::<u64>()) {
        part.copy_from_slice(&runtime::random_u64().to_le_bytes());
    }
}

/// Measures a disk. The writes overwrite its contents.
///
/// # Errors
/// The disk's; for example, it may be smaller than one write.
pub async fn probe(disk: &Arc<dyn Disk>, what: &Probe) -> Result<Profile, DeviceError> {
    let mut profile = Profile::default();
    for &depth in &what.read_depths {
        let run = Run::begin(disk, what.duration);
        let readers = run.readers(depth, PAGE_BYTES);
        profile.reads.push((depth, pace(readers, run.begun).await?));
    }
    for &bytes in &what.read_bytes {
        let run = Run::begin(disk, what.duration);
        let readers = run.readers(1, bytes);
        profile
            .large_reads
            .push((bytes, pace(readers, run.begun).await?));
    }
    for &bytes in &what.write_bytes {
        let run = Run::begin(disk, what.duration);
        let writer = vec![run.writer(bytes, false)];
        profile.writes.push((bytes, pace(writer, run.begun).await?));
    }
    for &(depth, write_bytes) in &what.mixed {
        let run = Run::begin(disk, what.duration);
        let (writer, readers) = (
            vec![run.writer(write_bytes, false)],
            run.readers(depth, PAGE_BYTES),
        );
        profile.mixed.push(Mixed {
            depth,
            write_bytes,
            reads: pace(readers, run.begun).await?,
            writes: pace(writer, run.begun).await?,
        });
    }
    let run = Run::begin(disk, what.duration);
    let writer = vec![run.writer(PAGE_BYTES, true)];
    profile.syncs = pace(writer, run.begun).await?;
    Ok(profile)
}

/// Task that returns its latencies and the end of its last access.
type Task = runtime::JoinHandle<Result<(Vec<Duration>, Instant), DeviceError>>;

/// One measurement in progress.
struct Run {
    disk: Arc<dyn Disk>,
    begun: Instant,
    duration: Duration,
}

impl Run {
    fn begin(disk: &Arc<dyn Disk>, duration: Duration) -> Self {
        Self {
            disk: Arc::clone(disk),
            begun: now(),
            duration,
        }
    }

    fn readers(&self, depth: u32, bytes: usize) -> Vec<Task> {
        (0..depth).map(|_| self.reader(bytes)).collect()
    }

    fn reader(&self, bytes: usize) -> Task {
        let (disk, begun, duration) = (Arc::clone(&self.disk), self.begun, self.duration);
        spawn(async move {
            let places = disk.len_bytes() / bytes as u64;
            let mut buf = AlignedBuf::new(bytes);
            let mut latencies = Vec::new();
            let mut last = now();
            // At least one access: on a busy machine a task may wait longer than the duration.
            while latencies.is_empty() || last.since(begun) < duration {
                let place = runtime::random_u64() % places;
                buf = disk.read(place * bytes as u64, buf).await?;
                let end = now();
                latencies.push(end.since(last));
                last = end;
            }
            Ok((latencies, last))
        })
    }

    /// Starts a task that writes and, if it `syncs`, makes each write durable.
    fn writer(&self, bytes: usize, syncs: bool) -> Task {
        let (disk, begun, duration) = (Arc::clone(&self.disk), self.begun, self.duration);
        spawn(async move {
            let mut data = AlignedBuf::new(bytes);
            scramble(&mut data);
            let data = SharedBuf::from(data);
            let mut latencies = Vec::new();
            let mut last = now();
            for offset in whole(&disk, bytes).cycle() {
                if !latencies.is_empty() && last.since(begun) >= duration {
                    break;
                }
                disk.write(offset, data.clone()).await?;
                if syncs {
                    disk.sync().await?;
                }
                let end = now();
                latencies.push(end.since(last));
                last = end;
            }
            Ok((latencies, last))
        })
    }
}

async fn pace(tasks: Vec<Task>, begun: Instant) -> Result<Pace, DeviceError> {
    let (mut latencies, mut end) = (Vec::new(), begun);
    for task in tasks {
        let (some, last) = task.await.expect("tasks end with their runtime")?;
        latencies.extend(some);
        end = end.max(last);
    }
    latencies.sort_unstable();
    let micros = |latency: Duration| latency.as_secs_f64() * 1e6;
    let at = |share: f64| {
        let rank = (latencies.len() as f64 * share) as usize;
        latencies.get(rank).copied().map_or(0.0, micros)
    };
    let sum: Duration = latencies.iter().sum();
    let count = latencies.len() as u64;
    Ok(Pace {
        count,
        per_s: count as f64 / end.since(begun).as_secs_f64(),
        mean_us: micros(sum) / count.max(1) as f64,
        p50_us: at(0.5),
        p99_us: at(0.99),
    })
}
