//! Counters of a cascade.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the cascade was opened.
#[derive(Debug, Default)]
#[allow(
    missing_docs,
    reason = "the names say it; docs/guide/statistics.md has the table"
)]
pub struct Counters {
    pub tier1_hits: AtomicU64,
    pub tier2_hits: AtomicU64,
    pub tier3_hits: AtomicU64,
    /// Searches of flash that found nothing.
    pub absent: AtomicU64,
    /// Pages read by look-ups that Tier 2 answered, that Tier 3 answered, and that found nothing.
    pub tier2_reads: AtomicU64,
    pub tier3_reads: AtomicU64,
    pub absent_reads: AtomicU64,
    /// Batches of Tier 2 read by all look-ups.
    pub tier2_batches: AtomicU64,
    pub demoted: AtomicU64,
    pub promoted: AtomicU64,
    pub compactions: AtomicU64,
    /// Pages that could not be read or did not verify.
    pub damaged_pages: AtomicU64,
    /// Mappings dropped because a newer one may have been on a damaged page.
    pub dropped_behind_damage: AtomicU64,
    /// Mappings dropped because the region was full.
    pub evicted: AtomicU64,
    pub write_errors: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
