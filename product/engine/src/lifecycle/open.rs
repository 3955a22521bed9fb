//! Opening an image, or creating one.
//!
//! ```text
//!   Image: superblock, index device ─> Base: journal, store, memory ─> RunStart: the last run
//!     ─> IndexOpener: placement ─> begin_run: the first writes ─> take_over ─> stack_tiers
//! ```
//!
//! No step before `begin_run` writes the superblock, the journal, the head of the index device or a segment.

use std::ops::Range;
use std::sync::{Arc, Weak};

use device::{DeviceError, Disk, Journal as Log, LimitedJournal, WriteClass, WriteLimit};
use runtime::pages::PagePool;

use super::SEQUENCE_RESERVE;
use super::base::Base;
use super::budget::{LEAST_CHUNK_BYTES, kept_bytes};
use super::image::Image;
use super::index::IndexOpener;
use super::run_start::RunStart;
use crate::admission::Gate;
use crate::background::{Background, VERSION_RESERVE};
use crate::cache::Engine;
use crate::config::EngineConfig;
use crate::durability::clock::OldClocks;
use crate::durability::error::OpenError;
use crate::durability::find::LastRun;
use crate::durability::flush::FlushCutoffs;
use crate::durability::index_device::{IndexDeviceNeed, OpenIndexDevice};
use crate::durability::journal::{Journal, Unusable, head, last_chunk, ring_chunks};
use crate::durability::journal_place;
use crate::durability::medium::Medium;
use crate::durability::recovery::RecoveryQueue;
use crate::durability::superblocks::{SUPERBLOCK_OFFSETS, Start, write_superblock};
use crate::flash::FlashTier;
use crate::format::checkpoint::Coverage;
use crate::format::item::CLOCK_HIGHEST;
use crate::format::journal::{BEGUN_WORD, Head, Record, VOID_WORD, chunk_words};
use crate::format::superblock::{IndexRegion, Superblock, next_run};
use crate::partition::Partition;
use crate::reclaim::{IndexUse, Reclaimer, ReturnToMemory, Upkeep, UpkeepPlan};
use crate::store::{SavedCheckpoint, SegmentId, SegmentStore};
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::tiers::{MemoryShares, Partitions, Tiers, VersionMarks};

/// An engine that is about to be opened.
pub struct Opening {
    medium: Medium,
    config: EngineConfig,
    index_device: Option<OpenIndexDevice>,
    overwrites_image: bool,
}

impl Opening {
    /// Prepares to open the image on `medium`, with the placement that `config` names.
    pub fn new(medium: impl Into<Medium>, config: EngineConfig) -> Self {
        Self {
            medium: medium.into(),
            config,
            index_device: None,
            overwrites_image: false,
        }
    }

    /// Sets whether a new image is made in the place of the one on the medium, which has lost a part.
    #[must_use]
    pub fn overwriting_image(mut self, yes: bool) -> Self {
        self.overwrites_image = yes;
        self
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
        let write_limit = self.config.flash_write_limit.map(WriteLimit::new);
        let write_limit = write_limit.map(Arc::new);
        let index_device = self.index_device.take();
        let medium = self
            .medium
            .limited(write_limit.as_ref(), WriteClass::Checkpoint);
        let image = Image::find(&medium, &self.config, index_device, self.overwrites_image);
        let mut image = Box::pin(image).await?;
        let journal = || {
            let log = journal()?;
            Ok(match &write_limit {
                Some(limit) => Arc::new(LimitedJournal::new(log, Arc::clone(limit))),
                None => log,
            })
        };
        let base = Base::new(
            &self.medium,
            write_limit.as_ref(),
            &self.config,
            &image,
            journal,
        )?;
        let mut run = RunStart::find(&self.config, &base, &mut image).await;
        image.check_syncs(&self.medium).await?;
        // Set up before anything else is written, since it may fail.
        let opener = IndexOpener::new(&self.config, &base, &run);
        let indexed = opener.open_loaded(&mut run).await?;
        tell_of_losses(run.start, base.usable);
        let journal = begin_run(Arc::clone(&base.log), &mut image, &run, &base.store).await?;
        let index_use = opener.index_use;
        let _ = opener.journal.set(Arc::clone(&journal));
        let (start, first_version) = (run.start, run.first_version);
        let (reclaimer, checkpoint) =
            self.reclaimer(&base, journal, index_use, run, &image.superblock);
        let flash = FlashTier::new(
            reclaimer,
            indexed,
            base.partition_bits(),
            base.budget.flash_bytes,
            write_limit,
        );
        let flash = Arc::new(flash);
        let tiers = Arc::new(stack_tiers(
            &flash,
            &self.config,
            base.gate,
            &image.superblock,
            first_version,
        ));
        let memory: Weak<dyn ReturnToMemory> = Arc::downgrade(&tiers) as _;
        flash.upkeep.free_segments.memory.set(memory);
        let background = Background::new(
            &tiers,
            &self.config,
            image.meta,
            image.superblock,
            checkpoint,
        );
        Ok(Arc::new(Engine::new(tiers, self.config, start, background)))
    }

