//! [`MemoryDisk`]: a disk in memory for simulations, with latencies on the runtime's clock.

use std::time::Duration;

use parking_lot::Mutex;

use crate::disk::check_access;
use crate::{AlignedBuf, Disk, Image, IoFuture, Operation, SharedBuf};

/// Durations of the accesses of a [`MemoryDisk`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// One read.
    pub read: Duration,
    /// One write.
    pub write: Duration,
    /// One sync.
    pub sync: Duration,
}

/// A disk in memory, kept sparse: a page never written, or discarded, reads as zeros.
pub struct MemoryDisk {
    len_bytes: u64,
    latency: Latency,
    contents: Mutex<Image>,
}

impl MemoryDisk {
    /// Creates an empty disk of `len_bytes` bytes (rounded down to whole pages) that answers at once.
    pub fn new(len_bytes: u64) -> Self {
        Self::with_latency(len_bytes, Latency::default())
    }

    /// Creates an empty disk whose accesses take the given times.
    pub fn with_latency(len_bytes: u64, latency: Latency) -> Self {
        Self::from_image(Image::new(len_bytes), latency)
    }

    /// Creates a disk with the contents of `image`.
    pub fn from_image(image: Image, latency: Latency) -> Self {
        Self {
            len_bytes: image.len_bytes(),
            latency,
            contents: Mutex::new(image),
        }
    }

    /// Returns the present contents.
    pub fn snapshot(&self) -> Image {
        self.contents.lock().clone()
    }
}

/// Waits for a non-zero latency; a zero latency takes no turn of the scheduler.
async fn take(latency: Duration) {
    if !latency.is_zero() {
        runtime::sleep(latency).await;
    }
}

impl Disk for MemoryDisk {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, mut buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            check_access(Operation::Read, offset, buf.len() as u64, self.len_bytes)?;
            take(self.latency.read).await;
            self.contents.lock().read(offset, &mut buf);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Write, offset, data.len() as u64, self.len_bytes)?;
            take(self.latency.write).await;
            self.contents.lock().write(offset, &data);
            Ok(())
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Erase, offset, len, self.len_bytes)?;
            self.contents.lock().discard(offset, len);
            Ok(())
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            take(self.latency.sync).await;
            Ok(())
        })
    }
}
