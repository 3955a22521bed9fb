//! Opening an image, or creating one.

use std::sync::Arc;

use device::{Disk, Journal as Log, Region, WriteLimit};
use runtime::pages::PagePool;
use runtime::sync::{Notify, Semaphore};

use super::{SEQUENCE_RESERVE, VERSION_RESERVE};
use crate::admission::Gate;
use crate::cache::{Engine, Requests};
use crate::config::EngineConfig;
use crate::counter::CacheLine;
use crate::durability::dead::{DeadCopies, StartBounds};
use crate::durability::error::{Distrust, IndexDeviceError, OpenError};
use crate::durability::find::{LastRun, find, look_at_journal};
use crate::durability::flush::FlushCutoffs;
use crate::durability::index_device::{IndexDevice, IndexDeviceNeed, OpenIndexDevice};
use crate::durability::journal::{Journal, Unusable, ring_chunks};
use crate::durability::medium::Medium;
use crate::durability::recovery::RecoveryQueue;
use crate::durability::superblocks::{
    CheckpointCounters, Persistence, SUPERBLOCK_OFFSETS, Start, read_superblock, write_superblock,
};
use crate::flash::{FlashTier, Indexed, fixed_bytes};
use crate::format::checkpoint::{Coverage, Section};
use crate::format::index_device::INDEX_HEAD_BYTES;
use crate::format::item::CLOCK_HIGHEST;
use crate::format::journal::{BEGUN_WORD, Head, Record, VOID_WORD, chunk_words};
use crate::format::segment::PAGE_BYTES;
use crate::format::superblock::{ImageShape, IndexRegion, Superblock, next_run, run_number};
use crate::key::KeyHash;
use crate::partition::{self, Partition};
use crate::placement::{IndexSizes, Parts};
use crate::reclaim::{IndexUse, ReturnToMemory, Upkeep, UpkeepPlan};
use crate::settings::{AfterDowntime, ConfigError, Dram, META_BYTES};
use crate::store::{SegmentId, SegmentStore, StoreConfig};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// The dead set of an earlier run may take the memory divided by this, until recovery ends.
const DEAD_SHARE: u64 = 4;
/// The DRAM tier keeps at least the memory divided by this, however large the index.
const LEAST_TIER_SHARE: u64 = 16;
/// Bytes of the smallest chunk of the DRAM tier.
const LEAST_CHUNK_BYTES: u64 = 4 << 10;

/// Each of the two page pools, of the DRAM tier and of the index, keeps at most the memory divided by this for reuse.
const KEPT_SHARE: u64 = 256;

/// Returns the bytes that each page pool keeps in the process when its pages are given back.
fn kept_bytes(config: &EngineConfig) -> u64 {
    config.memory_bytes / KEPT_SHARE
}

/// Division of the memory.
struct Budget {
    /// Bytes of the flash tier that never change.
    flash_bytes: u64,
    /// Bytes that the index may take, and bytes that are left for it.
    index_bytes: u64,
    index_room_bytes: u64,
    /// Limits of the state that the start reads into memory.
    bounds: StartBounds,
    sizes: IndexSizes,
}

/// An engine that is about to be opened.
pub struct Opening {
    medium: Medium,
    config: EngineConfig,
    index_device: Option<OpenIndexDevice>,
}

impl Opening {
    /// Prepares to open the image on `medium`, with the placement that `config` names.
    pub fn new(medium: impl Into<Medium>, config: EngineConfig) -> Self {
        Self {
            medium: medium.into(),
            config,
            index_device: None,
        }
    }

    /// Sets a device of its own for the part of the index that is overwritten in place. `open` opens it once its
    /// required size is known; it returns `None` if there is no device and none may be created.
    #[must_use]
    pub fn with_index_device(
        mut self,
        open: impl FnOnce(IndexDeviceNeed) -> Result<Option<Arc<dyn Disk>>, device::OpenError>
        + Send
        + 'static,
    ) -> Self {
        self.index_device = Some(Box::new(open));
        self
    }

    /// Sets an open device for the part of the index that is overwritten in place.
    #[must_use]
    pub fn with_index_disk(self, disk: Arc<dyn Disk>) -> Self {
        self.with_index_device(move |_| Ok(Some(disk)))
    }

