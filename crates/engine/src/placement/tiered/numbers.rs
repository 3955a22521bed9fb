//! Numbers of segments: what the index calls a generation of a segment.
//!
//! Entries on flash have the number, which no other generation has (the slab sequence counter of SlickCache, section 4.3).
//! Entries in memory have the segment, and its turn, one of three that its generations have in order: so an entry of Tier 1
//! must be gone, or be a tombstone, before its segment has had three more generations.

use std::collections::BTreeMap;

use runtime::sync::Notify;

use super::super::SegmentRecord;
use crate::format::cascade::NumberedSegment;
use crate::format::segment::SegmentId;
use crate::sync::RwLock;

/// Turns that the generations of a segment have.
const TURNS: u8 = 3;
/// Bits of a turn: one value of them stands for none.
pub(super) const TURN_BITS: u32 = 2;

/// The numbers of all segments.
pub(super) struct Numbers {
    table: RwLock<Table>,
    /// Told when Tier 1 is to be swept soon.
    pub(super) sweep_due: Notify,
}

struct Table {
    /// The numbered generation of each segment, by the segment's own number.
    of_segments: Vec<Numbered>,
    by_number: BTreeMap<u32, SegmentId>,
    next: u32,
    is_sweep_due: bool,
}

/// The generation of a segment that has a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbered {
    /// 0 where there is none.
    pub(super) generation: u64,
    pub(super) number: u32,
    pub(super) turn: u8,
    /// Generations that have got a number so far, and those of them that came after the oldest of which Tier 1 may have entries.
    given: u32,
    unswept: u8,
    /// Items placed in it that are not known to be dead.
    pub(super) items: u32,
}

/// What has come of asking for a number.
pub(super) enum Given {
    /// The generation has it.
    Number(Numbered),
    /// Tier 1 has to be swept first: it may have entries of a generation with the same turn.
    Sweep,
    /// There are no more.
    None,
}

impl Numbers {
    pub(super) fn new(segments: u32) -> Self {
        Self {
            table: RwLock::new(Table {
                of_segments: vec![Numbered::default(); segments as usize],
                by_number: BTreeMap::new(),
                next: 0,
                is_sweep_due: false,
            }),
            sweep_due: Notify::default(),
        }
    }

    /// The numbered generation of a segment.
    pub(super) fn of_segment(&self, segment: SegmentId) -> Option<Numbered> {
        let numbered = *self.table.read().of_segments.get(segment.0 as usize)?;
        (numbered.generation != 0).then_some(numbered)
    }

    /// The segment with a number, and its generation.
    pub(super) fn segment(&self, number: u32) -> Option<(SegmentId, Numbered)> {
        let table = self.table.read();
        let segment = *table.by_number.get(&number)?;
        Some((segment, table.of_segments[segment.0 as usize]))
    }

    /// The number of a generation, which gets one if it has none. The items of the generation before are `forgotten`.
    pub(super) fn give(
        &self,
        segment: SegmentId,
        generation: u64,
        forgotten: impl FnOnce(u32),
    ) -> Given {
        if let Some(numbered) = self.of_segment(segment)
            && numbered.generation == generation
        {
            return Given::Number(numbered);
        }
        let table = &mut *self.table.write();
        let before = table.of_segments[segment.0 as usize];
        if before.generation == generation {
            return Given::Number(before);
        }
        if before.unswept == TURNS - 1 {
            return Given::Sweep;
        }
        let number = table.next;
        if number == u32::MAX {
            return Given::None;
        }
        table.next += 1;
        if before.generation != 0 {
            table.by_number.remove(&before.number);
        }
        table.by_number.insert(number, segment);
        let numbered = Numbered {
            generation,
            number,
            turn: (before.turn + 1) % TURNS,
            given: before.given.wrapping_add(1),
            unswept: before.unswept + 1,
            items: 0,
        };
        table.of_segments[segment.0 as usize] = numbered;
        if numbered.unswept == TURNS - 1 && !table.is_sweep_due {
            table.is_sweep_due = true;
            self.sweep_due.notify_all();
        }
        forgotten(before.items);
        Given::Number(numbered)
    }

