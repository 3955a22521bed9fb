//! The index of one partition: its table and its dead keys.

use std::ops::ControlFlow;

use crate::compact::{
    CompactEntry, CompactTable, Inserted, Location, PROBES, Rank, SlotId, oldest,
};

use super::dead::DeadKeys;
use super::spot::Spot;

/// Most slots that the CLOCK hand passes in one change.
const SLOTS_A_TURN: usize = 64;
/// CLOCK value of an item just written: lower than that of an item just read.
pub(super) const CLOCK_WRITTEN: u8 = 1;

/// The index of one partition, behind the partition's lock.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) table: CompactTable,
    pub(super) dead: DeadKeys,
    /// Most entries that may be hot, if memory and flash share one CLOCK.
    pub(super) most_hot: usize,
    /// For the shared CLOCK: the hand's unreported progress through memory, in items times slots of the table.
    passed: u64,
}

/// The entries in the slots of a key that lead to one spot. One entry at most is the key's own, but which one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    /// One of the entries: one with the spot's own location if there is any.
    slot: SlotId,
    location: Location,
    /// Number of entries with the spot's own location, and of entries with another location that leads there.
    pub(super) own: usize,
    others: usize,
    /// Whether one of the entries is hot: its item is kept when the segment is reclaimed.
    pub(super) is_hot: bool,
    /// Highest CLOCK value of the entries; ghosts count as 0.
    pub(super) clock: u8,
}

impl Shard {
    /// Returns the entries that lead to a spot of a key; `None` if there are none.
    pub(super) fn naming(&self, hash: u64, spot: &Spot) -> Option<Naming> {
        let entries = self.table.entries(hash);
        let named = entries.filter(|(_, entry)| spot.is_named_by(entry.location));
        named.fold(None, |naming: Option<Naming>, (slot, entry)| {
            let location = entry.location;
            let is_own = location == spot.own();
            let mut naming = naming.unwrap_or(Naming {
                slot,
                location,
                own: 0,
                others: 0,
                is_hot: false,
                clock: 0,
            });
            if is_own {
                (naming.slot, naming.location) = (slot, location);
            }
            naming.own += usize::from(is_own);
            naming.others += usize::from(!is_own);
            naming.is_hot |= !entry.is_ghost();
            if let Rank::Hot { clock } = entry.rank {
                naming.clock = naming.clock.max(clock);
            }
            Some(naming)
        })
    }

    /// Removes the entry of a dead copy of a key, if it can be told from other keys' entries, which must stay because their
    /// items are live. Returns the removed entry's slot and location, and whether no entry leads to the copy any more.
    pub(super) fn remove_dead(
        &mut self,
        hash: u64,
        spot: &Spot,
        version: u64,
    ) -> (Option<(SlotId, Location)>, bool) {
        let Some(naming) = self.naming(hash, spot) else {
            return (None, true);
        };
        let dead = self.dead.get(hash);
        let had_entry = dead.is_none_or(|dead| dead.had_entry(spot.rank(version)));
        if had_entry && naming.own == 1 {
            self.table.remove_if_at(naming.slot, naming.location);
            let removed = (naming.slot, naming.location);
            return (Some(removed), naming.others == 0);
        }
        (None, false)
    }

    /// Removes all entries that lead to a spot of a key. Only for a segment that is being reclaimed: all entries except one
    /// belong to other keys. Returns how many were removed.
    pub(super) fn remove_all(&mut self, hash: u64, spot: &Spot) -> usize {
        let before = self.table.len();
        for (slot, entry) in self.table.entries(hash) {
            if spot.is_named_by(entry.location) {
                self.table.remove_if_at(slot, entry.location);
            }
        }
        before - self.table.len()
    }

    /// Changes the location of an entry after its copy has been moved.
    pub(super) fn replace(&mut self, naming: Naming, to: Location) {
        if let Some(entry) = self.table.get(naming.slot) {
            let entry = CompactEntry {
                location: to,
                ..entry
            };
            self.table
                .replace_if_at(naming.slot, naming.location, entry);
        }
    }

    /// Returns whether a key has a free slot.
    pub(super) fn has_room_for(&self, hash: u64) -> bool {
        self.table.entries(hash).count() < PROBES
    }

    /// Adds an entry for a key. Returns its slot and the entry that it displaced. `age` grows with the age of a segment.
    pub(super) fn put(
        &mut self,
        hash: u64,
        entry: CompactEntry,
        age: impl Fn(crate::compact::SegmentId) -> u64,
    ) -> Inserted {
        self.table.insert(hash, entry, |taken| oldest(taken, age))
    }

    pub(super) fn new(table: CompactTable, dead: DeadKeys) -> Self {
        Self {
            table,
            dead,
            most_hot: usize::MAX,
            passed: 0,
        }
    }

    /// Moves the CLOCK hand, by at most [`SLOTS_A_TURN`] slots, while more than `hot_percent` of the entries are hot (the hot
    /// data threshold of Flashield, section 4.3).
    pub(super) fn keep_ghosts(&mut self, hot_percent: u32) {
        let most = self.table.len() as u64 * u64::from(hot_percent) / 100;
        self.move_hand(most as usize);
    }