    /// Opens the image with its `journal`, or creates one. The journal is opened once it is clear that the image can
    /// be. If this fails with any error but [`OpenError::Device`], nothing on either has been written. The background
    /// tasks find the items of an earlier run again: see [`recovered`](Engine::recovered).
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(
        mut self,
        journal: impl FnOnce() -> Result<Arc<dyn Log>, device::JournalError>,
    ) -> Result<Arc<Engine>, OpenError> {
        let limit = self.config.flash_write_limit;
        let limit = limit.map(|bytes_per_s| Arc::new(WriteLimit::new(bytes_per_s)));
        if let Some(limit) = &limit {
            self.medium = self.medium.limited(limit);
        }
        let meta = self.medium.meta()?;
        let (mut superblock, new, mut index_device) = self.image(&meta).await?;
        let shape = superblock.shape();
        let partition_bits = shape.partitions.trailing_zeros();
        self.config
            .check(u64::from(shape.segments), shape.segment_bytes)?;
        let description = self.config.placement.describe();
        let dead_copies = description.dead_copies;
        if dead_copies != DeadCopies::Located {
            self.config.check_in_order_of_age()?;
        }
        let is_new = new.is_some();
        let index_region = self.index_region(&shape, index_device.as_ref())?;
        let log = journal()?;
        let usable = look_at_journal(&*log, &superblock, is_new, self.config.force)?;
        let store = self.store(&superblock)?;
        // Checked before anything is read that takes memory.
        let flash_bytes = u64::from(shape.segments) * u64::from(shape.segment_bytes);
        let gate = Box::new(Gate::new(
            self.config.admission,
            self.config.memory_bytes,
            flash_bytes,
        ));
        let budget = self.budget(&shape, &store, &*log, &gate)?;
        let now = runtime::unix_seconds();
        let (mut last_run, mut start) = match new {
            Some(new) => (None, new),
            None => match self
                .last_run(&store, &*log, &mut superblock, (usable, budget.bounds), now)
                .await
            {
                Ok(last_run) => {
                    let (items, orderly) = (last_run.items(), superblock.is_clean());
                    (Some(last_run), Start::Warm { items, orderly })
                }
                Err(why) => (None, Start::Empty(why)),
            },
        };
        // Set up before anything is written, since it may fail.
        let index_use = Arc::new(IndexUse::new(
            budget.index_bytes,
            budget.index_room_bytes + self.config.lendable_bytes,
        ));
        let items_to_restore = last_run.as_ref().map_or(0, |last| {
            let dead_bytes = last.dead.memory_bytes();
            let beside_it = budget
                .sizes
                .items_in(budget.index_bytes.saturating_sub(dead_bytes));
            Some(last.items_expected())
                .filter(|&items| items as u64 <= beside_it)
                .unwrap_or(0)
        });
        let section = last_run.as_mut().and_then(|last| last.dead.section.take());
        let journal_slot = Arc::default();
        let open = |section: Option<Section>| {
            let (clock, checkpoint_wanted) = (Arc::default(), Arc::default());
            let placement = self.config.placement.open(Parts {
                image: shape.hash_seed,
                codec: store.codec,
                store: Arc::clone(&store),
                pool: Arc::new(PagePool::new(kept_bytes(&self.config) as usize)),
                partition_bits,
                expected_items: shape.expected_items,
                items_to_restore,
                index_use: Arc::clone(&index_use),
                index_region: index_region.clone(),
                index_is_apart: matches!(shape.index_region, IndexRegion::Apart(_)),
                discard: self.config.writing.discard,
                settings: self.config.index,
                section: section.filter(|section| *section != Section::default()),
                journal: Arc::clone(&journal_slot),
                checkpoint_wanted: Arc::clone(&checkpoint_wanted),
                clock: Arc::clone(&clock),
            })?;
            Ok::<_, OpenError>(Indexed {
                placement,
                description: description.clone(),
                clock,
                checkpoint_wanted,
            })
        };
        let mut indexed = open(section)?;
        let outdated = match &mut last_run {
            Some(last) if dead_copies == DeadCopies::BySection => {
                outdated(last, superblock.version_limit.get())
            }
            _ => Vec::new(),
        };
        if let Err(error) = indexed.placement.load(outdated).await {
            tracing::warn!(%error, "the saved index of the last run cannot be used");
            indexed = open(None)?;
            indexed.placement.load(Vec::new()).await?;
            (last_run, start) = (None, Start::Empty(Distrust::Index));
        }
        let first_version = superblock.version_limit.get();
        let known_clock = last_run.as_ref().map_or(0, |last_run| last_run.dead.clock);
        let journal = begin_run(
            log,
            (&meta, index_device.as_mut()),
            &mut superblock,
            last_run.as_ref().map(|last_run| last_run.dead.floor()),
            now.max(known_clock),
            &store,
        )
        .await?;
        let _ = journal_slot.set(Arc::clone(&journal));
        let cutoffs = Arc::new(FlushCutoffs::new(partition_bits));
        let partitions = shape.partitions as usize;
        let (recovery, checkpoint) = match last_run {
            Some(last_run) => take_over(
                last_run,
                (&store, &journal, &cutoffs),
                (now, first_version),
                self.config.memory_bytes,
            ),
            None => (
                RecoveryQueue::new(Vec::new(), &Coverage::default(), None, 0, partitions, 0),
                None,
            ),
        };
        let upkeep = Upkeep::new(
            store,
            journal,
            cutoffs,
            recovery,
            index_use,
            UpkeepPlan {
                dead_copies,
                demaps_by_itself: description.demaps_by_itself,
                reclaim: self.config.reclaim,
                writers: self.config.writing.writers,
                spare_buffers: self.config.spare_buffers(),
                for_stop: self.config.segments_for_stop(shape.segment_bytes),
            },
        );
        let flash = FlashTier::new(upkeep, indexed, partition_bits, budget.flash_bytes, limit);
        let persistence = Persistence {
            meta,
            checkpoint: Mutex::new(checkpoint),
            perhaps_named: Mutex::default(),
            stopped: AtomicBool::new(false),
            saved: AtomicBool::new(false),
            stopping: Notify::new(),
            checkpointing: AtomicBool::new(false),
            checkpointed: Notify::new(),
            start,
            counters: CheckpointCounters::default(),
            superblock: Mutex::new(superblock),
            superblock_turn: Semaphore::new(1),
        };
        let engine = assemble(
            flash,
            (self.config, gate),
            &shape,
            first_version,
            persistence,
        );
        let engine = Arc::new(engine);
        let memory: std::sync::Weak<dyn ReturnToMemory> = Arc::downgrade(&engine) as _;
        let _ = engine.flash.upkeep.memory.set(memory);
        Ok(engine)
    }

