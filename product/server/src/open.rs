//! Opens the device that holds the items.
//!
//! | `--flash` | segments | superblock | journal |
//! |---|---|---|---|
//! | `PATH` | of a chosen size, in the file or device | its first MiB | `PATH.journal` |
//! | a device with erase blocks, in a file at PATH | its erase blocks | `PATH.meta` | `PATH.journal` |
//! | a device with erase blocks, in memory | its erase blocks | in memory | in memory |
//! | a disk in memory | of a chosen size | its first MiB | in memory |
//!
//! The device of the index, if it has one, is opened later: the superblock tells whether it may be made.
//!
//! Failure: one line, and nothing that existed before has been changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{
    FileDisk, FileJournal, FileOptions, Journal, JournalError, JournalProblem, MemoryDisk,
    NamedError, NamedFlash, OpenProblem, OpenedMedium,
};
use engine::Medium;
use engine::config::{META_BYTES, journal_bytes, new_journal};

use crate::config::{CacheSection, Config, PARTITION_BITS, Size};
use crate::error::ServeError;
use crate::flash::{FlashSetting, meta_beside};
use crate::index_flash::IndexPlace;

/// Longest wait for another process to release the flash and the addresses, and the pause between attempts.
pub(crate) const IN_USE_PATIENCE: Duration = Duration::from_secs(2);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// An opened device, with the sizes that an engine needs.
pub(crate) struct OpenFlash {
    pub(crate) medium: Medium,
    /// The file or block device of the medium, if that is one.
    pub(crate) file: Option<Arc<FileDisk>>,
    /// Bytes of the image.
    pub(crate) bytes: u64,
    /// Bytes of a segment, if the device determines them.
    pub(crate) block_bytes: Option<u32>,
    pub(crate) words: String,
    /// A further line about differences from a drive.
    pub(crate) notice: Option<String>,
    pub(crate) journal: JournalPlace,
    /// The device of the index, if it has one.
    pub(crate) index: Option<IndexPlace>,
}

/// The two kinds of journals.
enum JournalMedium {
    /// A file.
    File(PathBuf),
    /// The memory beside a device in memory.
    Memory(Arc<dyn NamedFlash>),
}

/// Location of the journal, which may not exist yet.
pub(crate) struct JournalPlace {
    medium: JournalMedium,
    bytes: u64,
    force: bool,
}

impl JournalPlace {
    /// Returns the file; `None` for a journal in memory.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.medium {
            JournalMedium::File(path) => Some(path),
            JournalMedium::Memory(_) => None,
        }
    }

    /// Returns the path, or a description of a journal in memory.
    pub(crate) fn path(&self) -> PathBuf {
        let file = self.file().map(Path::to_owned);
        file.unwrap_or_else(|| "the journal in memory".into())
    }

    /// Opens the journal, or creates it. Blocks the thread.
    pub(crate) fn open(self) -> Result<Arc<dyn Journal>, JournalError> {
        let path = match self.medium {
            JournalMedium::File(path) => path,
            JournalMedium::Memory(device) => {
                return Ok(device.journal(self.bytes as usize / size_of::<u64>()));
            }
        };
        let deadline = Instant::now() + IN_USE_PATIENCE;
        let in_use = |error: &JournalError| matches!(error.problem, JournalProblem::InUse { .. });
        let new = new_journal(self.bytes, PARTITION_BITS, self.force);
        let open = || FileJournal::open(&path, &new);
        Ok(Arc::new(retry_until(deadline, in_use, open)?))
    }
}

impl OpenFlash {
    /// Opens the configured device. Blocks the thread.
    pub(crate) fn open(config: &Config) -> Result<Self, ServeError> {
        match &config.cache.flash {
            FlashSetting::Path(path) => Self::open_path(config, path),
            FlashSetting::Named(device) => Self::open_named(config, device.as_ref()),
        }
    }

    fn open_path(config: &Config, path: &Path) -> Result<Self, ServeError> {
        let cache = &config.cache;
        let asked = cache.flash_size.map(|size| size.0);
        // The superblock of emulated flash has a file of its own, which is named so.
        let is_meta = path
            .extension()
            .is_some_and(|extension| extension == "meta");
        let image_bytes = |beginning: &[u8]| engine::image_bytes(beginning).filter(|_| !is_meta);
        let open = || FileDisk::open_image(path, asked, image_bytes, options(cache));
        let disk = Arc::new(open_file(open)?);
        let words = disk.describe();
        let mut open = Self::on(config, Medium::Disk(Arc::clone(&disk) as _), words);
        open.file = Some(disk);
        Ok(open)
    }

    fn open_named(config: &Config, device: &dyn NamedFlash) -> Result<Self, ServeError> {
        let in_use = |error: &NamedError| error.is_in_use;
        let deadline = Instant::now() + IN_USE_PATIENCE;
        let opened = retry_until(deadline, in_use, || device.open())?;
        let memory = Size(opened.memory_bytes.next_multiple_of(1 << 20));
        let medium = match opened.medium {
            OpenedMedium::Disk(disk) => Medium::Disk(disk),
            OpenedMedium::Flash { flash, is_new } => Medium::Flash {
                meta: match device.file() {
                    None => Arc::new(MemoryDisk::new(META_BYTES)),
                    Some(file) => Arc::new(open_meta(&config.cache, file, is_new)?),
                },
                flash,
            },
        };
        let mut open = Self::on(config, medium, opened.description);
        open.notice = Some(notice(device, memory));
        Ok(open)
    }

