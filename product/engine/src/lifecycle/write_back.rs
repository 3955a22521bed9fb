//! Write-back: items that have been in memory alone for a while are placed on flash and stay in memory, clean.
//!
//! ```text
//!   a round, STEPS of them in a window:
//!      partition 0 │ partition 1 │ … │ last │ flush the segments being filled, sync
//!          └─ older than AGE rounds? place │ note the next version
//! ```
//!
//! No item's age is stored. Versions rise in each partition, so that all items stored before some moment have versions
//! below the next version at that moment. Each visit of a partition notes the next version, and places the items below
//! the version noted `AGE` visits ago: they are `AGE` to `AGE` + 1 rounds old, and on flash one round later. The age of
//! an item that is stored again starts anew.
//!
//! Visits are spread over the round. The lock is released between two chunks of the log. As long as a sealed segment
//! waits to be written the walk waits too, until its next visit is due: evictions go first. Once a window, if segments
//! have been reclaimed, items whose flash copies were lost with them are placed again.
//!
//! After a crash, flushed items are found again. If the device refuses a write, items stay dirty, or leave the index
//! with their segment; a later visit finds both.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use runtime::Instant;
use runtime::sync::EventListener;

use crate::cache::{Engine, Requests, SyncError};
use crate::counter::Count as _;
use crate::dram::{Due, NoSpace, Walked};
use crate::store::Unflushed;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Rounds in a write-back window.
const STEPS: u32 = 8;
/// Rounds after which an item is placed. The remaining rounds are for the walk, the flush and a slow device.
const AGE: usize = 5;
/// Items whose copies were reclaimed are placed again only if flash and index hold this many times as much as memory.
const LARGE_FLASH: u64 = 2;
/// Rounds of placing everything, if segments could not be written.
const MAX_ROUNDS: usize = 3;

/// State of the walk.
struct Walk {
    /// For each partition, its next version at each of the last visits.
    marks: Vec<[u64; AGE]>,
    round: usize,
    partition: usize,
    /// When the next visit is due; `None` without a write-back window.
    next: Option<Instant>,
    pause: Duration,
    /// Number of segments reclaimed and items lost when lost copies were last looked for.
    gone_seen: u64,
    /// Whether this round also places clean items whose copies are gone.
    unplaced: bool,
    /// Bytes that had been written to the flash at the last sync.
    synced: u64,
}

impl Walk {
    fn new(engine: &Engine) -> Self {
        let partitions = engine.partitions.len();
        let window = engine.config.write_back;
        Self {
            marks: vec![[0; AGE]; partitions],
            round: 0,
            partition: 0,
            next: window.map(|_| runtime::now()),
            pause: window.unwrap_or_default() / STEPS / partitions as u32,
            gone_seen: 0,
            unplaced: false,
            synced: 0,
        }
    }

    /// Returns which items of the current partition are due, and notes the partition's next version.
    fn turn(&mut self, next_version: u64) -> Due {
        let mark = &mut self.marks[self.partition][self.round % AGE];
        Due {
            below: std::mem::replace(mark, next_version),
            unplaced: self.unplaced,
            admitted: true,
        }
    }
}

impl Engine {
    /// Makes every write acknowledged so far durable, including items in memory alone: a crash after this loses none.
    /// Requests go on during the sync. Needs the background tasks, and may take as long as an orderly stop.
    ///
    /// # Errors
    /// [`SyncError`]: a crash may lose some of the items.
    pub async fn sync(&self) -> Result<(), SyncError> {
        let outcome = runtime::timeout(self.config.stop_deadline, self.served(&self.syncs)).await;
        match outcome {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(SyncError::Refused),
            Ok(None) => Err(SyncError::Stopping),
            Err(_) => Err(SyncError::Slow),
        }
    }

    /// Makes a request and waits for its answer: whether it was carried out. Returns `None` once the cache is being
    /// stopped.
    pub(super) async fn served(&self, requests: &Requests) -> Option<bool> {
        let number = requests.ask();
        loop {
            let done = requests.done.listener();
            let stopping = self.persistence.stopping.listener();
            if let Some(outcome) = requests.outcome(number) {
                return Some(outcome);
            }
            if self.is_stopped() {
                return None;
            }
            select(done, stopping).await;
        }
    }

