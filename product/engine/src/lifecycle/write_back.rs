//! Write-back: what has been in memory alone for a while is placed on flash and stays in memory, clean.
//!
//! ```text
//!   a round, STEPS of them in a window:
//!      partition 0 │ partition 1 │ … │ last │ flush what is being filled, sync
//!          └─ older than AGE rounds? place │ note the version that comes next
//! ```
//!
//! Nothing is kept of an item's age: versions rise in each partition, so that what was stored before some moment are
//! the versions below the one that came next then. Each visit of a partition notes that version, and places what is
//! below the one noted `AGE` visits ago: it is `AGE` to `AGE` + 1 rounds old, and on flash a round later. An item that
//! is stored again begins anew.
//!
//! Visits are spread over the round. Between two chunks of the log the lock is free, and as long as a sealed segment
//! waits to be written the walk waits too, up to the time of its next visit: evictions go first. Once a window, where
//! segments have gone meanwhile, items are placed again whose copies went with them.
//!
//! A crash leaves what was flushed. A device that refuses keeps items dirty, or takes them out of the index with their
//! segment: both are found by a later visit.

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
/// Rounds after which an item is placed: the last ones are for the walk, for the flush and for a slow device.
const AGE: usize = 5;
/// A flash, and an index, that hold so many times what memory does are large enough to have it copied to them again and
/// again as segments are reclaimed.
const LARGE_FLASH: u64 = 2;
/// Times that everything is placed again when segments could not be written.
const MAX_ROUNDS: usize = 3;

/// Where the walk is.
struct Walk {
    /// Of each partition the versions that came next at the last visits.
    marks: Vec<[u64; AGE]>,
    round: usize,
    partition: usize,
    /// When the next visit is due; never where there is no window.
    next: Option<Instant>,
    pause: Duration,
    /// Segments gone when items were last looked for whose copies are gone.
    gone_seen: u64,
    /// Whether this round looks for them.
    unplaced: bool,
    /// Bytes written to the flash when it was last synced.
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

    /// What is due of the partition whose turn it is, and its next version is noted.
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
    /// Makes everything durable that has been acknowledged before, what only memory holds included: a crash from then
    /// on leaves it. Requests go on meanwhile. Needs the background tasks, and may take as long as an orderly stop.
    ///
    /// # Errors
    /// [`SyncError`]: some of it may be lost with a crash.
    pub async fn sync(&self) -> Result<(), SyncError> {
        let outcome = runtime::timeout(self.config.stop_deadline, self.served(&self.syncs)).await;
        match outcome {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(SyncError::Refused),
            Ok(None) => Err(SyncError::Stopping),
            Err(_) => Err(SyncError::Slow),
        }
    }

    /// Asks, and waits for what is done; `None` once the cache is being stopped.
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

    /// Visits the next partition; ends the round behind the last one.
    async fn visit(&self, walk: &mut Walk) {
        let now = runtime::now();
        // Of visits that were missed none is made up for.
        let on_time = walk.next.unwrap_or(now) + walk.pause;
        walk.next = Some(on_time.max(now));
        let number = walk.partition;
        let due = walk.turn(self.partitions[number].0.lock().next_version);
        let mut walked = Walked::default();
        // Where a limit holds writes back, they are for what leaves memory.
        while !self.flash.is_held_back() {
            let space = self.flash.space().listener();
            match self.clean_chunk(number, &mut walked, &due) {
                Ok(true) => self.let_writers_catch_up(walk.pause).await,
                Ok(false) => break,
                // What is left is due at the next visit.
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

    /// Has what was placed written.
    async fn end_round(&self, walk: &mut Walk) {
        let is_last = walk.round.is_multiple_of(STEPS as usize);
        if !self.store().can_flush() && is_last {
            self.store().flush();
        }
        // What one segment meets does not concern the others.
        let _ = self.flash.upkeep.flush_filling(Unflushed::Items).await;
        let written = self.store().counters().bytes_written.get();
        let is_due = written != walk.synced || self.store().is_in_doubt();
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

    /// Whether the index tells of each item if flash has it, and flash and index are large enough to have it once more.
    fn may_place_again(&self) -> bool {
        let store = self.store();
        let flash_bytes = u64::from(store.segments()) * u64::from(store.segment_bytes());
        let partitions = self.partitions.iter();
        let items = partitions.map(|partition| partition.0.lock().tier.in_use().items);
        let upkeep = &self.flash.upkeep;
        upkeep.is_located()
            && flash_bytes >= LARGE_FLASH * self.config.memory_bytes
            && upkeep.index_use.holds(LARGE_FLASH * items.sum::<u64>())
    }

    /// Places what is due of the next chunk of a partition in which something is; false past its last one, and once the
    /// cache is stopping.
    fn clean_chunk(&self, number: usize, walked: &mut Walked, due: &Due) -> Result<bool, NoSpace> {
        if self.is_stopped() {
            return Ok(false);
        }
        let now = runtime::unix_seconds();
        let mut partition = self.lock_partition(number, now);
        let context = self.evict_context(number, now);
        partition.tier.clean_chunk(walked, due, &context)
    }

    /// Lets others go on, and what waits to be written be written, but not longer than `patience`.
    async fn let_writers_catch_up(&self, patience: Duration) {
        runtime::yield_now().await;
        let written = async {
            loop {
                let progress = self.flash.upkeep.progress.listener();
                if self.store().sealed_segments() == 0 {
                    return;
                }
                progress.await;
            }
        };
        // What is late goes on all the same: the window counts for more than the order.
        let _ = runtime::timeout(patience, written).await;
    }

    /// Places and writes everything that memory holds, and syncs it. False when that cannot be done.
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

    /// Reclaim returns nothing to memory from now on, and drops it: else what memory has is never all on flash where space is
    /// made for it by returning what has been read.
    pub(super) fn return_nothing(&self) -> ReturnNothing<'_> {
        self.returning_nothing.fetch_add(1, Ordering::Relaxed);
        ReturnNothing(&self.returning_nothing)
    }

    /// Places everything of a partition that flash does not have; false when a full index has refused some, `None` when
    /// the cache is stopped meanwhile.
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

    /// Has everything that has been placed so far written and synced. Unless it goes on during a stop, it is given up then.
    pub(super) async fn write_placed(&self, goes_on: bool) -> bool {
        let upkeep = &self.flash.upkeep;
        if !self.store().can_flush() {
            self.store().flush();
        }
        let before = self.store().next_sequence().load(Ordering::Acquire);
        let failed_syncs = self.store().failed_syncs();
        if upkeep.flush_filling(Unflushed::Items).await.is_err() {
            // What cannot be flushed is written as any other segment is, or moved.
            self.store().flush();
        }
        let is_given_up = || !goes_on && self.is_stopped();
        upkeep.writes_all(true);
        loop {
            let progress = upkeep.progress.listener();
            if is_given_up() || !self.store().has_sealed_before(before) {
                break;
            }
            if goes_on {
                progress.await;
            } else {
                self.unless_stopping(progress).await;
            }
        }
        upkeep.writes_all(false);
        // One that has failed meanwhile puts what this flush has written in doubt.
        !is_given_up()
            && self.flash.sync_all().await.is_ok()
            && self.store().failed_syncs() == failed_syncs
    }

    async fn unless_stopping(&self, event: EventListener) {
        let stopping = self.persistence.stopping.listener();
        if !self.is_stopped() {
            select(event, stopping).await;
        }
    }
}

/// For as long as reclaim [returns nothing](Engine::return_nothing).
pub(super) struct ReturnNothing<'e>(&'e AtomicUsize);

impl Drop for ReturnNothing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
