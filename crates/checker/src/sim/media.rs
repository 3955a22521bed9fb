//! What a cache lies on: a drive, or NAND and a small disk with the superblock.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Disk, Fault, FaultRates, FaultyDisk, Flash,
    Geometry, Image, IoFuture, Latency, Libssd, MemoryDisk, Nand, NandCrash, NandImage, Operation,
    SegmentShape, SharedBuf, Tear, When,
};
use engine::Medium;
use engine::config::META_BYTES;
use parking_lot::Mutex;

use super::plan::{Plan, Rates, SEGMENT_BYTES};
use super::watch::Watch;

/// A device on which one in so many blocks is bad is not written to any more.
const WORN_OUT: u64 = 4;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process dies between two accesses; NAND that it emulates dies with it.
    Kill,
    /// It dies while the device carries some out; NAND carries out all that it has been asked for.
    KillTorn(Tear),
    PowerCut(Tear),
}

/// What is left of a medium.
#[derive(Clone)]
pub(super) struct Remains {
    disk: Image,
    nand: Option<NandImage>,
}

impl Remains {
    /// A new medium.
    pub(super) fn new(plan: &Plan) -> Self {
        let nand = plan.nand.clone().map(NandImage::new);
        Self {
            disk: Image::new(plan.image_bytes),
            nand: nand.map(|made| made.expect("the plan is of a device that can be")),
        }
    }

    pub(super) fn nothing() -> Self {
        Self {
            disk: Image::new(0),
            nand: None,
        }
    }
}

/// The medium of a life.
pub(super) struct Media {
    memory: Arc<MemoryDisk>,
    /// The drive, or the disk with the superblock.
    disk: FaultyDisk,
    flash: Option<Libssd>,
    /// How long the next read of the flash is held up before it begins.
    slow_read: Mutex<Duration>,
    /// A segment takes one write: a power cut leaves all of it or nothing.
    writes_whole_segments: bool,
    /// When a part of a segment was last written, as checkpoints are, in nanoseconds.
    last_part: AtomicU64,
    unsettled: Duration,
}

impl Media {
    pub(super) fn new(plan: &Plan, latency: Latency, remains: Remains, seed: u64) -> Self {
        let Remains { disk: image, nand } = remains;
        let memory = Arc::new(MemoryDisk::from_image(image.clone(), latency));
        let disk = FaultyDisk::with_base(memory.clone(), image, seed);
        disk.set_rates(FaultRates {
            slow: plan.slow,
            slow_by: plan.slow_by,
            ..FaultRates::default()
        });
        let flash = nand.map(|image| {
            let nand = Arc::new(Nand::from_image(image));
            Libssd::new(nand, SegmentShape::Block).expect("blocks are small")
        });
        let write_bytes = plan.config.writing.write_bytes;
        Self {
            memory,
            disk,
            flash,
            slow_read: Mutex::default(),
            last_part: AtomicU64::new(u64::MAX),
            unsettled: plan.unsettled,
            writes_whole_segments: write_bytes
                .is_none_or(|bytes| u64::from(bytes) >= SEGMENT_BYTES),
        }
    }

    pub(super) fn is_flash(&self) -> bool {
        self.flash.is_some()
    }

    /// Blocks that cannot be used.
    pub(super) fn bad_blocks(&self) -> u64 {
        let flash = self.flash.as_ref();
        flash.map_or(0, |flash| flash.bad_segments().len() as u64)
    }

    /// Whether so many blocks have failed that a cache may soon find no room for ever.
    pub(super) fn is_worn_out(&self) -> bool {
        let flash = self.flash.as_ref();
        let blocks = flash.map_or(0, |flash| u64::from(flash.geometry().blocks()));
        WORN_OUT * self.bad_blocks() > blocks
    }

    /// What an engine opens: crash points are taken at its accesses.
    pub(super) fn watched_by(watch: &Arc<Watch>) -> Medium {
        let disk = Arc::new(WatchedDisk(Arc::clone(watch)));
        match watch.media.flash {
            None => Medium::Disk(disk),
            Some(_) => Medium::Flash {
                flash: Arc::new(WatchedFlash(Arc::clone(watch))),
                meta: disk,
            },
        }
    }

    /// What a life that ends now would leave.
    pub(super) fn crash(&self, end: End, seed: u64) -> Remains {
        let (disk, of_nand) = match end {
            End::Kill => (self.memory.snapshot(), NandCrash::Killed),
            End::KillTorn(tear) => {
                let mut image = self.memory.snapshot();
                self.disk.tear_in_flight(&mut image, seed, tear);
                (image, NandCrash::Finished)
            }
            End::PowerCut(tear) => (self.disk.crash(seed, tear), NandCrash::PowerCut),
        };
        let nand = self.flash.as_ref().map(|flash| flash.nand().crash(of_nand));
        Remains { disk, nand }
    }

    /// Whether such an end can leave damaged items. On NAND none can: a torn page cannot be read, and the
    /// last page of a segment, which tells that there is one, is programmed after all others.
    pub(super) fn tears(&self, end: End) -> bool {
        !self.is_flash()
            && match end {
                End::Kill | End::KillTorn(Tear::Writes) => false,
                End::PowerCut(Tear::Writes) => {
                    !self.writes_whole_segments || self.has_just_written_parts()
                }
                End::KillTorn(_) | End::PowerCut(_) => true,
            }
    }

