//! Background work of the flash tier, and how it ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{BackgroundTask, FlashTier, recover};
use crate::durability::recovery::RECOVERY_TASKS;
use crate::sync::atomic::Ordering;

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

impl FlashTier {
    /// Returns the tasks that write, reclaim and recover until [`end`](FlashTier::end). Each runs on some worker.
    pub(crate) fn background(self: &Arc<Self>) -> Vec<BackgroundTask> {
        let upkeep = &self.upkeep;
        let on_demand = if upkeep.works_in_background() {
            0
        } else {
            self.upkeep.reclaimers()
        };
        tasks(self, self.upkeep.reclaimers(), |tier| async move {
            tier.upkeep.keep_free(&*tier.placement).await;
        })
        .chain(tasks(self, self.upkeep.writers(), |tier| async move {
            tier.write_sealed().await;
        }))
        .chain(tasks(self, on_demand, |tier| async move {
            tier.work_on_demand().await;
        }))
        .chain(tasks(self, self.recovery_tasks(), |tier| async move {
            recover::read_segments(&tier).await;
        }))
        .chain(Arc::clone(&self.placement).background())
        .collect()
    }

    /// Returns the number of recovery tasks. If versions alone decide, one task reads the segments in order: an
    /// unreadable segment takes all older ones with it, which must not have been read yet.
    fn recovery_tasks(&self) -> usize {
        if self.upkeep.is_located() {
            RECOVERY_TASKS
        } else {
            1
        }
    }

    async fn write_sealed(&self) {
        let upkeep = &self.upkeep;
        loop {
            let work = upkeep.store.pool().work().listener();
            if upkeep.is_ended.load(Ordering::Acquire) {
                return;
            }
            let has_written = upkeep.writes_now() && upkeep.write_one(&*self.placement).await;
            if !has_written && !upkeep.write_copies_ahead(&*self.placement).await {
                work.await;
            }
        }
    }

    /// For each caller that has found no space, and while a checkpoint finds none, writes a segment and reclaims as
    /// many as are missing. Ends when background tasks take over.
    async fn work_on_demand(&self) {
        let upkeep = &self.upkeep;
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
            upkeep.write_one(&*self.placement).await;
            while upkeep.reclaim_one(&*self.placement).await
                // The next segment in order may only have been sealed.
                || !upkeep.is_located() && upkeep.write_one(&*self.placement).await
            {}
            match asked {
                Some(done) => done.send(()),
                // If this was not enough, the checkpoint asks again.
                None => work.await,
            }
        }
    }

    /// Begins a stop: from now on, and again after a [`quiesce`](FlashTier::quiesce), the segments kept for an orderly
    /// stop may be filled.
    pub(crate) fn begin_stop(&self) {
        self.upkeep.is_frozen.store(false, Ordering::SeqCst);
        self.upkeep.is_stopping.store(true, Ordering::SeqCst);
        self.store().pool().reserve_segments(0);
        self.store().appender().reopen();
    }

    /// Ends the background work. Segments whose write has not begun are never written.
    pub(crate) fn end(&self) {
        self.upkeep.is_ended.store(true, Ordering::Release);
        self.store().pool().work().notify_all();
        self.space().notify_all();
    }

    /// Stops placing items. Resolves once every item placed so far is on flash or given up, and reclaim has finished
    /// the segments it had begun. Requests that go on do not delay this; requests that need space wait.
    pub(crate) async fn drain(&self) {
        let upkeep = &self.upkeep;
        upkeep.store.appender().close();
        loop {
            let progress = upkeep.progress.listener();
            upkeep.store.appender().flush();
            if upkeep.store.appender().is_drained() && upkeep.reclaiming.load(Ordering::SeqCst) == 0
            {
                return;
            }
            progress.await;
        }
    }

    /// Drains, waits until reclaim has freed the space that the checkpoint needs, and ends reclaim: from then on
    /// neither the places in the index nor the segments change.
    pub(crate) async fn quiesce(&self) {
        let upkeep = &self.upkeep;
        loop {
            self.drain().await;
            let progress = upkeep.progress.listener();
            let store = &upkeep.store;
            if store.pool().counts().free < upkeep.free_target()
                && store.pool().counts().written > 0
            {
                upkeep.is_frozen.store(false, Ordering::SeqCst);
                store.pool().work().notify_all();
                progress.await;
                continue;
            }
            upkeep.is_frozen.store(true, Ordering::SeqCst);
            if upkeep.reclaiming.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    }
}