    /// Returns the superblock of the existing image, or of a new one with the reason for it, and the index device.
    async fn image(
        &mut self,
        meta: &Region,
    ) -> Result<(Superblock, Option<Start>, Option<IndexDevice>), OpenError> {
        let found = match read_superblock(meta).await {
            Ok(Some(found)) => self.check_image(&found).map(|()| Some(found)),
            other => other,
        };
        let (found, start) = match found {
            Ok(Some(found)) => (Some(found), Start::Forced),
            Ok(None) => (None, Start::New),
            Err(refused) => self.is_forced(refused).map(|()| (None, Start::Forced))?,
        };
        let device = self.open_index_device(found.as_ref()).await?;
        if let Some(found) = found {
            let checked = match (found.shape().index_region, &device) {
                (IndexRegion::Apart(bytes), Some(device)) => device.check(&found, bytes),
                _ => Ok(()),
            };
            match checked {
                Ok(()) => return Ok((found, None, device)),
                Err(refused) => self.is_forced(refused.into())?,
            }
        }
        Ok((self.new_image(device.as_ref())?, Some(start), device))
    }

    /// Returns `Ok` if the settings permit a new image in spite of the error `refused`; otherwise returns the error.
    fn is_forced(&self, refused: OpenError) -> Result<(), OpenError> {
        let is_lost_if_asked = match refused {
            OpenError::Device(_) => false,
            OpenError::FileSystem { .. }
            | OpenError::IndexDevice(IndexDeviceError::FileSystem { .. }) => {
                self.config.overwrite_filesystem
            }
            _ => self.config.force,
        };
        if is_lost_if_asked {
            Ok(())
        } else {
            Err(refused)
        }
    }

    /// Opens the index device, of the existing image or of a new one.
    async fn open_index_device(
        &mut self,
        found: Option<&Superblock>,
    ) -> Result<Option<IndexDevice>, OpenError> {
        let Some(open) = self.index_device.take() else {
            return Ok(None);
        };
        let region_bytes = match found.map(|found| found.shape().index_region) {
            Some(IndexRegion::Apart(bytes)) => bytes,
            _ => self.least_region_bytes()?,
        };
        if region_bytes == 0 {
            let placement = self.config.placement.describe().name;
            return Err(OpenError::IndexInMemory { placement });
        }
        let need = IndexDeviceNeed {
            may_be_new: found.is_none() || self.config.force,
            bytes: INDEX_HEAD_BYTES + region_bytes,
        };
        match open(need).map_err(OpenError::IndexFile)? {
            Some(disk) => Ok(Some(IndexDevice::read(disk).await?)),
            None => {
                let image = found.map_or(0, |found| found.shape().hash_seed);
                Err(IndexDeviceError::Missing { image }.into())
            }
        }
    }

