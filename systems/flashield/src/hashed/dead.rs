//! Keys with dead copies on flash to which an entry may still lead.
//!
//! An entry has no key and no version, so an update cannot remove the entries that it outdates without a read of flash. Until
//! that read the key is listed here, with the rank below which its copies are dead.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use engine::Passthrough;

/// Rank of a copy among the copies of its key; the later copy has the higher rank. The higher version is later. Of two copies
/// with the same version, the one in the younger segment is later, as only reclaim copies items; within a segment, the one
/// with the higher function, as the functions of a key are tried in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CopyRank {
    version: u64,
    generation: u64,
    function: u8,
}

impl CopyRank {
    /// Returns the rank of a copy.
    pub(super) fn new(version: u64, generation: u64, function: u8) -> Self {
        Self {
            version,
            generation,
            function,
        }
    }

    /// Returns the lowest rank of a copy with this version.
    pub(super) fn least_of(version: u64) -> Self {
        Self::new(version, 0, 0)
    }

    /// Returns the next higher rank.
    pub(super) fn next(self) -> Self {
        Self::new(self.version, self.generation, self.function + 1)
    }
}

/// Knowledge of the dead copies of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeadKey {
    /// Copies below this rank are dead.
    below: CopyRank,
    /// Copies below this rank never had an entry of their own: entries that lead to them belong to other keys.
    strangers_below: CopyRank,
    /// Youngest generation of a segment that was open when a copy in it died; 0 for none.
    open_until: u64,
    /// Whether the key is queued for verification.
    is_queued: bool,
}

impl DeadKey {
    /// Returns whether a copy is dead.
    pub(super) fn kills(&self, rank: CopyRank) -> bool {
        rank < self.below
    }

    /// Returns whether a dead copy has had an entry of its own.
    pub(super) fn had_entry(&self, rank: CopyRank) -> bool {
        rank >= self.strangers_below
    }

    /// Returns the version below which all copies are dead.
    pub(super) fn below_version(&self) -> u64 {
        self.below.version
    }

    /// Returns the youngest generation of a segment that was open when a copy in it died; 0 for none.
    pub(super) fn open_until(&self) -> u64 {
        self.open_until
    }

    /// Returns whether the copy with this generation and function is the one that outdated the others.
    pub(super) fn is_by(&self, generation: u64, function: u8) -> bool {
        let is_copy = self.below > self.strangers_below;
        is_copy && (self.below.generation, self.below.function) == (generation, function)
    }
}

/// The dead keys of a partition.
#[derive(Debug)]
pub(super) struct DeadKeys {
    keys: HashMap<u64, DeadKey, BuildHasherDefault<Passthrough>>,
    most: usize,
}

/// Returns the bytes that a hash table of the standard library allocates.
pub(super) fn table_bytes<T>(capacity: usize) -> u64 {
    if capacity == 0 {
        return 0;
    }
    // Tables of 8 buckets and more are filled to seven eighths, smaller ones except one bucket. Each bucket has a control
    // byte.
    let buckets = (capacity + 1).next_power_of_two();
    (buckets * (size_of::<T>() + 1)) as u64
}

