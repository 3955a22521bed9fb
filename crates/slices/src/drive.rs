//! A drive with slicetables: reads of a page, and the rewriting of a slicetable (section 5.1).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{AlignedBuf, Disk, SharedBuf};
use format::slices::{MOST_REGIONS, PageIdentity, Pointer, SLICE_PAGE_HEAD_BYTES};
use futures_util::future::join;
use runtime::sync::Semaphore;

use crate::channel::Channels;
use crate::error::SliceError;
use crate::regions::{Region, Regions};
use crate::scheduler::{Scheduler, Scheduling};

/// The bytes of a slicetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableShape {
    pub(crate) instance: u64,
    pub(crate) pages: u32,
    pub(crate) page_bytes: usize,
    pub(crate) piece_bytes: usize,
    /// Bytes in front of the first region.
    pub(crate) head_bytes: u64,
    pub(crate) channels: Channels,
}

pub(crate) struct Drive {
    /// Which of the structure's drives it is.
    pub(crate) number: usize,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) shape: TableShape,
    pub(crate) scheduler: Scheduler,
    pub(crate) regions: Arc<Regions>,
    pub(crate) counts: DriveCounts,
    /// One slicetable at a time is written, from start to end: so chunks go to the channels in turn.
    rewriting: Semaphore,
}

/// What has passed.
#[derive(Default)]
pub(crate) struct DriveCounts {
    pub(crate) page_reads: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) pages_lost: AtomicU64,
}

/// A page that has been read.
pub(crate) struct PageRead {
    pub(crate) bytes: AlignedBuf,
    /// What is older does not count ([`PageIdentity::seal`]).
    pub(crate) floor: u32,
}

/// The drives of a structure. `used` says where the slicetables of one lie.
pub(crate) fn drives(
    disks: Vec<Arc<dyn Disk>>,
    shape: TableShape,
    scheduling: Scheduling,
    used: impl Fn(usize) -> Vec<Pointer>,
) -> Box<[Drive]> {
    let drive_of = |(number, disk): (usize, Arc<dyn Disk>)| {
        let pointers = used(number).into_iter();
        let used: Vec<u32> = pointers
            .filter(|pointer| pointer.generation > 0)
            .map(|pointer| pointer.region)
            .collect();
        let regions = (disk.len_bytes() - shape.head_bytes) / shape.region_bytes();
        let regions = Regions::without(regions.min(MOST_REGIONS.into()) as u32, &used);
        let scheduler = Scheduler::new(scheduling, shape.channels.count);
        Drive::new(number, disk, shape, scheduler, regions)
    };
    disks.into_iter().enumerate().map(drive_of).collect()
}

impl TableShape {
    fn region_bytes(&self) -> u64 {
        u64::from(self.pages) * self.page_bytes as u64
    }
}

impl Drive {
    fn new(
        number: usize,
        disk: Arc<dyn Disk>,
        shape: TableShape,
        scheduler: Scheduler,
        regions: Arc<Regions>,
    ) -> Self {
        Self {
            number,
            disk,
            shape,
            scheduler,
            regions,
            counts: DriveCounts::default(),
            rewriting: Semaphore::new(1),
        }
    }

    fn region_start(&self, region: &Region) -> u64 {
        self.shape.head_bytes + u64::from(region.number) * self.shape.region_bytes()
    }

    fn identity(&self, region: &Region, partition: u32, page: u32) -> PageIdentity {
        PageIdentity {
            instance: self.shape.instance,
            partition,
            page,
            generation: region.generation,
        }
    }

