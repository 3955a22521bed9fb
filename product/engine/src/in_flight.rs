//! Single flight: many reads of one cold key cost one flash read.
//!
//! The first request to ask for a key makes the read; those that come while it is under way share
//! its outcome. A write to the key ends the sharing: the read is taken out of its partition's
//! table, those that already wait for it still get what they asked for before the write, and
//! nothing of it is kept in memory.

use std::sync::{Arc, OnceLock};

use runtime::sync::Notify;

use crate::store::FlashItem;
use crate::sync::atomic::{AtomicBool, Ordering};

/// How an in-flight read ended.
#[derive(Clone, Debug)]
pub(crate) enum ReadOutcome {
    /// With a live item; whether the DRAM tier has kept it.
    Item { item: Arc<FlashItem>, kept: bool },
    /// There is no such item.
    Absent,
    /// The device failed or gave wrong bytes: a miss, and the index may still name the item.
    Failed,
    /// There was no memory to read the item: the index still names it.
    Busy,
    /// There was none at once, and the request that made the read [reads ahead](crate::store::Patience): whoever waits for
    /// the item has to read for itself.
    Crowded,
    /// The request that made the read went away: whoever waits for it has to read for itself.
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
    /// One more request waits for it. Called, as [`is_shared`](InFlightRead::is_shared), under the
    /// partition's lock.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Whether more than one request has asked for it.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// A request waits for it whose look counts as a read of the item.
    pub(crate) fn note_counting(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Whether a request has asked so far whose look counts.
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Ends the read and wakes all that wait for it. Called once.
    pub(crate) fn end(&self, outcome: ReadOutcome) {
        let ended_before = self.outcome.set(outcome).is_err();
        debug_assert!(!ended_before, "a read ends once");
        self.ended.notify_all();
    }

    /// Waits until the read has ended.
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
