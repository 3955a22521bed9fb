//! The index of one partition: its table, and its dead keys.

use std::ops::ControlFlow;

use index::compact::{CompactEntry, CompactTable, Location, PROBES, Rank, SlotId, oldest};

use super::dead::{CopyRank, DeadKeys};

/// Slots that the CLOCK hand passes at most before it waits for the next change.
const SLOTS_A_TURN: usize = 64;
/// CLOCK value of what has just been written: below that of what has been read.
pub(super) const CLOCK_WRITTEN: u8 = 1;

/// The index of one partition. Behind the partition's lock.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) table: CompactTable,
    pub(super) dead: DeadKeys,
}

/// The entries in the slots of a key that name one location. Of two, one is another key's, and nobody knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    first: SlotId,
    count: usize,
    /// Whether one of them is kept when its segment is reclaimed.
    pub(super) is_hot: bool,
}

impl Shard {
    /// The entries that name a location, as far as they are in the slots of a key; `None` where there is none.
    pub(super) fn naming(&self, hash: u64, location: Location) -> Option<Naming> {
        let named = self.table.entries(hash);
        let named = named.filter(|(_, entry)| entry.location == location);
        named.fold(None, |naming: Option<Naming>, (slot, entry)| {
            let before = naming.unwrap_or(Naming {
                first: slot,
                count: 0,
                is_hot: false,
            });
            Some(Naming {
                count: before.count + 1,
                is_hot: before.is_hot || !entry.is_ghost(),
                ..before
            })
        })
    }

    /// Removes the entry of a dead copy of a key, if it is known which one that is. Another key's must stay: its item is
    /// alive. Whether nothing names the copy any more.
    pub(super) fn remove_dead(&mut self, hash: u64, location: Location, rank: CopyRank) -> bool {
        let Some(naming) = self.naming(hash, location) else {
            return true;
        };
        let dead = self.dead.get(hash);
        let is_its_own = naming.count == 1 && dead.is_none_or(|dead| dead.had_entry(rank));
        is_its_own && self.table.remove_if_at(naming.first, location).is_some()
    }

    /// Removes all that names a location in the slots of a key. Only where the segment goes: one of them may be another
    /// key's.
    pub(super) fn remove_all(&mut self, hash: u64, location: Location) {
        for (slot, _) in self.table.entries(hash) {
            self.table.remove_if_at(slot, location);
        }
    }

    /// The copy of a key has moved from where `naming` tells.
    pub(super) fn replace(&mut self, naming: Naming, from: Location, to: Location) {
        if let Some(entry) = self.table.get(naming.first) {
            let entry = CompactEntry {
                location: to,
                ..entry
            };
            self.table.replace_if_at(naming.first, from, entry);
        }
    }

    /// Whether a key has a free slot.
    pub(super) fn has_room_for(&self, hash: u64) -> bool {
        self.table.entries(hash).count() < PROBES
    }

    /// Makes an entry for a key. Returns the one that had to go for it. `age` is the greater the older a segment is.
    pub(super) fn put(
        &mut self,
        hash: u64,
        entry: CompactEntry,
        age: impl Fn(index::compact::SegmentId) -> u64,
    ) -> Option<CompactEntry> {
        let inserted = self.table.insert(hash, entry, |taken| oldest(taken, age));
        inserted.displaced
    }

    /// Moves the CLOCK hand while more than this part of the entries are hot (Flashield, section 4.3, the hot data
    /// threshold), a few slots at most.
    pub(super) fn keep_ghosts(&mut self, hot_percent: u32) {
        let len = self.table.len();
        let hot = len - self.table.ghosts();
        let most = (len as u64 * u64::from(hot_percent) / 100) as usize;
        let mut excess = hot.saturating_sub(most);
        if excess == 0 {
            return;
        }
        self.table.advance_hand(SLOTS_A_TURN, |_, _| {
            excess -= 1;
            if excess == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
}

/// The entry of an item that has just been written.
pub(super) fn written(location: Location) -> CompactEntry {
    CompactEntry {
        location,
        rank: Rank::Hot {
            clock: CLOCK_WRITTEN,
        },
    }
}

/// The entry of an item that a start has found: nobody knows whether it has been read.
pub(super) fn restored(location: Location) -> CompactEntry {
    CompactEntry {
        location,
        rank: Rank::Hot { clock: 0 },
    }
}

#[cfg(test)]
mod tests {
    use index::compact::{CompactConfig, SegmentId};

    use super::*;

    const LOCATION: Location = Location {
        segment: SegmentId(3),
        function: 4,
    };

    /// A table in which all keys have the same 16 slots.
    fn tiny() -> Shard {
        let config = CompactConfig {
            slots: PROBES,
            segment_bits: 4,
            skip_bits: 0,
        };
        Shard {
            table: CompactTable::new(config).unwrap(),
            dead: DeadKeys::new(8),
        }
    }

    fn put(shard: &mut Shard, hash: u64, location: Location) {
        shard.put(hash, written(location), |_| 0);
    }

    fn rank(version: u64) -> CopyRank {
        CopyRank::new(version, 1, LOCATION.function)
    }

    #[test]
    fn the_entry_of_a_dead_copy_goes_unless_it_may_be_another_keys() {
        let mut shard = tiny();
        put(&mut shard, 1 << 60, LOCATION);
        put(&mut shard, 2 << 60, LOCATION);
        let naming = shard.naming(1 << 60, LOCATION).unwrap();
        assert_eq!((naming.count, naming.is_hot), (2, true));
        assert!(!shard.remove_dead(1 << 60, LOCATION, rank(1)));
        assert_eq!(shard.table.len(), 2, "one of them is alive");
        shard.table.remove_if_at(naming.first, LOCATION);
        assert!(shard.remove_dead(1 << 60, LOCATION, rank(1)));
        assert!(shard.table.is_empty());
        assert!(shard.remove_dead(1 << 60, LOCATION, rank(1)), "it has gone");
    }

    #[test]
    fn what_leads_to_a_copy_that_never_had_an_entry_stays() {
        let mut shard = tiny();
        put(&mut shard, 2 << 60, LOCATION);
        shard.dead.exclude(1 << 60, rank(5), None);
        assert!(!shard.remove_dead(1 << 60, LOCATION, rank(5)));
        assert_eq!(shard.table.len(), 1);
        // A later copy had one.
        assert!(shard.remove_dead(1 << 60, LOCATION, rank(6)));
    }

    #[test]
    fn all_of_a_segment_that_goes_is_removed() {
        let mut shard = tiny();
        let other = Location {
            function: 5,
            ..LOCATION
        };
        for location in [LOCATION, other, LOCATION] {
            put(&mut shard, 1 << 60, location);
        }
        shard.remove_all(1 << 60, LOCATION);
        assert_eq!(shard.table.len(), 1);
        let naming = shard.naming(1 << 60, other).unwrap();
        shard.replace(naming, other, LOCATION);
        assert_eq!(shard.naming(1 << 60, other), None);
        assert!(shard.naming(1 << 60, LOCATION).is_some());
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
