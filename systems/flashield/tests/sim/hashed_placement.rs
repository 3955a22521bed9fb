//! The `hashed` placement with an index of a chosen size: small ones lose entries all the time, and entries of other keys lead
//! to dead items.

use std::sync::Arc;

use flowstone_engine::OpenError;
use flowstone_engine::config::ConfigError;
use flowstone_engine::placement::{
    Description, IndexRoom, IndexSizes, Parts, Placement, PlacementKind,
};
use flowstone_flashield::HashedSettings;

/// The placement with an index for this many items, on flash of any size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedFor(pub(crate) u64);

impl HashedFor {
    const SETTINGS: HashedSettings = HashedSettings {
        hot_percent: 70,
        one_clock: false,
    };
}

impl PlacementKind for HashedFor {
    fn describe(&self) -> Description {
        Self::SETTINGS.describe()
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        Self::SETTINGS.sizes(&IndexRoom {
            expected_items: Some(self.0),
            ..*room
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        Self::SETTINGS.open(parts)
    }
}
