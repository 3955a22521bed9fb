//! Writing sealed segments and reclaiming old ones, all the while or when a caller asks for room.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Counters, Exact, RECOVERY_TASKS, entry_location, reclaim, recover};
use crate::config::Schedule;
use crate::format::journal::Record;
use crate::format::segment::SummaryEntry;
use crate::key::KeyHash;
use crate::placement::BackgroundTask;
use crate::store::{WriteFailure, Written};

pub(super) fn tasks(exact: Arc<Exact>) -> Vec<BackgroundTask> {
    let mut tasks: Vec<BackgroundTask> = Vec::new();
    for _ in 0..exact.reclaimers {
        let exact = Arc::clone(&exact);
        tasks.push(Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { reclaim::keep_room(&exact).await })
        }));
    }
    for _ in 0..exact.writers {
        let exact = Arc::clone(&exact);
        tasks.push(Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { write_sealed(&exact).await })
        }));
    }
    if !exact.works_in_background() {
        for _ in 0..exact.writers {
            let exact = Arc::clone(&exact);
            tasks.push(Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> {
                Box::pin(async move { work_on_demand(&exact).await })
            }));
        }
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
        if exact.writes_now() && write_one(exact).await {
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
    /// Whether a sealed segment is to be written now.
    fn writes_now(&self) -> bool {
        // What is kept in memory cannot be reclaimed.
        let may_wait = !self.winding_down.load(Ordering::SeqCst)
            && self.store.free_segments() >= self.free_target();
        let spare = self.spare_buffers.filter(|_| may_wait);
        self.works_in_background() && spare.is_none_or(|spare| self.store.free_buffers() < spare)
    }

    /// Whether segments are written and reclaimed without being asked for: where they are not, they are
    /// once the cache is stopping.
    pub(super) fn works_in_background(&self) -> bool {
        self.schedule == Schedule::Background || self.winding_down.load(Ordering::SeqCst)
    }
}

/// Moves what a segment that could not be written holds to another, or forgets it.
async fn give_up(exact: &Exact, failure: WriteFailure) {
    let segment = failure.segment;
    // It may be there all the same; what it holds counts no more.
    exact.journal.append(Record::SegmentDead {
        segment: segment.0,
        life: failure.sequence,
    });
    let value_of = |entry: &SummaryEntry| {
        exact
            .codec
            .encode(entry_location(segment, entry.position.get()))
    };
    let is_moved = exact.store.move_elsewhere(
        &failure,
        |entry| exact.entry(KeyHash(entry.hash.get())) == Some(value_of(entry)),
        |entry, filled| {
            exact.move_entry(KeyHash(entry.hash.get()), value_of(entry), filled);
        },
    );
    let mut lost = 0;
    for entry in &failure.entries {
        let hash = KeyHash(entry.hash.get());
        if exact.change(hash, |shard| shard.table.remove_if(hash.0, value_of(entry))) {
            lost += 1;
        }
    }
    Counters::add(&exact.counters.items_lost, lost);
    tracing::warn!(
        segment = segment.0,
        items = failure.entries.len(),
        lost,
        error = %failure.error,
        "a segment could not be written"
    );
    if exact.store.abandon(failure, is_moved).await {
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
