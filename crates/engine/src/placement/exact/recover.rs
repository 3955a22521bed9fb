//! Recovery: the summaries of living segments, less what has died, become the index.
//!
//! ```text
//!   unread segments, newest first ──claim──> summary ──> each entry that lives ──> index
//!        │ oldest                                             │ a write of this run has had the key,
//!        └──> reclaim, unread                                 │ or a higher version is there: DEAD
//! ```
//!
//! Several tasks share the queue. Reclaim takes a segment that nobody has claimed out of it, and waits
//! for one that is being read. Until all is read, writes note their hash in their shard.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use runtime::sync::Notify;

use super::dead::{Dead, Verdict};
use super::{Exact, entry_location};
use crate::format::journal::Record;
use crate::format::segment::SummaryEntry;
use crate::key::KeyHash;
use crate::store::{SegmentId, SegmentRecord};

/// Entries looked at before others get a turn.
const TURN: usize = 256;

/// How far a recovery has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Segments to read at the start, and of them read or given up so far.
    pub segments: u64,
    /// Of them.
    pub segments_done: u64,
    /// Items found alive.
    pub items: u64,
    /// Items found dead.
    pub items_dead: u64,
    /// Segments whose summary could not be read.
    pub segments_unreadable: u64,
    /// Microseconds from the start to the end, once it has ended.
    pub micros: u64,
}

/// A recovery that is under way.
pub(super) struct Recovery {
    queue: Mutex<Queue>,
    /// Told whenever a segment has been read.
    progress: Notify,
    clock: u32,
    started: runtime::Instant,
    segments: u64,
    items: AtomicU64,
    items_dead: AtomicU64,
    unreadable: AtomicU64,
    micros: AtomicU64,
    memory_bytes: AtomicU64,
    first_sequence: u64,
}

struct Queue {
    /// The last is the newest.
    unread: Vec<SegmentRecord>,
    claimed: HashSet<SegmentId>,
    dead: Option<std::sync::Arc<Dead>>,
}

impl Recovery {
    /// Nothing to recover.
    pub(super) fn none() -> Self {
        Self::new(Vec::new(), Dead::default(), 0, 0)
    }

    /// Of these segments, oldest first, in a run whose segments start at `first_sequence`.
    pub(super) fn new(
        unread: Vec<SegmentRecord>,
        dead: Dead,
        clock: u32,
        first_sequence: u64,
    ) -> Self {
        Self {
            segments: unread.len() as u64,
            memory_bytes: AtomicU64::new(dead.memory_bytes()),
            queue: Mutex::new(Queue {
                dead: (!unread.is_empty()).then(|| std::sync::Arc::new(dead)),
                unread,
                claimed: HashSet::new(),
            }),
            progress: Notify::new(),
            clock,
            started: runtime::now(),
            items: AtomicU64::new(0),
            items_dead: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            first_sequence,
        }
    }

    /// Whether it has not ended.
    pub(super) fn is_running(&self) -> bool {
        self.queue.lock().dead.is_some()
    }

    /// Bytes of memory it holds.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn stats(&self) -> RecoveryStats {
        let left = {
            let queue = self.queue.lock();
            (queue.unread.len() + queue.claimed.len()) as u64
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecoveryStats {
            segments: self.segments,
            segments_done: self.segments - left,
            items: load(&self.items),
            items_dead: load(&self.items_dead),
            segments_unreadable: load(&self.unreadable),
            micros: load(&self.micros),
        }
    }

    fn claim(&self) -> Option<(SegmentRecord, std::sync::Arc<Dead>)> {
        let mut queue = self.queue.lock();
        let dead = queue.dead.clone()?;
        let record = queue.unread.pop()?;
        queue.claimed.insert(record.segment);
        Some((record, dead))
    }

    /// Reclaim wants a segment: it need not be read any more. Waits while it is being read.
    pub(super) async fn give_up(&self, segment: SegmentId) {
        loop {
            let progress = self.progress.listener();
            {
                let mut queue = self.queue.lock();
                queue.unread.retain(|record| record.segment != segment);
                if !queue.claimed.contains(&segment) {
                    return;
                }
            }
            progress.await;
        }
    }

    /// Waits until everything has been read.
    pub(super) async fn wait(&self) {
        loop {
            let progress = self.progress.listener();
            if !self.is_running() {
                return;
            }
            progress.await;
        }
    }
}

/// Reads segments until none is left. Whoever finishes the last one ends the recovery.
pub(super) async fn read_segments(exact: &Exact) {
    let recovery = &exact.recovery;
    while let Some((record, dead)) = recovery.claim() {
        if exact.stopping.load(Ordering::Acquire) {
            return;
        }
        read_segment(exact, &record, &dead).await;
        drop(dead);
        recovery.queue.lock().claimed.remove(&record.segment);
        end_if_done(exact);
        recovery.progress.notify_all();
    }
    end_if_done(exact);
    recovery.progress.notify_all();
}

