//! The verbs of the storage commands.

/// Condition and manner of storing a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreVerb {
    /// Unconditionally.
    Set,
    /// Only if the key has no item.
    Add,
    /// Only if the key has an item.
    Replace,
    /// Behind the old value.
    Append,
    /// In front of the old value.
    Prepend,
    /// Only if the item has the given version.
    Cas,
}
