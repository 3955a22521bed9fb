//! The recovery queue: the live segments whose summaries have not been read yet, and the keys that this run writes
//! until they are.
//!
//! Several tasks share the queue, newest segment first. Reclaim takes an unclaimed segment out of the queue, and waits
//! for a claimed one. A task does not wait for space in the journal while reclaim waits for its segment: a checkpoint
//! is to make that space, and the checkpoint may wait for reclaim. Instead the task leaves the segment off, and the
//! index forgets the segment's items. Until all segments are read, writes note their key here *before* they change the
//! index, and recovery adds items to the index under the same lock: one of the two sees the other.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use runtime::sync::{Notify, Semaphore};

use super::dead::DeadSet;
use crate::counter::{Count as _, counters};
use crate::format::checkpoint::Coverage;
use crate::format::journal::kept_hash;
use crate::format::segment::{SegmentId, SummaryEntry};
use crate::key::{KeyHash, Passthrough};
use crate::store::SegmentRecord;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Bytes of memory for each slot of a table of the keys written during recovery.
const WRITTEN_KEY_BYTES: u64 = 20;

/// Largest number of tasks that read segments.
pub(crate) const RECOVERY_TASKS: usize = 8;

/// Part of the memory that the keys written during recovery may take, as a fraction with this denominator.
const WRITTEN_KEYS_SHARE: u64 = 4;
/// Part of the memory that the segments being read may take, as a fraction with this denominator. One segment is always
/// read.
const READING_SHARE: u64 = 16;

/// Bytes of memory for each item of a segment being read: its summary entry, as read and as decoded, and its state on
/// the way into the index.
const READING_ITEM_BYTES: u64 = 2 * size_of::<SummaryEntry>() as u64 + 160;

counters! {
    /// Progress of a recovery.
    pub struct RecoveryStats {
        /// Items of earlier runs that were found to be live.
        items,
        /// Items of earlier runs that were found to be dead.
        items_dead,
        /// Entries of an index without keys whose loss is recorded, in the segments that have been read.
        items_unnamed,
        /// Segments whose summary could not be read.
        segments_unreadable,
        /// Microseconds from the start to the end, once it has ended.
        micros,
    }
    also {
        /// Segments to read at the start.
        segments: u64,
        /// Segments read, or taken by reclaim, so far.
        segments_done: u64,
        /// Whether recovery is running. After the last segment is read, the deaths found are still to be made durable.
        is_running: bool,
    }
    from pub(crate) struct RecoveryCounters of std::sync::atomic::AtomicU64
}

/// The queue, and the counters of the recovery.
pub(crate) struct RecoveryQueue {
    queue: Mutex<Queue>,
    is_running: AtomicBool,
    /// Notified whenever a segment has been read.
    progress: Notify,
    /// Notified when reclaim begins to wait for a segment that is being read.
    pub(crate) wanted: Notify,
    /// Unix second by which items are classified: the same for all, and kept by the journal, so that a later start
    /// decides alike.
    pub(crate) clock: u32,
    started: runtime::Instant,
    segments: u64,
    pub(crate) counters: RecoveryCounters,
    /// Bytes of memory of the keys written during recovery.
    key_bytes: AtomicU64,
    /// Bytes of memory above which these keys are too many.
    max_key_bytes: u64,
    /// Bytes of memory of the dead set of earlier runs.
    dead_bytes: AtomicU64,
    /// Number of segments that may be read at once; `segment_reading_bytes` is the memory for each.
    most_claimed: usize,
    segment_reading_bytes: u64,
    /// Keys that this run has written, for each partition.
    superseded: Box<[Mutex<Superseded>]>,
    /// Held while items of a partition are put into an index with a part on flash.
    pub(crate) restoring: Box<[Semaphore]>,
    /// Number of items at the front of each segment that the index has had from the start.
    covered: HashMap<SegmentId, u32>,
}

struct Queue {
    /// Unread segments, the newest last.
    unread: Vec<SegmentRecord>,
    claimed: HashMap<SegmentId, SegmentRecord>,
    /// Claimed segments that reclaim waits for.
    wanted: HashSet<SegmentId>,
    /// Segments that have been left off for reclaim.
    left_off: HashSet<SegmentId>,
    dead: Option<Arc<DeadSet>>,
}

