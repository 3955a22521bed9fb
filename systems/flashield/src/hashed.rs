//! `hashed`: a compact index in memory, over segments in which the hash of a key gives the position of its item (Flashield,
//! NSDI '19, sections 3.4, 4.1 and 4.3).
//!
//! ```text
//!   GET ──▶ CompactTable of the partition: entries in the 16 slots of the key        segment, function, CLOCK: about 29 bits
//!             └─▶ Members: which of these segments may have the key                  9.65 bits a key
//!                   └─▶ read at function(key) in the segment: is it the key's?       one read, rarely two
//! ```
//!
//! An entry has no key, with two consequences. An update does not know the copies that it outdates until flash has been read
//! ([`verify`]); until then the key is listed as dead ([`dead`]). And an entry of one key may lead to a copy of another key,
//! if the two keys share a slot and their copies lie at the same function of the same segment. So the entry of a live copy
//! may lead to a dead one. The dead copy then stays listed as long as the entry exists, and the entry stays.
//!
//! Invariant: every copy of a key in a settled segment is the latest one, or its key is listed as dead, or no entry in the
//! slots of the key names its location. No entries are added for a settled segment, so the invariant lasts.
//!
//! Failure: if all slots of a new key are taken, its entry displaces another one, a ghost if there is one. The item of the
//! displaced entry is a miss from then on, also after a start.

mod core;
mod dead;
mod hot;
mod members;
mod restore;
mod restoring;
mod search;
mod settings;
mod shard;
mod spot;
mod stats;
mod verify;

pub use settings::HashedSettings;

use std::sync::Arc;

use self::core::{Hashed, table_config};
use dead::CopyRank;
use engine::ConfigError;
use engine::OpenError;
use engine::format::location::Place;
use engine::placement::{
    BackgroundTask, Batch, Counts, DeadCopies, Description, Displaced, Event, Found, IndexRoom,
    IndexSizes, Inserted, Look, Parts, Placement, PlacementFuture, PlacementKind, Probe, Restored,
    StreamPlan, Unlocated,
};
use engine::reclaim::{Entered, Entry, Named, Resident, Residents};
use engine::store::{
    AppendItem, Patience, Priority, ReadError, SegmentRecord, Source, StreamLayout, Streams,
};
use engine::{Count as _, NamedCounts as _};
use engine::{Key, KeyHash};
use verify::Verifier;

/// Bytes of an item on flash by which an image is laid out: those of Flashield's trace (section 3.4).
const ITEM_BYTES: u64 = 257;
/// Least bytes of memory for each item that an index is laid out for. Its tables then take at most a quarter of the memory.
const MEMORY_PER_ITEM: u64 = 16;
/// Approximate bytes of memory for an item in the index.
const INDEX_ITEM_BYTES: u64 = 4;
/// Load, in percent, of a table that is filled with the items that it is laid out for.
const LOAD_PERCENT: u64 = 94;
/// Number of segments by which entries are laid out if the flash is not known.
const MOST_SEGMENTS: u32 = 1 << 25;
/// Open segments for new items. An item goes to the oldest that has room; `docs/papers/reproduction.md` tells how full they
/// get.
const OPEN_SEGMENTS: usize = 4;
/// Most bytes of memory for an item in the compact index, with its filters.
const MOST_ITEM_BYTES: f64 = 5.0;
/// Most items placed between two checks of the journal's space. Each may displace an entry, which must be recorded; so few
/// cannot use up the journal's reserve.
const RECORDED_AT_ONCE: usize = 16;
/// Slots swept while a lock is held.
const SWEPT_SLOTS: usize = 1 << 14;

