//! [`DirectFile`]: a regular file or block device, read and written past the page cache.
//!
//! Usable from every worker at once: an operation goes to the ring of the thread that starts it. Without a ring, a bounded pool
//! of threads does the work; operations wait in line for a thread.
//!
//! Offsets and lengths are multiples of [`PAGE_BYTES`], and buffers are aligned to it; the file system refuses other values.
//! Errors are the system's own unless stated otherwise. A short read ends at the end of the file.

mod faults;
mod locks;
mod mapped;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use compio::buf::{BufResult, IntoInner};
use compio::driver::{OpCode, op};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::buffer::{AlignedBuf, PAGE_BYTES};
use crate::in_flight::InFlight;
use crate::live;

pub use locks::{is_locked, is_locked_here, open_or_create, remove, try_lock};
pub use mapped::MappedFile;

/// Options with which a [`DirectFile`] is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenFlags {
    /// Open an existing file for reading only.
    pub read_only: bool,
    /// Create a regular file; it must not exist yet.
    pub create_new: bool,
    /// Bypass the page cache where the file system can.
    pub direct: bool,
    /// Fail with `ResourceBusy` on a block device that the system itself uses: mounted, or part
    /// of a volume.
    pub exclusive_device: bool,
}

/// Kind of file behind a [`DirectFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
}

/// An open file or block device. Dropping a value through which nothing was written or discarded undoes its creation or extension
/// of the file.
#[derive(Debug)]
pub struct DirectFile {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    kind: Kind,
    /// Why reads and writes go through the page cache; `None` if they bypass it.
    why_cached: Option<&'static str>,
    /// Whether the file has refused a discard.
    cannot_discard: AtomicBool,
    /// Writes and discards in progress. An abandoned one stays counted: the system may still be executing it.
    changes: AtomicUsize,
    /// Whether opening created the file.
    is_new: bool,
    /// Length before the first change of the length.
    len_before: OnceLock<u64>,
    /// Whether anything has been written or discarded.
    is_changed: AtomicBool,
}

