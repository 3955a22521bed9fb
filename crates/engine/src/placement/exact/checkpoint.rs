//! Writing a checkpoint: what has died in every living segment. See `docs/recovery.md`.
//!
//! Living segments go by rising number. Their lists are merged from three sources in the same order:
//! the last checkpoint, the journal's chunks before the cut, and (at an orderly stop) the index, which
//! tells what has been read. Chunks and index are gone through once for each range of segments, so that
//! no more than [`batch_entries`] positions are in memory at a time.

use std::collections::HashSet;

use super::Exact;
use crate::format::FormatError;
use crate::format::checkpoint::{MAGIC, Packer, Positions, Writer};
use crate::format::journal::{Record, is_life};
use crate::journal::ChunkRecords;
use crate::store::{
    CHECKPOINT_STREAM_BYTES, CheckpointSink, CheckpointSource, ReadError, SavedCheckpoint,
    SegmentRecord,
};

/// Positions held in memory at once, at least.
const BATCH_ENTRIES: usize = 1 << 15;
/// Segment numbers that a range spans at most.
const BATCH_SPAN: u32 = 1 << 15;

/// Times that a checkpoint is begun, at most.
const MAX_TRIES: usize = 4;

/// What a checkpoint says beside the lists.
#[derive(Clone, Debug)]
pub struct CheckpointHead {
    /// The latest Unix second.
    pub clock: u32,
    /// A flush whose time has not come.
    pub flush_deadline: Option<u32>,
    /// Flush cutoff of each partition.
    pub cutoffs: Vec<u64>,
}

/// A checkpoint, and what it took.
pub struct Written {
    /// Where it is.
    pub saved: SavedCheckpoint,
    /// Bytes written to flash.
    pub flash_bytes: u64,
}

/// Bytes of memory that writing a checkpoint takes.
pub(super) fn memory_bytes(segments: u32, journal_bytes: u64) -> u64 {
    let batch = batch_entries((journal_bytes / 8) as usize) * size_of::<u32>();
    let places = BATCH_SPAN.min(segments) as usize * size_of::<Place>();
    let counts = segments as usize * size_of::<u32>();
    (batch + places + counts) as u64 + CHECKPOINT_STREAM_BYTES
}

/// Positions held in memory at once for so many records: few enough passes, little enough memory.
fn batch_entries(records: usize) -> usize {
    BATCH_ENTRIES.max(records / 8)
}

/// Writes a checkpoint of what the chunks before `end` say and what `last` said. It goes elsewhere when a
/// block fails under it.
pub(crate) async fn write(
    exact: &Exact,
    head: &CheckpointHead,
    end: u64,
    last: Option<&SavedCheckpoint>,
    with_recency: bool,
) -> Option<Written> {
    for _ in 0..MAX_TRIES {
        let mut sink = CheckpointSink::new(exact.store.clone());
        let filled = fill(exact, &mut sink, head, end, last, with_recency).await;
        let flash_bytes = sink.flash_bytes();
        let saved = sink.saved();
        if filled.is_some() {
            return Some(Written { saved, flash_bytes });
        }
        let has_bad = exact.store.free_checkpoint(&saved.segments);
        if !has_bad {
            break;
        }
    }
    None
}

