//! [`DeadSet`]: the dead items of an image, put together at a start from the lists of the last checkpoint and the
//! records of the journal.
//!
//! Records only ever declare items dead. A record of a position names a segment and the low bits of its sequence
//! number, so a record about one generation has no effect on a later one. Only generations on flash count. Each has a
//! packed list of dead positions, as in a checkpoint; the journal's positions are merged into the lists in batches. To
//! classify the items of a segment, its list is unpacked into a bit for each unit.
//!
//! Memory is bounded, whatever image and journal say. If the lists exceed the bound, the oldest segments are given up:
//! they are dead as a whole, because the image's floor rises above their sequence numbers ([`DeadSet::floor`]). Dead
//! keys cannot be given up; too many dead keys are an error.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use device::Journal as Log;

use super::flush::{FlushCutoffs, REPLACED};
use super::journal::{ChunkRecords, Damaged};
use crate::format::checkpoint::{
    Coverage, DeadKey, DeadList, Head, Packer, Positions, Section, Source, merge,
};
use crate::format::hashed::is_entry_mark;
use crate::format::item::is_expired;
use crate::format::journal::{Record, VERSION_LIMIT, is_generation, kept_chunk, kept_hash};
use crate::format::location::LocationCodec;
use crate::format::segment::{SegmentId, SummaryEntry};
use crate::key::KeyHash;
use crate::store::{CheckpointSource, ReadError, SegmentRecord, SegmentStore};
use crate::sync::Mutex;

/// How a start tells which copies of a key are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadCopies {
    /// By place: the index knows the place of every copy that it displaces, and the journal records it.
    Located,
    /// By key and version at first: the placement locates the copies in the background, and the journal records their places
    /// then. The record of the key holds until then, or until all older segments have gone. An item that never had an entry
    /// cannot be located: it is declared dead by its place at a start that finds it dead by key, and when the index refuses it.
    LocatedLater,
    /// By key and version: of the copies that a start finds the highest version counts, and no other. Segments are reclaimed
    /// in order of age.
    ByVersion,
    /// By key and version, as the placement compares them at each read: a start gives it all dead keys, and it finds copies by
    /// run headers and by summaries. Segments are reclaimed in order of age.
    AtReads,
    /// By the index: a start finds it as it was at the last checkpoint, in the checkpoint's section. Items that were placed
    /// later are restored, and keys that were outdated later are invalidated, with the hash as far as the journal keeps it: its
    /// last 4 bits are 0. Segments are reclaimed in order of age.
    BySection,
}

impl DeadCopies {
    /// Whether the place of every displaced copy is known at once.
    pub(crate) fn are_located(self) -> bool {
        self == Self::Located
    }

    /// Whether a start finds the index as it was at the last checkpoint.
    pub(crate) fn are_in_section(self) -> bool {
        self == Self::BySection
    }

    /// Whether the placement alone tells which copies are dead.
    pub(crate) fn are_told_at_reads(self) -> bool {
        self == Self::AtReads
    }

    /// Whether the journal records the places of dead copies, at once or later.
    pub(crate) fn have_places(self) -> bool {
        matches!(self, Self::Located | Self::LocatedLater)
    }
}

/// Memory that a start may take before it serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartBounds {
    /// Bytes for the lists of dead positions; bounds on dead keys and on the placement's section follow from it.
    pub(crate) dead_bytes: u64,
    /// Items for which the index has space.
    pub(crate) items: u64,
}

impl StartBounds {
    /// No bounds.
    pub(crate) const NONE: Self = Self {
        dead_bytes: u64::MAX,
        items: u64::MAX,
    };
}

