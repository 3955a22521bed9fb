//! The table: entries bit-packed side by side, found by the slots of a key.

use std::ops::{ControlFlow, Range};

use format::segment::SegmentId;

use super::config::{CompactConfig, OutOfRange};
use super::entry::{CompactEntry, FREE, Location, Rank};
use super::probes::{PROBES, SlotId, slots_of};
use super::victim::Taken;

/// Map from 64-bit key hashes to locations on flash, for one partition. Each key has 16 slots; no slot stores a key.
///
/// [`candidates`](super::candidates) looks a key up. Look-ups, insertions and the `_if_at` methods are O(1): at most 16
/// independent memory accesses. `Send` and `Sync`; changes need `&mut self`.
#[derive(Debug)]
pub struct CompactTable {
    /// Slot `s` has the bits from `s * entry_bits` on.
    words: Box<[u64]>,
    slots: usize,
    entry_bits: u32,
    skip_bits: u32,
    len: usize,
    ghosts: usize,
    /// The slot that the CLOCK hand visits next.
    hand: usize,
}

/// Outcome of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Slot of the new entry.
    pub slot: SlotId,
    /// The entry that it displaced, whose object can no longer be found.
    pub displaced: Option<CompactEntry>,
}

impl CompactTable {
    /// Creates an empty table, which takes all of its memory at once.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] if no table can be made of the configuration.
    pub fn new(config: CompactConfig) -> Result<Self, OutOfRange> {
        config.check()?;
        Ok(Self {
            words: vec![0; config.words()].into_boxed_slice(),
            slots: config.slots,
            entry_bits: config.entry_bits(),
            skip_bits: config.skip_bits,
            len: 0,
            ghosts: 0,
            hand: 0,
        })
    }

    /// Returns the entries at the slots of a key, in the order in which they are tried. Reads all slots at once, so that
    /// the memory accesses overlap. The result does not borrow the table, and may be outdated when it is used.
    #[inline]
    pub fn entries(&self, hash: u64) -> impl Iterator<Item = (SlotId, CompactEntry)> + use<> {
        let slots = slots_of(hash, self.skip_bits, self.slots);
        let packed = slots.map(|slot| (slot, self.packed(slot)));
        let entry = |(slot, packed)| Some((slot, CompactEntry::unpack(packed)?));
        packed.into_iter().filter_map(entry)
    }

    /// Returns the slots of a key.
    pub fn slots_of(&self, hash: u64) -> [SlotId; PROBES] {
        slots_of(hash, self.skip_bits, self.slots)
    }

    /// Returns the entry of a slot, or `None` if the slot is free.
    ///
    /// # Panics
    ///
    /// If the table has no such slot. So do all methods that take a slot.
    pub fn get(&self, slot: SlotId) -> Option<CompactEntry> {
        CompactEntry::unpack(self.packed(slot))
    }

    /// Puts an entry into the first free slot of a key. If none is free, replaces the entry at the index that `victim`
    /// returns. Does not look for other entries of the key: a caller that knows of one replaces it.
    ///
    /// # Panics
    ///
    /// If the segment, the function, the CLOCK value or the chosen index is out of range.
    pub fn insert(
        &mut self,
        hash: u64,
        entry: CompactEntry,
        victim: impl FnOnce(&Taken) -> usize,
    ) -> Inserted {
        let slots = slots_of(hash, self.skip_bits, self.slots);
        let mut taken = [(SlotId(0), entry); PROBES];
        for (at, slot) in slots.into_iter().enumerate() {
            match self.get(slot) {
                Some(there) => taken[at] = (slot, there),
                None => {
                    self.set(slot, Some(entry));
                    let displaced = None;
                    return Inserted { slot, displaced };
                }
            }
        }
        let (slot, displaced) = taken[victim(&taken)];
        self.set(slot, Some(entry));
        let displaced = Some(displaced);
        Inserted { slot, displaced }
    }

    /// Removes the entry of a slot if it names `location`, with any rank. Returns the entry removed.
    pub fn remove_if_at(&mut self, slot: SlotId, location: Location) -> Option<CompactEntry> {
        self.set_if_at(slot, location, |_| None)
    }

    /// Counts a read of an entry if its slot names `location`: sets CLOCK to the highest value, and makes a ghost hot.
    /// Returns the entry as it was before.
    pub fn touch_if_at(&mut self, slot: SlotId, location: Location) -> Option<CompactEntry> {
        self.set_if_at(slot, location, |entry| Some(entry.ranked(Rank::READ)))
    }

    /// Replaces the entry of a slot if it names `location`, with any rank. Returns the entry replaced.
    ///
    /// # Panics
    ///
    /// If the segment, the function or the CLOCK value of the new entry is out of range.
    pub fn replace_if_at(
        &mut self,
        slot: SlotId,
        location: Location,
        entry: CompactEntry,
    ) -> Option<CompactEntry> {
        self.set_if_at(slot, location, |_| Some(entry))
    }

