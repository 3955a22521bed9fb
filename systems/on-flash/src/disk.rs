//! The region of an index on flash, and the consequences of its failed syncs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{AlignedBuf, DeviceError, Disk, IoFuture, Operation, Region, SharedBuf};
use engine::Count as _;
use engine::store::SegmentStore;
use runtime::sync::Semaphore;

/// Syncs of the device that holds the region.
pub struct IndexSyncs(Syncs);

enum Syncs {
    /// The device also holds the segments. Any failed sync may have lost writes to segments and region alike.
    Shared(Arc<SegmentStore>),
    /// The device holds the region alone; no other part is told of a failed sync.
    Own {
        /// Number of failed syncs.
        failed: AtomicU64,
        /// Admits one sync at a time. The device reports an error to one sync only, so the error must be counted before the
        /// next sync starts.
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
            Syncs::Shared(store) => store.syncs().sync_by(region.sync()).await,
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

    /// Returns a counter that changes whenever a sync of the device fails.
    pub fn failed(&self) -> u64 {
        match &self.0 {
            Syncs::Shared(store) => store.syncs().failed_syncs(),
            Syncs::Own { failed, .. } => failed.get(),
        }
    }
}

/// A part of a region, written and then synced by one writer at a time. A sync that succeeds covers all writes since the
/// previous one. It fails if any sync of the device has failed since the first write that it covers.
pub struct IndexDisk {
    part: Region,
    region: Region,
    syncs: Arc<IndexSyncs>,
    /// The start during which failed reads and writes are repeated.
    start: Option<Arc<PatientStart>>,
    /// Number of failed syncs at the first write since the last sync, above the bit [`WRITTEN`]; 0 without a write.
    written_at: AtomicU64,
}

/// A start, during which failed reads and writes of the index are repeated: the error may be transient, and would cost the
/// whole index.
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

    /// Ends the start. Errors are returned at once from now on.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits before a failed operation is repeated. Returns `false` if it must not be repeated.
    pub async fn waits_for(&self, error: &DeviceError) -> bool {
        !self.is_over() && self.store.blocks().wait_to_try_again(error).await
    }
}

/// Bit that is set if the part has been written since the last sync.
const WRITTEN: u64 = 1;

impl IndexDisk {
    /// Returns the part of `region` that starts at `first` and has `len_bytes` bytes. Failed reads and writes are repeated
    /// during `start`.
    pub fn new(
        region: &Region,
        first: u64,
        len_bytes: u64,
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

    /// Returns the start, if it has not ended.
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
        // Only the first write since the last sync sets the number.
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
