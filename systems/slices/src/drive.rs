//! A drive with slicetables: reads of a page, and rewrites of a slicetable (section 5.1).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::encoding::log::Pointer;
use crate::encoding::table::{PageIdentity, SLICE_PAGE_HEAD_BYTES};
use device::{AlignedBuf, DeviceError, Disk, Operation, SharedBuf};
use futures_util::future::join;
use runtime::spawn_detached;
use runtime::sync::{Permit, Semaphore, Sender, oneshot};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::channel::Channels;
use crate::counts::Counts;
use crate::error::SliceError;
use crate::regions::{Region, Regions};
use crate::scheduler::{Asked, Scheduler, Scheduling};

/// Number of failed reads of flushes after which a page that cannot be read counts as lost.
const READ_PATIENCE: u32 = 8;
/// Number of times that a page with a wrong checksum is read again, in case the read was wrong.
const READS_AGAIN: usize = 2;

/// The sizes of slicetables on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableShape {
    pub(crate) instance: u64,
    /// Whether this process has created the structure, so that no other has written to it.
    pub(crate) is_new: bool,
    pub(crate) pages: u32,
    pub(crate) page_bytes: usize,
    pub(crate) piece_bytes: usize,
    /// Bytes in front of the first region.
    pub(crate) head_bytes: u64,
    pub(crate) channels: Channels,
}

pub(crate) struct Drive {
    /// Number of the drive in its structure.
    pub(crate) number: usize,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) shape: TableShape,
    pub(crate) scheduler: Scheduler<AskedRead>,
    pub(crate) regions: Arc<Regions>,
    pub(crate) counts: Counts<DriveCounts>,
    /// Lets one slicetable at a time be written, from start to end: so chunks go to the channels in turn, and no sync covers the
    /// writes of another slicetable.
    rewriting: Semaphore,
    /// Failed reads of flushes since a flush succeeded.
    failed_reads: AtomicU32,
}

/// Counts of a drive since it was opened.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct DriveCounts {
    pub(crate) page_reads: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) pages_lost: u64,
}

/// A read that waits for its turn, or is under way.
pub(crate) struct AskedRead {
    disk: Arc<dyn Disk>,
    offset: u64,
    len: usize,
    done: Sender<Result<AlignedBuf, DeviceError>>,
}

/// A page that has been read.
pub(crate) struct PageRead {
    pub(crate) bytes: AlignedBuf,
    /// Newest generation that the page may have lost ([`PageIdentity::seal`]).
    pub(crate) floor: u32,
}

impl TableShape {
    pub(crate) fn region_bytes(&self) -> u64 {
        u64::from(self.pages) * self.page_bytes as u64
    }

    /// Returns the channel of a page, counted from the channel of the slicetable's first page.
    pub(crate) fn channel(&self, page: u32) -> u32 {
        self.channels.of(u64::from(page) * self.page_bytes as u64)
    }
}

impl Drive {
    pub(crate) fn new(
        number: usize,
        disk: Arc<dyn Disk>,
        shape: TableShape,
        scheduling: Scheduling,
        regions: Arc<Regions>,
    ) -> Self {
        Self {
            number,
            disk,
            shape,
            scheduler: Scheduler::new(scheduling, shape.channels.count),
            regions,
            counts: Counts::default(),
            rewriting: Semaphore::new(1),
            failed_reads: AtomicU32::new(0),
        }
    }

