//! Writing a checkpoint: what has died in every living segment. See `docs/recovery.md`.
//!
//! Living segments go by rising number. Their lists are merged from three sources in the same order:
//! the last checkpoint, the journal's chunks before the cut, and (at an orderly stop) the index, which
//! tells what has been read. Chunks and index are gone through once for each range of segments, so that
//! no more than [`MERGE_ENTRIES`] are in memory at a time.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Exact;
use crate::format::checkpoint::{MAGIC, Writer, pack_positions, unpack_positions};
use crate::format::journal::{Record, is_life};
use crate::journal::ChunkRecords;
use crate::store::{CheckpointSink, CheckpointSource, ReadError, SavedCheckpoint, SegmentRecord};

/// Positions held in memory at once.
const MERGE_ENTRIES: usize = 1 << 18;

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

/// A segment and what is known of it.
struct Listed {
    record: SegmentRecord,
    dead: Vec<u32>,
    recent: Vec<u32>,
}

/// Writes a checkpoint of what the chunks before `end` say and what `last` said.
pub(crate) async fn write(
    exact: &Exact,
    head: &CheckpointHead,
    end: u64,
    last: Option<&SavedCheckpoint>,
    with_recency: bool,
) -> Option<SavedCheckpoint> {
    let mut sink = CheckpointSink::new(exact.store.clone());
    if fill(exact, &mut sink, head, end, last, with_recency)
        .await
        .is_some()
    {
        return Some(sink.saved());
    }
    exact.store.free_checkpoint(&sink.saved().segments);
    None
}

/// Chunks that have been gone through need not stay in memory.
fn let_go(exact: &Exact, chunks: &[ChunkRecords]) {
    for chunk in chunks {
        chunk.let_go(exact.journal.log());
    }
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
    drop_dead_segments(exact, &chunks, &mut living);
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
    let counts = count(exact, &chunks, with_recency);
    let mut rest = &living[..];
    while !rest.is_empty() {
        let range = next_range(rest, &counts);
        let mut listed: BTreeMap<u32, Listed> = rest[..range]
            .iter()
            .map(|&record| {
                let listed = Listed {
                    record,
                    dead: Vec::new(),
                    recent: Vec::new(),
                };
                (record.segment.0, listed)
            })
            .collect();
        rest = &rest[range..];
        collect_dead(exact, &chunks, &mut listed);
        if with_recency {
            collect_recent(exact, &mut listed);
        }
        for listed in listed.values_mut() {
            if let Some(before) = &mut before {
                let dead = before.take(&listed.record).await.ok()?;
                listed.dead.extend(dead);
            }
            sink.push(pack(listed).bytes()).await?;
        }
    }
    let_go(exact, &chunks);
    sink.finish().await
}

fn pack(listed: &mut Listed) -> Writer {
    listed.dead.sort_unstable();
    listed.dead.dedup();
    listed.recent.sort_unstable();
    let dead = pack_positions(&listed.dead);
    let recent = pack_positions(&listed.recent);
    let mut out = Writer::new();
    out.u32(listed.record.segment.0);
    out.u64(listed.record.sequence);
    out.u32(dead.len() as u32);
    out.u32(recent.len() as u32);
    out.raw(&dead);
    out.raw(&recent);
    out
}

/// A segment that the journal declares dead is not listed, whatever the store still says of it.
fn drop_dead_segments(exact: &Exact, chunks: &[ChunkRecords], living: &mut Vec<SegmentRecord>) {
    let mut dead: HashSet<(u32, u64)> = HashSet::new();
    for chunk in chunks {
        chunk.each(exact.journal.log(), |record| {
            if let Record::SegmentDead {
                segment,
                life: Some(life),
            } = record
            {
                dead.insert((segment, life));
            }
        });
    }
    living.retain(|record| !dead.contains(&(record.segment.0, record.sequence)));
}

/// How many positions there may be of each segment.
fn count(exact: &Exact, chunks: &[ChunkRecords], with_recency: bool) -> HashMap<u32, usize> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for chunk in chunks {
        chunk.each(exact.journal.log(), |record| {
            if let Record::Dead { location, .. } = record {
                *counts
                    .entry(exact.codec.decode(location).segment.0)
                    .or_default() += 1;
            }
        });
    }
    if with_recency {
        exact.each_entry(|value, recent| {
            if recent {
                *counts
                    .entry(exact.codec.decode(value).segment.0)
                    .or_default() += 1;
            }
        });
    }
    counts
}

/// How many segments at the front of `rest` can be collected at once, at least one.
fn next_range(rest: &[SegmentRecord], counts: &HashMap<u32, usize>) -> usize {
    let mut entries = 0;
    for (number, record) in rest.iter().enumerate() {
        entries += counts.get(&record.segment.0).copied().unwrap_or(0);
        if entries > MERGE_ENTRIES {
            return number.max(1);
        }
    }
    rest.len()
}

fn collect_dead(exact: &Exact, chunks: &[ChunkRecords], listed: &mut BTreeMap<u32, Listed>) {
    for chunk in chunks {
        chunk.each(exact.journal.log(), |record| {
            let Record::Dead { location, life } = record else {
                return;
            };
            let location = exact.codec.decode(location);
            if let Some(listed) = listed.get_mut(&location.segment.0)
                && is_life(life, listed.record.sequence)
            {
                listed.dead.push(location.position.bits());
            }
        });
    }
}

fn collect_recent(exact: &Exact, listed: &mut BTreeMap<u32, Listed>) {
    exact.each_entry(|value, recent| {
        if recent {
            let location = exact.codec.decode(value);
            if let Some(listed) = listed.get_mut(&location.segment.0) {
                listed.recent.push(location.position.bits());
            }
        }
    });
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

    /// The positions listed for a life of a segment; segments are asked for in rising order.
    async fn take(&mut self, record: &SegmentRecord) -> Result<Vec<u32>, ReadError> {
        while let Some((number, sequence, dead)) = self.next.take() {
            if number > record.segment.0 {
                self.next = Some((number, sequence, dead));
                break;
            }
            self.advance().await?;
            if number == record.segment.0 && sequence == record.sequence {
                return unpack_positions(&dead).map_err(|_| self.from.nonsense());
            }
        }
        Ok(Vec::new())
    }
}
