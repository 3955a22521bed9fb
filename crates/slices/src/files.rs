//! A structure in files: its drives, and its log beside the first of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Disk, FileDisk, FileJournal, FileOptions, Journal, NewJournal};
use format::slices::LOG_MAGIC;

use crate::error::SliceError;

/// What a structure lies on. Holds the locks of its files.
pub struct Files {
    /// The drives, in order.
    pub disks: Vec<Arc<dyn Disk>>,
    /// The log.
    pub journal: Arc<dyn Journal>,
}

/// Where the log of a structure lies: beside the first of its drives.
pub fn log_path(first: &Path) -> PathBuf {
    let mut path = first.as_os_str().to_owned();
    path.push(".log");
    path.into()
}

/// Whether a log begins so: one of slices, or one that is new.
fn is_log(beginning: &[u8]) -> bool {
    let word = beginning.get(..8);
    word.is_none_or(|word| word == LOG_MAGIC.to_le_bytes() || word.iter().all(|&byte| byte == 0))
}

impl Files {
    /// Makes new files of `bytes` each at `paths`, or takes block devices as they are, and a log of as many words as
    /// `log_words` says for these drives, which it may write to. Blocks the thread.
    ///
    /// # Errors
    /// Where there is something already, unless `force`, and whatever the system says.
    pub async fn create(
        paths: &[PathBuf],
        bytes: u64,
        force: bool,
        log_words: impl AsyncFnOnce(&[Arc<dyn Disk>]) -> Result<usize, SliceError>,
    ) -> Result<Self, SliceError> {
        let options = FileOptions {
            size: Some(bytes),
            create: true,
            force,
            ..FileOptions::default()
        };
        for path in paths {
            let is_used =
                std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
            if is_used && !force {
                return Err(SliceError::Exists { path: path.clone() });
            }
        }
        let disks = open_disks(paths, &options)?;
        let words = log_words(&disks).await?;
        let Some(first) = paths.first() else {
            return Err(SliceError::Setting("name at least one drive".to_owned()));
        };
        let log = log_path(first);
        if std::fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
            // A log of another length, or of another structure: what it holds belongs to drives that are made anew.
            std::fs::remove_file(&log).map_err(|source| SliceError::io(&log, source))?;
        }
        let bytes = (8 * words as u64).next_multiple_of(device::PAGE_BYTES as u64);
        let new = NewJournal {
            bytes,
            least_bytes: bytes,
            is_journal: is_log,
        };
        let journal =
            FileJournal::open(&log, &new).map_err(|error| SliceError::Open(error.to_string()))?;
        Ok(Self {
            disks,
            journal: Arc::new(journal),
        })
    }

    /// Opens the files of a structure, named in the order in which they were when it was made. Blocks the thread.
    ///
    /// # Errors
    /// Where one is missing or in use, and whatever the system says.
    pub fn open(paths: &[PathBuf]) -> Result<Self, SliceError> {
        let disks = open_disks(paths, &FileOptions::default())?;
        let Some(first) = paths.first() else {
            return Err(SliceError::Setting("name at least one drive".to_owned()));
        };
        let log = log_path(first);
        if !log.exists() {
            return Err(SliceError::LogMissing { path: log });
        }
        let new = NewJournal {
            bytes: 0,
            least_bytes: device::PAGE_BYTES as u64,
            is_journal: |_| false,
        };
        let journal = FileJournal::open(&log, &new).map_err(|error| match error.problem {
            device::JournalProblem::Foreign => SliceError::OtherLog,
            _ => SliceError::Open(error.to_string()),
        })?;
        Ok(Self {
            disks,
            journal: Arc::new(journal),
        })
    }
}

fn open_disks(paths: &[PathBuf], options: &FileOptions) -> Result<Vec<Arc<dyn Disk>>, SliceError> {
    let open = |path: &PathBuf| -> Result<Arc<dyn Disk>, SliceError> {
        let disk =
            FileDisk::open(path, options).map_err(|error| SliceError::Open(error.to_string()))?;
        Ok(Arc::new(disk))
    };
    paths.iter().map(open).collect()
}
