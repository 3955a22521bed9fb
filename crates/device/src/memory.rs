//! [`MemoryDisk`]: a disk in memory for simulations, with latencies on the runtime's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::disk::check_access;
use crate::{AlignedBuf, Disk, IoFuture, Operation, PAGE_BYTES, SharedBuf};

/// How long the accesses of a [`MemoryDisk`] take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// One read.
    pub read: Duration,
    /// One write.
    pub write: Duration,
    /// One sync.
    pub sync: Duration,
}

/// A disk whose pages live in memory, kept sparse: a page never written, or discarded, reads as
/// zeros.
pub struct MemoryDisk {
    len_bytes: u64,
    latency: Latency,
    pages: Mutex<BTreeMap<u64, Box<[u8; PAGE_BYTES]>>>,
}

impl MemoryDisk {
    /// An empty disk of `len_bytes` bytes (rounded down to whole pages) that answers at once.
    #[must_use]
    pub fn new(len_bytes: u64) -> Self {
        Self::with_latency(len_bytes, Latency::default())
    }

    /// An empty disk whose accesses take the given times.
    #[must_use]
    pub fn with_latency(len_bytes: u64, latency: Latency) -> Self {
        let len_bytes = len_bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        Self {
            len_bytes,
            latency,
            pages: Mutex::new(BTreeMap::new()),
        }
    }
}

/// Waits only where there is something to wait for: a zero latency takes no turn of the scheduler.
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
            check_access(Operation::Read, offset, buf.len(), self.len_bytes)?;
            take(self.latency.read).await;
            let pages = self.pages.lock();
            for (number, bytes) in (offset / PAGE_BYTES as u64..).zip(buf.chunks_mut(PAGE_BYTES)) {
                match pages.get(&number) {
                    Some(page) => bytes.copy_from_slice(&page[..]),
                    None => bytes.fill(0),
                }
            }
            drop(pages);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            check_access(Operation::Write, offset, data.len(), self.len_bytes)?;
            take(self.latency.write).await;
            let mut pages = self.pages.lock();
            for (number, bytes) in (offset / PAGE_BYTES as u64..).zip(data.chunks(PAGE_BYTES)) {
                pages
                    .entry(number)
                    .or_insert_with(|| Box::new([0; PAGE_BYTES]))
                    .copy_from_slice(bytes);
            }
            Ok(())
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let len_usize = usize::try_from(len).unwrap_or(usize::MAX);
            check_access(Operation::Erase, offset, len_usize, self.len_bytes)?;
            let page = PAGE_BYTES as u64;
            let mut pages = self.pages.lock();
            let numbers = offset / page..(offset + len) / page;
            let held: Vec<u64> = pages.range(numbers).map(|(&number, _)| number).collect();
            for number in held {
                pages.remove(&number);
            }
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
