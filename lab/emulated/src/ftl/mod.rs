//! [`Ftl`]: a conventional SSD made of a [`Nand`].
//!
//! ```text
//!   read, write, discard
//!        │ queue: a bounded number of commands        host.rs
//!        │ link: one after the other                  host.rs
//!        │ write cache, if there is one               cache.rs ──▶ write_back.rs
//!        ├── write.rs ──┐ ◀───────────────────────────────────────────┘
//!        ├── read.rs    ├──▶ map.rs: locations of pages, place of the next page, victims of GC
//!        └──────────────┤
//!            collect.rs ┘        │ runs of pages of one group
//!                                ▼
//!                               Nand          each page with a tag, for recover.rs
//! ```
//!
//! `docs/internals/devices.md` describes its behaviour and the effects of a power cut.
//!
//! Invariants: the old version of a logical page stays in place until its new version is programmed. A block is erased only when
//! no logical page lies in it. Failure: a block that fails a program or an erase is not used again, and its pages are written
//! elsewhere. When too few blocks are left, writes fail because the device is full.
//!
//! Usable from every thread at once. Lock order: the map's lock, then those of the NAND's channels; no lock is held across a
//! wait.

mod cache;
mod collect;
mod config;
mod host;
mod map;
mod read;
mod recover;
mod state;
#[cfg(test)]
mod tests;
mod untimed;
mod write;
mod write_back;

use std::sync::Arc;

use parking_lot::Mutex;
use runtime::sync::{Notify, Semaphore};

pub use config::{FtlConfig, LinkTiming, Striping};
pub use state::FtlCounts;
pub(crate) use untimed::UntimedFtl;

use crate::nand::{ConfigError, Nand, NandConfig, Pending, Rows, Tag};
use device::check_access;
use device::{AlignedBuf, BlockId, DeviceError, Disk, IoFuture, Operation, PAGE_BYTES, SharedBuf};
use host::Host;
use map::{GroupId, LunId, MapShape, PhysicalPage, Place, Stream};
use state::State;

/// A conventional SSD.
#[derive(Debug)]
pub struct Ftl {
    drive: Arc<Drive>,
}

/// The drive itself, kept alive by the lanes that write its cache back.
#[derive(Debug)]
struct Drive {
    nand: Arc<Nand>,
    config: FtlConfig,
    page_bytes: usize,
    pages_per_group: u32,
    planes: u32,
    len_bytes: u64,
    host: Host,
    state: Mutex<State>,
    /// Notified when a page may be written again, a LUN has been collected, or the cache has released a page.
    changed: Notify,
    /// Admits writes to the cache one after the other.
    cache_entrance: Semaphore,
}

/// Returns the sizes of the map of a drive made of `nand`.
pub(crate) fn shape_of(nand: &NandConfig, config: &FtlConfig) -> Result<MapShape, ConfigError> {
    nand.check()?;
    config.check(nand)?;
    let raw = &nand.geometry;
    let pages = u64::from(raw.blocks()) * u64::from(raw.pages_per_block);
    let logical = (pages as f64 * (1.0 - config.over_provisioning)).floor() as u64;
    Ok(MapShape {
        channels: raw.channels,
        luns_per_channel: raw.luns_per_channel,
        groups_per_lun: raw.blocks_per_lun / nand.planes,
        pages_per_group: raw.pages_per_block * nand.planes,
        planes: nand.planes,
        chunk_pages: config.chunk_bytes / raw.page_bytes,
        // The largest number means "nowhere".
        logical_pages: u32::try_from(logical).unwrap_or(u32::MAX).min(u32::MAX - 1),
        striping: config.striping,
        wear_spread: config.wear_spread,
    })
}

impl Ftl {
    /// Opens the drive made of `nand`, with its earlier contents.
    pub fn open(nand: Arc<Nand>, config: FtlConfig) -> Result<Self, ConfigError> {
        let shape = shape_of(nand.config(), &config)?;
        let page_bytes = nand.config().geometry.page_bytes as usize;
        let host = Host::new(config.queue_depth, config.link, shape.channels);
        let state = recover::state_of(&nand, shape, config.cache_bytes);
        let drive = Drive {
            nand,
            config,
            page_bytes,
            pages_per_group: shape.pages_per_group,
            planes: shape.planes,
            len_bytes: u64::from(shape.logical_pages) * page_bytes as u64,
            host,
            state: Mutex::new(state),
            changed: Notify::new(),
            cache_entrance: Semaphore::new(1),
        };
        Ok(Self {
            drive: Arc::new(drive),
        })
    }

    /// Returns the flash of the drive.
    pub fn nand(&self) -> &Arc<Nand> {
        &self.drive.nand
    }

    /// Returns the configuration, without that of the flash.
    pub fn config(&self) -> &FtlConfig {
        &self.drive.config
    }

    /// Returns the bytes of memory of the table of page locations.
    pub fn map_bytes(&self) -> u64 {
        self.drive.state.lock().map.bytes()
    }

    /// Returns the counters since the drive was opened.
    pub fn counts(&self) -> FtlCounts {
        let state = self.drive.state.lock();
        FtlCounts {
            absorbed_writes: state.cache.absorbed,
            ..state.counts
        }
    }

