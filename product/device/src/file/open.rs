//! Opening a [`FileDisk`](super::FileDisk): the checks before any change, and the message of each refusal.

use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use runtime::file::{DirectFile, Kind, OpenFlags};

use crate::error::holder;
use crate::{Bytes, PAGE_BYTES, PathError, Setting};

/// Options with which a [`FileDisk`](super::FileDisk) is opened.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Bytes to use. `None` for all of an existing file or device; needed for a new file.
    pub size: Option<u64>,
    /// Create a missing file.
    pub create: bool,
    /// Bypass the page cache where the file system can.
    pub direct: bool,
    /// Reserve the space of a new file at once, rather than as it is written.
    pub preallocate: bool,
    /// Extend a file that is smaller than asked for.
    pub force: bool,
    /// Use a block device that has partitions.
    pub overwrite_filesystem: bool,
    /// Smallest number of bytes; a smaller file or device is refused.
    pub min_bytes: u64,
}

impl Default for FileOptions {
    /// The whole of an existing file or device, past the page cache.
    fn default() -> Self {
        Self {
            size: None,
            create: false,
            direct: true,
            preallocate: false,
            force: false,
            overwrite_filesystem: false,
            min_bytes: PAGE_BYTES as u64,
        }
    }
}

/// Error that says in one line why a file or block device cannot be used, and how to fix that.
pub type OpenError = PathError<OpenProblem>;

/// Problem of a file or block device.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum OpenProblem {
    /// There is no such file.
    #[error("no such file; create it by giving its size")]
    Missing,
    /// The path is a symbolic link to nothing.
    #[error("is a symbolic link to {target}, which does not exist; create that file or remove the link", target = target.display())]
    Dangling { target: PathBuf },
    /// There is no file to read.
    #[error("no such file")]
    Absent,
    /// The file may not be read.
    #[error("permission denied; let this user read it")]
    Unreadable,
    /// There is no such directory.
    #[error("its directory does not exist; create it first")]
    MissingDirectory,
    /// The path names something that cannot hold data.
    #[error("is a {what}; name a regular file or a block device")]
    NotStorage { what: &'static str },
    /// A process has it open as a disk.
    #[error("in use by {}", holder(*here))]
    InUse { here: bool },
    /// The system itself uses the block device.
    #[error(
        "the device is mounted, part of a volume, or still held for one that has just ended; unmount it, take it out or try again, or name another"
    )]
    Mounted,
    /// The block device has partitions.
    #[error(
        "the device has partitions; name one of them, or use {overwrite_filesystem} to lose them all",
        overwrite_filesystem = Setting::OverwriteFilesystem
    )]
    Partitioned,
    /// The file or device is smaller than asked for.
    #[error("holds {:.2}, {:.2} are needed; ask for less or name a larger one", Bytes(*has_bytes), Bytes(*needs_bytes))]
    TooSmall { has_bytes: u64, needs_bytes: u64 },
    /// The file is too short for an image, and holds other data.
    #[error("holds {:.2} that are not a Flowstone image; name another file", Bytes(*has_bytes))]
    Foreign { has_bytes: u64 },
    /// The file holds an image smaller than the size asked for.
    #[error(
        "has {:.2} and {flash_size} asks for {:.2}: leave {flash_size} out to open it as it is, or add {force} to start \
         empty with the new size",
        Bytes(*has_bytes), Bytes(*asked_bytes),
        flash_size = Setting::FlashSize, force = Setting::Force
    )]
    Smaller { has_bytes: u64, asked_bytes: u64 },
    /// The file has fewer bytes than its image.
    #[error(
        "has been cut short: it has {:.2}, and its image was made with {:.2}; give it back the rest, or use {force} to start \
         empty",
        Bytes(*has_bytes), Bytes(*image_bytes), force = Setting::Force
    )]
    CutShort { has_bytes: u64, image_bytes: u64 },
    /// The file system has no space for the size asked for.
    #[error("{:.2} do not fit{}; ask for less or free some space", Bytes(*needs_bytes), room(*room_bytes))]
    NoSpace {
        needs_bytes: u64,
        room_bytes: Option<u64>,
    },
    /// The size asked for is over the quota of the user.
    #[error("{:.2} are over the disk quota of this user; ask for less or raise the quota", Bytes(*needs_bytes))]
    Quota { needs_bytes: u64 },
    /// The size asked for is over a limit on the size of files.
    #[error(
        "{:.2} are more than a file may have; ask for less or raise the limit (ulimit -f), or name a file system with larger files",
        Bytes(*needs_bytes)
    )]
    FileSize { needs_bytes: u64 },
    /// The file may not be read and written, or not be created there.
    #[error("permission denied; let this user read and write it")]
    Permission,
    /// The block device cannot be written to.
    #[error("the device is read-only; make it writable (blockdev --setrw) or name another")]
    ReadOnlyDevice,
    /// The file system cannot be written to.
    #[error("the file system is read-only; name a file elsewhere")]
    ReadOnly,
    /// Any other error of the system.
    #[error("cannot be opened: {source}")]
    Io { source: io::Error },
}

