//! Writing a checkpoint: the dead positions of every live segment, the dead keys, and the placement's section. See
//! `docs/internals/recovery.md`.
//!
//! Live segments are written by rising number. Their lists are merged from two sources in the same order: the last
//! checkpoint and the journal's chunks before the cut. The chunks are read once for each range of segments, so that at
//! most [`batch_positions`] positions are in memory at a time. If the journal or the last checkpoint cannot be used,
//! the index is: entries of a summary that it does not name are dead.
//!
//! A dead key stays in the list until no dead copy of it can be left. Only segments that had been opened when the next
//! chunk of the journal was begun can hold one. The key goes when all these segments are gone, or when a copy with its
//! version or a higher one is durable in a segment that is not older than any of them: placements that know displaced
//! copies by key alone reclaim in order of age, so this copy goes last.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::dead::{DeadCopies, Listed};
use super::journal::{ChunkRecords, Damaged, Journal};
use super::recovery::{RecoveryQueue, Uncovered};
use super::superseded::Superseded;
use crate::format::checkpoint::{DeadKey, DeadList, Head, Packer, Section, merge};
use crate::format::journal::{Record, is_generation, kept_hash};
use crate::format::segment::{SegmentId, SummaryEntry};
use crate::store::{
    CHECKPOINT_STREAM_BYTES, CheckpointSink, CheckpointSource, ReadError, SavedCheckpoint,
    SegmentRecord, SegmentStore,
};
use crate::sync::Mutex;

/// Least number of positions held in memory at once.
const BATCH_POSITIONS: usize = 1 << 15;
/// Largest number of segment numbers in a range.
const BATCH_SPAN: u32 = 1 << 15;
/// Number of dead keys in a batch.
const KEYS_AT_ONCE: usize = 1 << 10;
/// Largest number of times that a checkpoint is begun: its blocks may go bad during the write.
const MAX_TRIES: usize = 4;

/// Input of a checkpoint, beside the journal and the store.
pub(crate) struct CheckpointInput<'a> {
    /// Clock, pending flush, cutoffs, and the coverage of the section.
    pub(crate) head: Head,
    /// Version above all versions given out so far.
    pub(crate) next_version: u64,
    pub(crate) deaths: Deaths<'a>,
    pub(crate) section: Section,
    /// How a start tells which copies of a key are dead.
    pub(crate) dead_copies: DeadCopies,
    pub(crate) recovery: &'a RecoveryQueue,
    /// Calls its argument with each key that the index keeps as dead, if it alone tells which copies are dead.
    pub(crate) outdated: EachDeadKey<'a>,
    /// Dead keys that copies placed since supersede.
    pub(crate) superseded: &'a Superseded,
}

/// Source of the dead positions of the live segments.
#[derive(Clone, Copy)]
pub(crate) enum Deaths<'a> {
    /// The checkpoint in force, and the journal's chunks before `end`.
    Recorded {
        last: Option<&'a SavedCheckpoint>,
        end: u64,
    },
    /// The index, which names every live item.
    Indexed(IsNamed<'a>),
    /// The section, which is the index. For segments that recovery had still to read when the checkpoint was begun,
    /// their recorded positions.
    InSection(&'a [Uncovered]),
}

/// Calls its argument with each dead key.
type EachDeadKey<'a> = &'a dyn Fn(&dyn Fn(DeadKey));

type IsNamed<'a> = &'a dyn Fn(&SegmentRecord, &SummaryEntry) -> bool;

/// A checkpoint written to flash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) saved: SavedCheckpoint,
    pub(crate) flash_bytes: u64,
    /// Segments whose summaries are lost: the checkpoint holds none of their items.
    pub(crate) lost: Vec<SegmentRecord>,
}

/// Reason for which a checkpoint was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// The checkpoint in force, the journal, or a summary with a transient error cannot be read.
    Unreadable,
    /// There is no free segment, or the device fails.
    NoSegment,
    /// Recovery ended during the write, and its dead keys are gone.
    Overtaken,
}

/// Writes checkpoints of one store and its journal.
pub(crate) struct Checkpointer {
    store: Arc<SegmentStore>,
    journal: Arc<Journal>,
    /// Sequence numbers of segments whose summaries have been searched for superseding copies.
    searched: Mutex<HashSet<u64>>,
}

