//! Counts of the work done on this thread, by kind, for a simulation to charge for.
//!
//! Virtual time stands still while code runs. A simulation that charges for processor time reads [`done`] before and after a task
//! runs, and makes the task wait for the cost of the difference. The live runtime never reads the counts; counting is one
//! addition.

use std::cell::Cell;
use std::ops::{Add, Index, Sub};

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
}

/// Counts `amount` of a kind of work.
#[inline]
pub fn count(work: Work, amount: u64) {
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
}
