//! Segment numbers, by which an index on flash names a generation of a segment.
//!
//! An entry on flash holds the number. No other generation has the same one (the slab sequence counter of SlickCache, section
//! 4.3). An entry in Tier 1 of `tiered` holds the segment and a turn, which counts the generations of the segment modulo
//! three. So an entry of Tier 1 must be gone, or be a tombstone, before its segment has had three more generations.
//!
//! Every look-up asks for the number of a segment's generation, and every placement counts an item. Both read a slot without
//! a lock. A slot changes under the table's lock, once for each generation: its generation becomes 0 first, and is set again
//! when all other fields are written. A reader that sees the same generation before and after has read the fields that belong
//! to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::store::SegmentRecord;
use format::segment::SegmentId;
use parking_lot::RwLock;
use runtime::sync::Notify;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Number of different turns.
const TURNS: u8 = 3;
/// Bits of a turn. One of their values stands for no turn.
pub const TURN_BITS: u32 = 2;

/// A segment that entries refer to, with its number.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NumberedSegment {
    /// Sequence number of the generation that has the number.
    pub generation: U64,
    /// Physical number of the segment.
    pub segment: U32,
    /// Number of the generation in entries.
    pub number: U32,
    /// Items of the segment that were not known to be dead.
    pub items: U32,
}

const _: () = assert!(size_of::<NumberedSegment>() == 20);

/// The numbers of all segments.
pub struct Numbers {
    /// The numbered generation of each segment, indexed by segment id.
    slots: Box<[Slot]>,
    table: RwLock<Table>,
    /// Notified when Tier 1 should be swept soon.
    pub sweep_due: Notify,
}

struct Table {
    /// For each segment, the count of generations numbered so far, and the count of generations numbered after the oldest one
    /// that Tier 1 may still name.
    given: Vec<u32>,
    unswept: Vec<u8>,
    by_number: BTreeMap<u32, SegmentId>,
    next: u32,
    /// First number that must not be given.
    limit: u32,
    is_sweep_due: bool,
}

/// Fields of a segment that are read without a lock.
struct Slot {
    /// The numbered generation; 0 if there is none, and while the other fields change.
    generation: AtomicU64,
    /// Number of the generation in the upper 32 bits, its turn in the lower bits.
    named: AtomicU64,
    /// Number of the generation in the upper 32 bits; in the lower ones, the items placed in it that are not known to be
    /// dead. A count for an earlier generation finds another number and changes nothing.
    items: AtomicU64,
}

impl Slot {
    fn new() -> Self {
        Self {
            generation: AtomicU64::new(0u64),
            named: AtomicU64::new(0u64),
            items: AtomicU64::new(0u64),
        }
    }

    /// Returns the numbered generation.
    fn numbered(&self) -> Option<Numbered> {
        let generation = self.generation.load(Ordering::Acquire);
        let named = self.named.load(Ordering::Acquire);
        let is_one = generation != 0 && self.generation.load(Ordering::Relaxed) == generation;
        is_one.then_some(Numbered {
            generation,
            number: (named >> 32) as u32,
            turn: named as u8,
        })
    }

    /// Sets another generation. Called under the table's lock. Returns the item count of the previous one.
    fn name(&self, numbered: Numbered, items: u32) -> u32 {
        let number = u64::from(numbered.number) << 32;
        self.generation.store(0, Ordering::Relaxed);
        let before = self.items.swap(number | u64::from(items), Ordering::AcqRel);
        let named = number | u64::from(numbered.turn);
        self.named.store(named, Ordering::Release);
        self.generation
            .store(numbered.generation, Ordering::Release);
        before as u32
    }

    fn items(&self) -> u32 {
        self.items.load(Ordering::Relaxed) as u32
    }
}

/// A generation of a segment and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The generation.
    pub generation: u64,
    /// Its number.
    pub number: u32,
    /// Its turn among the three that the generations of a segment have in order.
    pub turn: u8,
}

/// Answer to a request for a number.
pub enum Given {
    /// The generation has this number.
    Number(Numbered),
    /// Tier 1 must be swept first: it may have entries of an earlier generation with the same turn.
    Sweep,
    /// No number is left.
    None,
}

impl Numbers {
    /// Numbers for a store of `segments` segments, none of which has one yet.
    pub fn new(segments: u32) -> Self {
        Self {
            slots: (0..segments).map(|_| Slot::new()).collect(),
            table: RwLock::new(Table {
                given: vec![0; segments as usize],
                unswept: vec![0; segments as usize],
                by_number: BTreeMap::new(),
                next: 0,
                limit: u32::MAX,
                is_sweep_due: false,
            }),
            sweep_due: Notify::default(),
        }
    }

