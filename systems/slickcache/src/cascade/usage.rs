//! Memory and flash in use by a cascade, by part.

use std::sync::atomic::Ordering;

use super::core::Cascade;

/// Memory and flash in use, and the settings that determine them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Share of the mappings that Tier 1 holds, in percent.
    pub hot_percent: u32,
    /// Filter bits for each entry on flash.
    pub filter_bits: u32,
    /// Bytes of memory of Tier 1.
    pub tier1_bytes: u64,
    /// Bytes of memory of Tiers 2 and 3: filters, fences, and entries that are not on flash yet.
    pub below_bytes: u64,
    /// Bytes of memory of the page map of the region.
    pub map_bytes: u64,
    /// Pages of the region in use, pages that wait for a checkpoint included.
    pub pages_used: u64,
    /// Free pages of the region.
    pub pages_free: u64,
}

impl Cascade {
    /// Returns the present usage.
    pub fn usage(&self) -> Usage {
        let below = self.flash_tier_bytes.iter();
        let pages_free = self.store.free_pages();
        Usage {
            hot_percent: self.config.hot_percent,
            filter_bits: self.config.filter_bits,
            tier1_bytes: self.hot_bytes.load(Ordering::Relaxed),
            below_bytes: below.map(|bytes| bytes.load(Ordering::Relaxed)).sum(),
            map_bytes: self.store.memory_bytes(),
            pages_used: (self.store.pages() - pages_free) as u64,
            pages_free: pages_free as u64,
        }
    }
}