impl PlacementKind for HashedSettings {
    fn describe(&self) -> Description {
        Description {
            streams: StreamPlan::Own(Arc::new(OneOfSeveral)),
            dead_copies: DeadCopies::LocatedLater,
            places_larger_first: true,
            placed_at_once: RECORDED_AT_ONCE,
            most_item_bytes: MOST_ITEM_BYTES,
            ..Description::new("hashed")
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        if !(1..=100).contains(&self.tuned(&room.settings).hot_percent) {
            let (name, range) = ("hot_percent", "1 to 100");
            return Err(ConfigError::Range { name, range });
        }
        let expected_items = room.items(ITEM_BYTES, MEMORY_PER_ITEM);
        let slots = slots_for(expected_items);
        let config = table_config(slots, MOST_SEGMENTS, room.partition_bits);
        Ok(IndexSizes {
            expected_items,
            least_bytes: config.memory_bytes() << room.partition_bits,
            item_bytes: INDEX_ITEM_BYTES,
            ..IndexSizes::in_memory(room)
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        let slots = slots_for(parts.expected_items);
        let settings = self.tuned(&parts.settings);
        let clock = Arc::clone(&parts.clock);
        let hashed = Hashed::new(&settings, slots, parts)
            .map_err(|error| OpenError::Index(error.to_string()))?;
        let hashed = Arc::new(hashed);
        if settings.one_clock {
            let index = Arc::downgrade(&hashed);
            clock.share(move |hash, memory| {
                let index = index.upgrade();
                index.map_or(0, |index| index.move_one_hand(hash, memory))
            });
        }
        Ok(hashed)
    }
}

/// Returns the slots for `items` items.
fn slots_for(items: u64) -> u64 {
    (items.saturating_mul(100) / LOAD_PERCENT).max(1)
}

/// One stream of items with several open segments.
struct OneOfSeveral;

impl Streams for OneOfSeveral {
    fn layouts(&self) -> Box<[StreamLayout]> {
        [StreamLayout::Hashed; OPEN_SEGMENTS].into()
    }

    fn stream_of(&self, _item: &AppendItem<'_>, _source: Source) -> usize {
        0
    }
}

impl Placement for Hashed {
    fn probe(&self, hash: KeyHash, look: Look) -> Probe {
        if look == Look::Found {
            self.change(hash, |shard| {
                // About one entry in a hundred belongs to another key.
                for candidate in self.candidates(shard, hash) {
                    self.touch(shard, &candidate);
                }
            });
            return Probe::Perhaps;
        }
        runtime::work::count(runtime::work::Work::IndexStep, 1);
        if self.has_candidates(&self.shard(hash).lock(), hash) {
            Probe::Perhaps
        } else {
            Probe::Absent
        }
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        Box::pin(async move {
            match probe {
                Probe::Absent => Ok(Found::Absent),
                Probe::Perhaps | Probe::At(_) => search::find(self, key, patience, counts).await,
            }
        })
    }

    fn insert(&self, hash: KeyHash, version: u64, place: Place, clock: u8) -> Inserted {
        let Some(spot) = self.spot_of(hash, place) else {
            return Inserted::Full(self.invalidate(hash, version + 1));
        };
        let may_grow = self.index_use.headroom() > 0;
        let clock = match self.hot.has_one_clock {
            true => clock,
            false => shard::CLOCK_WRITTEN,
        };
        let (inserted, is_first) = self.change(hash, |shard| {
            let displaced = self.outdate(shard, hash, spot.rank(version));
            if may_grow && self.put(shard, hash, shard::written(spot.own(), clock)) {
                let is_first = self
                    .change_members(|members| members.add(spot.segment, spot.generation, hash.0));
                if !self.hot.has_one_clock {
                    self.hot.keep_ghosts(shard);
                }
                return (Inserted::Yes(displaced), is_first);
            }
            self.leave_out(shard, hash, &spot, version);
            (Inserted::Full(Displaced::Unknown), false)
        });
        if is_first {
            self.note_fill();
        }
        inserted
    }

    fn invalidate(&self, hash: KeyHash, version: u64) -> Displaced {
        self.change(hash, |shard| {
            self.outdate(shard, hash, CopyRank::least_of(version))
        })
    }

    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored)) {
        restore::begin(self);
        for (number, item) in batch.items.iter().enumerate() {
            each(number, restore::restore_one(self, item, batch));
        }
    }

    fn locate(&self, hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(search::find_latest(self, hash))
    }

    fn note(&self, event: Event<'_>) {
        match event {
            Event::SegmentRestored {
                segment,
                dead,
                expired,
            } => restore::close_segment(self, segment, dead, expired),
            Event::Recovered => restore::end(self),
            Event::Placed { .. }
            | Event::RunFound(_)
            | Event::DeadKeysWanted(_)
            | Event::CheckpointEnded(_) => {}
        }
    }

    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        Verifier::tasks(&self)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let held = &self.held;
        visit("index_entries", self.index_use.objects.get());
        visit("index_ghosts", held.ghosts.get());
        self.counters.read().each(visit);
        visit("index_entries_lost", self.entries_lost());
        visit("index_dead_keys", held.dead_keys.get());
        visit("index_table_bytes", held.table_bytes.get());
        visit("index_filter_bytes", held.filter_bytes.get());
    }
}

