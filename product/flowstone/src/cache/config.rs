//! Settings of a cache, and errors of opening one.

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device::{Bytes, Disk, FileDisk, FileJournal, FileOptions, Journal, JournalError, WriteRate};
use engine::config::check::check_new_image;
use engine::config::{WORKER_BYTES, engine_share, journal_bytes, new_journal};
use engine::{AdmissionKind, EngineConfig, IndexDeviceNeed, PlacementKind};

/// Most worker threads by default: each can have hundreds of reads in flight.
const DEFAULT_THREADS: usize = 4;
const MOST_THREADS: usize = 1024;
/// Largest value that any cache can be configured for.
const MOST_VALUE_BYTES: u32 = 1 << 30;

/// Settings with which to open a [`Cache`](crate::Cache).
///
/// Sizes are in bytes. An existing image keeps its size and its segments.
#[derive(Clone, Debug)]
#[must_use]
pub struct CacheConfig {
    pub(super) path: PathBuf,
    flash_bytes: Option<u64>,
    memory_bytes: u64,
    max_value_bytes: u32,
    threads: Option<usize>,
    preallocate: bool,
    discard: bool,
    force: bool,
    overwrite_filesystem: bool,
    journal: Option<PathBuf>,
    placement: Arc<dyn PlacementKind>,
    pub(super) index_flash: Option<PathBuf>,
    index_flash_bytes: Option<u64>,
    flash_write_limit: Option<NonZeroU64>,
    write_back: Option<Duration>,
    admission: Arc<dyn AdmissionKind>,
    pub(super) stop_deadline: Duration,
}

/// An opened device for the index; `None` if the index has no device.
type IndexDisk = Result<Option<Arc<dyn Disk>>, device::OpenError>;