/// Returns the bytes of memory that writing a checkpoint takes.
pub(crate) fn memory_bytes(segments: u32, journal_bytes: u64) -> u64 {
    let batch = batch_positions((journal_bytes / 8) as usize) * size_of::<u32>();
    let places = BATCH_SPAN.min(segments) as usize * size_of::<Run>();
    let counts = segments as usize * size_of::<u32>();
    (batch + places + counts) as u64 + CHECKPOINT_STREAM_BYTES
}

/// Returns the number of positions held in memory at once for this many records: a compromise between memory and passes
/// over the chunks.
fn batch_positions(records: usize) -> usize {
    BATCH_POSITIONS.max(records / 8)
}

impl Checkpointer {
    pub(crate) fn new(store: Arc<SegmentStore>, journal: Arc<Journal>) -> Self {
        Self {
            store,
            journal,
            searched: Mutex::default(),
        }
    }

    /// Writes a checkpoint. Begins again in other segments when a block fails.
    pub(crate) async fn write(&self, input: &CheckpointInput<'_>) -> Result<Written, NotWritten> {
        input.superseded.hold(true);
        let written = self.try_to_write(input).await;
        input.superseded.hold(false);
        written
    }

    async fn try_to_write(&self, input: &CheckpointInput<'_>) -> Result<Written, NotWritten> {
        for _ in 0..MAX_TRIES {
            let mut sink = CheckpointSink::new(Arc::clone(&self.store));
            let why = match self.fill(&mut sink, input).await {
                Ok(lost) => {
                    return Ok(Written {
                        saved: sink.saved,
                        flash_bytes: sink.flash_bytes,
                        lost,
                    });
                }
                Err(why) => why,
            };
            let has_bad = self.store.pool().free_checkpoint(&sink.saved.segments);
            if why != NotWritten::NoSegment || !has_bad {
                return Err(why);
            }
        }
        Err(NotWritten::NoSegment)
    }

    /// Fills a checkpoint. Returns the segments whose summaries are lost.
    async fn fill(
        &self,
        sink: &mut CheckpointSink,
        input: &CheckpointInput<'_>,
    ) -> Result<Vec<SegmentRecord>, NotWritten> {
        let mut lost = Vec::new();
        let (mut live, next_sequence) = self.store.appender().live_segments();
        let dead = self.journal.dead_segments();
        live.retain(|record| !dead.contains(&(record.segment.0, record.sequence)));
        let head = Head {
            next_sequence,
            retired: self.store.pool().retired(),
            living: live.len() as u32,
            ..input.head.clone()
        };
        push(sink, &head.encode()).await?;
        match input.deaths {
            Deaths::Recorded { last, end } => {
                let mut before = match last {
                    Some(last) => {
                        let partitions = input.head.cutoffs.len() as u32;
                        Some(LastLists::open(&self.store, last, partitions).await?)
                    }
                    None => None,
                };
                let chunks = self.journal.before(end)?;
                let mut survey = self
                    .survey(&chunks, input.next_version, next_sequence)
                    .await?;
                if input.recovery.is_running() {
                    // After a power cut these records may remain without the records by place that preceded them.
                    survey.located.clear();
                }
                let superseding = match input.dead_copies {
                    DeadCopies::ByVersion | DeadCopies::AtReads => self.durable_segments(),
                    _ => HashSet::new(),
                };
                let lists = Lists {
                    live: &live,
                    superseding: &superseding,
                };
                self.push_recorded(sink, lists, &chunks, &survey, before.as_mut())
                    .await?;
                if input.dead_copies.are_told_at_reads() {
                    push_keys(sink, &self.dead_keys(input, &superseding)).await?;
                } else if input.dead_copies != DeadCopies::Located {
                    let known = match before {
                        Some(before) => before.dead_keys().await?,
                        None => Vec::new(),
                    };
                    let mut keys = join_dead_keys(known, survey);
                    let oldest = live.iter().map(|record| record.sequence).min();
                    keys.retain(|_, key| oldest.is_some_and(|oldest| oldest < key.before));
                    if input.dead_copies == DeadCopies::ByVersion {
                        keys = self.without_superseded(keys, &superseding).await;
                    }
                    let mut keys: Vec<DeadKey> = keys.into_values().collect();
                    keys.sort_unstable_by_key(|key| key.hash);
                    push_keys(sink, &keys).await?;
                } else {
                    push_recovering(sink, input.recovery).await?;
                }
            }
            Deaths::Indexed(is_named) => {
                let at_reads = input.dead_copies.are_told_at_reads();
                let superseding = match at_reads {
                    true => self.durable_segments(),
                    false => HashSet::new(),
                };
                lost = self
                    .push_indexed(sink, &live, &superseding, is_named)
                    .await?;
                if at_reads {
                    push_keys(sink, &self.dead_keys(input, &superseding)).await?;
                }
            }
            Deaths::InSection(uncovered) => {
                let dead: HashMap<u64, &[u8]> = uncovered
                    .iter()
                    .map(|left| (left.record.sequence, &*left.dead))
                    .collect();
                for record in &live {
                    let dead = dead.get(&record.sequence).copied().unwrap_or_default();
                    push_list(sink, record.segment, record.sequence, false, dead).await?;
                }
                push_recovering(sink, input.recovery).await?;
                // The end of a recovery drops the dead set before the keys: without it, the keys pushed may be
                // incomplete.
                if !uncovered.is_empty() && input.recovery.dead().is_none() {
                    return Err(NotWritten::Overtaken);
                }
            }
        }
        push(sink, &DeadKey::batch(&[])).await?;
        push(sink, &input.section.encode_head()).await?;
        push(sink, &input.section.bytes).await?;
        sink.finish().await.ok_or(NotWritten::NoSegment)?;
        let is_there =
            |&(segment, sequence): &_| self.store.table().sequence(SegmentId(segment)) == sequence;
        self.journal.forget_dead_segments(is_there);
        Ok(lost)
    }