    /// Returns the files that hold stored values, or their keys.
    pub(crate) fn files(&self, config: &Config) -> Vec<PathBuf> {
        let flash = &config.cache.flash;
        let image = flash.path().map(|_| flash.image());
        let files = [
            flash.path().map(Path::to_owned),
            image,
            self.journal.file().map(Path::to_owned),
            self.index_path(),
        ];
        let mut files: Vec<PathBuf> = files.into_iter().flatten().collect();
        files.dedup();
        files
    }

    /// Returns the file or device of the index, if it outlives the process.
    pub(crate) fn index_path(&self) -> Option<PathBuf> {
        let path = self.index.as_ref()?.setting.path();
        path.map(Path::to_owned)
    }

    fn on(config: &Config, medium: Medium, words: String) -> Self {
        let (bytes, block_bytes) = match &medium {
            Medium::Disk(disk) => (disk.len_bytes(), None),
            Medium::Flash { flash, .. } => {
                let shape = flash.geometry();
                let bytes = u64::from(shape.blocks()) * shape.block_bytes();
                (bytes, u32::try_from(shape.block_bytes()).ok())
            }
        };
        let cache = &config.cache;
        let beside = |path: &Path| JournalMedium::File(FileJournal::path_beside(path));
        let journal = JournalPlace {
            medium: match (&cache.journal, &cache.flash) {
                (Some(path), _) => JournalMedium::File(path.clone()),
                (None, FlashSetting::Path(path)) => beside(path),
                (None, FlashSetting::Named(device)) => match device.file() {
                    Some(path) => beside(path),
                    None => JournalMedium::Memory(Arc::clone(device)),
                },
            },
            force: cache.force,
            bytes: match cache.journal_size {
                Some(size) => size.0,
                None => {
                    let limit = cache.flash_write_limit.map(|rate| rate.0);
                    journal_bytes(bytes, config.memory().0, PARTITION_BITS, limit)
                }
            },
        };
        Self {
            medium,
            file: None,
            bytes,
            block_bytes,
            words,
            notice: None,
            journal,
            index: cache.index_flash.clone().map(|setting| IndexPlace {
                setting,
                bytes: cache.index_flash_size.map(|size| size.0),
                options: options(cache),
                words: Arc::default(),
            }),
        }
    }
}

fn notice(device: &dyn NamedFlash, memory: Size) -> String {
    match device.file() {
        Some(file) => format!(
            "the flash is emulated in a file, its superblock in {}; it takes up to {memory} of \
             memory beside --memory",
            meta_beside(file).display()
        ),
        None => format!(
            "the flash is emulated in memory: what it holds goes with this process; it takes up to \
             {memory} beside --memory"
        ),
    }
}

fn options(cache: &CacheSection) -> FileOptions {
    FileOptions {
        preallocate: cache.preallocate,
        force: cache.force,
        overwrite_filesystem: cache.overwrite_filesystem,
        ..FileOptions::default()
    }
}

/// Opens a file. Waits if another process is about to release it.
pub(crate) fn open_file<T>(
    open: impl Fn() -> Result<T, device::OpenError>,
) -> Result<T, device::OpenError> {
    let deadline = Instant::now() + IN_USE_PATIENCE;
    let in_use = |error: &device::OpenError| matches!(error.problem, OpenProblem::InUse { .. });
    retry_until(deadline, in_use, open)
}

/// Opens the superblock's file. Creates it if the flash is new.
fn open_meta(cache: &CacheSection, file: &Path, is_new: bool) -> Result<FileDisk, ServeError> {
    let path = meta_beside(file);
    if !is_new && !cache.force && !path.exists() {
        return Err(ServeError::NoSuperblock {
            path,
            flash: file.to_owned(),
        });
    }
    let options = FileOptions {
        size: Some(META_BYTES),
        create: true,
        min_bytes: META_BYTES,
        ..options(cache)
    };
    Ok(open_file(|| FileDisk::open(&path, &options))?)
}

/// Retries `attempt` while the resource is in use: a process killed a moment ago may still hold the address and the
/// flash, as the kernel ends its I/O first.
pub(crate) fn retry_until<T, E>(
    deadline: Instant,
    in_use: impl Fn(&E) -> bool,
    attempt: impl Fn() -> Result<T, E>,
) -> Result<T, E> {
    loop {
        match attempt() {
            Err(error) if in_use(&error) && Instant::now() < deadline => {
                std::thread::sleep(IN_USE_PAUSE);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use device::Disk;

    use super::*;

    #[test]
    fn flash_whose_superblock_is_gone_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("flash");
        let mut cache = CacheSection::default();
        let refused = open_meta(&cache, &file, false).unwrap_err().to_string();
        assert!(refused.contains("flash.meta") && refused.contains("--force"));
        assert!(!meta_beside(&file).exists());
        for (force, is_new) in [(true, false), (false, true)] {
            cache.force = force;
            let meta = open_meta(&cache, &file, is_new).unwrap();
            assert_eq!(meta.len_bytes(), META_BYTES);
        }
    }
}
