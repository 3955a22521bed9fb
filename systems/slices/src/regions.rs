//! Where slicetables lie, and who still reads them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use format::slices_log::Pointer;
use parking_lot::Mutex;
use runtime::sync::Notify;

/// The regions of a drive that nothing lies in.
#[derive(Default)]
pub(crate) struct Regions {
    free: Mutex<VecDeque<u32>>,
    freed: Notify,
}

/// A region with a slicetable, or one that is being written. It is free again when nobody has it any more.
pub(crate) struct Region {
    pub(crate) number: u32,
    /// The flush that wrote what it holds.
    pub(crate) generation: u32,
    /// A start has found it: the flush that takes its place may have been begun by the process before.
    pub(crate) is_found: bool,
    regions: Arc<Regions>,
    /// A write to it may still be under way: nobody gets it before the next start.
    is_abandoned: AtomicBool,
}

impl Region {
    /// Nobody may use it: its write was cut short, and may still be under way.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// The word of the log that says where it is.
    pub(crate) fn pointer(&self) -> Pointer {
        Pointer {
            generation: self.generation,
            region: self.number,
        }
    }
}

impl Regions {
    /// All that are not `used`.
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

    /// A region that a start has found in use.
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

    /// Waits for a free region.
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
        // The last to be taken again: another is tried first where one cannot be written.
        self.regions.free.lock().push_back(self.number);
        self.regions.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as a drive of some TB has: what takes the square of them does not end.
    #[test]
    fn regions_that_are_not_used_are_free() {
        let used: Vec<u32> = (0..1 << 22).rev().step_by(2).collect();
        let regions = Regions::without(1 << 22, &used);
        let free = regions.free.lock();
        let expected: Vec<u32> = (0..1 << 22).step_by(2).collect();
        assert!(*free == expected);
    }
}
