//! [`Stall`]: how long a write has waited for space on flash.

use std::time::Duration;

use runtime::Instant;
use runtime::sync::EventListener;

/// How long a write waits for space before it is refused: only flash that fails takes that long.
const STALL_PATIENCE: Duration = Duration::from_secs(10);

/// A write that finds no space.
#[derive(Default)]
pub(super) struct Stall {
    pub(super) space: Option<EventListener>,
    pub(super) since: Option<Instant>,
}

impl Stall {
    /// Whether it has waited for so long that it is to be refused.
    pub(super) fn is_too_long(&self) -> bool {
        let waits = |since| runtime::now().since(since) >= STALL_PATIENCE;
        self.since.is_some_and(waits)
    }
}
