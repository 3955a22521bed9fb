//! [`PacedDisk`]: gives any disk the speed of a measured drive.
//!
//! The model (`docs/internals/devices.md`) has two parts. Bytes pass a link one command after the other, in order of arrival. The
//! rest of a command's time overlaps with that of other commands, and grows with their number. So the rate of reads at each depth
//! equals the measured rate, and a read behind a large write waits for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use runtime::{Instant, now};

use device::{AlignedBuf, Disk, IoFuture, SharedBuf};

/// Speed of a drive. A curve is a list of points in ascending order; times between points are interpolated, and times outside are
/// proportional to the first or last point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriveModel {
    /// Time of a read besides the link, by the number of commands in the drive, including the read.
    pub read: Vec<(u32, Duration)>,
    /// Time of a read on the link, by its bytes.
    pub read_link: Vec<(u32, Duration)>,
    /// Time of a write besides the link, alone in the drive.
    pub write: Duration,
    /// Time of a write on the link, by its bytes.
    pub write_link: Vec<(u32, Duration)>,
    /// Time of a sync.
    pub sync: Duration,
}

/// Returns the curve's time at `at`, in nanoseconds.
fn on_curve(curve: &[(u32, Duration)], at: f64) -> f64 {
    let points = || {
        curve
            .iter()
            .map(|(at, time)| (f64::from(*at), time.as_nanos() as f64))
    };
    let below = points().take_while(|point| point.0 <= at).last();
    let above = points().find(|point| point.0 > at);
    match (below, above) {
        (Some((from, low)), Some((to, high))) => low + (high - low) * (at - from) / (to - from),
        (Some((last, time)), None) => time * at / last,
        (None, Some((first, time))) => time * at / first,
        (None, None) => 0.0,
    }
}

impl DriveModel {
    /// Returns the time of a read besides the link, in nanoseconds, with `commands` in the drive.
    fn read_ns(&self, commands: u32) -> f64 {
        on_curve(&self.read, f64::from(commands))
    }

    /// Returns the time of a write besides the link, in nanoseconds. Other commands delay it as they delay a read.
    fn write_ns(&self, commands: u32) -> f64 {
        let held_up = self.read_ns(commands) - self.read_ns(1);
        self.write.as_nanos() as f64 + held_up.max(0.0)
    }
}

/// A disk that answers when the modelled drive would. The disk inside holds the contents and should take no time itself.
pub struct PacedDisk {
    inner: Arc<dyn Disk>,
    model: DriveModel,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commands: u32,
    /// Time at which the link will have passed all commands so far.
    link_free: Option<Instant>,
}

/// A command in the drive, which ends on drop.
struct Command<'a>(&'a PacedDisk);

impl Drop for Command<'_> {
    fn drop(&mut self) {
        self.0.state.lock().commands -= 1;
    }
}

impl PacedDisk {
    /// Creates a disk with the contents of `inner` and the speed of `model`.
    pub fn new(inner: Arc<dyn Disk>, model: DriveModel) -> Self {
        Self {
            inner,
            model,
            state: Mutex::default(),
        }
    }

    /// Waits until the drive has executed a command.
    async fn take(&self, link_ns: f64, beside_ns: impl FnOnce(u32) -> f64) {
        let (command, end) = {
            let mut state = self.state.lock();
            state.commands += 1;
            let command = Command(self);
            let begin = state.link_free.map_or_else(now, |free| free.max(now()));
            let passed = begin + Duration::from_nanos(link_ns as u64);
            state.link_free = Some(passed);
            let beside = beside_ns(state.commands);
            (command, passed + Duration::from_nanos(beside as u64))
        };
        let left = end.since(now());
        if !left.is_zero() {
            runtime::sleep(left).await;
        }
        drop(command);
    }
}

impl Disk for PacedDisk {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            let link = on_curve(&self.model.read_link, buf.len() as f64);
            self.take(link, |commands| self.model.read_ns(commands))
                .await;
            self.inner.read(offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let link = on_curve(&self.model.write_link, data.len() as f64);
            self.take(link, |commands| self.model.write_ns(commands))
                .await;
            self.inner.write(offset, data).await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.inner.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.take(0.0, |_| self.model.sync.as_nanos() as f64).await;
            self.inner.sync().await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{MemoryDisk, PAGE_BYTES};
    use runtime::sim::Sim;
    use runtime::spawn;

    const fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn paced() -> Arc<PacedDisk> {
        let model = DriveModel {
            read: vec![(1, micros(60)), (4, micros(90)), (8, micros(170))],
            read_link: vec![(4096, micros(10))],
            write: micros(50),
            write_link: vec![(4096, micros(2)), (2 << 20, micros(1000))],
            sync: micros(900),
        };
        Arc::new(PacedDisk::new(Arc::new(MemoryDisk::new(64 << 20)), model))
    }

    async fn read(disk: Arc<PacedDisk>) -> Duration {
        let begun = now();
        disk.read(0, AlignedBuf::new(PAGE_BYTES)).await.unwrap();
        now().since(begun)
    }

    fn zeros(bytes: usize) -> SharedBuf {
        AlignedBuf::new(bytes).into()
    }

    #[test]
    fn reads_take_longer_the_more_there_are() {
        let model = &paced().model;
        let at = |commands| model.read_ns(commands) / 1e3;
        assert_eq!(
            [1, 2, 4, 6, 8, 16].map(at),
            [60.0, 70.0, 90.0, 130.0, 170.0, 340.0]
        );
        assert_eq!(DriveModel::default().read_ns(3), 0.0);
    }

    #[test]
    fn a_read_behind_a_write_waits_for_its_bytes() {
        Sim::new(1).block_on(async {
            let disk = paced();
            assert_eq!(read(Arc::clone(&disk)).await, micros(70));
            let begun = now();
            let writer = {
                let disk = Arc::clone(&disk);
                spawn(async move { disk.write(0, zeros(2 << 20)).await })
            };
            runtime::sleep(micros(100)).await;
            // 1 ms on the link, less the 100 us that have passed, then as the second of two.
            assert_eq!(read(Arc::clone(&disk)).await, micros(980));
            writer.await.unwrap().unwrap();
            assert_eq!(now().since(begun), micros(1080));
            assert_eq!(on_curve(&disk.model.write_link, f64::from(4 << 20)), 2e6);
            let begun = now();
            disk.sync().await.unwrap();
            assert_eq!(now().since(begun), micros(900));
        });
    }

    #[test]
    fn who_goes_away_leaves_the_drive() {
        Sim::new(1).block_on(async {
            let disk = paced();
            let given_up = runtime::timeout(micros(10), read(Arc::clone(&disk))).await;
            assert!(given_up.is_err());
            assert_eq!(read(disk).await, micros(70));
        });
    }

    #[test]
    fn what_is_written_is_read() {
        Sim::new(1).block_on(async {
            let disk = paced();
            let mut data = AlignedBuf::new(PAGE_BYTES);
            data.fill(7);
            disk.write(8192, data.into()).await.unwrap();
            let back = disk.read(8192, AlignedBuf::new(PAGE_BYTES)).await.unwrap();
            assert!(back.iter().all(|&byte| byte == 7));
            disk.discard(8192, 4096).await.unwrap();
            assert!(
                disk.read(64 << 20, AlignedBuf::new(PAGE_BYTES))
                    .await
                    .is_err()
            );
        });
    }
}
