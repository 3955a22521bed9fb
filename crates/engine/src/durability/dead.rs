//! [`DeadSet`]: what has died, by the last checkpoint's lists and the journal's records, put together at a start.
//!
//! Records only ever declare items dead. Those of positions name a segment and the low bits of its sequence number,
//! so that what one says of an earlier generation of a segment says nothing of a later one. They stay packed as they
//! were written; when a segment is looked at, its positions are unpacked into a bit for each unit of it.

use std::collections::{BTreeSet, HashMap, HashSet};

use device::Journal as Log;

use super::flush::FlushCutoffs;
use super::journal::ChunkRecords;
use crate::format::checkpoint::{DeadKey, DeadList, Head, Positions, Section, Source};
use crate::format::item::is_expired;
use crate::format::journal::{GENERATION_BITS, Record, is_generation, kept_chunk, kept_hash};
use crate::format::location::LocationCodec;
use crate::format::segment::{SegmentId, SummaryEntry};
use crate::key::KeyHash;
use crate::store::{CheckpointSource, ReadError, SegmentRecord, SegmentStore};

/// What has died.
#[derive(Debug)]
pub(crate) struct DeadSet {
    codec: LocationCodec,
    /// Packed locations above the low bits of a generation, as journalled; sorted by
    /// [`sort`](Self::sort).
    places: Vec<u64>,
    /// Segments, with the sequence numbers of their dead generations.
    segments: HashSet<(u32, u64)>,
    /// The version below which copies of a key are dead, by the key's kept hash.
    keys: HashMap<u64, u64>,
    retired: BTreeSet<u32>,
    /// What a checkpoint says of the segments that were live when it was written. `None` when there is no checkpoint.
    living: Option<HashMap<u32, LiveSegment>>,
    /// The sequence number that the first segment after the checkpoint has got.
    next_sequence: u64,
    /// The placement's own part of the checkpoint.
    pub(crate) section: Option<Section>,
    /// Flush cutoff of each partition.
    pub(crate) cutoffs: Vec<u64>,
    flush: Option<Flush>,
    /// The latest Unix second that is known to have been.
    pub(crate) clock: u32,
}

/// A segment in a checkpoint: its sequence number and the packed positions of what had died.
type LiveSegment = (u64, Box<[u8]>);

/// How much a checkpoint says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointContents {
    /// Segments that were live when it was written.
    pub living: u64,
    /// Positions of items that had died in them.
    pub dead: u64,
    /// Keys whose copies are dead wherever they lie.
    pub dead_keys: u64,
    /// Segments used no more.
    pub retired: u64,
    /// Bytes of the placement's section.
    pub section_bytes: u64,
}

/// Whether an item found in a live segment is live by what is recorded of it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemState {
    Live,
    /// The item's place is listed as dead.
    Displaced,
    /// A KEY DEAD record names its key and a higher version.
    Overwritten,
    /// A `flush_all` came after it.
    Flushed,
    Expired,
}

/// A `flush_all` and the partitions that have applied it.
#[derive(Debug)]
struct Flush {
    deadline: u32,
    applied: HashSet<u32>,
}

impl DeadSet {
    /// Nothing is known to have died.
    pub(crate) fn new(partitions: u32, store: &SegmentStore) -> Self {
        Self {
            codec: store.codec,
            places: Vec::new(),
            segments: HashSet::new(),
            keys: HashMap::new(),
            retired: BTreeSet::new(),
            living: None,
            next_sequence: 0,
            section: None,
            cutoffs: vec![0; partitions as usize],
            flush: None,
            clock: 0,
        }
    }

    pub(crate) async fn read_checkpoint(
        &mut self,
        from: &mut CheckpointSource,
    ) -> Result<CheckpointContents, ReadError> {
        let head = Head::read(from).await?;
        if head.cutoffs.len() != self.cutoffs.len() {
            return Err(from.nonsense());
        }
        let mut contents = CheckpointContents {
            living: u64::from(head.living),
            retired: head.retired.len() as u64,
            ..CheckpointContents::default()
        };
        self.clock = head.clock;
        if let Some(deadline) = head.flush_deadline {
            self.flush_at(deadline);
        }
        self.cutoffs = head.cutoffs;
        self.next_sequence = head.next_sequence;
        self.retired
            .extend(head.retired.iter().map(|segment| segment.0));
        let mut living = HashMap::new();
        for _ in 0..head.living {
            let list = DeadList::read(from).await?;
            for position in Positions::of(&list.dead) {
                position.map_err(|_| from.nonsense())?;
                contents.dead += 1;
            }
            living.insert(list.segment.0, (list.sequence, list.dead.into()));
        }
        self.living = Some(living);
        loop {
            let batch = DeadKey::read_batch(from).await?;
            if batch.is_empty() {
                break;
            }
            contents.dead_keys += batch.len() as u64;
            for DeadKey { hash, version, .. } in batch {
                self.kill_key(hash, version);
            }
        }
        let section = Section::read(from).await?;
        contents.section_bytes = section.bytes.len() as u64;
        self.section = Some(section);
        if from.is_at_end() {
            Ok(contents)
        } else {
            Err(from.nonsense())
        }
    }

