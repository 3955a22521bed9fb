//! Opening.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use device::Journal as Log;
use parking_lot::Mutex;
use runtime::sync::Notify;

use super::find::{find, look_at_journal};
use super::superblocks::{SUPERBLOCK_OFFSETS, read_superblock, write_superblock};
use super::{
    CheckpointCounters, Distrust, Lifecycle, Medium, OpenError, PLACEMENT, SEQUENCE_RESERVE, Start,
    VERSION_RESERVE,
};
use crate::cache::{CacheLine, Engine};
use crate::config::{AfterDowntime, Dram, EngineConfig, META_BYTES, MemorySplit, PlacementConfig};
use crate::format::journal::{Head, Record};
use crate::format::superblock::{Cleanliness, ImageShape, Superblock};
use crate::horizon::Horizon;
use crate::journal::{Journal, chunk_words, ring_chunks};
use crate::partition::Partition;
use crate::placement::Placement;
use crate::placement::exact::{Exact, ExactConfig, ReclaimConfig};
use crate::store::{SegmentId, SegmentStore, StoreConfig};

impl Engine {
    /// Opens the image on `medium` with its `journal`, or makes one there. The journal is opened once it
    /// is clear that the image can be. Nothing on either has been touched when this fails with
    /// anything but [`OpenError::Device`]. What an earlier run has left is found again by the
    /// background tasks: see [`recovered`](Engine::recovered).
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(
        medium: impl Into<Medium>,
        journal: impl FnOnce() -> Result<Arc<dyn Log>, device::JournalError>,
        config: EngineConfig,
    ) -> Result<Arc<Self>, OpenError> {
        let medium = medium.into();
        let meta = medium.meta()?;
        let (mut superblock, new) = match read_superblock(&meta).await {
            Ok(Some(found)) => match check_image(&found, &medium) {
                Ok(()) => (found, None),
                Err(_) if config.force => (new_image(&medium, &config)?, Some(Start::Forced)),
                Err(refused) => return Err(refused),
            },
            Ok(None) => (new_image(&medium, &config)?, Some(Start::New)),
            Err(OpenError::Device(error)) => return Err(error.into()),
            Err(_) if config.force => (new_image(&medium, &config)?, Some(Start::Forced)),
            Err(refused) => return Err(refused),
        };
        let shape = superblock.shape();
        config.check(u64::from(shape.segments), shape.segment_bytes)?;
        let log = journal()?;
        let usable = look_at_journal(&*log, &superblock, new.is_some(), config.force)?;
        let usual_write_bytes = medium.usual_write_bytes();
        let flash = medium.flash(&shape, config.writing.discard)?;
        let first_sequence = superblock.sequence_limit.get();
        let first_version = superblock.version_limit.get();
        let PlacementConfig::Exact(settings) = config.placement;
        let store = Arc::new(SegmentStore::new(
            flash,
            &StoreConfig {
                buffers: config.writing.buffers,
                image: shape.hash_seed,
                first_sequence,
                large_read_bytes: config.large_read_bytes(),
                layout: settings.layout,
                write_bytes: config.writing.write_bytes.unwrap_or(usual_write_bytes),
                counts_reads: config.counts_reads(),
            },
        ));
        let now = runtime::unix_seconds();
        let away = usable.map(|()| now.saturating_sub(Journal::clock(&*log)));
        let found = match (new, away) {
            (Some(_), _) => Err(None),
            (None, Err(unusable)) => Err(Some(Distrust::Journal(unusable))),
            (None, Ok(away)) => {
                let too_long = config.max_downtime.is_some_and(|most| away > most);
                if too_long && config.after_downtime == AfterDowntime::Empty {
                    Err(Some(Distrust::Downtime))
                } else {
                    if too_long {
                        superblock.stale_below = first_version.into();
                    }
                    find(&store, &*log, &superblock, &mut |_| {})
                        .await
                        .map_err(Some)
                }
            }
        };
        let chunks = Journal::chunks(&*log, shape.hash_seed, shape.partitions, 1);
        let last_chunk = chunks.last().map_or(0, |chunk| chunk.header.sequence);
        let orderly = superblock.cleanliness() == Cleanliness::Clean;
        let start = match (&found, new) {
            (_, Some(new)) => new,
            (Err(why), None) => Start::Empty(why.unwrap_or(Distrust::JournalGap)),
            (Ok(found), None) => Start::Warm {
                items: found
                    .living
                    .iter()
                    .map(|record| u64::from(record.items))
                    .sum(),
                orderly,
            },
        };
        if found.is_err() {
            superblock.start_empty(last_chunk + 1);
        }
        let run = superblock.run.get() + 1;
        superblock.run = run.into();
        superblock.mark(Cleanliness::Dirty);
        superblock.version_limit = (first_version + VERSION_RESERVE).into();
        superblock.sequence_limit = (first_sequence + SEQUENCE_RESERVE).into();
        // The journal first: one that is a run ahead holds all that has been recorded.
        let head = Head {
            image: shape.hash_seed,
            chunk_words: chunk_words(shape.partitions) as u64,
            chunks: ring_chunks(&*log, shape.partitions),
            run,
        };
        let first_chunk = superblock.journal_first.get();
        let last_chunk = last_chunk.max(first_chunk - 1);
        Journal::write_head(&*log, head).await?;
        // Both copies, so that none is left whose limits have been passed.
        for _ in SUPERBLOCK_OFFSETS {
            write_superblock(&meta, &mut superblock).await?;
        }
        // Not before: until then this start has not happened, and the time away counts on.
        let known = found.as_ref().map_or(0, |found| found.dead.clock);
        Journal::write_clock(&*log, now.max(known)).await?;
        if found.is_err() {
            Journal::start_empty(&*log);
        }
        let journal = Arc::new(Journal::take_over(
            log,
            shape.hash_seed,
            shape.partitions,
            first_version,
            (first_chunk, last_chunk),
        ));
        let horizon = Arc::new(Horizon::new(shape.partitions.trailing_zeros()));
        let exact = ExactConfig {
            index_max_bytes: config.memory_bytes / 100 * u64::from(settings.index_percent),
            partition_bits: shape.partitions.trailing_zeros(),
            expected_items: shape.expected_items,
            schedule: config.reclaim.schedule,
            spare_buffers: match config.dram {
                Dram::ItemCache => None,
                Dram::WriteBuffers { spare_buffers } => spare_buffers,
            },
            writers: config.writing.writers,
            reclaimers: config.reclaim.reclaimers,
            reclaim: ReclaimConfig::new(&config, store.segments(), store.segment_bytes()),
        };
        let mut placement = Exact::new(
            Arc::clone(&store),
            Arc::clone(&horizon),
            Arc::clone(&journal),
            &exact,
        )?;
        let checkpoint = found.ok().and_then(|mut found| {
            let clock = found.settle(journal.log(), now, first_version, &horizon);
            for (partition, &cutoff) in found.dead.cutoffs.iter().enumerate() {
                if cutoff == first_version {
                    // Or the next start would flush what this run writes, too.
                    journal.append(Record::Cutoff {
                        partition: partition as u32,
                        version: cutoff,
                    });
                }
            }
            let kept: &[SegmentId] = found
                .checkpoint
                .as_ref()
                .map_or(&[], |checkpoint| &checkpoint.segments);
            for &SegmentId(segment) in &found.unreadable {
                journal.append(Record::Retired { segment });
            }
            let retired = found.dead.retired().chain(found.unreadable);
            store.adopt(&found.living, kept, retired);
            placement.recover(found.living, found.dead, clock, first_sequence);
            found.checkpoint
        });
        let lifecycle = Lifecycle {
            meta,
            checkpoint: Mutex::new(checkpoint),
            doubtful: Mutex::default(),
            stopped: AtomicBool::new(false),
            saved: AtomicBool::new(false),
            stopping: Notify::new(),
            checkpointing: AtomicBool::new(false),
            checkpointed: Notify::new(),
            start,
            stats: CheckpointCounters::default(),
            superblock: Mutex::new(superblock),
        };
        Ok(Arc::new(assemble(
            store,
            placement,
            horizon,
            journal,
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

    /// Resolves once everything of the last run that lives is found again. Until then a read may
    /// miss what is there.
    pub async fn recovered(&self) {
        self.placement.recovered().await;
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of an engine, once")]
fn assemble(
    store: Arc<SegmentStore>,
    placement: Exact,
    horizon: Arc<Horizon>,
    journal: Arc<Journal>,
    config: EngineConfig,
    shape: &ImageShape,
    first_version: u64,
    lifecycle: Lifecycle,
) -> Engine {
    let fixed = placement.memory().fixed_bytes + config.large_read_bytes();
    let partitions = u64::from(shape.partitions);
    let split = MemorySplit::new(&config, fixed, partitions);
    let stale_below = lifecycle.superblock.lock().stale_below.get();
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
        largest_body: config.largest_body().min(placement.largest_body()),
        version_limit: AtomicU64::new(first_version + VERSION_RESERVE),
        stale_below,
        placement: Arc::new(placement),
        store,
        horizon,
        journal,
        split,
        config,
        lifecycle,
        waits: AtomicU64::new(0),
        lent_bytes: AtomicU64::new(0),
        next_to_shrink: AtomicUsize::new(0),
    }
}

fn new_image(medium: &Medium, config: &EngineConfig) -> Result<Superblock, OpenError> {
    let image_bytes = medium.image_bytes();
    let flash_bytes = image_bytes.saturating_sub(META_BYTES);
    let segments = medium.segments(config)?;
    let shape = ImageShape {
        hash_seed: runtime::random_u64(),
        image_bytes,
        segment_bytes: segments.bytes,
        segments: segments.count,
        channels: segments.channels,
        partitions: 1 << config.partition_bits,
        expected_items: config.expected_items(flash_bytes),
    };
    let mut superblock = Superblock::new(&shape, PLACEMENT);
    // Not the numbers of an image that was here before: what a lost write leaves of it must not verify.
    superblock.sequence_limit = (1 + (runtime::random_u64() >> 8)).into();
    superblock.floor_sequence = superblock.sequence_limit;
    Ok(superblock)
}

fn check_image(superblock: &Superblock, medium: &Medium) -> Result<(), OpenError> {
    medium.check(&superblock.shape())?;
    if superblock.placement() != PLACEMENT {
        let found = superblock.placement().to_owned();
        return Err(OpenError::Placement {
            found,
            expected: PLACEMENT,
        });
    }
    Ok(())
}
