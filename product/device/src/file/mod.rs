//! [`FileDisk`]: a regular file or a block device as a [`Disk`].
//!
//! Invariants: the disk holds the exclusive lock of its file while it lives, so that two servers never share a file, unless it
//! was opened for reading only. Opening never changes a file that already holds bytes.
//!
//! Failure: an open error says in one line what is wrong and how to fix it ([`OpenError`]). A read or write that the device
//! cannot finish is [`DeviceError::Short`]. Every other error is the system's, with the address. A file that another program
//! cuts short is one line of the log ([`cut_to`](FileDisk::cut_to)).

mod open;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime::file::{DirectFile, Kind};

pub use open::{FileOptions, OpenError, OpenProblem};

use crate::disk::check_access;
use crate::{AlignedBuf, Bytes, DeviceError, Disk, IoFuture, Operation, Setting, SharedBuf};
use open::whole_pages;

/// Default size of a new image in bytes.
pub const DEFAULT_IMAGE_BYTES: u64 = 4 << 30;

/// Bytes at the beginning of a file that tell the size of its image.
const BEGINNING_BYTES: u64 = 1 << 20;

/// A disk in a file, or on a block device.
#[derive(Debug)]
pub struct FileDisk {
    file: DirectFile,
    len_bytes: u64,
    /// Fewest bytes that the file has been found with.
    shortest: AtomicU64,
    /// Whether the file lacked a part of its image when it was opened.
    lacked_bytes: bool,
}

impl FileDisk {
    fn new(file: DirectFile, len_bytes: u64) -> Self {
        Self {
            file,
            len_bytes,
            shortest: AtomicU64::new(len_bytes),
            lacked_bytes: false,
        }
    }

    /// Opens the file at `path`, creating it if asked, and locks it. Blocks the thread.
    ///
    /// A file that holds bytes keeps its size: the caller decides whether it may grow ([`extend_to`](FileDisk::extend_to)). An
    /// empty file gets the size asked for.
    ///
    /// # Errors
    /// One line that names the problem and its remedy; the device is then untouched.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self, OpenError> {
        let (file, len_bytes) = open::open(path, options).map_err(OpenError::at(path))?;
        Ok(Self::new(file, len_bytes))
    }

    /// Opens the whole file or device at `path` for reading, even while another process uses it. Takes no lock; writes fail.
    /// Blocks the thread.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let (file, len_bytes) = open::open_read_only(path).map_err(OpenError::at(path))?;
        Ok(Self::new(file, len_bytes))
    }

    /// Opens the disk of an image: the whole existing file, or a new file of [`DEFAULT_IMAGE_BYTES`], or the size `asked` for. A
    /// size beyond the existing file's needs [`FileOptions::force`], and so does a file that has been cut short. `image_bytes`
    /// returns the size of the image in a file that begins with these bytes. Blocks the thread.
    ///
    /// # Errors
    /// As for [`open`](FileDisk::open), [`OpenProblem::Foreign`], [`OpenProblem::Smaller`] and
    /// [`OpenProblem::CutShort`].
    pub fn open_image(
        path: &Path,
        asked: Option<u64>,
        image_bytes: impl Fn(&[u8]) -> Option<u64>,
        options: FileOptions,
    ) -> Result<Self, OpenError> {
        let has_len = |lens: Range<u64>| {
            std::fs::metadata(path).is_ok_and(|it| it.is_file() && lens.contains(&it.len()))
        };
        let is_empty = has_len(0..1);
        if !options.force && has_len(1..BEGINNING_BYTES) {
            let bytes = beginning(path).map_err(OpenError::at(path))?;
            if image_bytes(&bytes).is_none() && bytes.iter().any(|byte| *byte != 0) {
                let has_bytes = bytes.len() as u64;
                return Err(OpenError::at(path)(OpenProblem::Foreign { has_bytes }));
            }
        }
        let size = match asked {
            None if is_empty || !path.exists() => Some(DEFAULT_IMAGE_BYTES),
            asked => asked,
        };
        let options = FileOptions {
            size,
            create: true,
            ..options
        };
        let mut disk = Self::open(path, &options)?;
        let problem = |problem: OpenProblem| OpenError::at(path)(problem);
        let has_bytes = disk.file.len_bytes().map_err(OpenError::at(path))?;
        let beginning = beginning(path).map_err(OpenError::at(path))?;
        let image_bytes = image_bytes(&beginning).filter(|&bytes| bytes > has_bytes);
        disk.lacked_bytes = image_bytes.is_some();
        if let Some(image_bytes) = image_bytes
            && !options.force
        {
            return Err(problem(OpenProblem::CutShort {
                has_bytes,
                image_bytes,
            }));
        }
        // A forced image has the size that it had, where the file can get it.
        let former = image_bytes.filter(|_| disk.file.kind() == Kind::File);
        if let Some(asked) = asked.or(former).map(whole_pages)
            && asked > disk.len_bytes
        {
            if !options.force {
                return Err(problem(OpenProblem::Smaller {
                    has_bytes: disk.len_bytes,
                    asked_bytes: asked,
                }));
            }
            disk.extend_to(asked, options.preallocate)?;
        }
        Ok(disk)
    }

    /// Returns whether [`open_image`](FileDisk::open_image) found less of the file than its image has. The image cannot be used.
    pub fn lacked_bytes(&self) -> bool {
        self.lacked_bytes
    }

    /// Returns the fewest bytes that the file has been found with since it was opened, if something has cut it short.
    pub fn cut_to(&self) -> Option<u64> {
        self.look_at_length();
        let shortest = self.shortest.load(Ordering::Relaxed);
        (shortest < self.len_bytes).then_some(shortest)
    }

    /// Notes the length of a file that has been cut short, and logs it once.
    fn look_at_length(&self) {
        let Ok(has) = self.file.len_bytes() else {
            return;
        };
        if self.shortest.fetch_min(has, Ordering::Relaxed) > has {
            tracing::error!(
                "{} has been cut short, to {:.2} of {:.2}, while it is in use: the items behind that are lost. Stop the cache \
                 and start it with {force}, empty; until then it serves what is left",
                self.path().display(),
                Bytes(has),
                Bytes(self.len_bytes),
                force = Setting::Force
            );
        }
    }

    /// Opens the disk of an image's index with `new` bytes. Without `new`, opens all of an existing file, and returns `None` if
    /// the file is missing. [`FileOptions::force`] extends a smaller file. Blocks the thread.
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

    /// Extends the file with zeros; does nothing if it is already that large.
    ///
    /// # Errors
    /// [`OpenProblem::NoSpace`] and the other errors with which [`open`](FileDisk::open) refuses to create a file of that size;
    /// the disk is then unchanged.
    pub fn extend_to(&mut self, len_bytes: u64, preallocate: bool) -> Result<(), OpenError> {
        let len_bytes = whole_pages(len_bytes);
        if len_bytes > self.len_bytes {
            open::set_size(&self.file, len_bytes, preallocate)
                .map_err(OpenError::at(self.path()))?;
            self.len_bytes = len_bytes;
            self.shortest = AtomicU64::new(len_bytes);
        }
        Ok(())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns one line for the log: kind, path, size and access path.
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

/// Returns the first bytes of the file at `path`.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(BEGINNING_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Turns the outcome of an access into a [`DeviceError`].
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
            checked(Operation::Read, offset, buf.len(), outcome)
                .inspect_err(|_| self.look_at_length())?;
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Write, offset, data.len() as u64, self.len_bytes)?;
            // The write may give the file its length again, with zeros in the place of the lost items.
            self.look_at_length();
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
