//! The keys of each segment: the exact set while the segment gets entries, and a Bloom filter afterwards.
//!
//! ```text
//!   first entry ──▶ open: a set of hashes ──settled──▶ a Bloom filter ──▶ first entry of another generation
//! ```
//!
//! Invariant: a segment contains every key for which an entry of its generation has been added. A segment of whose generation
//! nothing is known may have every key.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use crate::compact::SegmentFilter;

use super::dead::table_bytes;
use engine::Passthrough;
use engine::format::segment::SegmentId;

type Hashes = HashSet<u64, BuildHasherDefault<Passthrough>>;

/// The keys of one generation of a segment.
#[derive(Debug, Default)]
struct Member {
    generation: u64,
    filter: Option<SegmentFilter>,
    /// Number of keys in the filter.
    keys: u32,
    /// Keys that are in no filter yet.
    open: Option<Box<Hashes>>,
}

impl Member {
    fn contains(&self, hash: u64) -> bool {
        let is_in = |filter: &SegmentFilter| filter.contains(hash);
        self.filter.as_ref().is_some_and(is_in)
            || self.open.as_ref().is_some_and(|open| open.contains(&hash))
    }

    fn memory_bytes(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, SegmentFilter::memory_bytes);
        let open = self.open.as_ref();
        filter + open.map_or(0, |open| table_bytes::<u64>(open.capacity()))
    }
}

/// A segment that still gets entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenMember {
    pub(super) segment: SegmentId,
    pub(super) generation: u64,
    /// Whether the segment is of an earlier run, and its items are being restored.
    is_restored: bool,
}

/// The keys of all segments.
#[derive(Debug)]
pub(super) struct Members {
    members: Box<[Member]>,
    open: Vec<OpenMember>,
    /// Bytes of all filters and sets.
    bytes: u64,
    /// Number of filters, and of the keys in them.
    filters: u64,
    keys: u64,
}

impl Members {
    /// Returns the keys of `segments` segments, of which nothing is known yet.
    pub(super) fn new(segments: u32) -> Self {
        Self {
            members: (0..segments).map(|_| Member::default()).collect(),
            open: Vec::new(),
            bytes: 0,
            filters: 0,
            keys: 0,
        }
    }

    /// Adds a key that gets an entry. Returns whether it is the first key of the generation.
    pub(super) fn add(&mut self, segment: SegmentId, generation: u64, hash: u64) -> bool {
        self.add_to(segment, generation, hash, false)
    }

    /// Adds a key that gets an entry for an item of an earlier run.
    pub(super) fn restore(&mut self, segment: SegmentId, generation: u64, hash: u64) {
        self.add_to(segment, generation, hash, true);
    }

    fn add_to(
        &mut self,
        segment: SegmentId,
        generation: u64,
        hash: u64,
        is_restored: bool,
    ) -> bool {
        let is_first = self.members[segment.0 as usize].generation != generation;
        if is_first {
            self.forget(segment);
        }
        let member = &mut self.members[segment.0 as usize];
        member.generation = generation;
        let before = member.memory_bytes();
        if member.open.is_none() {
            member.open = Some(Box::default());
            self.open.push(OpenMember {
                segment,
                generation,
                is_restored,
            });
        }
        if let Some(open) = &mut member.open {
            open.insert(hash);
        }
        self.bytes = self.bytes + member.memory_bytes() - before;
        is_first
    }