    /// Returns the region that a start has found in the log; `None` if the partition has no slicetable.
    pub(crate) fn found(&self, pointer: Pointer) -> Option<Arc<Region>> {
        let used = || Arc::new(self.regions.used(pointer.region, pointer.generation));
        (pointer.generation > 0).then(used)
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

    /// Reads `len` bytes of a channel when the read has its turn. `disk` is the drive, or the disk that the drive is a part of. A
    /// task does the read, and passes the turn on whether or not the caller polls.
    ///
    /// # Errors
    /// Errors of the drive, and an error if the runtime that first polled this has ended.
    async fn read(
        &self,
        disk: &Arc<dyn Disk>,
        channel: u32,
        offset: u64,
        len: usize,
    ) -> Result<AlignedBuf, DeviceError> {
        let (done, read) = oneshot();
        let asked = AskedRead {
            disk: Arc::clone(disk),
            offset,
            len,
            done,
        };
        spawn_detached(serve(self.scheduler.clone(), channel, asked));
        read.await.unwrap_or_else(|| {
            Err(DeviceError::Io {
                operation: Operation::Read,
                offset,
                len,
                source: io::Error::other("the runtime that has begun it has ended"),
            })
        })
    }

    /// Waits until no read uses the disk, not even a read that was given up.
    pub(crate) async fn idle(&self) {
        drop(self.scheduler.write().await);
    }

    /// Reads a page of a slicetable, and verifies it.
    pub(crate) async fn read_page(
        &self,
        region: &Region,
        partition: u32,
        page: u32,
    ) -> Result<PageRead, SliceError> {
        let within = u64::from(page) * self.shape.page_bytes as u64;
        let offset = self.region_start(region) + within;
        let channel = self.shape.channels.of(within);
        let read = self.read(&self.disk, channel, offset, self.shape.page_bytes);
        let read = read.await;
        let bytes = read.map_err(SliceError::device(self.number))?;
        self.counts.add(|counts| counts.page_reads = 1);
        let verified = self.identity(region, partition, page).verify(&bytes);
        let floor = verified.map_err(|source| SliceError::Damaged {
            drive: self.number,
            offset,
            source,
        })?;
        Ok(PageRead { bytes, floor })
    }

    /// Writes outside the slicetables, and syncs. `disk` is the drive, or the disk that the drive is a part of. No slicetable is
    /// written at the same time: a failed sync may lose writes of others, whose own syncs would not report the loss.
    pub(crate) async fn write_beside(
        &self,
        disk: &dyn Disk,
        offset: u64,
        data: SharedBuf,
    ) -> Result<(), SliceError> {
        let len = data.len() as u64;
        let _alone = self.rewriting.acquire().await;
        let turn = self.scheduler.write().await;
        let written = disk.write(offset, data).await;
        drop(turn);
        written.map_err(SliceError::device(self.number))?;
        self.counts.add(|counts| counts.bytes_written = len);
        let synced = disk.sync().await;
        synced.map_err(SliceError::device(self.number))
    }

    /// Reads outside the slicetables, when the read has its turn. `disk` is as for a write.
    pub(crate) async fn read_beside(
        &self,
        disk: &Arc<dyn Disk>,
        offset: u64,
        len: usize,
    ) -> Result<AlignedBuf, SliceError> {
        let channel = self.shape.channels.of(offset);
        let read = self.read(disk, channel, offset, len).await;
        read.map_err(SliceError::device(self.number))
    }

    /// Waits for the turn to [`rewrite`](Self::rewrite). Callers should choose the tables to write when the turn has come.
    pub(crate) async fn rewriting(&self) -> Permit {
        self.rewriting.acquire().await
    }

    /// Writes the slicetable of a partition to another region, each page as `change` leaves it, and syncs it. `change` gets the
    /// number and the bytes of a page. A damaged page of `old` starts empty, with a floor that says which generations it has
    /// lost.
    ///
    /// The previous process may have begun the same flush, with other changes, and may have left valid pages in the region. The
    /// first slicetable of a partition that this process writes is therefore read back, in case the drive has lost a write.
    ///
    /// # Errors
    /// Errors of the drive. A page that cannot be read is an error the first [`READ_PATIENCE`] times, and counts as damaged after
    /// that. A lost write is an error if the slicetable is read back.
    pub(crate) async fn rewrite(
        &self,
        _turn: Permit,
        old: Option<&Region>,
        partition: u32,
        generation: u32,
        mut change: impl FnMut(u32, &mut [u8]),
    ) -> Result<Region, SliceError> {
        let new = Unfinished(Some(self.regions.take(generation).await));
        let page_bytes = self.shape.page_bytes;
        let total = self.shape.pages as usize * page_bytes;
        let piece = |start: usize| start..(start + self.shape.piece_bytes).min(total);
        let is_first = !self.shape.is_new && old.is_none_or(|old| old.is_found);
        let mut sealed = Vec::new();
        let outcome = async {
            let mut next = None;
            for start in (0..total).step_by(self.shape.piece_bytes) {
                let turn = self.scheduler.write().await;
                let Piece { mut bytes, floors } = match next.take() {
                    Some(piece) => piece,
                    None => self.read_piece(old, partition, piece(start)).await?,
                };
                for (nth, page) in bytes.chunks_exact_mut(page_bytes).enumerate() {
                    let number = (start / page_bytes + nth) as u32;
                    let floor = floors[nth].unwrap_or_else(|| self.begin_anew(old, page));
                    change(number, page);
                    self.identity(new.region(), partition, number)
                        .seal(floor, page);
                    if is_first {
                        sealed.push(xxh3_64(page));
                    }
                }
                let len = bytes.len();
                let at = self.region_start(new.region()) + start as u64;
                let write = self.disk.write(at, SharedBuf::from(bytes));
                // The next piece is read while this one is written.
                let following = piece(start + len);
                let read = async {
                    match following.is_empty() {
                        true => None,
                        false => Some(self.read_piece(old, partition, following).await),
                    }
                };
                let (written, read) = join(write, read).await;
                drop(turn);
                written.map_err(SliceError::device(self.number))?;
                next = read.transpose()?;
                self.counts.add(|counts| counts.bytes_written = len as u64);
            }
            let synced = self.disk.sync().await;
            synced.map_err(SliceError::device(self.number))?;
            match is_first {
                true => self.read_back(new.region(), &sealed).await,
                false => Ok(()),
            }
        }
        .await;
        let region = new.finish();
        outcome.map(|()| {
            self.failed_reads.store(0, Ordering::Relaxed);
            region
        })
    }

    /// Checks that the pages written to a region have the hashes `sealed`. A piece that cannot be read passes.
    async fn read_back(&self, new: &Region, sealed: &[u64]) -> Result<(), SliceError> {
        let page_bytes = self.shape.page_bytes;
        let pages = self.shape.piece_bytes / page_bytes;
        for (piece, sealed) in sealed.chunks(pages).enumerate() {
            let offset = self.region_start(new) + (piece * self.shape.piece_bytes) as u64;
            let len = sealed.len() * page_bytes;
            let turn = self.scheduler.write().await;
            let read = self.disk.read(offset, AlignedBuf::new(len)).await;
            drop(turn);
            self.counts.add(|counts| counts.bytes_read = len as u64);
            let Ok(bytes) = read else { continue };
            let mut pages = bytes.chunks_exact(page_bytes).zip(sealed);
            if let Some(lost) = pages.position(|(page, &sealed)| xxh3_64(page) != sealed) {
                let offset = offset + (lost * page_bytes) as u64;
                return Err(self.lost_write(offset, page_bytes));
            }
        }
        Ok(())
    }

    /// Returns the error of a write that the drive has lost.
    pub(crate) fn lost_write(&self, offset: u64, len: usize) -> SliceError {
        SliceError::device(self.number)(DeviceError::Io {
            operation: Operation::Write,
            offset,
            len,
            source: io::Error::other("what was written is not there"),
        })
    }

    /// Reads a piece of a slicetable, and reads its damaged pages again.
    async fn read_piece(
        &self,
        old: Option<&Region>,
        partition: u32,
        piece: Range<usize>,
    ) -> Result<Piece, SliceError> {
        let page_bytes = self.shape.page_bytes;
        let (len, first) = (piece.len(), (piece.start / page_bytes) as u32);
        let Some(old) = old else {
            return Ok(Piece {
                bytes: AlignedBuf::new(len),
                floors: vec![Some(0); len / page_bytes],
            });
        };
        let start = self.region_start(old) + piece.start as u64;
        let add_read = |len: usize| self.counts.add(|counts| counts.bytes_read = len as u64);
        let read = self.disk.read(start, AlignedBuf::new(len)).await;
        add_read(len);
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                if self.failed_reads.fetch_add(1, Ordering::Relaxed) < READ_PATIENCE {
                    return Err(SliceError::device(self.number)(error));
                }
                // Zeros are no valid page.
                AlignedBuf::new(len)
            }
        };
        let mut floors = Vec::with_capacity(len / page_bytes);
        for (number, page) in (first..).zip(bytes.chunks_exact_mut(page_bytes)) {
            let identity = self.identity(old, partition, number);
            let mut floor = identity.verify(page).ok();
            let at = start + u64::from(number - first) * page_bytes as u64;
            for _ in 0..READS_AGAIN {
                if floor.is_some() {
                    break;
                }
                if let Ok(again) = self.disk.read(at, AlignedBuf::new(page_bytes)).await {
                    add_read(page_bytes);
                    page.copy_from_slice(&again);
                    floor = identity.verify(page).ok();
                }
            }
            floors.push(floor);
        }
        Ok(Piece { bytes, floors })
    }

    /// Empties a damaged page of `old`. Returns its floor.
    fn begin_anew(&self, old: Option<&Region>, page: &mut [u8]) -> u32 {
        page[SLICE_PAGE_HEAD_BYTES..].fill(0);
        self.counts.add(|counts| counts.pages_lost = 1);
        old.map_or(0, |old| old.generation)
    }
}

