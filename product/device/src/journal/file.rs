//! [`FileJournal`]: a mapped file.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use runtime::file::MappedFile;

use super::Journal;
use crate::{Bytes, DeviceError, IoFuture, Operation, PathError};

/// Why a journal cannot be used, in one line, with what to do.
pub type JournalError = PathError<JournalProblem>;

/// What is wrong with a journal.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum JournalProblem {
    /// It holds something else.
    #[error(
        "it holds something that is not a Flowstone journal; name another file with cache.journal, or use --force to \
         overwrite it"
    )]
    Foreign,
    /// Another process has it.
    #[error("in use by another process; stop that one or name another journal")]
    InUse,
    /// There is no room for it.
    #[error(
        "{:.1} do not fit its file system; free some space or name another place with cache.journal",
        Bytes(*bytes)
    )]
    NoSpace { bytes: u64 },
    /// It cannot be read.
    #[error("the journal cannot be read: {source}")]
    Unreadable { source: io::Error },
    /// It may not be written.
    #[error(
        "the journal must be a regular file that can be read and written: {source}; name another place with cache.journal"
    )]
    Io { source: io::Error },
}

/// What becomes of a journal that there is not, or that somebody has cut short.
#[derive(Clone, Copy, Debug)]
pub struct NewJournal {
    /// Bytes that it gets.
    pub bytes: u64,
    /// One that has fewer bytes than this has been cut short.
    pub least_bytes: u64,
    /// Whether what begins with these bytes is a journal, or is to be taken for one.
    pub is_journal: fn(&[u8]) -> bool,
}

/// A journal in a file, with the file's exclusive lock unless it is open for reading only.
#[derive(Debug)]
pub struct FileJournal {
    file: MappedFile,
}

impl FileJournal {
    /// Where the journal of the flash at `flash` is, unless said otherwise: beside a file; in the
    /// current directory for a block device, whose directory is no place for files.
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

    /// Opens the journal at `path`, or makes it as `new` says. What was made or made longer is taken back when it is
    /// dropped and nothing has been stored in it. Blocks the thread.
    pub fn open(path: &Path, new: &NewJournal) -> Result<Self, JournalError> {
        let new_bytes = new.bytes;
        let bytes_of = |bytes: u64, beginning: &[u8]| {
            if bytes >= new.least_bytes {
                Ok(bytes)
            } else if (new.is_journal)(beginning) {
                Ok(new_bytes)
            } else {
                Err(io::ErrorKind::InvalidData.into())
            }
        };
        let problem = match MappedFile::open(path, bytes_of) {
            Ok(Some(file)) => return Ok(Self { file }),
            Ok(None) => JournalProblem::InUse,
            Err(source) => match source.kind() {
                io::ErrorKind::InvalidData => JournalProblem::Foreign,
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => JournalProblem::NoSpace { bytes: new_bytes },
                _ => JournalProblem::Io { source },
            },
        };
        Err(JournalError::at(path)(problem))
    }

    /// Opens the journal at `path` to look at it, beside whoever uses it; `None` when there is none, or
    /// an empty file.
    /// What is stored in it meanwhile is seen, a store of one's own panics. Blocks the thread.
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

impl Journal for FileJournal {
    fn words(&self) -> usize {
        self.file.word_count()
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
