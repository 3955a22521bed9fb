//! What has died: the last checkpoint's lists and the journal's records, put together at a start.
//!
//! Everything here only ever kills. Lists are by segment and the low bits of its sequence number, so
//! that what a record says of an earlier life of a segment says nothing of a later one.

use std::collections::{BTreeSet, HashMap, HashSet};

use device::Journal as Log;

use super::location::LocationCodec;
use crate::format::checkpoint::unpack_positions;
use crate::format::item::is_expired;
use crate::format::journal::{Record, kept_hash};
use crate::format::segment::{Position, SummaryEntry};
use crate::horizon::Horizon;
use crate::journal::ChunkRecords;
use crate::key::KeyHash;
use crate::store::{CheckpointSource, ReadError, SegmentId, SegmentRecord};

/// Low bits of a life that a position is listed under.
const LIFE_MASK: u64 = (1 << 18) - 1;

/// What a checkpoint says of a segment that lived when it was written.
#[derive(Clone, Debug, Default)]
struct Living {
    sequence: u64,
    recent: Vec<u32>,
}

/// What has died.
#[derive(Debug, Default)]
pub(crate) struct Dead {
    /// Positions, by segment and the low bits of its sequence number.
    positions: HashMap<(u32, u64), HashSet<u32>>,
    segments: HashMap<u32, Vec<Option<u64>>>,
    /// First version of the run that has written them.
    hashes: HashMap<u64, u64>,
    retired: BTreeSet<u32>,
    /// What a checkpoint names; nothing when there is none.
    living: Option<HashMap<u32, Living>>,
    /// The sequence number that the first segment after the checkpoint has got.
    next_sequence: u64,
    /// Flush cutoff of each partition.
    pub(crate) cutoffs: Vec<u64>,
    flush: Option<Flush>,
    /// The latest Unix second that is known to have been.
    pub(crate) clock: u32,
}

/// How much a checkpoint says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointContents {
    /// Segments that lived when it was written.
    pub living: u64,
    /// Positions of items that had died in them.
    pub dead: u64,
    /// Positions of items that had been read.
    pub recent: u64,
    /// Segments used no more.
    pub retired: u64,
}

/// Whether an item found in a living segment is alive, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Alive,
    /// Its place is listed as dead.
    Displaced,
    /// A write during an earlier recovery has killed it.
    Overwritten,
    /// A `flush_all` has.
    Flushed,
    Expired,
}

/// A `flush_all` and the partitions that have applied it.
#[derive(Debug)]
struct Flush {
    deadline: u32,
    applied: HashSet<u32>,
}

impl Dead {
    /// Nothing is known to have died, in so many partitions.
    pub(crate) fn new(partitions: u32) -> Self {
        Self {
            cutoffs: vec![0; partitions as usize],
            ..Self::default()
        }
    }

    /// Reads a checkpoint, from behind its magic.
    pub(crate) async fn read_checkpoint(
        &mut self,
        from: &mut CheckpointSource,
    ) -> Result<CheckpointContents, ReadError> {
        let mut contents = CheckpointContents::default();
        self.clock = from.u32().await?;
        let deadline = from.u32().await?;
        if deadline != 0 {
            self.flush_at(deadline);
        }
        if from.u32().await? as usize != self.cutoffs.len() {
            return Err(from.nonsense());
        }
        for partition in 0..self.cutoffs.len() {
            self.cutoffs[partition] = from.u64().await?;
        }
        self.next_sequence = from.u64().await?;
        for _ in 0..from.u32().await? {
            let retired = from.u32().await?;
            self.retired.insert(retired);
            contents.retired += 1;
        }
        let mut living = HashMap::new();
        for _ in 0..from.u32().await? {
            let number = from.u32().await?;
            let sequence = from.u64().await?;
            let (dead_bytes, recent_bytes) = (from.u32().await?, from.u32().await?);
            let dead = from.bytes(dead_bytes as usize).await?;
            let dead = unpack_positions(&dead).map_err(|_| from.nonsense())?;
            let recent = from.bytes(recent_bytes as usize).await?;
            let recent = unpack_positions(&recent).map_err(|_| from.nonsense())?;
            contents.living += 1;
            contents.dead += dead.len() as u64;
            contents.recent += recent.len() as u64;
            if !dead.is_empty() {
                let key = (number, sequence & LIFE_MASK);
                self.positions.insert(key, dead.into_iter().collect());
            }
            living.insert(number, Living { sequence, recent });
        }
        self.living = Some(living);
        Ok(contents)
    }

