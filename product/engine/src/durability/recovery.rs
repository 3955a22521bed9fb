//! The recovery queue: live segments whose summaries have not been read yet, and which keys this run has
//! written meanwhile.
//!
//! Several tasks share the queue, newest segment first. Reclaim takes a segment that nobody has claimed out of
//! it, and waits for one that is being read. Who reads it does not wait for space meanwhile, which a checkpoint is to make
//! and reclaim for the checkpoint: the segment is left off, and what of it the index has goes. Until all is read, writes
//! note their key here *before* they change the index, and what recovery finds goes into the index under the same lock:
//! one of the two sees the other.

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

/// Bytes of memory of a table of the keys that have been written meanwhile, for each that it has space for.
const WRITTEN_KEY_BYTES: u64 = 20;

/// Tasks that read segments, at most.
pub(crate) const RECOVERY_TASKS: usize = 8;

/// The keys that are written meanwhile may take this fraction of the memory.
const WRITTEN_KEYS_SHARE: u64 = 4;
/// Segments that are read at once take no more than this fraction of the memory, unless it is a single one.
const READING_SHARE: u64 = 16;

/// Bytes of memory for each item of a segment that is being read: its entry in the summary, as read and as decoded, and
/// what is known of it on its way into the index.
const READING_ITEM_BYTES: u64 = 2 * size_of::<SummaryEntry>() as u64 + 160;

counters! {
    RecoveryCounters, read as
    /// How far a recovery has come.
    RecoveryStats {
        /// Items of earlier runs that were found to be live.
        items,
        /// Items of earlier runs that were found to be dead.
        items_dead,
        /// Among these, those whose entries an index without keys had lost.
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
        /// Whether it goes on: when all is read, what has been found to be dead is still made durable.
        is_running: bool,
    }
}

/// The queue, with what a recovery counts.
pub(crate) struct RecoveryQueue {
    queue: Mutex<Queue>,
    is_running: AtomicBool,
    /// Notified whenever a segment has been read.
    progress: Notify,
    /// Notified when reclaim begins to wait for a segment that is being read.
    pub(crate) wanted: Notify,
    /// The Unix second by which items are classified: one moment for all, remembered by the journal, so that a
    /// later start decides alike.
    pub(crate) clock: u32,
    started: runtime::Instant,
    segments: u64,
    pub(crate) counters: RecoveryCounters,
    /// Bytes of memory that the keys written meanwhile take.
    key_bytes: AtomicU64,
    /// Bytes of memory from which on they are too many.
    max_key_bytes: u64,
    /// Bytes of memory that what earlier runs have said to be dead takes.
    dead_bytes: AtomicU64,
    /// Segments that may be read at once, and the bytes of memory for each.
    most_claimed: usize,
    segment_reading_bytes: u64,
    /// What this run has superseded, for each partition.
    superseded: Box<[Mutex<Superseded>]>,
    /// Held while items of a partition are put into an index of which a part is on flash.
    pub(crate) restoring: Box<[Semaphore]>,
    /// Items at the front of segments that the index has had from the start.
    covered: HashMap<SegmentId, u32>,
}

struct Queue {
    /// The last is the newest.
    unread: Vec<SegmentRecord>,
    claimed: HashMap<SegmentId, SegmentRecord>,
    /// Of those that are claimed, the ones that reclaim waits for.
    wanted: HashSet<SegmentId>,
    /// Those that have been left off for it.
    left_off: HashSet<SegmentId>,
    dead: Option<Arc<DeadSet>>,
}

/// A segment that a recovery has still to read.
#[derive(Clone, Debug)]
pub(crate) struct Uncovered {
    pub(crate) record: SegmentRecord,
    /// Items at its front that the index has had from the start.
    pub(crate) covered_items: u32,
    /// Packed positions of what has died in it, as far as that is recorded by place.
    pub(crate) dead: Box<[u8]>,
}

/// Keys of one partition with the version below which what recovery finds of them is dead.
#[derive(Default)]
pub(crate) struct Superseded(HashMap<u64, u64, BuildHasherDefault<Passthrough>>);