    /// Returns the bytes that the index of a new image overwrites in place, on a device of its own.
    fn least_region_bytes(&self) -> Result<u64, ConfigError> {
        let bytes = self.index_sizes(0, None)?.region_bytes;
        Ok(bytes.next_multiple_of(PAGE_BYTES.into()))
    }

    /// Sizes of the index of an image on the medium, with segments of `flash_bytes` in all.
    fn index_sizes(
        &self,
        flash_bytes: u64,
        expected_items: Option<u64>,
    ) -> Result<IndexSizes, ConfigError> {
        let image_bytes = self.medium.image_bytes();
        let room = self
            .config
            .index_room(image_bytes, flash_bytes, expected_items);
        self.config.placement.sizes(&room)
    }

    fn new_image(&self, index_device: Option<&IndexDevice>) -> Result<Superblock, OpenError> {
        let (medium, config) = (&self.medium, &self.config);
        let image_bytes = medium.image_bytes();
        let wanted = self.index_sizes(0, None)?.region_bytes;
        let index_region = match (index_device, wanted) {
            (Some(device), _) => {
                let needed = self.least_region_bytes()?;
                let is_forced = config.force;
                device.check_new(
                    (image_bytes, needed),
                    is_forced,
                    config.overwrite_filesystem,
                )?;
                IndexRegion::Apart(device.region_bytes())
            }
            (None, 0) => IndexRegion::None,
            (None, _) if matches!(medium, Medium::Flash { .. }) => {
                return Err(OpenError::IndexNeedsDevice);
            }
            (None, bytes) => IndexRegion::Inside(bytes.next_multiple_of(META_BYTES)),
        };
        let before_segments = META_BYTES + index_region.inside_bytes();
        let flash_bytes = image_bytes.saturating_sub(before_segments);
        let chosen = config.choose_segment_bytes(flash_bytes);
        let (segment_bytes, segments, channels) = medium.segments(chosen, flash_bytes);
        config.check(u64::from(segments), segment_bytes)?;
        let shape = ImageShape {
            hash_seed: runtime::random_u64(),
            image_bytes,
            segment_bytes,
            segments,
            channels,
            partitions: 1 << config.partition_bits,
            expected_items: self.index_sizes(flash_bytes, None)?.expected_items,
            index_region,
        };
        let mut superblock = Superblock::new(&shape, config.placement.describe().name);
        // A random number, far from the numbers of an earlier image here: its segments, left by lost writes, must not
        // verify.
        superblock.sequence_limit = (1 + (runtime::random_u64() >> 8)).into();
        superblock.floor_sequence = superblock.sequence_limit;
        Ok(superblock)
    }

    fn check_image(&self, superblock: &Superblock) -> Result<(), OpenError> {
        let shape = superblock.shape();
        self.medium.check(&shape)?;
        let expected = self.config.placement.describe().name;
        if superblock.placement() != expected {
            let found = superblock.placement().to_owned();
            return Err(OpenError::Placement { found, expected });
        }
        if !superblock.has_left(VERSION_RESERVE, SEQUENCE_RESERVE) {
            let starts = run_number(superblock.run.get());
            return Err(OpenError::UsedUp { starts });
        }
        let is_apart = matches!(shape.index_region, IndexRegion::Apart(_));
        if is_apart == self.index_device.is_some() {
            Ok(())
        } else {
            Err(OpenError::IndexFlash { is_apart })
        }
    }

    /// Returns the region that the index overwrites in place, if it has one. Writes nothing yet.
    fn index_region(
        &self,
        shape: &ImageShape,
        device: Option<&IndexDevice>,
    ) -> Result<Option<Region>, OpenError> {
        Ok(match (shape.index_region, device) {
            (IndexRegion::None, _) => None,
            (IndexRegion::Inside(bytes), _) => Some(self.medium.inside_index(bytes)?),
            (IndexRegion::Apart(bytes), Some(device)) => Some(device.region(bytes)?),
            (IndexRegion::Apart(_), None) => {
                return Err(OpenError::IndexFlash { is_apart: true });
            }
        })
    }