async fn fill(
    exact: &Exact,
    sink: &mut CheckpointSink,
    head: &CheckpointHead,
    end: u64,
    last: Option<&SavedCheckpoint>,
    with_recency: bool,
) -> Option<()> {
    let (mut living, next_sequence) = exact.store.living();
    let chunks = exact.journal.before(end);
    let survey = survey(exact, &chunks).await;
    // Dead by the journal, whatever the store still says of it.
    living.retain(|record| {
        !survey
            .dead_segments
            .contains(&(record.segment.0, record.sequence))
    });
    let mut out = Writer::new();
    out.u64(MAGIC);
    out.u32(head.clock);
    out.u32(head.flush_deadline.unwrap_or(0));
    out.u32(head.cutoffs.len() as u32);
    for &cutoff in &head.cutoffs {
        out.u64(cutoff);
    }
    out.u64(next_sequence);
    let retired = exact.store.retired();
    out.u32(retired.len() as u32);
    for segment in retired {
        out.u32(segment.0);
    }
    out.u32(living.len() as u32);
    sink.push(out.bytes()).await?;
    let mut before = match last {
        Some(last) => Some(Lists::open(exact, last).await.ok()?),
        None => None,
    };
    let recent_counts = with_recency.then(|| count_recent(exact));
    let most = batch_entries(survey.records);
    let (mut dead, mut recent) = (Packer::default(), Packer::default());
    let mut rest = &living[..];
    while !rest.is_empty() {
        let range = next_range(rest, most, |segment| {
            let recent = recent_counts.as_ref().map_or(0, |counts| counts[segment]);
            (survey.dead[segment] + recent) as usize
        });
        let mut dead_batch = Batch::new(&rest[..range], &survey.dead);
        for chunk in &chunks {
            dead_batch.take_dead(exact, chunk);
            runtime::yield_now().await;
        }
        let mut recent_batch = recent_counts
            .as_ref()
            .map(|counts| Batch::new(&rest[..range], counts));
        if let Some(batch) = &mut recent_batch {
            batch.take_recent(exact);
        }
        for record in &rest[..range] {
            let before = match &mut before {
                Some(before) => before.take(record).await.ok()?,
                None => Vec::new(),
            };
            dead.clear();
            merge(&mut dead, &before, dead_batch.of(record)).ok()?;
            recent.clear();
            if let Some(batch) = &mut recent_batch {
                merge(&mut recent, &[], batch.of(record)).ok()?;
            }
            let mut out = Writer::new();
            out.u32(record.segment.0);
            out.u64(record.sequence);
            out.u32(dead.bytes().len() as u32);
            out.u32(recent.bytes().len() as u32);
            sink.push(out.bytes()).await?;
            sink.push(dead.bytes()).await?;
            sink.push(recent.bytes()).await?;
        }
        rest = &rest[range..];
    }
    sink.finish().await
}

/// What the chunks hold.
struct Survey {
    /// DEAD records.
    records: usize,
    /// Of them, by segment.
    dead: Vec<u32>,
    dead_segments: HashSet<(u32, u64)>,
}

async fn survey(exact: &Exact, chunks: &[ChunkRecords]) -> Survey {
    let mut survey = Survey {
        records: 0,
        dead: vec![0; exact.store.segments() as usize],
        dead_segments: HashSet::new(),
    };
    for chunk in chunks {
        chunk.each(exact.journal.log(), |record| match record {
            Record::Dead { location, .. } => {
                let segment = exact.codec.decode(location).segment.0;
                if let Some(count) = survey.dead.get_mut(segment as usize) {
                    survey.records += 1;
                    *count += 1;
                }
            }
            Record::SegmentDead { segment, life } => {
                survey.dead_segments.insert((segment, life));
            }
            _ => {}
        });
        runtime::yield_now().await;
    }
    survey
}

/// How many items have been read since they were written, by segment.
fn count_recent(exact: &Exact) -> Vec<u32> {
    let mut counts = vec![0; exact.store.segments() as usize];
    exact.each_entry(|value, recent| {
        let segment = exact.codec.decode(value).segment.0;
        counts[segment as usize] += u32::from(recent);
    });
    counts
}

/// How many segments at the front of `rest` can be collected at once, at least one.
fn next_range(rest: &[SegmentRecord], most: usize, count: impl Fn(usize) -> usize) -> usize {
    let first = rest[0].segment.0;
    let mut entries = 0;
    for (number, record) in rest.iter().enumerate() {
        entries += count(record.segment.0 as usize);
        if entries > most || record.segment.0 - first >= BATCH_SPAN {
            return number.max(1);
        }
    }
    rest.len()
}

/// The positions of a range of segments, each segment's together.
struct Batch {
    first: u32,
    /// By segment number, from `first` on.
    places: Vec<Place>,
    positions: Vec<u32>,
}

