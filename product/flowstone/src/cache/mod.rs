//! [`Cache`]: the engine with worker threads of its own, for callers on any thread.
//!
//! A hit in memory is answered on the caller's thread. A flash read is carried out by a
//! worker that the key chooses, so that concurrent reads of one cold key meet there and share one
//! flash read. A write that finds no room waits on the caller's executor and is tried again there.
//!
//! An engine is stopped only when no operation uses it ([`door`]): a write acknowledged while memory is
//! being saved could be missing from the saved items.

mod config;
mod door;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::Disk;
use engine::{
    CacheError, Engine, FlashRead, ItemView, Key, Lookup, Opening, Peek, Put, Start, Stop,
};
use runtime::live::{LiveConfig, Workers};
use runtime::sync::{Receiver, oneshot};

pub use config::{CacheConfig, OpenError};
pub use value::Value;

use door::{Door, Stay};

/// Longest time that an open waits for the recovery of the last run's items.
const RECOVERY_PATIENCE: Duration = Duration::from_millis(500);
/// Receive buffers of a worker: it has no connections.
const RECV_BUFFERS: u16 = 1;
/// Expiry of an item that was stored expired: a second in the distant past.
const LONG_PAST: u32 = 1;

/// A cache in memory and on flash. Clones are the same cache.
///
/// Every method can be called from any thread and its future polled by any executor. A future does
/// nothing before its first poll.
///
/// Dropping the last clone without [`close`](Cache::close) is like a crash: items in memory are
/// lost, and the next open finds the items that had reached flash. The drop waits for the worker threads to end.
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

struct Inner {
    door: Door<Engine>,
    workers: Workers,
    start: Start,
    max_value_bytes: usize,
    stop_deadline: Duration,
}

/// Reasons for which an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is empty or longer than 250 bytes.
    #[error("a key of {len} bytes; 1 to 250 are allowed")]
    Key {
        /// Bytes of the key.
        len: usize,
    },
    /// The value is longer than allowed. The old value of the key is gone.
    #[error("a value of {len} bytes; {max} are allowed")]
    ValueTooLarge {
        /// Bytes of the value.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// There is no memory for the value and flash takes no item. The old value of the key is
    /// gone.
    #[error("no memory for the value")]
    OutOfMemory,
    /// The cache has been closed.
    #[error("the cache is closed")]
    Closed,
    /// Some items could not be made durable. The log names the writes that the flash refused.
    #[error("not everything could be made durable; the log says why")]
    NotDurable,
    /// The read was abandoned: its worker panicked, and the log says where, or the deadline of
    /// a stop has passed.
    #[error("the read was given up; the log says why")]
    Interrupted,
}

/// Options of a stored item.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct InsertOptions {
    ttl: Option<Duration>,
    flags: u32,
}

impl InsertOptions {
    /// Returns options for an item without expiry, with flags of 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time after which the item expires. It is rounded up to whole seconds and counted from the
    /// start of the current second. A time of zero stores nothing and removes the old value of the key.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the caller's own bits, returned with the value.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    fn put(self, value: &[u8], now: u32) -> Put<'_> {
        let expiry = match self.ttl {
            None => 0,
            Some(Duration::ZERO) => LONG_PAST,
            Some(ttl) => {
                let begun = u64::from(ttl.subsec_nanos() > 0);
                let seconds = ttl.as_secs().saturating_add(begun);
                now.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX))
            }
        };
        Put {
            value: Cow::Borrowed(value),
            client_flags: self.flags,
            expiry,
            ..Put::default()
        }
    }
}

/// Contents of a cache, and its counters since it was opened.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Reads answered from memory.
    pub memory_hits: u64,
    /// Reads answered from flash, including those that shared another read's access.
    pub flash_hits: u64,
    /// Reads of keys that the cache does not hold.
    pub misses: u64,
    /// Misses (among `misses`) because the device failed or returned wrong bytes.
    pub failed_reads: u64,
    /// Items stored.
    pub inserts: u64,
    /// Inserts that had to wait for space on flash.
    pub insert_waits: u64,
    /// Items in memory, with or without a copy on flash.
    pub memory_items: u64,
    /// Items on flash.
    pub flash_items: u64,
    /// Whether recovery of the last run's items is in progress: a read may miss them.
    pub recovering: bool,
    /// Live items dropped from flash to free space.
    pub flash_evictions: u64,
    /// Memory of the items, in bytes.
    pub memory_bytes: u64,
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Reads issued to the flash.
    pub flash_reads: u64,
    /// Bytes written to the flash.
    pub flash_bytes_written: u64,
}