    /// Adds what the records of a chunk say.
    pub(crate) fn read_chunk(&mut self, log: &dyn Log, chunk: &ChunkRecords, codec: LocationCodec) {
        chunk.each(log, |record| match record {
            Record::Dead { location, life } => {
                let location = codec.decode(location);
                let positions = self.positions.entry((location.segment.0, life));
                positions.or_default().insert(location.position.bits());
            }
            Record::SegmentDead { segment, life } => {
                self.segments.entry(segment).or_default().push(life);
            }
            Record::HashDead { hash } => {
                let first_version = self.hashes.entry(hash).or_default();
                *first_version = (*first_version).max(chunk.header.first_version);
            }
            Record::Retired { segment } => {
                self.retired.insert(segment);
            }
            Record::Cutoff { partition, version } => {
                if let Some(cutoff) = self.cutoffs.get_mut(partition as usize) {
                    *cutoff = version.max(*cutoff);
                }
                if let Some(flush) = &mut self.flush {
                    flush.applied.insert(partition);
                }
            }
            Record::FlushAt { deadline } => self.flush_at(deadline),
        });
    }

    fn flush_at(&mut self, deadline: u32) {
        self.flush = Some(Flush {
            deadline,
            applied: HashSet::new(),
        });
    }

    /// Applies a flush whose time has come by `now`: partitions that have not done so themselves had
    /// nothing to do since. Returns the deadline of one whose time has not.
    pub(crate) fn settle_flush(&mut self, now: u32, first_version: u64) -> Option<u32> {
        let flush = self.flush.take()?;
        if flush.deadline > now {
            return Some(flush.deadline);
        }
        for (partition, cutoff) in (0u32..).zip(&mut self.cutoffs) {
            if !flush.applied.contains(&partition) {
                *cutoff = first_version;
            }
        }
        None
    }

    /// Segments that are not used any more.
    pub(crate) fn retired(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.retired.iter().map(|&segment| SegmentId(segment))
    }

    /// Whether a life of a segment, found on flash, still counts.
    pub(crate) fn is_living(&self, record: &SegmentRecord) -> bool {
        let number = record.segment.0;
        let known = match &self.living {
            Some(living) if record.sequence < self.next_sequence => living
                .get(&number)
                .is_some_and(|known| known.sequence == record.sequence),
            _ => true,
        };
        let dead = self.segments.get(&number).is_some_and(|lives| {
            lives
                .iter()
                .any(|&life| life.is_none_or(|life| life == record.sequence))
        });
        known && !dead
    }

    /// What has died in a segment: how to ask, once for all of its items.
    pub(crate) fn of_segment(&self, record: &SegmentRecord) -> DeadItems<'_> {
        let number = record.segment.0;
        let living = self.living.as_ref().and_then(|living| living.get(&number));
        DeadItems {
            dead: self,
            positions: self.positions.get(&(number, record.sequence & LIFE_MASK)),
            recent: match living {
                Some(living) if living.sequence == record.sequence => &living.recent,
                _ => &[],
            },
        }
    }

    /// Bytes of memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let positions: usize = self.positions.values().map(HashSet::capacity).sum();
        let recent: usize = self
            .living
            .iter()
            .flat_map(HashMap::values)
            .map(|living| living.recent.capacity())
            .sum();
        (positions * 6 + recent * 4 + self.hashes.capacity() * 17) as u64
    }
}

/// What has died in one segment.
#[derive(Clone, Copy)]
pub(crate) struct DeadItems<'a> {
    dead: &'a Dead,
    positions: Option<&'a HashSet<u32>>,
    recent: &'a [u32],
}

impl DeadItems<'_> {
    /// Whether the item of a summary entry is alive at Unix second `now`. Whether there is a later one
    /// of its key, the index knows.
    pub(crate) fn judge(&self, entry: &SummaryEntry, horizon: &Horizon, now: u32) -> Verdict {
        let hash = KeyHash(entry.hash.get());
        let (version, expiry) = (entry.version.get(), entry.expiry.get());
        if self.has_position(Position::from_bits(entry.position.get())) {
            Verdict::Displaced
        } else if is_expired(expiry, now) {
            Verdict::Expired
        } else if !horizon.is_live(hash, version, expiry, now) {
            Verdict::Flushed
        } else if self.has_hash(hash, version) {
            Verdict::Overwritten
        } else {
            Verdict::Alive
        }
    }

    /// Whether the item at a position has died by itself, or its segment has.
    fn has_position(&self, position: Position) -> bool {
        self.positions
            .is_some_and(|positions| positions.contains(&position.bits()))
    }

    /// Whether a write during an earlier recovery has killed an item.
    fn has_hash(&self, hash: KeyHash, version: u64) -> bool {
        self.dead
            .hashes
            .get(&kept_hash(hash.0))
            .is_some_and(|&first_version| version < first_version)
    }

    /// Whether the item at a position had been read when the cache was stopped.
    pub(crate) fn is_recent(&self, position: Position) -> bool {
        self.recent.binary_search(&position.bits()).is_ok()
    }
}
