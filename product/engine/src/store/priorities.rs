//! The written segments as a priority queue: the sections of `RIPQ` (Tang et al., FAST 2015), a segmented LRU of segments.
//!
//! ```text
//!   insertion points      7         6                   0
//!                         ▼         ▼                   ▼
//!   priority        7 [ ▪ ▪ ▪ ] 6 [ ▪ ▪ ▪ ]  ...  0 [ ▪ ▪ ▪ ▪ ] ──> victim
//!                             └────────^    each its share
//! ```
//!
//! Each priority has its own stream. A segment enters at the head of its priority when it has been written. A priority
//! with more than its share of the written segments hands its oldest segment down to the head of the next lower one. No
//! data is copied: the order exists in memory alone. The victim is the oldest segment of the lowest priority that has
//! any.
//!
//! A start knows only the age of segments: all enter the lowest priority, the oldest first. So their items can be read
//! and promoted until the whole flash has been rewritten once.

use std::collections::VecDeque;

use super::layout::{AppendItem, Source, StreamLayout, Streams};
use super::priority::Priority;
use crate::format::segment::SegmentId;

/// A stream of packed items for each priority: the insertion points.
#[derive(Clone, Copy, Debug)]
pub struct InsertionPoints(pub u8);

impl Streams for InsertionPoints {
    fn layouts(&self) -> Box<[StreamLayout]> {
        vec![StreamLayout::Packed; usize::from(self.0)].into()
    }

    fn stream_of(&self, item: &AppendItem<'_>, source: Source) -> usize {
        let priority = match source {
            Source::Write => Priority::of_new(item.item.header),
            Source::Copy | Source::Leveling => item.priority,
        };
        usize::from(priority.0.min(self.0 - 1))
    }

    fn priorities(&self) -> u8 {
        self.0
    }
}

/// The written segments of each priority, oldest first. Behind the `queues` lock.
#[derive(Default)]
pub(super) struct Priorities {
    /// Empty if there is one priority: segments are then taken in another order.
    queues: Box<[VecDeque<SegmentId>]>,
}

