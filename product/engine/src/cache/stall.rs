//! [`Stall`]: the time that a write has waited for space on flash.

use std::time::Duration;

use runtime::Instant;
use runtime::sync::EventListener;

use crate::counter::Count as _;
use crate::flash::FlashTier;
use crate::sync::atomic::AtomicU64;

/// Time that a write waits for space before it is refused. Only a failing flash takes that long.
const STALL_PATIENCE: Duration = Duration::from_secs(10);

/// A write that has found no space.
#[derive(Default)]
pub(super) struct Stall {
    space: Option<EventListener>,
    since: Option<Instant>,
}

impl Stall {
    /// Returns whether the write has waited so long that it is refused.
    pub(super) fn is_too_long(&self) -> bool {
        let waits = |since| runtime::now().since(since) >= STALL_PATIENCE;
        self.since.is_some_and(waits)
    }

    /// Returns whether the next stall waits.
    pub(super) fn is_next_to_wait(&self) -> bool {
        self.space.is_some()
    }

    /// Waits until flash may have space, or has failed to make some, and counts that in `stalls`. The first call only
    /// takes a listener, so that the caller repeats the attempt before it waits.
    pub(super) async fn wait(&mut self, flash: &FlashTier, stalls: &AtomicU64) {
        let Some(space) = self.space.take() else {
            self.space = Some(flash.space().listener());
            return;
        };
        self.since.get_or_insert_with(runtime::now);
        stalls.add(1);
        flash.ask_for_space().await;
        space.await;
    }
}
