//! Settings of the placement.

/// Settings of the `sliced` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicedSettings {
    /// Incarnations of a new index (k in the paper). Memory for an item falls as 1/k; bytes written for an item rise as k.
    pub incarnations: u32,
    /// Bytes of a table in memory. `None` for 128 KiB, or less if there would be too few tables.
    pub table_bytes: Option<u32>,
    /// Share of the index's memory for Bloom filters of the partitions that are read most, in percent.
    pub filter_percent: u32,
    /// Segments opened since the last checkpoint at which the next one is written.
    pub checkpoint_segments: u32,
}

impl Default for SlicedSettings {
    /// The paper's settings: 32 incarnations, and no filters.
    fn default() -> Self {
        Self {
            incarnations: 32,
            table_bytes: None,
            filter_percent: 0,
            checkpoint_segments: 256,
        }
    }
}