    /// Writes back until an orderly stop, and serves [`sync`](Engine::sync).
    pub(super) async fn write_back(self: Arc<Self>) {
        self.flash.recovered().await;
        let mut walk = Walk::new(&self);
        loop {
            let asked = self.syncs.come.listener();
            let stopping = self.persistence.stopping.listener();
            if self.is_stopped() {
                return;
            }
            if let Some(last) = self.syncs.waiting() {
                let is_durable = self.place_everything().await;
                self.syncs.serve(last, is_durable);
                continue;
            }
            let woken = select(asked, stopping);
            let Some(next) = walk.next else {
                woken.await;
                continue;
            };
            let left = next.since(runtime::now());
            if !left.is_zero() && runtime::timeout(left, woken).await.is_ok() {
                continue;
            }
            self.visit(&mut walk).await;
        }
    }

    /// Visits the next partition. Ends the round behind the last one.
    async fn visit(&self, walk: &mut Walk) {
        let now = runtime::now();
        // Missed visits are not made up for.
        let on_time = walk.next.unwrap_or(now) + walk.pause;
        walk.next = Some(on_time.max(now));
        let number = walk.partition;
        let due = walk.turn(self.partitions[number].0.lock().next_version);
        let mut walked = Walked::default();
        // While a write limit holds writes back, the flash is for items that leave memory.
        while !self.flash.is_held_back() {
            let space = self.flash.space().listener();
            match self.clean_chunk(number, &mut walked, &due) {
                Ok(true) => self.let_writers_catch_up(walk.pause).await,
                Ok(false) => break,
                // The remaining items are due at the next visit.
                Err(NoSpace) if runtime::timeout(walk.pause, space).await.is_err() => break,
                Err(NoSpace) => {}
            }
        }
        walk.partition += 1;
        if walk.partition == self.partitions.len() {
            walk.partition = 0;
            walk.round += 1;
            self.end_round(walk).await;
        }
    }

    /// Writes the items placed in this round to flash, and syncs.
    async fn end_round(&self, walk: &mut Walk) {
        let is_last = walk.round.is_multiple_of(STEPS as usize);
        if !self.store().flusher().can_flush() && is_last {
            self.store().appender().flush();
        }
        // The error of one segment does not concern the other segments.
        let _ = self.flash.upkeep.flush_filling(Unflushed::Items).await;
        let written = self.store().counters().bytes_written.get();
        let is_due = written != walk.synced || self.store().table().is_in_doubt();
        if is_due && self.flash.sync_all().await.is_ok() {
            walk.synced = written;
        }
        let stats = self.flash.upkeep.stats();
        let gone = stats.segments_reclaimed + stats.items_lost;
        walk.unplaced = is_last && gone != walk.gone_seen && self.may_place_again();
        if walk.unplaced {
            walk.gone_seen = gone;
        }
    }

    /// Returns whether lost copies may be placed again: the index knows for each item whether flash has it, and flash
    /// and index are large enough for another copy of everything in memory.
    fn may_place_again(&self) -> bool {
        let store = self.store();
        let flash_bytes =
            u64::from(store.table().segments()) * u64::from(store.table().segment_bytes());
        let partitions = self.partitions.iter();
        let items = partitions.map(|partition| partition.0.lock().tier.in_use().items);
        let upkeep = &self.flash.upkeep;
        upkeep.is_located()
            && flash_bytes >= LARGE_FLASH * self.config.memory_bytes
            && upkeep.index_use.holds(LARGE_FLASH * items.sum::<u64>())
    }

    /// Places the due items of the next chunk of a partition that has any. Returns false behind the last chunk, and
    /// once the cache is being stopped.
    fn clean_chunk(&self, number: usize, walked: &mut Walked, due: &Due) -> Result<bool, NoSpace> {
        if self.is_stopped() {
            return Ok(false);
        }
        let now = runtime::unix_seconds();
        let mut partition = self.lock_partition(number, now);
        let context = self.evict_context(number, now);
        partition.tier.clean_chunk(walked, due, &context)
    }

