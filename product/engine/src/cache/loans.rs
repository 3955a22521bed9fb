//! [`Loans`]: memory of the cache that its user takes for a while.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::tiers::{LargeHand, Tiers};

/// Memory lent to a user outside the cache. The DRAM tier gives up as much as is lent.
pub struct Loans {
    tiers: Arc<Tiers>,
    /// Bytes that may be lent whatever the index takes.
    lendable_bytes: u64,
    /// Number of loans of memory so far; modulo the number of partitions, the partition whose DRAM tier shrinks next.
    next_to_shrink: AtomicUsize,
}

impl Loans {
    pub(super) fn new(tiers: Arc<Tiers>, lendable_bytes: u64) -> Self {
        Self {
            tiers,
            lendable_bytes,
            next_to_shrink: AtomicUsize::new(0),
        }
    }

    /// Returns whether `bytes` more may be lent: all loans together stay within `lendable_bytes`, or they fit beside
    /// the present index and the least memory of the DRAM tier.
    pub fn may_lend(&self, bytes: u64) -> bool {
        let flash = &self.tiers.flash;
        let lent_bytes = self.tiers.shares.lent().load(Ordering::Relaxed) + bytes;
        let index_bytes = flash.memory().index_bytes;
        lent_bytes <= self.lendable_bytes || flash.upkeep.index_use.leaves(lent_bytes, index_bytes)
    }

    /// Lends `bytes` of the memory. The DRAM tier gives up as much: one partition shrinks now, the others in later
    /// calls, as new items come, and in [`shrink`](Loans::shrink).
    pub fn lend(&self, bytes: u64) {
        let tiers = &self.tiers;
        tiers.shares.lent().fetch_add(bytes, Ordering::Relaxed);
        let number = self.next_to_shrink.fetch_add(1, Ordering::Relaxed) % tiers.partitions.len();
        let now = runtime::unix_seconds();
        LargeHand::new(tiers, now).trim();
        tiers.shrink(number, now);
    }

    /// Lends `bytes` if the DRAM tier can give up all lent memory now or shrink to its least size; otherwise lends
    /// nothing and returns false.
    pub fn try_lend(&self, bytes: u64) -> bool {
        let tiers = &self.tiers;
        tiers.shares.lent().fetch_add(bytes, Ordering::Relaxed);
        let is_given = self.shrink_all();
        if !is_given {
            self.end(bytes);
        }
        is_given
    }

    /// Makes the DRAM tier give up lent memory, as far as flash has space for its items now. Called repeatedly while
    /// much memory is lent.
    pub fn shrink(&self) {
        self.shrink_all();
    }

    /// Shrinks the DRAM tier. Returns false if flash had no space for an item that had to leave.
    fn shrink_all(&self) -> bool {
        let tiers = &*self.tiers;
        let now = runtime::unix_seconds();
        let mut is_given = LargeHand::new(tiers, now).trim();
        for number in 0..tiers.partitions.len() {
            is_given &= tiers.shrink(number, now);
        }
        is_given
    }

    /// Returns `bytes` of lent memory to the cache.
    pub fn end(&self, bytes: u64) {
        let lent = self.tiers.shares.lent();
        lent.fetch_sub(bytes, Ordering::Relaxed);
    }
}
