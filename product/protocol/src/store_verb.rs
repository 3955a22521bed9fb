//! The verbs of the storage commands.

/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreVerb {
    /// Whatever was there before.
    Set,
    /// Only where there is nothing.
    Add,
    /// Only where there is something.
    Replace,
    /// Behind what is there.
    Append,
    /// In front of what is there.
    Prepend,
    /// Only where the version is the one named.
    Cas,
}
