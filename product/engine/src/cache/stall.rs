//! [`Stall`]: the time that a write has waited for space on flash.

use std::time::Duration;

use runtime::Instant;
use runtime::sync::EventListener;

use crate::counter::Count as _;
use crate::flash::FlashTier;
use crate::sync::atomic::AtomicU64;

/// A write that has found no space. It waits for some at most as long as the settings say.
pub(super) struct Stall {
    patience: Duration,
    space: Option<EventListener>,
    since: Option<Instant>,
    has_asked: bool,
}

impl Stall {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            space: None,
            since: None,
            has_asked: false,
        }
    }

    /// Begins to count the time. Else it counts from the first wait on.
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(runtime::now);
    }

    /// Returns the time that the write may still wait.
    fn left(&self) -> Duration {
        let waited = self.since.map(|since| runtime::now().since(since));
        self.patience.saturating_sub(waited.unwrap_or_default())
    }

    /// Returns whether the write has waited so long that it is refused.
    pub(super) fn is_too_long(&self) -> bool {
        self.has_asked && self.left().is_zero()
    }

    /// Returns whether the next stall waits.
    pub(super) fn is_next_to_wait(&self) -> bool {
        self.space.is_some()
    }

    /// Waits until flash may have space or has failed to make some, a quarter of a second at most, and counts that in `stalls`. The
    /// first call only takes a listener, so that the caller repeats the attempt before it waits. Without patience, the flash is
    /// asked for space and not waited for.
    pub(super) async fn wait(&mut self, flash: &FlashTier, stalls: &AtomicU64) {
        let Some(space) = self.space.take() else {
            self.space = Some(flash.space().listener());
            return;
        };
        self.begin();
        self.has_asked = true;
        stalls.add(1);
        flash.ask_for_space().await;
        if !self.patience.is_zero() {
            space.await;
        }
    }
}
