//! [`WriteLimit`]: bounds the write rate of a drive to the rate that its lifetime allows.
//!
//! ```text
//!   checkpoints, superblock ── pace with credit ──┐ first
//!   syncs of the journal ─────────────────────────┼ then ──> window: ten seconds ──> drive
//!   items ── pace ────────────────────────────────┘ last
//! ```
//!
//! Writes of a class pass in order of arrival, and only while no write of an earlier class waits. Items pass one after the
//! other at the rate of the limit: idle time earns them no credit. Checkpoints have a credit of [`CREDIT`], so that they rarely
//! wait, and seldom have to wait long for the window. A command larger than a tenth of a second's bytes is cut into pieces of
//! that size. The window lets at most a hundredth and a half beyond the limit begin within any ten seconds.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use runtime::sync::Notify;
use runtime::{Instant, now};

use crate::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Disk, Flash, Geometry, IoFuture, SharedBuf,
};

/// Pieces of a command that pass in a second.
const PIECES_A_SECOND: u64 = 10;
/// Length of a slot of the window: the time of a piece.
const SLOT: Duration = Duration::from_millis(1000 / PIECES_A_SECOND);
/// Length of the window.
const WINDOW: Duration = Duration::from_secs(10);
/// Time at the rate of the limit whose bytes a checkpoint may write at once.
const CREDIT: Duration = Duration::from_millis(2500);
/// Time after the last wait for which the limit still counts as holding writes back.
const HOLDS_BACK: Duration = Duration::from_millis(500);
const NANOS_A_SECOND: u128 = 1_000_000_000;

/// Class of a write: an earlier class goes before a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteClass {
    /// Checkpoints and the superblock, which free the journal.
    Checkpoint,
    /// Syncs of the journal, for which the last page of each segment waits.
    Journal,
    /// Segments of items, and the index that is overwritten in place.
    Items,
}

impl WriteClass {
    /// Number of classes.
    const COUNT: usize = 3;
}

/// Bound on a drive's write rate. Writes through all of its [`LimitedDisk`]s, [`LimitedFlash`]es and
/// [`LimitedJournal`](crate::LimitedJournal)s count together.
pub struct WriteLimit {
    bytes_per_s: NonZeroU64,
    state: Mutex<State>,
    /// Notified when a write has passed or waits no longer.
    changed: Notify,
}

#[derive(Default)]
struct State {
    window: Window,
    items: Pace,
    checkpoints: Pace,
    /// Tickets of the writes that wait, by class, in order of arrival.
    waiting: [VecDeque<u64>; WriteClass::COUNT],
    /// Number of tickets given out.
    tickets: u64,
    /// Number of checkpoints that wait for items.
    hurrying: u32,
    /// Number of syncs of the journal that wait for their share.
    resting: u32,
    /// Time at which a wait last ended.
    waited: Option<Instant>,
    counts: LimitCounts,
}

/// Passes writes at the rate of the limit.
#[derive(Default)]
struct Pace {
    /// Time at which all writes so far will have passed.
    free: Option<Instant>,
}

impl Pace {
    /// Returns the time at which a write that takes `time` may pass, with a credit.
    fn next(&self, time: Duration, credit: Duration) -> Option<Instant> {
        let early = credit.saturating_sub(time).as_nanos() as u64;
        let free = self.free?.as_nanos();
        Some(Instant::from_nanos(free.saturating_sub(early)))
    }

    /// Counts a write that passes at `at`.
    fn pass(&mut self, at: Instant, time: Duration) {
        let begin = self.free.map_or(at, |free| free.max(at));
        self.free = Some(begin + time);
    }
}

/// Bytes written within the last ten seconds.
#[derive(Default)]
struct Window {
    /// Begin and bytes of each slot, oldest first.
    slots: VecDeque<(Instant, u64)>,
    /// Sum of their bytes.
    bytes: u64,
}

impl Window {
    /// Drops the slots that are older than the window.
    fn expire(&mut self, at: Instant) {
        while let Some(&(begin, bytes)) = self.slots.front()
            && at.since(begin) >= SLOT + WINDOW
        {
            self.slots.pop_front();
            self.bytes -= bytes;
        }
    }

    /// Adds bytes.
    fn add(&mut self, at: Instant, bytes: u64) {
        self.bytes += bytes;
        match self.slots.back_mut() {
            Some((begin, in_slot)) if at.since(*begin) < SLOT => *in_slot += bytes,
            _ => self.slots.push_back((at, bytes)),
        }
    }

    /// Returns the time from which the window has space for `bytes` beside others, `most` in all, or is empty.
    fn has_space_at(&self, bytes: u64, most: u64) -> Option<Instant> {
        let mut excess = (self.bytes + bytes).saturating_sub(most);
        let mut at = None;
        for &(begin, in_slot) in &self.slots {
            if excess == 0 {
                break;
            }
            at = Some(begin + SLOT + WINDOW);
            excess = excess.saturating_sub(in_slot);
        }
        at
    }
}

