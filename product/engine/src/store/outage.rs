//! Reads that fail at the device: the error may pass, so nothing is lost before it has lasted.
//!
//! | who reads | what an error means |
//! |---|---|
//! | a request, reclaim | a miss, an item that is not kept |
//! | a start, whoever reads a checkpoint | it is read again: all of them together wait for [`PATIENCE`] in a run |
//! | a checkpoint by the index, a sync that writes again | it fails, and whoever wants it tries again; what has failed each time for [`PATIENCE`] is lost |
//!
//! Bytes that are there and are not what was written are lost at once.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use device::DeviceError;
use runtime::Instant;

use super::segment::SegmentRecord;
use crate::format::segment::SegmentId;
use crate::sync::Mutex;

/// How long a device may fail before what it does not give is lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before something is read again.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two tries that nobody made for so long, the error may have passed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// What could not be read.
#[derive(Default)]
pub(super) struct Outages {
    /// When a patient read first failed in this run.
    began: OnceLock<Instant>,
    /// By segment, what failed when it was read last.
    places: Mutex<HashMap<SegmentId, Outage>>,
}

struct Outage {
    sequence: u64,
    offset: u32,
    first: Instant,
    last: Instant,
}

/// Whether another try may succeed; no program has come to its end on pages that are unreadable.
fn may_pass(error: &DeviceError) -> bool {
    !matches!(error, DeviceError::Unreadable { .. })
}

impl Outages {
    /// Waits before a patient read that failed is tried again; `false` when it is not.
    pub(super) async fn wait_to_read_again(&self, error: &DeviceError) -> bool {
        let began = *self.began.get_or_init(runtime::now);
        if !may_pass(error) || runtime::now().since(began) >= PATIENCE {
            return false;
        }
        runtime::sleep(PAUSE).await;
        true
    }

    /// What has been read at `offset` of a segment, `None` if it is lost.
    ///
    /// # Errors
    /// The error of the device, while it may pass.
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
