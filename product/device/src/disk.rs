//! [`Disk`]: bytes that can be overwritten anywhere.

use std::ops::Range;
use std::sync::Arc;

use crate::{AlignedBuf, DeviceError, IoFuture, Operation, PAGE_BYTES};

/// A conventional drive: read and overwrite whole pages of [`PAGE_BYTES`] anywhere.
///
/// Offsets and lengths are multiples of [`PAGE_BYTES`]. A write is durable once a later [`sync`](Disk::sync) has succeeded; until
/// then a power cut may leave any part of it. Callers never overlap a write with another access to the same bytes.
pub trait Disk: Send + Sync {
    /// Returns the size in bytes, a multiple of [`PAGE_BYTES`].
    fn len_bytes(&self) -> u64;

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf>;

    /// Writes `data` at `offset`.
    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()>;

    /// Tells the drive that a range holds no data. Reads of the range are undefined afterwards.
    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()>;

    /// Makes every completed write durable.
    fn sync(&self) -> IoFuture<'_, ()>;
}

/// Bytes to write: a page-aligned part of a buffer that other tasks may be reading.
#[derive(Clone, Debug)]
pub struct SharedBuf {
    buf: Arc<AlignedBuf>,
    range: Range<usize>,
}

impl SharedBuf {
    /// Creates the part `range` of `buf`.
    ///
    /// # Panics
    /// When the range is empty, not page-aligned, or reaches past the buffer.
    pub fn new(buf: Arc<AlignedBuf>, range: Range<usize>) -> Self {
        assert!(
            range.start < range.end && range.end <= buf.len(),
            "range within the buffer"
        );
        assert!(
            range.start.is_multiple_of(PAGE_BYTES) && range.end.is_multiple_of(PAGE_BYTES),
            "range in whole pages"
        );
        Self { buf, range }
    }

    /// Returns a part of these bytes.
    ///
    /// # Panics
    /// When the part is empty, not page-aligned, or reaches past the end.
    #[must_use]
    pub fn part(&self, part: Range<usize>) -> Self {
        assert!(part.end <= self.range.len(), "part within the range");
        let start = self.range.start;
        Self::new(Arc::clone(&self.buf), start + part.start..start + part.end)
    }
}

impl From<AlignedBuf> for SharedBuf {
    fn from(buf: AlignedBuf) -> Self {
        let range = 0..buf.len();
        let buf = Arc::new(buf);
        Self { buf, range }
    }
}

impl std::ops::Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl AsRef<[u8]> for SharedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Checks an access against a device of `device_bytes` bytes.
///
/// # Errors
/// [`DeviceError::Address`] when the range is not page-aligned or reaches past the device.
pub fn check_access(
    operation: Operation,
    offset: u64,
    len: u64,
    device_bytes: u64,
) -> Result<(), DeviceError> {
    let page = PAGE_BYTES as u64;
    let fits = offset
        .checked_add(len)
        .is_some_and(|end| end <= device_bytes);
    if fits && offset.is_multiple_of(page) && len.is_multiple_of(page) {
        return Ok(());
    }
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Err(DeviceError::address(operation, offset, len))
}

/// Returns the future of an access that is refused at once.
pub fn refused<'a, T: 'a>(error: DeviceError) -> IoFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

/// A range of a disk, usable as a disk.
#[derive(Clone)]
pub struct Region {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) start: u64,
    len_bytes: u64,
}

impl Region {
    /// Creates the region of `len_bytes` bytes of `disk` from byte `start` on.
    ///
    /// # Errors
    /// [`DeviceError::Address`] when the region is not page-aligned or reaches past the disk.
    pub fn new(disk: Arc<dyn Disk>, start: u64, len_bytes: u64) -> Result<Self, DeviceError> {
        check_access(Operation::Read, start, len_bytes, disk.len_bytes())?;
        Ok(Self {
            disk,
            start,
            len_bytes,
        })
    }

    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<u64, DeviceError> {
        check_access(operation, offset, len, self.len_bytes)?;
        Ok(self.start + offset)
    }
}

impl Disk for Region {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        match self.check(Operation::Read, offset, buf.len() as u64) {
            Ok(at) => self.disk.read(at, buf),
            Err(error) => refused(error),
        }
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        match self.check(Operation::Write, offset, data.len() as u64) {
            Ok(at) => self.disk.write(at, data),
            Err(error) => refused(error),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        match self.check(Operation::Erase, offset, len) {
            Ok(at) => self.disk.discard(at, len),
            Err(error) => refused(error),
        }
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.disk.sync()
    }
}
