//! SliceLSH: the nearest neighbours of a vector among more vectors than memory holds (sections 6 and 7.5).
//!
//! ```text
//!   insert ──▶ log, segment in memory ──full──▶ ring of vectors on the drives
//!          └─▶ entries in memory, a bucket of each table ──full──▶ frozen ──flush──▶ slicetables, partition by partition
//!
//!   query ──▶ entries in memory, frozen entries, a page of each table ──▶ candidates ──▶ their vectors ──▶ true distances
//! ```
//!
//! A *generation* is the vectors that are flushed together, numbered from 1: an incarnation of every slicetable, and a place of
//! the ring. The id of a vector gives its generation and its number within the generation, and so its place. When the incarnation
//! of generation `g` is dropped, all vectors of `g` are dropped at once.
//!
//! Invariants: all slicetables have the generations up to `flushed`. Some may have the next generation, which is frozen then.
//! Every vector of a generation that a slicetable has is in the ring, durably. A place of the ring and its deletes are reused
//! only when no query is under way that may know the vectors that it held.
//!
//! | file | contents |
//! |---|---|
//! | `settings.rs`, `created.rs` | settings, the shape that follows, and both in the superblock |
//! | `family.rs`, `choose.rs` | functions, distances, and the number of functions that suits |
//! | `space.rs` | the checks, components, distances and places of vectors |
//! | `layout.rs` | tables and channels |
//! | `batch.rs`, `page.rs` | entries in memory and on a drive |
//! | `ring.rs`, `readers.rs` | vectors on the drives, and the queries that may still read them |
//! | `log.rs`, `replay.rs` | the log that survives a crash, and its replay at a start |
//! | `state.rs`, `store.rs` | inserts, and the task that writes full segments and generations |
//! | `query.rs` | the index and its queries |

mod batch;
mod choose;
mod created;
mod family;
mod layout;
mod log;
mod page;
mod query;
mod readers;
mod replay;
mod ring;
mod settings;
mod space;
mod state;
mod stats;
mod store;

use std::sync::Arc;

use crate::encoding::table::SliceKind;
use device::{Disk, Journal};
use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::counts::Counts;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::incarnations::Incarnations;
use crate::keys::Keys;
use crate::layout::{Layout, drive_bytes};
use crate::part::Part;
use crate::regions::Region;
use crate::superblock::{self, Instance};
use batch::Places;
use family::Functions;
use log::{Log, LogShape};
use query::Index;
use readers::Readers;
use ring::{Ring, Vector};
use space::Space;
use state::{Insert, State};
use stats::ChannelCounts;
use store::Store;

pub use choose::{Choice, Target};
pub use family::Family;
pub use layout::LshLayout;
pub use query::Neighbour;
pub use ring::VectorId;
pub use settings::{Components, LshSettings, LshShape, RingShape};
pub use stats::{ChannelReads, LshMemory, LshStats};