    /// Makes the parts that write segments and reclaim them, from the state that the run takes over. Also returns the
    /// checkpoint in force.
    fn reclaimer(
        &self,
        base: &Base,
        journal: Arc<Journal>,
        index_use: Arc<IndexUse>,
        run: RunStart,
        superblock: &Superblock,
    ) -> (Reclaimer, Option<SavedCheckpoint>) {
        let (config, store) = (&self.config, Arc::clone(&base.store));
        let cutoffs = Arc::new(FlushCutoffs::new(base.partition_bits()));
        let (recovery, checkpoint) = match run.last_run {
            Some(last_run) => take_over(
                last_run,
                OldClocks {
                    first_version: run.first_version,
                    second: run.clock.second,
                    ahead: superblock.old_clocks(),
                },
                &store,
                &journal,
                &cutoffs,
                config.memory_bytes,
            ),
            None => {
                let partitions = base.shape.partitions as usize;
                let covered = Coverage::default();
                let recovery = RecoveryQueue::new(Vec::new(), &covered, None, 0, partitions, 0);
                (recovery, None)
            }
        };
        let plan = UpkeepPlan {
            dead_copies: base.description.dead_copies,
            demaps_by_itself: base.description.demaps_by_itself,
            reclaim: config.reclaim,
            writers: config.writing.writers,
            spare_buffers: config.spare_buffers(),
            for_stop: config.segments_for_stop(base.shape.segment_bytes),
            hash_seed: base.shape.hash_seed,
        };
        let upkeep = Upkeep::new(store, journal, cutoffs, recovery, index_use, &plan);
        (Reclaimer::new(Arc::new(upkeep), &plan), checkpoint)
    }
}

/// Warns of a start that loses the content of flash or journal, before anything is written.
fn tell_of_losses(start: Start, journal: Result<(), Unusable>) {
    match start {
        Start::Warm { .. } => {}
        Start::Empty(why) => tracing::warn!("the cache starts empty: {why}"),
        Start::Forced => {
            tracing::warn!(
                "the cache starts empty: the content of the flash is overwritten, as allowed"
            );
        }
        Start::New => {
            if let Err(why @ (Unusable::Other | Unusable::Void | Unusable::Damaged)) = journal {
                tracing::warn!(
                    "the cache starts empty: the flash is new and its journal is not: {why}. If this journal is that of a \
                     flash file that has gone, its items have gone, too"
                );
            }
        }
    }
}

