//! [`NvmDisk`]: an emulated block device of non-volatile memory without flash, such as `SlickCache`'s Optane (`SoCC` '18, section
//! 5.5). It never erases, and an access takes microseconds.
//!
//! ```text
//!   command ─▶ link: one after the other ─▶ channel of each page: one page at a time ─▶ done with the last page
//! ```
//!
//! Page *p* lies on channel *p* mod channels. A completed write is durable, so a sync has nothing to do. The contents are in
//! memory.

use std::time::Duration;

use parking_lot::Mutex;
use runtime::{Instant, now};

use device::{AlignedBuf, Disk, IoFuture, MemoryDisk, PAGE_BYTES, SharedBuf};

/// Speed of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmConfig {
    /// Number of pages that can be accessed at the same time.
    pub channels: u32,
    /// Time to read a page, on its channel.
    pub read: Duration,
    /// Time to write a page, on its channel.
    pub write: Duration,
    /// Link rate in bytes a second.
    pub link_bytes_per_s: u64,
}

impl NvmConfig {
    /// An Optane 900P with SlickCache's figures: 2.5 GB/s, and 10 us for a page including its time on the link. It has 7
    /// channels.
    pub const OPTANE: Self = Self {
        channels: 7,
        read: Duration::from_nanos(8_400),
        write: Duration::from_nanos(8_400),
        link_bytes_per_s: 2_500_000_000,
    };

    /// Returns the time of a page on the link.
    fn link(&self) -> Duration {
        let ns = PAGE_BYTES as u64 * 1_000_000_000 / self.link_bytes_per_s.max(1);
        Duration::from_nanos(ns)
    }
}

/// An emulated device in memory that is overwritten in place.
pub struct NvmDisk {
    config: NvmConfig,
    contents: MemoryDisk,
    busy: Mutex<Busy>,
}

/// Times at which the link and the channels will have done all commands so far.
struct Busy {
    link: Option<Instant>,
    channels: Box<[Option<Instant>]>,
}

impl Busy {
    /// Passes pages over link and channels; returns the end of the last page.
    fn take(
        &mut self,
        pages: std::ops::Range<u64>,
        link: Duration,
        each: Duration,
    ) -> Option<Instant> {
        let now = now();
        let after = |busy: Option<Instant>, begin: Instant, takes: Duration| {
            busy.map_or(begin, |free| free.max(begin)) + takes
        };
        let mut last = None;
        for page in pages {
            let passed = after(self.link, now, link);
            self.link = Some(passed);
            let channel = (page % self.channels.len() as u64) as usize;
            let end = after(self.channels[channel], passed, each);
            self.channels[channel] = Some(end);
            last = last.max(Some(end));
        }
        last
    }
}

impl NvmDisk {
    /// Creates an empty device of `len_bytes`, rounded down to whole pages.
    pub fn new(len_bytes: u64, config: NvmConfig) -> Self {
        Self {
            config,
            contents: MemoryDisk::new(len_bytes),
            busy: Mutex::new(Busy {
                link: None,
                channels: vec![None; config.channels.max(1) as usize].into(),
            }),
        }
    }

    async fn take(&self, offset: u64, len: usize, each: Duration) {
        let page = PAGE_BYTES as u64;
        let pages = offset / page..(offset + len as u64).div_ceil(page);
        let end = self.busy.lock().take(pages, self.config.link(), each);
        let left = end.map_or(Duration::ZERO, |end| end.since(now()));
        if !left.is_zero() {
            runtime::sleep(left).await;
        }
    }
}

impl Disk for NvmDisk {
    fn len_bytes(&self) -> u64 {
        self.contents.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            self.take(offset, buf.len(), self.config.read).await;
            self.contents.read(offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        Box::pin(async move {
            self.take(offset, data.len(), self.config.write).await;
            self.contents.write(offset, data).await
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.contents.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.contents.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use runtime::sim::Sim;

    use super::*;

    /// Returns the completion times of reads issued at once at these pages, in nanoseconds, in ascending order.
    fn answered(pages: &'static [u64], len_pages: usize) -> Vec<u64> {
        Sim::new(1).block_on(async move {
            let disk = Arc::new(NvmDisk::new(1 << 20, NvmConfig::OPTANE));
            let begin = now();
            let reads = pages.iter().map(|page| {
                let (disk, at) = (Arc::clone(&disk), page * PAGE_BYTES as u64);
                runtime::spawn(async move {
                    let buf = AlignedBuf::new(len_pages * PAGE_BYTES);
                    disk.read(at, buf).await.expect("it is within the device");
                    now().since(begin).as_nanos() as u64
                })
            });
            let reads: Vec<_> = reads.collect();
            let mut ends = Vec::new();
            for read in reads {
                ends.push(read.await.expect("nobody ends it"));
            }
            ends.sort_unstable();
            ends
        })
    }

    const LINK_NS: u64 = 1638;
    const CELL_NS: u64 = 8400;

    #[test]
    fn an_access_takes_link_and_channel() {
        assert_eq!(answered(&[0], 1), [LINK_NS + CELL_NS]);
    }

    #[test]
    fn channels_work_beside_each_other_and_one_page_at_a_time() {
        let apart = answered(&[0, 1], 1);
        assert_eq!(apart, [LINK_NS + CELL_NS, 2 * LINK_NS + CELL_NS]);
        let on_one = answered(&[0, 7], 1);
        assert_eq!(on_one, [LINK_NS + CELL_NS, LINK_NS + 2 * CELL_NS]);
    }

    /// The link bounds the duration of a long access.
    #[test]
    fn a_long_access_passes_at_the_rate_of_the_link() {
        let [end] = answered(&[0], 140)[..] else {
            panic!("one read");
        };
        let link = 140 * LINK_NS;
        assert!(end > link && end < link + 2 * CELL_NS, "{end} of {link}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        Sim::new(1).block_on(async {
            let disk = NvmDisk::new(1 << 20, NvmConfig::OPTANE);
            let mut page = AlignedBuf::new(PAGE_BYTES);
            page.fill(7);
            disk.write(8192, page.into()).await.expect("written");
            let read = disk.read(8192, AlignedBuf::new(PAGE_BYTES)).await;
            assert!(read.expect("read").iter().all(|&byte| byte == 7));
        });
    }
}
