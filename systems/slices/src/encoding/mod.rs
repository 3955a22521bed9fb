//! The bytes of the structures on flash. All integers are little-endian; every structure carries a checksum.
//!
//! ```text
//!   table    slicetables: superblock, pages
//!   filter   pages of a Bloom filter in memory
//!   log      words of a log of slicetables
//!   lsh      similarity indexes on slicetables: pages, vectors
//!   map      maps on slicetables: records of keys and values
//! ```

pub mod filter;
pub mod log;
pub mod lsh;
pub mod map;
pub mod table;
