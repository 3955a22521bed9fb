//! [`WriteLimit`]: bounds the write rate of a drive to the rate that its lifetime allows.
//!
//! Bytes pass one after the other, in order of arrival, at the rate of the limit. Idle time earns no credit. A command larger
//! than a tenth of a second's bytes is cut into pieces of that size, so that over any ten seconds at most a hundredth beyond the
//! limit begins.

use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use runtime::{Instant, now};

use crate::{
    AlignedBuf, BlockHealth, BlockId, Disk, Flash, Geometry, IoFuture, SharedBuf, parse_bytes,
};

/// Pieces of a command that pass in a second.
const PIECES_A_SECOND: u64 = 10;
/// Time after the last wait for which the limit still counts as holding writes back.
const HOLDS_BACK: Duration = Duration::from_millis(500);
const NANOS_A_SECOND: u128 = 1_000_000_000;

/// Seconds in each unit of a lifetime.
const LIFETIMES: [(&str, f64); 3] = [
    ("d", 86_400.0),
    ("w", 7.0 * 86_400.0),
    ("y", 365.25 * 86_400.0),
];

/// A rate in bytes a second: `20MiB`, `20MiB/s`, or a drive's rated writes over its intended lifetime in days, weeks or years:
/// `600TB/5y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRate(pub NonZeroU64);

/// Error of a text that is no [`WriteRate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRateError {
    /// The text has no known form.
    #[error(
        "'{0}' is no rate of writes: write 20MiB for as much a second, or 600TB/5y for a drive's rated writes and its lifetime"
    )]
    Unreadable(String),
    /// The rate is lower than a cache needs.
    #[error(
        "'{0}' is less than 64KiB a second, which a cache needs to start, to stop and to keep its index: name more, or leave the \
         limit out"
    )]
    TooLow(String),
}

impl WriteRate {
    /// Lowest rate, in bytes a second.
    pub const LEAST: u64 = 64 << 10;
}

impl FromStr for WriteRate {
    type Err = WriteRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unreadable = || WriteRateError::Unreadable(text.to_owned());
        let (bytes, time) = text.split_once('/').unwrap_or((text, "s"));
        let bytes = parse_bytes(bytes.trim()).ok_or_else(unreadable)?;
        let seconds = if time.trim() == "s" {
            1.0
        } else {
            let count = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = LIFETIMES
                .iter()
                .find(|(name, _)| *name == &time[count.len()..]);
            let count: f64 = count.trim().parse().map_err(|_| unreadable())?;
            count * unit.ok_or_else(unreadable)?.1
        };
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(unreadable());
        }
        let rate = NonZeroU64::new((bytes as f64 / seconds) as u64);
        rate.filter(|rate| rate.get() >= Self::LEAST)
            .map(Self)
            .ok_or_else(|| WriteRateError::TooLow(text.to_owned()))
    }
}

/// Bound on a drive's write rate. Writes through all of its [`LimitedDisk`]s and [`LimitedFlash`]es count together.
pub struct WriteLimit {
    bytes_per_s: NonZeroU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Time at which all bytes so far will have passed.
    free: Option<Instant>,
    /// Number of writes waiting for their turn.
    waiting: u32,
    /// Time at which a wait last ended.
    waited: Option<Instant>,
    counts: LimitCounts,
}

impl State {
    /// Takes the next `time` of the drive. Returns its begin.
    fn take(&mut self, time: Duration) -> Instant {
        let begin = self.free.map_or_else(now, |free| free.max(now()));
        self.free = Some(begin + time);
        begin
    }
}

/// Counters of delayed writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// Pieces of writes that had to wait.
    pub waits: u64,
    /// Sum of their waiting times.
    pub waited: Duration,
    /// Bytes written past the limit and charged to it.
    pub charged: u64,
}

/// A waiting piece; the wait ends on drop.
struct Waiting<'a>(&'a WriteLimit);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiting -= 1;
        state.waited = Some(now());
    }
}

impl WriteLimit {
    /// Creates a limit of `bytes_per_s`.
    pub fn new(bytes_per_s: NonZeroU64) -> Self {
        Self {
            bytes_per_s,
            state: Mutex::default(),
        }
    }