/// A segment that recovery has still to read.
#[derive(Clone, Debug)]
pub(crate) struct Uncovered {
    pub(crate) record: SegmentRecord,
    /// Number of items at its front that the index has had from the start.
    pub(crate) covered_items: u32,
    /// Packed positions of its items that are recorded as dead by place.
    pub(crate) dead: Box<[u8]>,
}

/// Keys of one partition, with the version below which copies found by recovery are dead.
#[derive(Default)]
pub(crate) struct Superseded(HashMap<u64, u64, BuildHasherDefault<Passthrough>>);

impl Superseded {
    /// Returns the keys, each with its version.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&hash, &version)| (hash, version))
    }

    /// Returns whether a copy with this version is dead.
    pub(crate) fn kills(&self, hash: KeyHash, version: u64) -> bool {
        let dead_below = self.dead_below(hash);
        dead_below.is_some_and(|dead_below| version < dead_below)
    }

    /// Returns the version below which copies of the key are dead, if it is among the keys. It is of an earlier run where
    /// recovery has found an expired item.
    pub(crate) fn dead_below(&self, hash: KeyHash) -> Option<u64> {
        self.0.get(&kept_hash(hash.0)).copied()
    }

    /// Returns the bytes of memory of the table.
    fn memory_bytes(&self) -> u64 {
        self.0.capacity() as u64 * WRITTEN_KEY_BYTES
    }

    /// Declares copies with lower versions dead. Returns whether the key was not known yet.
    pub(crate) fn insert(&mut self, hash: KeyHash, version: u64) -> bool {
        let known = self.0.insert(kept_hash(hash.0), version);
        if let Some(known) = known.filter(|&known| known > version) {
            self.0.insert(kept_hash(hash.0), known);
        }
        known.is_none()
    }
}

/// Returns the number of covered items of each segment opened before the coverage ends.
fn covered_items(records: &[SegmentRecord], covered: &Coverage) -> HashMap<SegmentId, u32> {
    let partly: HashMap<SegmentId, u32> = covered.partly.iter().copied().collect();
    let below = records
        .iter()
        .filter(|record| record.sequence < covered.below);
    let items = |record: &SegmentRecord| {
        let all = record.items;
        let some = partly.get(&record.segment).copied();
        (record.segment, some.unwrap_or(all).min(all))
    };
    below.map(items).collect()
}

fn items_covered(covered: &HashMap<SegmentId, u32>, record: &SegmentRecord) -> u32 {
    covered.get(&record.segment).copied().unwrap_or(0)
}

impl RecoveryQueue {
    /// Returns the queue of these segments, given oldest first, in a cache with `memory_bytes` of memory. The index
    /// already has the `covered` items.
    pub(crate) fn new(
        mut unread: Vec<SegmentRecord>,
        covered: &Coverage,
        dead: Option<DeadSet>,
        clock: u32,
        partitions: usize,
        memory_bytes: u64,
    ) -> Self {
        let covered = covered_items(&unread, covered);
        unread.retain(|record| items_covered(&covered, record) < record.items);
        let dead = dead.filter(|_| !unread.is_empty());
        let dead_bytes = dead.as_ref().map_or(0, DeadSet::memory_bytes);
        let items = unread.iter().map(|record| u64::from(record.items)).max();
        let segment_reading_bytes = READING_ITEM_BYTES * items.unwrap_or(0);
        let affordable = memory_bytes / READING_SHARE / segment_reading_bytes.max(1);
        Self {
            segments: unread.len() as u64,
            key_bytes: AtomicU64::new(0),
            max_key_bytes: memory_bytes / WRITTEN_KEYS_SHARE,
            dead_bytes: AtomicU64::new(dead_bytes),
            most_claimed: affordable.clamp(1, RECOVERY_TASKS as u64) as usize,
            segment_reading_bytes,
            is_running: AtomicBool::new(dead.is_some()),
            queue: Mutex::new(Queue {
                dead: dead.map(Arc::new),
                unread,
                claimed: HashMap::new(),
                wanted: HashSet::new(),
                left_off: HashSet::new(),
            }),
            progress: Notify::new(),
            wanted: Notify::new(),
            clock,
            started: runtime::now(),
            counters: RecoveryCounters::default(),
            superseded: (0..partitions).map(|_| Mutex::default()).collect(),
            restoring: (0..partitions).map(|_| Semaphore::new(1)).collect(),
            covered,
        }
    }