impl From<io::Error> for OpenProblem {
    fn from(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::NotADirectory => Self::MissingDirectory,
            io::ErrorKind::PermissionDenied => Self::Permission,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::ResourceBusy => Self::Mounted,
            // Two processes created the file at once; the other one has it now.
            io::ErrorKind::AlreadyExists => Self::InUse { here: false },
            _ => Self::Io { source },
        }
    }
}

/// Returns the part of a message that tells the space of a file system.
fn room(bytes: Option<u64>) -> String {
    let told = |bytes| format!(", the file system has room for {:.2}", Bytes(bytes));
    bytes.map_or_else(String::new, told)
}

/// Opens, locks and sizes the file; returns the number of bytes to use.
pub(super) fn open(path: &Path, options: &FileOptions) -> Result<(DirectFile, u64), OpenProblem> {
    let is_new = match std::fs::metadata(path) {
        Ok(found) => {
            check_type(found.file_type())?;
            if runtime::file::is_read_only_device(path) {
                // Many kernels let it be opened for writing.
                return Err(OpenProblem::ReadOnlyDevice);
            }
            false
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Ok(target) = std::fs::read_link(path) {
                return Err(OpenProblem::Dangling { target });
            }
            check_creation(path, options)?;
            true
        }
        Err(error) => return Err(error.into()),
    };
    let flags = OpenFlags {
        read_only: false,
        create_new: is_new,
        direct: options.direct,
        exclusive_device: true,
    };
    let file = DirectFile::open(path, flags).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy if runtime::file::is_locked_here(path) => {
            OpenProblem::InUse { here: true }
        }
        _ => error.into(),
    })?;
    let len_bytes = lock_and_size(&file, options).map_err(|problem| match problem {
        OpenProblem::InUse { .. } => OpenProblem::InUse {
            here: runtime::file::is_locked_here(path),
        },
        problem => problem,
    })?;
    Ok((file, len_bytes))
}

/// Opens the file for reading, without a lock; returns the bytes of its whole pages.
pub(super) fn open_read_only(path: &Path) -> Result<(DirectFile, u64), OpenProblem> {
    let refusal = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => OpenProblem::Absent,
        io::ErrorKind::PermissionDenied => OpenProblem::Unreadable,
        _ => OpenProblem::Io { source },
    };
    let found = std::fs::metadata(path).map_err(refusal)?;
    check_type(found.file_type())?;
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

/// Returns the bytes of the whole pages among the first `len`.
pub(super) fn whole_pages(len: u64) -> u64 {
    len / PAGE_BYTES as u64 * PAGE_BYTES as u64
}

fn check_type(found: FileType) -> Result<(), OpenProblem> {
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
    Err(OpenProblem::NotStorage { what })
}

fn check_creation(path: &Path, options: &FileOptions) -> Result<(), OpenProblem> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(OpenProblem::MissingDirectory);
    }
    match options.size {
        Some(size) if options.create => check_minimum(whole_pages(size), options.min_bytes),
        _ => Err(OpenProblem::Missing),
    }
}

fn check_minimum(has_bytes: u64, needs_bytes: u64) -> Result<(), OpenProblem> {
    if has_bytes >= needs_bytes {
        return Ok(());
    }
    Err(OpenProblem::TooSmall {
        has_bytes,
        needs_bytes,
    })
}

fn lock_and_size(file: &DirectFile, options: &FileOptions) -> Result<u64, OpenProblem> {
    if !file.try_lock()? {
        return Err(OpenProblem::InUse { here: false });
    }
    if file.is_partitioned()? && !options.overwrite_filesystem {
        return Err(OpenProblem::Partitioned);
    }
    let has = file.len_bytes()?;
    let asked = whole_pages(options.size.unwrap_or(has));
    match file.kind() {
        Kind::BlockDevice => check_minimum(has, asked)?,
        Kind::File if has == 0 => {
            check_minimum(asked, options.min_bytes)?;
            set_size(file, asked, options.preallocate)?;
        }
        Kind::File => {}
    }
    if has == 0 {
        return Ok(asked);
    }
    check_minimum(has, options.min_bytes)?;
    let usable = asked.min(whole_pages(has));
    check_minimum(usable, options.min_bytes)?;
    let allowed = runtime::process::file_bytes_allowed();
    if file.kind() == Kind::File && allowed.is_some_and(|most| most < usable) {
        return Err(OpenProblem::FileSize {
            needs_bytes: usable,
        });
    }
    Ok(usable)
}

/// Makes a regular file `len` bytes long.
pub(super) fn set_size(file: &DirectFile, len: u64, preallocate: bool) -> Result<(), OpenProblem> {
    if file.kind() == Kind::BlockDevice {
        return check_minimum(file.len_bytes()?, len);
    }
    let room_bytes = file.room_bytes();
    let no_space = || OpenProblem::NoSpace {
        needs_bytes: len,
        room_bytes,
    };
    if room_bytes.is_some_and(|room| room < len) {
        return Err(no_space());
    }
    let made = if preallocate {
        file.preallocate(len)
    } else {
        file.set_len(len)
    };
    made.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => no_space(),
        io::ErrorKind::QuotaExceeded => OpenProblem::Quota { needs_bytes: len },
        io::ErrorKind::FileTooLarge => OpenProblem::FileSize { needs_bytes: len },
        _ => error.into(),
    })
}
