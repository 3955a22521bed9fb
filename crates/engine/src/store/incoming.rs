//! What is appended to segments.

use crate::format::item::ItemRef;
use crate::key::KeyHash;

/// Where items to append come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A write: it stalls while no more segments are free than are reserved for copies.
    Write,
    /// A segment being reclaimed: its copies may open reserved segments, too.
    Copy,
}

/// An item to append.
#[derive(Clone, Copy, Debug)]
pub struct AppendItem<'a> {
    /// Hash of its key.
    pub hash: KeyHash,
    /// The item.
    pub item: ItemRef<'a>,
}