/// A similarity index of vectors that lies on drives. Clones are the same index.
///
/// All operations may be called at once, from every thread that a runtime drives. An [`insert`](Self::insert) or
/// [`delete`](Self::delete) that has returned survives the process. A power cut keeps the changes before the last
/// [`sync`](Self::sync). A full index drops its oldest generation of vectors.
#[derive(Clone)]
pub struct SliceLsh(Arc<Index>);

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
    /// Returns the words of the log of an index with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`LshSettings::shape`].
    pub fn log_words(settings: &LshSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        Ok(log_shape(settings, &settings.shape(drive_bytes)?).words())
    }

    /// Creates an empty index on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that are out of range, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &LshSettings,
    ) -> Result<Self, SliceError> {
        let shape = settings.shape(&drive_bytes(&disks))?;
        let instance = Instance::random();
        let layout = settings.layout(shape.ring.drive_bytes());
        let superblock = created::superblock_of(settings, &shape, instance);
        let log_shape = log_shape(settings, &shape);
        superblock::create(&disks, &*journal, log_shape.words(), superblock, &layout).await?;
        let log = Log::create(journal, log_shape, instance.id)?;
        log.sync(|_| (), |_| ()).await?;
        Self::start(disks, log, settings, &layout, shape, instance).await
    }

    /// Opens the index on `disks`, named in the order of its creation, with its log. Vectors that had not reached a drive are
    /// taken from the log. `settings` says how the index is used; values that were chosen at its creation are kept.
    ///
    /// # Errors
    /// If the disks hold no index, if a drive or the log is missing, belongs to another structure or is shorter than it was, if a
    /// setting is out of range, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &LshSettings,
    ) -> Result<Self, SliceError> {
        let found = superblock::read(&disks, SliceKind::Lsh).await?;
        let (settings, shape) = created::created(&found, settings)?;
        let layout = settings.layout(shape.ring.drive_bytes());
        let instance = Instance::of(&found);
        let log = Log::open(journal, log_shape(&settings, &shape), instance.id)?;
        superblock::check_space(&disks, &found, &layout, &log.pointers)?;
        Self::start(disks, log, &settings, &layout, shape, instance).await
    }

    async fn start(
        disks: Vec<Arc<dyn Disk>>,
        log: Log,
        settings: &LshSettings,
        layout: &Layout,
        shape: LshShape,
        instance: Instance,
    ) -> Result<Self, SliceError> {
        let pages = shape.layout.pages();
        let drives = Drives::open(disks, layout, instance, pages, &log.pointers)?;
        let space = Space {
            family: settings.family,
            components: settings.components,
            dimensions: settings.dimensions,
            functions: Functions::new(
                settings.family,
                settings.tables as usize,
                settings.functions as usize,
                settings.dimensions as usize,
                instance.seed,
            ),
            places: Places {
                keys: Keys {
                    seed: instance.seed,
                    partitions: shape.partitions,
                    slots: shape.layout.slots,
                },
                layout: shape.layout,
            },
        };
        let mut store = Store {
            shape,
            drives,
            incarnations: Incarnations {
                count: shape.page.incarnations,
                slicetables: 1,
            },
            ring: Ring {
                shape: shape.ring,
                instance: instance.id,
                batch: shape.batch,
                start: layout.head_bytes(),
                last_in_doubt: 0,
            },
            log,
            state: Mutex::new(State::empty()),
            progress: Notify::new(),
            readers: Readers::default(),
            counts: Counts::default(),
        };
        replay::replay(&mut store, &space).await?;
        let inner = Index {
            store: Arc::new(store),
            space,
            probes: settings.probes,
            most_candidates: settings.most_candidates,
            channels: ChannelCounts::new(settings.channels.count),
        };
        let opened = Self(Arc::new(inner));
        // Makes the vectors found in the log durable. The first insert overwrites the count that covers them.
        opened.sync().await?;
        opened.0.store.write_what_is_full();
        Ok(opened)
    }

    /// Adds a vector of finite components. Returns its id. Waits while a full segment or generation has to be written first.
    ///
    /// # Errors
    /// [`SliceError::Vector`] for a vector that the index does not take. The error of the last write, if there is no space
    /// because writes fail. They are tried again until they succeed.
    pub async fn insert(&self, vector: &[f32]) -> Result<VectorId, SliceError> {
        let Index { store, space, .. } = &*self.0;
        space.check(vector)?;
        let components = space.kept(vector)?;
        let places = space.places_of(vector);
        loop {
            let progress = store.progress.listener();
            let (inserted, failing) = store.insert(&places, &components);
            match inserted {
                Insert::Inserted(vector) => return Ok(vector.id(store.shape.batch)),
                Insert::InsertedLast(vector) => {
                    store.write_what_is_full();
                    return Ok(vector.id(store.shape.batch));
                }
                Insert::Full(generation) => store.freeze(generation).await,
                Insert::Wait => {
                    // The runtime of the task that wrote may have ended.
                    store.write_what_is_full();
                    if let Some(error) = failing {
                        return Err(error);
                    }
                    progress.await;
                }
            }
        }
    }

    /// Removes a vector. Returns whether it existed. Queries that begin later do not return it. Needs no I/O.
    pub fn delete(&self, id: VectorId) -> bool {
        let store = &self.0.store;
        let state = store.state.lock();
        let vector = Vector::of(id, store.shape.batch);
        let Some(vector) = vector.filter(|&vector| store.is_live(&state, vector)) else {
            return false;
        };
        store.log.delete(vector.generation, vector.ordinal);
        store.counts.add(|counts| counts.deletes = 1);
        true
    }

    /// Returns the vector of an id; `None` if it has been deleted or has gone with its generation.
    ///
    /// # Errors
    /// Errors of the devices, and a damaged page ([`SliceError::Damaged`]).
    pub async fn get(&self, id: VectorId) -> Result<Option<Vec<f32>>, SliceError> {
        self.0.get(id).await
    }

    /// Returns the `k` nearest neighbours of a vector among the vectors that the tables name, nearest first, with their true
    /// distances. Returns fewer if there are fewer candidates.
    ///
    /// Reads a page of each table, a second one if entries have overflowed, and the vectors that the entries name. A damaged page
    /// or vector is left out and counted ([`LshStats::damaged`]): its neighbours may be found through other tables.
    ///
    /// # Errors
    /// [`SliceError::Vector`] for a vector that the index does not take or a `k` of 0, and errors of the devices.
    pub async fn query(&self, vector: &[f32], k: usize) -> Result<Vec<Neighbour>, SliceError> {
        self.0.query(vector, k).await
    }

    /// Makes all changes that have returned durable.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn sync(&self) -> Result<(), SliceError> {
        let store = &self.0.store;
        let halves = |each: &mut dyn FnMut(&mut Part)| store.state.lock().halves().for_each(each);
        let locked = |rest: &dyn Fn()| {
            let _state = store.state.lock();
            rest();
        };
        store.log.sync(halves, locked).await
    }

    /// Writes all vectors and entries in memory to the drives. A generation that is not full takes the place of a full one.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn flush(&self) -> Result<(), SliceError> {
        let store = &self.0.store;
        // The last generation that has vectors now.
        let last = {
            let state = store.state.lock();
            match state.count {
                0 => state.generation - 1,
                _ => state.generation,
            }
        };
        loop {
            let progress = store.progress.listener();
            let (is_frozen, failing) = {
                let state = store.state.lock();
                if state.flushed >= last {
                    return Ok(());
                }
                (state.frozen.is_some(), state.failing.clone())
            };
            if let Some(error) = failing {
                // The runtime of the task that wrote may have ended.
                store.write_what_is_full();
                return Err(error);
            }
            match is_frozen {
                true => {
                    store.write_what_is_full();
                    progress.await;
                }
                false => store.freeze(last).await,
            }
        }
    }

    /// Returns the counts since the index was opened.
    pub fn stats(&self) -> LshStats {
        let Index {
            store, channels, ..
        } = &*self.0;
        let drives = store.drives.counts();
        let reads = channels.reads();
        LshStats {
            table_pages: reads.table_pages.iter().sum(),
            vector_pages: reads.vector_pages.iter().sum(),
            bytes_read: drives.bytes_read,
            bytes_written: drives.bytes_written,
            pages_lost: drives.pages_lost,
            ..store.counts.sums()
        }
    }

    /// Returns the pages that queries have read of each channel since the index was opened, all drives together.
    pub fn channel_reads(&self) -> ChannelReads {
        self.0.channels.reads()
    }

    /// Returns the shape that follows from the settings of the index's creation.
    pub fn shape(&self) -> &LshShape {
        &self.0.store.shape
    }

    /// Returns the memory of the index now.
    pub fn memory(&self) -> LshMemory {
        let Index { store, space, .. } = &*self.0;
        let state = store.state.lock();
        let frozen = state
            .frozen
            .as_ref()
            .map_or(0, |frozen| frozen.batch.bytes());
        let segments = state.closed.len() + usize::from(state.open.is_some());
        let regions = state.slicetables.len() * (size_of::<Option<usize>>() + size_of::<Region>());
        let drives = store.drives.iter();
        LshMemory {
            entries: state.batch.bytes() + frozen,
            partitions: regions as u64,
            functions: space.functions.bytes(),
            segments: segments as u64 * u64::from(store.ring.shape.segment_bytes),
            deletes: store.log.shape.delete_bytes(),
            pieces: drives.map(|drive| 2 * drive.shape.piece_bytes as u64).sum(),
        }
    }
}
