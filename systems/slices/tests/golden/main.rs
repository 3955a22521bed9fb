//! The bytes of structures: small structures are compared with a checksum, and read as `docs/internals/on-disk-format.md`
//! describes them, not with the crate's own decoders.
//!
//! If this fails, the format has changed: raise `SLICES_FORMAT`, change the document, then the checksum. If only the order of
//! requests has changed, and the bytes still read as documented, change the checksum alone.

mod bloom;
mod bytes;
mod hash;
mod lsh;
mod map;