/// The dead items of an image.
#[derive(Debug)]
pub(crate) struct DeadSet {
    codec: LocationCodec,
    segment_bytes: u32,
    max_bytes: u64,
    /// Sequence number of each segment's generation on flash; 0 for none.
    on_flash: Vec<u64>,
    /// Places not merged into the lists yet: the segment in the high 32 bits, a position or a mark in the low ones.
    places: Vec<u64>,
    lists: Mutex<Lists>,
    /// Segments whose generation on flash is dead.
    segments: HashSet<u32>,
    /// Version below which copies of a key are dead, by the key's kept hash.
    keys: HashMap<u64, DeadBelow>,
    /// Items that a persistent index names already.
    pub(crate) covered: Coverage,
    retired: BTreeSet<u32>,
    /// Segments that were live when the checkpoint was written, if their generation is on flash. `None` if there is no
    /// checkpoint.
    living: Option<HashSet<u32>>,
    /// Sequence numbers of the segments that superseded dead keys when the checkpoint was written, and whose generation is
    /// not on flash. A record of the segment's death takes it off.
    missing: HashMap<u32, u64>,
    /// The same segments whose generation is on flash.
    superseding: HashSet<u32>,
    /// Sequence number of the first segment opened after the checkpoint.
    next_sequence: u64,
    /// The placement's own part of the checkpoint.
    pub(crate) section: Option<Section>,
    /// Flush cutoff of each partition.
    pub(crate) cutoffs: Vec<u64>,
    flush: Option<Flush>,
    /// Partitions without a cutoff record of an earlier flush whose time had come: a power cut may have taken the
    /// record.
    flushed: HashSet<u32>,
    /// Latest Unix second that is known to have been.
    pub(crate) clock: u32,
}

/// Packed dead positions of each generation on flash that has any, by sequence number.
#[derive(Debug, Default)]
struct Lists {
    packed: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of memory of the lists.
    bytes: u64,
    /// Sequence number below which all generations are given up; 0 for none.
    floor: u64,
}

impl Lists {
    /// Sets the list of a generation. Gives up the oldest lists while all take more than `max_bytes`.
    fn set(&mut self, sequence: u64, packed: Box<[u8]>, max_bytes: u64) {
        if sequence < self.floor {
            return;
        }
        self.bytes += list_bytes(&packed);
        if let Some(old) = self.packed.insert(sequence, packed) {
            self.bytes -= list_bytes(&old);
        }
        while self.bytes > max_bytes
            && let Some((oldest, _)) = self.packed.first_key_value()
        {
            self.raise_floor(oldest + 1);
        }
    }

    /// Gives up the generations with lower sequence numbers.
    fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(oldest) = self.packed.first_entry().filter(|list| *list.key() < floor) {
            self.bytes -= list_bytes(&oldest.remove());
        }
    }
}

/// Returns the bytes of memory of a list in the table.
fn list_bytes(packed: &[u8]) -> u64 {
    (LIST_BYTES + packed.len()) as u64
}

/// Bytes of memory of a list beside its positions: its entry in the table, which is at least half full, and the
/// allocator's overhead.
const LIST_BYTES: usize = 2 * size_of::<(u64, Box<[u8]>)>() + 16;

/// Least number of places merged into the lists at once.
const LEAST_BATCH: usize = 1 << 12;
/// Part of the memory that a batch may take, as a fraction with this denominator.
const BATCH_SHARE: u64 = 8;
/// Part of the memory that the placement's section may take, as a fraction with this denominator.
const SECTION_SHARE: u64 = 8;
/// Largest ratio of the memory of dead keys to that of lists: a run whose recovery does not end leaves many dead keys.
const KEYS_TO_LISTS: u64 = 2;
/// Number of items in the index that take as much memory as a dead key.
const KEY_ITEMS: u64 = 4;
/// Bytes of memory of a key in a table that may be only half full.
const KEY_BYTES: usize = 34;

/// Counts of the content of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointContents {
    /// Segments that were live when it was written.
    pub living: u64,
    /// Positions of dead items in the live segments.
    pub dead: u64,
    /// Keys whose copies are dead wherever they lie.
    pub dead_keys: u64,
    /// Retired segments.
    pub retired: u64,
    /// Bytes of the placement's section.
    pub section_bytes: u64,
}

