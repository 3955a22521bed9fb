//! The region of an index on flash: whom a sync of it tells that it has failed.

use std::sync::Arc;

use device::{AlignedBuf, DeviceError, Disk, IoFuture, Operation, Region, SharedBuf};
use runtime::sync::Semaphore;

use crate::counter::Count as _;
use crate::store::SegmentStore;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Syncs of the device of a region.
pub struct IndexSyncs(Syncs);

enum Syncs {
    /// It has the segments, too: what a failed sync may have lost is theirs as well, whoever asked for it.
    Shared(Arc<SegmentStore>),
    /// It has nothing but the region, and nobody else is told.
    Own {
        /// Those that have failed.
        failed: AtomicU64,
        /// One at a time: an error is told to one of them alone, and is counted before the next begins.
        syncing: Semaphore,
    },
}

impl IndexSyncs {
    /// Syncs of the device of a region: of a device of its own, or of the one with the segments.
    pub fn new(store: &Arc<SegmentStore>, is_apart: bool) -> Self {
        match is_apart {
            true => Self::own(),
            false => Self(Syncs::Shared(Arc::clone(store))),
        }
    }

    fn own() -> Self {
        Self(Syncs::Own {
            failed: AtomicU64::new(0u64),
            syncing: Semaphore::new(1),
        })
    }

    /// Syncs the region's device.
    pub async fn sync(&self, region: &Region) -> Result<(), DeviceError> {
        match &self.0 {
            Syncs::Shared(store) => store.sync_by(region.sync()).await,
            Syncs::Own { failed, syncing } => {
                let _turn = syncing.acquire().await;
                let synced = region.sync().await;
                if synced.is_err() {
                    failed.add(1);
                }
                synced
            }
        }
    }

    /// Changes whenever a sync of the device fails.
    pub fn failed(&self) -> u64 {
        match &self.0 {
            Syncs::Shared(store) => store.failed_syncs(),
            Syncs::Own { failed, .. } => failed.get(),
        }
    }
}

/// A part of a region that one writer at a time writes and then syncs: a sync that succeeds covers what has been written since the
/// one before. Where anybody's sync has failed meanwhile, it fails.
pub struct IndexDisk {
    part: Region,
    region: Region,
    syncs: Arc<IndexSyncs>,
    /// The start that waits for what fails.
    start: Option<Arc<PatientStart>>,
    /// Failed syncs at the first write since the last sync, above [`WRITTEN`].
    written_at: AtomicU64,
}

/// A start, during which what the device does not give or take is tried again: the error may pass, and costs all that is there.
pub struct PatientStart {
    store: Arc<SegmentStore>,
    is_over: AtomicBool,
}

impl PatientStart {
    /// A start that goes on until it is [ended](Self::end).
    pub fn new(store: &Arc<SegmentStore>) -> Self {
        Self {
            store: Arc::clone(store),
            is_over: AtomicBool::new(false),
        }
    }

    /// From now on errors are said at once.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits before what has failed is tried again; `false` when it is not.
    pub async fn waits_for(&self, error: &DeviceError) -> bool {
        !self.is_over() && self.store.wait_to_try_again(error).await
    }
}

/// Something has been written since the last sync.
const WRITTEN: u64 = 1;

impl IndexDisk {
    /// So many bytes of `region`, from one on. What fails during `start` is tried again.
    pub fn new(
        region: &Region,
        (first, len_bytes): (u64, u64),
        syncs: &Arc<IndexSyncs>,
        start: Option<&Arc<PatientStart>>,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            part: Region::new(Arc::new(region.clone()), first, len_bytes)?,
            region: region.clone(),
            syncs: Arc::clone(syncs),
            start: start.cloned(),
            written_at: AtomicU64::new(0u64),
        })
    }

    /// The start, while there is one that waits.
    fn patient_start(&self) -> Option<&PatientStart> {
        self.start.as_deref().filter(|start| !start.is_over())
    }

    async fn synced(&self) -> Result<(), DeviceError> {
        let written_at = self.written_at.swap(0, Ordering::SeqCst);
        self.syncs.sync(&self.region).await?;
        if written_at & WRITTEN == 0 || written_at >> 1 == self.syncs.failed() {
            return Ok(());
        }
        Err(DeviceError::Io {
            operation: Operation::Sync,
            offset: 0,
            len: 0,
            source: std::io::Error::other(
                "an earlier sync of the device has failed, and what had been written by then may be lost",
            ),
        })
    }
}

impl Disk for IndexDisk {
    fn len_bytes(&self) -> u64 {
        self.part.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        let Some(start) = self.patient_start() else {
            return self.part.read(offset, buf);
        };
        Box::pin(async move {
            let len = buf.len();
            let mut read = self.part.read(offset, buf).await;
            while let Err(error) = &read
                && start.waits_for(error).await
            {
                read = self.part.read(offset, AlignedBuf::new(len)).await;
            }
            read
        })
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        let now = self.syncs.failed() << 1 | WRITTEN;
        // The first write since the last sync counts.
        let _ = self
            .written_at
            .compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
        let Some(start) = self.patient_start() else {
            return self.part.write(offset, data);
        };
        Box::pin(async move {
            let mut written = self.part.write(offset, data.clone()).await;
            while let Err(error) = &written
                && start.waits_for(error).await
            {
                written = self.part.write(offset, data.clone()).await;
            }
            written
        })
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.part.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        Box::pin(self.synced())
    }
}

#[cfg(test)]
mod tests;
