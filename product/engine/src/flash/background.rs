//! Background work of the flash tier.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{FlashTier, recover};
use crate::durability::recovery::RECOVERY_TASKS;
use crate::placement::BackgroundTask;
use crate::sync::atomic::Ordering;

/// Bytes of superseded keys from which a sync, after which most of them can be forgotten, is worth its time.
const SUPERSEDED_BYTES: u64 = 256 << 10;

/// Creates `count` tasks that do the same work on one tier.
fn tasks<F, W>(tier: &Arc<FlashTier>, count: usize, work: W) -> impl Iterator<Item = BackgroundTask>
where
    F: Future<Output = ()> + 'static,
    W: Fn(Arc<FlashTier>) -> F + Copy + Send + 'static,
{
    (0..count).map(move |_| -> BackgroundTask {
        let tier = Arc::clone(tier);
        Box::new(move || -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(work(tier)) })
    })
}

/// Returns the tasks that write, reclaim and recover until [`end`](crate::reclaim::Upkeep::end). Each runs on some worker.
pub(crate) fn background_tasks(tier: &Arc<FlashTier>) -> Vec<BackgroundTask> {
    let reclaimers = tier.reclaimer.reclaimers as usize;
    let on_demand = if tier.upkeep.works_in_background() {
        0
    } else {
        reclaimers
    };
    tasks(tier, reclaimers, |tier| async move {
        tier.reclaimer.keep_free(&*tier.placement).await;
    })
    .chain(tasks(tier, tier.writing.writers, |tier| async move {
        write_sealed(&tier).await;
    }))
    .chain(tasks(tier, on_demand, |tier| async move {
        work_on_demand(&tier).await;
    }))
    .chain(tasks(tier, recovery_tasks(tier), |tier| async move {
        recover::read_segments(&tier).await;
    }))
    .chain(Arc::clone(&tier.placement).background())
    .collect()
}

/// Returns the number of recovery tasks. If versions alone decide, one task reads the segments in order: an
/// unreadable segment takes all older ones with it, which must not have been read yet.
fn recovery_tasks(tier: &FlashTier) -> usize {
    if tier.upkeep.dead_copies.are_located() {
        RECOVERY_TASKS
    } else {
        1
    }
}

async fn write_sealed(tier: &FlashTier) {
    let (upkeep, writing) = (&tier.upkeep, &tier.writing);
    loop {
        let work = upkeep.store.pool().work().listener();
        if upkeep.is_ended.load(Ordering::Acquire) {
            return;
        }
        let has_written = writing.writes_now() && writing.write_one(&*tier.placement).await;
        if has_written && tier.superseded_bytes() > SUPERSEDED_BYTES {
            // A failure is told, and mended, by those whose writes it concerns.
            let _ = tier.sync().await;
        }
        if !has_written && !tier.reclaimer.copies.write_ahead(&*tier.placement).await {
            work.await;
        }
    }
}

/// For each caller that has found no space, and while a checkpoint finds none, writes a segment and reclaims as
/// many as are missing. Ends when background tasks take over.
async fn work_on_demand(tier: &FlashTier) {
    let (upkeep, writing) = (&tier.upkeep, &tier.writing);
    loop {
        let work = upkeep.store.pool().work().listener();
        if upkeep.works_in_background() || upkeep.is_ended.load(Ordering::Acquire) {
            upkeep.end_rounds();
            return;
        }
        let asked = upkeep.next_round();
        if asked.is_none() && !upkeep.store.pool().is_checkpoint_waiting() {
            work.await;
            continue;
        }
        writing.write_one(&*tier.placement).await;
        while tier.reclaimer.reclaim_one(&*tier.placement).await
            // The next segment in order may only have been sealed.
            || !upkeep.dead_copies.are_located() && writing.write_one(&*tier.placement).await
        {
        }
        match asked {
            Some(done) => done.send(()),
            // If this was not enough, the checkpoint asks again.
            None => work.await,
        }
    }
}
