//! What has died: the last checkpoint's lists and the journal's records, put together at a start.
//!
//! Everything here only ever kills. Lists are by segment and the low bits of its sequence number, so
//! that what a record says of an earlier life of a segment says nothing of a later one. They stay as
//! packed as they were written; one segment's are unpacked into a bit for each unit of it.

use std::collections::{BTreeSet, HashMap, HashSet};

use device::Journal as Log;

use super::location::LocationCodec;
use crate::format::checkpoint::Positions;
use crate::format::item::is_expired;
use crate::format::journal::{LIFE_BITS, Record, is_life, kept_chunk, kept_hash};
use crate::format::segment::{Position, SummaryEntry};
use crate::horizon::Horizon;
use crate::journal::ChunkRecords;
use crate::key::KeyHash;
use crate::store::{CheckpointSource, ReadError, SegmentId, SegmentRecord, SegmentStore};

/// What a checkpoint says of a segment that lived when it was written: packed positions.
#[derive(Debug, Default)]
struct Living {
    sequence: u64,
    dead: Box<[u8]>,
    recent: Box<[u8]>,
}

/// What has died.
#[derive(Debug)]
pub(crate) struct Dead {
    codec: LocationCodec,
    /// Packed locations above the low bits of a life, as journalled; sorted by
    /// [`sort`](Self::sort).
    places: Vec<u64>,
    /// Segments, with the sequence numbers of their dead lives.
    segments: HashSet<(u32, u64)>,
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
    /// Nothing is known to have died, in so many partitions of a `store`.
    pub(crate) fn new(partitions: u32, store: &SegmentStore) -> Self {
        Self {
            codec: LocationCodec::new(store.segments(), store.segment_bytes()),
            places: Vec::new(),
            segments: HashSet::new(),
            hashes: HashMap::new(),
            retired: BTreeSet::new(),
            living: None,
            next_sequence: 0,
            cutoffs: vec![0; partitions as usize],
            flush: None,
            clock: 0,
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
            let dead: Box<[u8]> = from.bytes(dead_bytes as usize).await?.into();
            let recent: Box<[u8]> = from.bytes(recent_bytes as usize).await?.into();
            let count = |packed: &[u8]| {
                Positions::of(packed).try_fold(0, |count, position| position.map(|_| count + 1))
            };
            contents.living += 1;
            contents.dead += count(&dead).map_err(|_| from.nonsense())?;
            contents.recent += count(&recent).map_err(|_| from.nonsense())?;
            let known = Living {
                sequence,
                dead,
                recent,
            };
            living.insert(number, known);
        }
        self.living = Some(living);
        Ok(contents)
    }

    /// Adds what the records of a chunk say.
    pub(crate) fn read_chunk(&mut self, log: &dyn Log, chunk: &ChunkRecords) {
        chunk.each(log, |record| match record {
            Record::Dead { location, life } => self.places.push(location << LIFE_BITS | life),
            Record::SegmentDead { segment, life } => {
                self.segments.insert((segment, life));
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
            Record::FlushAt {
                deadline,
                chunk: number,
            } => {
                if number == kept_chunk(chunk.header.sequence) {
                    self.flush_at(deadline);
                }
            }
        });
    }

    /// All has been read.
    pub(crate) fn sort(&mut self) {
        self.places.sort_unstable();
        self.places.dedup();
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
        let dead = self.segments.contains(&(number, record.sequence));
        known && !dead
    }

    /// What has died in a segment: how to ask, once for all of its items.
    pub(crate) fn of_segment(&self, record: &SegmentRecord) -> DeadItems<'_> {
        let number = record.segment.0;
        let living = self.living.as_ref().and_then(|living| living.get(&number));
        let mut items = DeadItems {
            dead: self,
            positions: PositionSet::of(self.codec.units_per_segment()),
            recent: PositionSet::of(self.codec.units_per_segment()),
        };
        if let Some(living) = living.filter(|living| living.sequence == record.sequence) {
            for position in Positions::of(&living.dead).flatten() {
                items.positions.insert(position);
            }
            for position in Positions::of(&living.recent).flatten() {
                items.recent.insert(position);
            }
        }
        for locations in self.codec.locations_of(record.segment) {
            let from = self
                .places
                .partition_point(|&place| place >> LIFE_BITS < locations.start);
            for &place in &self.places[from..] {
                let location = place >> LIFE_BITS;
                if location >= locations.end {
                    break;
                }
                if is_life(place, record.sequence) {
                    let position = self.codec.decode(location).position;
                    items.positions.insert(position.bits());
                }
            }
        }
        items
    }

    /// How many positions have died, or more.
    pub(crate) fn at_most(&self) -> u64 {
        let living = self.living.iter().flat_map(HashMap::values);
        let listed: usize = living.map(|living| living.dead.len()).sum();
        (listed + self.places.len()) as u64
    }

    /// Bytes of memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let living: usize = self
            .living
            .iter()
            .flat_map(HashMap::values)
            .map(|living| size_of::<(u32, Living)>() + living.dead.len() + living.recent.len())
            .sum();
        (self.places.capacity() * 8 + living + self.hashes.capacity() * 17) as u64
    }
}

/// Positions of one segment, a bit for each unit. A large item takes the bit of its first units that
/// its size class points to: no other item starts there.
struct PositionSet {
    units: u64,
    /// Empty until something is inserted.
    words: Vec<u64>,
}

impl PositionSet {
    fn of(units: u64) -> Self {
        Self {
            units,
            words: Vec::new(),
        }
    }

    /// Inserts a position; one that no segment has is passed over.
    fn insert(&mut self, bits: u32) {
        self.words.resize(self.units.div_ceil(64) as usize, 0);
        let (word, bit) = Self::place(bits);
        if let Some(word) = self.words.get_mut(word) {
            *word |= 1 << bit;
        }
    }

    fn contains(&self, bits: u32) -> bool {
        let (word, bit) = Self::place(bits);
        self.words
            .get(word)
            .is_some_and(|word| word >> bit & 1 == 1)
    }

    fn place(bits: u32) -> (usize, u32) {
        let unit = bits & (u32::MAX >> 1);
        (unit as usize / 64, unit % 64)
    }
}

/// What has died in one segment.
pub(crate) struct DeadItems<'a> {
    dead: &'a Dead,
    positions: PositionSet,
    recent: PositionSet,
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
        self.positions.contains(position.bits())
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
        self.recent.contains(position.bits())
    }
}