/// Whether a write may pass.
enum Turn {
    Now,
    /// It is the first to pass, at this time.
    At(Instant),
    /// Another write passes before it.
    Behind,
}

impl State {
    /// Returns whether a write passes now. `ticket` is that of a write that waits.
    fn turn(&self, class: WriteClass, bytes: u64, ticket: Option<u64>, limit: &WriteLimit) -> Turn {
        let own = &self.waiting[class as usize];
        let is_behind = self.waiting[..class as usize]
            .iter()
            .any(|earlier| !earlier.is_empty())
            || own.front().is_some_and(|&first| Some(first) != ticket);
        if is_behind {
            return Turn::Behind;
        }
        let has_space = self.window.has_space_at(bytes, limit.most());
        let time = limit.time_of(bytes);
        let paced = match self.as_of(class) {
            WriteClass::Checkpoint => self.checkpoints.next(time, CREDIT),
            WriteClass::Journal => None,
            WriteClass::Items => self.items.next(time, Duration::ZERO),
        };
        match has_space.max(paced) {
            Some(at) if at > now() => Turn::At(at),
            _ => Turn::Now,
        }
    }

    /// Returns the class whose pace a write has.
    fn as_of(&self, class: WriteClass) -> WriteClass {
        match class {
            WriteClass::Items if self.hurrying > 0 => WriteClass::Checkpoint,
            class => class,
        }
    }

    /// Counts a write that passes.
    fn pass(&mut self, class: WriteClass, bytes: u64, time: Duration) {
        let at = now();
        self.window.add(at, bytes);
        match self.as_of(class) {
            WriteClass::Checkpoint => self.checkpoints.pass(at, time),
            WriteClass::Journal => self.counts.charged += bytes,
            WriteClass::Items => self.items.pass(at, time),
        }
    }
}

/// Counters of delayed writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// Pieces of writes that had to wait.
    pub waits: u64,
    /// Sum of their waiting times.
    pub waited: Duration,
    /// Bytes written by syncs of the journal.
    pub charged: u64,
}

/// A waiting piece; the wait ends on drop.
struct Waiting<'a> {
    limit: &'a WriteLimit,
    class: WriteClass,
    ticket: u64,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        state.waiting[self.class as usize].retain(|&other| other != self.ticket);
        let ended = now();
        state.waited = Some(ended);
        state.counts.waits += 1;
        state.counts.waited += ended.since(self.since);
        drop(state);
        self.limit.changed.notify_all();
    }
}

/// A checkpoint that waits for items. Until it is dropped, items pass at the pace of checkpoints.
pub struct Hurry<'a>(&'a WriteLimit);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.state.lock().hurrying -= 1;
    }
}

/// A sync of the journal that waits for its share; the wait ends on drop.
struct Rest<'a>(&'a WriteLimit);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.resting -= 1;
        state.waited = Some(now());
    }
}

impl WriteLimit {
    /// Creates a limit of `bytes_per_s`.
    pub fn new(bytes_per_s: NonZeroU64) -> Self {
        Self {
            bytes_per_s,
            state: Mutex::default(),
            changed: Notify::new(),
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
        let waits = state.resting > 0 || state.waiting.iter().any(|class| !class.is_empty());
        waits || state.waited.is_some_and(is_recent)
    }

    /// Lets items pass at the pace of checkpoints, for a checkpoint that is written after them.
    pub fn hurry(&self) -> Hurry<'_> {
        self.state.lock().hurrying += 1;
        self.changed.notify_all();
        Hurry(self)
    }

