//! The table against a plain map from slots to entries, under random operations.
//!
//! Tables are tiny, so that keys share slots, insertions displace, and the hand comes around often.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::segment::SegmentId;
use proptest::prelude::*;

use super::probes::slots_of;
use super::tests::hash;
use super::tests::{hot, table};
use super::*;

const SKIP_BITS: u32 = 3;
const SEGMENTS: u32 = 20;

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64, CompactEntry),
    /// Index of the entry, modulo their number.
    Remove(usize),
    Touch(usize),
    Replace(usize, CompactEntry),
    /// With a location that its slot does not name.
    Stale(usize),
    Hand {
        max_slots: usize,
        ghosts: usize,
    },
    Sweep {
        segment: u32,
        from: usize,
        to: usize,
        kept_functions: u8,
    },
}

fn entries() -> impl Strategy<Value = CompactEntry> {
    let entry = |(segment, function, clock)| match clock {
        4 => hot(segment, function, 0).ranked(Rank::Ghost),
        clock => hot(segment, function, clock),
    };
    (0..SEGMENTS, 0..FUNCTIONS, 0..=4u8).prop_map(entry)
}

fn operations() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let at = 0..1000usize;
    prop_oneof![
        8 => (0..200u64, entries()).prop_map(|(key, entry)| Insert(key, entry)),
        2 => at.clone().prop_map(Remove),
        2 => at.clone().prop_map(Touch),
        1 => (at.clone(), entries()).prop_map(|(at, entry)| Replace(at, entry)),
        1 => at.clone().prop_map(Stale),
        2 => (0..200usize, 1..9usize).prop_map(|(max_slots, ghosts)| Hand { max_slots, ghosts }),
        1 => (0..SEGMENTS, 0..100usize, 0..100usize, 0..=FUNCTIONS).prop_map(
            |(segment, from, to, kept_functions)| Sweep { segment, from, to, kept_functions }
        ),
    ]
}

/// The expected content of the table, and the keys it belongs to.
struct Model {
    slots: usize,
    held: BTreeMap<SlotId, (u64, CompactEntry)>,
    hand: usize,
}

impl Model {
    fn slot_of(&self, at: usize) -> Option<SlotId> {
        let nth = at.checked_rem(self.held.len())?;
        self.held.keys().nth(nth).copied()
    }

    /// The hand by its definition: a slot at a time, until it has made this many ghosts.
    fn advance_hand(&mut self, max_slots: usize, ghosts: usize) -> (usize, Vec<SlotId>) {
        let mut made = Vec::new();
        for passed in 0..max_slots {
            if made.len() == ghosts {
                return (passed, made);
            }
            let slot = SlotId(self.hand);
            self.hand = (self.hand + 1) % self.slots;
            if let Some((_, entry)) = self.held.get_mut(&slot)
                && let Rank::Hot { clock } = entry.rank
            {
                entry.rank = match clock.checked_sub(1) {
                    Some(clock) => Rank::Hot { clock },
                    None => Rank::Ghost,
                };
                made.extend(entry.is_ghost().then_some(slot));
            }
        }
        (max_slots, made)
    }