    /// Whether a power cut may leave a segment of items alive that a checkpoint has overwritten in part: what
    /// had declared it dead is not durable yet.
    fn has_just_written_parts(&self) -> bool {
        let since = self.last_part.load(Ordering::Relaxed);
        let settled = since.saturating_add(self.unsettled.as_nanos() as u64);
        since != u64::MAX && runtime::now().as_nanos() < settled
    }

    fn note_write(&self, offset: u64, bytes: usize) {
        if offset >= META_BYTES && (bytes as u64) < SEGMENT_BYTES {
            let now = runtime::now().as_nanos();
            self.last_part.store(now, Ordering::Relaxed);
        }
    }

    /// About the longest that an access of the flash takes.
    pub(super) fn longest(&self) -> Duration {
        let flash = self.flash.as_ref();
        let nanos = flash.map_or(0, |flash| flash.nand().config().timing.erase_ns);
        Duration::from_nanos(nanos)
    }

    /// The next read takes so much longer.
    pub(super) fn slow_read(&self, by: Duration) {
        if self.is_flash() {
            *self.slow_read.lock() = by;
        } else {
            self.slow_disk(When::next(Operation::Read), by);
        }
    }

    pub(super) fn slow_disk(&self, when: When, by: Duration) {
        self.disk.script(when, Fault::Slow(by));
    }
}

/// Does `access`, called `what`. Crash points are taken before it, at some `moment` of it, at once where
/// none is given, and after it.
async fn watched<T>(
    watch: &Watch,
    rate: fn(&Rates) -> u32,
    what: &str,
    moment: Option<Duration>,
    access: impl Future<Output = Result<T, DeviceError>>,
) -> Result<T, DeviceError> {
    watch.at_access(rate, "before", what);
    let mut access = pin!(access);
    let mut moment = moment.map(|after| Box::pin(runtime::sleep(after)));
    let mut is_past = false;
    let done = std::future::poll_fn(|cx| {
        let polled = access.as_mut().poll(cx);
        let mut is_now = || {
            let moment = moment.as_mut();
            moment.is_none_or(|moment| moment.as_mut().poll(cx).is_ready())
        };
        if !is_past && polled.is_pending() && is_now() {
            is_past = true;
            watch.at_access(rate, "during", what);
        }
        polled
    })
    .await;
    watch.at_access(rate, "after", what);
    done
}

const READS: fn(&Rates) -> u32 = |rates| rates.reads;
const CHANGES: fn(&Rates) -> u32 = |rates| rates.accesses;

/// The disk at whose accesses crash points are taken.
struct WatchedDisk(Arc<Watch>);

impl Disk for WatchedDisk {
    fn len_bytes(&self) -> u64 {
        self.0.media.disk.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            let read = self.0.media.disk.read(offset, buf).await;
            self.0.at_access(READS, "after", "a read");
            read
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        self.0.media.note_write(offset, data.len());
        let write = self.0.media.disk.write(offset, data);
        Box::pin(watched(&self.0, CHANGES, "a write", None, write))
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let discarded = self.0.media.disk.discard(offset, len).await;
            self.0.at_access(CHANGES, "after", "a discard");
            discarded
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.0.at_access(CHANGES, "before", "a sync");
            let written = self.0.written_now();
            self.0.media.disk.sync().await?;
            self.0.synced(written);
            self.0.at_access(CHANGES, "after", "a sync");
            Ok(())
        })
    }
}

/// The flash at whose accesses crash points are taken.
struct WatchedFlash(Arc<Watch>);

impl WatchedFlash {
    fn flash(&self) -> &Libssd {
        let flash = self.0.media.flash.as_ref();
        flash.expect("it is made where there is flash")
    }

    fn watched<'a, T: 'a>(
        &'a self,
        rate: fn(&Rates) -> u32,
        what: &'static str,
        access: impl Future<Output = Result<T, DeviceError>> + 'a,
    ) -> IoFuture<'a, T> {
        let moment = Some(self.0.any_moment());
        Box::pin(watched(&self.0, rate, what, moment, access))
    }
}

impl Flash for WatchedFlash {
    fn geometry(&self) -> Geometry {
        self.flash().geometry()
    }

    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        let held_up = std::mem::take(&mut *self.0.media.slow_read.lock());
        self.watched(READS, "a read", async move {
            if !held_up.is_zero() {
                runtime::sleep(held_up).await;
            }
            self.flash().read(block, offset, buf).await
        })
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        let program = self.flash().program(block, first_page, data);
        self.watched(CHANGES, "a program", program)
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        self.watched(CHANGES, "an erase", self.flash().erase(block))
    }

    fn health(&self, block: BlockId) -> BlockHealth {
        self.flash().health(block)
    }

    fn erase_count(&self, block: BlockId) -> u64 {
        self.flash().erase_count(block)
    }

    fn channel_load(&self, channel: u32) -> u64 {
        self.flash().channel_load(channel)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.flash().sync()
    }
}