    /// Returns the channel of the page at byte `offset`; `None` if nothing is stored there. A real drive does not tell its
    /// channels; estimates can be compared with this.
    pub fn channel_of(&self, offset: u64) -> Option<u32> {
        let logical = u32::try_from(offset / self.drive.page_bytes as u64).ok()?;
        let state = self.drive.state.lock();
        if logical >= state.map.shape().logical_pages {
            return None;
        }
        let page = state.map.lookup(logical)?;
        Some(state.map.shape().channel_of(page))
    }
}

impl Drive {
    /// Returns `count` pages of the flash from `first` on, all in one group.
    fn rows(&self, first: PhysicalPage, count: u32) -> Rows {
        Rows {
            first_block: BlockId(first.0 / self.pages_per_group * self.planes),
            planes: self.planes,
            first: first.0 % self.pages_per_group,
            count,
        }
    }

    /// Returns the block of a physical page, and the page's number in the block.
    fn block_page(&self, page: PhysicalPage) -> (BlockId, u32) {
        self.rows(page, 1).place(page.0 % self.pages_per_group)
    }

    /// Copies the bytes of a page. The caller starts a read of the page for the time that it takes.
    fn load(&self, page: PhysicalPage) -> Result<Box<[u8]>, DeviceError> {
        let (block, number) = self.block_page(page);
        let mut bytes = vec![0; self.page_bytes].into_boxed_slice();
        let offset = number as usize * self.page_bytes;
        self.nand.load(block, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Starts the program of a run. `version` and `bytes` return the version and the bytes of a page by its index among the pages
    /// of the command.
    fn start_program<'b>(
        &self,
        state: &mut State,
        run: &Run,
        version: impl Fn(&mut State, usize) -> u64,
        bytes: impl Fn(usize) -> &'b [u8],
    ) -> Result<Pending<'_>, DeviceError> {
        let tag = |&(logical, index): &(u32, usize)| Tag {
            logical,
            version: version(state, index),
            stamp: state.stamp(),
        };
        let tags: Vec<Tag> = run.pages.iter().map(tag).collect();
        let rows = self.rows(run.first, tags.len() as u32);
        let pending = self.nand.start_program(rows, &tags)?;
        for (at, &(_, index)) in run.pages.iter().enumerate() {
            let (block, number) = self.block_page(run.page(at));
            self.nand.store(block, number, bytes(index))?;
        }
        Ok(pending)
    }

    /// Starts the erase of a group.
    fn start_erase(&self, group: GroupId) -> Result<Pending<'_>, DeviceError> {
        self.nand
            .start_erase(BlockId(group.0 * self.planes), self.planes)
    }

    /// Discards the whole pages within a range.
    fn discard_pages(&self, offset: u64, len: u64) {
        let page_bytes = self.page_bytes as u64;
        let first = offset.div_ceil(page_bytes);
        let end = (offset + len) / page_bytes;
        let mut state = self.state.lock();
        for logical in (first..end).map(|logical| logical as u32) {
            state.cache.discard(logical);
            state.map.unmap(logical);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the error of a drive with too few blocks left.
    fn no_space(offset: u64, len: usize) -> DeviceError {
        DeviceError::io(
            Operation::Write,
            offset,
            len,
            std::io::ErrorKind::StorageFull,
        )
    }
}

/// Pages of one group that are allocated or read together.
#[derive(Debug)]
struct Run {
    first: PhysicalPage,
    /// (logical page, index among the pages of the command) of each page.
    pages: Vec<(u32, usize)>,
}

impl Run {
    fn page(&self, at: usize) -> PhysicalPage {
        PhysicalPage(self.first.0 + at as u32)
    }

    /// Gives back the unused pages of the run.
    fn give_back(&self, state: &mut State, stream: Stream) {
        for at in 0..self.pages.len() {
            state.map.lose(self.page(at), stream);
        }
    }

    /// Adds a page to the run that it continues, or begins a new run.
    fn add(runs: &mut Vec<Self>, pages_per_group: u32, page: PhysicalPage, what: (u32, usize)) {
        let continued = runs.iter_mut().rev().find(|run| {
            run.first.0 + run.pages.len() as u32 == page.0
                && run.first.0 / pages_per_group == page.0 / pages_per_group
        });
        match continued {
            Some(run) => run.pages.push(what),
            None => runs.push(Self {
                first: page,
                pages: vec![what],
            }),
        }
    }
}

impl Disk for Ftl {
    fn len_bytes(&self) -> u64 {
        self.drive.len_bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        let drive = &self.drive;
        Box::pin(async move {
            check_access(Operation::Read, offset, buf.len() as u64, drive.len_bytes)?;
            drive.read_pages(offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        let drive = &self.drive;
        Box::pin(async move {
            check_access(Operation::Write, offset, data.len() as u64, drive.len_bytes)?;
            if drive.has_cache() {
                drive.write_to_cache(offset, &data).await
            } else {
                drive.write_pages(offset, &data).await
            }
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        let drive = &self.drive;
        Box::pin(async move {
            check_access(Operation::Erase, offset, len, drive.len_bytes)?;
            drive.discard_pages(offset, len);
            Ok(())
        })
    }

    /// Syncs the cache: every acknowledged write is in flash or in the cache.
    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(self.drive.sync_cache())
    }
}
