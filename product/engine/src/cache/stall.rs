//! [`Stall`]: the time that a write has waited for space on flash.

use std::time::Duration;

use runtime::Instant;
use runtime::sync::EventListener;

/// Time that a write waits for space before it is refused. Only a failing flash takes that long.
const STALL_PATIENCE: Duration = Duration::from_secs(10);

/// A write that has found no space.
#[derive(Default)]
pub(super) struct Stall {
    pub(super) space: Option<EventListener>,
    pub(super) since: Option<Instant>,
}

impl Stall {
    /// Returns whether the write has waited so long that it is refused.
    pub(super) fn is_too_long(&self) -> bool {
        let waits = |since| runtime::now().since(since) >= STALL_PATIENCE;
        self.since.is_some_and(waits)
    }
}
