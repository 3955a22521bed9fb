//! The free, sealed and written segments, channel by channel: `DIDACache`, TOS 2018, section 4.1.1.
//!
//! | queue | order |
//! |---|---|
//! | free, one a channel | fewest erases first; among equals, free for the longest time |
//! | sealed, in memory | least loaded channel first; within a channel, sealed first |
//! | written, one a channel | order of writing; a victim is chosen by its rank, its channel, its priority or its wear |
//!
//! If segments have priorities, [`Priorities`] orders the written ones as well.
//!
//! The load of a channel is the number of its unwritten segments, then the recent work of its device. A device with one
//! channel, like a drive unless configured otherwise, has one queue of each kind.

use std::collections::{BTreeSet, VecDeque};

use device::Geometry;

use super::priorities::Priorities;
use crate::format::segment::SegmentId;

/// Choice among the free segments of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worn {
    /// The segment with the fewest erases.
    Least,
    /// The segment with the most erases, for items that will stay for long.
    Most,
}

/// A segment that can be opened. Sorts in the order of opening.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    erases: u64,
    turn: u64,
    segment: SegmentId,
}

#[derive(Default)]
struct Channel {
    free: BTreeSet<Free>,
    /// Written segments, oldest first.
    written: VecDeque<SegmentId>,
    reclaiming: usize,
    /// Segments being filled, waiting to be written or being written.
    unwritten: usize,
    /// The device's count of its work at the last look.
    work_seen: u64,
    /// Decaying sum of the growth of `work_seen`.
    recent_work: u64,
}

/// The queues of a store. Behind its `queues` lock.
#[derive(Default)]
pub(super) struct Queues {
    segments_per_channel: u32,
    channels: Box<[Channel]>,
    /// Number of segments that can be opened.
    pub(super) free: usize,
    /// Number of written segments that are not being reclaimed.
    pub(super) written: usize,
    pub(super) reclaiming: usize,
    /// Whether every written segment was written by this run, and none has been reclaimed.
    pub(super) is_first_fill: bool,
    turn: u64,
    /// Number of the channel where the search for the next segment to open begins; `next_victim` likewise for victims.
    next_open: usize,
    next_victim: usize,
    /// Sealed segments that wait to be written, with their buffers.
    pub(super) sealed: VecDeque<(SegmentId, usize)>,
    /// Number of sealed segments that are being written.
    pub(super) writing: usize,
    /// Segments on bad blocks, and segments given up after repeated failures.
    pub(super) retired: Vec<SegmentId>,
    /// Written segments that wear leveling wants to have erased, with their sequence numbers.
    pub(super) worn_least: VecDeque<(SegmentId, u64)>,
    /// The written segments by priority.
    pub(super) priorities: Priorities,
}

impl Queues {
    pub(super) fn new(geometry: &Geometry, priorities: u8) -> Self {
        Self {
            segments_per_channel: geometry.luns_per_channel * geometry.blocks_per_lun,
            channels: (0..geometry.channels).map(|_| Channel::default()).collect(),
            is_first_fill: true,
            priorities: Priorities::new(priorities),
            ..Self::default()
        }
    }

    fn channel_of(&self, segment: SegmentId) -> usize {
        (segment.0 / self.segments_per_channel) as usize
    }

    fn channel(&mut self, segment: SegmentId) -> &mut Channel {
        &mut self.channels[self.channel_of(segment)]
    }

    /// Returns the number of channels that have a segment to fill or to reclaim.
    pub(super) fn channels_in_use(&self) -> usize {
        let in_use = |channel: &&Channel| {
            let held = channel.free.len() + channel.written.len();
            held + channel.unwritten + channel.reclaiming > 0
        };
        self.channels.iter().filter(in_use).count()
    }

    /// Returns whether no segment can be opened, and none becomes free unless a segment being filled is sealed.
    pub(super) fn has_nothing_left(&self) -> bool {
        self.free == 0 && self.is_still()
    }