    /// Moves the hand of the shared CLOCK over these entries and `items` items in memory, while more than `most_hot` entries
    /// are hot. Returns how many of the items in memory the hand has passed.
    pub(super) fn move_one_hand(&mut self, items: u64) -> u64 {
        let slots = self.move_hand(self.most_hot);
        let a_round = self.table.slots() as u64;
        self.passed += items * slots as u64;
        let passed = self.passed / a_round;
        self.passed %= a_round;
        passed
    }

    /// Moves the hand, by at most [`SLOTS_A_TURN`] slots, while more than `most` entries are hot. Returns how many slots it
    /// has passed.
    pub(super) fn move_hand(&mut self, most: usize) -> usize {
        let hot = self.table.len() - self.table.ghosts();
        let mut excess = hot.saturating_sub(most);
        if excess == 0 {
            return 0;
        }
        self.table.advance_hand(SLOTS_A_TURN, |_, _| {
            excess -= 1;
            if excess == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }
}

/// Returns the entry of an item that has just been written.
pub(super) fn written(location: Location, clock: u8) -> CompactEntry {
    CompactEntry {
        location,
        rank: Rank::Hot { clock },
    }
}

/// Returns the entry of a restored item. Whether the item had been read is unknown.
pub(super) fn restored(location: Location) -> CompactEntry {
    CompactEntry {
        location,
        rank: Rank::Hot { clock: 0 },
    }
}

#[cfg(test)]
mod tests {
    use crate::compact::{CompactConfig, SegmentId};

    use super::super::spot::tests::spot as spot_of;
    use super::*;

    const LOCATION: Location = Location {
        segment: SegmentId(3),
        function: 4,
    };

    /// Returns a shard in whose table all keys have the same 16 slots.
    fn tiny() -> Shard {
        let config = CompactConfig {
            slots: PROBES,
            segment_bits: 4,
            skip_bits: 0,
        };
        Shard::new(CompactTable::new(config).unwrap(), DeadKeys::new(8))
    }

    fn put(shard: &mut Shard, hash: u64, location: Location) {
        shard.put(hash, written(location, CLOCK_WRITTEN), |_| 0);
    }

    /// Returns the spot that [`LOCATION`] names.
    fn spot() -> Spot {
        spot_of(LOCATION.segment, &[LOCATION.function])
    }

    #[test]
    fn the_entry_of_a_dead_copy_goes_unless_it_may_be_another_keys() {
        let mut shard = tiny();
        put(&mut shard, 1 << 60, LOCATION);
        put(&mut shard, 2 << 60, LOCATION);
        let naming = shard.naming(1 << 60, &spot()).unwrap();
        assert_eq!((naming.own, naming.is_hot), (2, true));
        assert!(!shard.remove_dead(1 << 60, &spot(), 1).1);
        assert_eq!(shard.table.len(), 2, "one of them is alive");
        shard.table.remove_if_at(naming.slot, LOCATION);
        let (removed, is_unnamed) = shard.remove_dead(1 << 60, &spot(), 1);
        assert!(removed.is_some() && is_unnamed);
        assert!(shard.table.is_empty());
        assert_eq!(shard.remove_dead(1 << 60, &spot(), 1), (None, true));
    }

    #[test]
    fn what_leads_to_a_copy_that_never_had_an_entry_stays() {
        let mut shard = tiny();
        put(&mut shard, 2 << 60, LOCATION);
        shard.dead.exclude(1 << 60, spot().rank(5), None);
        assert!(!shard.remove_dead(1 << 60, &spot(), 5).1);
        assert_eq!(shard.table.len(), 1);
        // A later copy had an entry.
        assert!(shard.remove_dead(1 << 60, &spot(), 6).1);
    }

    #[test]
    fn an_entry_with_another_function_of_the_same_place_is_another_keys() {
        let mut shard = tiny();
        let function = LOCATION.function + 1;
        let other = Location {
            function,
            ..LOCATION
        };
        put(&mut shard, 2 << 60, other);
        let spot = spot_of(LOCATION.segment, &[LOCATION.function, function]);
        assert!(!shard.remove_dead(1 << 60, &spot, 1).1);
        put(&mut shard, 1 << 60, LOCATION);
        assert!(
            !shard.remove_dead(1 << 60, &spot, 1).1,
            "one still leads there"
        );
        assert_eq!(shard.table.len(), 1);
        assert_eq!(shard.naming(1 << 60, &spot).unwrap().location, other);
    }

    #[test]
    fn all_of_a_segment_that_goes_is_removed() {
        let mut shard = tiny();
        let other = Location {
            function: 5,
            ..LOCATION
        };
        let other_spot = spot_of(other.segment, &[other.function]);
        for location in [LOCATION, other, LOCATION] {
            put(&mut shard, 1 << 60, location);
        }
        assert_eq!(shard.remove_all(1 << 60, &spot()), 2);
        assert_eq!(shard.table.len(), 1);
        let naming = shard.naming(1 << 60, &other_spot).unwrap();
        shard.replace(naming, LOCATION);
        assert_eq!(shard.naming(1 << 60, &other_spot), None);
        assert!(shard.naming(1 << 60, &spot()).is_some());
    }

    #[test]
    fn as_many_become_ghosts_as_the_threshold_wants() {
        let mut shard = tiny();
        for function in 0..10 {
            let location = Location {
                function,
                ..LOCATION
            };
            put(&mut shard, 1 << 60, location);
        }
        for _ in 0..4 {
            shard.keep_ghosts(70);
        }
        assert_eq!(shard.table.ghosts(), 3);
        assert!(shard.has_room_for(1 << 60));
    }
}
