//! The regions of a drive: which are free, and which hold a slicetable that is written or read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::encoding::log::Pointer;
use parking_lot::Mutex;
use runtime::sync::Notify;

/// The free regions of a drive.
#[derive(Default)]
pub(crate) struct Regions {
    free: Mutex<VecDeque<u32>>,
    freed: Notify,
}

/// A region that holds a slicetable or is being written. Dropping it frees the region, unless it was abandoned.
pub(crate) struct Region {
    pub(crate) number: u32,
    /// Generation of its slicetable: the number of the flush that writes it.
    pub(crate) generation: u32,
    /// Whether a start has found it in the log. If so, the previous process may have begun the flush that replaces it.
    pub(crate) is_found: bool,
    regions: Arc<Regions>,
    /// Whether a write to it may still be under way. If so, the region is not reused before the next start.
    is_abandoned: AtomicBool,
}

impl Region {
    /// Keeps the region from being reused: its write was cut short, and may still be under way.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns the pointer that the log stores for this region.
    pub(crate) fn pointer(&self) -> Pointer {
        Pointer {
            generation: self.generation,
            region: self.number,
        }
    }
}

impl Regions {
    /// Returns `count` regions, all free except `used`.
    pub(crate) fn without(count: u32, used: &[u32]) -> Arc<Self> {
        let mut is_free = vec![true; count as usize];
        for &region in used {
            if let Some(is_free) = is_free.get_mut(region as usize) {
                *is_free = false;
            }
        }
        let free = (0..count).filter(|&region| is_free[region as usize]);
        let free = free.collect();
        Arc::new(Self {
            free: Mutex::new(free),
            freed: Notify::new(),
        })
    }

    /// Returns a region that a start has found in use.
    pub(crate) fn used(self: &Arc<Self>, number: u32, generation: u32) -> Region {
        self.region(number, generation, true)
    }

    fn region(self: &Arc<Self>, number: u32, generation: u32, is_found: bool) -> Region {
        Region {
            number,
            generation,
            is_found,
            regions: Arc::clone(self),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Waits for a free region, and takes it for the slicetable of `generation`.
    pub(crate) async fn take(self: &Arc<Self>, generation: u32) -> Region {
        loop {
            let freed = self.freed.listener();
            if let Some(number) = self.free.lock().pop_front() {
                return self.region(number, generation, false);
            }
            freed.await;
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_abandoned.load(Ordering::Relaxed) {
            return;
        }
        // It goes to the back of the queue, so that a flush whose write failed tries another region first.
        self.regions.free.lock().push_back(self.number);
        self.regions.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many regions as a drive of some TB has: an algorithm of quadratic time would not end.
    #[test]
    fn regions_that_are_not_used_are_free() {
        let used: Vec<u32> = (0..1 << 22).rev().step_by(2).collect();
        let regions = Regions::without(1 << 22, &used);
        let free = regions.free.lock();
        let expected: Vec<u32> = (0..1 << 22).step_by(2).collect();
        assert!(*free == expected);
    }
}
