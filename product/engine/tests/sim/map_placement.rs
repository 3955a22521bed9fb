//! The smallest placement: a plain map that cannot locate displaced items. It answers Perhaps for every key and
//! leaves displaced copies to KEY DEAD records, and so tests the mechanisms that placements with such indexes rely on. It may
//! survive restarts: then its section is the map.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowstone_engine::config::ConfigError;
use flowstone_engine::format::checkpoint::Section;
use flowstone_engine::format::journal::kept_hash;
use flowstone_engine::format::location::Place;
use flowstone_engine::format::segment::{Position, SegmentId};
use flowstone_engine::placement::{
    Batch, Counts, DeadCopies, Description, Displaced, Found, IndexRoom, IndexSizes, Inserted,
    Located, Look, Parts, Placement, PlacementFuture, PlacementKind, Probe, Restored, read_copy,
};
use flowstone_engine::reclaim::{Entered, Entry, IndexUse, Named, Resident, Residents};
use flowstone_engine::store::{Patience, Priority, ReadError, SegmentRecord, SegmentStore};
use flowstone_engine::{Key, KeyHash, OpenError};
use parking_lot::Mutex;

/// Makes [`MapPlacement`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapKind {
    /// Most items of the map.
    pub(crate) most: usize,
    /// Whether a start finds the map as it was at the last checkpoint.
    pub(crate) survives: bool,
}

impl MapKind {
    /// With space for all items, and rebuilt by each start.
    pub(crate) const REBUILT: Self = Self {
        most: usize::MAX,
        survives: false,
    };

    /// With space for all items, and part of checkpoints.
    pub(crate) const SURVIVING: Self = Self {
        most: usize::MAX,
        survives: true,
    };
}

/// Place of an item by key hash, without the bits that the journal does not keep.
type Map = HashMap<u64, Place>;

struct MapPlacement {
    map: Mutex<Map>,
    most: usize,
    survives: bool,
    store: Arc<SegmentStore>,
    index_use: Arc<IndexUse>,
}

impl PlacementKind for MapKind {
    fn describe(&self) -> Description {
        Description {
            dead_copies: match self.survives {
                true => DeadCopies::BySection,
                false => DeadCopies::ByVersion,
            },
            ..Description::new("map")
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        Ok(IndexSizes::in_memory(room))
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        let section = parts.section.filter(|_| self.survives);
        let map: Map = section.as_ref().map_or_else(Map::new, read);
        let objects = map.len() as u64;
        parts.index_use.objects.store(objects, Ordering::Relaxed);
        Ok(Arc::new(MapPlacement {
            map: Mutex::new(map),
            most: self.most,
            survives: self.survives,
            store: parts.store,
            index_use: parts.index_use,
        }))
    }
}

/// Bytes of an entry of the section.
const ENTRY_BYTES: usize = 24;

fn write(map: &Map) -> Section {
    let entry = |(hash, place): (&u64, &Place)| {
        let (segment, position) = (place.segment.0, place.position.bits());
        let small = u64::from(segment) << 32 | u64::from(position);
        [*hash, place.generation, small].map(u64::to_le_bytes)
    };
    Section {
        version: 1,
        bytes: map.iter().flat_map(entry).flatten().collect(),
    }
}

fn read(section: &Section) -> Map {
    let entry = |bytes: &[u8]| {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let place = Place {
            segment: SegmentId((word(16) >> 32) as u32),
            generation: word(8),
            position: Position::from_bits(word(16) as u32),
        };
        (word(0), place)
    };
    section.bytes.chunks_exact(ENTRY_BYTES).map(entry).collect()
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
    fn probe(&self, _hash: KeyHash, _look: Look) -> Probe {
        Probe::Perhaps
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        _counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        let locate = async move || {
            let place = self.map.lock().get(&kept(key.hash())).copied();
            Ok(place.map(|place| Located {
                place,
                fetched: false,
            }))
        };
        let look = || Probe::Perhaps;
        Box::pin(read_copy(&self.store, key, probe, patience, look, locate))
    }

    fn insert(&self, hash: KeyHash, _version: u64, place: Place, _clock: u8) -> Inserted {
        self.change(|map| {
            if map.len() == self.most && !map.contains_key(&kept(hash)) {
                return Inserted::Full(Displaced::Unknown);
            }
            map.insert(kept(hash), place);
            Inserted::Yes(Displaced::Unknown)
        })
    }

    fn invalidate(&self, hash: KeyHash, _version: u64) -> Displaced {
        self.change(|map| map.remove(&kept(hash)));
        Displaced::Unknown
    }

    fn section(
        &self,
        _living: &[SegmentRecord],
        _last: bool,
    ) -> PlacementFuture<'_, Option<Section>> {
        let section = if self.survives {
            write(&self.map.lock())
        } else {
            Section::default()
        };
        Box::pin(std::future::ready(Some(section)))
    }

    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored)) {
        let Batch { items, beaten, .. } = batch;
        for (number, item) in items.iter().enumerate() {
            let named = self.map.lock().get(&kept(item.hash)).copied();
            let is_rival = |rival: &Place| beaten != Some(*rival) && *rival != item.place;
            let rival = named.filter(is_rival);
            if named.is_none() && self.map.lock().len() >= self.most {
                each(number, Restored::Refused);
                continue;
            }
            if rival.is_none() {
                self.change(|map| map.insert(kept(item.hash), item.place));
            }
            let taken = Restored::Taken(Displaced::Unknown);
            each(number, rival.map_or(taken, Restored::Contested));
        }
    }
}

fn kept(hash: KeyHash) -> u64 {
    kept_hash(hash.0)
}

impl Residents for MapPlacement {
    fn entry(&self, item: &Resident) -> Entered {
        match self.map.lock().get(&kept(item.hash)) {
            Some(place) if *place == item.place => Entered::Yes(Entry::OWN),
            _ => Entered::No,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        self.change(|map| match map.get(&kept(item.hash)) {
            // The map records no reads, so that all items count as read.
            Some(place) if *place == item.place && keep(Priority::of_read(true)) => Named::Kept,
            Some(place) if *place == item.place => {
                map.remove(&kept(item.hash));
                Named::Removed
            }
            _ => Named::No,
        })
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        self.change(|map| {
            let before = map.len();
            map.retain(|_, place| {
                (place.segment, place.generation) != (record.segment, record.sequence)
            });
            (before - map.len()) as u64
        })
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        self.change(|map| {
            let named = map.get_mut(&kept(item.hash));
            let place = named.filter(|place| **place == item.place);
            place.map(|place| *place = to).is_some()
        })
    }
}
