//! The media of a cache: a drive, or NAND and a small disk with the superblock; and the index's own device,
//! if it has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Fault, FaultyDisk, Flash, Image, Latency, MemoryDisk, Operation, Tear, When};
use emulated::{Libssd, Nand, NandCrash, NandImage, SegmentShape};
use engine::config::META_BYTES;
use parking_lot::Mutex;

use super::plan::{Plan, SEGMENT_BYTES};

/// A device is worn out once more than one block in this many is bad.
const WORN_OUT: u64 = 4;

/// Returns the seed for the index's device, so that its draws differ from those of the other device.
fn of_index(seed: u64) -> u64 {
    seed.rotate_left(32) ^ !seed
}

/// Ways in which a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process dies between two accesses; NAND that it emulates dies with it.
    Kill,
    /// The process dies during accesses. The device tears them; NAND finishes every access requested.
    KillTorn(Tear),
    PowerCut(Tear),
}

/// The state of the media after a crash.
#[derive(Clone)]
pub(super) struct Remains {
    disk: Image,
    index: Option<Image>,
    nand: Option<NandImage>,
}

impl Remains {
    /// Returns new media.
    pub(super) fn new(plan: &Plan) -> Self {
        let nand = plan.nand.clone().map(NandImage::new);
        Self {
            disk: Image::new(plan.image_bytes),
            index: plan.index_bytes.map(Image::new),
            nand: nand.map(|made| made.expect("the plan is of a device that can be")),
        }
    }
}

/// A disk of a life.
pub(super) struct LifeDisk {
    memory: Arc<MemoryDisk>,
    pub(super) faulty: FaultyDisk,
}

impl LifeDisk {
    fn new(image: Image, latency: Latency, seed: u64) -> Self {
        let memory = Arc::new(MemoryDisk::from_image(image.clone(), latency));
        let faulty = FaultyDisk::with_base(memory.clone(), image, seed);
        Self { memory, faulty }
    }

    fn crash(&self, end: End, seed: u64) -> Image {
        match end {
            End::Kill => self.memory.snapshot(),
            End::KillTorn(tear) => {
                let mut image = self.memory.snapshot();
                self.faulty.tear_in_flight(&mut image, seed, tear);
                image
            }
            End::PowerCut(tear) => self.faulty.crash(seed, tear),
        }
    }
}

/// The media of a life.
pub(super) struct Media {
    /// The drive, or the disk with the superblock.
    pub(super) disk: LifeDisk,
    /// The index's own device.
    pub(super) index: Option<LifeDisk>,
    pub(super) flash: Option<Libssd>,
    /// Time added to slow accesses of the disk, and the share of slow accesses.
    slow: (Duration, f64),
    /// Delay of the next read of the flash.
    pub(super) slow_read: Mutex<Duration>,
    /// Whether one write stores a whole segment, so that a power cut leaves all of it or nothing.
    writes_whole_segments: bool,
    /// Time of the last write of part of a segment, as checkpoints do, in nanoseconds.
    last_part: AtomicU64,
}

impl Media {
    pub(super) fn new(plan: &Plan, latency: Latency, remains: Remains, seed: u64) -> Self {
        let Remains { disk, index, nand } = remains;
        let disk = LifeDisk::new(disk, latency, seed);
        let index = index.map(|image| LifeDisk::new(image, latency, of_index(seed)));
        let flash = nand.map(|image| {
            let nand = Arc::new(Nand::from_image(image));
            Libssd::new(nand, SegmentShape::Block).expect("blocks are small")
        });
        let write_bytes = plan.config.writing.write_bytes;
        let media = Self {
            disk,
            index,
            flash,
            slow: (plan.slow_by, plan.slow),
            slow_read: Mutex::default(),
            last_part: AtomicU64::new(u64::MAX),
            writes_whole_segments: write_bytes
                .is_none_or(|bytes| u64::from(bytes) >= SEGMENT_BYTES),
        };
        media.fail([0.0; 3]);
        media
    }