    /// Returns the limit in bytes a second.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s.get()
    }

    /// Returns whether writes wait for the limit, or have waited a moment ago. A caller without space to write to then need not
    /// wait for the drive.
    pub fn holds_back(&self) -> bool {
        let state = self.state.lock();
        let is_recent = |waited| now().since(waited) < HOLDS_BACK;
        state.waiting > 0 || state.waited.is_some_and(is_recent)
    }

    /// Returns the counters of delayed writes.
    pub fn counts(&self) -> LimitCounts {
        self.state.lock().counts
    }

    /// Returns the bytes of a piece, in whole units of the device.
    fn piece(&self, unit: usize) -> usize {
        let bytes = usize::try_from(self.bytes_per_s() / PIECES_A_SECOND).unwrap_or(usize::MAX);
        (bytes / unit).max(1) * unit
    }

    /// Returns the time that `bytes` take to pass.
    fn time_of(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * NANOS_A_SECOND / u128::from(self.bytes_per_s());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Counts bytes that are written without waiting: later writes wait for them. Returns the time that they take to
    /// pass.
    pub(crate) fn charge(&self, bytes: u64) -> Duration {
        let time = self.time_of(bytes);
        let mut state = self.state.lock();
        state.counts.charged += bytes;
        state.take(time);
        time
    }

    /// Waits until `bytes` may be written.
    async fn pass(&self, bytes: usize) {
        let (left, waiting) = {
            let mut state = self.state.lock();
            let begin = state.take(self.time_of(bytes as u64));
            let left = begin.since(now());
            if left.is_zero() {
                return;
            }
            state.waiting += 1;
            state.counts.waits += 1;
            state.counts.waited += left;
            (left, Waiting(self))
        };
        runtime::sleep(left).await;
        drop(waiting);
    }

    /// Writes `data` in pieces of whole units.
    async fn write(
        &self,
        data: SharedBuf,
        unit: usize,
        mut write: impl AsyncFnMut(usize, SharedBuf) -> Result<(), crate::DeviceError>,
    ) -> Result<(), crate::DeviceError> {
        let (piece, len) = (self.piece(unit), data.len());
        let mut start = 0;
        while start < len {
            let end = (start + piece).min(len);
            self.pass(end - start).await;
            write(start, data.part(start..end)).await?;
            start = end;
        }
        Ok(())
    }
}

/// A disk with limited writes.
pub struct LimitedDisk {
    inner: Arc<dyn Disk>,
    limit: Arc<WriteLimit>,
}

impl LimitedDisk {
    /// Limits the writes to `inner` by `limit`.
    pub fn new(inner: Arc<dyn Disk>, limit: Arc<WriteLimit>) -> Self {
        Self { inner, limit }
    }
}

impl Disk for LimitedDisk {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        let write = async move |start, data| self.inner.write(offset + start as u64, data).await;
        Box::pin(self.limit.write(data, crate::PAGE_BYTES, write))
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.inner.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.inner.sync()
    }
}

/// Flash with limited writes.
pub struct LimitedFlash {
    inner: Arc<dyn Flash>,
    limit: Arc<WriteLimit>,
}

impl LimitedFlash {
    /// Limits the writes to `inner` by `limit`.
    pub fn new(inner: Arc<dyn Flash>, limit: Arc<WriteLimit>) -> Self {
        Self { inner, limit }
    }

    fn page_bytes(&self) -> usize {
        self.inner.geometry().page_bytes as usize
    }
}

