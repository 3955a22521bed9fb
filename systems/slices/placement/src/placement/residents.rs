//! Reclaim's access to the index entries of a victim's items.

use super::Sliced;
use super::key_of;
use engine::Count as _;
use engine::format::location::Place;
use engine::reclaim::{Entered, Entry, Named, Resident, Residents};
use engine::store::{Priority, SegmentRecord};
use slices::Known;

impl Residents for Sliced {
    fn entry(&self, item: &Resident) -> Entered {
        match self.named(item.hash) {
            Some(Known::Value(named)) if Some(named) == self.segments.value_of(item.place) => {
                Entered::Yes(Entry::OWN)
            }
            Some(_) => Entered::No,
            None => Entered::Perhaps,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        let Some(value) = self.segments.value_of(item.place) else {
            return Named::No;
        };
        if self.named(item.hash) != Some(Known::Value(value)) {
            return Named::No;
        }
        // The index does not record reads.
        if keep(Priority::of_read(false)) {
            return Named::Kept;
        }
        if !self.index().replace_if(key_of(item.hash), value, None) {
            return Named::No;
        }
        let place = item.place;
        self.segments.count(place.segment, place.generation, -1);
        Named::Removed
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let items = self
            .segments
            .numbers
            .forget(record.segment, record.sequence);
        self.index_use.objects.add(u64::from(items).wrapping_neg());
        u64::from(items)
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        let (Some(old), Some(new)) = (
            self.segments.value_of(item.place),
            self.segments.value_for(to),
        ) else {
            return false;
        };
        let is_moved = self.index().replace_if(key_of(item.hash), old, Some(new));
        if is_moved {
            let place = item.place;
            self.segments.count(place.segment, place.generation, -1);
            self.segments.count(to.segment, to.generation, 1);
        }
        is_moved
    }
}
