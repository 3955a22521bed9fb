//! [`FileDisk`]: a regular file or a block device as a [`Disk`].
//!
//! Invariants: it holds the exclusive lock of its file for as long as it lives, so that two
//! servers never share one, unless it was opened for reading only; opening changes nothing of a file
//! that already holds bytes.
//!
//! Failure: opening says in one line what is wrong and how to mend it ([`OpenError`]); a read or
//! write that the device cannot finish is [`DeviceError::Short`]; everything else is the system's
//! error with its address.

mod open;

use std::io;
use std::path::Path;

use runtime::file::{DirectFile, Kind};

pub use open::{FileOptions, OpenError, OpenProblem};

use crate::disk::check_access;
use crate::{AlignedBuf, Bytes, DeviceError, Disk, IoFuture, Operation, SharedBuf};
use open::whole_pages;

/// Bytes of a new image when nothing is said.
pub const DEFAULT_IMAGE_BYTES: u64 = 4 << 30;

/// A disk in a file, or on a block device.
#[derive(Debug)]
pub struct FileDisk {
    file: DirectFile,
    len_bytes: u64,
}

impl FileDisk {
    /// Opens, and where asked creates, the file at `path` and locks it. Blocks the thread.
    ///
    /// A file that holds bytes already keeps its size: it is the caller who knows whether it may
    /// grow ([`extend_to`](FileDisk::extend_to)). An empty one gets the size asked for.
    ///
    /// # Errors
    /// One line that says what to do; nothing on the device has been touched then.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self, OpenError> {
        let (file, len_bytes) = open::open(path, options).map_err(OpenError::at(path))?;
        Ok(Self { file, len_bytes })
    }

    /// Opens all of the file or device at `path` to look at it, beside whoever uses it: nothing is
    /// locked, and writes fail. Blocks the thread.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let (file, len_bytes) = open::open_read_only(path).map_err(OpenError::at(path))?;
        Ok(Self { file, len_bytes })
    }

    /// Opens the disk of an image: all of what is at `path`, or a new file of
    /// [`DEFAULT_IMAGE_BYTES`], unless so many bytes are `asked` for. More than there are need
    /// [`FileOptions::force`]. Blocks the thread.
    ///
    /// # Errors
    /// As for [`open`](FileDisk::open), and [`OpenProblem::Smaller`].
    pub fn open_image(
        path: &Path,
        asked: Option<u64>,
        options: FileOptions,
    ) -> Result<Self, OpenError> {
        let size = match asked {
            None if !path.exists() => Some(DEFAULT_IMAGE_BYTES),
            asked => asked,
        };
        let options = FileOptions {
            size,
            create: true,
            ..options
        };
        let mut disk = Self::open(path, &options)?;
        if let Some(asked) = asked.map(whole_pages)
            && asked > disk.len_bytes
        {
            if !options.force {
                return Err(OpenError::at(path)(OpenProblem::Smaller {
                    has_bytes: disk.len_bytes,
                    asked_bytes: asked,
                }));
            }
            disk.extend_to(asked, options.preallocate)?;
        }
        Ok(disk)
    }

    /// Opens the disk of an image's index: as many bytes as a `new` one is to have, or, where none may be made, all of
    /// what is there. `None` where there is nothing then. With [`FileOptions::force`] a smaller file is made larger. Blocks the
    /// thread.
    ///
    /// # Errors
    /// As for [`open`](FileDisk::open).
    pub fn open_index(
        path: &Path,
        new: Option<u64>,
        options: FileOptions,
    ) -> Result<Option<Self>, OpenError> {
        if new.is_none() && !path.exists() {
            return Ok(None);
        }
        let mut disk = Self::open(
            path,
            &FileOptions {
                size: new,
                create: new.is_some(),
                ..options
            },
        )?;
        if let Some(bytes) = new.filter(|_| options.force) {
            disk.extend_to(bytes, options.preallocate)?;
        }
        Ok(Some(disk))
    }

    /// Makes the file larger; a no-op when it has that size. What is added reads as zeros.
    ///
    /// # Errors
    /// [`OpenProblem::NoSpace`] and the other reasons that [`open`](FileDisk::open) has for not
    /// making a file that large; the disk stays as it was then.
    pub fn extend_to(&mut self, len_bytes: u64, preallocate: bool) -> Result<(), OpenError> {
        let len_bytes = whole_pages(len_bytes);
        if len_bytes > self.len_bytes {
            open::set_size(&self.file, len_bytes, preallocate)
                .map_err(OpenError::at(self.path()))?;
            self.len_bytes = len_bytes;
        }
        Ok(())
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// One line for the log: what it is, how large, and how it is accessed.
    pub fn describe(&self) -> String {
        let kind = match self.file.kind() {
            Kind::File => "file",
            Kind::BlockDevice => "block device",
        };
        let direct = match self.file.why_cached() {
            None => "direct I/O".to_owned(),
            Some(reason) => format!("through the page cache ({reason})"),
        };
        let path = self.file.path().display();
        let size = Bytes(self.len_bytes);
        match runtime::live::io_path_here() {
            Some(io_path) => format!("{kind} {path}, {size:.2}, {direct}, {io_path}"),
            None => format!("{kind} {path}, {size:.2}, {direct}"),
        }
    }
}

/// Turns the outcome of an access into the device's terms.
fn checked(
    operation: Operation,
    offset: u64,
    len: usize,
    outcome: io::Result<usize>,
) -> Result<(), DeviceError> {
    match outcome {
        Ok(done) if done == len => Ok(()),
        Ok(done) => Err(DeviceError::Short {
            operation,
            offset,
            len,
            done,
        }),
        Err(source) => Err(DeviceError::io(operation, offset, len, source)),
    }
}

impl Disk for FileDisk {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            check_access(Operation::Read, offset, buf.len() as u64, self.len_bytes)?;
            let (outcome, buf) = self.file.read_at(buf, offset).await;
            checked(Operation::Read, offset, buf.len(), outcome)?;
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Write, offset, data.len() as u64, self.len_bytes)?;
            let (outcome, data) = self.file.write_at(data, offset).await;
            checked(Operation::Write, offset, data.len(), outcome)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Erase, offset, len, self.len_bytes)?;
            let outcome = self.file.discard(offset, len).await;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            checked(Operation::Erase, offset, len, outcome.map(|()| len))
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let outcome = self.file.sync_data().await;
            checked(Operation::Sync, 0, 0, outcome.map(|()| 0))
        })
    }
}
