//! A structure in files: its drives, and its log beside the first drive.
//!
//! Without `force` no existing data is lost. A creation that fails removes the files that it has made, and leaves an existing log
//! as it was.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::encoding::log::LOG_MAGIC;
use crate::encoding::table::SliceSuperblock;
use device::{AlignedBuf, Disk, FileDisk, FileJournal, FileOptions, Journal, NewJournal};
use format::FormatError;
use format::index_device::IndexHeader;
use format::superblock::Superblock;

use crate::error::SliceError;

/// Bytes at the start of a block device that are read to recognize its contents.
const HEAD_BYTES: u64 = 1 << 20;

/// The drives and the log of a structure. Holds the locks of their files.
pub struct Files {
    /// The drives, in the order in which they were named.
    pub disks: Vec<Arc<dyn Disk>>,
    /// The log of the structure, which lies beside the first drive.
    pub journal: Arc<dyn Journal>,
}

/// Returns the path of a structure's log: beside its first drive, or in the current directory if that drive is a block device,
/// whose directory is no place for files.
pub fn log_path(first: &Path) -> PathBuf {
    FileJournal::path_beside(first).with_extension("log")
}

impl Files {
    /// Creates files of `bytes` each at `paths`, or uses block devices as they are, and creates a log with at least the words
    /// that `log_words` returns for these drives. `log_words` may write to the drives. Blocks the thread.
    ///
    /// # Errors
    /// If a path holds data and `force` is false, if a file is named twice, and errors of the system.
    pub async fn create(
        paths: &[PathBuf],
        bytes: u64,
        force: bool,
        log_words: impl AsyncFnOnce(&[Arc<dyn Disk>]) -> Result<usize, SliceError>,
    ) -> Result<Self, SliceError> {
        let log = checked_log_path(paths)?;
        if !force {
            refuse_what_is_there(paths, &log)?;
        }
        let options = FileOptions {
            size: Some(bytes),
            create: true,
            force,
            ..FileOptions::default()
        };
        let mut disks = Vec::new();
        let mut made = Made::default();
        for path in paths {
            let disk = made.open(path, &options)?;
            if !force && is_block_device(path) {
                refuse_what_is_in(&*disk, disks.len(), path).await?;
            }
            disks.push(disk);
        }
        let words = log_words(&disks).await?;
        let bytes = (8 * words as u64).next_multiple_of(device::PAGE_BYTES as u64);
        let new = NewJournal {
            bytes,
            least_bytes: bytes,
            // A log that must not be lost has been refused above.
            is_journal: |_| true,
            empty_when_lost: false,
        };
        let journal =
            FileJournal::open(&log, &new).map_err(|error| SliceError::Open(error.to_string()))?;
        made.keep();
        Ok(Self {
            disks,
            journal: Arc::new(journal),
        })
    }

