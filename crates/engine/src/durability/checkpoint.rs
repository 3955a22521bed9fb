//! Writing a checkpoint: what has died in every live segment, and the placement's section. See
//! `docs/recovery.md`.
//!
//! Live segments go by rising number. Their lists are merged from two sources in the same order: the last
//! checkpoint and the journal's chunks before the cut. Chunks are gone through once for each range of segments,
//! so that no more than [`batch_positions`] positions are in memory at a time.
//!
//! A dead key stays in the list until no dead copy of it can be left. Segments that could hold one are those that had
//! been opened when the next chunk of the journal was begun. Either all of them are gone, or a copy with the key's
//! version or a higher one is durable in a segment that is not older than any of them: placements whose displaced
//! copies are known by key alone reclaim in order of age, so that this copy goes last.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::journal::{ChunkRecords, Journal};
use crate::format::FormatError;
use crate::format::checkpoint::{DeadKey, DeadList, Head, Packer, Positions, Section};
use crate::format::journal::{Record, is_generation, kept_hash};
use crate::format::segment::SegmentId;
use crate::store::{
    CHECKPOINT_STREAM_BYTES, CheckpointSink, CheckpointSource, ReadError, SavedCheckpoint,
    SegmentRecord, SegmentStore,
};

/// Positions held in memory at once, at least.
const BATCH_POSITIONS: usize = 1 << 15;
/// Segment numbers that a range spans at most.
const BATCH_SPAN: u32 = 1 << 15;
/// Times that a checkpoint is begun, at most: its blocks may go bad under it.
const MAX_TRIES: usize = 4;

/// What a checkpoint is made of beside the journal and the store.
pub(crate) struct CheckpointInput<'a> {
    /// Clock, pending flush and cutoffs.
    pub(crate) head: Head,
    /// The journal's chunks before this sequence number are in the checkpoint.
    pub(crate) end: u64,
    /// Versions that have been given out are lower.
    pub(crate) next_version: u64,
    /// The checkpoint that is in force.
    pub(crate) last: Option<&'a SavedCheckpoint>,
    pub(crate) section: Section,
    /// Whether displaced copies are known by key alone.
    pub(crate) keeps_dead_keys: bool,
}

/// Writes checkpoints of one store and its journal.
pub(crate) struct Checkpointer {
    store: Arc<SegmentStore>,
    journal: Arc<Journal>,
    /// Generations of segments in whose summaries superseding copies have been looked for.
    searched: Mutex<HashSet<u64>>,
    /// Segments declared dead that the store still has: the record is retired with the first checkpoint after it.
    dead_segments: Mutex<HashSet<(u32, u64)>>,
}

/// Bytes of memory that writing a checkpoint takes.
pub(crate) fn memory_bytes(segments: u32, journal_bytes: u64) -> u64 {
    let batch = batch_positions((journal_bytes / 8) as usize) * size_of::<u32>();
    let places = BATCH_SPAN.min(segments) as usize * size_of::<Run>();
    let counts = segments as usize * size_of::<u32>();
    (batch + places + counts) as u64 + CHECKPOINT_STREAM_BYTES
}

/// Positions held in memory at once for this many records: few enough passes, little enough memory.
pub(crate) fn batch_positions(records: usize) -> usize {
    BATCH_POSITIONS.max(records / 8)
}

impl Checkpointer {
    pub(crate) fn new(store: Arc<SegmentStore>, journal: Arc<Journal>) -> Self {
        Self {
            store,
            journal,
            searched: Mutex::default(),
            dead_segments: Mutex::default(),
        }
    }

    /// Writes a checkpoint; returns where it lies, and the bytes written to flash for it. It goes elsewhere when a
    /// block fails under it. `None` when there is no free segment for it, or the device fails.
    pub(crate) async fn write(
        &self,
        input: &CheckpointInput<'_>,
    ) -> Option<(SavedCheckpoint, u64)> {
        for _ in 0..MAX_TRIES {
            let mut sink = CheckpointSink::new(Arc::clone(&self.store));
            let filled = self.fill(&mut sink, input).await;
            if filled.is_some() {
                return Some((sink.saved, sink.flash_bytes));
            }
            if !self.store.free_checkpoint(&sink.saved.segments) {
                break;
            }
        }
        None
    }

