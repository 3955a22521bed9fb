//! The request paths: how reads and writes use memory and flash.
//!
//! ```text
//!   lookup ──> DRAM tier ──hit──> view
//!      │ miss: index probe ──absent──> miss
//!      ▼ present
//!   FlashRead: make or share the read ──> placement.get ──> promote to the DRAM tier
//!
//!   modify ──> DRAM tier (an item on flash is read into it first) ──> put │ amend │ remove
//!                 └─> version, then the flash copy is invalidated, all under the partition's lock
//! ```
//!
//! A partition's lock is held for memory operations only. An operation that has to wait, for a flash read or for space,
//! releases the lock and starts over, so that every change is made against the state it was decided on. Nothing here
//! knows memcached: the meaning of `append` or `mg` is the server's business.

mod loans;
mod modify;
mod read;
mod stall;
mod stats;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::Journal as Log;
use runtime::work::{self, Work};

pub use loans::Loans;
pub use modify::{Amend, CacheError, Change, Modified, Put};
use modify::{Attempt, Fetched, Held, Refused};
pub use read::{FlashRead, ItemView, Lookup, Owner, Peek, SharedValue};
use read::{copy_from_memory, expiry_by_clock, mark_fetched};
use stall::Stall;
pub use stats::EngineStats;

use crate::admission::Features;
use crate::background::{Background, CheckpointStats, Stop, SyncError};
use crate::config::EngineConfig;
use crate::counter::{Count as _, NamedStats};
use crate::dram::{LargeClaim, LogPosition, TierStats};
use crate::durability::find::check_journal;
use crate::durability::journal::{Journal, JournalError};
use crate::durability::{Distrust, RecoveryStats, Start};
use crate::flash::{BackgroundTask, DumpCursor, FlashStats, background_tasks};
use crate::format::item::{ItemRef, state};
use crate::in_flight::ReadOutcome;
use crate::key::Key;
use crate::partition::PathStats;
use crate::placement::{IndexStats, Placement};
use crate::store::{FlashItem, SegmentStore};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tiers::{LargeHand, Tiers};

/// Maximum flash reads of one operation. Each read after the first means that another request has changed the item in
/// between; no number of clients reaches this limit.
const MAX_READS: usize = 100_000;
/// Seconds after which further refused writes are told of.
const REFUSALS_TOLD_AFTER: u64 = 60;

/// The cache. Shared by all threads.
pub struct Engine {
    pub(crate) tiers: Arc<Tiers>,
    config: EngineConfig,
    start: Start,
    background: Background,
    loans: Loans,
    /// Number of times that a write stalled on flash.
    write_stalls: AtomicU64,
    /// Segments written, plus one, when a write was last refused after its patience; 0 if none was.
    refused_at: AtomicU64,
    /// Unix second at which a refusal was last told of.
    refusal_told: AtomicU64,
}

impl Engine {
    pub(crate) fn new(
        tiers: Arc<Tiers>,
        config: EngineConfig,
        start: Start,
        background: Background,
    ) -> Self {
        Self {
            loans: Loans::new(Arc::clone(&tiers), config.lendable_bytes),
            tiers,
            config,
            start,
            background,
            write_stalls: AtomicU64::new(0),
            refused_at: AtomicU64::new(0),
            refusal_told: AtomicU64::new(0),
        }
    }

