//! Tasks that write what a structure has in memory, and try again after a failure.

use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pauses before a failed write is tried again: the first, doubled each time, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// How much of the memory a write has written.
pub(crate) enum Wrote {
    All,
    /// Another write follows.
    Some,
    /// The write has failed, and is tried again later.
    None,
}

/// Spawns a task that calls `write` until all is written or `structure` is no longer used. Calls `cut_short` if the runtime ends
/// first.
pub(crate) fn spawn<S: 'static>(
    structure: &Arc<S>,
    write: impl AsyncFn(&S) -> Wrote + 'static,
    cut_short: impl Fn(&S) + 'static,
) {
    let task = Task {
        structure: Arc::downgrade(structure),
        cut_short,
        is_finished: false,
    };
    runtime::spawn_detached(async move {
        let mut task = task;
        let mut pause = FIRST_RETRY;
        while let Some(structure) = task.structure.upgrade() {
            match write(&structure).await {
                Wrote::All => {
                    task.is_finished = true;
                    return;
                }
                Wrote::Some => pause = FIRST_RETRY,
                Wrote::None => {
                    drop(structure);
                    runtime::sleep(pause).await;
                    pause = (2 * pause).min(LAST_RETRY);
                }
            }
        }
    });
}

struct Task<S, C: Fn(&S)> {
    structure: Weak<S>,
    cut_short: C,
    is_finished: bool,
}

impl<S, C: Fn(&S)> Drop for Task<S, C> {
    fn drop(&mut self) {
        let structure = self.structure.upgrade();
        if let Some(structure) = structure.filter(|_| !self.is_finished) {
            (self.cut_short)(&structure);
        }
    }
}