    async fn fill(&self, sink: &mut CheckpointSink, input: &CheckpointInput<'_>) -> Option<()> {
        let (mut live, next_sequence) = self.store.live_segments();
        let chunks = self.journal.before(input.end);
        let survey = self
            .survey(&chunks, input.next_version, next_sequence)
            .await;
        // The journal decides, whatever the store still says of a segment.
        let dead_segments = {
            let mut known = self.dead_segments.lock();
            known.extend(&survey.dead_segments);
            known.clone()
        };
        let generation = |record: &SegmentRecord| (record.segment.0, record.sequence);
        let there: HashSet<_> = live.iter().map(generation).collect();
        live.retain(|record| !dead_segments.contains(&generation(record)));
        let mut before = match input.last {
            Some(last) => Some(LastLists::open(&self.store, last).await.ok()?),
            None => None,
        };
        let dead_keys = if input.keeps_dead_keys {
            let known = before.as_ref().map_or(&[][..], |before| &before.dead_keys);
            let keys = join_dead_keys(known, survey.dead_keys);
            self.without_superseded(keys, &live).await
        } else {
            Vec::new()
        };
        let head = Head {
            next_sequence,
            retired: self.store.retired(),
            dead_keys,
            living: live.len() as u32,
            ..input.head.clone()
        };
        sink.push(&head.encode()).await?;
        let most = batch_positions(survey.records);
        let mut packed = Packer::default();
        let mut rest = &live[..];
        while !rest.is_empty() {
            let mut batch = PositionBatch::next(rest, &survey.dead, most);
            for chunk in &chunks {
                chunk.each(&*self.journal.log, |record| {
                    if let Record::Dead {
                        location,
                        generation,
                    } = record
                    {
                        let (segment, position) = self.store.codec.decode(location);
                        batch.insert(segment, position.bits(), |sequence| {
                            is_generation(generation, sequence)
                        });
                    }
                });
                runtime::yield_now().await;
            }
            let (range, after) = rest.split_at(batch.len());
            for record in range {
                let known = match &mut before {
                    Some(before) => before.take(record).await.ok()?,
                    None => Vec::new(),
                };
                packed.clear();
                merge(&mut packed, &known, batch.of(record)).ok()?;
                let dead = packed.bytes();
                sink.push(&DeadList::encode_head(
                    record.segment,
                    record.sequence,
                    dead.len(),
                ))
                .await?;
                sink.push(dead).await?;
            }
            rest = after;
        }
        sink.push(&input.section.encode_head()).await?;
        sink.push(&input.section.bytes).await?;
        sink.finish().await?;
        // A generation that the store no longer has does not come back.
        let mut known = self.dead_segments.lock();
        known.retain(|dead| there.contains(dead));
        Some(())
    }

    async fn survey(
        &self,
        chunks: &[ChunkRecords],
        next_version: u64,
        next_sequence: u64,
    ) -> Survey {
        let mut survey = Survey {
            dead: vec![0; self.store.segments() as usize],
            ..Survey::default()
        };
        for (number, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(number + 1);
            let before = next.map_or(next_sequence, |next| next.header.next_segment);
            chunk.each(&*self.journal.log, |record| match record {
                Record::Dead { location, .. } => {
                    let (segment, _) = self.store.codec.decode(location);
                    if let Some(count) = survey.dead.get_mut(segment.0 as usize) {
                        survey.records += 1;
                        *count += 1;
                    }
                }
                Record::SegmentDead {
                    segment,
                    generation,
                } => {
                    survey.dead_segments.insert((segment, generation));
                }
                Record::KeyDead { hash, version } => {
                    survey.dead_keys.push(DeadKey {
                        hash: kept_hash(hash),
                        // What is left of an earlier chunk could say more than any version there is.
                        version: version.min(next_version),
                        before,
                    });
                }
                _ => {}
            });
            runtime::yield_now().await;
        }
        survey
    }

