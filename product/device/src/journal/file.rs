//! [`FileJournal`]: a journal in a mapped file.

use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use runtime::file::MappedFile;

use super::{Found, Journal, Origin};
use crate::error::holder;
use crate::{Bytes, DeviceError, IoFuture, Operation, PathError, Setting};

/// Error that says in one line why a journal cannot be used, and how to fix that.
pub type JournalError = PathError<JournalProblem>;

/// Problem of a journal.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum JournalProblem {
    /// The file holds other data.
    #[error(
        "it holds something that is not a Flowstone journal; name another file with {journal}, or use {force} to \
         overwrite it",
        journal = Setting::Journal, force = Setting::Force
    )]
    Foreign,
    /// A process uses it.
    #[error("the journal is in use by {}", holder(*here))]
    InUse { here: bool },
    /// The file system has no space for it.
    #[error(
        "{:.1} do not fit its file system; free some space or name another place with {journal}",
        Bytes(*bytes),
        journal = Setting::Journal
    )]
    NoSpace { bytes: u64 },
    /// The size is over a limit on the size of files.
    #[error(
        "{:.1} are more than a file may have; raise the limit (ulimit -f), or ask for less with {journal_size}",
        Bytes(*bytes),
        journal_size = Setting::JournalSize
    )]
    FileSize { bytes: u64 },
    /// The file cannot be read.
    #[error("the journal cannot be read: {source}")]
    Unreadable { source: io::Error },
    /// The file cannot be read and written.
    #[error(
        "the journal must be a regular file that can be read, written and made durable: {source}; name another place with {journal}",
        journal = Setting::Journal
    )]
    Io { source: io::Error },
}

/// Rules for a journal that is missing or has been truncated.
#[derive(Clone, Copy, Debug)]
pub struct NewJournal {
    /// Size of a new journal in bytes.
    pub bytes: u64,
    /// A file with fewer bytes than this has been truncated.
    pub least_bytes: u64,
    /// Returns whether a file that begins with these bytes is a journal, or may become one.
    pub is_journal: fn(&[u8]) -> bool,
    /// Cut the file to nothing when the system takes pages of it away: a journal without all records counts for nothing.
    pub empty_when_lost: bool,
}

/// A journal in a file, with the file's exclusive lock unless it is open for reading only.
#[derive(Debug)]
pub struct FileJournal {
    file: MappedFile,
}

impl FileJournal {
    /// Returns the default path of the journal for the flash at `flash`: beside a regular file, or in the current directory for a
    /// block device, because a device directory is no place for files.
    pub fn path_beside(flash: &Path) -> PathBuf {
        let is_device =
            std::fs::metadata(flash).is_ok_and(|found| found.file_type().is_block_device());
        let base = if is_device {
            Path::new(flash.file_name().unwrap_or(flash.as_os_str()))
        } else {
            flash
        };
        let mut path = base.as_os_str().to_owned();
        path.push(".journal");
        path.into()
    }

    /// Opens the journal at `path`, or creates or extends it as `new` says. Dropping a journal without stores undoes its creation
    /// or extension. Blocks the thread.
    pub fn open(path: &Path, new: &NewJournal) -> Result<Self, JournalError> {
        let allowed = runtime::process::file_bytes_allowed().unwrap_or(u64::MAX);
        let mut bytes_needed = new.bytes;
        let bytes_of = |bytes: u64, beginning: &[u8]| {
            if bytes >= new.least_bytes {
                bytes_needed = bytes;
            } else if !(new.is_journal)(beginning) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if bytes_needed > allowed {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok(bytes_needed)
        };
        let problem = match MappedFile::open(path, bytes_of, new.empty_when_lost) {
            Ok(Some(file)) => return Ok(Self { file }),
            Ok(None) => JournalProblem::InUse {
                here: runtime::file::is_locked_here(path),
            },
            Err(source) => match source.kind() {
                io::ErrorKind::InvalidData => JournalProblem::Foreign,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    JournalProblem::NoSpace { bytes: new.bytes }
                }
                io::ErrorKind::FileTooLarge => JournalProblem::FileSize {
                    bytes: bytes_needed,
                },
                _ => JournalProblem::Io { source },
            },
        };
        Err(JournalError::at(path)(problem))
    }

    /// Opens the journal at `path` for reading, even while another process uses it. Returns `None` if the file is missing or
    /// empty. Stores of the other process are visible; a store through this value panics. Blocks the thread.
    pub fn open_read_only(path: &Path) -> Result<Option<Self>, JournalError> {
        let is_empty = |found: std::fs::Metadata| found.is_file() && found.len() == 0;
        if std::fs::metadata(path).is_ok_and(is_empty) {
            return Ok(None);
        }
        match MappedFile::open_read_only(path) {
            Ok(file) => Ok(Some(Self { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(JournalError::at(path)(JournalProblem::Unreadable {
                source,
            })),
        }
    }
}

/// Returns the path of a file by the real path of its folder.
fn absolute(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Returns whether two paths name one file: by its inode, or by folder and name if it is yet to be made.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match (identity(one), identity(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => absolute(one) == absolute(other),
    }
}

impl Journal for FileJournal {
    fn words(&self) -> usize {
        self.file.word_count()
    }

    fn origin(&self) -> Origin {
        let bytes = 8 * self.file.word_count() as u64;
        let found = match self.file.bytes_before() {
            None => Found::Missing,
            Some(before) if before < bytes => Found::Short { bytes: before },
            Some(_) => Found::Whole,
        };
        let path = Some(absolute(self.file.path()));
        Origin { found, path }
    }

    fn load(&self, word: usize) -> u64 {
        self.file.load(word)
    }

    fn read(&self, start: usize, words: &mut [u64]) -> Result<(), DeviceError> {
        let (offset, len) = (8 * start as u64, size_of_val(words));
        let read = self.file.read(start, words);
        read.map_err(|source| DeviceError::io(Operation::Read, offset, len, source))
    }

    fn store(&self, word: usize, value: u64) {
        self.file.store(word, value);
    }

    fn clear(&self, words: Range<usize>) {
        self.file.clear(words);
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let synced = self.file.sync().await;
            synced.map_err(|source| DeviceError::io(Operation::Sync, 0, 0, source))
        })
    }

    fn let_go(&self, words: Range<usize>) {
        self.file.let_go(words);
    }
}