impl Priorities {
    pub(super) fn new(priorities: u8) -> Self {
        let count = if priorities > 1 { priorities } else { 0 };
        Self {
            queues: (0..count).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Returns the number of segments that a priority other than the lowest may have: the average of all priorities,
    /// one at least.
    fn share(&self) -> usize {
        let written: usize = self.queues.iter().map(VecDeque::len).sum();
        (written / self.queues.len()).max(1)
    }

    /// Adds a segment that has been written. Calls `moved` for each segment that is handed down as a result.
    pub(super) fn enter(
        &mut self,
        segment: SegmentId,
        priority: Priority,
        mut moved: impl FnMut(SegmentId, Priority),
    ) {
        let Some(queue) = self.queues.get_mut(usize::from(priority.0)) else {
            return;
        };
        queue.push_back(segment);
        let share = self.share();
        for number in (1..self.queues.len()).rev() {
            while self.queues[number].len() > share
                && let Some(oldest) = self.queues[number].pop_front()
            {
                self.queues[number - 1].push_back(oldest);
                moved(oldest, Priority(number as u8 - 1));
            }
        }
    }

    /// Removes a segment.
    pub(super) fn remove(&mut self, segment: SegmentId) {
        for queue in &mut self.queues {
            if let Some(place) = queue.iter().position(|&other| other == segment) {
                queue.remove(place);
                return;
            }
        }
    }

    /// Returns the segments in the order in which they become victims.
    pub(super) fn lowest_first(&self) -> impl Iterator<Item = SegmentId> {
        self.queues.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::item::{ItemHeader, ItemRef};
    use crate::key::KeyHash;
    use crate::store::priority::MOST_PRIORITIES;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use zerocopy::FromZeros;

    fn lens(priorities: &Priorities) -> Vec<usize> {
        priorities.queues.iter().map(VecDeque::len).collect()
    }

    #[test]
    fn what_is_beyond_a_share_moves_down_without_changing_its_order() {
        let mut priorities = Priorities::new(4);
        let mut at = HashMap::new();
        for number in 0..16 {
            at.insert(SegmentId(number), Priority(3));
            priorities.enter(SegmentId(number), Priority(3), |segment, to| {
                assert_eq!(at.insert(segment, to), Some(Priority(to.0 + 1)), "one down");
            });
        }
        // Nothing moves up when the share grows.
        assert_eq!(lens(&priorities), [6, 3, 3, 4]);
        let order: Vec<u32> = priorities.lowest_first().map(|segment| segment.0).collect();
        assert!(order.into_iter().eq(0..16), "oldest first");
        assert_eq!(at[&SegmentId(6)], Priority(1));
    }

    #[test]
    fn the_lowest_takes_whatever_comes_and_hands_nothing_down() {
        let mut priorities = Priorities::new(4);
        for number in 0..16 {
            priorities.enter(SegmentId(number), Priority::LOWEST, |_, _| unreachable!());
        }
        assert_eq!(lens(&priorities), [16, 0, 0, 0]);
        priorities.enter(SegmentId(16), Priority(1), |_, _| unreachable!());
        assert_eq!(priorities.lowest_first().last(), Some(SegmentId(16)));
        // A segment that is handed down is younger than those already there: it has just been promoted.
        for number in 17..21 {
            priorities.enter(SegmentId(number), Priority(1), |_, _| ());
        }
        assert_eq!(lens(&priorities), [16, 5, 0, 0]);
        priorities.enter(SegmentId(21), Priority(1), |segment, to| {
            assert_eq!((segment, to), (SegmentId(16), Priority::LOWEST));
        });
        let order: Vec<SegmentId> = priorities.lowest_first().collect();
        assert_eq!(order[15..17], [SegmentId(15), SegmentId(16)]);
    }

    #[test]
    fn a_read_promotes_to_the_priority_above_the_segments_and_never_lowers() {
        let read = |before, of_segment| Priority(before).after_read(Priority(of_segment), 8).0;
        assert_eq!((read(0, 0), read(0, 6), read(0, 7)), (1, 7, 7));
        assert_eq!(read(1, 0), 1, "the same segment, read again");
        assert_eq!(read(4, 0), 4, "its segment has moved down since");
        assert_eq!(read(1, 3), 4);
    }

    #[test]
    fn where_there_is_one_priority_no_order_is_kept() {
        let mut priorities = Priorities::new(1);
        priorities.enter(SegmentId(1), Priority::LOWEST, |_, _| unreachable!());
        assert_eq!(priorities.lowest_first().count(), 0);
    }

    #[test]
    fn what_leaves_memory_enters_by_its_reads_and_copies_where_they_were_promoted_to() {
        let points = InsertionPoints(8);
        let stream = |reads, priority, source| {
            let mut header = ItemHeader::new_zeroed();
            header.reads = reads;
            let item = ItemRef {
                header: &header,
                cas_unique: 0,
                key: b"key",
                value: b"",
            };
            let item = AppendItem {
                hash: KeyHash(0),
                item,
                priority,
                is_listed: true,
            };
            points.stream_of(&item, source)
        };
        for (reads, priority) in [(0, 0), (1, 1), (7, 7), (255, 7)] {
            assert_eq!(stream(reads, Priority::LOWEST, Source::Write), priority);
            assert_eq!(stream(reads, Priority(5), Source::Copy), 5);
        }
        assert_eq!(stream(1, Priority(200), Source::Copy), 7);
    }

    proptest! {
        /// Segments come and go. None is lost, only the lowest priority exceeds its share, and the order within a
        /// priority never changes.
        #[test]
        fn shares_hold_whatever_comes_and_goes(
            count in 2..=MOST_PRIORITIES,
            steps in proptest::collection::vec((0u8..8, any::<bool>()), 1..400),
        ) {
            let mut priorities = Priorities::new(count);
            let mut at: HashMap<SegmentId, Priority> = HashMap::new();
            for (number, (priority, goes)) in (0u32..).zip(steps) {
                let priority = Priority(priority % count);
                at.insert(SegmentId(number), priority);
                priorities.enter(SegmentId(number), priority, |segment, to| {
                    at.insert(segment, to);
                });
                let share = priorities.share();
                prop_assert!(lens(&priorities)[1..].iter().all(|&len| len <= share));
                for (number, queue) in (0u8..).zip(&priorities.queues) {
                    prop_assert!(queue.iter().all(|segment| at[segment] == Priority(number)));
                }
                if goes {
                    let victim = priorities.lowest_first().next().unwrap();
                    prop_assert_eq!(Some(&at[&victim]), at.values().min());
                    priorities.remove(victim);
                    at.remove(&victim);
                }
                prop_assert_eq!(priorities.lowest_first().count(), at.len());
            }
        }
    }
}
