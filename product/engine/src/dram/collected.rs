//! [`Collected`]: the sums over the collected items of a tier.

/// The collected items of a tier.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Bytes of their bodies.
    pub(super) bytes: u64,
    /// Bytes that have been collected for each group since it was last placed. Those overwritten since count as well.
    pub(super) groups: Vec<u64>,
}

impl Collected {
    /// Returns the group for which most has been collected.
    pub(super) fn fullest(&self) -> Option<usize> {
        let groups = self.groups.iter().enumerate();
        let fullest = groups.max_by_key(|(_, bytes)| **bytes)?;
        (*fullest.1 > 0).then_some(fullest.0)
    }
}