    fn store(&self, superblock: &Superblock) -> Result<Arc<SegmentStore>, OpenError> {
        let (config, shape) = (&self.config, superblock.shape());
        let streams = config.placement.describe().streams;
        let usual_write_bytes = self.medium.usual_write_bytes();
        let flash = self.medium.clone().flash(&shape, config.writing.discard)?;
        let store = SegmentStore::new(
            flash,
            streams.streams(shape.segment_bytes),
            &StoreConfig {
                buffers: config.writing.buffers,
                image: shape.hash_seed,
                first_sequence: superblock.sequence_limit.get(),
                large_read_bytes: config.large_read_bytes(),
                small_read_bytes: config.small_read_bytes(),
                write_bytes: config.writing.write_bytes.unwrap_or(usual_write_bytes),
                counts_reads: config.counts_reads(),
            },
        );
        Ok(Arc::new(store))
    }

    /// Divides the memory. Fails if it is not enough for an image of this shape.
    fn budget(
        &self,
        shape: &ImageShape,
        store: &SegmentStore,
        log: &dyn Log,
        gate: &Gate,
    ) -> Result<Budget, OpenError> {
        let (config, memory_bytes) = (&self.config, self.config.memory_bytes);
        let segments_bytes = u64::from(shape.segments) * u64::from(shape.segment_bytes);
        let mut room = config.index_room(
            shape.image_bytes,
            segments_bytes,
            Some(shape.expected_items),
        );
        room.partition_bits = shape.partitions.trailing_zeros();
        let sizes = config.placement.sizes(&room)?;
        let flash_bytes = fixed_bytes(store, log, shape.partitions) + sizes.working_bytes;
        let fixed_bytes =
            flash_bytes + config.read_bytes() + 2 * kept_bytes(config) + gate.memory_bytes();
        let chunk_bytes = match config.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => LEAST_CHUNK_BYTES,
            // The tier keeps no items.
            Dram::WriteBuffers { .. } => 0,
        };
        let partition_bytes = partition::least_bytes(chunk_bytes);
        let least_tier_bytes = u64::from(shape.partitions) * partition_bytes;
        let least_index_bytes = sizes.least_bytes;
        let needed = (fixed_bytes + least_tier_bytes).saturating_add(least_index_bytes);
        if needed > memory_bytes {
            return Err(ConfigError::Memory {
                given: memory_bytes,
                needed,
            }
            .into());
        }
        let tier_bytes = match config.dram {
            Dram::ItemCache | Dram::BeforeVictims | Dram::Filter => {
                least_tier_bytes.max(memory_bytes / LEAST_TIER_SHARE)
            }
            Dram::WriteBuffers { .. } => least_tier_bytes,
        };
        let taken = fixed_bytes + tier_bytes + config.lendable_bytes;
        let left = memory_bytes.saturating_sub(taken).max(least_index_bytes);
        // With less memory than the image was created with, the index needs more than its share.
        let index_bytes = room.max_index_bytes().max(least_index_bytes).min(left);
        Ok(Budget {
            flash_bytes,
            index_bytes,
            index_room_bytes: left,
            bounds: StartBounds {
                dead_bytes: left.min(memory_bytes / DEAD_SHARE),
                items: sizes.items_in(index_bytes),
            },
            sizes,
        })
    }

    /// Returns the state that the last run has left, unless it cannot be trusted.
    async fn last_run(
        &self,
        store: &Arc<SegmentStore>,
        log: &dyn Log,
        superblock: &mut Superblock,
        (usable, bounds): (Result<(), Unusable>, StartBounds),
        now: u32,
    ) -> Result<LastRun, Distrust> {
        usable?;
        let away = now.saturating_sub(Journal::clock(log));
        if self.config.max_downtime.is_some_and(|most| away > most) {
            if self.config.after_downtime == AfterDowntime::Empty {
                return Err(Distrust::Downtime);
            }
            superblock.stale_below = superblock.version_limit;
        }
        let last_run = find(store, log, superblock, bounds, &mut |_| {}).await?;
        let dead_copies = self.config.placement.describe().dead_copies;
        let goes_by_versions = matches!(
            dead_copies,
            DeadCopies::ByVersion | DeadCopies::LocatedLater
        );
        if goes_by_versions && !last_run.unreadable.is_empty() {
            // An unreadable segment may have had newer versions of items in other segments.
            return Err(Distrust::Unreadable);
        }
        let has_section = last_run.dead.section.as_ref();
        let is_lost = |section: &Section| *section == Section::default();
        if dead_copies == DeadCopies::BySection && has_section.is_some_and(is_lost) {
            return Err(Distrust::Index);
        }
        Ok(last_run)
    }
}