    /// Leaves out the keys of which no dead copy can be left, or a copy that is not lower is durable in a
    /// segment that has not been searched yet.
    async fn without_superseded(
        &self,
        mut keys: HashMap<u64, DeadKey>,
        live: &[SegmentRecord],
    ) -> Vec<DeadKey> {
        let oldest = live.iter().map(|record| record.sequence).min();
        keys.retain(|_, key| oldest.is_some_and(|oldest| oldest < key.before));
        let written = self.store.written();
        let searched = std::mem::take(&mut *self.searched.lock());
        let mut now_searched = HashSet::new();
        for record in &written {
            let is_new = !searched.contains(&record.sequence);
            if is_new && !keys.is_empty() {
                let Some(_pin) = self.store.pin(record.segment, record.sequence) else {
                    continue;
                };
                let Ok(entries) = self.store.read_summary(record).await else {
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
        let mut keys: Vec<DeadKey> = keys.into_values().collect();
        keys.sort_unstable_by_key(|key| key.hash);
        keys
    }
}

/// What the chunks hold.
#[derive(Default)]
struct Survey {
    /// DEAD records in all.
    records: usize,
    /// DEAD records of each segment.
    dead: Vec<u32>,
    dead_segments: HashSet<(u32, u64)>,
    dead_keys: Vec<DeadKey>,
}

/// The keys that the last checkpoint listed with those of the journal: of each the highest version.
fn join_dead_keys(known: &[DeadKey], new: Vec<DeadKey>) -> HashMap<u64, DeadKey> {
    let mut keys: HashMap<u64, DeadKey> = known.iter().map(|&key| (key.hash, key)).collect();
    for key in new {
        let known = keys.entry(key.hash).or_insert(key);
        if known.version <= key.version {
            *known = key;
        }
    }
    keys
}

/// Positions of a range of segments, each segment's together.
pub(crate) struct PositionBatch {
    first: u32,
    len: usize,
    /// By segment number, from `first` on.
    runs: Vec<Run>,
    positions: Vec<u32>,
}

/// Where the positions of a segment are, and how far they have been filled in.
#[derive(Clone, Copy, Default)]
struct Run {
    /// 0 for a segment that is not in the range.
    sequence: u64,
    start: u32,
    filled: u32,
    end: u32,
}

impl PositionBatch {
    /// An empty batch for as many of the segments at the front of `rest`, at least one, as have no more than
    /// `most` positions by the `counts` of all segments.
    pub(crate) fn next(rest: &[SegmentRecord], counts: &[u32], most: usize) -> Self {
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

    /// Segments in the range.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a position of a segment in the range if `is_generation` of the segment's sequence number.
    pub(crate) fn insert(
        &mut self,
        segment: SegmentId,
        position: u32,
        is_generation: impl Fn(u64) -> bool,
    ) {
        let offset = segment.0.wrapping_sub(self.first) as usize;
        if let Some(run) = self.runs.get_mut(offset)
            && run.filled < run.end
            && is_generation(run.sequence)
        {
            self.positions[run.filled as usize] = position;
            run.filled += 1;
        }
    }

    /// The positions of a segment.
    pub(crate) fn of(&mut self, record: &SegmentRecord) -> &mut [u32] {
        let run = self.runs[(record.segment.0 - self.first) as usize];
        &mut self.positions[run.start as usize..run.filled as usize]
    }
}

/// Packs the positions of a packed list and some more, each once.
pub(crate) fn merge(out: &mut Packer, before: &[u8], more: &mut [u32]) -> Result<(), FormatError> {
    more.sort_unstable();
    let mut more = more.iter().copied().peekable();
    let mut last = None;
    let mut push = |position: u32| {
        if last != Some(position) {
            last = Some(position);
            out.push(position);
        }
    };
    for position in Positions::of(before) {
        let position = position?;
        while let Some(smaller) = more.next_if(|&next| next < position) {
            push(smaller);
        }
        push(position);
    }
    more.for_each(push);
    Ok(())
}

/// The lists of the last checkpoint, in rising order of their segments.
struct LastLists {
    from: CheckpointSource,
    dead_keys: Vec<DeadKey>,
    left: u32,
    next: Option<DeadList>,
}

impl LastLists {
    async fn open(store: &Arc<SegmentStore>, last: &SavedCheckpoint) -> Result<Self, ReadError> {
        let mut from = store.open_checkpoint(last);
        let head = Head::read(&mut from).await?;
        let mut lists = Self {
            from,
            dead_keys: head.dead_keys,
            left: head.living,
            next: None,
        };
        lists.advance().await?;
        Ok(lists)
    }

    async fn advance(&mut self) -> Result<(), ReadError> {
        self.next = None;
        if self.left > 0 {
            self.left -= 1;
            self.next = Some(DeadList::read(&mut self.from).await?);
        }
        Ok(())
    }

    /// The packed positions listed for a generation of a segment; segments are asked for in rising order.
    async fn take(&mut self, record: &SegmentRecord) -> Result<Vec<u8>, ReadError> {
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
}