impl Flash for LimitedFlash {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.inner.read(block, offset, buf)
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        let page = self.page_bytes();
        let write = async move |start, data| {
            let first_page = first_page + (start / page) as u32;
            self.inner.program(block, first_page, data).await
        };
        Box::pin(self.limit.write(data, page, write))
    }

    fn can_overwrite(&self) -> bool {
        self.inner.can_overwrite()
    }

    fn overwrite(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        let page = self.page_bytes();
        let write = async move |start, data| {
            let first_page = first_page + (start / page) as u32;
            self.inner.overwrite(block, first_page, data).await
        };
        Box::pin(self.limit.write(data, page, write))
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        self.inner.erase(block)
    }

    fn health(&self, block: BlockId) -> BlockHealth {
        self.inner.health(block)
    }

    fn bad_blocks(&self) -> Vec<BlockId> {
        self.inner.bad_blocks()
    }

    fn erase_count(&self, block: BlockId) -> u64 {
        self.inner.erase_count(block)
    }

    fn channel_load(&self, channel: u32) -> u64 {
        self.inner.channel_load(channel)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskFlash, MemoryDisk, MeteredDisk, PAGE_BYTES, Region, WriteMeter};
    use runtime::sim::Sim;
    use runtime::spawn;

    const MIB: u64 = 1 << 20;

    fn bytes(len: usize, fill: u8) -> SharedBuf {
        let mut buf = AlignedBuf::new(len);
        buf.fill(fill);
        buf.into()
    }

    fn limit(bytes_per_s: u64) -> Arc<WriteLimit> {
        Arc::new(WriteLimit::new(NonZeroU64::new(bytes_per_s).unwrap()))
    }

    /// Creates a limited disk, its limit and the meter of its writes.
    fn limited(bytes_per_s: u64) -> (Arc<LimitedDisk>, Arc<WriteLimit>, Arc<WriteMeter>) {
        let meter = Arc::new(WriteMeter::new(Duration::from_secs(10)));
        let disk = MeteredDisk::new(Arc::new(MemoryDisk::new(64 * MIB)), Arc::clone(&meter));
        let limit = limit(bytes_per_s);
        let limited = LimitedDisk::new(Arc::new(disk), Arc::clone(&limit));
        (Arc::new(limited), limit, meter)
    }

    #[test]
    fn any_ten_seconds_have_no_more_than_the_limit_and_a_hundredth() {
        Sim::new(1).block_on(async {
            let (limited, limit, meter) = limited(MIB);
            let begun = now();
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let limited = Arc::clone(&limited);
                    spawn(async move {
                        for nth in 0..4 {
                            let data = bytes(2 * MIB as usize, writer as u8);
                            limited
                                .write((writer * 4 + nth) * 2 * MIB, data)
                                .await
                                .unwrap();
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.await.unwrap();
            }
            let seconds = now().since(begun).as_secs_f64();
            assert!((31.0..=32.1).contains(&seconds), "{seconds}");
            let most = meter.most() as f64 / (10 * MIB) as f64;
            assert!(most <= 1.02, "{most}");
            assert!(limit.counts().waits > 100);
        });
    }

    #[test]
    fn nothing_is_saved_up_while_nobody_writes_and_what_is_within_the_limit_does_not_wait() {
        Sim::new(1).block_on(async {
            let (limited, limit, _) = limited(MIB);
            for _ in 0..20 {
                runtime::sleep(Duration::from_secs(1)).await;
                limited.write(0, bytes(64 << 10, 1)).await.unwrap();
            }
            assert_eq!(limit.counts(), LimitCounts::default());
            assert!(!limit.holds_back());
            runtime::sleep(Duration::from_secs(1000)).await;
            let begun = now();
            limited.write(0, bytes(4 * MIB as usize, 1)).await.unwrap();
            assert!(now().since(begun) >= Duration::from_millis(3800));
            assert!(limit.holds_back());
            runtime::sleep(Duration::from_secs(1)).await;
            assert!(!limit.holds_back());
        });
    }

    #[test]
    fn a_write_in_pieces_is_whole_and_one_that_is_given_up_leaves_the_rest_their_turn() {
        Sim::new(1).block_on(async {
            let (limited, limit, _) = limited(100_000);
            let mut buf = AlignedBuf::new(10 * PAGE_BYTES);
            for (at, byte) in buf.iter_mut().enumerate() {
                *byte = (at / 7) as u8;
            }
            let data: SharedBuf = buf.into();
            let whole = data.to_vec();
            let given_up = limited.write(MIB, bytes(MIB as usize, 3));
            let _ = runtime::timeout(Duration::from_secs(1), given_up).await;
            limited.write(0, data).await.unwrap();
            let read = limited.read(0, AlignedBuf::new(10 * PAGE_BYTES)).await;
            assert_eq!(&read.unwrap()[..], &whole[..]);
            runtime::sleep(HOLDS_BACK).await;
            assert!(!limit.holds_back(), "nobody waits any more");
        });
    }

    #[test]
    fn rates_are_read() {
        for (text, bytes_per_s) in [
            ("20MiB", 20 << 20),
            ("20MiB/s", 20 << 20),
            ("65536", 65_536),
            ("600TB/5y", 3_802_570),
            ("1.2 PB / 3y", 12_675_235),
            ("8.64GB/1d", 100_000),
            ("700GB/2w", 578_703),
        ] {
            let rate: WriteRate = text.parse().unwrap();
            assert_eq!(rate.0.get(), bytes_per_s, "{text}");
        }
        for (text, says) in [
            ("", "600TB/5y"),
            ("fast", "no rate"),
            ("20MiB/", "no rate"),
            ("20MiB/0y", "no rate"),
            ("20MiB/-1y", "no rate"),
            ("20MiB/5", "no rate"),
            ("20MiB/5h", "no rate"),
            ("0", "64KiB"),
            ("0/5y", "64KiB"),
            ("65535", "64KiB"),
            ("1TB/5y", "64KiB"),
        ] {
            let error = text.parse::<WriteRate>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn flash_is_programmed_page_after_page() {
        Sim::new(1).block_on(async {
            let region = Region::new(Arc::new(MemoryDisk::new(8 * MIB)), 0, 8 * MIB).unwrap();
            let flash = DiskFlash::new(region, MIB as u32, 1, false).unwrap();
            let flash = LimitedFlash::new(Arc::new(flash), limit(MIB));
            flash.erase(BlockId(3)).await.unwrap();
            let begun = now();
            flash
                .program(BlockId(3), 0, bytes(MIB as usize, 5))
                .await
                .unwrap();
            assert!(now().since(begun) >= Duration::from_millis(850));
            flash
                .overwrite(BlockId(3), 1, bytes(2 * PAGE_BYTES, 6))
                .await
                .unwrap();
            let read = flash
                .read(BlockId(3), 0, AlignedBuf::new(4 * PAGE_BYTES))
                .await;
            let pages: Vec<u8> = read
                .unwrap()
                .chunks(PAGE_BYTES)
                .map(|page| page[9])
                .collect();
            assert_eq!(pages, [5, 6, 6, 5]);
        });
    }
}