/// Begins a run: durably raises the reserved limits, and takes the journal over. Segments below the floor of the state
/// taken over are given up; without such a state the image starts empty.
async fn begin_run(
    log: Arc<dyn Log>,
    image: &mut Image,
    start: &RunStart,
    store: &SegmentStore,
) -> Result<Arc<Journal>, OpenError> {
    let shape = image.superblock.shape();
    let (floor, clock) = (start.floor(), start.clock);
    let starts_empty = floor.is_none();
    if starts_empty {
        head::renew(&*log);
    }
    let kept = raise_limits(&*log, &mut image.superblock, floor);
    let mut failure = write_heads(&*log, image, starts_empty).await?;
    if let Some(path) = log.origin().path
        && image.journal_place.as_ref() != Some(&path)
    {
        journal_place::write(&image.meta, shape.image_id, &path).await?;
    }
    if !starts_empty && clock.begins_anew {
        // No crash may leave the clock of earlier runs with a run that has begun.
        head::forget_clock(&*log);
    }
    // From here on superblock and journal both name this run, so that a flash put back to an earlier state is detected.
    log.store(BEGUN_WORD, image.superblock.run.get());
    if starts_empty {
        head::start_empty(&*log);
    }
    if starts_empty || clock.begins_anew {
        // The superblock has the difference, or no item that goes by the clock of an earlier run.
        head::set_clock(&*log, clock.second);
    }
    let journal = Journal::take_over(
        log,
        shape.image_id,
        image.superblock.run.get(),
        shape.partitions,
        kept,
        store.appender().next_sequence(),
    );
    // Not before: until here this start has not happened, and the downtime goes on. The clock has to be durable:
    // recovery does not record as dead the items that it finds expired or flushed by now, and they must stay dead if
    // the clock is set back. The second sync makes durable how far the first one has reached, so that later starts
    // expect the records found now.
    for _ in 0..2 {
        if failure.is_none() {
            failure = journal.sync(clock.second).await.err();
        }
    }
    if let Some(error) = failure {
        // The cache serves without a journal. The superblock says so before any record can be missed.
        if !image.superblock.is_journal_void() {
            image.superblock.mark_journal_void(true);
            write_copies(image).await?;
        }
        journal.lose(&format!("the journal cannot be written ({error})"));
        journal.note_void_durable(true);
    }
    Ok(Arc::new(journal))
}

/// Names the run in the superblock in memory, and raises the limits and the floor there. Returns the chunks of the
/// journal that stay.
fn raise_limits(log: &dyn Log, superblock: &mut Superblock, floor: Option<u64>) -> Range<u64> {
    let shape = superblock.shape();
    let mut last_chunk = last_chunk(log, shape.image_id, shape.partitions);
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
                last_chunk = known + ring_chunks(log, shape.partitions);
            }
            superblock.start_empty(last_chunk + 1);
        }
    }
    superblock.run = run.into();
    superblock.mark_clean(false);
    superblock.version_limit = (superblock.version_limit.get() + VERSION_RESERVE).into();
    superblock.sequence_limit = (superblock.sequence_limit.get() + SEQUENCE_RESERVE).into();
    let first_chunk = superblock.journal_first.get();
    first_chunk..last_chunk.max(first_chunk - 1) + 1
}

/// Durably writes the heads of the journal and of the index device, and the superblock. The heads are written before
/// the superblock: a journal whose head is one run ahead still holds all records. Returns the error of a journal that
/// cannot be written, which the superblock calls void then.
async fn write_heads(
    log: &dyn Log,
    image: &mut Image,
    starts_empty: bool,
) -> Result<Option<DeviceError>, OpenError> {
    let superblock = &mut image.superblock;
    let (shape, run) = (superblock.shape(), superblock.run.get());
    let head = Head {
        image: shape.image_id,
        chunk_words: chunk_words(shape.partitions) as u64,
        chunks: ring_chunks(log, shape.partitions),
        run,
    };
    if starts_empty && run > 1 {
        // The head makes the journal this image's. It stays void until the superblock says that the image is empty.
        log.store(VOID_WORD, 1);
    }
    let failure = head::write(log, head).await.err();
    if failure.is_some() {
        superblock.mark_journal_void(true);
    }
    let index_bytes = match shape.index_region {
        IndexRegion::Apart(bytes) => bytes,
        IndexRegion::None | IndexRegion::Inside(_) => 0,
    };
    if let Some(device) = &mut image.index_device {
        device.tell(superblock, index_bytes, false).await?;
    }
    write_copies(image).await?;
    if let Some(device) = &mut image.index_device {
        device.tell(&image.superblock, index_bytes, true).await?;
    }
    Ok(failure)
}

