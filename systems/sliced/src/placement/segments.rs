//! What a sliced index says, and the segments that it speaks of: a generation's number and the position in it.

use std::sync::Arc;

use engine::Count as _;
use engine::format::location::Place;
use engine::format::segment::{LARGE, SegmentId};
use engine::format::sliced::Value;
use engine::placement::on_flash::{Given, Numbers};
use engine::reclaim::IndexUse;
use engine::store::SegmentStore;

/// What the index knows of segments.
pub(super) struct SlicedSegments {
    pub(super) numbers: Numbers,
    pub(super) units_per_segment: u64,
    pub(super) store: Arc<SegmentStore>,
    pub(super) index_use: Arc<IndexUse>,
}

impl SlicedSegments {
    /// Where the item lies that the index says; nothing where its segment has gone.
    pub(super) fn place(&self, bits: u64) -> Option<Place> {
        let value = Value::decode(bits)?;
        // Damaged entries must not name another segment.
        if u64::from(value.position.bits() & !LARGE) >= self.units_per_segment {
            return None;
        }
        let (segment, numbered) = self.numbers.segment(value.number)?;
        let lives = self.store.sequence(segment) == numbered.generation;
        lives.then_some(Place {
            segment,
            generation: numbered.generation,
            position: value.position,
        })
    }

    /// What the index says of a place whose generation has a number.
    pub(super) fn value_of(&self, place: Place) -> Option<u64> {
        let numbered = self.numbers.of_segment(place.segment)?;
        let value = Value {
            number: numbered.number,
            position: place.position,
        };
        (numbered.generation == place.generation).then(|| value.encode())
    }

    /// What the index says of any place, whose segment gets a number if it has none; nothing where there are no more numbers.
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
                // No entry has a turn.
                Given::Sweep => self.numbers.swept(&self.numbers.sweep_begins()),
                Given::None => return None,
            }
        }
    }

    /// Counts items in and out of a generation of a segment.
    pub(super) fn count(&self, segment: SegmentId, generation: u64, by: i32) {
        if self.numbers.count(segment, generation, by) {
            self.index_use.objects.add(i64::from(by) as u64);
        }
    }

    /// A value is no longer found.
    pub(super) fn count_out(&self, bits: u64) {
        if let Some(place) = self.place(bits) {
            self.count(place.segment, place.generation, -1);
        }
    }
}
