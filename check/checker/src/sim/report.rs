//! Totals of simulations.

/// Totals of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations answered.
    pub operations: u64,
    /// Crash points opened.
    pub crashes: u64,
    /// Crash points on NAND.
    pub crashes_on_nand: u64,
    /// Crash points of engines that had not recovered from the crash before.
    pub stumbles: u64,
    /// Orderly stops.
    pub stops: u64,
    /// Keys read at crash points.
    pub reads: u64,
    /// Keys found at crash points.
    pub hits: u64,
    /// Items that had to be found again.
    pub expected: u64,
    /// Expected items that reclaim had dropped by then.
    pub excused: u64,
    /// Expected items that torn records of a power cut killed.
    pub lost: u64,
    /// Empty starts after the journal had lost records or a page.
    pub empty_starts: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Checkpoints written before a recovery ended, because the journal had filled half of its ring.
    pub outgrown: u64,
    /// Laps of the journal's ring.
    pub laps: u64,
    /// Pages of the journal that rotted while the cache ran.
    pub decays: u64,
    /// Crash points with a rotten page of the journal.
    pub rotten: u64,
    /// Segments of the longest checkpoint.
    pub checkpoint_segments: u64,
    /// Segments reclaimed.
    pub reclaimed: u64,
    /// Blocks that failed in use.
    pub failed_blocks: u64,
    /// Segments written elsewhere because their blocks had failed.
    pub moved: u64,
    /// Write stalls: operations that waited for space on flash or in the journal.
    pub waits: u64,
    /// Digest of everything that happened: equal for equal runs.
    pub digest: u64,
}

impl Report {
    pub(super) fn digest(&mut self, fact: u64) {
        self.digest = (self.digest ^ fact)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.crashes += more.crashes;
        self.crashes_on_nand += more.crashes_on_nand;
        self.stumbles += more.stumbles;
        self.stops += more.stops;
        self.reads += more.reads;
        self.hits += more.hits;
        self.expected += more.expected;
        self.excused += more.excused;
        self.lost += more.lost;
        self.empty_starts += more.empty_starts;
        self.checkpoints += more.checkpoints;
        self.outgrown += more.outgrown;
        self.laps += more.laps;
        self.decays += more.decays;
        self.rotten += more.rotten;
        self.checkpoint_segments = self.checkpoint_segments.max(more.checkpoint_segments);
        self.reclaimed += more.reclaimed;
        self.failed_blocks += more.failed_blocks;
        self.moved += more.moved;
        self.waits += more.waits;
        self.digest(more.digest);
    }
}