    /// Appends the lists of the live segments, merged from the last checkpoint and the journal's chunks.
    async fn push_recorded(
        &self,
        sink: &mut CheckpointSink,
        lists: Lists<'_>,
        chunks: &[ChunkRecords],
        survey: &Survey,
        mut before: Option<&mut LastLists>,
    ) -> Result<(), NotWritten> {
        let most = batch_positions(survey.records);
        let mut packed = Packer::default();
        let mut rest = lists.live;
        while !rest.is_empty() {
            let mut batch = PositionBatch::next(rest, &survey.dead, most);
            for chunk in chunks {
                chunk.each(&*self.journal.log, |record| {
                    if let Some(listed) = Listed::of(&record, &self.store.codec) {
                        batch.insert(listed.segment, listed.bits, |sequence| {
                            is_generation(listed.generation, sequence)
                        });
                    }
                })?;
                runtime::yield_now().await;
            }
            let (range, after) = rest.split_at(batch.len());
            for record in range {
                let known = match &mut before {
                    Some(before) => before.take(record).await?,
                    None => Vec::new(),
                };
                packed.clear();
                merge(&mut packed, &known, batch.of(record)).map_err(|_| NotWritten::Unreadable)?;
                let supersedes = lists.superseding.contains(&record.sequence);
                let (segment, sequence) = (record.segment, record.sequence);
                push_list(sink, segment, sequence, supersedes, packed.bytes()).await?;
            }
            rest = after;
        }
        Ok(())
    }