    /// Yields, and waits until no sealed segment waits to be written, but not longer than `patience`.
    async fn let_writers_catch_up(&self, patience: Duration) {
        runtime::yield_now().await;
        let written = async {
            loop {
                let progress = self.flash.upkeep.progress.listener();
                if self.store().pool().counts().sealed == 0 {
                    return;
                }
                progress.await;
            }
        };
        // After the timeout the walk goes on: the window matters more than the order.
        let _ = runtime::timeout(patience, written).await;
    }

    /// Places and writes every item that only memory has, and syncs. Returns false if that is not possible.
    async fn place_everything(&self) -> bool {
        let mut returning = None;
        for round in 0..MAX_ROUNDS {
            if round > 0 {
                returning.get_or_insert_with(|| self.return_nothing());
            }
            let before = self.back_in_memory();
            let mut are_all_placed = true;
            for number in 0..self.partitions.len() {
                match self.place_partition(number).await {
                    Some(is_placed) => are_all_placed &= is_placed,
                    None => return false,
                }
            }
            if !self.write_placed(false).await {
                return false;
            }
            if are_all_placed && self.back_in_memory() == before {
                return self.sync_now().await && !self.journal.is_void();
            }
        }
        false
    }

    /// Makes reclaim drop items instead of returning them to memory, until the result is dropped. Otherwise memory may
    /// never be all on flash: reclaim makes space for its items by returning other items that have been read.
    pub(super) fn return_nothing(&self) -> ReturnNothing<'_> {
        self.returning_nothing.fetch_add(1, Ordering::Relaxed);
        ReturnNothing(&self.returning_nothing)
    }

    /// Places all items of a partition that flash does not have. Returns false if a full index has refused some, and
    /// `None` once the cache is being stopped.
    async fn place_partition(&self, number: usize) -> Option<bool> {
        let mut walked = Walked::default();
        loop {
            let space = self.flash.space().listener();
            match self.clean_chunk(number, &mut walked, &Due::ALL) {
                Ok(true) => runtime::yield_now().await,
                Ok(false) => return (!self.is_stopped()).then_some(!walked.has_refused),
                Err(NoSpace) => {
                    self.flash.ask_for_space().await;
                    self.unless_stopping(space).await;
                }
            }
        }
    }

    /// Writes and syncs everything placed so far. Gives up when a stop begins, unless it `goes_on`.
    pub(super) async fn write_placed(&self, goes_on: bool) -> bool {
        let upkeep = &self.flash.upkeep;
        if !self.store().flusher().can_flush() {
            self.store().appender().flush();
        }
        let before = self
            .store()
            .appender()
            .next_sequence()
            .load(Ordering::Acquire);
        let failed_syncs = self.store().syncs().failed_syncs();
        if upkeep.flush_filling(Unflushed::Items).await.is_err() {
            // A segment that cannot be flushed is written like any other segment, or its items are moved.
            self.store().appender().flush();
        }
        let is_given_up = || !goes_on && self.is_stopped();
        upkeep.writes_all(true);
        loop {
            let progress = upkeep.progress.listener();
            if is_given_up() || !self.store().buffers().has_sealed_before(before) {
                break;
            }
            if goes_on {
                progress.await;
            } else {
                self.unless_stopping(progress).await;
            }
        }
        upkeep.writes_all(false);
        // A sync that has failed in between puts the segments written here in doubt.
        !is_given_up()
            && self.flash.sync_all().await.is_ok()
            && self.store().syncs().failed_syncs() == failed_syncs
    }

    async fn unless_stopping(&self, event: EventListener) {
        let stopping = self.persistence.stopping.listener();
        if !self.is_stopped() {
            select(event, stopping).await;
        }
    }
}

/// Guard during which reclaim [returns nothing](Engine::return_nothing) to memory.
pub(super) struct ReturnNothing<'e>(&'e AtomicUsize);

impl Drop for ReturnNothing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
