//! Writing sealed segments and reclaiming old ones, all the while or when a caller asks for room.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Counters, Exact, RECOVERY_TASKS, entry_location, reclaim, recover};
use crate::config::Maintenance;
use crate::format::journal::Record;
use crate::key::KeyHash;
use crate::placement::BackgroundTask;
use crate::store::{WriteFailure, Written};

pub(super) fn tasks(exact: Arc<Exact>) -> Vec<BackgroundTask> {
    let reclaiming = Arc::clone(&exact);
    let mut tasks: Vec<BackgroundTask> =
        vec![Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { reclaim::keep_room(&reclaiming).await })
        })];
    for _ in 0..exact.writers {
        let exact = Arc::clone(&exact);
        tasks.push(Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { write_sealed(&exact).await })
        }));
    }
    if !exact.works_in_background() {
        let exact = Arc::clone(&exact);
        tasks.push(Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { work_on_demand(&exact).await })
        }));
    }
    for _ in 0..RECOVERY_TASKS {
        let exact = Arc::clone(&exact);
        tasks.push(Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { recover::read_segments(&exact).await })
        }));
    }
    tasks
}

async fn write_sealed(exact: &Exact) {
    loop {
        let work = exact.store.work().listener();
        if exact.works_in_background() && write_one(exact).await {
            continue;
        }
        if exact.stopping.load(Ordering::Acquire) {
            return;
        }
        work.await;
    }
}

/// Writes the sealed segment that has waited longest; false when none waits.
pub(super) async fn write_one(exact: &Exact) -> bool {
    match exact.store.write_next().await {
        Some(Written::Done(_)) => {}
        Some(Written::Failed(failure)) => give_up(exact, failure).await,
        None => return false,
    }
    exact.progress.notify_all();
    true
}

/// Writes a segment and reclaims as many as are missing whenever a caller has asked for room, until
/// background tasks do.
async fn work_on_demand(exact: &Exact) {
    loop {
        let work = exact.store.work().listener();
        if exact.works_in_background() || exact.stopping.load(Ordering::Acquire) {
            return;
        }
        if exact.is_asked.swap(false, Ordering::AcqRel) {
            write_one(exact).await;
            while reclaim::reclaim_one(exact).await {}
        } else {
            work.await;
        }
    }
}

impl Exact {
    /// Whether segments are written and reclaimed without being asked for: where they are not, they are
    /// once the cache is stopping.
    pub(super) fn works_in_background(&self) -> bool {
        self.maintenance == Maintenance::Background || self.winding_down.load(Ordering::SeqCst)
    }
}

/// Forgets what a segment that could not be written held.
async fn give_up(exact: &Exact, failure: WriteFailure) {
    tracing::warn!(
        segment = failure.segment.0,
        items = failure.entries.len(),
        error = %failure.error,
        "a segment could not be written; its items are lost"
    );
    // It may be there all the same; what it holds counts no more.
    exact.journal.append(Record::SegmentDead {
        segment: failure.segment.0,
        life: failure.sequence,
    });
    for entry in &failure.entries {
        let hash = KeyHash(entry.hash.get());
        let location = entry_location(failure.segment, entry.position.get());
        let value = exact.codec.encode(location);
        if exact.change(hash, |shard| shard.table.remove_if(hash.0, value)) {
            Counters::add(&exact.counters.items_lost, 1);
        }
    }
    let segment = failure.segment;
    if exact.store.abandon(failure).await {
        exact.journal.append(Record::Retired { segment: segment.0 });
    }
}

/// Closes the store, seals what is being filled and waits until all of it is on flash or given up,
/// and until reclaim has finished what it had in its hands.
pub(super) async fn drain(exact: &Exact) {
    exact.store.close();
    loop {
        let progress = exact.progress.listener();
        exact.store.flush();
        if exact.store.is_drained() && exact.reclaiming.load(Ordering::SeqCst) == 0 {
            return;
        }
        progress.await;
    }
}

/// Drains, waits for reclaim to free what the checkpoint needs, and ends it: from then on neither
/// the index names other places nor the segments change.
pub(super) async fn settle(exact: &Exact) {
    loop {
        drain(exact).await;
        let progress = exact.progress.listener();
        let store = &exact.store;
        if store.free_segments() < exact.free_target() && store.written_segments() > 0 {
            exact.frozen.store(false, Ordering::SeqCst);
            store.work().notify_all();
            progress.await;
            continue;
        }
        exact.frozen.store(true, Ordering::SeqCst);
        if exact.reclaiming.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
}