impl Asked for AskedRead {
    fn is_given_up(&self) -> bool {
        self.done.is_abandoned()
    }
}

/// Does a read when it has its turn, then the reads that the turn passes to. The drive gets the next read before the caller of
/// the last one looks at its result.
async fn serve(scheduler: Scheduler<AskedRead>, channel: u32, asked: AskedRead) {
    let Some((mut turn, mut asked)) = scheduler.read(channel, asked).await else {
        return;
    };
    loop {
        let AskedRead {
            disk,
            offset,
            len,
            done,
        } = asked;
        let read = disk.read(offset, AlignedBuf::new(len)).await;
        drop(disk);
        let next = turn.pass_on();
        done.send(read);
        match next {
            Some(next) => asked = next,
            None => return,
        }
    }
}

/// A piece of a slicetable, with the floor of each page; `None` for a damaged page.
struct Piece {
    bytes: AlignedBuf,
    floors: Vec<Option<u32>>,
}

/// A region that is being written. If the task is dropped before the end, a write may still be under way.
struct Unfinished(Option<Region>);

impl Unfinished {
    fn region(&self) -> &Region {
        self.0.as_ref().expect("it is there until it is finished")
    }

    fn finish(mut self) -> Region {
        self.0.take().expect("it is there until it is finished")
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(region) = &self.0 {
            region.abandon();
        }
    }
}
