//! SliceLSH: the nearest neighbours of a vector among more than memory holds (sections 6 and 7.5).
//!
//! ```text
//!   insert ──▶ log, segment in memory ──full──▶ ring of vectors on the drives
//!          └─▶ entries in memory, a bucket of each table ──full──▶ frozen ──flush──▶ slicetables, partition by partition
//!
//!   query ──▶ entries in memory, frozen entries, a page of each table ──▶ candidates ──▶ their vectors ──▶ true distances
//! ```
//!
//! A *generation* is the vectors that are flushed together, numbered from 1: an incarnation of every slicetable, and a place of
//! the ring. A vector's id says its generation and its number among those, and so where it lies. With the incarnation of
//! generation `g` goes what generation `g` has inserted, all of it at once.
//!
//! What may be true at any time: all slicetables have the generations up to `flushed`, and some may have the next one, which is
//! frozen then; every vector of a generation that a slicetable has is in the ring, durably; a place of the ring and its deletes
//! are used again only when no query is under way that may know what it held.
//!
//! | file | what |
//! |---|---|
//! | `settings.rs`, `superblock.rs` | what can be chosen, the shape that follows, how both are kept |
//! | `family.rs`, `choose.rs` | functions, distances, and how many functions suit |
//! | `layout.rs` | tables and channels |
//! | `batch.rs`, `page.rs` | entries in memory and on a drive |
//! | `ring.rs`, `readers.rs` | vectors on the drives, and who still reads them |
//! | `log.rs`, `replay.rs` | what survives a crash, and what a start does |
//! | `state.rs`, `writer.rs` | inserts, and the task that writes what is full |
//! | `query.rs` | queries |

mod batch;
mod choose;
mod error;
mod family;
mod index;
mod insert;
mod layout;
mod log;
mod page;
mod query;
mod readers;
mod replay;
mod ring;
mod settings;
mod state;
mod stats;
mod superblock;
mod writer;

use std::sync::Arc;

use device::{AlignedBuf, Disk, Journal, PAGE_BYTES, SharedBuf};
use format::slices::SliceKind;
use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::drive::{TableShape, drives};
use crate::error::SliceError;
use crate::keys::Keys;
use crate::layout::{drive_bytes, refuse_parts, refuse_twice};
use crate::superblock::Instance;
use batch::Places;
use family::Functions;
use index::Inner;
use log::{Log, LogShape};
use readers::Readers;
use ring::{Ring, Vector};
use state::{Insert, State};
use stats::Counts;

pub use choose::{Choice, Target};
pub use error::VectorError;
pub use family::Family;
pub use layout::LshLayout;
pub use query::Neighbour;
pub use ring::VectorId;
pub use settings::{Components, LshSettings, LshShape, RingShape};
pub use stats::{ChannelReads, LshMemory, LshStats};

/// A similarity index of vectors that lies on drives. Clones are the same index.
///
/// All operations may be called from every thread that a runtime drives, at once. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process; a power cut keeps what was there at the last
/// [`sync`](Self::sync). When it is full the oldest generation of vectors goes.
#[derive(Clone)]
pub struct SliceLsh(Arc<Inner>);

fn log_shape(settings: &LshSettings, shape: &LshShape) -> LogShape {
    let bytes = settings.dimensions as usize * settings.components.bytes();
    LogShape {
        partitions: shape.partitions,
        places: shape.ring.places,
        batch: shape.batch,
        segment_vectors: shape.ring.segment_vectors,
        vector_words: bytes.div_ceil(8),
    }
}

impl SliceLsh {
    /// Words of the log of an index with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`LshSettings::shape`].
    pub fn log_words(settings: &LshSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        Ok(log_shape(settings, &settings.shape(drive_bytes)?).words())
    }