/// Returns the keys that were outdated after the last checkpoint, in an order that does not depend on the process.
fn outdated(last: &mut LastRun, version_limit: u64) -> Vec<(KeyHash, u64)> {
    last.dead.clamp_keys(version_limit);
    let mut outdated: Vec<(u64, u64)> = last.dead.outdated().collect();
    outdated.sort_unstable();
    let keys = outdated.into_iter();
    keys.map(|(hash, version)| (KeyHash(hash), version))
        .collect()
}

/// Begins a run: durably raises the reserved limits, and takes the journal over. The heads of the journal and of the
/// index device are written before the superblock: a journal whose head is one run ahead still holds all records.
/// Segments below `floor`, of the state taken over, are given up; without a floor the image starts empty.
async fn begin_run(
    log: Arc<dyn Log>,
    (meta, mut index_device): (&Region, Option<&mut IndexDevice>),
    superblock: &mut Superblock,
    floor: Option<u64>,
    clock: u32,
    store: &SegmentStore,
) -> Result<Arc<Journal>, OpenError> {
    let shape = superblock.shape();
    let starts_empty = floor.is_none();
    if starts_empty {
        Journal::renew_head(&*log);
    }
    let mut last_chunk = Journal::last_chunk(&*log, shape.hash_seed, shape.partitions);
    let last_run = superblock.run.get();
    let run = next_run(last_run, runtime::random_id());
    match floor {
        Some(floor) => {
            let floor = floor.max(superblock.floor_sequence.get());
            superblock.floor_sequence = floor.into();
        }
        None => {
            if last_run > 0 {
                // Unreadable chunks may have had higher numbers: up to a lap beyond the last number known from a sync
                // or a checkpoint.
                let known = last_chunk.max(superblock.journal_first.get());
                last_chunk = known + ring_chunks(&*log, shape.partitions);
            }
            superblock.start_empty(last_chunk + 1);
        }
    }
    superblock.run = run.into();
    superblock.mark_clean(false);
    superblock.version_limit = (superblock.version_limit.get() + VERSION_RESERVE).into();
    superblock.sequence_limit = (superblock.sequence_limit.get() + SEQUENCE_RESERVE).into();
    let head = Head {
        image: shape.hash_seed,
        chunk_words: chunk_words(shape.partitions) as u64,
        chunks: ring_chunks(&*log, shape.partitions),
        run,
    };
    let first_chunk = superblock.journal_first.get();
    let last_chunk = last_chunk.max(first_chunk - 1);
    if starts_empty && run > 1 {
        // The head makes the journal this image's. It stays void until the superblock says that the image is empty.
        log.store(VOID_WORD, 1);
    }
    Journal::write_head(&*log, head).await?;
    let index_bytes = match shape.index_region {
        IndexRegion::Apart(bytes) => bytes,
        IndexRegion::None | IndexRegion::Inside(_) => 0,
    };
    if let Some(device) = &mut index_device {
        device.tell(superblock, index_bytes, false).await?;
    }
    // Both copies, so that no copy keeps limits that have been passed.
    for _ in SUPERBLOCK_OFFSETS {
        write_superblock(meta, superblock).await?;
    }
    if let Some(device) = index_device {
        device.tell(superblock, index_bytes, true).await?;
    }
    // From here on superblock and journal both name this run, so that a flash put back to an earlier state is detected.
    log.store(BEGUN_WORD, run);
    if starts_empty {
        Journal::start_empty(&*log);
    }
    let journal = Journal::take_over(
        log,
        shape.hash_seed,
        shape.partitions,
        (first_chunk, last_chunk),
        store.appender().next_sequence(),
    );
    // Not before: until here this start has not happened, and the downtime goes on. The clock has to be durable:
    // recovery does not record as dead the items that it finds expired or flushed by now, and they must stay dead if
    // the clock is set back. The second sync makes durable how far the first one has reached, so that later starts
    // expect the records found now.
    journal.sync(clock).await?;
    journal.sync(clock).await?;
    Ok(Arc::new(journal))
}

