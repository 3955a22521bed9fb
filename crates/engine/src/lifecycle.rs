//! Opening and stopping an image.
//!
//! ```text
//!   open:  superblock ─ clean ─> load the checkpoint ─┐
//!             │ dirty, new, or a checkpoint that      ├─> erase the clean mark, reserve versions
//!             │ does not verify: start empty ─────────┘   and sequence numbers, sync ─> serve
//!   stop:  place all of memory ─> drain ─> checkpoint ─> sync ─> set the clean mark ─> sync
//! ```
//!
//! The clean mark is erased durably before the first change, in both copies of the superblock, so
//! that a crash at any moment leaves an image that starts empty, never one that starts old, even if
//! one copy is lost to the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::{AlignedBuf, DeviceError, Disk, DiskFlash, Flash, Region};
use parking_lot::Mutex;

use crate::cache::{CacheLine, Engine};
use crate::config::{ConfigError, EngineConfig, META_BYTES, MemorySplit};
use crate::format::FormatError;
use crate::format::checkpoint::{MAGIC, Writer};
use crate::format::superblock::{Cleanliness, ImageShape, SUPERBLOCK_BYTES, Superblock};
use crate::horizon::Horizon;
use crate::partition::Partition;
use crate::placement::Placement;
use crate::placement::exact::{Exact, ExactConfig, ExactError};
use crate::store::{ReadError, SavedCheckpoint, SegmentId, SegmentStore, StoreConfig};

/// Where the two copies of the superblock lie.
const SUPERBLOCK_OFFSETS: [u64; 2] = [0, META_BYTES / 2];
/// Versions reserved for one run, in each partition: years of writes.
const VERSION_RESERVE: u64 = 1 << 44;
/// Segment sequence numbers reserved for one run.
const SEQUENCE_RESERVE: u64 = 1 << 40;
/// Times an orderly stop places what segments that could not be written have lost.
const MAX_ROUNDS: usize = 3;
/// Placement of the images this program makes.
const PLACEMENT: &str = "exact";

/// Why an image cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The index cannot be set up.
    #[error(transparent)]
    Index(#[from] ExactError),
    /// Somebody else's data.
    #[error(
        "it holds something that is not a Flowstone image; name another path, or use --force to \
         overwrite it"
    )]
    Foreign,
    /// An image of another format version.
    #[error(
        "it holds an image of format {found} and this program reads format {expected}: use the \
         program that made it, or --force to start empty"
    )]
    Version {
        /// The version found.
        found: u32,
        /// The version this program reads.
        expected: u32,
    },
    /// An image whose superblocks are both damaged.
    #[error("both copies of its superblock are damaged; use --force to start empty")]
    Damaged,
    /// An image of another size than the device.
    #[error(
        "it holds an image of {image} bytes and {device} are given: use --flash-size {image}, or \
         --force to start empty"
    )]
    Size {
        /// Bytes of the image.
        image: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// An image of another placement.
    #[error(
        "it holds an image of the `{found}` placement and this preset uses `{expected}`: use the \
         preset it was made with, or --force to start empty"
    )]
    Placement {
        /// The placement found.
        found: String,
        /// The placement asked for.
        expected: &'static str,
    },
}

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new image.
    New,
    /// Everything of the last run.
    Warm {
        /// Objects on flash.
        objects: u64,
    },
    /// An image that was not stopped orderly: it starts empty.
    Unclean,
    /// An image that was stopped orderly and does not verify: it starts empty.
    Unreadable,
    /// Something else that `force` overwrote.
    Forced,
}

/// What an orderly stop left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything; the next start is warm.
    Complete {
        /// Objects on flash.
        objects: u64,
    },
    /// The deadline passed or the device failed; the next start is empty.
    Incomplete {
        /// Items that were not on flash yet.
        items_left: u64,
    },
    /// It had been stopped before.
    Already,
}

/// The part of an engine that opens and stops it.
pub(crate) struct Lifecycle {
    meta: Region,
    superblock: Mutex<Superblock>,
    stopped: AtomicBool,
    /// Memory is being saved: what is changed from now on would not be.
    pub(crate) closed: AtomicBool,
    /// Something has been changed all the same.
    pub(crate) changed_since: AtomicBool,
    start: Start,
    running: AtomicU64,
}

