//! The devices of a life, which take crash points at their accesses.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use device::{
    AlignedBuf, BlockHealth, BlockId, DeviceError, Disk, Flash, Geometry, IoFuture, SharedBuf,
};
use emulated::Libssd;
use engine::Medium;

use super::media::LifeDisk;
use super::plan::Rates;
use super::watch::Watch;

/// Returns the medium that an engine opens; its accesses take crash points.
pub(super) fn medium(watch: &Arc<Watch>) -> Medium {
    let disk = Arc::new(WatchedDisk(Arc::clone(watch), Which::Items));
    if watch.media.is_flash() {
        let flash = Arc::new(WatchedFlash(Arc::clone(watch)));
        Medium::Flash { flash, meta: disk }
    } else {
        Medium::Disk(disk)
    }
}

/// Returns the device of the index, if the index has its own.
pub(super) fn index_device(watch: &Arc<Watch>) -> Option<Arc<dyn Disk>> {
    let watched = || Arc::new(WatchedDisk(Arc::clone(watch), Which::Index)) as _;
    watch.media.index.as_ref().map(|_| watched())
}

/// Does `access`, called `what`. Takes crash points before it, after it, and during it: after `moment`, or at
/// once if that is `None`.
async fn watched<T>(
    watch: &Watch,
    rate: fn(&Rates) -> u32,
    what: &str,
    moment: Option<Duration>,
    access: impl Future<Output = Result<T, DeviceError>>,
) -> Result<T, DeviceError> {
    watch.at_access(rate, "before", what);
    let mut access = pin!(access);
    let mut moment = moment.map(|after| Box::pin(runtime::sleep(after)));
    let mut is_past = false;
    let done = std::future::poll_fn(|cx| {
        let polled = access.as_mut().poll(cx);
        let mut is_now = || {
            let moment = moment.as_mut();
            moment.is_none_or(|moment| moment.as_mut().poll(cx).is_ready())
        };
        if !is_past && polled.is_pending() && is_now() {
            is_past = true;
            watch.at_access(rate, "during", what);
        }
        polled
    })
    .await;
    watch.at_access(rate, "after", what);
    done
}

const READS: fn(&Rates) -> u32 = |rates| rates.reads;
const CHANGES: fn(&Rates) -> u32 = |rates| rates.accesses;

/// Disk of a life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The disk with the superblock.
    Items,
    /// The index's own disk.
    Index,
}

/// A disk that takes crash points at its accesses.
struct WatchedDisk(Arc<Watch>, Which);

impl WatchedDisk {
    fn disk(&self) -> &LifeDisk {
        let media = &self.0.media;
        match (self.1, &media.index) {
            (Which::Index, Some(index)) => index,
            _ => &media.disk,
        }
    }

    /// Returns the name of an access.
    fn words(&self, of_items: &'static str, of_index: &'static str) -> &'static str {
        match self.1 {
            Which::Items => of_items,
            Which::Index => of_index,
        }
    }
}

impl Disk for WatchedDisk {
    fn len_bytes(&self) -> u64 {
        self.disk().faulty.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            let read = self.disk().faulty.read(offset, buf).await;
            let what = self.words("a read", "a read of the index");
            self.0.at_access(READS, "after", what);
            read
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        if self.1 == Which::Items {
            self.0.media.note_write(offset, data.len());
        }
        let write = self.disk().faulty.write(offset, data);
        let what = self.words("a write", "a write of the index");
        Box::pin(watched(&self.0, CHANGES, what, None, write))
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let discarded = self.disk().faulty.discard(offset, len).await;
            let what = self.words("a discard", "a discard of the index");
            self.0.at_access(CHANGES, "after", what);
            discarded
        })
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(async move {
            let what = self.words("a sync", "a sync of the index");
            self.0.at_access(CHANGES, "before", what);
            let written = self.0.written_now();
            self.disk().faulty.sync().await?;
            if self.1 == Which::Items {
                self.0.synced(written);
            }
            self.0.at_access(CHANGES, "after", what);
            Ok(())
        })
    }
}

/// The flash, which takes crash points at its accesses.
struct WatchedFlash(Arc<Watch>);

impl WatchedFlash {
    fn flash(&self) -> &Libssd {
        let flash = self.0.media.flash.as_ref();
        flash.expect("it is made where there is flash")
    }

    fn watched<'a, T: 'a>(
        &'a self,
        rate: fn(&Rates) -> u32,
        what: &'static str,
        access: impl Future<Output = Result<T, DeviceError>> + 'a,
    ) -> IoFuture<'a, T> {
        let moment = Some(self.0.any_moment());
        Box::pin(watched(&self.0, rate, what, moment, access))
    }
}

impl Flash for WatchedFlash {
    fn geometry(&self) -> Geometry {
        self.flash().geometry()
    }

    fn read(&self, block: BlockId, offset: u32, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        let held_up = std::mem::take(&mut *self.0.media.slow_read.lock());
        self.watched(READS, "a read", async move {
            if !held_up.is_zero() {
                runtime::sleep(held_up).await;
            }
            self.flash().read(block, offset, buf).await
        })
    }

    fn program(&self, block: BlockId, first_page: u32, data: SharedBuf) -> IoFuture<'_, ()> {
        let program = self.flash().program(block, first_page, data);
        self.watched(CHANGES, "a program", program)
    }

    fn erase(&self, block: BlockId) -> IoFuture<'_, ()> {
        self.watched(CHANGES, "an erase", self.flash().erase(block))
    }

    fn health(&self, block: BlockId) -> BlockHealth {
        self.flash().health(block)
    }

    fn erase_count(&self, block: BlockId) -> u64 {
        self.flash().erase_count(block)
    }

    fn channel_load(&self, channel: u32) -> u64 {
        self.flash().channel_load(channel)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.flash().sync()
    }
}