/// Takes over the state of the last run: the segments to recover, and the checkpoint in force.
fn take_over(
    mut last_run: LastRun,
    (store, journal, cutoffs): (&SegmentStore, &Journal, &FlushCutoffs),
    (now, first_version): (u32, u64),
    memory_bytes: u64,
) -> (RecoveryQueue, Option<crate::store::SavedCheckpoint>) {
    let clock = last_run.apply_time(&*journal.log, now, first_version, cutoffs);
    for (partition, &cutoff) in (0u32..).zip(&last_run.dead.cutoffs) {
        if cutoff == first_version {
            // Without this record the next start would also flush the items that this run writes.
            journal.append(Record::Cutoff {
                partition,
                version: cutoff,
                chunk: 0,
            });
        }
    }
    for &SegmentId(segment) in &last_run.unreadable {
        journal.append(Record::Retired { segment });
    }
    let kept = last_run.checkpoint.as_ref();
    let kept = kept.map_or(&[][..], |checkpoint| &checkpoint.segments);
    let unreadable = last_run.unreadable.iter().copied();
    let retired = last_run.dead.retired().chain(unreadable);
    store.pool().adopt(&last_run.living, kept, retired);
    let covered = std::mem::take(&mut last_run.dead.covered);
    let partitions = last_run.dead.cutoffs.len();
    let LastRun {
        living,
        dead,
        checkpoint,
        ..
    } = last_run;
    let living_now = living.clone();
    let recovery = RecoveryQueue::new(
        living,
        &covered,
        Some(dead),
        clock,
        partitions,
        memory_bytes,
    );
    for record in &living_now {
        store
            .table()
            .count_all_in(record.segment, recovery.covered(record));
    }
    (recovery, checkpoint)
}

fn assemble(
    flash: FlashTier,
    (config, gate): (EngineConfig, Box<Gate>),
    shape: &ImageShape,
    first_version: u64,
    persistence: Persistence,
) -> Engine {
    let kept_bytes = kept_bytes(&config);
    let pool = Arc::new(PagePool::new(kept_bytes as usize));
    let fixed_bytes =
        flash.memory().fixed_bytes + config.read_bytes() + 2 * kept_bytes + gate.memory_bytes();
    let partitions = u64::from(shape.partitions);
    let tier_bytes = config.memory_bytes.saturating_sub(fixed_bytes) / partitions;
    // About sixteen chunks a partition, so that each eviction takes a small part of it.
    let chunk_bytes = (tier_bytes / 16).clamp(LEAST_CHUNK_BYTES, 64 << 10);
    let stale_below = persistence.superblock.lock().stale_below.get();
    let partition = |number| {
        let chunks = (1 << chunk_bytes.ilog2(), Arc::clone(&pool));
        let partition = Partition::new(chunks, first_version, number, partitions);
        CacheLine(Mutex::new(partition))
    };
    let clock_is_shared = flash.clock.is_shared();
    let has_priorities = config.placement.describe().streams.priorities() > 1;
    Engine {
        partitions: (0..partitions).map(partition).collect(),
        partition_bits: shape.partitions.trailing_zeros(),
        seed: shape.hash_seed,
        largest_body: config.largest_body().min(flash.largest_body),
        version_limit: AtomicU64::new(first_version + VERSION_RESERVE),
        stale_below,
        cutoffs: Arc::clone(&flash.upkeep.cutoffs),
        flushing: Mutex::new(()),
        journal: Arc::clone(&flash.upkeep.journal),
        flash: Arc::new(flash),
        fixed_bytes,
        clock_read: match clock_is_shared {
            true => CLOCK_HIGHEST,
            // The higher bit of the CLOCK value: the item has been read.
            false => CLOCK_HIGHEST - 1,
        },
        counts_reads: gate.counts_reads() || has_priorities,
        gate,
        config,
        persistence,
        syncs: Requests::default(),
        checkpoints: Requests::default(),
        write_stalls: AtomicU64::new(0),
        returning_nothing: AtomicUsize::new(0),
        next_to_shrink: AtomicUsize::new(0),
    }
}

impl Engine {
    /// Returns how the cache started.
    pub fn start(&self) -> Start {
        self.persistence.start
    }

    /// Resolves once all live items of the last run are found again. Until then a read may miss an item that flash has.
    pub async fn recovered(&self) {
        self.flash.recovered().await;
    }
}
