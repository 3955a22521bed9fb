//! Back-pressure on writers while upkeep is behind: Tier 1 is bounded, and a mapping for which it has no space is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use runtime::sync::Notify;

use super::bounds::Bounds;

/// Demotions' worth of entries that Tier 1 may still take after the brake is pressed, for writers that are storing just
/// then.
const MARGIN: usize = 4;

/// Pressed while Tier 1 of some partition is nearly full and upkeep makes progress. Changed under that partition's lock.
pub struct Brake {
    pressed: Box<[AtomicBool]>,
    /// Number of partitions that press it.
    count: AtomicUsize,
    /// Most entries allowed in Tier 1 of a partition when the brake was last pressed.
    most: AtomicUsize,
    makes_way: AtomicBool,
    /// Notified when no partition presses any more, or upkeep makes no progress.
    pub released: Notify,
}

impl Brake {
    pub(super) fn new(partitions: usize) -> Self {
        Self {
            pressed: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            // Upkeep starts with the cache.
            makes_way: AtomicBool::new(true),
            released: Notify::default(),
        }
    }

    /// Returns whether upkeep is so far behind that Tier 1 may soon refuse mappings. Callers should then wait for
    /// [`released`](Self::released). Returns false if upkeep cannot make progress.
    pub fn is_pressed(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.makes_way.load(Ordering::Relaxed)
    }

    /// Returns the number of entries at which a partition presses the brake, given the most that Tier 1 may have. It is
    /// above the number at which upkeep rests, since only upkeep releases the brake.
    pub(super) fn entries_of(&self, most: usize, bounds: &Bounds) -> usize {
        let nearly_full = most.saturating_sub(MARGIN * bounds.demoted());
        nearly_full.max(bounds.hot() + 1)
    }

    /// Returns the number of entries below which a partition releases it.
    pub(super) fn entries(&self, bounds: &Bounds) -> usize {
        self.entries_of(self.most.load(Ordering::Relaxed), bounds)
    }

    pub(super) fn press(&self, partition: usize, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        if !self.pressed[partition].swap(true, Ordering::Relaxed) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn release(&self, partition: usize) {
        if self.pressed[partition].load(Ordering::Relaxed) {
            self.pressed[partition].store(false, Ordering::Relaxed);
            if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.released.notify_all();
            }
        }
    }

    /// Sets whether upkeep runs and can write. While it cannot, writers do not wait for it. Returns whether the value
    /// changed.
    pub(super) fn set_makes_way(&self, makes_way: bool) -> bool {
        let before = self.makes_way.swap(makes_way, Ordering::Relaxed);
        if before && !makes_way {
            self.released.notify_all();
        }
        before != makes_way
    }
}
