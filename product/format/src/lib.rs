//! The bytes of the cache on flash; `docs/internals/on-disk-format.md` draws them. All integers are little-endian; every
//! structure carries a CRC-32C. A system whose index is on flash has the bytes of that index in its own crate.
//!
//! ```text
//!   superblock ×2 │ block 0 │ block 1 │ …
//!   item            an item in a segment's data area, and in the log of the DRAM tier
//!   segment         data area, summary entries, footer
//!   hashed          positions in a segment that follow from the hash of the key
//!   checkpoint      dead items of every segment, counters
//!   journal         deaths since the checkpoint; a file of its own
//!   journal_place   the path of the journal, beside each copy of the superblock
//!   index_device    the head of a device that holds nothing but an index
//! ```

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod hashed;
pub mod index_device;
pub mod item;
pub mod journal;
pub mod journal_place;
pub mod location;
pub mod run_header;
pub mod segment;
pub mod superblock;

/// Reasons to reject the bytes of a structure on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The checksum does not match the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// A length or an offset points outside its container.
    #[error("length or offset out of range")]
    Range,
    /// The magic number is not that of the structure.
    #[error("not a Flowstone structure")]
    Magic,
    /// Written by another version of the format.
    #[error("format version {found}, this program reads {expected}")]
    Version {
        /// The version found.
        found: u32,
        /// The version this program reads.
        expected: u32,
    },
    /// The bytes name another segment, page or sequence number than the one that was asked for.
    #[error("belongs to another segment")]
    Identity,
}