    /// Waits for a time in which others may write: items wait for a sync that does so.
    pub(crate) async fn rest(&self, time: Duration) {
        self.state.lock().resting += 1;
        let resting = Rest(self);
        runtime::sleep(time).await;
        drop(resting);
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
    pub(crate) fn time_of(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * NANOS_A_SECOND / u128::from(self.bytes_per_s());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the most bytes of a window: it is a slot longer than ten seconds, and a slot is seldom full.
    fn most(&self) -> u64 {
        let time = (WINDOW + SLOT * 3 / 2).as_millis();
        let most = u128::from(self.bytes_per_s()) * time / 1000;
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// Waits until `bytes` may be written, and counts them. Returns their number; it may grow during the wait.
    pub(crate) async fn pass(&self, class: WriteClass, bytes: impl Fn() -> u64) -> u64 {
        let mut waiting = None;
        loop {
            let changed = self.changed.listener();
            let turn = {
                let mut state = self.state.lock();
                let bytes = bytes();
                state.window.expire(now());
                let ticket = waiting.as_ref().map(|waiting: &Waiting<'_>| waiting.ticket);
                let turn = state.turn(class, bytes, ticket, self);
                if matches!(turn, Turn::Now) {
                    state.pass(class, bytes, self.time_of(bytes));
                    return bytes;
                }
                if waiting.is_none() {
                    let ticket = state.tickets;
                    state.tickets += 1;
                    state.waiting[class as usize].push_back(ticket);
                    waiting = Some(Waiting {
                        limit: self,
                        class,
                        ticket,
                        since: now(),
                    });
                }
                turn
            };
            match turn {
                Turn::At(at) => {
                    // A checkpoint may hurry before.
                    let _ = runtime::timeout(at.since(now()), changed).await;
                }
                Turn::Behind | Turn::Now => changed.await,
            }
        }
    }

    /// Writes `data` in pieces of whole units.
    async fn write(
        &self,
        class: WriteClass,
        data: SharedBuf,
        unit: usize,
        mut write: impl AsyncFnMut(usize, SharedBuf) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let (piece, len) = (self.piece(unit), data.len());
        let mut start = 0;
        while start < len {
            let end = (start + piece).min(len);
            self.pass(class, || (end - start) as u64).await;
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
    class: WriteClass,
}

impl LimitedDisk {
    /// Limits the writes to `inner` by `limit`. All are of one class.
    pub fn new(inner: Arc<dyn Disk>, limit: Arc<WriteLimit>, class: WriteClass) -> Self {
        Self {
            inner,
            limit,
            class,
        }
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
        Box::pin(self.limit.write(self.class, data, crate::PAGE_BYTES, write))
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
    class: WriteClass,
}

impl LimitedFlash {
    /// Limits the writes to `inner` by `limit`. All are of one class.
    pub fn new(inner: Arc<dyn Flash>, limit: Arc<WriteLimit>, class: WriteClass) -> Self {
        Self {
            inner,
            limit,
            class,
        }
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
        Box::pin(self.limit.write(self.class, data, page, write))
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
        Box::pin(self.limit.write(self.class, data, page, write))
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
        let limited = LimitedDisk::new(Arc::new(disk), Arc::clone(&limit), WriteClass::Items);
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

    /// Issue: "let checkpoints go first within the limit".
    #[test]
    fn checkpoints_go_before_items_and_the_window_holds() {
        Sim::new(1).block_on(async {
            let meter = Arc::new(WriteMeter::new(Duration::from_secs(10)));
            let disk = MemoryDisk::new(64 * MIB);
            let disk: Arc<dyn Disk> =
                Arc::new(MeteredDisk::new(Arc::new(disk), Arc::clone(&meter)));
            let limit = limit(MIB);
            let of = |class| {
                Arc::new(LimitedDisk::new(
                    Arc::clone(&disk),
                    Arc::clone(&limit),
                    class,
                ))
            };
            let (items, checkpoints) = (of(WriteClass::Items), of(WriteClass::Checkpoint));
            for number in 0..4 {
                let items = Arc::clone(&items);
                spawn(async move {
                    let _ = items
                        .write(number * 8 * MIB, bytes(8 * MIB as usize, 1))
                        .await;
                });
            }
            runtime::sleep(Duration::from_secs(5)).await;
            let wrote = async |mebibytes: u64| {
                let begun = now();
                let data = bytes((mebibytes * MIB) as usize, 2);
                checkpoints.write(40 * MIB, data).await.unwrap();
                now().since(begun)
            };
            assert_eq!(wrote(2).await, Duration::ZERO, "idle time is a credit");
            let rest = wrote(2).await;
            assert!(
                rest < Duration::from_secs(2),
                "at the rate of the limit: {rest:?}"
            );
            runtime::sleep(Duration::from_secs(3)).await;
            let full = wrote(1).await;
            assert!(
                full < Duration::from_secs(3),
                "the window is full: {full:?}"
            );
            runtime::sleep(Duration::from_secs(20)).await;
            let most = meter.most() as f64 / (10 * MIB) as f64;
            assert!((1.0..=1.02).contains(&most), "{most}");
        });
    }

    #[test]
    fn items_hurry_for_a_checkpoint_that_comes_after_them() {
        Sim::new(1).block_on(async {
            let (limited, limit, _) = limited(MIB);
            let write = async || {
                let begun = now();
                limited.write(0, bytes(2 * MIB as usize, 1)).await.unwrap();
                now().since(begun)
            };
            assert!(write().await >= Duration::from_millis(1800));
            let hurry = limit.hurry();
            assert_eq!(write().await, Duration::ZERO);
            drop(hurry);
            assert!(write().await >= Duration::from_millis(1800));
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
    fn flash_is_programmed_page_after_page() {
        Sim::new(1).block_on(async {
            let region = Region::new(Arc::new(MemoryDisk::new(8 * MIB)), 0, 8 * MIB).unwrap();
            let flash = DiskFlash::new(region, MIB as u32, 1, false).unwrap();
            let flash = LimitedFlash::new(Arc::new(flash), limit(MIB), WriteClass::Items);
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
