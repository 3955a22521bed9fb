//! Single flight: many reads of one cold key cost one flash read.
//!
//! The first request for a key makes the read; requests that come while it is in flight share its outcome. A write to
//! the key ends the sharing: the read leaves its partition's table. Requests already waiting for it still get the item
//! as it was before the write, and the item is not kept in memory.

use std::sync::{Arc, OnceLock};

use runtime::sync::Notify;

use crate::store::FlashItem;
use crate::sync::atomic::{AtomicBool, Ordering};

/// How an in-flight read ended.
#[derive(Clone, Debug)]
pub(crate) enum ReadOutcome {
    /// A live item. `kept` says whether the DRAM tier has kept it.
    Item { item: Arc<FlashItem>, kept: bool },
    /// There is no such item.
    Absent,
    /// The device failed or returned wrong bytes: a miss. The index may still name the item.
    Failed,
    /// There was no memory for the read. The index still names the item.
    Busy,
    /// No memory was free, and the request that made the read [reads ahead](crate::store::Patience): waiting requests
    /// read for themselves.
    Crowded,
    /// The flash has not answered in time. The index still names the item.
    GivenUp,
    /// The request that made the read was dropped: waiting requests read for themselves.
    Abandoned,
}

/// A flash read that several requests may wait for.
#[derive(Debug, Default)]
pub(crate) struct InFlightRead {
    is_shared: AtomicBool,
    counts: AtomicBool,
    outcome: OnceLock<ReadOutcome>,
    ended: Notify,
}

impl InFlightRead {
    /// Notes that one more request waits for the read. Called, like [`is_shared`](InFlightRead::is_shared), under the
    /// partition's lock.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Returns whether more than one request has asked for the read.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Notes that a request waits whose read counts as an access.
    pub(crate) fn note_counting(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Returns whether a request has asked so far whose read counts as an access.
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Ends the read and wakes the requests that wait for it. Called once.
    pub(crate) fn end(&self, outcome: ReadOutcome) {
        let ended_before = self.outcome.set(outcome).is_err();
        debug_assert!(!ended_before, "a read ends once");
        self.ended.notify_all();
    }

    /// Waits until the read has ended, and returns its outcome.
    pub(crate) async fn outcome(&self) -> ReadOutcome {
        loop {
            let ended = self.ended.listener();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            ended.await;
        }
    }
}
