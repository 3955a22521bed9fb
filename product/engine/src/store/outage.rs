//! Reads that fail at the device. The error may be transient, so no data is given up before it has lasted for a while.
//!
//! | reader | consequence of an error |
//! |---|---|
//! | a request, or reclaim | the request misses; reclaim does not keep the item |
//! | a start, or a reader of a checkpoint | the read is repeated until [`PATIENCE`] after the first error of the run |
//! | a checkpoint by the index, or a sync that writes again | it fails and is tried again; data is lost after [`PATIENCE`] |
//!
//! Bytes that can be read but do not verify are lost at once.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use device::DeviceError;
use runtime::Instant;

use super::segment::SegmentRecord;
use crate::format::segment::SegmentId;
use crate::sync::Mutex;

/// Time that a device may fail before the data that it does not return is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a read is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// Time without a read of a segment after which its last error is forgotten: the device may have recovered unnoticed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The reads that have failed.
#[derive(Default)]
pub(super) struct Outages {
    /// Time of the first failure of a patient read in this run.
    began: OnceLock<Instant>,
    /// The failure of the last read of each segment.
    places: Mutex<HashMap<SegmentId, Outage>>,
}

struct Outage {
    sequence: u64,
    offset: u32,
    first: Instant,
    last: Instant,
}

/// Returns whether another try may succeed. Unreadable pages stay so: the program of such a page or the erase of its
/// block never ended.
fn may_pass(error: &DeviceError) -> bool {
    !matches!(error, DeviceError::Unreadable { .. })
}

impl Outages {
    /// Waits before a failed patient read is repeated; returns `false` if it is not to be repeated.
    pub(super) async fn wait_to_read_again(&self, error: &DeviceError) -> bool {
        let began = *self.began.get_or_init(runtime::now);
        if !may_pass(error) || runtime::now().since(began) >= PATIENCE {
            return false;
        }
        runtime::sleep(PAUSE).await;
        true
    }

    /// Returns the result of a read at `offset` of a segment, `None` if the segment is lost.
    ///
    /// The error of the device, while it may be transient.
    pub(super) fn unless_lost<T>(
        &self,
        record: &SegmentRecord,
        offset: u32,
        read: Result<T, DeviceError>,
    ) -> Result<Option<T>, DeviceError> {
        let now = runtime::now();
        let mut places = self.places.lock();
        let known = places.get_mut(&record.segment);
        let known = known.filter(|outage| {
            outage.sequence == record.sequence && now.since(outage.last) < FORGOTTEN_AFTER
        });
        match (read, known) {
            (Ok(read), known) => {
                if known.is_none_or(|outage| outage.offset == offset) {
                    places.remove(&record.segment);
                }
                Ok(Some(read))
            }
            (Err(error), _) if !may_pass(&error) => Ok(None),
            (Err(error), Some(outage)) => {
                (outage.offset, outage.last) = (offset, now);
                let has_lasted = now.since(outage.first) >= PATIENCE;
                if has_lasted { Ok(None) } else { Err(error) }
            }
            (Err(error), None) => {
                let outage = Outage {
                    sequence: record.sequence,
                    offset,
                    first: now,
                    last: now,
                };
                places.insert(record.segment, outage);
                Err(error)
            }
        }
    }
}