    /// Versions below `first_version` are all there are: what is left of an earlier chunk could say more.
    pub(crate) fn clamp_keys(&mut self, first_version: u64) {
        for version in self.keys.values_mut() {
            *version = first_version.min(*version);
        }
    }

    /// The keys whose copies are dead below a version.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.keys.iter().map(|(&hash, &version)| (hash, version))
    }

    fn kill_key(&mut self, hash: u64, version: u64) {
        let known = self.keys.entry(kept_hash(hash)).or_default();
        *known = version.max(*known);
    }

    /// Adds what the records of a chunk say.
    pub(crate) fn read_chunk(&mut self, log: &dyn Log, chunk: &ChunkRecords) {
        chunk.each(log, |record| match record {
            Record::Dead {
                location,
                generation,
            } => self.places.push(location << GENERATION_BITS | generation),
            Record::SegmentDead {
                segment,
                generation,
            } => {
                self.segments.insert((segment, generation));
            }
            Record::KeyDead { hash, version } => self.kill_key(hash, version),
            Record::Retired { segment } => {
                self.retired.insert(segment);
            }
            Record::Cutoff {
                partition,
                version,
                chunk: number,
            } => {
                let Some(cutoff) = self.cutoffs.get_mut(partition as usize) else {
                    return;
                };
                if number == kept_chunk(chunk.header.sequence) {
                    *cutoff = version.max(*cutoff);
                    if let Some(flush) = &mut self.flush {
                        flush.applied.insert(partition);
                    }
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

    /// Brings places in order, once all records have been read.
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
    pub(crate) fn apply_flush(&mut self, now: u32, first_version: u64) -> Option<u32> {
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

    /// Whether a generation of a segment, found on flash, still counts.
    pub(crate) fn is_living(&self, record: &SegmentRecord) -> bool {
        let number = record.segment.0;
        let known = match &self.living {
            Some(living) if record.sequence < self.next_sequence => living
                .get(&number)
                .is_some_and(|&(sequence, _)| sequence == record.sequence),
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
            positions: PositionSet {
                units: self.codec.units_per_segment,
                words: Vec::new(),
            },
        };
        if let Some((_, dead)) = living.filter(|(sequence, _)| *sequence == record.sequence) {
            for position in Positions::of(dead).flatten() {
                items.positions.insert(position);
            }
        }
        for locations in self.codec.locations_of(record.segment) {
            let from = self
                .places
                .partition_point(|&place| place >> GENERATION_BITS < locations.start);
            for &place in &self.places[from..] {
                let location = place >> GENERATION_BITS;
                if location >= locations.end {
                    break;
                }
                if is_generation(place, record.sequence) {
                    let (_, position) = self.codec.decode(location);
                    items.positions.insert(position.bits());
                }
            }
        }
        items
    }

    /// How many positions have died, or more.
    pub(crate) fn at_most(&self) -> u64 {
        let living = self.living.iter().flat_map(HashMap::values);
        let listed: usize = living.map(|(_, dead)| dead.len()).sum();
        (listed + self.places.len()) as u64
    }

    /// Bytes of memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let living: usize = self
            .living
            .iter()
            .flat_map(HashMap::values)
            .map(|(_, dead)| LIST_BYTES + dead.len())
            .sum();
        (self.places.capacity() * 8 + living + self.keys.capacity() * 17) as u64
    }
}

/// Bytes of memory of a list beside its positions.
const LIST_BYTES: usize = size_of::<(u32, LiveSegment)>();

/// Positions of one segment, a bit for each unit. A large item takes the bit of its first units that
/// its size class points to: no other item starts there.
struct PositionSet {
    units: u64,
    /// Empty until something is inserted.
    words: Vec<u64>,
}

impl PositionSet {
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
    dead: &'a DeadSet,
    positions: PositionSet,
}

impl DeadItems<'_> {
    /// What an item of the segment is at Unix second `now`. Whether there is a later one of its key, the index
    /// knows.
    pub(crate) fn classify(
        &self,
        entry: &SummaryEntry,
        cutoffs: &FlushCutoffs,
        now: u32,
    ) -> ItemState {
        let hash = KeyHash(entry.hash.get());
        let (version, expiry) = (entry.version.get(), entry.expiry.get());
        let dead_below = || self.dead.keys.get(&kept_hash(hash.0));
        if self.positions.contains(entry.position.get()) {
            ItemState::Displaced
        } else if is_expired(expiry, now) {
            ItemState::Expired
        } else if !cutoffs.is_live(hash, version, expiry, now) {
            ItemState::Flushed
        } else if dead_below().is_some_and(|&below| version < below) {
            ItemState::Overwritten
        } else {
            ItemState::Live
        }
    }
}