    /// Returns whether no segment becomes free unless another one is sealed.
    pub(super) fn is_still(&self) -> bool {
        self.written + self.reclaiming + self.writing == 0 && self.sealed.is_empty()
    }

    /// Adds a segment that can be opened. `erases` is the erase count of its block.
    pub(super) fn push_free(&mut self, segment: SegmentId, erases: u64) {
        self.turn += 1;
        let turn = self.turn;
        self.channel(segment).free.insert(Free {
            erases,
            turn,
            segment,
        });
        self.free += 1;
    }

    /// Takes the free segment with the fewest or the most erases on the least loaded channel. `work` returns the total
    /// work so far of the device of a channel.
    pub(super) fn pop_free(&mut self, which: Worn, work: impl Fn(u32) -> u64) -> Option<SegmentId> {
        let count = self.channels.len();
        for (number, channel) in (0u32..).zip(&mut self.channels) {
            let seen = work(number);
            // The sum fades by 40 % to 50 % for one segment opened on each channel.
            channel.recent_work -= channel.recent_work / (2 * count as u64);
            channel.recent_work += seen.saturating_sub(channel.work_seen);
            channel.work_seen = seen;
        }
        let least = (0..count)
            .map(|place| (self.next_open + place) % count)
            .filter(|&number| !self.channels[number].free.is_empty())
            .min_by_key(|&number| {
                let channel = &self.channels[number];
                (channel.unwritten, channel.recent_work)
            })?;
        self.next_open = (least + 1) % count;
        let channel = &mut self.channels[least];
        let free = match which {
            Worn::Least => channel.free.pop_first(),
            Worn::Most => channel.free.pop_last(),
        }?;
        channel.unwritten += 1;
        self.free -= 1;
        Some(free.segment)
    }

    /// Forgets an opened segment that will not be written, or that is written with other data than items.
    pub(super) fn forget_opened(&mut self, segment: SegmentId) {
        self.channel(segment).unwritten -= 1;
    }

    /// Keeps only the free segments for which `keep` returns true.
    pub(super) fn retain_free(&mut self, keep: impl Fn(SegmentId) -> bool) {
        for channel in &mut self.channels {
            channel.free.retain(|free| keep(free.segment));
        }
        self.free = self.channels.iter().map(|channel| channel.free.len()).sum();
    }

    /// Adds a sealed segment that waits to be written, with its buffer.
    pub(super) fn push_sealed(&mut self, segment: SegmentId, buffer: usize) {
        self.sealed.push_back((segment, buffer));
    }

    /// Takes a sealed segment to write it: the first one of the channel to which the fewest segments are being filled
    /// or written.
    pub(super) fn pop_sealed(&mut self) -> Option<(SegmentId, usize)> {
        let mut waiting = vec![0usize; self.channels.len()];
        for (segment, _) in &self.sealed {
            waiting[self.channel_of(*segment)] += 1;
        }
        let place = (0..self.sealed.len()).min_by_key(|&place| {
            let number = self.channel_of(self.sealed[place].0);
            let channel = &self.channels[number];
            (
                channel.unwritten.saturating_sub(waiting[number]),
                channel.recent_work,
            )
        })?;
        self.writing += 1;
        self.sealed.remove(place)
    }

    /// Takes this sealed segment to write it, if it still waits; returns whether it did.
    pub(super) fn take_sealed(&mut self, segment: SegmentId) -> bool {
        let mut sealed = self.sealed.iter();
        let place = sealed.position(|&(other, _)| other == segment);
        if let Some(place) = place {
            self.sealed.remove(place);
            self.writing += 1;
        }
        place.is_some()
    }

    /// Puts back a sealed segment that has been written but stays in its buffer. It is the first in the queue.
    pub(super) fn put_back_sealed(&mut self, segment: SegmentId, buffer: usize) {
        self.sealed.push_front((segment, buffer));
        self.writing -= 1;
    }

    /// Notes that a sealed segment is not being written any more.
    pub(super) fn end_write(&mut self, segment: SegmentId) {
        self.forget_opened(segment);
        self.writing -= 1;
    }