impl DirectFile {
    /// Opens `path`. A created file is accessible to its owner only. Blocks as long as the file system does.
    ///
    /// # Errors
    /// The system's, unchanged; `InvalidInput` for a path that is neither a regular file nor a block device.
    pub fn open(path: &Path, flags: OpenFlags) -> io::Result<Self> {
        let (file, why_cached) = if flags.direct {
            match open_with(path, flags, libc::O_DIRECT) {
                Ok(file) if takes_direct_reads(&file) => (file, None),
                Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
                _ => {
                    let reason = "the file system does not take O_DIRECT";
                    (open_after_refusal(path, flags)?, Some(reason))
                }
            }
        } else {
            (open_with(path, flags, 0)?, Some("not asked for"))
        };
        if flags.create_new {
            locks::restrict(&file);
            locks::overwrite_in_place(&file);
        }
        let found = file.metadata()?.file_type();
        let kind = if found.is_file() {
            Kind::File
        } else if found.is_block_device() {
            Kind::BlockDevice
        } else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            fd: Arc::new(OwnedFd::from(file)),
            path: path.to_owned(),
            kind,
            why_cached,
            cannot_discard: AtomicBool::new(false),
            changes: AtomicUsize::new(0),
            is_new: flags.create_new,
            len_before: OnceLock::new(),
            is_changed: AtomicBool::new(false),
        })
    }

    /// Returns the path that the file was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns why the page cache is used; `None` if it is bypassed.
    pub fn why_cached(&self) -> Option<&'static str> {
        self.why_cached
    }

    /// Returns the present size in bytes.
    pub fn len_bytes(&self) -> io::Result<u64> {
        // Works on block devices too, whose metadata report zero. Nothing uses the position.
        Ok(rustix::fs::seek(&self.fd, SeekFrom::End(0))?)
    }

    /// Sets the length of a regular file. Added bytes read as zeros and take no space yet.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.note_len()?;
        Ok(rustix::fs::ftruncate(&self.fd, len)?)
    }

    /// Makes a regular file at least `len` bytes long and reserves the space for all of it. A file system that cannot reserve
    /// space is told of in a line of the log, and the file takes its space as it is written.
    ///
    /// # Errors
    /// `StorageFull` when the file system has less space, else the system's.
    pub fn preallocate(&self, len: u64) -> io::Result<()> {
        self.note_len()?;
        let Some(refusal) = reserve(&self.fd, len)? else {
            return Ok(());
        };
        rustix::fs::ftruncate(&self.fd, len.max(self.len_bytes()?))?;
        let file = self.path.display();
        tracing::warn!(
            "{file}: its space cannot be reserved (fallocate: {}): keep {} MiB of its file system free, or turn \
             `preallocate` off to accept that without this line",
            io::Error::from(refusal),
            len >> 20
        );
        Ok(())
    }

    fn note_len(&self) -> io::Result<()> {
        let len = self.len_bytes()?;
        self.len_before.get_or_init(|| len);
        Ok(())
    }

    /// Counts a write or discard that begins.
    fn begin_change(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the exclusive lock of a file that is open for writing, held until this value and its last write or discard are gone.
    /// Returns false when another process, or another [`DirectFile`], holds it.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn try_lock(&self) -> io::Result<bool> {
        locks::try_lock(&self.fd)
    }

    /// Returns the largest size, in bytes, that the file can have on its file system: free space and blocks already allocated to
    /// it. `None` if the file system does not tell.
    pub fn room_bytes(&self) -> Option<u64> {
        let system = rustix::fs::fstatvfs(&self.fd).ok();
        let system = system.filter(|system| system.f_blocks > 0)?;
        let taken = rustix::fs::fstat(&self.fd).ok()?.st_blocks;
        let taken = u64::try_from(taken).unwrap_or(0) * 512;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        Some(free.saturating_add(taken))
    }

    /// Returns whether a block device has partitions; false for a regular file.
    pub fn is_partitioned(&self) -> io::Result<bool> {
        if self.kind == Kind::File {
            return Ok(false);
        }
        let device = rustix::fs::fstat(&self.fd)?.st_rdev;
        let Ok(entries) = std::fs::read_dir(about_device(device)) else {
            return Ok(false);
        };
        Ok(entries
            .filter_map(Result::ok)
            .any(|entry| entry.path().join("partition").exists()))
    }

    /// Fills `buf` from `offset`. Returns the buffer and the number of bytes read, which is less than its length only at the end
    /// of the file.
    ///
    /// # Errors
    /// The system's; the contents of the buffer are then undefined.
    pub async fn read_at(&self, buf: AlignedBuf, offset: u64) -> (io::Result<usize>, AlignedBuf) {
        let read = |file: &OwnedFd, buf: &mut AlignedBuf, from, at| {
            rustix::io::pread(file, &mut buf[from..], at)
        };
        let on_ring = live::uses_ring();
        self.whole(buf, offset, on_ring, op::ReadAt::new, read)
            .await
    }

    /// Writes `data` at `offset`. Returns `data` and the number of bytes written, which is less than its length only at the end
    /// of the device.
    ///
    /// # Errors
    /// The system's; any part may have been written.
    pub async fn write_at<B>(&self, data: B, offset: u64) -> (io::Result<usize>, B)
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let write = |file: &OwnedFd, data: &mut B, from, at| {
            rustix::io::pwrite(file, &data.as_ref()[from..], at)
        };
        self.begin_change();
        // For a write to a file the system may have to change an inode first. Where the drive hangs, it holds the thread that
        // submits such a write: none that clients wait for.
        let on_ring = live::uses_ring() && self.kind != Kind::File;
        let written = self
            .whole(data, offset, on_ring, op::WriteAt::new, write)
            .await;
        self.changes.fetch_sub(1, Ordering::Relaxed);
        written
    }

    /// Reads or writes all of `buf` at `offset`, in as many operations as necessary: `on_ring`, or else by `call` on a thread of the
    /// pool.
    async fn whole<B, O>(
        &self,
        mut buf: B,
        offset: u64,
        on_ring: bool,
        operation: impl Fn(Arc<OwnedFd>, u64, InFlight<B>) -> O,
        call: fn(&OwnedFd, &mut B, usize, u64) -> Result<usize, Errno>,
    ) -> (io::Result<usize>, B)
    where
        B: AsRef<[u8]> + Send + 'static,
        O: OpCode + IntoInner<Inner = InFlight<B>> + 'static,
    {
        let len = buf.as_ref().len();
        let mut from = 0;
        loop {
            let (fd, at) = (Arc::clone(&self.fd), offset + from as u64);
            let result;
            if on_ring {
                let started = operation(fd, at, InFlight::new(buf, from));
                let submitted = live::submitted(compio::runtime::submit(started));
                let ended;
                BufResult(result, ended) = submitted.await;
                buf = ended.into_inner().into_inner();
            } else {
                let called = live::blocking(move || {
                    let result = call(&fd, &mut buf, from, at);
                    (result.map_err(io::Error::from), buf)
                });
                (result, buf) = called.await;
            }
            match next_step(result, from, len) {
                ControlFlow::Continue(next) => from = next,
                ControlFlow::Break(result) => return (result, buf),
            }
        }
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// The system's. Writes that were not durable may then be lost, even if a later call succeeds.
    pub async fn sync_data(&self) -> io::Result<()> {
        sync_data(&self.fd).await
    }

    /// Tells the device that a range holds no data: punches a hole in a file, discards on a block device. Does nothing if the
    /// file supports neither.
    pub async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 || self.cannot_discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        let fd = Arc::clone(&self.fd);
        let kind = self.kind;
        self.begin_change();
        let result = live::blocking(move || match kind {
            Kind::File => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&fd, hole, offset, len)
            }
            Kind::BlockDevice => discard_blocks(&fd, offset, len),
        })
        .await;
        self.changes.fetch_sub(1, Ordering::Relaxed);
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                self.cannot_discard.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if !*self.is_changed.get_mut() {
            if self.is_new && locks::try_lock(&self.fd).is_ok_and(|is_ours| is_ours) {
                locks::remove(&self.path, &self.fd);
            } else if let Some(&len) = self.len_before.get() {
                // If the truncation fails, zeros remain at the end of the file.
                let _ = rustix::fs::ftruncate(&self.fd, len);
            }
        }
        // An abandoned read or sync changes nothing. An abandoned write may: the lock then lasts until the write has ended.
        if *self.changes.get_mut() == 0 {
            locks::unlock(&self.fd);
        }
    }
}

