//! [`DeadSet`]: what has died, by the last checkpoint's lists and the journal's records, put together at a start.
//!
//! Records only ever declare items dead. Those of positions name a segment and the low bits of its sequence number,
//! so that what one says of an earlier generation of a segment says nothing of a later one. What counts is what lies on
//! flash: of each of its generations there is a packed list of positions, as in a checkpoint, into which the journal's
//! are merged, a batch at a time. When a segment is looked at, its list is unpacked into a bit for each unit of it.
//!
//! What this takes of memory is bounded, whatever image and journal say. Where the lists are longer, the oldest segments
//! are given up: they are dead as a whole, by the image's floor, which rises above their sequence numbers
//! ([`DeadSet::floor`]). Dead keys cannot be given up so; too many of them are an error.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use device::Journal as Log;

use super::flush::FlushCutoffs;
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
    /// By the index: a start finds it as it was at the last checkpoint, in the checkpoint's section. Items that were placed
    /// later are restored, and keys that were outdated later are invalidated, with the hash as far as the journal keeps it: its
    /// last 4 bits are 0. Segments are reclaimed in order of age.
    BySection,
}
use crate::store::{CheckpointSource, ReadError, SegmentRecord, SegmentStore};
use crate::sync::Mutex;

/// What a start may take of memory before it serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartBounds {
    /// Bytes of what has died.
    pub(crate) dead_bytes: u64,
    /// Items for which the index has space.
    pub(crate) items: u64,
}

impl StartBounds {
    /// All that there is.
    pub(crate) const NONE: Self = Self {
        dead_bytes: u64::MAX,
        items: u64::MAX,
    };
}

/// What has died.
#[derive(Debug)]
pub(crate) struct DeadSet {
    codec: LocationCodec,
    segment_bytes: u32,
    max_bytes: u64,
    /// The sequence number of each segment's generation on flash; 0 for none.
    on_flash: Vec<u64>,
    /// What has not been merged into the lists: the segment above a position or a mark.
    places: Vec<u64>,
    lists: Mutex<Lists>,
    /// Segments whose generation on flash is dead.
    segments: HashSet<u32>,
    /// Of what copies of a key are dead, by the key's kept hash.
    keys: HashMap<u64, DeadBelow>,
    /// What an index that survives has.
    pub(crate) covered: Coverage,
    retired: BTreeSet<u32>,
    /// Segments that a checkpoint says were live when it was written, in their generations on flash. `None` when there
    /// is no checkpoint.
    living: Option<HashSet<u32>>,
    /// The sequence number that the first segment after the checkpoint has got.
    next_sequence: u64,
    /// The placement's own part of the checkpoint.
    pub(crate) section: Option<Section>,
    /// Flush cutoff of each partition.
    pub(crate) cutoffs: Vec<u64>,
    flush: Option<Flush>,
    /// Partitions that a flush before that one has come to, and that do not say when: a power cut has taken it.
    flushed: HashSet<u32>,
    /// The latest Unix second that is known to have been.
    pub(crate) clock: u32,
}

/// The packed positions of what has died, of each generation on flash of which something has, by its sequence number.
#[derive(Debug, Default)]
struct Lists {
    packed: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of memory that they take.
    bytes: u64,
    /// Generations with lower sequence numbers are given up.
    floor: u64,
}

impl Lists {
    /// Sets the list of a generation; gives the oldest up as long as they take more than `max_bytes`.
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

    /// Gives up what has a lower sequence number.
    fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(oldest) = self.packed.first_entry().filter(|list| *list.key() < floor) {
            self.bytes -= list_bytes(&oldest.remove());
        }
    }
}

/// Bytes of memory of a list in the table.
fn list_bytes(packed: &[u8]) -> u64 {
    (LIST_BYTES + packed.len()) as u64
}

/// Bytes of memory of a list beside its positions: its place in the table, which is half full at least, and the
/// allocator's own.
const LIST_BYTES: usize = 2 * size_of::<(u64, Box<[u8]>)>() + 16;