    /// Returns the number of items at the front of a segment that the index has had from the start.
    pub(crate) fn covered(&self, record: &SegmentRecord) -> u32 {
        items_covered(&self.covered, record)
    }

    /// Returns the segments that have not been read to their ends.
    pub(crate) fn uncovered(&self) -> Vec<Uncovered> {
        let queue = self.queue.lock();
        let Some(dead) = &queue.dead else {
            return Vec::new();
        };
        let left = queue.unread.iter().chain(queue.claimed.values());
        let uncovered = |record: &SegmentRecord| Uncovered {
            record: *record,
            covered_items: self.covered(record),
            dead: dead.packed(record),
        };
        left.map(uncovered).collect()
    }

    /// Returns whether recovery has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// Returns the bytes of memory that recovery takes, until it has ended.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let reading_bytes = if self.is_running() {
            self.segment_reading_bytes * self.most_claimed as u64
        } else {
            0
        };
        self.key_bytes.get() + self.dead_bytes.get() + reading_bytes
    }

    pub(crate) fn stats(&self) -> RecoveryStats {
        let queue = self.queue.lock();
        let left = queue.unread.len() + queue.claimed.len();
        RecoveryStats {
            segments: self.segments,
            segments_done: self.segments - left as u64,
            is_running: self.is_running(),
            ..self.counters.read()
        }
    }

    /// Notes that a key is about to be written or deleted with this version; called with its partition's lock held.
    /// Returns whether its older copies have to be declared dead by key: recovery has yet to find their places.
    #[inline]
    pub(crate) fn note_write(&self, partition: usize, hash: KeyHash, version: u64) -> bool {
        self.is_running() && {
            let mut superseded = self.superseded[partition].lock();
            let before = superseded.memory_bytes();
            let is_new = superseded.insert(hash, version);
            let grown = superseded.memory_bytes() - before;
            drop(superseded);
            if grown > 0 {
                self.key_bytes.add(grown);
            }
            is_new
        }
    }

    /// Returns whether the keys written during recovery take too much memory.
    pub(crate) fn is_overgrown(&self) -> bool {
        self.key_bytes.get() > self.max_key_bytes
    }

    /// Locks the written keys of a partition, while the index must not change against them.
    pub(crate) fn superseded(&self, partition: usize) -> MutexGuard<'_, Superseded> {
        self.superseded[partition].lock()
    }

    /// Returns the number of partitions.
    pub(crate) fn partitions(&self) -> usize {
        self.superseded.len()
    }

    /// Returns the dead set of earlier runs; `None` once recovery has ended.
    pub(crate) fn dead(&self) -> Option<Arc<DeadSet>> {
        self.queue.lock().dead.clone()
    }

    /// Claims the newest unread segment. `None` if there is none, or if as many segments are being read as there is
    /// memory for: their readers go on.
    pub(crate) fn claim(&self) -> Option<(SegmentRecord, Arc<DeadSet>)> {
        let mut queue = self.queue.lock();
        if queue.claimed.len() >= self.most_claimed {
            return None;
        }
        let dead = queue.dead.clone()?;
        let record = queue.unread.pop()?;
        queue.claimed.insert(record.segment, record);
        Some((record, dead))
    }

    /// Notes that a claimed segment has been read.
    pub(crate) fn finish(&self, record: &SegmentRecord) {
        let mut queue = self.queue.lock();
        queue.claimed.remove(&record.segment);
        queue.wanted.remove(&record.segment);
        if let Some(dead) = &queue.dead {
            dead.let_go(record);
            self.dead_bytes
                .store(dead.memory_bytes(), Ordering::Relaxed);
        }
        drop(queue);
        self.progress.notify_all();
    }

    /// Returns whether reclaim waits for a claimed segment.
    pub(crate) fn is_wanted(&self, record: &SegmentRecord) -> bool {
        self.queue.lock().wanted.contains(&record.segment)
    }

    /// Gives up reading a claimed segment that reclaim waits for. The index has forgotten its items.
    pub(crate) fn leave_off(&self, record: &SegmentRecord) {
        let mut queue = self.queue.lock();
        queue.claimed.remove(&record.segment);
        if queue.wanted.remove(&record.segment) {
            queue.left_off.insert(record.segment);
        }
        drop(queue);
        self.progress.notify_all();
    }

    /// Removes the unclaimed segments for which `keep` is false, and returns them.
    pub(crate) fn forget_unread(
        &self,
        keep: impl Fn(&SegmentRecord) -> bool,
    ) -> Vec<SegmentRecord> {
        let mut queue = self.queue.lock();
        let (kept, forgotten) = queue.unread.drain(..).partition(|record| keep(record));
        queue.unread = kept;
        forgotten
    }

    /// Takes a segment out of recovery for reclaim. Waits while it is being read. Returns the dead set of its items if
    /// it was unclaimed or has been left off, else `None`.
    pub(crate) async fn give_up(&self, segment: SegmentId) -> Option<Arc<DeadSet>> {
        loop {
            let progress = self.progress.listener();
            let forgotten = self.forget_unread(|record| record.segment != segment);
            let is_newly_wanted = {
                let mut queue = self.queue.lock();
                if !forgotten.is_empty() || queue.left_off.remove(&segment) {
                    return queue.dead.clone();
                }
                if !queue.claimed.contains_key(&segment) {
                    return None;
                }
                queue.wanted.insert(segment)
            };
            if is_newly_wanted {
                self.wanted.notify_all();
            }
            progress.await;
        }
    }

    /// Waits until recovery has ended.
    pub(crate) async fn wait(&self) {
        loop {
            let progress = self.progress.listener();
            if !self.is_running() {
                return;
            }
            progress.await;
        }
    }

    /// Returns whether no segment is left to read and recovery has not been ended.
    pub(crate) fn is_all_read(&self) -> bool {
        let queue = self.queue.lock();
        queue.dead.is_some() && queue.unread.is_empty() && queue.claimed.is_empty()
    }

    /// Ends the recovery if no segment is left to read. Returns whether this call has ended it.
    pub(crate) fn end_if_done(&self) -> bool {
        let dead = {
            let mut queue = self.queue.lock();
            if !queue.unread.is_empty() || !queue.claimed.is_empty() {
                return false;
            }
            queue.dead.take()
        };
        if dead.is_none() {
            return false;
        }
        let micros = runtime::now().since(self.started).as_micros();
        self.counters.micros.add(micros as u64);
        self.is_running.store(false, Ordering::SeqCst);
        for superseded in &self.superseded {
            superseded.lock().0 = HashMap::default();
        }
        self.key_bytes.store(0, Ordering::Relaxed);
        self.dead_bytes.store(0, Ordering::Relaxed);
        self.progress.notify_all();
        true
    }
}

