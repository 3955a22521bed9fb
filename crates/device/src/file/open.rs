//! Opening a [`FileDisk`](super::FileDisk): the checks before anything is changed, and what each
//! refusal says.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use runtime::file::{DirectFile, Kind, OpenFlags};

use crate::{Bytes, PAGE_BYTES};

/// How to open a [`FileDisk`](super::FileDisk).
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Bytes to use. `None` for all of an existing file or device; needed for a new file.
    pub size: Option<u64>,
    /// Create the file when there is none.
    pub create: bool,
    /// Bypass the page cache where the file system can.
    pub direct: bool,
    /// Reserve the space of a new file at once, rather than as it is written.
    pub preallocate: bool,
    /// Use a block device even if it is mounted or partitioned.
    pub force: bool,
    /// Fewer bytes than this are refused.
    pub min_bytes: u64,
}

impl Default for FileOptions {
    /// An existing file or device, all of it, past the page cache.
    fn default() -> Self {
        Self {
            size: None,
            create: false,
            direct: true,
            preallocate: false,
            force: false,
            min_bytes: PAGE_BYTES as u64,
        }
    }
}

/// Why a file or block device cannot be used, in one line, with what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum OpenError {
    /// There is no such file.
    #[error("{}: no such file; create it by giving its size", path.display())]
    Missing { path: PathBuf },
    /// There is nothing to look at.
    #[error("{}: no such file", path.display())]
    Absent { path: PathBuf },
    /// It may not be looked at.
    #[error("{}: permission denied; let this user read it", path.display())]
    Unreadable { path: PathBuf },
    /// There is no such directory.
    #[error("{}: its directory does not exist; create it first", path.display())]
    MissingDirectory { path: PathBuf },
    /// It is something that cannot hold data.
    #[error("{}: is a {what}; name a regular file or a block device", path.display())]
    NotStorage { path: PathBuf, what: &'static str },
    /// Another process has it open as a disk.
    #[error("{}: in use by another process; stop that one or name another file", path.display())]
    InUse { path: PathBuf },
    /// The system itself uses the block device.
    #[error("{}: the device is mounted or part of a volume; unmount it, or use --force to overwrite it", path.display())]
    Mounted { path: PathBuf },
    /// The block device has partitions.
    #[error("{}: the device has partitions; name one of them, or use --force to overwrite them all", path.display())]
    Partitioned { path: PathBuf },
    /// It is smaller than asked for.
    #[error("{}: holds {:.2}, {:.2} are needed; ask for less or name a larger one", path.display(), Bytes(*has_bytes), Bytes(*needs_bytes))]
    TooSmall {
        path: PathBuf,
        has_bytes: u64,
        needs_bytes: u64,
    },
    /// It holds an image smaller than what is asked for.
    #[error("{}: has {:.2} and --flash-size asks for {:.2}: leave --flash-size out to open it as it is, or add --force to start empty with the new size", path.display(), Bytes(*has_bytes), Bytes(*asked_bytes))]
    Smaller {
        path: PathBuf,
        has_bytes: u64,
        asked_bytes: u64,
    },
    /// The file system has no room for the size asked for.
    #[error("{}: {:.2} do not fit, the file system has room for {:.2}; ask for less or free some space", path.display(), Bytes(*needs_bytes), Bytes(*room_bytes))]
    NoSpace {
        path: PathBuf,
        needs_bytes: u64,
        room_bytes: u64,
    },
    /// The file may not be read and written, or not be created there.
    #[error("{}: permission denied; let this user read and write it", path.display())]
    Permission { path: PathBuf },
    /// The file system cannot be written to.
    #[error("{}: the file system is read-only; name a file elsewhere", path.display())]
    ReadOnly { path: PathBuf },
    /// Anything else that the system says.
    #[error("{}: cannot be opened: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Opens, locks and sizes the file; returns the bytes to use of it.
pub(super) fn open(path: &Path, options: &FileOptions) -> Result<(DirectFile, u64), OpenError> {
    let is_new = match std::fs::metadata(path) {
        Ok(found) => {
            check_type(path, found.file_type())?;
            false
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_creation(path, options)?;
            true
        }
        Err(error) => return Err(refusal(path, error)),
    };
    let file = DirectFile::open(
        path,
        OpenFlags {
            read_only: false,
            create_new: is_new,
            direct: options.direct,
            exclusive_device: !options.force,
        },
    )
    .map_err(|error| refusal(path, error))?;
    let sized = lock_and_size(&file, options);
    if sized.is_err() && is_new {
        // Nothing has been stored in it; what cannot be removed is an empty file.
        let _ = std::fs::remove_file(path);
    }
    Ok((file, sized?))
}

/// Opens the file to look at it, without a lock; returns the bytes of its whole pages.
pub(super) fn open_read_only(path: &Path) -> Result<(DirectFile, u64), OpenError> {
    let refusal = |error: io::Error| {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => OpenError::Absent { path },
            io::ErrorKind::PermissionDenied => OpenError::Unreadable { path },
            _ => OpenError::Io {
                path,
                source: error,
            },
        }
    };
    let found = std::fs::metadata(path).map_err(refusal)?;
    check_type(path, found.file_type())?;
    let flags = OpenFlags {
        read_only: true,
        create_new: false,
        direct: true,
        exclusive_device: false,
    };
    let file = DirectFile::open(path, flags).map_err(refusal)?;
    let len_bytes = file.len_bytes().map_err(refusal)?;
    Ok((file, whole_pages(len_bytes)))
}