    /// Moves the CLOCK hand over the next `max_slots` slots, around the end if need be. Lowers each CLOCK value by one,
    /// and makes ghosts of entries that are at 0. Calls `demoted` with each new ghost; a break stops the hand behind it.
    /// Returns the number of slots passed; the next call goes on there.
    pub fn advance_hand(
        &mut self,
        max_slots: usize,
        mut demoted: impl FnMut(SlotId, CompactEntry) -> ControlFlow<()>,
    ) -> usize {
        for passed in 1..=max_slots {
            let slot = SlotId(self.hand);
            self.hand = (self.hand + 1) % self.slots;
            let Some(entry) = self.get(slot) else {
                continue;
            };
            match entry.rank {
                Rank::Ghost => {}
                Rank::Hot { clock: 0 } => {
                    let ghost = entry.ranked(Rank::Ghost);
                    self.set(slot, Some(ghost));
                    if demoted(slot, ghost).is_break() {
                        return passed;
                    }
                }
                Rank::Hot { clock } => {
                    let clock = clock - 1;
                    self.set(slot, Some(entry.ranked(Rank::Hot { clock })));
                }
            }
        }
        max_slots
    }

    /// Visits the entries of one segment in a range of slots, and removes those for which `keep` returns false. A pass
    /// over memory, for a segment whose keys cannot be read. If the keys are known, [`entries`](Self::entries) finds the
    /// entries at a fraction of the cost.
    pub fn sweep_segment(
        &mut self,
        segment: SegmentId,
        slots: Range<usize>,
        mut keep: impl FnMut(SlotId, CompactEntry) -> bool,
    ) {
        for slot in slots.map(SlotId) {
            let entry = self.get(slot);
            let of_segment = entry.filter(|entry| entry.location.segment == segment);
            if of_segment.is_some_and(|entry| !keep(slot, entry)) {
                self.set(slot, None);
            }
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the number of entries, ghosts included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of ghosts.
    pub fn ghosts(&self) -> usize {
        self.ghosts
    }

    /// Returns the fraction of the slots in use, 0 to 1.
    pub fn load(&self) -> f64 {
        self.len as f64 / self.slots as f64
    }

    /// Returns the bytes asked of the allocator, which never change: [`CompactConfig::memory_bytes`].
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    fn set_if_at(
        &mut self,
        slot: SlotId,
        location: Location,
        becomes: impl FnOnce(CompactEntry) -> Option<CompactEntry>,
    ) -> Option<CompactEntry> {
        let entry = self.get(slot).filter(|entry| entry.location == location)?;
        self.set(slot, becomes(entry));
        Some(entry)
    }

    fn set(&mut self, slot: SlotId, entry: Option<CompactEntry>) {
        let before = self.get(slot);
        let counted = |entry: Option<CompactEntry>| {
            let is_ghost = entry.is_some_and(|entry| entry.is_ghost());
            (usize::from(entry.is_some()), usize::from(is_ghost))
        };
        let ((gone, ghosts_gone), (come, ghosts_come)) = (counted(before), counted(entry));
        self.len = self.len + come - gone;
        self.ghosts = self.ghosts + ghosts_come - ghosts_gone;
        self.set_packed(slot, entry.map_or(FREE, CompactEntry::pack));
    }

    /// Returns the word in which a slot begins, and the bit.
    #[inline]
    fn place(&self, slot: SlotId) -> (usize, u32) {
        assert!(slot.0 < self.slots, "slot {} of {}", slot.0, self.slots);
        let bit = slot.0 * self.entry_bits as usize;
        let word_bits = u64::BITS as usize;
        (bit / word_bits, (bit % word_bits) as u32)
    }

    #[inline]
    fn packed(&self, slot: SlotId) -> u64 {
        let (word, bit) = self.place(slot);
        let mut packed = self.words[word] >> bit;
        if bit + self.entry_bits > u64::BITS {
            packed |= self.words[word + 1] << (u64::BITS - bit);
        }
        packed & self.mask()
    }

    fn set_packed(&mut self, slot: SlotId, packed: u64) {
        let mask = self.mask();
        assert!(packed <= mask, "the segment is wider than configured");
        let (word, bit) = self.place(slot);
        self.words[word] = self.words[word] & !(mask << bit) | packed << bit;
        if bit + self.entry_bits > u64::BITS {
            let done = u64::BITS - bit;
            let rest = &mut self.words[word + 1];
            *rest = *rest & !(mask >> done) | packed >> done;
        }
    }

    #[inline]
    fn mask(&self) -> u64 {
        (1 << self.entry_bits) - 1
    }
}
