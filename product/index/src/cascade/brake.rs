//! What holds back those who store while upkeep is behind: Tier 1 is bounded, and a mapping for which it has no space is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use runtime::sync::Notify;

use super::bounds::Bounds;

/// Demotions' worths of entries that Tier 1 may still take once the brake is pressed: those of who is storing just then.
const MARGIN: usize = 4;

/// Pressed while Tier 1 of some partition is nearly full, and upkeep makes way. Changed under that partition's lock.
pub(super) struct Brake {
    pressed: Box<[AtomicBool]>,
    /// How many are.
    count: AtomicUsize,
    /// Entries that Tier 1 of a partition could have when one was last pressed.
    most: AtomicUsize,
    makes_way: AtomicBool,
    /// None is any more, or upkeep makes no way.
    pub(super) released: Notify,
}

impl Brake {
    pub(super) fn new(partitions: usize) -> Self {
        Self {
            pressed: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            // Upkeep begins with the cache.
            makes_way: AtomicBool::new(true),
            released: Notify::default(),
        }
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.makes_way.load(Ordering::Relaxed)
    }

    /// Entries at which it is pressed where Tier 1 of a partition may have so many: more than those at which upkeep rests, which
    /// alone releases it.
    pub(super) fn entries_of(&self, most: usize, bounds: &Bounds) -> usize {
        let nearly_full = most.saturating_sub(MARGIN * bounds.demoted());
        nearly_full.max(bounds.hot() + 1)
    }

    /// Entries below which it is released.
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

    /// Upkeep runs and can write, or it cannot: then nobody is to wait for it. Whether that is new.
    pub(super) fn set_makes_way(&self, makes_way: bool) -> bool {
        let before = self.makes_way.swap(makes_way, Ordering::Relaxed);
        if before && !makes_way {
            self.released.notify_all();
        }
        before != makes_way
    }
}