    /// Adds an opened segment that has been written.
    pub(super) fn push_written(&mut self, segment: SegmentId) {
        self.end_write(segment);
        self.adopt_written(segment);
    }

    /// Adds a written segment that is not counted as being written: one of an earlier run.
    pub(super) fn adopt_written(&mut self, segment: SegmentId) {
        self.channel(segment).written.push_back(segment);
        self.written += 1;
    }

    /// Returns the written segments, channel by channel, oldest first in each.
    pub(super) fn each_written(&self) -> impl Iterator<Item = SegmentId> {
        let channels = self.channels.iter();
        channels.flat_map(|channel| channel.written.iter().copied())
    }

    /// Takes the written segment with the lowest `rank`, among the `depth` oldest of each channel. Segments without a
    /// rank are skipped.
    pub(super) fn take_least<R: Ord>(
        &mut self,
        depth: usize,
        rank: impl Fn(SegmentId) -> Option<R>,
    ) -> Option<SegmentId> {
        let mut least: Option<(R, usize, usize)> = None;
        for (number, channel) in self.channels.iter().enumerate() {
            for (place, &segment) in channel.written.iter().take(depth).enumerate() {
                let rank = rank(segment)
                    .filter(|rank| least.as_ref().is_none_or(|(least, ..)| rank < least));
                least = rank.map(|rank| (rank, number, place)).or(least);
            }
        }
        let (_, number, place) = least?;
        Some(self.take_written(number, place))
    }

    /// Takes the written segment with the lowest `rank` on the channel with the fewest free segments that has a ranked
    /// one. Segments being reclaimed count as free.
    pub(super) fn take_from_channel<R: Ord>(
        &mut self,
        rank: impl Fn(SegmentId) -> Option<R>,
    ) -> Option<SegmentId> {
        let count = self.channels.len();
        let mut numbers: Vec<usize> = (0..count)
            .map(|place| (self.next_victim + place) % count)
            .collect();
        // A stable sort: round robin among equals.
        numbers.sort_by_key(|&number| {
            let channel = &self.channels[number];
            channel.free.len() + channel.reclaiming
        });
        for number in numbers {
            let ranked = self.channels[number]
                .written
                .iter()
                .enumerate()
                .filter_map(|(place, &segment)| Some((rank(segment)?, place)));
            if let Some((_, place)) = ranked.min() {
                self.next_victim = (number + 1) % count;
                return Some(self.take_written(number, place));
            }
        }
        None
    }

    /// Takes the oldest segment of the lowest priority among those for which `may` returns true.
    pub(super) fn take_lowest(&mut self, may: impl Fn(SegmentId) -> bool) -> Option<SegmentId> {
        let segment = self
            .priorities
            .lowest_first()
            .find(|&segment| may(segment))?;
        let number = self.channel_of(segment);
        let mut written = self.channels[number].written.iter();
        let place = written.position(|&other| other == segment)?;
        Some(self.take_written(number, place))
    }

    fn take_written(&mut self, number: usize, place: usize) -> SegmentId {
        let channel = &mut self.channels[number];
        channel.reclaiming += 1;
        self.written -= 1;
        self.reclaiming += 1;
        let taken = channel
            .written
            .remove(place)
            .expect("the place was found in the queue");
        self.priorities.remove(taken);
        taken
    }

    /// Notes that a victim is not being reclaimed any more: it is about to become free.
    pub(super) fn end_reclaim(&mut self, segment: SegmentId) {
        self.channel(segment).reclaiming -= 1;
        self.reclaiming -= 1;
        self.is_first_fill = false;
    }