/// Durably writes both copies of the superblock, so that no copy keeps limits that have been passed.
async fn write_copies(image: &mut Image) -> Result<(), DeviceError> {
    for _ in SUPERBLOCK_OFFSETS {
        write_superblock(&image.meta, &mut image.superblock).await?;
    }
    Ok(())
}

/// Takes over the state of the last run: the segments to recover, and the checkpoint in force.
fn take_over(
    mut last_run: LastRun,
    clocks: OldClocks,
    store: &SegmentStore,
    journal: &Journal,
    cutoffs: &FlushCutoffs,
    memory_bytes: u64,
) -> (RecoveryQueue, Option<SavedCheckpoint>) {
    let pending = last_run.apply_time(clocks, cutoffs);
    let mut is_flushed = false;
    for (partition, &cutoff) in (0u32..).zip(&last_run.dead.cutoffs) {
        if cutoff == clocks.first_version {
            // Without this record the next start would also flush the items that this run writes.
            is_flushed = true;
            journal.append(Record::Cutoff {
                partition,
                version: cutoff,
                chunk: 0,
            });
        }
    }
    if let Some(deadline) = pending.filter(|_| is_flushed) {
        // The partitions have applied an earlier flush, not the pending one.
        journal.append(Record::FlushAt {
            deadline,
            chunk: 0,
            replaces_come: false,
        });
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
        clocks.second,
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

/// Puts the DRAM tiers of all partitions above the flash tier.
fn stack_tiers(
    flash: &Arc<FlashTier>,
    config: &EngineConfig,
    gate: Box<Gate>,
    superblock: &Superblock,
    first_version: u64,
) -> Tiers {
    let shape = superblock.shape();
    let kept_bytes = kept_bytes(config);
    let pool = Arc::new(PagePool::new(kept_bytes as usize));
    let fixed_bytes = flash.memory().fixed_bytes
        + config.read_bytes()
        + 2 * kept_bytes
        + gate.memory_bytes()
        + VersionMarks::memory_bytes(shape.partitions);
    let partitions = u64::from(shape.partitions);
    let tier_bytes = config.memory_bytes.saturating_sub(fixed_bytes) / partitions;
    // About sixteen chunks a partition, so that each eviction takes a small part of it.
    let chunk_bytes = 1 << (tier_bytes / 16).clamp(LEAST_CHUNK_BYTES, 64 << 10).ilog2();
    let shares = MemoryShares::new(
        flash,
        config.memory_bytes,
        fixed_bytes,
        partitions,
        chunk_bytes,
    );
    let partition = |number| {
        Partition::new(
            chunk_bytes,
            Arc::clone(&pool),
            Arc::clone(shares.large()),
            first_version,
            number,
            partitions,
        )
    };
    let clock_is_shared = flash.clock.is_shared();
    let has_priorities = config.placement.describe().streams.priorities() > 1;
    Tiers {
        partitions: Partitions::new((0..partitions).map(partition), flash),
        shares,
        dram: config.dram,
        seed: shape.hash_seed,
        largest_body: config.largest_body().min(flash.largest_body),
        version_limit: AtomicU64::new(first_version + VERSION_RESERVE),
        stale_below: superblock.stale_below.get(),
        flash: Arc::clone(flash),
        clock_read: match clock_is_shared {
            true => CLOCK_HIGHEST,
            // The higher bit of the CLOCK value: the item has been read.
            false => CLOCK_HIGHEST - 1,
        },
        counts_reads: gate.counts_reads() || has_priorities,
        gate,
        returning_nothing: AtomicUsize::new(0),
    }
}
