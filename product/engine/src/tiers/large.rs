//! [`LargeHand`]: makes room for large values in memory, and keeps large and small items in balance.

use super::Tiers;
use crate::dram::{Evicted, LargeClaim, LargeFate};
use crate::format::item::CLOCK_HIGHEST;

/// The CLOCK hand over the large values of all partitions. It holds one partition's lock at a time.
pub(crate) struct LargeHand<'t> {
    tiers: &'t Tiers,
    /// Unix second of the request.
    now: u32,
}

impl<'t> LargeHand<'t> {
    pub(crate) fn new(tiers: &'t Tiers, now: u32) -> Self {
        Self { tiers, now }
    }

    /// Extends a claim by `bytes`: large values leave memory as far as their limit demands, then the partitions give up
    /// as much. Refuses the claim if that is not possible now. The caller holds no partition's lock.
    pub(crate) fn extend(&self, claim: &mut LargeClaim<'_>, bytes: usize) {
        let shares = &self.tiers.shares;
        let mut rounds = self.rounds();
        while !claim.extend(bytes, shares.large_limit()) {
            if rounds == 0 || self.evict_front(u32::MAX).is_none() {
                return claim.refuse();
            }
            rounds -= 1;
        }
        if !self.shrink_partitions() {
            claim.refuse();
        }
    }

    /// Returns whether `bytes` are free, so that a large value displaces nothing.
    pub(crate) fn has_free(&self, bytes: usize) -> bool {
        let shares = &self.tiers.shares;
        let partitions = self.tiers.partitions.each();
        let small: usize = partitions
            .map(|partition| partition.tier.items.memory_bytes())
            .sum();
        let large = shares.large().bytes() + bytes;
        large <= shares.large_limit() && (small + large) as u64 <= shares.whole_tier()
    }

    /// Evicts large values above their limit, which falls when the index grows or memory is lent. Returns false if
    /// flash has no space for one now.
    pub(crate) fn trim(&self) -> bool {
        let shares = &self.tiers.shares;
        let mut rounds = self.rounds();
        while shares.large().bytes() > shares.large_limit() {
            if rounds == 0 || self.evict_front(u32::MAX).is_none() {
                return false;
            }
            rounds -= 1;
        }
        true
    }

    /// Evicts large values that were accessed before the items that have left the partitions since the last call, as
    /// many bytes as those items had.
    pub(crate) fn balance(&self) {
        let mut evicted = Evicted::default();
        for mut partition in self.tiers.partitions.each() {
            evicted += std::mem::take(&mut partition.tier.items.evicted);
        }
        let Some(access) = evicted.access_sum.checked_div(evicted.items) else {
            return;
        };
        let mut left_bytes = evicted.bytes;
        let mut rounds = self.rounds();
        while left_bytes > 0 && rounds > 0 {
            match self.evict_front(access as u32) {
                Some(LargeFate::Evicted(bytes)) => {
                    left_bytes = left_bytes.saturating_sub(bytes as u64);
                }
                Some(LargeFate::Gone | LargeFate::Queued) => {}
                Some(LargeFate::TooYoung) | None => return,
            }
            rounds -= 1;
        }
    }

    /// Returns the number of steps after which each value has had all its chances.
    fn rounds(&self) -> usize {
        (self.tiers.shares.large().len() + 1) * (usize::from(CLOCK_HIGHEST) + 1)
    }

    /// Evicts the value at the front of the queue if its last access was earlier than Unix second `before`. Returns
    /// `None` if there is no large value, or flash has no space for it.
    fn evict_front(&self, before: u32) -> Option<LargeFate> {
        let front = self.tiers.shares.large().front()?;
        let partitions = &self.tiers.partitions;
        let mut partition = partitions.lock_number(front.partition, self.now);
        let context = self.tiers.evict_context(front.partition, self.now);
        let tier = &mut partition.tier;
        tier.evict_large(front.hash, front.ticket, before, &context)
            .ok()
    }

    /// Makes each partition give up memory above its limit. Returns false if flash had no space for an item that had to
    /// leave.
    fn shrink_partitions(&self) -> bool {
        (0..self.tiers.partitions.len()).all(|number| self.tiers.shrink(number, self.now))
    }
}
