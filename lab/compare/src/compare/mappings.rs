//! Counters of an index that is partly on flash, under one set of names for the placements that have such an index.

use engine::Engine;

/// Counters of an index that is partly on flash, since it was opened. All are 0 for another index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingStats {
    /// Look-ups that memory answered, direct blocks or the hash table on flash, and lists and buckets.
    pub hits: [u64; 3],
    /// Pages of the index read by look-ups that the second tier answered, the third, and none.
    pub reads: [u64; 3],
    /// Batches of the second tier that look-ups have read, whichever tier answered.
    pub batches: u64,
    /// Bytes of the index written to flash.
    pub bytes_written: u64,
    /// Bytes of flash that the index holds now.
    pub flash_bytes: u64,
}

impl MappingStats {
    /// Reads the counters of an engine's index.
    pub(super) fn of(engine: &Engine) -> Self {
        let stats = engine.index_stats();
        // An index has the names of tiers or those of a hash table.
        let of = |tiers: &str, table: &str| stats.find(tiers).unwrap_or_else(|| stats.get(table));
        Self {
            hits: [
                of("tier1_hits", "index_memory_hits"),
                of("tier2_hits", "index_flash_hits"),
                stats.get("tier3_hits"),
            ],
            reads: [
                stats.get("tier2_reads"),
                of("tier3_reads", "index_hit_reads"),
                of("absent_reads", "index_absent_reads"),
            ],
            batches: stats.get("tier2_batches"),
            bytes_written: stats.get("index_bytes_written"),
            flash_bytes: stats.get("index_flash_bytes"),
        }
    }

    /// Returns the counts since `begun`; bytes held are those of now.
    pub(super) fn since(mut self, begun: &Self) -> Self {
        for (end, begun) in self.hits.iter_mut().zip(begun.hits) {
            *end -= begun;
        }
        for (end, begun) in self.reads.iter_mut().zip(begun.reads) {
            *end -= begun;
        }
        self.batches -= begun.batches;
        self.bytes_written -= begun.bytes_written;
        self
    }
}