fn end_if_done(exact: &Exact) {
    let recovery = &exact.recovery;
    let dead = {
        let mut queue = recovery.queue.lock();
        if !queue.unread.is_empty() || !queue.claimed.is_empty() {
            return;
        }
        queue.dead.take()
    };
    let Some(dead) = dead else { return };
    for shard in &exact.shards {
        shard.lock().overlay = None;
    }
    drop(dead);
    recovery.memory_bytes.store(0, Ordering::Relaxed);
    let micros = runtime::now().since(recovery.started).as_micros();
    recovery.micros.store(micros as u64, Ordering::Relaxed);
    let stats = recovery.stats();
    tracing::info!(
        items = stats.items,
        dead = stats.items_dead,
        segments = stats.segments,
        unreadable = stats.segments_unreadable,
        milliseconds = stats.micros / 1000,
        "recovered"
    );
}

async fn read_segment(exact: &Exact, record: &SegmentRecord, dead: &Dead) {
    let recovery = &exact.recovery;
    let Some(_pin) = exact.store.pin(record.segment, record.sequence) else {
        return;
    };
    let entries = match exact.store.read_summary(record).await {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(
                segment = record.segment.0,
                %error,
                "a summary could not be read; the segment's items are lost"
            );
            // What cannot be read now must not be found by a later start.
            exact.journal.append(Record::SegmentDead {
                segment: record.segment.0,
                life: Some(record.sequence),
            });
            recovery.unreadable.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let now = runtime::unix_seconds().max(recovery.clock);
    let items = dead.of_segment(record);
    let (mut alive, mut gone) = (0, 0);
    for (number, entry) in entries.iter().enumerate() {
        if number % TURN == TURN - 1 {
            runtime::yield_now().await;
        }
        let hash = KeyHash(entry.hash.get());
        let location = entry_location(record.segment, entry.position.get());
        match items.judge(entry, &exact.horizon, now) {
            Verdict::Alive if insert(exact, record, entry).await => {
                alive += 1;
                if items.is_recent(location.position) {
                    let value = exact.codec.encode(location);
                    exact.change(hash, |shard| shard.table.mark_recent_if(hash.0, value));
                }
            }
            Verdict::Alive | Verdict::Overwritten => {
                gone += 1;
                exact.declare_dead(exact.codec.encode(location), record.sequence);
            }
            Verdict::Displaced | Verdict::Flushed | Verdict::Expired => gone += 1,
        }
    }
    recovery.items.fetch_add(alive, Ordering::Relaxed);
    recovery.items_dead.fetch_add(gone, Ordering::Relaxed);
}

/// What became of an entry offered to the index.
enum Offer {
    Taken,
    Refused,
    /// Another segment's item has its place: whichever has the higher version is to stay.
    Contested(u64),
}

/// Puts an item of an earlier run into the index, unless this run, or a higher version of an earlier
/// one, has the place. What loses gets a DEAD record.
async fn insert(exact: &Exact, record: &SegmentRecord, entry: &SummaryEntry) -> bool {
    let hash = KeyHash(entry.hash.get());
    let value = exact
        .codec
        .encode(entry_location(record.segment, entry.position.get()));
    let mut beaten = None;
    loop {
        let offer = exact.change(hash, |shard| {
            if shard.has_written(hash) {
                return Offer::Refused;
            }
            match shard.table.lookup(hash.0) {
                Some(found) if Some(found.value) != beaten => {
                    let segment = exact.codec.decode(found.value).segment;
                    if exact.store.sequence(segment) >= exact.recovery.first_sequence {
                        return Offer::Refused;
                    }
                    return Offer::Contested(found.value);
                }
                _ => {}
            }
            shard.table.set_max_bytes(u64::MAX);
            match shard.table.insert(hash.0, value) {
                Ok(replaced) => {
                    if let Some(replaced) = replaced {
                        exact.declare_dead(replaced, exact.life(replaced));
                    }
                    Offer::Taken
                }
                Err(_) => Offer::Refused,
            }
        });
        match offer {
            Offer::Taken => return true,
            Offer::Refused => return false,
            Offer::Contested(rival) => {
                if version_at(exact, rival).await >= Some(entry.version.get()) {
                    return false;
                }
                beaten = Some(rival);
            }
        }
    }
}

/// The version of the item at a packed location; `None` when it cannot be read.
async fn version_at(exact: &Exact, value: u64) -> Option<u64> {
    let location = exact.codec.decode(value);
    let life = exact.store.sequence(location.segment);
    let pin = exact.store.pin(location.segment, life)?;
    let item = exact.store.read(&pin, location.position).await.ok()?;
    Some(item.header().version.get())
}
