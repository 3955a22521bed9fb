//! Writing sealed segments and reclaiming old ones: in background tasks, or by whoever needs room.

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
use futures_util::future::select;
use runtime::sync::Listener;

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

/// The turn of one of several callers to make room. Those who have waited for it are told when it ends.
struct Turn<'a>(&'a Exact);

impl<'a> Turn<'a> {
    fn take(exact: &'a Exact) -> Option<Self> {
        let is_taken = exact.making_room.swap(true, Ordering::AcqRel);
        (!is_taken).then_some(Self(exact))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.making_room.store(false, Ordering::Release);
        self.0.turn_ended.notify_all();
    }
}

/// Waits for room: until `told`, or until a segment has been written, and as many reclaimed as are
/// missing, by this caller itself or by another.
pub(super) async fn make_room(exact: &Exact, told: Listener) {
    if exact.works_in_background() {
        return told.await;
    }
    let ended = exact.turn_ended.listener();
    let Some(turn) = Turn::take(exact) else {
        select(told, ended).await;
        return;
    };
    let mut has_worked = write_one(exact).await;
    while reclaim::reclaim_one(exact).await {
        has_worked = true;
    }
    drop(turn);
    if !has_worked {
        told.await;
    }
}

impl Exact {
    /// Whether background tasks write and reclaim: where callers do, too, once the cache is stopping.
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