/// Places that are merged into the lists at once, at least.
const LEAST_BATCH: usize = 1 << 12;
/// The part of its memory that a batch may take.
const BATCH_SHARE: u64 = 8;
/// The part of its memory that the placement's section may take.
const SECTION_SHARE: u64 = 8;
/// Dead keys may take so many times as much memory as lists: a run whose recovery does not end leaves many.
const KEYS_TO_LISTS: u64 = 2;
/// Items in the index that take the memory of a dead key.
const KEY_ITEMS: u64 = 4;
/// Bytes of memory of a key in a table that may be half full.
const KEY_BYTES: usize = 34;

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

/// What a record says of one segment, as the segment's list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) segment: SegmentId,
    /// Low bits of the segment's sequence number.
    pub(super) generation: u64,
    /// A position, or the mark of a lost entry.
    pub(super) bits: u32,
}

impl Listed {
    /// What a record says; `None` where it is of no position and no mark.
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

/// The version below which copies of a key are dead, and whether the journal has said so since the checkpoint.
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
    /// Nothing is known to have died of what has been `found` on flash.
    pub(crate) fn new(
        partitions: u32,
        store: &SegmentStore,
        found: &[SegmentRecord],
        max_bytes: u64,
    ) -> Self {
        let mut on_flash = vec![0; store.segments() as usize];
        for record in found {
            on_flash[record.segment.0 as usize] = record.sequence;
        }
        Self {
            codec: store.codec,
            segment_bytes: store.segment_bytes(),
            max_bytes,
            on_flash,
            places: Vec::new(),
            lists: Mutex::default(),
            segments: HashSet::new(),
            keys: HashMap::new(),
            covered: Coverage::default(),
            retired: BTreeSet::new(),
            living: None,
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
                let packed = list.dead.into();
                self.lists.lock().set(list.sequence, packed, self.max_bytes);
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

    /// The sequence number of what lies on flash in a segment; 0 where nothing does.
    fn sequence_on_flash(&self, segment: u32) -> u64 {
        self.on_flash.get(segment as usize).copied().unwrap_or(0)
    }

    fn retire(&mut self, segment: u32) {
        if (segment as usize) < self.on_flash.len() {
            self.retired.insert(segment);
        }
    }

    /// Versions below `first_version` are all there are: what is left of an earlier chunk could say more.
    pub(crate) fn clamp_keys(&mut self, first_version: u64) {
        for below in self.keys.values_mut() {
            *below = DeadBelow::new(first_version.min(below.version()), below.is_new());
        }
    }

    /// The keys whose copies have been outdated since the checkpoint, with the version below which they are.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let keys = self.keys.iter().filter(|(_, below)| below.is_new());
        keys.map(|(&hash, below)| (hash, below.version()))
    }

    /// The keys whose copies are dead below a version.
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

    /// Whether there have been more dead keys than there is memory for: some of them are not known.
    pub(crate) fn has_too_many_keys(&self) -> bool {
        self.key_bytes() / KEYS_TO_LISTS > self.max_bytes
    }

    fn key_bytes(&self) -> u64 {
        (self.keys.len() * KEY_BYTES) as u64
    }

    /// Adds what the records of a chunk say.
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
            // The record that it is about is kept until a checkpoint: what it says is true all the same.
            Record::KeyLocated { .. } => {}
            Record::SegmentDead {
                segment,
                generation,
            } => {
                if self.sequence_on_flash(segment) == generation {
                    self.segments.insert(segment);
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

    /// Notes what is listed of a generation on flash.
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
            // Not twice as many as before, or a batch would take more than its part.
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

    /// Gives the memory of the last batch back, once all records have been read.
    pub(crate) fn finish(&mut self) {
        self.merge();
        self.places = Vec::new();
    }

    /// Gives up the oldest of these segments, oldest first, so that the others hold no more than `most` items that may
    /// be live, less what the memory of the dead keys would hold.
    pub(crate) fn give_up_beyond(&mut self, living: &[SegmentRecord], most: u64) {
        let most = most.saturating_sub(KEY_ITEMS * self.keys.len() as u64);
        let mut items = 0;
        for record in living.iter().rev() {
            items += u64::from(record.items).saturating_sub(self.dead_in(record.sequence));
            if items > most {
                self.lists.get_mut().raise_floor(record.sequence + 1);
                return;
            }
        }
    }

    /// Generations with lower sequence numbers are given up: 0 for none.
    pub(crate) fn floor(&self) -> u64 {
        self.lists.lock().floor
    }

    /// Positions in the list of a generation.
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

    /// Applies a flush whose time has come by `now`: partitions that have not done so themselves had
    /// nothing to do since. Returns the deadline of one whose time has not.
    pub(crate) fn apply_flush(&mut self, now: u32, first_version: u64) -> Option<u32> {
        for &partition in &self.flushed {
            self.cutoffs[partition as usize] = first_version;
        }
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

    /// Whether the generation of a segment on flash was live when the checkpoint was written, or has been opened since.
    fn was_living(&self, segment: u32) -> bool {
        match &self.living {
            Some(living) if self.sequence_on_flash(segment) < self.next_sequence => {
                living.contains(&segment)
            }
            _ => true,
        }
    }

    /// Whether a generation of a segment, found on flash, still counts.
    pub(crate) fn is_living(&self, record: &SegmentRecord) -> bool {
        let number = record.segment.0;
        self.was_living(number)
            && !self.segments.contains(&number)
            && record.sequence >= self.lists.lock().floor
    }

    /// What has died in a segment: how to ask, once for all of its items.
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

    /// Nobody asks for a segment any more.
    pub(crate) fn let_go(&self, record: &SegmentRecord) {
        let mut lists = self.lists.lock();
        if let Some(list) = lists.packed.remove(&record.sequence) {
            lists.bytes -= list_bytes(&list);
        }
    }

    /// The packed positions of what has died in a generation.
    pub(crate) fn packed(&self, record: &SegmentRecord) -> Box<[u8]> {
        let lists = self.lists.lock();
        lists
            .packed
            .get(&record.sequence)
            .cloned()
            .unwrap_or_default()
    }

    /// How many positions have died.
    pub(crate) fn positions(&self) -> u64 {
        let lists = self.lists.lock();
        let lists = lists.packed.values();
        lists.map(|list| Positions::of(list).count() as u64).sum()
    }

    /// Bytes of memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let others = self.on_flash.len() * size_of::<u64>();
        self.lists.lock().bytes + self.key_bytes() + others as u64
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
    /// Those of lost entries, rising.
    marks: Vec<u32>,
}

impl DeadItems<'_> {
    /// Returns the marks of the entries for the segment whose loss is recorded, in rising order.
    pub(crate) fn into_lost_marks(self) -> Vec<u32> {
        self.marks
    }

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
        } else if dead_below().is_some_and(|below| version < below.version()) {
            // Expired or not: it supersedes nothing, and must not be taken for later than what the index has.
            ItemState::Overwritten
        } else if is_expired(expiry, now) {
            ItemState::Expired
        } else if !cutoffs.is_live(hash, version, expiry, now) {
            ItemState::Flushed
        } else {
            ItemState::Live
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_beyond_their_memory_give_up_the_oldest_generations() {
        let list = || vec![1; 1000].into_boxed_slice();
        let most = 3 * list_bytes(&list());
        let mut lists = Lists::default();
        // Not in the order of their ages, as segments are listed.
        for sequence in [7, 3, 9] {
            lists.set(sequence, list(), most);
        }
        lists.set(7, list(), most);
        assert_eq!((lists.floor, lists.bytes), (0, most));
        lists.set(5, list(), most);
        assert_eq!((lists.floor, lists.bytes), (4, most), "3 has gone");
        lists.set(2, list(), most);
        assert_eq!(lists.floor, 4, "what is given up comes back in no list");
        let left: Vec<u64> = lists.packed.keys().copied().collect();
        assert_eq!(left, [5, 7, 9]);
    }
}
