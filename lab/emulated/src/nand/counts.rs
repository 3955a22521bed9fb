//! Counts of operations and of busy time.

use std::iter::Sum;

/// Operations of a LUN, a channel or a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed, including failed programs.
    pub programs: u64,
    /// Blocks erased, including failed erases.
    pub erases: u64,
    /// Programs and erases that failed.
    pub failures: u64,
    /// Sum of the LUNs' busy time in nanoseconds, including waits for the bus.
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
