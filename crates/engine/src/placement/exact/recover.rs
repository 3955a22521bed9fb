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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use runtime::sync::Notify;

use super::dead::{Dead, Verdict};
use super::{Exact, Shard, entry_location};
use crate::format::journal::Record;
use crate::format::segment::SummaryEntry;
use crate::key::KeyHash;
use crate::store::{SegmentId, SegmentRecord};

/// Items put into the index while their places in it are at hand.
const BATCH: usize = 32;

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
    /// Items that probably live.
    items_expected: usize,
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
    dead: Option<Arc<Dead>>,
}

impl Recovery {
    /// Nothing to recover.
    pub(super) fn none() -> Self {
        Self::new(Vec::new(), None, 0, 0)
    }

    /// Of these segments, oldest first, in a run whose segments start at `first_sequence`.
    pub(super) fn new(
        unread: Vec<SegmentRecord>,
        dead: Option<Dead>,
        clock: u32,
        first_sequence: u64,
    ) -> Self {
        let items: u64 = unread.iter().map(|record| u64::from(record.items)).sum();
        let items_dead = dead.as_ref().map_or(0, Dead::at_most);
        Self {
            segments: unread.len() as u64,
            items_expected: items.saturating_sub(items_dead) as usize,
            memory_bytes: AtomicU64::new(dead.as_ref().map_or(0, Dead::memory_bytes)),
            queue: Mutex::new(Queue {
                dead: dead.filter(|_| !unread.is_empty()).map(Arc::new),
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

    fn claim(&self) -> Option<(SegmentRecord, Arc<Dead>)> {
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
    while !exact.stopping.load(Ordering::Acquire)
        && let Some((record, dead)) = recovery.claim()
    {
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
    // What reclaim has put off can be done now.
    exact.store.work().notify_all();
    exact.store.room().notify_all();
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
                life: record.sequence,
            });
            recovery.unreadable.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let (mut alive, mut gone) = (0, 0);
    let offers = sift(exact, record, &entries, dead);
    gone += (entries.len() - offers.len()) as u64;
    drop(entries);
    for (partition, group) in by_partition(exact, &offers) {
        let contested = exact.change_shard(partition, |shard| {
            // All of it lives only if none of it has died, but that is near enough.
            shard.table.set_max_bytes(u64::MAX);
            shard
                .table
                .reserve(recovery.items_expected / exact.shards.len());
            let mut contested = Vec::new();
            for batch in group.chunks(BATCH) {
                let hashes = batch.iter().map(|&number| offers[number as usize].hash.0);
                shard.table.warm(hashes);
                for &number in batch {
                    let offer = &offers[number as usize];
                    match offer_to(exact, shard, offer, None) {
                        Answer::Taken => alive += 1,
                        Answer::Refused => gone += 1,
                        Answer::Contested(_) => contested.push(offer),
                    }
                }
            }
            contested
        });
        for offer in contested {
            if settle(exact, offer).await {
                alive += 1;
            } else {
                gone += 1;
            }
        }
        runtime::yield_now().await;
    }
    recovery.items.fetch_add(alive, Ordering::Relaxed);
    recovery.items_dead.fetch_add(gone, Ordering::Relaxed);
}

/// An item of an earlier run that has not died, for the index.
struct Offer {
    hash: KeyHash,
    value: u64,
    version: u64,
    life: u64,
    recent: bool,
}

/// The items of a segment that have not died by what is recorded.
fn sift(
    exact: &Exact,
    record: &SegmentRecord,
    entries: &[SummaryEntry],
    dead: &Dead,
) -> Vec<Offer> {
    // One moment for all: the journal remembers it, so that a later start decides alike.
    let now = exact.recovery.clock;
    let items = dead.of_segment(record);
    let offer = |entry: &SummaryEntry| {
        let hash = KeyHash(entry.hash.get());
        let location = entry_location(record.segment, entry.position.get());
        let value = exact.codec.encode(location);
        match items.judge(entry, &exact.horizon, now) {
            Verdict::Alive => Some(Offer {
                hash,
                value,
                version: entry.version.get(),
                life: record.sequence,
                recent: items.is_recent(location.position),
            }),
            Verdict::Overwritten => {
                exact.declare_dead(value, record.sequence);
                None
            }
            Verdict::Displaced | Verdict::Flushed | Verdict::Expired => None,
        }
    };
    entries.iter().filter_map(offer).collect()
}

/// The numbers of the offers, by the partition they belong to.
fn by_partition(exact: &Exact, offers: &[Offer]) -> Vec<(usize, Vec<u32>)> {
    let mut groups = vec![Vec::new(); exact.shards.len()];
    for (number, offer) in (0..).zip(offers) {
        groups[offer.hash.partition(exact.partition_bits)].push(number);
    }
    let groups = groups.into_iter().enumerate();
    groups.filter(|(_, group)| !group.is_empty()).collect()
}

/// What became of an [`Offer`].
enum Answer {
    Taken,
    Refused,
    /// Another segment's item has its place: whichever has the higher version is to stay.
    Contested(u64),
}

/// Puts an item of an earlier run into the index, unless this run, or an item other than `beaten` of an
/// earlier one, has the place. What loses gets a DEAD record.
fn offer_to(exact: &Exact, shard: &mut Shard, offer: &Offer, beaten: Option<u64>) -> Answer {
    let refuse = || {
        exact.declare_dead(offer.value, offer.life);
        Answer::Refused
    };
    if shard.has_written(offer.hash) {
        return refuse();
    }
    match shard.table.lookup(offer.hash.0) {
        Some(found) if Some(found.value) != beaten => {
            let segment = exact.codec.decode(found.value).segment;
            if exact.store.sequence(segment) >= exact.recovery.first_sequence {
                return refuse();
            }
            return Answer::Contested(found.value);
        }
        _ => {}
    }
    match shard.table.insert(offer.hash.0, offer.value) {
        Ok(replaced) => {
            exact
                .store
                .count_in(exact.codec.decode(offer.value).segment);
            if let Some(replaced) = replaced {
                exact.displace(replaced);
            }
            if offer.recent {
                shard.table.mark_recent(offer.hash.0);
            }
            Answer::Taken
        }
        Err(_) => refuse(),
    }
}

/// Settles an offer whose place another item had: the higher version stays. Whether it is this one.
async fn settle(exact: &Exact, offer: &Offer) -> bool {
    let mut beaten = None;
    loop {
        let answer = exact.change(offer.hash, |shard| offer_to(exact, shard, offer, beaten));
        match answer {
            Answer::Taken => return true,
            Answer::Refused => return false,
            Answer::Contested(rival) => {
                if version_at(exact, rival).await >= Some(offer.version) {
                    exact.declare_dead(offer.value, offer.life);
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
