//! The priority of a segment, and of an item: [`priorities`](super::priorities) has the queue.

use crate::format::item::ItemHeader;

/// The most priorities there may be: an index entry remembers one in 3 bits.
pub const MOST_PRIORITIES: u8 = 8;

/// How long a segment stays, or an item is to stay: what has a higher one goes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// That of what has not been read since it was written.
    pub const LOWEST: Self = Self(0);

    /// Where there are no others: that of what has been read since it was written, or the lowest.
    pub fn of_read(is_read: bool) -> Self {
        Self(u8::from(is_read))
    }

    /// Whether it is that of something that has been read since it was written.
    pub fn is_raised(self) -> bool {
        self > Self::LOWEST
    }

    /// What an item has after a read that had this one, in a segment of that one: the next above the segment's, of so many.
    /// A read never lowers it.
    pub(crate) fn after_read(self, of_segment: Self, priorities: u8) -> Self {
        self.max(Self((of_segment.0 + 1).min(priorities - 1)))
    }

    /// Where an item enters that leaves memory: by how often it was read there.
    pub(super) fn of_new(header: &ItemHeader) -> Self {
        Self(header.reads())
    }
}
