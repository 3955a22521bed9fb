//! Values of the sliced index, each a segment number and a position, and the segments that they name.

use std::sync::Arc;

use crate::encoding::Value;
use engine::Count as _;
use engine::format::location::Place;
use engine::format::segment::{LARGE, SegmentId};
use engine::reclaim::IndexUse;
use engine::store::SegmentStore;
use on_flash::{Given, Numbers};

/// The segments, as the index sees them.
pub(super) struct SlicedSegments {
    pub(super) numbers: Numbers,
    pub(super) units_per_segment: u64,
    pub(super) store: Arc<SegmentStore>,
    pub(super) index_use: Arc<IndexUse>,
}

impl SlicedSegments {
    /// Returns the place that a value of the index names; `None` if its segment is gone.
    pub(super) fn place(&self, bits: u64) -> Option<Place> {
        let value = Value::decode(bits)?;
        // Damaged entries must not lead to another segment.
        if u64::from(value.position.bits() & !LARGE) >= self.units_per_segment {
            return None;
        }
        let (segment, numbered) = self.numbers.segment(value.number)?;
        let lives = self.store.table().sequence(segment) == numbered.generation;
        lives.then_some(Place {
            segment,
            generation: numbered.generation,
            position: value.position,
        })
    }

    /// Returns the value for a place; `None` if its generation has no number.
    pub(super) fn value_of(&self, place: Place) -> Option<u64> {
        let numbered = self.numbers.of_segment(place.segment)?;
        let value = Value {
            number: numbered.number,
            position: place.position,
        };
        (numbered.generation == place.generation).then(|| value.encode())
    }

    /// Returns the value for a place, whose generation gets a number if it has none; `None` if no number is left.
    pub(super) fn value_for(&self, place: Place) -> Option<u64> {
        let forgotten = |items: u32| {
            self.index_use.objects.add(u64::from(items).wrapping_neg());
        };
        loop {
            match self
                .numbers
                .give(place.segment, place.generation, forgotten)
            {
                Given::Number(_) => return self.value_of(place),
                // Values contain no turn, so nothing needs to be swept.
                Given::Sweep => self.numbers.swept(&self.numbers.sweep_begins()),
                Given::None => return None,
            }
        }
    }

    /// Adds `by` to the item count of a generation of a segment.
    pub(super) fn count(&self, segment: SegmentId, generation: u64, by: i32) {
        if self.numbers.count(segment, generation, by) {
            self.index_use.objects.add(i64::from(by) as u64);
        }
    }

    /// Counts out the item of a value that the index has dropped.
    pub(super) fn count_out(&self, bits: u64) {
        if let Some(place) = self.place(bits) {
            self.count(place.segment, place.generation, -1);
        }
    }
}