impl Superseded {
    /// The keys, each with its version.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&hash, &version)| (hash, version))
    }

    /// Whether a copy with this version is dead.
    pub(crate) fn kills(&self, hash: KeyHash, version: u64) -> bool {
        let dead_below = self.0.get(&kept_hash(hash.0));
        dead_below.is_some_and(|&dead_below| version < dead_below)
    }

    /// Bytes of memory it takes.
    fn memory_bytes(&self) -> u64 {
        self.0.capacity() as u64 * WRITTEN_KEY_BYTES
    }

    /// Copies with lower versions are dead; whether nothing had been known of the key.
    pub(crate) fn insert(&mut self, hash: KeyHash, version: u64) -> bool {
        let known = self.0.insert(kept_hash(hash.0), version);
        if let Some(known) = known.filter(|&known| known > version) {
            self.0.insert(kept_hash(hash.0), known);
        }
        known.is_none()
    }
}

/// Of each of these segments what is covered, if anything is.
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
    /// The queue of these segments, oldest first, in a cache with so much memory. What is `covered` of them the index has.
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

    /// Items at the front of a segment that the index has had from the start.
    pub(crate) fn covered(&self, record: &SegmentRecord) -> u32 {
        items_covered(&self.covered, record)
    }

    /// The segments that have not been read to their ends.
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

    /// Whether it has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// Bytes of memory that it takes, until it has ended.
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

    /// A key is about to be written or deleted under a version, in the hold of its partition's lock. Returns
    /// whether its older copies have to be declared dead by key: recovery has yet to find where they lie.
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

    /// Whether the keys that have been written meanwhile take too much memory.
    pub(crate) fn is_overgrown(&self) -> bool {
        self.key_bytes.get() > self.max_key_bytes
    }

    /// What is dead of a partition, for as long as the index must not change against it.
    pub(crate) fn superseded(&self, partition: usize) -> MutexGuard<'_, Superseded> {
        self.superseded[partition].lock()
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> usize {
        self.superseded.len()
    }

    /// What earlier runs have said to be dead; `None` once the recovery has ended.
    pub(crate) fn dead(&self) -> Option<Arc<DeadSet>> {
        self.queue.lock().dead.clone()
    }

    /// Takes the newest segment that nobody has read; `None` where there is none, or others read as many as there is
    /// memory for: they go on.
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

    /// A claimed segment has been read.
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

    /// Whether reclaim waits for a claimed segment.
    pub(crate) fn is_wanted(&self, record: &SegmentRecord) -> bool {
        self.queue.lock().wanted.contains(&record.segment)
    }

    /// A claimed segment is not read to its end, since reclaim wants it. The index has nothing of it any more.
    pub(crate) fn leave_off(&self, record: &SegmentRecord) {
        let mut queue = self.queue.lock();
        queue.claimed.remove(&record.segment);
        if queue.wanted.remove(&record.segment) {
            queue.left_off.insert(record.segment);
        }
        drop(queue);
        self.progress.notify_all();
    }

    /// A segment that nobody has claimed need not be read any more.
    pub(crate) fn forget_unread(
        &self,
        keep: impl Fn(&SegmentRecord) -> bool,
    ) -> Vec<SegmentRecord> {
        let mut queue = self.queue.lock();
        let (kept, forgotten) = queue.unread.drain(..).partition(|record| keep(record));
        queue.unread = kept;
        forgotten
    }

    /// Reclaim wants a segment: it need not be read any more. Waits while it is being read. Of one that nobody had
    /// begun to read, or that has been left off, it returns what tells which of its items are dead.
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

    /// Waits until everything has been read.
    pub(crate) async fn wait(&self) {
        loop {
            let progress = self.progress.listener();
            if !self.is_running() {
                return;
            }
            progress.await;
        }
    }

    /// Whether nothing is left to read, and the recovery has not been ended.
    pub(crate) fn is_all_read(&self) -> bool {
        let queue = self.queue.lock();
        queue.dead.is_some() && queue.unread.is_empty() && queue.claimed.is_empty()
    }

    /// Ends the recovery if nothing is left to read; whether this call has.
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

    /// Of a segment that is being read.
    async fn reading() -> (Arc<RecoveryQueue>, SegmentRecord) {
        let disk = MemoryDisk::new(4 * u64::from(SEGMENT));
        let store = store_on_disk(disk, Layout::Packed, 4);
        append(&store, 1).expect("there is space");
        store.flush();
        store.write_next(async || {}).await.unwrap().unwrap();
        let written = store.written();
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
