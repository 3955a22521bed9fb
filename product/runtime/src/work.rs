//! Counts of the work done on this thread, by kind: for a simulation to charge for, and for tasks with long work to
//! [make way](make_way) for others.
//!
//! Virtual time stands still while code runs. A simulation that charges for processor time reads [`done`] before and after a task
//! runs, and makes the task wait for the cost of the difference. Counting is one addition.

use std::cell::Cell;
use std::ops::{Add, Index, Sub};
use std::time::Duration;

/// Bytes that a task copies at a stretch for its work to be long: a tenth of a millisecond and more.
const LONG_BYTES: u64 = 512 << 10;
/// Wait of a task that makes way. The thread looks for input meanwhile, which it does not do as long as tasks are ready.
const WAY: Duration = Duration::from_micros(100);

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Work {
    /// Lookup or change of an index for one key. A scan counts one step for each key.
    IndexStep,
    /// Entry of the DRAM tier read, inserted, removed as expired, or examined when the tier is full.
    TierEntry,
    /// Copy of an item: into memory, to a segment, or between segments.
    ItemCopied,
    /// Bytes of copied items.
    ByteCopied,
    /// Read, program, write or erase handed to a device. Consecutive pages programmed one by one count as larger commands.
    DeviceCommand,
}

impl Work {
    /// Every kind, in order.
    pub const ALL: [Self; 5] = [
        Self::IndexStep,
        Self::TierEntry,
        Self::ItemCopied,
        Self::ByteCopied,
        Self::DeviceCommand,
    ];
}

/// Amount of work of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone([u64; Work::ALL.len()]);

impl Index<Work> for WorkDone {
    type Output = u64;

    fn index(&self, work: Work) -> &u64 {
        &self.0[work as usize]
    }
}

impl Add for WorkDone {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind] + other.0[kind]))
    }
}

impl Sub for WorkDone {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind] - earlier.0[kind]))
    }
}

thread_local! {
    static DONE: Cell<WorkDone> = const { Cell::new(WorkDone([0; Work::ALL.len()])) };
    static LONG_COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Counts `amount` of a kind of work.
#[inline]
pub fn count(work: Work, amount: u64) {
    if matches!(work, Work::ByteCopied) && is_long(amount) {
        LONG_COPIES.set(LONG_COPIES.get() + 1);
    }
    DONE.with(|done| {
        let mut all = done.get();
        all.0[work as usize] = all.0[work as usize].wrapping_add(amount);
        done.set(all);
    });
}

/// Returns the work counted on this thread so far.
pub fn done() -> WorkDone {
    DONE.with(Cell::get)
}

/// Returns the number of copies on this thread that were long work.
#[inline]
pub fn long_copies() -> u64 {
    LONG_COPIES.get()
}

/// Returns whether copying `bytes` is long work.
#[inline]
pub fn is_long(bytes: u64) -> bool {
    bytes >= LONG_BYTES
}

/// Waits until this thread has looked for input, and no other task has done long work since. Tasks that wait here before each long
/// work do it in turns, and other tasks wait for one of them at most, not for all.
pub async fn make_way() {
    loop {
        let before = long_copies();
        crate::sleep(WAY).await;
        if long_copies() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_the_difference() {
        let before = done();
        count(Work::IndexStep, 2);
        count(Work::ByteCopied, 300);
        let did = done() - before;
        assert_eq!((did[Work::IndexStep], did[Work::ByteCopied]), (2, 300));
        assert_eq!(did[Work::DeviceCommand], 0);
        assert_eq!((did + did)[Work::ByteCopied], 600);
        let elsewhere = std::thread::spawn(done).join().unwrap();
        assert_eq!(elsewhere, WorkDone::default());
    }

    /// While eight tasks with long work are ready, one that gets input waits for one of them, not for all.
    #[test]
    fn long_work_is_done_in_turns() {
        crate::sim::Sim::new(1).block_on(async {
            let begun = long_copies();
            let all: Vec<_> = (0..8)
                .map(|_| {
                    crate::spawn(async {
                        for _ in 0..3 {
                            make_way().await;
                            count(Work::ByteCopied, LONG_BYTES);
                        }
                    })
                })
                .collect();
            let mut last = begun;
            while long_copies() - begun < 24 {
                crate::sleep(WAY).await;
                assert!(long_copies() - last <= 1, "{}", long_copies() - last);
                last = long_copies();
            }
            for task in all {
                assert_eq!(task.await, Some(()));
            }
        });
    }
}