    /// Returns `bytes` as a key of this cache; `None` if it is empty or longer than 250 bytes.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Option<Key<'a>> {
        self.tiers.key(bytes)
    }

    /// Looks a key up at Unix second `now`. Shows a hit in memory to `view` under the partition's lock. Returns a
    /// [`FlashRead`] if the item may be on flash; until that has been carried out, it may or may not see a write to the
    /// key.
    #[inline]
    pub fn lookup<T>(
        &self,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        view: impl FnOnce(&ItemView<'_>) -> T,
    ) -> Lookup<T> {
        let tiers = &*self.tiers;
        let mut partition = tiers.partitions.lock(key.hash(), now);
        if let Some(handle) = partition.tier.items.find(key) {
            work::count(Work::TierEntry, 1);
            let (item, shared) = partition.tier.items.item(handle);
            if tiers.cutoffs().is_item_live(key.hash(), item.header, now) {
                let owner = shared.map_or(Owner::None, Owner::Memory);
                let ahead = tiers.cutoffs().clock_ahead(item.header.version.get());
                let shown = view(&ItemView::new(item, owner).by_clock(ahead));
                if peek == Peek::No {
                    let header = partition.tier.items.header_mut(handle);
                    if !header.has(state::FETCHED) {
                        header.state |= state::FETCHED;
                    }
                    if header.clock() < tiers.clock_read {
                        header.set_clock(tiers.clock_read);
                    }
                    if header.last_access.get() != now {
                        header.last_access = now.into();
                    }
                    if tiers.counts_reads {
                        header.count_read();
                    }
                    if tiers.gate.watches(key.hash()) {
                        tiers.gate.read(key, Some(Features::of(header)));
                    }
                    partition.stats.dram_hits += 1;
                }
                return Lookup::Hit(shown);
            }
            // Dead by expiry or flush, and so is a copy on flash. A read does not wait for journal space to record
            // that.
            let expired = item
                .header
                .is_expired(tiers.cutoffs().second_of(item.header.version.get(), now));
            partition.count_dead(expired);
            if !tiers.flash.may_displace() {
                partition.stats.misses += 1;
                return Lookup::Miss;
            }
            partition.tier.items.remove(key);
            tiers.flash.invalidate(key.hash(), partition.next_version);
        }
        if peek == Peek::No {
            tiers.gate.missed(key);
        }
        match FlashRead::join(&self.tiers, &mut partition, key, now, peek, true) {
            Some(read) => Lookup::Flash(read),
            None => {
                partition.stats.misses += 1;
                Lookup::Miss
            }
        }
    }

    /// Carries out a [`FlashRead`]. Returns `None` if there is no such item or it could not be read; both count as
    /// misses.
    pub async fn read_flash(&self, key: Key<'_>, mut read: FlashRead) -> Option<Arc<FlashItem>> {
        let tiers = &self.tiers;
        loop {
            let outcome = read.outcome(key).await;
            let (now, peek) = (read.now, read.peek);
            if let ReadOutcome::Item { item, .. } = &outcome
                && read.first.is_some()
            {
                // The hit was counted when the read ended.
                return Some(Arc::clone(item));
            }
            let mut partition = tiers.partitions.lock(key.hash(), now);
            match outcome {
                // In-flight reads are found by hash: a request for another key with the same hash reads for itself. So
                // does a request that finds the item expired since the read began.
                ReadOutcome::Item { item, kept }
                    if item.item().key == key.bytes()
                        && tiers.cutoffs().is_item_live(key.hash(), item.header(), now) =>
                {
                    partition.stats.flash_hits += 1;
                    if kept && peek == Peek::No {
                        mark_fetched(&mut partition, key, now);
                    }
                    return Some(item);
                }
                // Written during the read: the new item is in memory.
                _ if let Some(item) = copy_from_memory(tiers, &partition, key, now) => {
                    partition.stats.dram_hits += 1;
                    return Some(Arc::new(item));
                }
                ReadOutcome::Failed | ReadOutcome::Busy | ReadOutcome::GivenUp => {
                    partition.stats.misses += 1;
                    partition.stats.flash_misses += 1;
                    partition.stats.failed_reads += 1;
                    return None;
                }
                ReadOutcome::Item { .. } | ReadOutcome::Abandoned | ReadOutcome::Crowded
                    if let Some(again) =
                        FlashRead::join(tiers, &mut partition, key, now, peek, true) =>
                {
                    read = again;
                }
                _ => {
                    partition.stats.misses += 1;
                    partition.stats.flash_misses += 1;
                    return None;
                }
            }
        }
    }

    /// Completes when a request waits for memory to read an item. A caller that holds [started](FlashRead::start) reads
    /// and waits for something else must drop them then, or two such callers would wait for each other.
    pub async fn read_memory_wanted(&self) {
        self.store().reader().read_memory_wanted().await;
    }

    /// Changes the item of `key` as `decide` says, at Unix second `now`.
    ///
    /// `decide` sees the live item, or `None`, and returns the change with a result of its own. If the change has to
    /// wait for space, `decide` is called again; only its last call counts. An item on flash is read into memory first.
    ///
    /// # Errors
    /// [`CacheError`]; the old item is then gone, unless flash refuses all changes for longer than
    /// [`write_patience`](EngineConfig::write_patience), or has not answered its read for so long. Then a removal that `decide`
    /// makes without an item is made.
    pub async fn modify<'v, R>(
        &self,
        key: Key<'_>,
        now: u32,
        mut decide: impl FnMut(Option<&ItemView<'_>>) -> (Change<'v>, R),
    ) -> Result<Modified<R>, CacheError> {
        let mut fetched = None;
        let mut reads = 0;
        let mut stall = self.new_stall();
        let mut claim = LargeClaim::new(self.tiers.shares.large());
        loop {
            let fetched_before = fetched.as_ref();
            match Attempt::make(
                &self.tiers,
                key,
                now,
                fetched_before,
                &mut claim,
                &mut decide,
            ) {
                Attempt::Done(done) => return done,
                Attempt::Unclaimed(bytes) => {
                    LargeHand::new(&self.tiers, now).extend(&mut claim, bytes);
                }
                Attempt::NoSpace if stall.is_too_long() => {
                    self.note_refusal();
                    return Err(self.refuse(key, now));
                }
                Attempt::NoSpace => {
                    if stall.is_next_to_wait() {
                        // The next stall waits: frees the item's memory before.
                        drop(fetched.take());
                    }
                    claim.reset();
                    self.stall(&mut stall).await;
                }
                Attempt::OnFlash(_) if reads == MAX_READS => return Err(self.refuse(key, now)),
                Attempt::OnFlash(read) => {
                    reads += 1;
                    // Frees the item's memory, since the next read may wait for memory as well.
                    drop(fetched.take());
                    stall.begin();
                    let removes = || matches!(decide(None).0, Change::Remove);
                    fetched = Fetched::read(&self.tiers, key, read, now, removes).await?;
                    if fetched.as_ref().is_some_and(Fetched::is_long) {
                        Box::pin(work::make_way()).await;
                    }
                }
            }
        }
    }

    /// Stores an item, whether or not the key has one.
    ///
    /// # Errors
    /// [`CacheError`]; the old item is then gone, unless flash refuses all changes for longer than
    /// [`write_patience`](EngineConfig::write_patience).
    pub async fn set(&self, key: Key<'_>, now: u32, put: &Put<'_>) -> Result<u64, CacheError> {
        let mut stall = self.new_stall();
        loop {
            if let Some(done) = self.try_set(key, now, put) {
                return done;
            }
            if stall.is_too_long() {
                self.note_refusal();
                return Err(self.refuse(key, now));
            }
            self.stall(&mut stall).await;
        }
    }

    /// Refuses a write to a key that has found no space, and removes the old item if the journal has space for that.
    fn refuse(&self, key: Key<'_>, now: u32) -> CacheError {
        let _ = self.try_remove(key, now);
        CacheError::OutOfMemory
    }

    /// Stores an item, whether or not the key has one, without waiting. Returns `None`, and changes nothing, if there
    /// is no space at present.
    pub fn try_set(
        &self,
        key: Key<'_>,
        now: u32,
        put: &Put<'_>,
    ) -> Option<Result<u64, CacheError>> {
        if !self.tiers.flash.may_displace() {
            return None;
        }
        let mut claim = LargeClaim::new(self.tiers.shares.large());
        loop {
            let stored = Held::lock(&self.tiers, key, now).put(put, &mut claim);
            match stored {
                Ok(cas_unique) => return Some(Ok(cas_unique)),
                Err(Refused::Never(error)) => return Some(Err(error)),
                Err(Refused::NoSpace) => return None,
                Err(Refused::Unclaimed(bytes)) => {
                    LargeHand::new(&self.tiers, now).extend(&mut claim, bytes);
                }
            }
        }
    }

    /// Removes the item of a key, in memory and on flash. Waits while the journal has no space.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`] after [`write_patience`](EngineConfig::write_patience); the item is still there.
    pub async fn remove(&self, key: Key<'_>, now: u32) -> Result<(), CacheError> {
        let mut stall = self.new_stall();
        while !self.try_remove(key, now) {
            if stall.is_too_long() {
                self.note_refusal();
                return Err(CacheError::OutOfMemory);
            }
            self.stall(&mut stall).await;
        }
        Ok(())
    }

    /// [`remove`](Engine::remove) without waiting. Returns false, and changes nothing, if the journal has no space at
    /// present.
    #[must_use]
    pub fn try_remove(&self, key: Key<'_>, now: u32) -> bool {
        let has_space = self.tiers.flash.may_displace();
        if has_space {
            Held::lock(&self.tiers, key, now).erase();
        }
        has_space
    }

    /// Makes everything stored before Unix second `deadline` dead from that second on. Waits while the journal has no
    /// space.
    pub async fn flush_all(&self, deadline: u32) {
        let mut stall = Stall::new(self.config.write_patience);
        while !self.tiers.partitions.try_flush_all(deadline) {
            self.stall(&mut stall).await;
        }
    }

    /// Makes everything stored before Unix second `second` dead, and nothing stored since: for a time that has passed. Items
    /// stored up to a quarter of that time earlier may stay, and so do items of earlier runs if `second` is before the
    /// start. Replaces a [`flush_all`](Engine::flush_all) whose time has not come. Waits while the journal has no space.
    pub async fn flush_older(&self, second: u32) {
        let mut stall = Stall::new(self.config.write_patience);
        while !self.tiers.partitions.try_flush_older(second) {
            self.stall(&mut stall).await;
        }
    }

    /// Returns the wait of a write. Once a write has waited in vain for a device that refuses, none waits until a segment is written.
    fn new_stall(&self) -> Stall {
        let refused_at = self.refused_at.load(Ordering::Relaxed);
        if refused_at > 0 && refused_at == self.segments_written() + 1 {
            return Stall::new(Duration::ZERO);
        }
        if refused_at > 0 {
            self.refused_at.store(0, Ordering::Relaxed);
        }
        Stall::new(self.config.write_patience)
    }

    /// Notes that a write has waited in vain. While the device refuses segments, which is told elsewhere, further ones do not
    /// wait; a slow one may have space later.
    fn note_refusal(&self) {
        if self.store().writer().is_refused() {
            let written = self.segments_written();
            self.refused_at.store(written + 1, Ordering::Relaxed);
            return;
        }
        let second = u64::from(runtime::unix_seconds());
        let told = self.refusal_told.load(Ordering::Relaxed);
        if second >= told + REFUSALS_TOLD_AFTER {
            self.refusal_told.store(second, Ordering::Relaxed);
            tracing::warn!(
                "a write has found no space within write_patience and is refused: the drive does not answer or is too slow, \
                 or its file system is frozen; told once a minute"
            );
        }
    }

    fn segments_written(&self) -> u64 {
        self.store().counters().segments_written.get()
    }

    async fn stall(&self, stall: &mut Stall) {
        stall.wait(&self.tiers.flash, &self.write_stalls).await;
    }

    /// Returns the memory that is lent to a user outside the cache.
    pub fn loans(&self) -> &Loans {
        &self.loans
    }

    /// Returns the segment store, for statistics.
    pub fn store(&self) -> &SegmentStore {
        self.tiers.flash.store()
    }

    /// Returns the placement.
    pub fn placement(&self) -> &dyn Placement {
        self.tiers.flash.placement()
    }

    /// Returns the statistics of the index.
    pub fn index_stats(&self) -> IndexStats {
        IndexStats::of(self.tiers.flash.placement())
    }

    /// Returns the statistics of an admission that learns; none for another.
    pub fn learner_stats(&self) -> NamedStats {
        self.tiers.gate.learned()
    }

    /// Returns the counters of the flash tier alone, without taking a partition's lock.
    pub fn flash_stats(&self) -> FlashStats {
        self.tiers.flash.upkeep.stats()
    }

    /// Returns the progress of recovery.
    pub fn recovery(&self) -> RecoveryStats {
        self.tiers.flash.recovery()
    }

    /// Returns the journal, for statistics.
    pub fn journal(&self) -> &Journal {
        self.tiers.journal()
    }

    /// Returns the settings.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns all counters, added up.
    ///
    /// Items made dead by a flush are not counted, though they may still take space. Expired items are counted until
    /// the crawler finds them in memory, which takes seconds, or reclaim finds them on flash. The number of items on
    /// flash is off by a few; their bytes are estimated from the average item of their segment. An item whose flash
    /// copy was reclaimed while memory kept it is not counted again before its next write to flash.
    pub fn stats(&self) -> EngineStats {
        EngineStats::of(&self.tiers, self.write_stalls.load(Ordering::Relaxed))
    }

    /// Resets the counters of the request paths and of the DRAM tier to zero.
    pub fn reset_stats(&self) {
        for mut partition in self.tiers.partitions.each() {
            partition.stats = PathStats::default();
            partition.tier.items.stats = TierStats::default();
        }
        self.write_stalls.store(0, Ordering::Relaxed);
    }

    /// Visits live items in memory, one partition at a time, from the cursor on until `visit` breaks. Returns false
    /// once all items have been visited. An item that moves during the dump may be visited twice.
    pub fn dump_memory(
        &self,
        cursor: &mut MemoryCursor,
        mut visit: impl FnMut(ItemRef<'_>) -> ControlFlow<()>,
    ) -> bool {
        if cursor.partition >= self.tiers.partitions.len() {
            return false;
        }
        let now = runtime::unix_seconds();
        let guard = self.tiers.partitions.lock_number(cursor.partition, now);
        let cutoff = self.tiers.cutoffs().cutoff(cursor.partition);
        // Items appended later, or appended again, are not visited.
        let end = *cursor.end.get_or_insert_with(|| guard.tier.items.end());
        for (behind, item) in guard.tier.items.items_from(cursor.at) {
            if behind > end {
                break;
            }
            cursor.at = behind;
            let version = item.header.version.get();
            if !item
                .header
                .is_expired(self.tiers.cutoffs().second_of(version, now))
                && version >= cutoff
                && self.visit_by_clock(item, &mut visit).is_break()
            {
                return true;
            }
        }
        *cursor = MemoryCursor {
            partition: cursor.partition + 1,
            ..MemoryCursor::default()
        };
        true
    }

    /// Visits live items of one more segment that have no newer copy in memory, until `visit` breaks. Returns false
    /// once all segments have been visited.
    pub async fn dump_flash(
        &self,
        cursor: &mut DumpCursor,
        mut visit: impl FnMut(ItemRef<'_>) -> ControlFlow<()>,
    ) -> bool {
        let now = runtime::unix_seconds();
        cursor
            .visit(&self.tiers.flash, &mut |found| {
                let Some(key) = self.key(found.item.key) else {
                    return ControlFlow::Continue(());
                };
                let in_memory = self
                    .tiers
                    .partitions
                    .lock(found.hash, now)
                    .tier
                    .items
                    .find(key)
                    .is_some();
                if in_memory {
                    return ControlFlow::Continue(());
                }
                self.visit_by_clock(found.item, &mut visit)
            })
            .await
    }

    /// Visits an item with the expiry by this run's clock.
    fn visit_by_clock(
        &self,
        item: ItemRef<'_>,
        visit: &mut impl FnMut(ItemRef<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut header = *item.header;
        let ahead = self.tiers.cutoffs().clock_ahead(header.version.get());
        header.expiry = expiry_by_clock(header.expiry.get(), ahead).into();
        visit(ItemRef {
            header: &header,
            ..item
        })
    }

    /// Returns how the cache started.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Resolves once all live items of the last run are found again. Until then a read may miss an item that flash has.
    pub async fn recovered(&self) {
        self.tiers.flash.recovered().await;
    }

    /// Starts the background work, which runs until [`stop`](Engine::stop). `spawn` starts each task on some worker.
    /// The engine writes nothing to flash before.
    pub fn start_background(self: &Arc<Self>, mut spawn: impl FnMut(BackgroundTask)) {
        for task in background_tasks(&self.tiers.flash) {
            spawn(task);
        }
        spawn(task(self, |engine| async move {
            engine.background.journal_syncs.run().await;
        }));
        spawn(task(self, |engine| async move {
            engine.background.checkpoints.run().await;
        }));
        spawn(task(self, |engine| async move {
            engine.background.crawl.run().await;
        }));
        spawn(task(self, |engine| async move {
            engine.background.write_back.run().await;
        }));
        spawn(task(self, |engine| async move {
            engine.background.wake_stalled().await;
        }));
        if self.tiers.gate.next_lesson().is_some() {
            spawn(task(self, |engine| async move {
                engine.background.learn().await;
            }));
        }
    }

    /// Makes every write acknowledged so far durable, including items in memory alone: a crash after this loses none.
    /// Requests go on during the sync. Needs the background tasks, and may take as long as an orderly stop.
    ///
    /// # Errors
    /// [`SyncError`]: a crash may lose some of the items.
    pub async fn sync(&self) -> Result<(), SyncError> {
        let Background {
            write_back, phase, ..
        } = &self.background;
        let served = write_back.requests.served(phase);
        let outcome = runtime::timeout(self.config.stop_deadline, served).await;
        match outcome {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(SyncError::Refused),
            Ok(None) => Err(SyncError::Stopping),
            Err(_) => Err(SyncError::Slow),
        }
    }

    /// Has the background task write a checkpoint now: a caller that stops waiting leaves no half-written one. Returns
    /// false if it cannot be written, or the cache is being stopped.
    pub async fn checkpoint_now(&self) -> bool {
        let Background {
            checkpoints, phase, ..
        } = &self.background;
        checkpoints.requests.served(phase).await == Some(true)
    }

    /// Returns the counters of checkpoints and syncs.
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.background.checkpoints.counters.read()
    }

    /// Stops orderly: makes everything durable, memory included, within the configured deadline. A write acknowledged
    /// during the stop is at worst a miss after the next start.
    pub async fn stop(&self) -> Stop {
        self.background.stop.run().await
    }

    /// Checks whether a start would trust `log`, once the cache has stopped.
    ///
    /// # Errors
    /// The error with which the start would be refused, or the reason for which it would be empty.
    pub fn check_journal(&self, log: &dyn Log) -> Result<Result<(), Distrust>, JournalError> {
        check_journal(log, &self.background.superblock.current())
    }
}

/// Returns a background task that works on the engine.
fn task<F, W>(engine: &Arc<Engine>, work: W) -> BackgroundTask
where
    F: Future<Output = ()> + 'static,
    W: FnOnce(Arc<Engine>) -> F + Send + 'static,
{
    let engine = Arc::clone(engine);
    Box::new(move || Box::pin(work(engine)))
}

/// Position of a dump of memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryCursor {
    partition: usize,
    at: LogPosition,
    /// Position behind the last item that the partition had when the dump reached it.
    end: Option<LogPosition>,
}
