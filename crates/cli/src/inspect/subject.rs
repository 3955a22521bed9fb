//! What `flowstone inspect` has looked at.

use std::path::{Path, PathBuf};

use engine::inspect::Inspection;

/// What has been inspected, and what was found.
pub(super) struct Subject<'a> {
    pub(super) path: &'a Path,
    pub(super) device_bytes: u64,
    pub(super) journal: PathBuf,
    /// Somebody has the image's lock.
    pub(super) in_use: bool,
    pub(super) inspection: Inspection,
}

impl Subject<'_> {
    /// Whether the image is in use, or has been while it was looked at.
    pub(super) fn is_live(&self) -> bool {
        self.in_use || self.inspection.is_changing
    }
}