/// A position or mark that a record declares dead, as an entry of its segment's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) segment: SegmentId,
    /// Low bits of the segment's sequence number.
    pub(super) generation: u64,
    /// A position, or the mark of a lost entry.
    pub(super) bits: u32,
}

impl Listed {
    /// Returns the entry for a record; `None` if the record has no position and no mark.
    pub(super) fn of(record: &Record, codec: &LocationCodec) -> Option<Self> {
        match *record {
            Record::Dead {
                location,
                generation,
            } => {
                let (segment, position) = codec.decode(location);
                Some(Self {
                    segment,
                    generation,
                    bits: position.bits(),
                })
            }
            Record::EntryLost {
                segment,
                generation,
                mark,
            } => is_entry_mark(mark).then_some(Self {
                segment: SegmentId(segment),
                generation,
                bits: mark,
            }),
            _ => None,
        }
    }
}

/// State of an item found in a live segment, by its records alone.
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

/// The version below which copies of a key are dead, and a bit for whether the journal has said so since the
/// checkpoint.
#[derive(Clone, Copy, Debug, Default)]
struct DeadBelow(u64);

const _: () = assert!(VERSION_LIMIT <= 1 << 63);

impl DeadBelow {
    fn new(version: u64, is_new: bool) -> Self {
        Self(version << 1 | u64::from(is_new))
    }

    fn version(self) -> u64 {
        self.0 >> 1
    }

    fn is_new(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A `flush_all` and the partitions that have applied it.
#[derive(Debug)]
struct Flush {
    deadline: u32,
    applied: HashSet<u32>,
}

impl DeadSet {
    /// Returns a set without dead items for the segments `found` on flash.
    pub(crate) fn new(
        partitions: u32,
        store: &SegmentStore,
        found: &[SegmentRecord],
        max_bytes: u64,
    ) -> Self {
        let mut on_flash = vec![0; store.table().segments() as usize];
        for record in found {
            on_flash[record.segment.0 as usize] = record.sequence;
        }
        Self {
            codec: store.codec,
            segment_bytes: store.table().segment_bytes(),
            max_bytes,
            on_flash,
            places: Vec::new(),
            lists: Mutex::default(),
            segments: HashSet::new(),
            keys: HashMap::new(),
            covered: Coverage::default(),
            retired: BTreeSet::new(),
            living: None,
            missing: HashMap::new(),
            superseding: HashSet::new(),
            next_sequence: 0,
            section: None,
            cutoffs: vec![0; partitions as usize],
            flush: None,
            flushed: HashSet::new(),
            clock: 0,
        }
    }

    pub(crate) async fn read_checkpoint(
        &mut self,
        from: &mut CheckpointSource,
    ) -> Result<CheckpointContents, ReadError> {
        let partitions = self.cutoffs.len() as u32;
        let head = Head::read(from, partitions, self.on_flash.len() as u32).await?;
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
        self.covered = head.covered;
        for segment in head.retired {
            self.retire(segment.0);
        }
        let mut living = HashSet::new();
        for _ in 0..head.living {
            let list = DeadList::read(from, self.segment_bytes).await?;
            for position in Positions::of(&list.dead) {
                position.map_err(|_| from.nonsense())?;
                contents.dead += 1;
            }
            let segment = list.segment.0;
            if list.sequence > 0 && self.sequence_on_flash(segment) == list.sequence {
                living.insert(segment);
                if list.supersedes {
                    self.superseding.insert(segment);
                }
                let packed = list.dead.into();
                self.lists.lock().set(list.sequence, packed, self.max_bytes);
            } else if list.supersedes {
                self.missing.insert(segment, list.sequence);
            }
        }
        self.living = Some(living);
        loop {
            let batch = DeadKey::read_batch(from).await?;
            if batch.is_empty() {
                break;
            }
            contents.dead_keys += batch.len() as u64;
            for DeadKey { hash, version, .. } in batch {
                self.kill_key(hash, DeadBelow::new(version, false));
            }
        }
        let section = Section::read(from, self.max_bytes / SECTION_SHARE).await?;
        contents.section_bytes = section.bytes.len() as u64;
        self.section = Some(section);
        if from.is_at_end() {
            Ok(contents)
        } else {
            Err(from.nonsense())
        }
    }

    /// Returns the sequence number of a segment's generation on flash; 0 if there is none.
    fn sequence_on_flash(&self, segment: u32) -> u64 {
        self.on_flash.get(segment as usize).copied().unwrap_or(0)
    }

    fn retire(&mut self, segment: u32) {
        if (segment as usize) < self.on_flash.len() {
            self.retired.insert(segment);
        }
    }

    /// Limits the versions of dead keys to `first_version`, below which all versions lie: the remains of an earlier
    /// chunk could name a higher one.
    pub(crate) fn clamp_keys(&mut self, first_version: u64) {
        for below in self.keys.values_mut() {
            *below = DeadBelow::new(first_version.min(below.version()), below.is_new());
        }
    }

    /// Returns the keys declared dead since the checkpoint, with the version below which their copies are dead.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let keys = self.keys.iter().filter(|(_, below)| below.is_new());
        keys.map(|(&hash, below)| (hash, below.version()))
    }

    /// Returns all dead keys, with the version below which their copies are dead.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.keys
            .iter()
            .map(|(&hash, below)| (hash, below.version()))
    }