#[cfg(test)]
mod tests {
    use device::MemoryDisk;
    use runtime::sim::Sim;

    use super::*;
    use crate::store::Layout;
    use crate::store::tests::{SEGMENT, append, store_on_disk};

    /// Returns a queue with one segment, which is being read.
    async fn reading() -> (Arc<RecoveryQueue>, SegmentRecord) {
        let disk = MemoryDisk::new(4 * u64::from(SEGMENT));
        let store = store_on_disk(disk, Layout::Packed, 4);
        append(&store, 1).expect("there is space");
        store.appender().flush();
        store
            .writer()
            .write_next(async || {})
            .await
            .unwrap()
            .unwrap();
        let written = store.pool().written();
        let dead = DeadSet::new(1, &store, &written, 1 << 20);
        let (covered, memory_bytes) = (Coverage::default(), 1 << 30);
        let queue = RecoveryQueue::new(written, &covered, Some(dead), 0, 1, memory_bytes);
        let (record, _) = queue.claim().expect("it is unread");
        (Arc::new(queue), record)
    }

    #[test]
    fn who_reads_a_segment_sees_that_reclaim_waits_for_it() {
        Sim::new(1).block_on(async {
            for is_left_off in [false, true] {
                let (queue, record) = reading().await;
                let wanted = queue.wanted.listener();
                assert!(!queue.is_wanted(&record));
                let giving_up = {
                    let queue = Arc::clone(&queue);
                    runtime::spawn(async move { queue.give_up(record.segment).await.is_some() })
                };
                wanted.await;
                assert!(queue.is_wanted(&record) && !queue.is_all_read());
                if is_left_off {
                    queue.leave_off(&record);
                } else {
                    queue.finish(&record);
                }
                assert!(queue.is_all_read() && !queue.is_wanted(&record));
                let is_unread = giving_up.await.expect("nobody ends it");
                assert_eq!(is_unread, is_left_off);
            }
        });
    }
}