    /// Appends the lists of the live segments by the index: all entries that it does not name. Returns the segments
    /// whose summaries are lost.
    async fn push_indexed(
        &self,
        sink: &mut CheckpointSink,
        live: &[SegmentRecord],
        superseding: &HashSet<u64>,
        is_named: IsNamed<'_>,
    ) -> Result<Vec<SegmentRecord>, NotWritten> {
        let (mut packed, mut lost) = (Packer::default(), Vec::new());
        for record in live {
            packed.clear();
            let mut sequence = record.sequence;
            match self.store.table().pin(record.segment, sequence) {
                Some(pin) => match self.store.reader().summary_unless_lost(&pin).await {
                    Ok(Some(entries)) => {
                        let dead = entries.iter().filter(|entry| !is_named(record, entry));
                        let mut dead: Vec<u32> = dead.map(|entry| entry.position.get()).collect();
                        dead.sort_unstable();
                        dead.dedup();
                        dead.iter().for_each(|&position| packed.push(position));
                    }
                    Ok(None) => {
                        lost.push(*record);
                        sequence = 0;
                    }
                    Err(error) => {
                        tracing::warn!(
                            segment = record.segment.0,
                            %error,
                            "a summary that a checkpoint needs cannot be read; it is tried again"
                        );
                        return Err(NotWritten::Unreadable);
                    }
                },
                // Reclaimed since: its list is of no generation.
                None => sequence = 0,
            }
            let supersedes = superseding.contains(&sequence);
            push_list(sink, record.segment, sequence, supersedes, packed.bytes()).await?;
            runtime::yield_now().await;
        }
        Ok(lost)
    }

    /// Returns the dead keys as the index has them, and those that copies outside the `superseding` segments supersede.
    fn dead_keys(&self, input: &CheckpointInput<'_>, superseding: &HashSet<u64>) -> Vec<DeadKey> {
        // In this order: a key goes from the index to the superseded ones.
        let keys = Mutex::new(Vec::new());
        (input.outdated)(&|key| keys.lock().push(key));
        let mut keys = std::mem::take(&mut *keys.lock());
        let outside = input.superseded.outside(superseding);
        let (_, before) = self.store.appender().live_segments();
        keys.extend(outside.into_iter().map(|(hash, version)| DeadKey {
            hash,
            version,
            before,
        }));
        keys
    }

    async fn survey(
        &self,
        chunks: &[ChunkRecords],
        next_version: u64,
        next_sequence: u64,
    ) -> Result<Survey, NotWritten> {
        let mut survey = Survey {
            dead: vec![0; self.store.table().segments() as usize],
            ..Survey::default()
        };
        for (number, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(number + 1);
            let before = next.map_or(next_sequence, |next| next.header.next_segment);
            chunk.each(&*self.journal.log, |record| match record {
                Record::Dead { .. } | Record::EntryLost { .. } => {
                    let listed = Listed::of(&record, &self.store.codec);
                    let segment = listed.map_or(usize::MAX, |listed| listed.segment.0 as usize);
                    if let Some(count) = survey.dead.get_mut(segment) {
                        survey.records += 1;
                        *count += 1;
                    }
                }
                Record::KeyLocated { hash, version } => {
                    let before = survey.dead_keys.len();
                    survey.located.insert((kept_hash(hash), version), before);
                }
                Record::KeyDead { hash, version } => {
                    survey.dead_keys.push(DeadKey {
                        hash: kept_hash(hash),
                        // The remains of an earlier chunk could name a version that does not exist yet.
                        version: version.min(next_version),
                        before,
                    });
                }
                _ => {}
            })?;
            runtime::yield_now().await;
        }
        Ok(survey)
    }

    /// Returns the sequence numbers of the written segments that are not in doubt: a power cut may take the others.
    pub(crate) fn durable_segments(&self) -> HashSet<u64> {
        let written = self.store.pool().written().into_iter();
        let durable = written.filter(|record| !self.store.table().is_doubtful(record.segment));
        durable.map(|record| record.sequence).collect()
    }

    /// Removes the keys that a copy with the same or a higher version in a `durable` segment supersedes. Reads only summaries
    /// that have not been searched before.
    async fn without_superseded(
        &self,
        mut keys: HashMap<u64, DeadKey>,
        durable: &HashSet<u64>,
    ) -> HashMap<u64, DeadKey> {
        let written = self.store.pool().written();
        let searched = std::mem::take(&mut *self.searched.lock());
        let mut now_searched = HashSet::new();
        for record in &written {
            if !durable.contains(&record.sequence) {
                // The keys stay until it is.
                continue;
            }
            let is_new = !searched.contains(&record.sequence);
            if is_new && !keys.is_empty() {
                let Some(_pin) = self.store.table().pin(record.segment, record.sequence) else {
                    continue;
                };
                let Ok(entries) = self.store.reader().read_summary(record).await else {
                    continue;
                };
                for entry in entries {
                    let hash = kept_hash(entry.hash.get());
                    let superseded = |key: &DeadKey| {
                        entry.version.get() >= key.version && record.sequence + 1 >= key.before
                    };
                    if keys.get(&hash).is_some_and(superseded) {
                        keys.remove(&hash);
                    }
                }
            }
            now_searched.insert(record.sequence);
        }
        *self.searched.lock() = now_searched;
        keys
    }
}