impl Engine {
    /// Opens the image on `disk`, or makes one there. Nothing on the device has been touched when
    /// this fails with anything but [`OpenError::Device`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(disk: Arc<dyn Disk>, config: EngineConfig) -> Result<Arc<Self>, OpenError> {
        let meta = Region::new(Arc::clone(&disk), 0, META_BYTES.min(disk.len_bytes()))?;
        let (mut superblock, mut start) = match read_superblock(&meta).await {
            Ok(Some(found)) => match check_image(&found, disk.len_bytes()) {
                Ok(()) => (found, Start::Unclean),
                Err(_) if config.force => (new_image(&disk, &config)?, Start::Forced),
                Err(refused) => return Err(refused),
            },
            Ok(None) => (new_image(&disk, &config)?, Start::New),
            Err(OpenError::Device(error)) => return Err(error.into()),
            Err(_) if config.force => (new_image(&disk, &config)?, Start::Forced),
            Err(refused) => return Err(refused),
        };
        let shape = superblock.shape();
        config.check(u64::from(shape.segments), shape.segment_bytes)?;
        let region = Region::new(Arc::clone(&disk), META_BYTES, disk.len_bytes() - META_BYTES)?;
        let flash: Arc<dyn Flash> = Arc::new(DiskFlash::new(
            Arc::new(region),
            shape.segment_bytes,
            shape.channels,
            config.discard,
        )?);
        let first_sequence = superblock.sequence_limit.get();
        let first_version = superblock.version_limit.get();
        let mut parts = Parts::new(&flash, &config, &shape, first_sequence)?;
        if superblock.cleanliness() == Cleanliness::Clean {
            match parts.load(&superblock).await {
                Ok(()) => {
                    start = Start::Warm {
                        objects: parts.placement.stats().objects,
                    };
                }
                Err(error) => {
                    tracing::warn!(%error, "the checkpoint does not verify; starting empty");
                    start = Start::Unreadable;
                    parts = Parts::new(&flash, &config, &shape, first_sequence)?;
                }
            }
        }
        superblock.mark_dirty();
        superblock.version_limit = (first_version + VERSION_RESERVE).into();
        superblock.sequence_limit = (first_sequence + SEQUENCE_RESERVE).into();
        // Both copies, so that nothing of what was there before is left in either.
        for _ in SUPERBLOCK_OFFSETS {
            write_superblock(&meta, &mut superblock).await?;
        }
        let lifecycle = Lifecycle {
            meta,
            superblock: Mutex::new(superblock),
            stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            changed_since: AtomicBool::new(false),
            start,
            running: AtomicU64::new(0),
        };
        Ok(Arc::new(parts.assemble(
            config,
            &shape,
            first_version,
            lifecycle,
        )))
    }

    /// What the open found.
    #[must_use]
    pub fn start(&self) -> Start {
        self.lifecycle.start
    }

    /// The work that goes on in background until [`stop`](Engine::stop). `spawn` starts each part on
    /// some worker; the engine does not write anything to flash before.
    pub fn start_background(
        self: &Arc<Self>,
        mut spawn: impl FnMut(crate::placement::BackgroundTask),
    ) {
        for task in Arc::clone(&self.placement).background() {
            self.lifecycle.running.fetch_add(1, Ordering::AcqRel);
            spawn(task);
        }
    }

    /// Stops orderly: makes everything durable, memory included, within the configured deadline.
    /// Requests should have ceased: from now on a write is not answered, and a
    /// [`remove`](Engine::remove) or a [`flush_all`](Engine::flush_all) makes the stop incomplete.
    pub async fn stop(self: &Arc<Self>) -> Stop {
        if self.lifecycle.stopped.swap(true, Ordering::AcqRel) {
            return Stop::Already;
        }
        let deadline = self.config.stop_deadline;
        let saved = runtime::timeout(deadline, self.save()).await.ok().flatten();
        self.placement.stop();
        let Some(saved) = saved else {
            return Stop::Incomplete {
                items_left: self.count_dirty(),
            };
        };
        match self.seal(&saved).await {
            Ok(true) => Stop::Complete {
                objects: self.placement.stats().objects,
            },
            Ok(false) => Stop::Incomplete { items_left: 0 },
            Err(error) => {
                tracing::error!(%error, "the clean mark could not be written");
                Stop::Incomplete { items_left: 0 }
            }
        }
    }

    async fn save(self: &Arc<Self>) -> Option<SavedCheckpoint> {
        // Looked at under a partition's lock, which the placing takes after this.
        self.lifecycle.closed.store(true, Ordering::SeqCst);
        let now = runtime::unix_seconds();
        for _ in 0..MAX_ROUNDS {
            self.placement.use_reserve();
            let lost = self.placement.stats().items_lost;
            self.place_memory(now).await;
            self.placement.drain().await;
            if self.placement.stats().items_lost == lost {
                break;
            }
            // Lost to segments that could not be written; memory still has them.
        }
        let mut head = Writer::new();
        head.u64(MAGIC);
        head.u32(self.horizon.pending(now).unwrap_or(0));
        head.u32(self.partitions.len() as u32);
        for number in 0..self.partitions.len() {
            head.u64(self.horizon.cutoff(number));
        }
        let saved = self.placement.save(head.into_bytes()).await?;
        self.placement.sync().await.ok()?;
        Some(saved)
    }

    /// Places everything on flash that only memory has.
    async fn place_memory(&self, now: u32) {
        for number in 0..self.partitions.len() {
            self.lock_partition(number, now)
                .tier
                .mark_unplaced(&self.evict_context(number, now));
            loop {
                let room = self.placement.room().listener();
                let placed = {
                    let mut partition = self.lock_partition(number, now);
                    partition.tier.place_all(&self.evict_context(number, now))
                };
                match placed {
                    Ok(()) => break,
                    Err(crate::dram::NoRoom) => room.await,
                }
            }
        }
    }

    /// Sets the clean mark; false, and then there is none, if something has changed since memory was
    /// saved.
    async fn seal(&self, saved: &SavedCheckpoint) -> Result<bool, DeviceError> {
        if self.lifecycle.changed_since.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let mut superblock = *self.lifecycle.superblock.lock();
        let segments: Vec<u32> = saved.segments.iter().map(|segment| segment.0).collect();
        superblock.mark_clean(saved.bytes, saved.first_sequence, &segments);
        write_superblock(&self.lifecycle.meta, &mut superblock).await?;
        let unchanged = !self.lifecycle.changed_since.load(Ordering::SeqCst);
        if !unchanged {
            superblock.mark_dirty();
            write_superblock(&self.lifecycle.meta, &mut superblock).await?;
        }
        *self.lifecycle.superblock.lock() = superblock;
        Ok(unchanged)
    }

    /// Whether memory is being saved.
    pub(crate) fn is_closed(&self) -> bool {
        self.lifecycle.closed.load(Ordering::SeqCst)
    }

    /// A change that cannot be put off: what is being saved is not all there is.
    pub(crate) fn note_change(&self) {
        if self.is_closed() {
            self.lifecycle.changed_since.store(true, Ordering::SeqCst);
        }
    }

    fn count_dirty(&self) -> u64 {
        self.partitions
            .iter()
            .map(|partition| partition.0.lock().tier.dirty_items())
            .sum()
    }
}