    fn kill_key(&mut self, hash: u64, below: DeadBelow) {
        if self.has_too_many_keys() {
            return;
        }
        let known = self.keys.entry(kept_hash(hash)).or_default();
        let version = below.version().max(known.version());
        *known = DeadBelow::new(version, below.is_new() || known.is_new());
    }

    /// Returns whether the dead keys exceed their memory: some are not known then.
    pub(crate) fn has_too_many_keys(&self) -> bool {
        self.key_bytes() / KEYS_TO_LISTS > self.max_bytes
    }

    fn key_bytes(&self) -> u64 {
        (self.keys.len() * KEY_BYTES) as u64
    }

    /// Adds the records of a chunk.
    pub(crate) fn read_chunk(
        &mut self,
        log: &dyn Log,
        chunk: &ChunkRecords,
    ) -> Result<(), Damaged> {
        chunk.each(log, |record| match record {
            Record::Dead { .. } | Record::EntryLost { .. } => {
                if let Some(listed) = Listed::of(&record, &self.codec) {
                    self.note(&listed);
                }
            }
            // The KEY DEAD record that it refers to is kept until a checkpoint, and is still true.
            Record::KeyLocated { .. } => {}
            Record::SegmentDead {
                segment,
                generation,
            } => {
                if self.sequence_on_flash(segment) == generation {
                    self.segments.insert(segment);
                } else if self.missing.get(&segment) == Some(&generation) {
                    self.missing.remove(&segment);
                }
            }
            Record::KeyDead { hash, version } => {
                self.kill_key(hash, DeadBelow::new(version, true));
            }
            Record::Retired { segment } => self.retire(segment),
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
                replaces_come,
            } => {
                if number == kept_chunk(chunk.header.sequence) {
                    if let Some(come) = self.flush.take().filter(|_| replaces_come) {
                        let all = 0..self.cutoffs.len() as u32;
                        let lost = all.filter(|partition| !come.applied.contains(partition));
                        self.flushed.extend(lost);
                    }
                    self.flush_at(deadline);
                }
            }
        })
    }

    /// Notes a dead position or mark, if it is of a generation on flash.
    fn note(&mut self, listed: &Listed) {
        let sequence = self.sequence_on_flash(listed.segment.0);
        if sequence == 0 || !is_generation(listed.generation, sequence) {
            return;
        }
        let most = (self.max_bytes / BATCH_SHARE) as usize / size_of::<u64>();
        if self.places.len() >= most.max(LEAST_BATCH) {
            self.merge();
        }
        if self.places.len() == self.places.capacity() {
            // Grows by its length, but by no more than a whole batch.
            let more = self
                .places
                .len()
                .max(LEAST_BATCH)
                .min(most.max(LEAST_BATCH));
            self.places.reserve_exact(more);
        }
        self.places
            .push(u64::from(listed.segment.0) << 32 | u64::from(listed.bits));
    }

    /// Merges the places noted so far into the lists.
    pub(crate) fn merge(&mut self) {
        let of = |place: u64| ((place >> 32) as u32, place as u32);
        self.places.sort_unstable();
        let mut lists = self.lists.lock();
        let mut packer = Packer::default();
        let mut positions = Vec::new();
        for group in self.places.chunk_by(|&a, &b| of(a).0 == of(b).0) {
            let segment = of(group[0]).0;
            let sequence = self.sequence_on_flash(segment);
            if !self.was_living(segment) {
                continue;
            }
            positions.clear();
            positions.extend(group.iter().map(|&place| of(place).1));
            let before = lists.packed.get(&sequence).map_or(&[][..], |list| list);
            packer.clear();
            merge(&mut packer, before, &mut positions).expect("lists are verified when read");
            lists.set(sequence, packer.bytes().into(), self.max_bytes);
        }
        drop(lists);
        self.places.clear();
    }

    /// Merges the last batch and frees its memory, once all records have been read.
    pub(crate) fn finish(&mut self) {
        self.merge();
        self.places = Vec::new();
    }

    /// Gives up the oldest of these segments so that the others hold at most `most` items that may be live. The memory
    /// of the dead keys reduces `most`.
    pub(crate) fn give_up_beyond(&mut self, living: &[SegmentRecord], most: u64) -> bool {
        let most = most.saturating_sub(KEY_ITEMS * self.keys.len() as u64);
        let mut items = 0;
        for record in living.iter().rev() {
            items += u64::from(record.items).saturating_sub(self.dead_in(record.sequence));
            if items > most {
                self.lists.get_mut().raise_floor(record.sequence + 1);
                return true;
            }
        }
        false
    }

    /// Gives up the generations that are older than a segment that has superseded dead keys and is missing, and not older than
    /// `floor`: nothing else tells which of their items are dead. Returns whether there is such a segment.
    pub(crate) fn give_up_before_missing(&mut self, floor: u64) -> bool {
        let latest = self.missing.values().copied().max();
        let latest = latest.filter(|&sequence| sequence >= floor);
        if let Some(sequence) = latest {
            self.lists.get_mut().raise_floor(sequence + 1);
        }
        latest.is_some()
    }

    /// Returns the sequence number below which all generations are given up; 0 for none.
    pub(crate) fn floor(&self) -> u64 {
        self.lists.lock().floor
    }

    /// Returns the number of positions in the list of a generation.
    fn dead_in(&self, sequence: u64) -> u64 {
        let lists = self.lists.lock();
        let list = lists.packed.get(&sequence).map_or(&[][..], |list| list);
        Positions::of(list).count() as u64
    }

    fn flush_at(&mut self, deadline: u32) {
        self.flush = Some(Flush {
            deadline,
            applied: HashSet::new(),
        });
    }

    /// Applies a flush that has come, by `now` or in an earlier run, to the partitions that have not applied it themselves:
    /// these had no operation since. Returns the deadline of a flush that is still pending.
    pub(crate) fn apply_flush(&mut self, now: u32, first_version: u64) -> Option<u32> {
        for &partition in &self.flushed {
            self.cutoffs[partition as usize] = first_version;
        }
        let flush = self.flush.take()?;
        // A flush that a partition has applied has come, though the clock may be before it again.
        let has_come = !flush.applied.is_empty() && flush.deadline != REPLACED;
        if flush.deadline > now && !has_come {
            return Some(flush.deadline);
        }
        for (partition, cutoff) in (0u32..).zip(&mut self.cutoffs) {
            if !flush.applied.contains(&partition) {
                *cutoff = first_version;
            }
        }
        None
    }

    /// Returns the retired segments.
    pub(crate) fn retired(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.retired.iter().map(|&segment| SegmentId(segment))
    }

    /// Returns whether the generation of a segment on flash was live when the checkpoint was written, or has been
    /// opened since.
    fn was_living(&self, segment: u32) -> bool {
        match &self.living {
            Some(living) if self.sequence_on_flash(segment) < self.next_sequence => {
                living.contains(&segment)
            }
            _ => true,
        }
    }

    /// Returns whether a generation found on flash still counts.
    pub(crate) fn is_living(&self, record: &SegmentRecord) -> bool {
        let number = record.segment.0;
        self.was_living(number)
            && !self.segments.contains(&number)
            && record.sequence >= self.lists.lock().floor
    }

    /// Returns whether the checkpoint counts on copies in the segment: dead keys that they supersede may be struck out.
    pub(crate) fn supersedes(&self, record: &SegmentRecord) -> bool {
        self.superseding.contains(&record.segment.0)
    }

    /// Unpacks the list of a segment, to classify its items.
    pub(crate) fn of_segment(&self, record: &SegmentRecord) -> DeadItems<'_> {
        let mut items = DeadItems {
            dead: self,
            positions: PositionSet {
                units: self.codec.units_per_segment,
                words: Vec::new(),
            },
            marks: Vec::new(),
        };
        let lists = self.lists.lock();
        let list = lists.packed.get(&record.sequence);
        for position in list
            .into_iter()
            .flat_map(|list| Positions::of(list).flatten())
        {
            if is_entry_mark(position) {
                items.marks.push(position);
            } else {
                items.positions.insert(position);
            }
        }
        drop(lists);
        items
    }

    /// Frees the list of a segment that will not be asked for again.
    pub(crate) fn let_go(&self, record: &SegmentRecord) {
        let mut lists = self.lists.lock();
        if let Some(list) = lists.packed.remove(&record.sequence) {
            lists.bytes -= list_bytes(&list);
        }
    }

    /// Returns the packed list of a generation.
    pub(crate) fn packed(&self, record: &SegmentRecord) -> Box<[u8]> {
        let lists = self.lists.lock();
        lists
            .packed
            .get(&record.sequence)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the number of dead positions.
    pub(crate) fn positions(&self) -> u64 {
        let lists = self.lists.lock();
        let lists = lists.packed.values();
        lists.map(|list| Positions::of(list).count() as u64).sum()
    }

    /// Estimates the bytes of memory that the set takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let others = self.on_flash.len() * size_of::<u64>();
        self.lists.lock().bytes + self.key_bytes() + others as u64
    }
}