impl Residents for Hashed {
    fn entry(&self, item: &Resident) -> Entered {
        let (hash, version) = (item.hash, item.version);
        let Some(spot) = self.spot_of(hash, item.place) else {
            return Entered::No;
        };
        let shard = self.shard(hash).lock();
        match self.naming(&shard, hash, &spot) {
            Some(naming) if !shard.dead.kills(hash.0, spot.rank(version)) => Entered::Yes(Entry {
                was_read: naming.clock > shard::CLOCK_WRITTEN,
                clock: if self.hot.has_one_clock {
                    naming.clock
                } else {
                    0
                },
                // If only an entry with another function leads there, its mark is not the item's.
                is_own: naming.own > 0,
            }),
            _ => Entered::No,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        let (hash, version) = (item.hash, item.version);
        let Some(spot) = self.spot_of(hash, item.place) else {
            return Named::No;
        };
        self.change(hash, |shard| {
            let Some(naming) = self.naming(shard, hash, &spot) else {
                return Named::No;
            };
            if shard.dead.kills(hash.0, spot.rank(version)) {
                self.remove_dead(shard, hash, &spot, version);
                return Named::No;
            }
            if keep(Priority::of_read(naming.is_hot)) {
                return Named::Kept;
            }
            let others = shard.remove_all(hash.0, &spot) as u64 - 1;
            self.counters.removed_shared.add(others);
            Named::Removed
        })
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        let (hash, version) = (item.hash, item.version);
        let from = self.spot_of(hash, item.place);
        let Some(to) = self.spot_of(hash, to) else {
            return false;
        };
        self.change(hash, |shard| {
            let naming = from.and_then(|from| {
                if shard.dead.kills(hash.0, from.rank(version)) {
                    self.remove_dead(shard, hash, &from, version);
                    return None;
                }
                let naming = self.naming(shard, hash, &from);
                if naming.is_none() {
                    // Another item shared the entry, and took it along when it was moved.
                    self.counters.removed_shared.add(1);
                }
                naming
            });
            let Some(naming) = naming else {
                self.leave_out(shard, hash, &to, version);
                self.record_dead_below(hash, version + 1);
                return false;
            };
            self.change_members(|members| members.add(to.segment, to.generation, hash.0));
            shard.replace(naming, to.own());
            true
        })
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let mut forgotten = 0;
        for shard in &self.shards {
            let slots = shard.lock().table.slots();
            for first in (0..slots).step_by(SWEPT_SLOTS) {
                let swept = first..slots.min(first + SWEPT_SLOTS);
                forgotten += self.change_shard(shard, |shard| {
                    let before = shard.table.len();
                    let segment = record.segment;
                    shard.table.sweep_segment(segment, swept, |_, _| false);
                    (before - shard.table.len()) as u64
                });
            }
        }
        forgotten
    }
}
