//! Counters of a cascade.

use std::sync::atomic::{AtomicU64, Ordering};

engine::counters! {
    /// Counts since the cascade was opened.
    pub struct Counts {
        /// Look-ups that Tier 1 answered.
        tier1_hits,
        /// Look-ups that Tier 2 answered.
        tier2_hits,
        /// Look-ups that Tier 3 answered.
        tier3_hits,
        /// Searches of flash that found nothing.
        absent = "tiers_absent",
        /// Pages read by look-ups that Tier 2 answered.
        tier2_reads,
        /// Pages read by look-ups that Tier 3 answered.
        tier3_reads,
        /// Pages read by look-ups that found nothing.
        absent_reads,
        /// Batches of Tier 2 read by all look-ups.
        tier2_batches,
        /// Mappings found in a lower tier and put into Tier 1.
        promoted = "tier1_promotions",
        /// Mappings moved from Tier 1 to Tier 2.
        demoted = "tier1_demotions",
        /// Lists moved to their inactive buckets.
        compactions,
        /// Mappings dropped because the region was full.
        evicted = "mappings_evicted",
        /// Mappings dropped because a newer one may have been on a damaged page.
        dropped_behind_damage = "mappings_dropped_behind_damage",
        /// Pages that could not be read or did not verify.
        damaged_pages = "index_pages_damaged",
        /// Writes of the index that failed.
        write_errors = "index_write_errors",
    }
    from pub struct Counters of AtomicU64
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