    /// Returns the numbered generation of a segment.
    pub fn of_segment(&self, segment: SegmentId) -> Option<Numbered> {
        self.slots.get(segment.0 as usize)?.numbered()
    }

    /// Returns the segment that has a number, and its generation.
    pub fn segment(&self, number: u32) -> Option<(SegmentId, Numbered)> {
        let segment = *self.table.read().by_number.get(&number)?;
        let numbered = self.of_segment(segment)?;
        (numbered.number == number).then_some((segment, numbered))
    }

    /// Returns the number of a generation, and gives it one if it has none. Calls `forgotten` with the item count of the
    /// previous generation when it gives a number.
    pub fn give(&self, segment: SegmentId, generation: u64, forgotten: impl FnOnce(u32)) -> Given {
        let has_it = |numbered: &Numbered| numbered.generation == generation;
        if let Some(numbered) = self.of_segment(segment).filter(has_it) {
            return Given::Number(numbered);
        }
        let table = &mut *self.table.write();
        let slot = &self.slots[segment.0 as usize];
        let before = slot.numbered();
        if let Some(numbered) = before.filter(has_it) {
            return Given::Number(numbered);
        }
        let unswept = &mut table.unswept[segment.0 as usize];
        if *unswept == TURNS - 1 {
            return Given::Sweep;
        }
        let number = table.next;
        if number >= table.limit {
            return Given::None;
        }
        *unswept += 1;
        let given = &mut table.given[segment.0 as usize];
        *given = given.wrapping_add(1);
        if *unswept == TURNS - 1 && !table.is_sweep_due {
            table.is_sweep_due = true;
            self.sweep_due.notify_all();
        }
        table.next += 1;
        if let Some(before) = before {
            table.by_number.remove(&before.number);
        }
        table.by_number.insert(number, segment);
        let numbered = Numbered {
            generation,
            number,
            turn: (before.map_or(0, |before| before.turn) + 1) % TURNS,
        };
        forgotten(slot.name(numbered, 0));
        Given::Number(numbered)
    }

    /// Returns whether Tier 1 should be swept soon.
    pub fn is_sweep_due(&self) -> bool {
        self.table.read().is_sweep_due
    }

    /// Sets the limit: only lower numbers are given.
    pub fn limit(&self, limit: u32) {
        self.table.write().limit = limit;
    }

    /// Returns how many numbers can be given below the limit.
    pub fn left(&self) -> u32 {
        let table = self.table.read();
        table.limit.saturating_sub(table.next)
    }

    /// Returns how many numbers have been given so far.
    pub fn given(&self) -> u32 {
        self.table.read().next
    }

    /// Returns the state at the start of a sweep of Tier 1, for [`swept`](Self::swept).
    pub fn sweep_begins(&self) -> Vec<u32> {
        self.table.read().given.clone()
    }

    /// Ends a sweep of Tier 1, which now has no entries of generations that were gone when the sweep began. A segment may
    /// have had several generations since.
    pub fn swept(&self, begun: &[u32]) {
        let table = &mut *self.table.write();
        table.is_sweep_due = false;
        for (segment, unswept) in table.unswept.iter_mut().enumerate() {
            let since = table.given[segment].wrapping_sub(begun[segment]);
            *unswept = since.min(u32::from(*unswept)) as u8;
        }
    }

    /// Forgets the number of a generation, so that no entry on flash leads to it any more. Returns its item count.
    pub fn forget(&self, segment: SegmentId, generation: u64) -> u32 {
        let mut table = self.table.write();
        let slot = &self.slots[segment.0 as usize];
        let Some(numbered) = slot.numbered().filter(|it| it.generation == generation) else {
            return 0;
        };
        table.by_number.remove(&numbered.number);
        let number = u64::from(numbered.number) << 32;
        slot.items.swap(number, Ordering::AcqRel) as u32
    }

    /// Adds `by` to the item count of a generation. Returns `false`, and changes nothing, if the generation is gone or has
    /// fewer items than `by` would remove.
    pub fn count(&self, segment: SegmentId, generation: u64, by: i32) -> bool {
        let slot = &self.slots[segment.0 as usize];
        let Some(numbered) = slot.numbered().filter(|it| it.generation == generation) else {
            return false;
        };
        let number = u64::from(numbered.number);
        let counted = |counted: u64| {
            let items = (counted as u32).checked_add_signed(by)?;
            (counted >> 32 == number).then_some(number << 32 | u64::from(items))
        };
        let order = Ordering::Relaxed;
        slot.items.fetch_update(order, order, counted).is_ok()
    }

    /// Returns a number such that all segments with lower numbers are gone, except a few that stayed open for very long.
    pub fn horizon(&self) -> u32 {
        let table = self.table.read();
        let oldest = table.by_number.keys().next().copied();
        let by_count = table.next.saturating_sub(2 * self.slots.len() as u32);
        oldest.unwrap_or(table.next).max(by_count)
    }