    /// Forgets the keys of a segment.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        let member = std::mem::take(&mut self.members[segment.0 as usize]);
        self.bytes -= member.memory_bytes();
        self.filters -= u64::from(member.filter.is_some());
        self.keys -= u64::from(member.keys);
        self.open.retain(|open| open.segment != segment);
    }

    /// Returns whether a segment may have a key.
    pub(super) fn may_have(&self, segment: SegmentId, generation: u64, hash: u64) -> bool {
        let member = &self.members[segment.0 as usize];
        member.generation != generation || member.contains(hash)
    }

    /// Returns the youngest generation, up to `until`, of an open segment that has a key.
    pub(super) fn open_with(&self, hash: u64, until: u64) -> Option<u64> {
        let has_key = |open: &&OpenMember| {
            open.generation <= until && self.members[open.segment.0 as usize].contains(hash)
        };
        let open = self.open.iter().filter(has_key);
        open.map(|open| open.generation).max()
    }

    /// Returns the open segments that this run fills.
    pub(super) fn filling(&self) -> Vec<OpenMember> {
        let open = self.open.iter().filter(|open| !open.is_restored);
        open.copied().collect()
    }

    /// Returns the filter of an open segment, for [`settle`](Self::settle). No key may be added to the segment in between.
    pub(super) fn filter_of(&self, segment: SegmentId, generation: u64) -> Option<SegmentFilter> {
        let member = &self.members[segment.0 as usize];
        let open = member.open.as_ref();
        let hashes = open.filter(|_| member.generation == generation && member.filter.is_none())?;
        let hashes: Vec<u64> = hashes.iter().copied().collect();
        Some(SegmentFilter::build(&hashes))
    }

    /// Replaces the set of a segment's keys with the filter: the generation gets no more entries.
    pub(super) fn settle(&mut self, segment: SegmentId, generation: u64, filter: SegmentFilter) {
        let member = &mut self.members[segment.0 as usize];
        if member.generation != generation || member.filter.is_some() {
            return;
        }
        let before = member.memory_bytes();
        member.filter = Some(filter);
        member.keys = member.open.take().map_or(0, |open| open.len() as u32);
        self.filters += 1;
        self.keys += u64::from(member.keys);
        self.bytes = self.bytes + member.memory_bytes() - before;
        self.open.retain(|open| open.segment != segment);
    }

    /// Returns the mean number of keys of a settled segment; 0 if there is none.
    pub(super) fn mean_keys(&self) -> u64 {
        self.keys / self.filters.max(1)
    }

    /// Returns the bytes of memory of all segments, with their filters and sets.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.members) as u64 + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentId = SegmentId(2);

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 40
    }

    fn settle(members: &mut Members, generation: u64) {
        let filter = members.filter_of(SEGMENT, generation).unwrap();
        members.settle(SEGMENT, generation, filter);
    }

    #[test]
    fn a_segment_has_all_its_keys_in_every_state_and_few_others() {
        let mut members = Members::new(4);
        assert!(members.may_have(SEGMENT, 5, hash(0)), "nothing is known");
        for number in 0..1000 {
            assert_eq!(members.add(SEGMENT, 5, hash(number)), number == 0);
        }
        let others = |members: &Members| {
            let others = 1000..11_000;
            let others = others.filter(|&number| members.may_have(SEGMENT, 5, hash(number)));
            others.count()
        };
        assert_eq!(others(&members), 0);
        assert_eq!(members.filling().len(), 1);
        let open_bytes = members.memory_bytes();
        settle(&mut members, 5);
        assert!((0..1000).all(|number| members.may_have(SEGMENT, 5, hash(number))));
        assert!(others(&members) < 200);
        assert!(members.filling().is_empty() && members.memory_bytes() < open_bytes / 4);
    }

    #[test]
    fn the_next_generation_has_nothing_of_the_last() {
        let mut members = Members::new(4);
        let bytes = members.memory_bytes();
        members.add(SEGMENT, 5, hash(1));
        settle(&mut members, 5);
        members.add(SEGMENT, 9, hash(2));
        assert!(!members.may_have(SEGMENT, 9, hash(1)));
        assert!(members.may_have(SEGMENT, 9, hash(2)));
        members.forget(SEGMENT);
        assert_eq!(members.memory_bytes(), bytes);
        assert!(members.filling().is_empty());
    }

    #[test]
    fn open_segments_tell_which_keys_they_have() {
        let mut members = Members::new(4);
        members.add(SegmentId(0), 5, hash(1));
        members.add(SegmentId(1), 6, hash(1));
        members.restore(SegmentId(3), 2, hash(2));
        assert_eq!(members.open_with(hash(1), u64::MAX), Some(6));
        assert_eq!(members.open_with(hash(1), 5), Some(5));
        assert_eq!(members.open_with(hash(1), 4), None);
        assert_eq!(members.open_with(hash(2), u64::MAX), Some(2));
        assert_eq!(members.filling().len(), 2, "the third is restored");
    }
}