impl CacheConfig {
    /// Returns the settings of a cache in the file or block device at `path`, created if it does not exist, with 256 MiB of
    /// memory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            flash_bytes: None,
            memory_bytes: 256 << 20,
            max_value_bytes: 1 << 20,
            threads: None,
            preallocate: true,
            discard: false,
            force: false,
            overwrite_filesystem: false,
            journal: None,
            placement: EngineConfig::default().placement,
            index_flash: None,
            index_flash_bytes: None,
            flash_write_limit: None,
            write_back: EngineConfig::default().write_back,
            admission: EngineConfig::default().admission,
            stop_deadline: Duration::from_secs(60),
        }
    }

    /// Sets the bytes of flash. Default: the size of an existing file or device, or 4 GiB for a new file.
    pub fn flash_size(mut self, bytes: u64) -> Self {
        self.flash_bytes = Some(bytes);
        self
    }

    /// Sets the memory for everything the cache holds: items, index, buffers, worker threads. It does not
    /// include returned [`Value`](crate::Value)s and reads in flight, which belong to the caller.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Sets the size of the largest value that can be stored; 1 MiB by default. A new image gets segments
    /// that can hold it.
    pub fn max_value_size(mut self, bytes: u32) -> Self {
        self.max_value_bytes = bytes;
        self
    }

    /// Sets the number of worker threads that read and write flash; by default one a core, but at most 4.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets whether the space of a new file is reserved at once, the default, so that a full disk fails
    /// the open rather than a later write.
    pub fn preallocate(mut self, yes: bool) -> Self {
        self.preallocate = yes;
        self
    }

    /// Sets whether empty segments are reported to the device (hole punching, TRIM).
    pub fn discard(mut self, yes: bool) -> Self {
        self.discard = yes;
        self
    }

    /// Takes over a file or device that holds other data, or another kind of image; its content
    /// is lost. This is the `--force` of error messages.
    pub fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }

    /// Like [`force`](CacheConfig::force), also for a device with a file system, a volume or a partition table. A mounted device
    /// is still refused. This is the `--overwrite-filesystem` of error messages.
    pub fn overwrite_filesystem(mut self, yes: bool) -> Self {
        self.overwrite_filesystem = yes;
        self.force |= yes;
        self
    }

    /// Sets the path of the journal, from which a start after a crash learns which items have been overwritten; by default it
    /// lies beside the flash. If the journal is missing, the next start is empty.
    pub fn journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.journal = Some(path.into());
        self
    }

    /// Sets the placement: how items are found on flash. The default is an index of every item, in memory. An image opens only
    /// with the placement that it was made with.
    pub fn placement(mut self, placement: Arc<dyn PlacementKind>) -> Self {
        self.placement = placement;
        self
    }

    /// Puts the part of the index that lies on flash in the file or block device at `path`, a fast one, which is created for a
    /// new cache. It belongs to that cache, which opens only with it. Only for a [`placement`](CacheConfig::placement) with an
    /// index on flash.
    pub fn index_flash(mut self, path: impl Into<PathBuf>) -> Self {
        self.index_flash = Some(path.into());
        self
    }

    /// Sets the bytes of a new [`index_flash`](CacheConfig::index_flash); by default the bytes that the index needs.
    pub fn index_flash_size(mut self, bytes: u64) -> Self {
        self.index_flash_bytes = Some(bytes);
        self
    }

    /// Limits the bytes written to the flash a second, 64 KiB or more; over any ten seconds at most 1 % more are written. Items
    /// that leave memory while the limit leaves no space for them are dropped, so that no caller waits for the drive. A clean
    /// close saves the items for which its deadline leaves time. By default there is no limit.
    pub fn flash_write_limit(mut self, bytes_per_s: NonZeroU64) -> Self {
        self.flash_write_limit = Some(bytes_per_s);
        self
    }

    /// Sets the longest time that an item is only in memory, a minute by default: a crash keeps older items. With zero,
    /// items are written when they leave memory, at [`sync`](crate::Cache::sync) and at
    /// [`close`](crate::Cache::close).
    pub fn write_back(mut self, window: Duration) -> Self {
        self.write_back = (!window.is_zero()).then_some(window);
        self
    }

    /// Selects the items written to flash when they leave memory, all by default; the others are dropped.
    pub fn admission(mut self, admission: Arc<dyn AdmissionKind>) -> Self {
        self.admission = admission;
        self
    }

    /// Sets the time that [`close`](crate::Cache::close) has to let operations finish, and then to save.
    pub fn stop_deadline(mut self, deadline: Duration) -> Self {
        self.stop_deadline = deadline;
        self
    }

    pub(super) fn max_value_bytes(&self) -> usize {
        self.max_value_bytes as usize
    }

    pub(super) fn worker_threads(&self) -> usize {
        let usual = || runtime::process::cores().min(DEFAULT_THREADS);
        self.threads.unwrap_or_else(usual)
    }

    pub(super) fn engine(&self) -> Result<EngineConfig, OpenError> {
        let range = |ok: bool, name, range| {
            let valid = ok.then_some(());
            valid.ok_or(OpenError::Range { name, range })
        };
        let threads = self.worker_threads();
        let can_start = (1..=MOST_THREADS).contains(&threads);
        range(can_start, "threads", "1 to 1024")?;
        let can_hold = (1..=MOST_VALUE_BYTES).contains(&self.max_value_bytes);
        range(can_hold, "max_value_size", "1 byte to 1 GiB")?;
        let is_enough = |limit: NonZeroU64| limit.get() >= WriteRate::LEAST;
        let can_write = self.flash_write_limit.is_none_or(is_enough);
        range(can_write, "flash_write_limit", "64 KiB a second or more")?;
        let given = self.memory_bytes;
        let memory_bytes = engine_share(given, threads as u64 * WORKER_BYTES)
            .map_err(|needed| OpenError::Memory { given, needed })?;
        let mut config = EngineConfig {
            memory_bytes,
            max_value_bytes: self.max_value_bytes,
            force: self.force,
            journal_is_named: self.journal.is_some(),
            overwrite_filesystem: self.overwrite_filesystem,
            flash_write_limit: self.flash_write_limit,
            write_back: self.write_back,
            admission: Arc::clone(&self.admission),
            stop_deadline: self.stop_deadline,
            ..EngineConfig::default()
        };
        config.writing.discard = self.discard;
        config.placement = Arc::clone(&self.placement);
        if !self.path.exists() {
            // Checked before the file is created.
            let flash_bytes = self.flash_bytes.unwrap_or(device::DEFAULT_IMAGE_BYTES);
            check_new_image(&config, flash_bytes)?;
        }
        Ok(config)
    }

    /// Opens the flash, or creates it. Blocks the thread.
    pub(super) fn open_flash(&self) -> Result<FileDisk, OpenError> {
        let options = self.file_options();
        let (path, asked) = (&self.path, self.flash_bytes);
        Ok(FileDisk::open_image(
            path,
            asked,
            engine::image_bytes,
            options,
        )?)
    }

    fn file_options(&self) -> FileOptions {
        FileOptions {
            preallocate: self.preallocate,
            force: self.force,
            overwrite_filesystem: self.overwrite_filesystem,
            ..FileOptions::default()
        }
    }

    /// Returns a function that opens the device of the index, or creates it; `None` if the cache has none.
    pub(super) fn index_device(
        &self,
    ) -> Option<impl FnOnce(IndexDeviceNeed) -> IndexDisk + Send + use<>> {
        let (path, bytes) = (self.index_flash.clone()?, self.index_flash_bytes);
        let options = self.file_options();
        Some(move |need| {
            let IndexDeviceNeed {
                may_be_new,
                bytes: needed,
            } = need;
            let new = may_be_new.then_some(bytes.unwrap_or(needed));
            let disk = FileDisk::open_index(&path, new, options)?;
            Ok(disk.map(|disk| Arc::new(disk) as _))
        })
    }

    pub(super) fn journal_path(&self) -> PathBuf {
        let beside = || FileJournal::path_beside(&self.path);
        self.journal.clone().unwrap_or_else(beside)
    }

    /// Returns a function that opens the journal of the flash, or creates it.
    pub(super) fn journal_of(
        &self,
        disk: &FileDisk,
        memory_bytes: u64,
    ) -> impl FnOnce() -> Result<Arc<dyn Journal>, JournalError> + Send + use<> {
        let bits = EngineConfig::default().partition_bits;
        let bytes = journal_bytes(disk.len_bytes(), memory_bytes, bits, self.flash_write_limit);
        let new = new_journal(bytes, bits, self.force);
        let path = self.journal_path();
        move || Ok(Arc::new(FileJournal::open(&path, &new)?))
    }
}

/// Reasons for which a cache cannot be opened, each a line with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting out of range.
    #[error("{name} must be {range}")]
    Range {
        /// The setting.
        name: &'static str,
        /// The values that it may have.
        range: &'static str,
    },
    /// Too little memory.
    #[error("{:.1} of memory are too few; {:.1} are the least with these threads", Bytes(*given), Bytes(*needed))]
    Memory {
        /// Bytes given.
        given: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// A new image cannot be made with these settings.
    #[error(transparent)]
    Config(#[from] engine::ConfigError),
    /// The file or device cannot be opened, or another process has it.
    #[error(transparent)]
    Flash(#[from] device::OpenError),
    /// The image cannot be opened with these settings.
    #[error("{}: {source}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// Error of the image.
        source: engine::OpenError,
    },
    /// The worker threads cannot be started.
    #[error("the workers cannot start: {0}")]
    Workers(io::Error),
}