/// An engine being put together.
struct Parts {
    store: Arc<SegmentStore>,
    placement: Arc<Exact>,
    horizon: Arc<Horizon>,
}

impl Parts {
    fn new(
        flash: &Arc<dyn Flash>,
        config: &EngineConfig,
        shape: &ImageShape,
        first_sequence: u64,
    ) -> Result<Self, OpenError> {
        let partition_bits = shape.partitions.trailing_zeros();
        let store = StoreConfig {
            buffers: config.buffers,
            first_sequence,
            large_read_bytes: config.large_read_bytes(),
        };
        let store = Arc::new(SegmentStore::new(Arc::clone(flash), &store));
        let horizon = Arc::new(Horizon::new(partition_bits));
        let exact = ExactConfig {
            index_max_bytes: config.memory_bytes / 100 * u64::from(config.index_percent),
            partition_bits,
            expected_items: shape.expected_items,
            reclaim: config.reclaim(store.segments(), store.segment_bytes()),
        };
        let placement = Arc::new(Exact::new(
            Arc::clone(&store),
            Arc::clone(&horizon),
            &exact,
        )?);
        Ok(Self {
            store,
            placement,
            horizon,
        })
    }

    async fn load(&self, superblock: &Superblock) -> Result<(), ReadError> {
        let saved = SavedCheckpoint {
            bytes: superblock.checkpoint_bytes.get(),
            first_sequence: superblock.checkpoint_sequence.get(),
            segments: superblock.checkpoint_segments().map(SegmentId).collect(),
        };
        let mut from = self.placement.open_checkpoint(&saved);
        if from.u64().await? != MAGIC {
            return Err(from.nonsense());
        }
        let deadline = from.u32().await?;
        if from.u32().await? != superblock.shape().partitions {
            return Err(from.nonsense());
        }
        for number in 0..superblock.shape().partitions as usize {
            let cutoff = from.u64().await?;
            self.horizon.restore_cutoff(number, cutoff);
        }
        if deadline != 0 {
            self.horizon.flush_at(deadline);
        }
        self.placement.load(&mut from).await
    }