    /// Reads a page of a slicetable.
    pub(crate) async fn read_page(
        &self,
        region: &Region,
        partition: u32,
        page: u32,
    ) -> Result<PageRead, SliceError> {
        let within = u64::from(page) * self.shape.page_bytes as u64;
        let offset = self.region_start(region) + within;
        let turn = self.scheduler.read(self.shape.channels.of(within)).await;
        let read = self
            .disk
            .read(offset, AlignedBuf::new(self.shape.page_bytes))
            .await;
        drop(turn);
        let bytes = read.map_err(SliceError::device(self.number))?;
        self.counts.page_reads.fetch_add(1, Ordering::Relaxed);
        let verified = self.identity(region, partition, page).verify(&bytes);
        let floor = verified.map_err(|source| SliceError::Damaged {
            drive: self.number,
            offset,
            source,
        })?;
        Ok(PageRead { bytes, floor })
    }

    /// Writes the slicetable of a partition to another region, each page as `change` leaves it, and syncs it. A page of `old`
    /// that cannot be read is begun anew, as one that knows nothing of what is older than `generation`.
    ///
    /// What `change` gets: the page's number, and its bytes.
    pub(crate) async fn rewrite(
        &self,
        old: Option<&Region>,
        partition: u32,
        generation: u32,
        mut change: impl FnMut(u32, &mut [u8]),
    ) -> Result<Region, SliceError> {
        let _alone = self.rewriting.acquire().await;
        let new = self.regions.take(generation).await;
        let page_bytes = self.shape.page_bytes;
        let total = self.shape.pages as usize * page_bytes;
        let piece = |start: usize| start..(start + self.shape.piece_bytes).min(total);
        let mut next = None;
        for start in (0..total).step_by(self.shape.piece_bytes) {
            let turn = self.scheduler.write().await;
            let mut buf = match next.take() {
                Some(buf) => buf,
                None => self.read_piece(old, piece(start)).await,
            };
            for (nth, page) in buf.chunks_exact_mut(page_bytes).enumerate() {
                let number = (start / page_bytes + nth) as u32;
                let floor = old.map_or(0, |old| self.floor_of(old, partition, number, page));
                change(number, page);
                self.identity(&new, partition, number).seal(floor, page);
            }
            let len = buf.len();
            let at = self.region_start(&new) + start as u64;
            let write = self.disk.write(at, SharedBuf::from(buf));
            // While a piece is written the next one is read.
            let following = piece(start + len);
            let read = async {
                match following.is_empty() {
                    true => None,
                    false => Some(self.read_piece(old, following).await),
                }
            };
            let (written, read) = join(write, read).await;
            drop(turn);
            written.map_err(SliceError::device(self.number))?;
            next = read;
            self.counts
                .bytes_written
                .fetch_add(len as u64, Ordering::Relaxed);
        }
        self.disk
            .sync()
            .await
            .map_err(SliceError::device(self.number))?;
        Ok(new)
    }

    /// A piece of a slicetable. Pages that cannot be read are zeros, which no page is.
    async fn read_piece(&self, old: Option<&Region>, piece: Range<usize>) -> AlignedBuf {
        let len = piece.len();
        let Some(old) = old else {
            return AlignedBuf::new(len);
        };
        let start = self.region_start(old) + piece.start as u64;
        self.counts
            .bytes_read
            .fetch_add(len as u64, Ordering::Relaxed);
        if let Ok(buf) = self.disk.read(start, AlignedBuf::new(len)).await {
            return buf;
        }
        let mut piece = AlignedBuf::new(len);
        for within in (0..len).step_by(self.shape.page_bytes) {
            let page = AlignedBuf::new(self.shape.page_bytes);
            if let Ok(page) = self.disk.read(start + within as u64, page).await {
                piece[within..within + page.len()].copy_from_slice(&page);
            }
        }
        piece
    }

    /// The floor of a page; one that is damaged is emptied.
    fn floor_of(&self, old: &Region, partition: u32, number: u32, page: &mut [u8]) -> u32 {
        let verified = self.identity(old, partition, number).verify(page);
        verified.unwrap_or_else(|_| {
            page[SLICE_PAGE_HEAD_BYTES..].fill(0);
            self.counts.pages_lost.fetch_add(1, Ordering::Relaxed);
            old.generation
        })
    }
}