/// Counts and keys found in the chunks.
#[derive(Default)]
struct Survey {
    /// Number of DEAD and ENTRY LOST records.
    records: usize,
    /// Number of DEAD and ENTRY LOST records of each segment.
    dead: Vec<u32>,
    dead_keys: Vec<DeadKey>,
    /// Dead keys, by hash and version, all of whose copies are recorded by place. Applies to the keys of the last
    /// checkpoint and to the given number of keys at the front of `dead_keys`.
    located: HashMap<(u64, u64), usize>,
}

/// The live segments of a checkpoint, and the sequence numbers of those whose copies supersede dead keys.
#[derive(Clone, Copy)]
struct Lists<'a> {
    live: &'a [SegmentRecord],
    superseding: &'a HashSet<u64>,
}

async fn push(sink: &mut CheckpointSink, bytes: &[u8]) -> Result<(), NotWritten> {
    sink.push(bytes).await.ok_or(NotWritten::NoSegment)
}

/// Appends the list of a generation of a segment.
async fn push_list(
    sink: &mut CheckpointSink,
    segment: SegmentId,
    sequence: u64,
    supersedes: bool,
    dead: &[u8],
) -> Result<(), NotWritten> {
    let head = DeadList::encode_head(segment, sequence, supersedes, dead.len());
    push(sink, &head).await?;
    push(sink, dead).await
}

/// Appends keys whose copies are dead.
async fn push_keys(sink: &mut CheckpointSink, keys: &[DeadKey]) -> Result<(), NotWritten> {
    for batch in keys.chunks(KEYS_AT_ONCE) {
        push(sink, &DeadKey::batch(batch)).await?;
    }
    Ok(())
}

/// Appends the keys whose dead copies a running recovery has yet to find. Once it has ended, all these copies are
/// recorded by place.
async fn push_recovering(
    sink: &mut CheckpointSink,
    recovery: &RecoveryQueue,
) -> Result<(), NotWritten> {
    let key = |(hash, version)| DeadKey {
        hash,
        version,
        before: u64::MAX,
    };
    if let Some(dead) = recovery.dead() {
        let mut keys = dead.keys().map(key);
        loop {
            let batch: Vec<DeadKey> = keys.by_ref().take(KEYS_AT_ONCE).collect();
            if batch.is_empty() {
                break;
            }
            push(sink, &DeadKey::batch(&batch)).await?;
        }
    }
    for partition in 0..recovery.partitions() {
        let keys: Vec<DeadKey> = recovery.superseded(partition).keys().map(key).collect();
        push_keys(sink, &keys).await?;
    }
    Ok(())
}

/// Joins the dead keys of the last checkpoint with those of the journal, less those located since. Keeps the highest
/// version of each.
fn join_dead_keys(known: Vec<DeadKey>, survey: Survey) -> HashMap<u64, DeadKey> {
    let known_keys = known.len();
    let all = known.into_iter().chain(survey.dead_keys).enumerate();
    let is_left = |&(number, key): &(usize, DeadKey)| {
        let located = survey.located.get(&(key.hash, key.version));
        located.is_none_or(|&before| known_keys + before <= number)
    };
    let mut keys: HashMap<u64, DeadKey> = HashMap::new();
    for (_, key) in all.filter(is_left) {
        let known = keys.entry(key.hash).or_insert(key);
        if known.version <= key.version {
            *known = key;
        }
    }
    keys
}

/// Positions of a range of segments, grouped by segment.
struct PositionBatch {
    first: u32,
    len: usize,
    /// Runs by segment number, from `first` on.
    runs: Vec<Run>,
    positions: Vec<u32>,
}

/// Place of a segment's positions in the batch, and how far it has been filled.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Sequence number; 0 for a segment that is not in the range.
    sequence: u64,
    start: u32,
    filled: u32,
    end: u32,
}

