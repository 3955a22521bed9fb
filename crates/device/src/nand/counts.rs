//! What has been done, and for how long.

use std::ops::AddAssign;

/// Operations of a LUN, a channel or a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed, those that failed included.
    pub programs: u64,
    /// Blocks erased, those that failed included.
    pub erases: u64,
    /// Programs and erases that failed.
    pub failures: u64,
    /// Time that LUNs were busy, waiting for the bus included, added up, in nanoseconds.
    pub busy_ns: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.programs += other.programs;
        self.erases += other.erases;
        self.failures += other.failures;
        self.busy_ns += other.busy_ns;
    }
}

/// What has been done to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCounts {
    /// Erases of it.
    pub erases: u32,
    /// Reads of its pages.
    pub reads: u64,
    /// Programs of its pages.
    pub programs: u64,
    /// Pages programmed since the last erase.
    pub programmed: u32,
}
