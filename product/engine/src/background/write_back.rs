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

use super::journal_syncs::JournalSyncs;
use super::phase::Phase;
use super::requests::Requests;
use crate::counter::Count as _;
use crate::dram::{Due, NoSpace, Walked};
use crate::store::Unflushed;
use crate::sync::atomic::Ordering;
use crate::tiers::Tiers;

/// Rounds in a write-back window.
const STEPS: u32 = 8;
/// Rounds after which an item is placed. The remaining rounds are for the walk, the flush and a slow device.
const AGE: usize = 5;
/// Items whose copies were reclaimed are placed again only if flash and index hold this many times as much as memory.
const LARGE_FLASH: u64 = 2;
/// Rounds of placing everything, if segments could not be written.
const MAX_ROUNDS: usize = 3;
/// Shortest time between two syncs that seal segments early, because a part of a segment cannot be written.
const SYNC_PAUSE: Duration = Duration::from_secs(1);

/// State of the cache that a sync makes durable. A write, a removal, a flush and an item that is in memory alone again
/// change it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Acknowledged {
    /// Sum of the next versions of all partitions.
    versions: u64,
    records: u64,
    losses: u64,
    back_in_memory: [u64; 3],
    failed_syncs: u64,
}

/// The last sync.
#[derive(Default)]
struct LastSync {
    /// State that is durable; `None` if the sync failed.
    covered: Option<Acknowledged>,
    ended: Option<Instant>,
}

impl LastSync {
    /// Returns whether the last sync covers this state.
    fn covers(&self, state: &Acknowledged) -> bool {
        self.covered.as_ref() == Some(state)
    }