    /// Sets the shares of the disks' reads, writes and syncs that fail from now on.
    pub(super) fn fail(&self, [reads, writes, syncs]: [f64; 3]) {
        let (slow_by, slow) = self.slow;
        let slow = |operation| (operation, Fault::Slow(slow_by), slow);
        let mut rates: Vec<_> = Operation::ALL.map(slow).into();
        for (operation, rate) in [
            (Operation::Read, reads),
            (Operation::Write, writes),
            (Operation::Sync, syncs),
        ] {
            rates.push((operation, Fault::Error, rate));
        }
        if let Some(index) = &self.index {
            index.faulty.set_rates(rates.clone());
        }
        self.disk.faulty.set_rates(rates);
    }

    pub(super) fn is_flash(&self) -> bool {
        self.flash.is_some()
    }

    /// Returns the number of unusable blocks.
    pub(super) fn bad_blocks(&self) -> u64 {
        let flash = self.flash.as_ref();
        flash.map_or(0, |flash| flash.bad_blocks().len() as u64)
    }

    /// Returns whether too many blocks have failed: a cache may soon never find a free segment again.
    pub(super) fn is_worn_out(&self) -> bool {
        let flash = self.flash.as_ref();
        let blocks = flash.map_or(0, |flash| u64::from(flash.geometry().blocks()));
        WORN_OUT * self.bad_blocks() > blocks
    }

    /// Returns the state that the media would have if the life ended now.
    pub(super) fn crash(&self, end: End, seed: u64) -> Remains {
        let of_nand = match end {
            End::Kill => NandCrash::Killed,
            End::KillTorn(_) => NandCrash::Finished,
            End::PowerCut(_) => NandCrash::PowerCut,
        };
        let disk = self.disk.crash(end, seed);
        let index = self.index.as_ref();
        let index = index.map(|index| index.crash(end, of_index(seed)));
        let nand = self.flash.as_ref().map(|flash| flash.nand().crash(of_nand));
        Remains { disk, index, nand }
    }

    /// Returns whether an end can leave damaged items. `undone` is the time before the end, in nanoseconds, whose
    /// records the journal may have lost, if it may have lost any: without the record of its death, a segment lives
    /// on that has been overwritten in part. On NAND no end can: a torn page cannot be read, and the last page of a
    /// segment, which marks the segment as written, is programmed after all other pages.
    pub(super) fn tears(&self, end: End, undone: Option<u64>) -> bool {
        let is_torn = match end {
            End::Kill | End::KillTorn(Tear::Writes) | End::PowerCut(Tear::Writes) => false,
            End::KillTorn(_) | End::PowerCut(_) => true,
        };
        let lives_on = |nanos| !self.writes_whole_segments || self.has_written_a_part_within(nanos);
        !self.is_flash() && (is_torn || undone.is_some_and(lives_on))
    }

    fn has_written_a_part_within(&self, nanos: u64) -> bool {
        let last = self.last_part.load(Ordering::Relaxed);
        last != u64::MAX && runtime::now().as_nanos() < last.saturating_add(nanos)
    }

    pub(super) fn note_write(&self, offset: u64, bytes: usize) {
        if offset >= META_BYTES && (bytes as u64) < SEGMENT_BYTES {
            let now = runtime::now().as_nanos();
            self.last_part.store(now, Ordering::Relaxed);
        }
    }

    /// Returns an estimate of the longest access of the flash: an erase.
    pub(super) fn longest(&self) -> Duration {
        let flash = self.flash.as_ref();
        let nanos = flash.map_or(0, |flash| flash.nand().config().timing.erase_ns);
        Duration::from_nanos(nanos)
    }

    /// Delays the next read by `by`.
    pub(super) fn slow_read(&self, by: Duration) {
        if self.is_flash() {
            *self.slow_read.lock() = by;
        } else {
            self.slow_disk(When::next(Operation::Read), by);
        }
    }

    pub(super) fn slow_disk(&self, when: When, by: Duration) {
        self.disk.faulty.script(when, Fault::Slow(by));
    }
}