/// Positions of one segment, a bit for each unit. A large item takes the bit of the one among its first units to which
/// its size class points: no other item starts there.
struct PositionSet {
    units: u64,
    /// Empty until a position is inserted.
    words: Vec<u64>,
}

impl PositionSet {
    /// Inserts a position. Ignores one that no segment has.
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

/// The dead items of one segment.
pub(crate) struct DeadItems<'a> {
    dead: &'a DeadSet,
    positions: PositionSet,
    /// Marks of lost entries, rising.
    marks: Vec<u32>,
}

impl DeadItems<'_> {
    /// Returns the marks of the entries for the segment whose loss is recorded, in rising order.
    pub(crate) fn into_lost_marks(self) -> Vec<u32> {
        self.marks
    }

    /// Returns the state of an item of the segment at Unix second `now`. Only the index knows whether the key has a
    /// later item.
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
        } else if dead_below().is_some_and(|below| version < below.version()) {
            // Checked before expiry: the item supersedes nothing, and must not be taken for newer than the index's
            // item.
            ItemState::Overwritten
        } else if is_expired(expiry, cutoffs.second_of(version, now)) {
            ItemState::Expired
        } else if !cutoffs.is_live(hash, version, expiry, now) {
            ItemState::Flushed
        } else {
            ItemState::Live
        }
    }
}

#[cfg(test)]
mod tests;
