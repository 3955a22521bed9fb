//! Counters of a cascade.

use std::sync::atomic::{AtomicU64, Ordering};

engine::counters! {
    /// Counts since the cascade was opened.
    #[allow(
        missing_docs,
        reason = "the names say it; docs/guide/statistics.md has the table"
    )]
    pub struct Counts {
        tier1_hits,
        tier2_hits,
        tier3_hits,
        /// Searches of flash that found nothing.
        absent = "tiers_absent",
        /// Pages read by look-ups that Tier 2 answered, that Tier 3 answered, and that found nothing.
        tier2_reads,
        tier3_reads,
        absent_reads,
        /// Batches of Tier 2 read by all look-ups.
        tier2_batches,
        promoted = "tier1_promotions",
        demoted = "tier1_demotions",
        compactions,
        /// Mappings dropped because the region was full.
        evicted = "mappings_evicted",
        /// Mappings dropped because a newer one may have been on a damaged page.
        dropped_behind_damage = "mappings_dropped_behind_damage",
        /// Pages that could not be read or did not verify.
        damaged_pages = "index_pages_damaged",
        write_errors = "index_write_errors",
    }
    from pub struct Counters of AtomicU64
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