    /// Returns the time until the next sync may begin.
    fn rest(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |ended| {
            (ended + SYNC_PAUSE).since(runtime::now())
        })
    }
}

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
    fn new(partitions: usize, window: Option<Duration>) -> Self {
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

/// Places items that have been in memory alone for a while, and all items on request. Items stay in memory, clean.
pub(crate) struct WriteBack {
    pub(super) tiers: Arc<Tiers>,
    pub(super) phase: Arc<Phase>,
    pub(super) journal_syncs: Arc<JournalSyncs>,
    /// Time within which an item is on flash; `None` places items on request alone.
    pub(super) window: Option<Duration>,
    /// Bytes of memory of the whole cache.
    pub(super) memory_bytes: u64,
    pub(crate) requests: Requests,
}

impl WriteBack {
    /// Writes back until an orderly stop, and serves requests for syncs.
    pub(crate) async fn run(&self) {
        self.tiers.flash.recovered().await;
        let mut walk = Walk::new(self.tiers.partitions.len(), self.window);
        let mut last_sync = LastSync::default();
        loop {
            let asked = self.requests.come();
            let stopping = self.phase.listener();
            if self.phase.is_stopped() {
                return;
            }
            let mut rest = None;
            if let Some(last) = self.requests.waiting() {
                let left = self.rest(&last_sync);
                if left.is_zero() {
                    let is_durable = self.sync(&mut last_sync).await;
                    self.requests.serve(last, is_durable);
                    continue;
                }
                rest = Some(left);
            }
            let visit = walk.next.map(|next| next.since(runtime::now()));
            let woken = select(asked, stopping);
            match visit.into_iter().chain(rest).min() {
                None => {
                    woken.await;
                }
                Some(left) if !left.is_zero() => {
                    let _ = runtime::timeout(left, woken).await;
                }
                Some(_) => self.visit(&mut walk).await,
            }
        }
    }

    /// Returns the time that requested syncs wait for further requests to share their round. Syncs that write a part of
    /// a segment, or have nothing to write, do not wait.
    fn rest(&self, last: &LastSync) -> Duration {
        let shares = !self.tiers.store().flusher().can_flush();
        match shares && !last.covers(&self.acknowledged()) {
            true => last.rest(),
            false => Duration::ZERO,
        }
    }

    /// Makes everything durable, unless nothing has changed since the last sync. Returns whether everything is durable.
    async fn sync(&self, last: &mut LastSync) -> bool {
        let state = self.acknowledged();
        if last.covers(&state) && !self.tiers.journal().is_void() {
            return true;
        }
        let is_durable = self.place_everything().await;
        *last = LastSync {
            covered: is_durable.then_some(state),
            ended: Some(runtime::now()),
        };
        is_durable
    }

    fn acknowledged(&self) -> Acknowledged {
        let partitions = self.tiers.partitions.each();
        Acknowledged {
            versions: partitions.map(|partition| partition.next_version).sum(),
            records: self.tiers.journal().records(),
            losses: self.tiers.journal().losses(),
            back_in_memory: self.tiers.back_in_memory(),
            failed_syncs: self.tiers.store().syncs().failed_syncs(),
        }
    }

    /// Visits the next partition. Ends the round behind the last one.
    async fn visit(&self, walk: &mut Walk) {
        let now = runtime::now();
        // Missed visits are not made up for.
        let on_time = walk.next.unwrap_or(now) + walk.pause;
        walk.next = Some(on_time.max(now));
        let number = walk.partition;
        let due = walk.turn(self.tiers.partitions.next_version_of(number));
        let mut walked = Walked::default();
        // While a write limit holds writes back, the flash is for items that leave memory.
        while !self.tiers.flash.is_held_back() {
            let space = self.tiers.flash.space().listener();
            match self.clean_chunk(number, &mut walked, &due) {
                Ok(true) => self.let_writers_catch_up(walk.pause).await,
                Ok(false) => break,
                // The remaining items are due at the next visit.
                Err(NoSpace) if runtime::timeout(walk.pause, space).await.is_err() => break,
                Err(NoSpace) => {}
            }
        }
        walk.partition += 1;
        if walk.partition == self.tiers.partitions.len() {
            walk.partition = 0;
            walk.round += 1;
            self.end_round(walk).await;
        }
    }

    /// Writes the items placed in this round to flash, and syncs.
    async fn end_round(&self, walk: &mut Walk) {
        let is_last = walk.round.is_multiple_of(STEPS as usize);
        if !self.tiers.store().flusher().can_flush() && is_last {
            self.tiers.store().appender().flush();
        }
        // The error of one segment does not concern the other segments.
        let _ = self
            .tiers
            .flash
            .writing
            .flush_filling(Unflushed::Items)
            .await;
        let written = self.tiers.store().counters().bytes_written.get();
        let is_due = written != walk.synced || self.tiers.store().table().is_in_doubt();
        if is_due && self.tiers.flash.sync_all().await.is_ok() {
            walk.synced = written;
        }
        let stats = self.tiers.flash.upkeep.stats();
        let gone = stats.segments_reclaimed + stats.items_lost + stats.items_unplaced;
        walk.unplaced = is_last && gone != walk.gone_seen && self.may_place_again();
        if walk.unplaced {
            walk.gone_seen = gone;
        }
    }

    /// Returns whether lost copies may be placed again: the index knows for each item whether flash has it, and flash
    /// and index are large enough for another copy of everything in memory.
    fn may_place_again(&self) -> bool {
        let store = self.tiers.store();
        let flash_bytes =
            u64::from(store.table().segments()) * u64::from(store.table().segment_bytes());
        let partitions = self.tiers.partitions.each();
        let items = partitions.map(|partition| partition.tier.items.in_use().items);
        let upkeep = &self.tiers.flash.upkeep;
        upkeep.dead_copies.are_located()
            && flash_bytes >= LARGE_FLASH * self.memory_bytes
            && upkeep.index_use.holds(LARGE_FLASH * items.sum::<u64>())
    }

    /// Places the due items of the next chunk of a partition that has any. Returns false behind the last chunk, and
    /// once the cache is being stopped.
    fn clean_chunk(&self, number: usize, walked: &mut Walked, due: &Due) -> Result<bool, NoSpace> {
        if self.phase.is_stopped() {
            return Ok(false);
        }
        let now = runtime::unix_seconds();
        let mut partition = self.tiers.partitions.lock_number(number, now);
        let context = self.tiers.evict_context(number, now);
        walked.clean_chunk(&mut partition.tier.items, due, &context)
    }

    /// Yields, and waits until no sealed segment waits to be written, but not longer than `patience`.
    async fn let_writers_catch_up(&self, patience: Duration) {
        runtime::yield_now().await;
        let written = async {
            loop {
                let progress = self.tiers.flash.upkeep.progress.listener();
                if self.tiers.store().pool().counts().sealed == 0 {
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
                returning.get_or_insert_with(|| self.tiers.return_nothing());
            }
            let before = self.tiers.back_in_memory();
            let mut are_all_placed = true;
            for number in 0..self.tiers.partitions.len() {
                match self.place_partition(number).await {
                    Some(is_placed) => are_all_placed &= is_placed,
                    None => return false,
                }
            }
            if !self.write_placed(false).await {
                return false;
            }
            if are_all_placed && self.tiers.back_in_memory() == before {
                return self.journal_syncs.sync_now().await && !self.tiers.journal().is_void();
            }
        }
        false
    }

    /// Places all items of a partition that flash does not have. Returns false if a full index has refused some, and
    /// `None` once the cache is being stopped.
    async fn place_partition(&self, number: usize) -> Option<bool> {
        let mut walked = Walked::default();
        loop {
            let space = self.tiers.flash.space().listener();
            match self.clean_chunk(number, &mut walked, &Due::ALL) {
                Ok(true) => runtime::yield_now().await,
                Ok(false) => return (!self.phase.is_stopped()).then_some(!walked.has_refused),
                Err(NoSpace) => {
                    self.tiers.flash.ask_for_space().await;
                    self.phase.unless_stopping(space).await;
                }
            }
        }
    }

    /// Writes and syncs everything placed so far. Gives up when a stop begins, unless it `goes_on`.
    pub(super) async fn write_placed(&self, goes_on: bool) -> bool {
        let upkeep = &self.tiers.flash.upkeep;
        if !self.tiers.store().flusher().can_flush() {
            self.tiers.store().appender().flush();
        }
        let before = self
            .tiers
            .store()
            .appender()
            .next_sequence()
            .load(Ordering::Acquire);
        let failed_syncs = self.tiers.store().syncs().failed_syncs();
        if self
            .tiers
            .flash
            .writing
            .flush_filling(Unflushed::Items)
            .await
            .is_err()
        {
            // A segment that cannot be flushed is written like any other segment, or its items are moved.
            self.tiers.store().appender().flush();
        }
        let is_given_up = || !goes_on && self.phase.is_stopped();
        self.tiers.flash.writing.writes_all(true);
        loop {
            let progress = upkeep.progress.listener();
            if is_given_up() || !self.tiers.store().buffers().has_sealed_before(before) {
                break;
            }
            if goes_on {
                progress.await;
            } else {
                self.phase.unless_stopping(progress).await;
            }
        }
        self.tiers.flash.writing.writes_all(false);
        // A sync that has failed in between puts the segments written here in doubt.
        !is_given_up()
            && self.tiers.flash.sync_all().await.is_ok()
            && self.tiers.store().syncs().failed_syncs() == failed_syncs
    }
}