/// Makes the completed writes to a file durable.
async fn sync_data(fd: &Arc<OwnedFd>) -> io::Result<()> {
    let fd = Arc::clone(fd);
    if live::uses_ring() {
        let BufResult(result, _) = compio::runtime::submit(op::Sync::new(fd, true)).await;
        return result.map(drop);
    }
    let called = live::blocking(move || rustix::fs::fdatasync(fd)).await;
    Ok(called?)
}

/// Returns whether the block device at `path` cannot be written to; false for anything else, or if the system does not tell.
pub fn is_read_only_device(path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else {
        return false;
    };
    found.file_type().is_block_device()
        && std::fs::read_to_string(about_device(found.rdev()).join("ro"))
            .is_ok_and(|flag| flag.trim() == "1")
}

/// Returns the directory in which the system describes a block device.
fn about_device(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// Makes a file at least `len` bytes long and reserves its space. Returns the refusal, with the file unchanged, if its file
/// system cannot reserve space or the process may not.
fn reserve(file: impl AsFd, len: u64) -> io::Result<Option<Errno>> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(None),
        Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(full.into()),
        Err(refusal) => Ok(Some(refusal)),
    }
}

/// Returns the byte to continue from after one system call that began `from` bytes into `len`.
///
/// A transfer continues only at a page boundary. If the last call has not reached the next boundary, the file ends.
fn next_step(
    result: io::Result<usize>,
    from: usize,
    len: usize,
) -> ControlFlow<io::Result<usize>, usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => ControlFlow::Continue(from),
        Err(error) => ControlFlow::Break(Err(error)),
        Ok(count) => {
            let done = from + count;
            let next = done / PAGE_BYTES * PAGE_BYTES;
            if done >= len || next == from {
                ControlFlow::Break(Ok(done.min(len)))
            } else {
                ControlFlow::Continue(next)
            }
        }
    }
}

fn open_with(path: &Path, flags: OpenFlags, custom: i32) -> io::Result<File> {
    // O_EXCL means "not in use" on a block device and is only combined with O_CREAT for files.
    let is_device =
        || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let exclusive = if flags.exclusive_device && is_device() {
        libc::O_EXCL
    } else {
        0
    };
    locks::for_owner_alone(&mut File::options())
        .read(true)
        .write(!flags.read_only)
        .create_new(flags.create_new)
        .custom_flags(custom | exclusive | libc::O_NOCTTY)
        .open(path)
}

/// Opens again without O_DIRECT. Kernels differ in whether a refused open, or one whose reads are refused, has created the file.
fn open_after_refusal(path: &Path, flags: OpenFlags) -> io::Result<File> {
    let existing = OpenFlags {
        create_new: false,
        ..flags
    };
    match open_with(path, existing, 0) {
        Err(error) if flags.create_new && error.kind() == io::ErrorKind::NotFound => {
            open_with(path, flags, 0)
        }
        opened => opened,
    }
}

/// Returns whether the file takes direct reads: some file systems accept O_DIRECT at open and refuse the reads.
fn takes_direct_reads(file: &File) -> bool {
    let is_storage = file
        .metadata()
        .is_ok_and(|found| found.file_type().is_block_device() || found.size() > 0);
    let mut page = AlignedBuf::new(PAGE_BYTES);
    !is_storage || !matches!(rustix::io::pread(file, &mut page[..], 0), Err(Errno::INVAL))
}

fn discard_blocks(fd: &OwnedFd, offset: u64, len: u64) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    /// `_IO(0x12, 119)` of linux/fs.h.
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [offset, len];
    // SAFETY: the request reads two u64 from the pointer, which is valid for the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
