//! Bytes on flash. Every offset and encoding is in this folder; `docs/internals/on-disk-format.md` draws
//! them. All integers are little-endian; every structure carries a CRC-32C.
//!
//! ```text
//!   superblock ×2 │ block 0 │ block 1 │ …
//!   item            what a segment's data area holds, and what the DRAM tier keeps in its log
//!   segment         data area, summary entries, footer
//!   hashed          positions in a segment that follow from the hash of the key
//!   checkpoint      what has died in every segment, counters
//!   journal         what has died since the checkpoint; a file of its own
//!   cascade         what a checkpoint has of an index on flash
//!   mapping         blocks of an index on flash, with Bloom filters
//!   index_device    the head of a device that holds nothing but an index
//!   slices          slicetables: superblock, pages
//!   slices_filter   pages of a Bloom filter in memory
//!   slices_log      words of a log of slicetables
//!   slices_lsh      similarity indexes on slicetables: pages, vectors
//!   slices_map      maps on slicetables: records of keys and values
//! ```

pub mod cascade;
pub mod checkpoint;
pub mod hashed;
pub mod index_device;
pub mod item;
pub mod journal;
pub mod location;
pub mod mapping;
pub mod segment;
pub mod sliced;
pub mod slices;
pub mod slices_filter;
pub mod slices_log;
pub mod slices_lsh;
pub mod slices_map;
pub mod superblock;

/// A structure on flash that cannot be what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The checksum does not match the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// A length or an offset points outside its container.
    #[error("length or offset out of range")]
    Range,
    /// The magic number is another's.
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
    /// It names another segment or sequence number than the place it was read from.
    #[error("belongs to another segment")]
    Identity,
}