/// Where the positions of a segment are, and how far they have been filled in.
#[derive(Clone, Copy, Default)]
struct Place {
    /// 0 for a segment that is not listed.
    sequence: u64,
    start: u32,
    filled: u32,
    end: u32,
}

impl Batch {
    fn new(range: &[SegmentRecord], counts: &[u32]) -> Self {
        let first = range[0].segment.0;
        let span = range[range.len() - 1].segment.0 - first + 1;
        let mut places = vec![Place::default(); span as usize];
        let mut end = 0;
        for record in range {
            let start = end;
            end += counts[record.segment.0 as usize];
            places[(record.segment.0 - first) as usize] = Place {
                sequence: record.sequence,
                start,
                filled: start,
                end,
            };
        }
        Self {
            first,
            places,
            positions: vec![0; end as usize],
        }
    }

    fn take_dead(&mut self, exact: &Exact, chunk: &ChunkRecords) {
        chunk.each(exact.journal.log(), |record| {
            if let Record::Dead { location, life } = record {
                self.insert(exact, location, |sequence| is_life(life, sequence));
            }
        });
    }

    fn take_recent(&mut self, exact: &Exact) {
        exact.each_entry(|value, recent| {
            if recent {
                self.insert(exact, value, |_| true);
            }
        });
    }

    fn insert(&mut self, exact: &Exact, packed: u64, is_life: impl Fn(u64) -> bool) {
        let location = exact.codec.decode(packed);
        let place = location.segment.0.wrapping_sub(self.first) as usize;
        if let Some(place) = self.places.get_mut(place)
            && place.filled < place.end
            && is_life(place.sequence)
        {
            self.positions[place.filled as usize] = location.position.bits();
            place.filled += 1;
        }
    }

    fn of(&mut self, record: &SegmentRecord) -> &mut [u32] {
        let place = self.places[(record.segment.0 - self.first) as usize];
        &mut self.positions[place.start as usize..place.filled as usize]
    }
}

/// Packs the positions of a packed list and some more, each once.
fn merge(out: &mut Packer, before: &[u8], more: &mut [u32]) -> Result<(), FormatError> {
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
struct Lists {
    from: CheckpointSource,
    left: u32,
    next: Option<(u32, u64, Vec<u8>)>,
}

impl Lists {
    async fn open(exact: &Exact, last: &SavedCheckpoint) -> Result<Self, ReadError> {
        let mut from = exact.store.open_checkpoint(last);
        if from.u64().await? != MAGIC {
            return Err(from.nonsense());
        }
        let (_clock, _flush) = (from.u32().await?, from.u32().await?);
        for _ in 0..from.u32().await? {
            let _cutoff = from.u64().await?;
        }
        let _next_sequence = from.u64().await?;
        for _ in 0..from.u32().await? {
            let _retired = from.u32().await?;
        }
        let left = from.u32().await?;
        let mut lists = Self {
            from,
            left,
            next: None,
        };
        lists.advance().await?;
        Ok(lists)
    }

    async fn advance(&mut self) -> Result<(), ReadError> {
        self.next = None;
        if self.left > 0 {
            self.left -= 1;
            let from = &mut self.from;
            let (number, sequence) = (from.u32().await?, from.u64().await?);
            let (dead_bytes, recent_bytes) = (from.u32().await?, from.u32().await?);
            let dead = from.bytes(dead_bytes as usize).await?;
            let _recent = from.bytes(recent_bytes as usize).await?;
            self.next = Some((number, sequence, dead));
        }
        Ok(())
    }

    /// The packed positions listed for a life of a segment; segments are asked for in rising order.
    async fn take(&mut self, record: &SegmentRecord) -> Result<Vec<u8>, ReadError> {
        while let Some((number, sequence, dead)) = self.next.take() {
            if number > record.segment.0 {
                self.next = Some((number, sequence, dead));
                break;
            }
            self.advance().await?;
            if number == record.segment.0 && sequence == record.sequence {
                return Ok(dead);
            }
        }
        Ok(Vec::new())
    }
}