    /// Makes an empty index on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that cannot be, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &LshSettings,
    ) -> Result<Self, SliceError> {
        let shape = settings.shape(&drive_bytes(&disks))?;
        refuse_parts(&disks, &*journal, log_shape(settings, &shape).words())?;
        let instance = Instance::random();
        for (number, disk) in disks.iter().enumerate() {
            let identity = (number, disks.len());
            let superblock = superblock::superblock(settings, &shape, identity, instance);
            let mut head = AlignedBuf::new((settings.head_bytes() as usize).max(PAGE_BYTES));
            superblock.encode(&mut head);
            let error = SliceError::device(number);
            let written = disk.write(0, SharedBuf::from(head)).await;
            written.map_err(&error)?;
            disk.sync().await.map_err(&error)?;
        }
        let log = Log::create(journal, log_shape(settings, &shape), instance.id)?;
        log.sync(|_, _| ()).await?;
        Self::start(disks, log, settings, shape, instance).await
    }

    /// Opens the index on `disks`, named in the order in which they were when it was created, with its log. What had not
    /// reached a drive is taken from the log. `settings` says how it is used; what was chosen when it was created is kept.
    ///
    /// # Errors
    /// When it is no such index, or a drive or the log is missing or another's, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &LshSettings,
    ) -> Result<Self, SliceError> {
        refuse_twice(&disks)?;
        let found = crate::superblock::read(&disks, SliceKind::Lsh).await?;
        let (settings, shape) = superblock::created(&found, settings)?;
        for (drive, disk) in disks.iter().enumerate() {
            // Its partitions and a spare region.
            let partitions = shape.partitions.saturating_sub(drive as u32);
            let regions = u64::from(partitions).div_ceil(disks.len() as u64) + 1;
            let front_bytes = settings
                .head_bytes()
                .saturating_add(shape.ring.drive_bytes());
            let needs = regions
                .saturating_mul(shape.region_bytes)
                .saturating_add(front_bytes);
            let has = disk.len_bytes();
            if has < needs {
                return Err(SliceError::ShortDrive { drive, has, needs });
            }
        }
        let instance = Instance::of(&found);
        let log = Log::open(journal, log_shape(&settings, &shape), instance.id)?;
        Self::start(disks, log, &settings, shape, instance).await
    }

    async fn start(
        disks: Vec<Arc<dyn Disk>>,
        log: Log,
        settings: &LshSettings,
        shape: LshShape,
        instance: Instance,
    ) -> Result<Self, SliceError> {
        let front_bytes = settings.head_bytes() + shape.ring.drive_bytes();
        let table_shape = TableShape {
            instance: instance.id,
            is_new: instance.is_new,
            pages: shape.layout.pages(),
            page_bytes: shape.page.page_bytes,
            piece_bytes: settings.piece_bytes as usize,
            head_bytes: front_bytes,
            channels: settings.channels,
        };
        let count = disks.len();
        let drives = drives(disks, table_shape, settings.scheduling, |number| {
            let own = (number as u32..shape.partitions).step_by(count);
            own.map(|partition| (partition, log.pointer(partition)))
                .collect()
        })?;
        let sizes = (
            settings.tables as usize,
            settings.functions as usize,
            settings.dimensions as usize,
        );
        let mut inner = Inner {
            shape,
            family: settings.family,
            components: settings.components,
            dimensions: settings.dimensions,
            probes: settings.probes,
            most_candidates: settings.most_candidates,
            functions: Functions::new(settings.family, sizes, instance.seed),
            places: Places {
                keys: Keys {
                    seed: instance.seed,
                    partitions: shape.partitions,
                    slots: shape.layout.slots,
                },
                layout: shape.layout,
            },
            drives,
            ring: Ring {
                shape: shape.ring,
                instance: instance.id,
                batch: shape.batch,
                start: settings.head_bytes(),
                last_in_doubt: 0,
            },
            log,
            state: Mutex::new(State::empty()),
            progress: Notify::new(),
            readers: Readers::default(),
            counts: Counts::new(settings.channels.count),
        };
        inner.replay().await?;
        let opened = Self(Arc::new(inner));
        // What has been found is not lost by the next crash: until it is synced, the count of the first change would be.
        opened.sync().await?;
        opened.write_what_is_full();
        Ok(opened)
    }

    /// Adds a vector of finite components: its id. Waits where what is full has not been written yet.
    ///
    /// # Errors
    /// [`SliceError::Vector`] for a vector that cannot be; where there is no space because writes fail, why. They are tried
    /// again until they succeed.
    pub async fn insert(&self, vector: &[f32]) -> Result<VectorId, SliceError> {
        let inner = &self.0;
        inner.check(vector)?;
        let components = inner.kept(vector)?;
        let places = inner.places_of(vector);
        loop {
            let progress = inner.progress.listener();
            let inserted = {
                let mut state = inner.state.lock();
                match inner.insert(&mut state, &places, &components) {
                    Insert::Wait => match &state.failing {
                        Some(error) => return Err(error.clone()),
                        None => Insert::Wait,
                    },
                    other => other,
                }
            };
            match inserted {
                Insert::Inserted(vector) => return Ok(vector.id(inner.shape.batch)),
                Insert::InsertedLast(vector) => {
                    self.write_what_is_full();
                    return Ok(vector.id(inner.shape.batch));
                }
                Insert::Full(generation) => self.freeze(generation).await,
                Insert::Wait => {
                    // The runtime of the task that wrote may have ended.
                    self.write_what_is_full();
                    progress.await;
                }
            }
        }
    }

    /// Removes a vector: whether it was there. It is in no answer to a query that begins later. Needs no I/O.
    pub fn delete(&self, id: VectorId) -> bool {
        let inner = &self.0;
        let state = inner.state.lock();
        let vector = Vector::of(id, inner.shape.batch);
        let Some(vector) = vector.filter(|&vector| inner.is_live(&state, vector)) else {
            return false;
        };
        inner.log.delete(vector.generation, vector.ordinal);
        stats::add(&inner.counts.deletes, 1);
        true
    }

    /// The vector of an id; `None` where it has been deleted or has gone with its generation.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page ([`SliceError::Damaged`]).
    pub async fn get(&self, id: VectorId) -> Result<Option<Vec<f32>>, SliceError> {
        self.0.get(id).await
    }

    /// The `k` nearest neighbours of a vector that the tables know of, the nearest first, with their true distances. Fewer
    /// where fewer are candidates.
    ///
    /// Reads a page of each table, a second one where entries have overflowed, and the vectors that these name. A damaged page
    /// or vector is left out and counted ([`LshStats::damaged`]): its neighbours may be found through other tables.
    ///
    /// # Errors
    /// [`SliceError::Vector`] for a vector that cannot be or a `k` of 0, and errors of the devices.
    pub async fn query(&self, vector: &[f32], k: usize) -> Result<Vec<Neighbour>, SliceError> {
        self.0.query(vector, k).await
    }

    /// Makes all changes that have returned durable.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn sync(&self) -> Result<(), SliceError> {
        let inner = &self.0;
        let halves = |each: &mut dyn FnMut(&mut log::Half), rest: &dyn Fn()| {
            let mut state = inner.state.lock();
            state.halves().for_each(each);
            rest();
        };
        inner.log.sync(halves).await
    }

    /// Writes all that is in memory to the drives. What is less than a whole generation takes the place of one.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn flush(&self) -> Result<(), SliceError> {
        let inner = &self.0;
        // The last generation that has vectors now.
        let last = {
            let state = inner.state.lock();
            match state.count {
                0 => state.generation - 1,
                _ => state.generation,
            }
        };
        loop {
            let progress = inner.progress.listener();
            let is_frozen = {
                let state = inner.state.lock();
                if state.flushed >= last {
                    return Ok(());
                }
                if let Some(error) = &state.failing {
                    return Err(error.clone());
                }
                state.frozen.is_some()
            };
            match is_frozen {
                true => {
                    self.write_what_is_full();
                    progress.await;
                }
                false => self.freeze(last).await,
            }
        }
    }

    /// What it has done since it was opened.
    pub fn stats(&self) -> LshStats {
        self.0.stats()
    }

    /// The pages that queries have read of each channel since it was opened, all drives together.
    pub fn channel_reads(&self) -> ChannelReads {
        self.0.counts.channel_reads()
    }

    /// What follows from the settings that the index was created with.
    pub fn shape(&self) -> &LshShape {
        &self.0.shape
    }

    /// The memory it has now.
    pub fn memory(&self) -> LshMemory {
        self.0.memory()
    }
}