    fn apply(&mut self, table: &mut CompactTable, operation: Operation) {
        match operation {
            Operation::Insert(key, entry) => self.insert(table, hash(key) >> SKIP_BITS, entry),
            Operation::Remove(at) => {
                if let Some(slot) = self.slot_of(at) {
                    let (_, entry) = self.held.remove(&slot).unwrap();
                    assert_eq!(table.remove_if_at(slot, entry.location), Some(entry));
                    assert_eq!(table.remove_if_at(slot, entry.location), None);
                }
            }
            Operation::Touch(at) => {
                if let Some(slot) = self.slot_of(at) {
                    let (_, entry) = self.held.get_mut(&slot).unwrap();
                    assert_eq!(table.touch_if_at(slot, entry.location), Some(*entry));
                    entry.rank = Rank::Hot {
                        clock: CLOCK_HIGHEST,
                    };
                }
            }
            Operation::Replace(at, by) => {
                if let Some(slot) = self.slot_of(at) {
                    let (_, entry) = self.held.get_mut(&slot).unwrap();
                    let before = table.replace_if_at(slot, entry.location, by);
                    assert_eq!(before, Some(*entry));
                    *entry = by;
                }
            }
            Operation::Stale(at) => {
                let Some(slot) = self.slot_of(at) else { return };
                let location = self.held[&slot].1.location;
                let (segment, function) = (location.segment, (location.function + 1) % FUNCTIONS);
                let other = hot((segment.0 + 1) % SEGMENTS, location.function, 0);
                for stale in [other.location, Location { segment, function }] {
                    assert_eq!(table.remove_if_at(slot, stale), None);
                    assert_eq!(table.touch_if_at(slot, stale), None);
                    assert_eq!(table.replace_if_at(slot, stale, other), None);
                }
            }
            Operation::Hand { max_slots, ghosts } => {
                let mut made = Vec::new();
                let passed = table.advance_hand(max_slots, |slot, entry| {
                    assert!(entry.is_ghost());
                    made.push(slot);
                    if made.len() == ghosts {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                assert_eq!((passed, made), self.advance_hand(max_slots, ghosts));
            }
            Operation::Sweep {
                segment,
                from,
                to,
                kept_functions,
            } => {
                let segment = SegmentId(segment);
                let range = from.min(self.slots)..to.min(self.slots);
                let mut visited = Vec::new();
                table.sweep_segment(segment, range.clone(), |slot, entry| {
                    visited.push((slot, entry));
                    entry.location.function < kept_functions
                });
                let of = |slot: &SlotId, entry: &CompactEntry| {
                    range.contains(&slot.0) && entry.location.segment == segment
                };
                let held = self.held.iter().map(|(slot, (_, entry))| (*slot, *entry));
                let expected: Vec<_> = held.filter(|(slot, entry)| of(slot, entry)).collect();
                assert_eq!(visited, expected);
                self.held.retain(|slot, (_, entry)| {
                    !of(slot, entry) || entry.location.function < kept_functions
                });
            }
        }
    }

    fn insert(&mut self, table: &mut CompactTable, key: u64, entry: CompactEntry) {
        let slots = slots_of(key, SKIP_BITS, self.slots);
        let free = slots.iter().find(|slot| !self.held.contains_key(slot));
        let inserted = table.insert(key, entry, last_collided);
        let before = self.held.insert(inserted.slot, (key, entry));
        assert_eq!(inserted.displaced, before.map(|(_, entry)| entry));
        match free {
            Some(&free) => assert_eq!(inserted.slot, free),
            None => assert!(slots.contains(&inserted.slot)),
        }
    }

    fn check(&self, table: &CompactTable) {
        for slot in (0..self.slots).map(SlotId) {
            let held = self.held.get(&slot).map(|(_, entry)| *entry);
            assert_eq!(table.get(slot), held, "{slot:?}");
        }
        for (&slot, &(key, entry)) in &self.held {
            let mut candidates = candidates(table, |_| None, key);
            assert!(candidates.any(|candidate| candidate == (slot, entry)));
        }
        let ghosts = self.held.values().filter(|(_, entry)| entry.is_ghost());
        assert_eq!(table.ghosts(), ghosts.count());
        assert_eq!(table.len(), self.held.len());
        assert_eq!(table.is_empty(), self.held.is_empty());
        assert_eq!(table.slots(), self.slots);
    }
}

proptest! {
    #[test]
    fn a_table_holds_what_a_map_holds(
        slots in 16..90usize,
        segment_bits in 5..=SEGMENT_BITS_HIGHEST,
        operations in proptest::collection::vec(operations(), 1..200),
    ) {
        let mut table = table(slots, segment_bits, SKIP_BITS);
        let mut model = Model { slots, held: BTreeMap::new(), hand: 0 };
        for operation in operations {
            model.apply(&mut table, operation);
            model.check(&table);
        }
    }
}
