//! The bytes that structures leave: small ones are compared with a checksum, and read by what `docs/internals/on-disk-format.md` says of them,
//! not by the crate's own decoders.
//!
//! When this fails the format has changed: raise `SLICES_FORMAT`, change the document, then the checksum. Where only the order of
//! requests has changed, and what is read by the document is still right, the checksum alone.

mod bloom;
mod bytes;
mod hash;
mod lsh;
mod map;