impl DeadKeys {
    /// Returns an empty list for about `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self {
            keys: HashMap::default(),
            most,
        }
    }

    /// Returns the knowledge of a key's dead copies.
    pub(super) fn get(&self, hash: u64) -> Option<DeadKey> {
        self.keys.get(&hash).copied()
    }

    /// Returns whether a copy of a key is dead.
    pub(super) fn kills(&self, hash: u64, rank: CopyRank) -> bool {
        self.keys.get(&hash).is_some_and(|dead| dead.kills(rank))
    }

    /// Returns whether the key is listed, or may be added.
    pub(super) fn has_room_for(&self, hash: u64) -> bool {
        self.keys.len() < self.most || self.keys.contains_key(&hash)
    }

    /// Returns whether there are more keys than can be verified. The limit is twice `most`, since keys with copies in open
    /// segments are listed in any case.
    pub(super) fn is_overfull(&self) -> bool {
        self.keys.len() > 2 * self.most
    }

    /// Declares copies below a rank dead. `open` is the generation of an open segment that may have such a copy. Returns
    /// whether the key must be queued.
    pub(super) fn outdate(&mut self, hash: u64, below: CopyRank, open: Option<u64>) -> bool {
        let dead = self.keys.entry(hash).or_default();
        dead.below = dead.below.max(below);
        dead.open_until = dead.open_until.max(open.unwrap_or(0));
        !std::mem::replace(&mut dead.is_queued, true)
    }

    /// Declares a copy dead that had no entry, so that entries that lead to it must stay. `open` is the generation of its
    /// segment if that may be open.
    pub(super) fn exclude(&mut self, hash: u64, rank: CopyRank, open: Option<u64>) {
        let dead = self.keys.entry(hash).or_default();
        dead.below = dead.below.max(rank.next());
        dead.strangers_below = dead.strangers_below.max(rank.next());
        dead.open_until = dead.open_until.max(open.unwrap_or(0));
    }

    /// Takes a queued key off the queue. The result is for [`end`](Self::end), which compares it with the state then.
    pub(super) fn take_turn(&mut self, hash: u64) -> Option<DeadKey> {
        let dead = self.keys.get_mut(&hash)?;
        dead.is_queued = false;
        Some(*dead)
    }

    /// Removes a key to whose dead copies no entry leads any more, unless more copies have died than were `known`. Returns
    /// whether the key has been removed.
    pub(super) fn end(&mut self, hash: u64, known: DeadKey) -> bool {
        let is_all = self.get(hash) == Some(known);
        if is_all {
            self.keys.remove(&hash);
        }
        if self.keys.len() < self.keys.capacity() / 8 {
            self.keys.shrink_to(2 * self.keys.len());
        }
        is_all
    }

    /// Marks all keys as queued, and calls `queue` with each that was not.
    pub(super) fn queue_all(&mut self, mut queue: impl FnMut(u64)) {
        for (&hash, dead) in &mut self.keys {
            if !std::mem::replace(&mut dead.is_queued, true) {
                queue(hash);
            }
        }
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the bytes of memory of the list.
    pub(super) fn memory_bytes(&self) -> u64 {
        table_bytes::<(u64, DeadKey)>(self.keys.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: u64 = 7;

    #[test]
    fn the_later_copy_outranks() {
        let ranks = [(1, 9, 3), (2, 4, 0), (2, 4, 1), (2, 5, 0), (3, 1, 0)];
        let ranks = ranks
            .map(|(version, generation, function)| CopyRank::new(version, generation, function));
        assert!(ranks.is_sorted_by(|a, b| a < b));
        assert!(CopyRank::least_of(2) > ranks[0] && CopyRank::least_of(2) < ranks[1]);
        assert!(ranks[1].next() > ranks[1] && ranks[1].next() <= ranks[2]);
    }

    #[test]
    fn a_key_is_queued_once_and_goes_only_if_nothing_has_changed() {
        let mut dead = DeadKeys::new(4);
        let copy = |version| CopyRank::new(version, 1, 0);
        assert!(dead.outdate(HASH, CopyRank::least_of(5), Some(3)));
        assert!(!dead.outdate(HASH, CopyRank::least_of(4), None));
        assert!(dead.kills(HASH, copy(4)) && !dead.kills(HASH, copy(5)));
        let known = dead.take_turn(HASH).unwrap();
        assert_eq!(known.open_until(), 3);
        assert!(dead.outdate(HASH, copy(6), None), "while it is read");
        dead.end(HASH, known);
        assert!(dead.kills(HASH, copy(5)) && !dead.kills(HASH, copy(6)));
        let known = dead.take_turn(HASH).unwrap();
        let mut queued = Vec::new();
        dead.queue_all(|hash| queued.push(hash));
        dead.queue_all(|hash| queued.push(hash));
        assert_eq!(queued, [HASH]);
        dead.end(HASH, known);
        assert_eq!(dead.len(), 1, "it has been queued again");
        let known = dead.take_turn(HASH).unwrap();
        dead.end(HASH, known);
        assert_eq!(dead.len(), 0);
    }

    #[test]
    fn what_never_had_an_entry_is_told_from_what_had() {
        let mut dead = DeadKeys::new(4);
        let copy = |version| CopyRank::new(version, 1, 0);
        dead.exclude(HASH, copy(3), None);
        dead.outdate(HASH, CopyRank::least_of(9), None);
        let known = dead.get(HASH).unwrap();
        assert!(known.kills(copy(3)) && !known.had_entry(copy(3)));
        assert!(known.kills(copy(8)) && known.had_entry(copy(8)));
    }

    #[test]
    fn more_than_the_bound_are_told() {
        let mut dead = DeadKeys::new(2);
        for hash in 0..2 {
            assert!(dead.has_room_for(hash));
            dead.outdate(hash, CopyRank::least_of(1), None);
        }
        assert!(!dead.has_room_for(2) && dead.has_room_for(1) && !dead.is_overfull());
        assert!(dead.memory_bytes() >= 2 * size_of::<(u64, DeadKey)>() as u64);
    }
}