    /// Opens the files of a structure, named in the order of its creation. Blocks the thread.
    ///
    /// # Errors
    /// If a file is missing, in use or named twice, and errors of the system.
    pub fn open(paths: &[PathBuf]) -> Result<Self, SliceError> {
        let log = checked_log_path(paths)?;
        let disks = paths
            .iter()
            .map(|path| open_disk(path, &FileOptions::default()))
            .collect::<Result<_, _>>()?;
        if !log.exists() {
            return Err(SliceError::LogMissing { path: log });
        }
        let new = NewJournal {
            bytes: 0,
            least_bytes: device::PAGE_BYTES as u64,
            is_journal: |_| false,
            empty_when_lost: false,
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

/// The files that a creation has made. Dropping it removes them, before their locks are released. (A file that was never written
/// to is removed anyway, but `log_words` may write.)
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn open(&mut self, path: &Path, options: &FileOptions) -> Result<Arc<dyn Disk>, SliceError> {
        let is_new = !path.exists();
        let disk = open_disk(path, options)?;
        if is_new {
            self.0.push(path.to_owned());
        }
        Ok(disk)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn open_disk(path: &Path, options: &FileOptions) -> Result<Arc<dyn Disk>, SliceError> {
    let disk = FileDisk::open(path, options);
    Ok(Arc::new(
        disk.map_err(|error| SliceError::Open(error.to_string()))?,
    ))
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Returns the path of a file without links, whether the file exists or not.
fn canonical(path: &Path) -> PathBuf {
    let beside = || {
        let parent = path.parent()?;
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    let found = path.canonicalize().ok();
    found.or_else(beside).unwrap_or_else(|| path.to_owned())
}

/// Returns the path of the log. Refuses a drive that is named twice or is the log.
fn checked_log_path(paths: &[PathBuf]) -> Result<PathBuf, SliceError> {
    let Some(first) = paths.first() else {
        return Err(SliceError::Setting("name at least one drive".to_owned()));
    };
    let log = log_path(first);
    let canonical_log = canonical(&log);
    let mut before = HashSet::new();
    for (drive, path) in paths.iter().enumerate() {
        let path = canonical(path);
        if path == canonical_log {
            return Err(SliceError::DriveIsLog { path: log });
        }
        if !before.insert(path) {
            return Err(SliceError::SameDrive { drive });
        }
    }
    Ok(log)
}

/// Refuses regular files that hold data, and a file at `log` that is no log of slices.
fn refuse_what_is_there(paths: &[PathBuf], log: &Path) -> Result<(), SliceError> {
    let is_used =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    let used = paths.iter().find(|path| is_used(path));
    if let Some(path) = used {
        return Err(SliceError::Exists { path: path.clone() });
    }
    if !is_used(log) {
        return Ok(());
    }
    let mut head = [0; 8];
    let read = File::open(log).and_then(|mut file| file.read_exact(&mut head));
    match read.is_ok() && head == LOG_MAGIC.to_le_bytes() {
        true => Ok(()),
        false => Err(SliceError::Exists {
            path: log.to_owned(),
        }),
    }
}

/// Refuses a block device that holds data.
async fn refuse_what_is_in(disk: &dyn Disk, number: usize, path: &Path) -> Result<(), SliceError> {
    let head = AlignedBuf::new(HEAD_BYTES.min(disk.len_bytes()) as usize);
    let read = disk.read(0, head).await;
    match contents_of(&read.map_err(SliceError::device(number))?) {
        None => Ok(()),
        Some(what) => Err(SliceError::Holds {
            path: path.to_owned(),
            what,
        }),
    }
}

/// Names the contents of a device that begins with `head`. Returns `None` if `head` is all zeros.
fn contents_of(head: &[u8]) -> Option<&'static str> {
    if head.iter().all(|&byte| byte == 0) {
        return None;
    }
    let is_own = |error: FormatError| !matches!(error, FormatError::Magic | FormatError::Range);
    Some(if SliceSuperblock::decode(head).err().is_none_or(is_own) {
        "a structure of slices"
    } else if Superblock::decode(head).err().is_none_or(is_own) {
        "an image of Flowstone"
    } else if IndexHeader::decode(head).err().is_none_or(is_own) {
        "the index of an image of Flowstone"
    } else {
        device::file_system_in(head).unwrap_or("something that this program does not know")
    })
}

#[cfg(test)]
mod tests {
    use crate::encoding::table::SliceKind;

    use super::*;

    #[test]
    fn a_log_lies_beside_a_file() {
        for name in ["dir/drive", "drive.slices", "/a/b.c.d"] {
            assert_eq!(log_path(Path::new(name)), Path::new(&format!("{name}.log")));
        }
    }

    #[test]
    fn a_device_that_holds_something_is_refused() {
        let disk = device::MemoryDisk::new(2 << 20);
        let refused = || {
            let path = Path::new("/dev/disk");
            pollster::block_on(refuse_what_is_in(&disk, 0, path))
        };
        assert!(refused().is_ok());
        let mut page = AlignedBuf::new(4096);
        SliceSuperblock::new(SliceKind::Bloom).encode(&mut page);
        pollster::block_on(disk.write(0, page.into())).expect("it works");
        let refused = refused().expect_err("it is used").to_string();
        assert!(
            refused.contains("/dev/disk: holds a structure of slices"),
            "{refused}"
        );
    }

    #[test]
    fn what_a_device_holds_is_told() {
        let mut head = vec![0; 1 << 20];
        assert_eq!(contents_of(&head), None);
        SliceSuperblock::new(SliceKind::Hash).encode(&mut head[..4096]);
        assert_eq!(contents_of(&head), Some("a structure of slices"));
        // A damaged superblock must not be overwritten either.
        head[100] ^= 1;
        assert_eq!(contents_of(&head), Some("a structure of slices"));
        head[..4].copy_from_slice(b"XFSB");
        assert_eq!(contents_of(&head), Some("an XFS file system"));
        head.fill(0);
        head[1 << 19] = 1;
        assert!(contents_of(&head).is_some_and(|what| what.contains("does not know")));
    }
}
