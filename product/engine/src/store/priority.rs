//! The priority of a segment, and of an item: [`priorities`](super::priorities) has the queue.

use crate::format::item::ItemHeader;

/// Highest number of priorities: an index entry stores one in 3 bits.
pub const MOST_PRIORITIES: u8 = 8;

/// Rank by which segments and items stay on flash: a higher priority leaves later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// Priority of items not read since they were written.
    pub const LOWEST: Self = Self(0);

    /// Returns the priority of an item in a store with two of them: one for items read since they were written, and the
    /// lowest.
    pub fn of_read(is_read: bool) -> Self {
        Self(u8::from(is_read))
    }

    /// Returns whether the item has been read since it was written.
    pub fn is_raised(self) -> bool {
        self > Self::LOWEST
    }

    /// Returns the priority after a read of an item that has priority `self` and lies in a segment of priority
    /// `of_segment`: the next above the segment's, within `priorities` priorities. A read never lowers a priority.
    pub(crate) fn after_read(self, of_segment: Self, priorities: u8) -> Self {
        self.max(Self((of_segment.0 + 1).min(priorities - 1)))
    }

    /// Returns the priority at which an item enters flash: the number of its reads in memory.
    pub(super) fn of_new(header: &ItemHeader) -> Self {
        Self(header.reads())
    }
}
