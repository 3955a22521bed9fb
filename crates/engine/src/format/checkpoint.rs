//! The checkpoint an orderly stop leaves: a stream of records in checkpoint segments.
//!
//! ```text
//!  segment data area: up to summary_offset(0) bytes of the stream, CRC-32C in the footer
//!  stream:  "flowCKPT" │ flush deadline u32, 0 for none │ partitions u32
//!           per partition: flush cutoff u64
//!           segments u32, per written segment: number u32 │ items u32 │ sequence u64
//!           per index shard: entries u64, per entry: hash u64 │ location u64 (bit 63: recent)
//! ```

/// Opens the stream.
pub const MAGIC: u64 = u64::from_le_bytes(*b"flowCKPT");

/// The bit of an index entry's value that tells it was read recently.
pub const RECENT: u64 = 1 << 63;

/// Appends integers to a stream.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// The bytes appended.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, taken out.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
