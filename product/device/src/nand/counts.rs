//! What has been done, and for how long.

use std::iter::Sum;

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

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, more| Self {
            reads: sum.reads + more.reads,
            programs: sum.programs + more.programs,
            erases: sum.erases + more.erases,
            failures: sum.failures + more.failures,
            busy_ns: sum.busy_ns + more.busy_ns,
        })
    }
}