    /// Whether Tier 1 is to be swept soon.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.table.read().is_sweep_due
    }

    /// Numbers given so far.
    pub(super) fn given(&self) -> u32 {
        self.table.read().next
    }

    /// Tier 1 begins to be swept: what is to be told to [`swept`](Self::swept).
    pub(super) fn sweep_begins(&self) -> Vec<u32> {
        let table = self.table.read();
        table
            .of_segments
            .iter()
            .map(|numbered| numbered.given)
            .collect()
    }

    /// Tier 1 has no entries any more of generations that had gone when it began to be swept. Several of a segment may have
    /// come meanwhile.
    pub(super) fn swept(&self, begun: &[u32]) {
        let mut table = self.table.write();
        table.is_sweep_due = false;
        for (numbered, &begun) in table.of_segments.iter_mut().zip(begun) {
            let since = numbered.given.wrapping_sub(begun);
            numbered.unswept = since.min(u32::from(numbered.unswept)) as u8;
        }
    }

    /// Counts items in and out of a generation; returns whether it is still there, with as many.
    pub(super) fn count(&self, segment: SegmentId, generation: u64, by: i32) -> bool {
        let mut table = self.table.write();
        let numbered = &mut table.of_segments[segment.0 as usize];
        let counted = numbered.items.checked_add_signed(by);
        match counted.filter(|_| numbered.generation == generation) {
            Some(items) => {
                numbered.items = items;
                true
            }
            None => false,
        }
    }

    /// A generation goes: no entry on flash names it from now on. Returns how many items it had.
    pub(super) fn forget(&self, segment: SegmentId, generation: u64) -> u32 {
        let table = &mut *self.table.write();
        let numbered = &mut table.of_segments[segment.0 as usize];
        if numbered.generation != generation {
            return 0;
        }
        table.by_number.remove(&numbered.number);
        std::mem::take(&mut numbered.items)
    }

    /// Segments with lower numbers have gone, but for some that had been open for very long.
    pub(super) fn horizon(&self) -> u32 {
        let table = self.table.read();
        let oldest = table.by_number.keys().next().copied();
        let by_count = table
            .next
            .saturating_sub(2 * table.of_segments.len() as u32);
        oldest.unwrap_or(table.next).max(by_count)
    }

    /// Those of the segments that live, and the next one.
    pub(super) fn saved(&self, living: &[SegmentRecord]) -> (Vec<NumberedSegment>, u32) {
        let table = self.table.read();
        let numbered = living.iter().filter_map(|record| {
            let numbered = table.of_segments[record.segment.0 as usize];
            (numbered.generation == record.sequence).then_some(NumberedSegment {
                generation: numbered.generation.into(),
                segment: record.segment.0.into(),
                number: numbered.number.into(),
                items: numbered.items.into(),
            })
        });
        (numbered.collect(), table.next)
    }

    /// Takes up what was saved. Returns how many items that is; nothing where it makes no sense.
    pub(super) fn load(&self, saved: &[NumberedSegment], next: u32) -> Option<u64> {
        let table = &mut *self.table.write();
        table.next = next;
        let mut items = 0;
        for numbered in saved {
            let (segment, number) = (numbered.segment.get(), numbered.number.get());
            let slot = table.of_segments.get_mut(segment as usize)?;
            let is_new = slot.generation == 0 && numbered.generation.get() != 0;
            let is_first = table.by_number.insert(number, SegmentId(segment)).is_none();
            if !is_new || !is_first || number >= next {
                return None;
            }
            *slot = Numbered {
                generation: numbered.generation.get(),
                number,
                turn: 0,
                given: 0,
                unswept: 0,
                items: numbered.items.get(),
            };
            items += u64::from(numbered.items.get());
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(numbers: &Numbers, generation: u64) -> Option<u8> {
        match numbers.give(SegmentId(0), generation, |_| {}) {
            Given::Number(numbered) => Some(numbered.turn),
            Given::Sweep => None,
            Given::None => panic!("there are enough"),
        }
    }

    /// Else an entry of the first would be taken for one of the fourth, which has the same turn.
    #[test]
    fn generations_that_come_during_a_sweep_count() {
        let numbers = Numbers::new(1);
        let first = give(&numbers, 1);
        let begun = numbers.sweep_begins();
        let second = give(&numbers, 2);
        numbers.swept(&begun);
        let third = give(&numbers, 3);
        let turns: std::collections::HashSet<_> = [first, second, third].into();
        assert!(turns.len() == 3 && !turns.contains(&None), "{turns:?}");
        assert_eq!(
            give(&numbers, 4),
            None,
            "Tier 1 may have entries of the first"
        );
        let begun = numbers.sweep_begins();
        numbers.swept(&begun);
        assert_eq!(give(&numbers, 4), first);
    }
}
