//! Single flight: many reads of one cold key cost one flash read.
//!
//! The first reader leads; those that come while it reads follow and share its result. A write to
//! the key ends the flight for newcomers: it is taken out of its partition's table, its leader and
//! followers still get what they asked for before the write, and nothing of it is kept in memory.

use std::sync::{Arc, OnceLock};

use runtime::sync::Notify;

use crate::placement::Token;
use crate::store::FlashItem;

/// How a flash read ended.
#[derive(Clone, Debug)]
pub(crate) enum Landing {
    /// With the item, which the index had named with this token; whether memory has kept it.
    Item {
        item: Arc<FlashItem>,
        token: Token,
        kept: bool,
    },
    /// There is no such item; the index had said so with this token.
    Absent(Token),
    /// The device failed or gave wrong bytes: a miss, and the index may still name the item.
    Failed,
    /// There was no memory to read it: the index still names it.
    Busy,
    /// The leader went away: a follower has to read for itself.
    Abandoned,
}

/// A flash read that several may wait for.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    landing: OnceLock<Landing>,
    landed: Notify,
}

impl Flight {
    /// Tells everybody how it ended; the first word counts.
    pub(crate) fn land(&self, landing: Landing) {
        // A second word is the drop guard's, after the leader has spoken.
        let _ = self.landing.set(landing);
        self.landed.notify_all();
    }

    /// Whether it has ended.
    pub(crate) fn has_landed(&self) -> bool {
        self.landing.get().is_some()
    }

    /// Waits for the end.
    pub(crate) async fn landing(&self) -> Landing {
        loop {
            let landed = self.landed.listener();
            if let Some(landing) = self.landing.get() {
                return landing.clone();
            }
            landed.await;
        }
    }
}