/// Bytes of the whole pages among the first `len`.
pub(super) fn whole_pages(len: u64) -> u64 {
    len / PAGE_BYTES as u64 * PAGE_BYTES as u64
}

fn check_type(path: &Path, found: FileType) -> Result<(), OpenError> {
    let what = if found.is_file() || found.is_block_device() {
        return Ok(());
    } else if found.is_dir() {
        "directory"
    } else if found.is_char_device() {
        "character device"
    } else if found.is_fifo() {
        "pipe"
    } else {
        "socket"
    };
    Err(OpenError::NotStorage {
        path: path.to_owned(),
        what,
    })
}

fn check_creation(path: &Path, options: &FileOptions) -> Result<(), OpenError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let path = path.to_owned();
    if !parent.is_dir() {
        return Err(OpenError::MissingDirectory { path });
    }
    match options.size {
        Some(size) if options.create => {
            check_minimum(&path, whole_pages(size), options.min_bytes)?;
            Ok(())
        }
        _ => Err(OpenError::Missing { path }),
    }
}

fn check_minimum(path: &Path, has_bytes: u64, needs_bytes: u64) -> Result<u64, OpenError> {
    if has_bytes >= needs_bytes {
        return Ok(has_bytes);
    }
    Err(OpenError::TooSmall {
        path: path.to_owned(),
        has_bytes,
        needs_bytes,
    })
}

fn lock_and_size(file: &DirectFile, options: &FileOptions) -> Result<u64, OpenError> {
    let path = file.path();
    let locked = file.try_lock().map_err(|error| refusal(path, error))?;
    if !locked {
        return Err(OpenError::InUse {
            path: path.to_owned(),
        });
    }
    let partitioned = file
        .is_partitioned()
        .map_err(|error| refusal(path, error))?;
    if partitioned && !options.force {
        return Err(OpenError::Partitioned {
            path: path.to_owned(),
        });
    }
    let has = file.len_bytes().map_err(|error| refusal(path, error))?;
    let asked = whole_pages(options.size.unwrap_or(has));
    match file.kind() {
        Kind::BlockDevice => check_minimum(path, has, asked)?,
        Kind::File if has == 0 => {
            check_minimum(path, asked, options.min_bytes)?;
            set_size(file, asked, options.preallocate)?;
            0
        }
        Kind::File => 0,
    };
    if has == 0 {
        return Ok(asked);
    }
    check_minimum(path, has, options.min_bytes)?;
    let usable = asked.min(whole_pages(has));
    check_minimum(path, usable, options.min_bytes)
}

/// Makes a regular file `len` bytes long.
pub(super) fn set_size(file: &DirectFile, len: u64, preallocate: bool) -> Result<(), OpenError> {
    let path = file.path();
    if file.kind() == Kind::BlockDevice {
        let has = file.len_bytes().map_err(|error| refusal(path, error))?;
        check_minimum(path, has, len)?;
        return Ok(());
    }
    let room_bytes = file.room_bytes().map_err(|error| refusal(path, error))?;
    let no_space = || OpenError::NoSpace {
        path: path.to_owned(),
        needs_bytes: len,
        room_bytes,
    };
    if room_bytes < len {
        return Err(no_space());
    }
    let made = if preallocate {
        file.preallocate(len)
    } else {
        file.set_len(len)
    };
    made.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
            no_space()
        }
        _ => refusal(path, error),
    })
}

/// The refusal behind an error of the system.
fn refusal(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path },
        io::ErrorKind::NotADirectory => OpenError::MissingDirectory { path },
        io::ErrorKind::PermissionDenied => OpenError::Permission { path },
        io::ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly { path },
        io::ErrorKind::ResourceBusy => OpenError::Mounted { path },
        // Two processes have created it at once; the other has it now.
        io::ErrorKind::AlreadyExists => OpenError::InUse { path },
        _ => OpenError::Io { path, source },
    }
}