    fn assemble(
        self,
        config: EngineConfig,
        shape: &ImageShape,
        first_version: u64,
        lifecycle: Lifecycle,
    ) -> Engine {
        let fixed = self.placement.memory().fixed_bytes + config.large_read_bytes();
        let partitions = u64::from(shape.partitions);
        let split = MemorySplit::new(&config, fixed, partitions);
        Engine {
            partitions: (0..partitions)
                .map(|number| {
                    CacheLine(Mutex::new(Partition::new(
                        split.chunk_bytes,
                        first_version,
                        number,
                        partitions,
                    )))
                })
                .collect(),
            partition_bits: shape.partitions.trailing_zeros(),
            seed: shape.hash_seed,
            largest_body: config.largest_body().min(self.placement.largest_body()),
            version_limit: first_version + VERSION_RESERVE,
            placement: self.placement,
            store: self.store,
            horizon: self.horizon,
            split,
            config,
            lifecycle,
            waits: AtomicU64::new(0),
            lent_bytes: AtomicU64::new(0),
            next_to_shrink: AtomicUsize::new(0),
        }
    }
}

fn new_image(disk: &Arc<dyn Disk>, config: &EngineConfig) -> Result<Superblock, OpenError> {
    let image_bytes = disk.len_bytes();
    let flash_bytes = image_bytes.saturating_sub(META_BYTES);
    let segment_bytes = config.choose_segment_bytes(flash_bytes);
    let segments = flash_bytes / u64::from(segment_bytes.max(1));
    config.check(segments, segment_bytes)?;
    let per_channel = segments as u32 / config.channels.max(1);
    let shape = ImageShape {
        hash_seed: runtime::random_u64(),
        image_bytes,
        segment_bytes,
        segments: per_channel * config.channels.max(1),
        channels: config.channels.max(1),
        partitions: 1 << config.partition_bits,
        expected_items: config.expected_items(flash_bytes),
    };
    Ok(Superblock::new(&shape, PLACEMENT))
}

fn check_image(superblock: &Superblock, device: u64) -> Result<(), OpenError> {
    let image = superblock.shape().image_bytes;
    if image != device {
        return Err(OpenError::Size { image, device });
    }
    if superblock.placement() != PLACEMENT {
        let found = superblock.placement().to_owned();
        return Err(OpenError::Placement {
            found,
            expected: PLACEMENT,
        });
    }
    Ok(())
}

/// The valid copy with the higher generation; `None` on a device that holds nothing.
async fn read_superblock(meta: &Region) -> Result<Option<Superblock>, OpenError> {
    if meta.len_bytes() < META_BYTES {
        return Ok(None);
    }
    let mut newest: Option<Superblock> = None;
    let mut refusal = OpenError::Foreign;
    // All of it is looked at: others have their first bytes elsewhere.
    let head = meta.read(0, AlignedBuf::new(META_BYTES as usize)).await?;
    let blank = head.iter().all(|&byte| byte == 0);
    for offset in SUPERBLOCK_OFFSETS {
        let bytes = &head[offset as usize..][..SUPERBLOCK_BYTES];
        if bytes.iter().all(|&byte| byte == 0) {
            continue;
        }
        match Superblock::decode(bytes) {
            Ok(found) => {
                let newer = newest.is_none_or(|known| found.generation > known.generation);
                if newer {
                    newest = Some(found);
                }
            }
            Err(FormatError::Version { found, expected }) => {
                refusal = OpenError::Version { found, expected };
            }
            // Others begin where the device does: what the second copy says is of no use then.
            Err(FormatError::Magic) if offset == 0 => return Err(OpenError::Foreign),
            Err(FormatError::Magic) => {}
            Err(_) => refusal = OpenError::Damaged,
        }
    }
    match newest {
        Some(found) => Ok(Some(found)),
        None if blank => Ok(None),
        None => Err(refusal),
    }
}

/// Writes the copy whose turn it is, and waits until it is durable.
async fn write_superblock(meta: &Region, superblock: &mut Superblock) -> Result<(), DeviceError> {
    let generation = superblock.generation.get() + 1;
    superblock.generation = generation.into();
    let mut bytes = AlignedBuf::new(SUPERBLOCK_BYTES);
    bytes.copy_from_slice(&superblock.encode());
    meta.write(SUPERBLOCK_OFFSETS[generation as usize % 2], bytes.into())
        .await?;
    meta.sync().await
}
