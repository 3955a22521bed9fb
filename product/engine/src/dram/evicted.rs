//! [`Evicted`]: the items that have made space for other items.

use std::ops::AddAssign;

use crate::format::item::ItemHeader;

/// Items that have left memory to make space for other items.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evicted {
    pub(crate) items: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// Sum of the Unix seconds of their last accesses.
    pub(crate) access_sum: u64,
}

impl Evicted {
    /// Counts an item that leaves.
    pub(super) fn note(&mut self, header: &ItemHeader) {
        self.items += 1;
        self.bytes += header.body_bytes() as u64;
        self.access_sum += u64::from(header.last_access.get());
    }
}

impl AddAssign for Evicted {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.access_sum += other.access_sum;
    }
}
