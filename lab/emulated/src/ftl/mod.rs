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
mod drive;
mod host;
mod map;
mod pages;
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
use runtime::sync::Notify;

pub use config::{FtlConfig, LinkTiming, Striping};
pub use state::FtlCounts;
pub(crate) use untimed::UntimedFtl;

use crate::nand::{ConfigError, Nand, NandConfig};
use device::check_access;
use device::{AlignedBuf, Disk, IoFuture, Operation, PAGE_BYTES, SharedBuf};
use drive::Drive;
use host::Host;
use map::MapShape;
use pages::FlashPages;
use write_back::WriteBack;

/// A conventional SSD.
#[derive(Debug)]
pub struct Ftl {
    drive: Arc<Drive>,
    write_back: WriteBack,
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
            flash: FlashPages {
                nand,
                page_bytes,
                pages_per_group: shape.pages_per_group,
                planes: shape.planes,
            },
            config,
            len_bytes: u64::from(shape.logical_pages) * page_bytes as u64,
            host,
            state: Mutex::new(state),
            changed: Notify::new(),
        };
        let drive = Arc::new(drive);
        Ok(Self {
            write_back: WriteBack::new(Arc::clone(&drive)),
            drive,
        })
    }

    /// Returns the flash of the drive.
    pub fn nand(&self) -> &Arc<Nand> {
        &self.drive.flash.nand
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
        let logical = u32::try_from(offset / self.drive.flash.page_bytes as u64).ok()?;
        let state = self.drive.state.lock();
        if logical >= state.map.shape().logical_pages {
            return None;
        }
        let page = state.map.lookup(logical)?;
        Some(state.map.shape().channel_of(page))
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
            read::read_pages(drive, offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        let drive = &self.drive;
        Box::pin(async move {
            check_access(Operation::Write, offset, data.len() as u64, drive.len_bytes)?;
            if self.write_back.has_cache() {
                self.write_back.write(offset, &data).await
            } else {
                write::write_pages(drive, offset, &data).await
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
        Box::pin(self.write_back.sync())
    }
}
