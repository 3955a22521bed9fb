//! The smallest placement: a plain map that cannot locate what it displaces. It answers Perhaps for every key and
//! leaves displaced copies to KEY DEAD records, so that what the placements with such indexes rely on is tried.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowstone_engine::format::location::Place;
use flowstone_engine::placement::{
    Displaced, Found, Inserted, Parts, Placement, PlacementFuture, PlacementKind, Probe, Restored,
    Token,
};
use flowstone_engine::reclaim::{IndexUse, Named, Resident, Residents};
use flowstone_engine::store::{Layout, Patience, ReadError, SegmentStore, SlabClasses, Streams};
use flowstone_engine::{Key, KeyHash, OpenError};
use parking_lot::Mutex;

/// Makes [`MapPlacement`]s that have space for this many items.
pub(crate) struct MapKind(pub(crate) usize);

/// By key hash, where the item lies.
type Map = HashMap<KeyHash, Place>;

struct MapPlacement {
    map: Mutex<Map>,
    most: usize,
    store: Arc<SegmentStore>,
    index_use: Arc<IndexUse>,
}

impl PlacementKind for MapKind {
    fn name(&self) -> &'static str {
        "map"
    }

    fn streams(&self, segment_bytes: u32) -> Arc<dyn Streams> {
        Arc::new(SlabClasses::new(Layout::Packed, segment_bytes))
    }

    fn locates_displaced(&self) -> bool {
        false
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        Ok(Arc::new(MapPlacement {
            map: Mutex::default(),
            most: self.0,
            store: parts.store,
            index_use: parts.index_use,
        }))
    }
}

impl MapPlacement {
    fn change<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        let mut map = self.map.lock();
        let changed = change(&mut map);
        self.index_use
            .objects
            .store(map.len() as u64, Ordering::Relaxed);
        changed
    }
}

impl Placement for MapPlacement {
    fn probe(&self, _hash: KeyHash) -> Probe {
        Probe::Perhaps
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        _probe: Probe,
        patience: Patience,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        Box::pin(async move {
            let named = || self.map.lock().get(&key.hash()).copied();
            let mut last = None;
            while let Some(place) = named().filter(|place| last != Some(*place)) {
                last = Some(place);
                let memory = self
                    .store
                    .read_memory(place.segment, place.position, patience);
                let memory = memory.await?;
                // Otherwise it has been reclaimed: it has moved, or it is gone.
                if let Some(pin) = self.store.pin(place.segment, place.generation) {
                    let item = self.store.read_into(&pin, place.position, memory).await?;
                    if item.item().key == key.bytes() {
                        return Ok(Found::Item(item));
                    }
                }
            }
            Ok(Found::Absent)
        })
    }

    fn insert(&self, hash: KeyHash, _version: u64, place: Place) -> Inserted {
        self.change(|map| {
            if map.len() == self.most && !map.contains_key(&hash) {
                return Inserted::Full(Displaced::Unknown);
            }
            map.insert(hash, place);
            Inserted::Yes(Displaced::Unknown)
        })
    }

    fn invalidate(&self, hash: KeyHash, _version: u64) -> Displaced {
        self.change(|map| map.remove(&hash));
        Displaced::Unknown
    }

    fn forget(&self, hash: KeyHash, _token: Token) -> Displaced {
        self.invalidate(hash, 0)
    }

    fn restore(
        &self,
        items: &[Resident],
        beaten: Option<Place>,
        each: &mut dyn FnMut(usize, Restored),
    ) {
        for (number, item) in items.iter().enumerate() {
            let named = self.map.lock().get(&item.hash).copied();
            let rival = named.filter(|rival| beaten != Some(*rival));
            if named.is_none() && self.map.lock().len() >= self.most {
                each(number, Restored::Refused);
                continue;
            }
            if rival.is_none() {
                self.change(|map| map.insert(item.hash, item.place));
            }
            let taken = Restored::Taken(Displaced::Unknown);
            each(number, rival.map_or(taken, Restored::Contested));
        }
    }
}

impl Residents for MapPlacement {
    fn check(&self, item: &Resident, keep: &mut dyn FnMut(bool) -> bool) -> Named {
        self.change(|map| match map.get(&item.hash) {
            // Nobody remembers what has been read: all of it counts as such.
            Some(place) if *place == item.place && keep(true) => Named::Kept,
            Some(place) if *place == item.place => {
                map.remove(&item.hash);
                Named::Removed
            }
            _ => Named::No,
        })
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        self.change(|map| {
            let named = map.get_mut(&item.hash);
            let place = named.filter(|place| **place == item.place);
            place.map(|place| *place = to).is_some()
        })
    }
}
