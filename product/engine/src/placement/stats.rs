//! Statistics of an index, by name: each placement has its own.

use super::Placement;
use crate::counter::NamedStats;

/// Statistics of an index at one moment, in the order in which the placement reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexStats(NamedStats);

impl IndexStats {
    /// Reads the statistics of a placement.
    pub fn of(placement: &dyn Placement) -> Self {
        Self(NamedStats::collect(|visit| placement.stats(visit)))
    }

    /// Returns the statistics with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter()
    }

    /// Returns the statistic called `name`, if the index has it.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.0.find(name)
    }

    /// Returns the statistic called `name`, or 0 for an index that does not have it.
    pub fn get(&self, name: &str) -> u64 {
        self.find(name).unwrap_or(0)
    }

    /// Returns the number of mappings that the index has dropped, for lack of flash space or behind damaged pages.
    pub fn mappings_dropped(&self) -> u64 {
        self.get("mappings_evicted") + self.get("mappings_dropped_behind_damage")
    }
}