    /// Takes the next segment that wear leveling wants erased. Skips those that are no longer written or for which
    /// `may` returns false.
    pub(super) fn take_worn_least(
        &mut self,
        may: impl Fn(SegmentId, u64) -> bool,
    ) -> Option<SegmentId> {
        while let Some((segment, sequence)) = self.worn_least.pop_front() {
            let number = self.channel_of(segment);
            let mut written = self.channels[number].written.iter();
            if let Some(place) = written.position(|&other| other == segment)
                && may(segment, sequence)
            {
                return Some(self.take_written(number, place));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNELS: u32 = 3;
    const EACH: u32 = 8;

    fn queues() -> Queues {
        let geometry = Geometry {
            channels: CHANNELS,
            luns_per_channel: 2,
            blocks_per_lun: EACH / 2,
            pages_per_block: 4,
            page_bytes: 4096,
        };
        Queues::new(&geometry, 1)
    }

    fn full() -> Queues {
        let mut queues = queues();
        for segment in 0..CHANNELS * EACH {
            queues.push_free(SegmentId(segment), 0);
        }
        queues
    }

    fn open(queues: &mut Queues, work: [u64; 3]) -> (usize, SegmentId) {
        let segment = queues
            .pop_free(Worn::Least, |channel| work[channel as usize])
            .unwrap();
        (queues.channel_of(segment), segment)
    }

    fn opened(queues: &mut Queues, count: usize) -> Vec<SegmentId> {
        (0..count).map(|_| open(queues, [0; 3]).1).collect()
    }

    /// Seals and writes a segment; no other is sealed.
    fn write(queues: &mut Queues, segment: SegmentId) {
        queues.push_sealed(segment, 0);
        assert_eq!(queues.pop_sealed(), Some((segment, 0)));
        queues.push_written(segment);
    }

    #[test]
    fn segments_are_opened_on_the_channel_with_the_least_to_do() {
        let mut queues = full();
        let idle = [0; 3];
        let opened: Vec<_> = (0..6).map(|_| open(&mut queues, idle)).collect();
        let channels: Vec<usize> = opened.iter().map(|(channel, _)| *channel).collect();
        assert_eq!(channels, [0, 1, 2, 0, 1, 2], "round robin among equals");
        for &(_, segment) in opened.iter().filter(|(channel, _)| *channel == 1) {
            write(&mut queues, segment);
        }
        let (least, _) = open(&mut queues, idle);
        assert_eq!(least, 1, "what waits to be written counts");
        for (_, segment) in opened.into_iter().filter(|(channel, _)| *channel != 1) {
            write(&mut queues, segment);
        }
        let (least, _) = open(&mut queues, [900, 0, 100]);
        assert_eq!(least, 2, "and then what was read");
    }

    #[test]
    fn old_work_of_a_channel_fades() {
        let mut queues = full();
        let (_, first) = open(&mut queues, [5000, 0, 0]);
        write(&mut queues, first);
        let before = queues.channels[0].recent_work;
        for _ in 0..12 {
            let (_, segment) = open(&mut queues, [5000, 0, 0]);
            write(&mut queues, segment);
        }
        assert!(4 * queues.channels[0].recent_work < before);
    }

    #[test]
    fn the_least_erased_is_opened_first_and_of_those_the_longest_free() {
        let mut queues = queues();
        for (segment, erases) in [(3, 5), (1, 2), (6, 0), (2, 2), (0, 0)] {
            queues.push_free(SegmentId(segment), erases);
        }
        let order: Vec<u32> = (0..5).map(|_| open(&mut queues, [0; 3]).1.0).collect();
        assert_eq!(order, [6, 0, 1, 2, 3]);
        for (segment, erases) in [(3, 5), (1, 2), (6, 7)] {
            queues.push_free(SegmentId(segment), erases);
        }
        let most = queues.pop_free(Worn::Most, |_| 0);
        assert_eq!(most, Some(SegmentId(6)), "for what lies long");
        opened(&mut queues, 2);
        assert_eq!(queues.pop_free(Worn::Least, |_| 0), None);
    }

    #[test]
    fn victims_come_from_the_channel_with_the_fewest_free() {
        let mut queues = full();
        let opened = opened(&mut queues, 12);
        for &segment in &opened {
            write(&mut queues, segment);
        }
        assert_eq!((queues.free, queues.written), (12, 12));
        // All free segments of channel 1 but one are used up.
        queues.retain_free(|segment| segment.0 / EACH != 1 || segment.0 == EACH + 7);
        let lowest = |segment: SegmentId| Some(segment.0);
        let victim = queues.take_from_channel(lowest).unwrap();
        assert_eq!((queues.channel_of(victim), victim.0), (1, EACH));
        assert_eq!((queues.written, queues.reclaiming), (11, 1));
        // Segments without a rank do not count: another channel is chosen.
        let elsewhere = |segment: SegmentId| (segment.0 / EACH != 1).then_some(segment.0);
        let victim = queues.take_from_channel(elsewhere).unwrap();
        assert_ne!(queues.channel_of(victim), 1);
        queues.end_reclaim(victim);
        queues.push_free(victim, 1);
        assert_eq!(queues.take_from_channel(|_| None::<u32>), None);
        let oldest = queues
            .take_least(1, |segment| Some(segment.0 % EACH))
            .unwrap();
        assert!(opened[..6].contains(&oldest));
    }

    #[test]
    fn a_channel_without_a_good_block_is_left_out() {
        let mut queues = full();
        queues.retain_free(|segment| segment.0 / EACH != 2);
        assert_eq!(queues.channels_in_use(), 2);
        let opened: Vec<usize> = (0..16).map(|_| open(&mut queues, [0; 3]).0).collect();
        assert!(opened.iter().all(|&channel| channel < 2));
        assert_eq!(queues.pop_free(Worn::Least, |_| 0), None);
        assert!(queues.has_nothing_left());
    }

    #[test]
    fn what_leveling_waits_for_is_taken_once_and_only_while_it_is_written() {
        let mut queues = full();
        let opened = opened(&mut queues, 3);
        for &segment in &opened[..2] {
            write(&mut queues, segment);
        }
        queues.worn_least = opened.iter().map(|&segment| (segment, 1)).collect();
        assert_eq!(queues.take_worn_least(|_, _| true), Some(opened[0]));
        assert_eq!(queues.take_worn_least(|_, _| true), Some(opened[1]));
        let being_filled = queues.take_worn_least(|_, _| true);
        assert_eq!(being_filled, None);
        assert_eq!(queues.worn_least.len(), 0);
    }

    #[test]
    fn leveling_takes_no_later_generation_and_begins_anew_each_time() {
        let mut queues = full();
        let opened = opened(&mut queues, 3);
        for &segment in &opened {
            write(&mut queues, segment);
        }
        queues.worn_least = opened.iter().map(|&segment| (segment, 1)).collect();
        queues.worn_least = opened[..2].iter().map(|&segment| (segment, 1)).collect();
        assert_eq!(queues.worn_least.len(), 2);
        let generation = |segment| if segment == opened[0] { 2 } else { 1 };
        let taken = queues.take_worn_least(|segment, sequence| generation(segment) == sequence);
        assert_eq!(taken, Some(opened[1]));
    }

    #[test]
    fn what_is_being_written_may_become_free() {
        let mut queues = full();
        let (_, segment) = open(&mut queues, [0; 3]);
        assert!(queues.is_still());
        queues.push_sealed(segment, 0);
        assert_eq!(queues.pop_sealed(), Some((segment, 0)));
        assert!(!queues.is_still());
        queues.end_write(segment);
        assert!(queues.is_still());
    }

    #[test]
    fn the_sealed_segment_of_the_channel_being_written_least_is_written_next() {
        let mut queues = full();
        let opened: Vec<_> = (0..4).map(|_| open(&mut queues, [0; 3])).collect();
        // Two of channel 0, one of channel 1; that of channel 2 is still being filled.
        for (buffer, (_, segment)) in opened.iter().enumerate().filter(|(at, _)| *at != 2) {
            queues.push_sealed(*segment, buffer);
        }
        assert_eq!(queues.pop_sealed(), Some((opened[0].1, 0)));
        let next = queues.pop_sealed();
        assert_eq!(next, Some((opened[1].1, 1)), "channel 0 is busy");
        assert_eq!(queues.pop_sealed(), Some((opened[3].1, 3)));
        assert_eq!(queues.pop_sealed(), None);
    }
}