impl PositionBatch {
    /// Returns an empty batch for as many segments at the front of `rest`, at least one, as have at most `most`
    /// positions together. `counts` has the positions of all segments.
    fn next(rest: &[SegmentRecord], counts: &[u32], most: usize) -> Self {
        let first = rest[0].segment.0;
        let (mut len, mut end) = (0, 0);
        let mut runs = Vec::new();
        for record in rest {
            let offset = record.segment.0 - first;
            let count = counts[record.segment.0 as usize];
            if len > 0 && ((end + count) as usize > most || offset >= BATCH_SPAN) {
                break;
            }
            runs.resize(offset as usize, Run::default());
            runs.push(Run {
                sequence: record.sequence,
                start: end,
                filled: end,
                end: end + count,
            });
            end += count;
            len += 1;
        }
        Self {
            first,
            len,
            runs,
            positions: vec![0; end as usize],
        }
    }

    /// Returns the number of segments in the range.
    fn len(&self) -> usize {
        self.len
    }

    /// Adds a position of a segment in the range if `is_generation` accepts the segment's sequence number.
    fn insert(&mut self, segment: SegmentId, position: u32, is_generation: impl Fn(u64) -> bool) {
        let offset = segment.0.wrapping_sub(self.first) as usize;
        if let Some(run) = self.runs.get_mut(offset)
            && run.filled < run.end
            && is_generation(run.sequence)
        {
            self.positions[run.filled as usize] = position;
            run.filled += 1;
        }
    }

    /// Returns the positions of a segment.
    fn of(&mut self, record: &SegmentRecord) -> &mut [u32] {
        let run = self.runs[(record.segment.0 - self.first) as usize];
        &mut self.positions[run.start as usize..run.filled as usize]
    }
}

/// The lists of the last checkpoint, by rising segment number.
struct LastLists {
    from: CheckpointSource,
    segment_bytes: u32,
    left: u32,
    next: Option<DeadList>,
}

impl LastLists {
    async fn open(
        store: &Arc<SegmentStore>,
        last: &SavedCheckpoint,
        partitions: u32,
    ) -> Result<Self, NotWritten> {
        let mut from = CheckpointSource::new(Arc::clone(store), last);
        let head = Head::read(&mut from, partitions, store.table().segments()).await?;
        let mut lists = Self {
            from,
            segment_bytes: store.table().segment_bytes(),
            left: head.living,
            next: None,
        };
        lists.advance().await?;
        Ok(lists)
    }

    async fn advance(&mut self) -> Result<(), NotWritten> {
        self.next = None;
        if self.left > 0 {
            self.left -= 1;
            let list = DeadList::read(&mut self.from, self.segment_bytes).await?;
            self.next = Some(list);
        }
        Ok(())
    }

    /// Returns the packed positions of a generation of a segment. Segments must be asked for in rising order.
    async fn take(&mut self, record: &SegmentRecord) -> Result<Vec<u8>, NotWritten> {
        while let Some(list) = self.next.take() {
            if list.segment > record.segment {
                self.next = Some(list);
                break;
            }
            self.advance().await?;
            if (list.segment, list.sequence) == (record.segment, record.sequence) {
                return Ok(list.dead);
            }
        }
        Ok(Vec::new())
    }

    /// Reads the dead keys, which follow the lists.
    async fn dead_keys(mut self) -> Result<Vec<DeadKey>, NotWritten> {
        while self.next.is_some() {
            self.advance().await?;
        }
        let mut keys = Vec::new();
        loop {
            let batch = DeadKey::read_batch(&mut self.from).await?;
            if batch.is_empty() {
                return Ok(keys);
            }
            keys.extend(batch);
        }
    }
}

impl From<ReadError> for NotWritten {
    fn from(error: ReadError) -> Self {
        tracing::warn!(%error, "the last checkpoint cannot be read");
        Self::Unreadable
    }
}

impl From<Damaged> for NotWritten {
    fn from(Damaged: Damaged) -> Self {
        tracing::error!(
            "a part of the journal is missing or damaged: what has died is read from flash and index"
        );
        Self::Unreadable
    }
}