impl Cache {
    /// Opens the cache that `config` describes, or creates it. The work is done on a thread of its
    /// own; if the future is dropped early, that thread closes the cache it has opened.
    ///
    /// # Errors
    /// [`OpenError`]; nothing on the flash has been changed then, unless the device failed.
    pub async fn open(config: CacheConfig) -> Result<Self, OpenError> {
        let (done, opened) = oneshot();
        std::thread::Builder::new()
            .name("flowstone-open".to_owned())
            .spawn(move || done.send(open(&config)))
            .map_err(OpenError::Workers)?;
        opened.await.unwrap_or_else(|| Err(ended_early()))
    }

    /// Returns the outcome of the open.
    pub fn start(&self) -> Start {
        self.inner.start
    }

    /// Returns the value of a key, if it has one. Counts as a use, which keeps the item.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Closed`], [`Error::Interrupted`]. A failing device makes a miss, not an error.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        let read = {
            let engine = self.inner.door.enter().ok_or(Error::Closed)?;
            let key = checked(&engine, key)?;
            let now = runtime::unix_seconds();
            match engine.lookup(key, now, Peek::No, Value::of_view) {
                Lookup::Hit(value) => return Ok(Some(value)),
                Lookup::Miss => return Ok(None),
                Lookup::Flash(read) => self.inner.start_read(engine.stay(), key, read),
            }
        };
        read.await.ok_or(Error::Interrupted)
    }

    /// Stores a value without expiry, in place of the old value of the key.
    ///
    /// # Errors
    /// Those of [`insert_with`](Cache::insert_with).
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.insert_with(key, value, InsertOptions::new()).await
    }

    /// Stores a value with `options`, in place of the old value of the key. Waits while memory is full and
    /// flash is behind; a future dropped while it waits has stored nothing and removed nothing.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Closed`]; [`Error::ValueTooLarge`] and [`Error::OutOfMemory`], after
    /// which the key has no value.
    pub async fn insert_with(
        &self,
        key: &[u8],
        value: &[u8],
        options: InsertOptions,
    ) -> Result<(), Error> {
        let max = self.inner.max_value_bytes;
        let too_large = Error::ValueTooLarge {
            len: value.len(),
            max,
        };
        let refused = |error| match error {
            CacheError::TooLarge => too_large,
            CacheError::OutOfMemory | CacheError::NoAnswer => Error::OutOfMemory,
        };
        let now = runtime::unix_seconds();
        let put = options.put(value, now);
        if value.len() > max {
            self.remove(key).await?;
            return Err(too_large);
        }
        let stay = {
            let engine = self.inner.door.enter().ok_or(Error::Closed)?;
            match engine.try_set(checked(&engine, key)?, now, &put) {
                Some(stored) => return stored.map(drop).map_err(refused),
                None => engine.stay(),
            }
        };
        let key = checked(&stay, key)?;
        stay.set(key, now, &put).await.map(drop).map_err(refused)
    }

    /// Removes the value of a key, if it has one.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::Closed`], and [`Error::OutOfMemory`] if flash has taken no change for ten seconds.
    pub async fn remove(&self, key: &[u8]) -> Result<(), Error> {
        let now = runtime::unix_seconds();
        let stay = {
            let engine = self.inner.door.enter().ok_or(Error::Closed)?;
            if engine.try_remove(checked(&engine, key)?, now) {
                return Ok(());
            }
            engine.stay()
        };
        let removed = stay.remove(checked(&stay, key)?, now).await;
        removed.map_err(|_| Error::OutOfMemory)
    }

    /// Makes everything stored before the call durable, including items that are only in memory. The cache stays usable
    /// during the call, which may take as long as [`stop_deadline`](CacheConfig::stop_deadline).
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::NotDurable`] when the flash refuses some of the writes.
    pub async fn sync(&self) -> Result<(), Error> {
        let stay = self.inner.door.enter().ok_or(Error::Closed)?.stay();
        let (done, synced) = oneshot();
        // The deadline of the sync is a worker's timer.
        self.inner.workers.spawn_on(0, move || async move {
            let outcome = stay.sync().await;
            drop(stay);
            done.send(outcome);
        });
        let outcome = synced.await.ok_or(Error::Interrupted)?;
        outcome.map_err(|_| Error::NotDurable)
    }

    /// Returns the contents and the counters of the cache.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn stats(&self) -> Result<Stats, Error> {
        let engine = self.inner.door.enter().ok_or(Error::Closed)?;
        let stats = engine.stats();
        let flash = engine.store().counters();
        let recovery = engine.recovery();
        Ok(Stats {
            memory_hits: stats.paths.dram_hits,
            flash_hits: stats.paths.flash_hits,
            misses: stats.paths.misses,
            failed_reads: stats.paths.failed_reads,
            inserts: stats.paths.items_set,
            insert_waits: stats.write_waits,
            memory_items: stats.dram_items,
            flash_items: stats.placement.objects,
            recovering: recovery.is_running,
            flash_evictions: stats.placement.items_evicted,
            memory_bytes: stats.dram_bytes,
            index_bytes: stats.memory.index_bytes,
            flash_reads: flash.reads.sum(),
            flash_bytes_written: flash.bytes_written.load(Ordering::Relaxed),
        })
    }

    /// Closes the cache for all its clones: further operations fail with [`Error::Closed`]. Waits for operations
    /// that have begun, makes everything durable, including items in memory, and closes the file. Only
    /// the first caller waits; later ones get [`Stop::Already`] at once.
    ///
    /// The work continues if the future is dropped. At the end the thread blocks until the worker
    /// threads have finished.
    pub async fn close(self) -> Stop {
        let Some(engine) = self.inner.door.shut() else {
            return Stop::Already;
        };
        let workers = self.inner.workers.clone();
        let (done, stopped) = oneshot();
        let inner = self.inner;
        workers.spawn_on(0, move || async move {
            let emptied = inner.door.wait_until_empty();
            let stop = match runtime::timeout(inner.stop_deadline, emptied).await {
                Ok(()) => engine.stop().await,
                Err(runtime::Elapsed) => Stop::Incomplete {
                    items_left: engine.stats().dram_dirty_items
                        + engine.store().buffers().unwritten_items(),
                    next_is_empty: engine.journal().is_void(),
                },
            };
            drop(engine);
            done.send(stop);
            inner.workers.stop();
        });
        let stop = stopped.await;
        workers.shutdown();
        stop.unwrap_or(Stop::Incomplete {
            items_left: 0,
            next_is_empty: false,
        })
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

impl Inner {
    fn start_read(
        &self,
        stay: Stay<Engine>,
        key: Key<'_>,
        read: FlashRead,
    ) -> Receiver<Option<Value>> {
        let (done, value) = oneshot();
        let worker = key.hash().0 % self.workers.count() as u64;
        let key: Box<[u8]> = key.bytes().into();
        // Dropped in this order if no worker is left to run the task.
        let held = (read, stay);
        self.workers.spawn_on(worker as usize, move || async move {
            let (read, stay) = held;
            let hit = match stay.key(&key) {
                Some(key) => stay.read_flash(key, read).await,
                None => None,
            };
            let value = hit.map(|hit| Value::of_view(&ItemView::of_flash(&hit)));
            drop(stay);
            done.send(value);
        });
        value
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(engine) = self.door.shut() {
            self.workers.clone().shutdown();
            // The last reference, since no task is left: dropping it closes the file.
            drop(engine);
        }
    }
}

fn checked<'k>(engine: &Engine, key: &'k [u8]) -> Result<Key<'k>, Error> {
    engine.key(key).ok_or(Error::Key { len: key.len() })
}

fn open(config: &CacheConfig) -> Result<Cache, OpenError> {
    let engine_config = config.engine()?;
    let disk = config.open_flash()?;
    let journal = config.journal_of(&disk, engine_config.memory_bytes);
    let workers = Workers::start(&LiveConfig {
        threads: config.worker_threads(),
        recv_buffers: RECV_BUFFERS,
        ..LiveConfig::default()
    })
    .map_err(OpenError::Workers)?;
    let lacked_bytes = disk.lacked_bytes();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (flash_path, journal_path) = (config.path.clone(), config.journal_path());
    let index_path = config.index_flash.clone().unwrap_or_default();
    let mut opening = Opening::new(disk, engine_config).overwriting_image(lacked_bytes);
    if let Some(open) = config.index_device() {
        opening = opening.with_index_device(open);
    }
    let engine = workers
        .run_on(0, move || opening.open(journal))
        .ok_or_else(ended_early)
        .and_then(|opened| {
            opened.map_err(|source| {
                let path = match source {
                    engine::OpenError::IndexFile(error) => return OpenError::Flash(error),
                    engine::OpenError::Journal(_) => journal_path,
                    engine::OpenError::IndexDevice(_) => index_path,
                    _ => flash_path,
                };
                OpenError::Image { path, source }
            })
        })
        .inspect_err(|_| workers.clone().shutdown())?;
    engine.start_background(workers.spread());
    let found = Arc::clone(&engine);
    // Recovery of a small cache ends within this time; readers of a large one see the items recovered so far. The first
    // operation reports a worker that has ended.
    let _ = workers.run_on(0, move || async move {
        runtime::timeout(RECOVERY_PATIENCE, found.recovered()).await
    });
    Ok(Cache {
        inner: Arc::new(Inner {
            door: Door::new(&engine),
            workers,
            start: engine.start(),
            max_value_bytes: config.max_value_bytes(),
            stop_deadline: config.stop_deadline,
        }),
    })
}

fn ended_early() -> OpenError {
    OpenError::Workers(io::Error::other("a thread ended while opening"))
}