    /// Returns the numbered segments among the `living` ones, and the next number.
    pub fn saved(&self, living: &[SegmentRecord]) -> (Vec<NumberedSegment>, u32) {
        let table = self.table.read();
        let numbered = living.iter().filter_map(|record| {
            let slot = &self.slots[record.segment.0 as usize];
            let numbered = slot.numbered()?;
            (numbered.generation == record.sequence).then_some(NumberedSegment {
                generation: numbered.generation.into(),
                segment: record.segment.0.into(),
                number: numbered.number.into(),
                items: slot.items().into(),
            })
        });
        (numbered.collect(), table.next)
    }

    /// Loads saved segments and the next number. Returns the total item count, or `None` if the saved data contradict
    /// themselves.
    pub fn load(&self, saved: &[NumberedSegment], next: u32) -> Option<u64> {
        let table = &mut *self.table.write();
        table.next = next;
        let mut items = 0;
        for numbered in saved {
            let (segment, number) = (numbered.segment.get(), numbered.number.get());
            let slot = self.slots.get(segment as usize)?;
            let is_new = slot.numbered().is_none() && numbered.generation.get() != 0;
            let is_first = table.by_number.insert(number, SegmentId(segment)).is_none();
            if !is_new || !is_first || number >= next {
                return None;
            }
            let named = Numbered {
                generation: numbered.generation.get(),
                number,
                turn: 0,
            };
            slot.name(named, numbered.items.get());
            items += u64::from(numbered.items.get());
        }
        Some(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentId = SegmentId(1);

    fn given(numbers: &Numbers, generation: u64, forgotten: &mut u32) -> Numbered {
        loop {
            match numbers.give(SEGMENT, generation, |items| *forgotten += items) {
                Given::Number(numbered) => return numbered,
                Given::Sweep => numbers.swept(&numbers.sweep_begins()),
                Given::None => panic!("there are numbers"),
            }
        }
    }

    /// An item counted for a generation is forgotten with that generation, and a reader sees the number that belongs to the
    /// generation, whatever other threads count or number at the same time.
    #[test]
    fn nothing_is_counted_for_another_generation() {
        const GENERATIONS: u64 = 20_000;
        let numbers = Numbers::new(2);
        let mut forgotten = 0;
        given(&numbers, 1, &mut forgotten);
        let counted: u32 = std::thread::scope(|scope| {
            let counting = [0; 3].map(|_| {
                scope.spawn(|| {
                    let mut counted = 0;
                    loop {
                        let Some(numbered) = numbers.of_segment(SEGMENT) else {
                            continue;
                        };
                        let generation = numbered.generation;
                        // The first generation has number 0 and turn 1.
                        assert_eq!(u64::from(numbered.number), generation - 1);
                        assert_eq!(u64::from(numbered.turn), generation % u64::from(TURNS));
                        counted += u32::from(numbers.count(SEGMENT, generation, 1));
                        if generation == GENERATIONS {
                            return counted;
                        }
                    }
                })
            });
            for generation in 2..=GENERATIONS {
                given(&numbers, generation, &mut forgotten);
            }
            let counted = counting.map(|counting| counting.join().expect("it ends"));
            counted.iter().sum()
        });
        given(&numbers, GENERATIONS + 1, &mut forgotten);
        assert_eq!(forgotten, counted);
        assert!(!numbers.count(SEGMENT, GENERATIONS, 1));
        assert!(numbers.count(SEGMENT, GENERATIONS + 1, 1));
    }

    fn turn(numbers: &Numbers, generation: u64) -> Option<u8> {
        match numbers.give(SEGMENT, generation, |_| {}) {
            Given::Number(numbered) => Some(numbered.turn),
            Given::Sweep => None,
            Given::None => panic!("there are numbers"),
        }
    }

    /// Otherwise an entry of the first generation would be taken for one of the fourth, which has the same turn.
    #[test]
    fn generations_that_come_during_a_sweep_count() {
        let numbers = Numbers::new(2);
        let first = turn(&numbers, 1);
        let begun = numbers.sweep_begins();
        let second = turn(&numbers, 2);
        numbers.swept(&begun);
        let third = turn(&numbers, 3);
        let turns: std::collections::HashSet<_> = [first, second, third].into();
        assert!(turns.len() == 3 && !turns.contains(&None), "{turns:?}");
        let fourth = turn(&numbers, 4);
        assert_eq!(fourth, None, "Tier 1 may have entries of the first");
        numbers.swept(&numbers.sweep_begins());
        assert_eq!(turn(&numbers, 4), first);
    }
}
