//! [`Unlisted`]: the numbers of items that no summary lists.

use std::sync::OnceLock;

use crate::format::segment::SegmentId;
use crate::sync::atomic::{AtomicU32, Ordering};

/// For each segment the items that its summary does not list, once it is sealed or restored. Memory for the numbers is taken when
/// there are some: only runs have them.
pub(crate) struct Unlisted {
    segments: u32,
    items: OnceLock<Box<[AtomicU32]>>,
}

impl Unlisted {
    pub(super) fn new(segments: u32) -> Self {
        Self {
            segments,
            items: OnceLock::new(),
        }
    }

    /// Returns the number of a segment.
    pub(crate) fn of(&self, segment: SegmentId) -> u32 {
        let all = self.items.get();
        all.map_or(0, |all| all[segment.0 as usize].load(Ordering::Relaxed))
    }

    /// Sets the number of a segment.
    pub(crate) fn set(&self, segment: SegmentId, items: u32) {
        let all = match items {
            0 => self.items.get(),
            _ => {
                let none = || (0..self.segments).map(|_| AtomicU32::new(0)).collect();
                Some(self.items.get_or_init(none))
            }
        };
        if let Some(all) = all {
            all[segment.0 as usize].store(items, Ordering::Relaxed);
        }
    }
}
