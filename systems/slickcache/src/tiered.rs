//! `tiered`: an index with a small part in memory and the rest on flash (SlickCache, `SoCC` '18).
//!
//! [`Cascade`] is the index itself; this module provides its segments. An entry in memory names segment and position, and one
//! of three turns for the segment's generation. An entry on flash names the generation by a number. Reclaim of a segment need
//! not remove its entries from the index (zero-I/O demapping, section 4.3).
//!
//! Copies in segments cannot be located without a read of flash, so displaced copies are journalled by key. The index is part
//! of each checkpoint (section 4.4): `docs/papers/cascade.md`.

use std::sync::Arc;

use crate::cascade::{Cascade, CascadeConfig, Footprint, Hot, OutOfRange, Searched, Segments};
use device::{Disk, IoFuture, Region, Setting};
use runtime::work::{self, Work};

use crate::encoding::cascade::VERSION;
use engine::OpenError;
use engine::format::checkpoint::Section;
use engine::format::location::{LocationCodec, Place};
use engine::format::segment::{LARGE, Position, SegmentId};
use engine::placement::{
    BackgroundTask, Batch, Counts, DeadCopies, Description, Displaced, Event, Found, IndexRoom,
    IndexSizes, Inserted, Located, Look, Parts, Placement, PlacementFuture, PlacementKind,
    Pressure, Probe, Restored, Space, StreamPlan, Unlocated, read_copy,
};
use engine::reclaim::{Entered, Entry, IndexUse, Named, Resident, Residents};
use engine::store::{Layout, Patience, Priority, ReadError, SegmentRecord, SegmentStore};
use engine::{ConfigError, IndexSettings};
use engine::{Count as _, NamedCounts as _};
use engine::{Key, KeyHash};
use on_flash::IndexSyncs;
use on_flash::RestoredKeys;
use on_flash::{Given, Numbered, Numbers, TURN_BITS};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Bytes of flash for each item that an image is laid out for.
const ITEM_BYTES: u64 = 300;
/// Least bytes of memory for each item. With fewer, the filters would exclude next to no key.
const MEMORY_PER_ITEM: u64 = 2;
/// Most bytes of memory for each item in the cascade, with its filters.
const MOST_ITEM_BYTES: f64 = 3.5;
/// Share of a full index's memory, as a divisor, that must be available. With less, the index could name next to no item.
const LEAST_ROOM_SHARE: u64 = 8;
/// Largest share of all mappings, as a divisor, that one compaction takes: they are in memory twice during the compaction. So
/// the blocks of active lists reach the paper's length at about 130 million mappings.
const COMPACTED_SHARE: u64 = 256;
/// Entries that a compaction takes for each page of a block: entries of a page times blocks of an active list.
const COMPACTED_PAGE_ENTRIES: u64 = 254 * 64;
const MOST_ACTIVE_PAGES: u64 = 32;

/// Settings of the `tiered` placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TieredSettings {
    /// Layout of the items in segments written from now on.
    pub layout: Layout,
    /// Segments opened since the last checkpoint at which the next one is written (SlickCache, section 4.4).
    pub checkpoint_segments: u32,
    /// Settings of the index, except capacity and code bits, which follow from the image.
    pub cascade: CascadeConfig,
}

impl PlacementKind for TieredSettings {
    fn describe(&self) -> Description {
        Description {
            streams: StreamPlan::Classes(self.layout),
            dead_copies: DeadCopies::BySection,
            demaps_by_itself: true,
            drops_pages: true,
            most_item_bytes: MOST_ITEM_BYTES,
            ..Description::new("tiered")
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        let tiered = self.tuned(&room.settings);
        let checked = tiered.cascade.check();
        checked.map_err(|OutOfRange { name, range }| ConfigError::Range { name, range })?;
        let expected_items = room.items(ITEM_BYTES, MEMORY_PER_ITEM);
        let region = tiered.cascade_of(room.image_bytes / ITEM_BYTES, 1);
        Ok(IndexSizes {
            region_bytes: Footprint::of(&region).region_bytes(),
            working_bytes: Footprint::of(&tiered.cascade_of(expected_items, 1)).working_bytes(),
            expected_items,
            ..IndexSizes::in_memory(room)
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        let settings = self.tuned(&parts.settings);
        Ok(Arc::new(Tiered::new(&settings, parts)?))
    }
}

impl TieredSettings {
    /// Returns SlickCache's settings, with 16 % of the mappings in memory (a tenth in the paper) and a checkpoint for every
    /// 256 segments.
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            checkpoint_segments: 256,
            cascade: CascadeConfig::default(),
        }
    }

    fn tuned(&self, settings: &IndexSettings) -> Self {
        let mut tuned = *self;
        let cascade = &mut tuned.cascade;
        cascade.hot_percent = settings.hot_percent.unwrap_or(cascade.hot_percent);
        cascade.filter_bits = settings.filter_bits.unwrap_or(cascade.filter_bits);
        let segments = settings.checkpoint_segments;
        tuned.checkpoint_segments = segments.unwrap_or(tuned.checkpoint_segments);
        tuned
    }

    fn cascade_of(&self, capacity: u64, code_bits: u32) -> CascadeConfig {
        let active_pages = capacity / COMPACTED_SHARE / COMPACTED_PAGE_ENTRIES;
        let active_pages = active_pages.clamp(1, MOST_ACTIVE_PAGES) as u32;
        let mut cascade = CascadeConfig {
            capacity,
            code_bits,
            ..self.cascade
        };
        // A size in the settings takes precedence.
        cascade.sizes.active_pages.get_or_insert(active_pages);
        cascade
    }
}

/// A [`Cascade`] over the segments of a store.
struct Tiered {
    store: Arc<SegmentStore>,
    cascade: Cascade,
    segments: Arc<TieredSegments>,
    index_use: Arc<IndexUse>,
    /// Section of the last run, until it is loaded.
    section: parking_lot::Mutex<Option<Section>>,
    /// Keys restored in this run.
    restored: RestoredKeys,
    /// Segments opened since the last checkpoint at which another one is wanted; the numbers given at that checkpoint and at
    /// the last section.
    checkpoint_segments: u32,
    numbered_at_checkpoint: AtomicU32,
    numbered_at_section: AtomicU32,
    /// Bytes of Tier 1 that have been accounted for.
    hot_bytes: AtomicU64,
}

/// Estimates how many items the index can name in `room` bytes, given that `capacity` items need `full` bytes.
fn named_in(room: u64, full: u64, capacity: u64) -> u64 {
    let named = u128::from(capacity) * u128::from(room) / u128::from(full.max(1));
    u64::try_from(named)
        .unwrap_or(u64::MAX)
        .clamp(1, capacity.max(1))
}

/// The segments, as the cascade sees them.
struct TieredSegments {
    numbers: Numbers,
    codec: LocationCodec,
    store: Arc<SegmentStore>,
    /// Whether the section is being loaded: the store does not know the segments of the last run yet.
    is_loading: AtomicBool,
    syncs: IndexSyncs,
}

impl TieredSegments {
    fn pack(&self, segment: SegmentId, turn: u8, position: Position) -> u64 {
        u64::from(turn) << self.codec.bits() | self.codec.encode(segment, position)
    }

    /// Returns the generation and the position that a place code names; `None` if the generation is gone.
    fn unpack(&self, code: u64) -> Option<(SegmentId, Numbered, Position)> {
        let turn = code >> self.codec.bits();
        let (segment, position) = self.codec.decode(code & ((1 << self.codec.bits()) - 1));
        let numbered = self.numbers.of_segment(segment)?;
        let is_there = u64::from(numbered.turn) == turn && self.lives(segment, &numbered);
        is_there.then_some((segment, numbered, position))
    }

    /// Returns whether a numbered generation is still the segment's. A released segment has no generation, or another one.
    fn lives(&self, segment: SegmentId, numbered: &Numbered) -> bool {
        self.store.table().sequence(segment) == numbered.generation
            || self.is_loading.load(Ordering::Relaxed)
    }

    fn place(&self, code: u64) -> Option<Place> {
        let (segment, numbered, position) = self.unpack(code)?;
        Some(Place {
            segment,
            generation: numbered.generation,
            position,
        })
    }

    /// Returns the code of a place; `None` if its generation has no number.
    fn code_of(&self, place: Place) -> Option<u64> {
        let numbered = self.numbers.of_segment(place.segment)?;
        let is_it = numbered.generation == place.generation;
        is_it.then(|| self.pack(place.segment, numbered.turn, place.position))
    }
}

impl Segments for TieredSegments {
    fn named_by(&self, code: u64) -> Option<(u32, Position)> {
        let (_, numbered, position) = self.unpack(code)?;
        Some((numbered.number, position))
    }

    fn code(&self, number: u32, position: Position) -> Option<u64> {
        // Damaged entries must not lead to another segment.
        if u64::from(position.bits() & !LARGE) >= self.codec.units_per_segment {
            return None;
        }
        let (segment, numbered) = self.numbers.segment(number)?;
        let lives = self.lives(segment, &numbered);
        lives.then(|| self.pack(segment, numbered.turn, position))
    }

    fn horizon(&self) -> u32 {
        self.numbers.horizon()
    }

    fn sync<'a>(&'a self, region: &'a Region) -> IoFuture<'a, ()> {
        Box::pin(self.syncs.sync(region))
    }

    fn failed_syncs(&self) -> u64 {
        self.syncs.failed()
    }
}

impl Tiered {
    fn new(settings: &TieredSettings, parts: Parts) -> Result<Self, OpenError> {
        let index = |error: &dyn std::fmt::Display| OpenError::Index(error.to_string());
        let region = parts.index_region.ok_or_else(|| {
            index(&format!(
                "it needs a file or a drive, and this is open flash: give it a device of its own ({})",
                Setting::IndexFlash
            ))
        })?;
        let segments = Arc::new(TieredSegments {
            numbers: Numbers::new(parts.store.table().segments()),
            codec: parts.codec,
            store: Arc::clone(&parts.store),
            is_loading: AtomicBool::new(false),
            syncs: IndexSyncs::new(&parts.store, parts.index_is_apart),
        });
        let asked = settings.cascade_of(parts.expected_items, parts.codec.bits() + TURN_BITS);
        let wanted = Footprint::within_region(asked, region.len_bytes());
        if wanted.hot_percent != asked.hot_percent {
            tracing::warn!(
                asked = asked.hot_percent,
                hot_percent = wanted.hot_percent,
                "the index's part of the flash was laid out for fewer mappings in memory; a new image has space for more"
            );
        }
        let mut config = Footprint::within(wanted, parts.index_use.max_bytes);
        config.discard |= parts.discard;
        let room = parts.index_use.max_bytes;
        let full_bytes = Footprint::of(&config).full_bytes();
        config.spare_bytes = room.saturating_sub(full_bytes);
        if room < full_bytes / LEAST_ROOM_SHARE {
            let missing = (full_bytes - room).div_ceil(1 << 20);
            return Err(index(&format!(
                "{} KiB of memory are left for it: give the process {missing} MiB more ({memory}), or fewer write buffers \
                 ({buffers})",
                room >> 10,
                memory = Setting::Memory,
                buffers = Setting::Buffers
            )));
        }
        let segments_bytes = u64::from(parts.store.table().segments())
            * u64::from(parts.store.table().segment_bytes());
        let named = named_in(room, full_bytes, config.capacity);
        if segments_bytes / named > ITEM_BYTES + ITEM_BYTES / 2 {
            tracing::warn!(
                items = named,
                bytes_an_item = segments_bytes / named,
                "memory does not do for an index of more items: where they are smaller than that, a part of the flash stays \
                 unused; more memory or a smaller largest item makes it larger"
            );
        } else if (config.hot_percent, config.filter_bits)
            != (wanted.hot_percent, wanted.filter_bits)
        {
            tracing::info!(
                hot_percent = config.hot_percent,
                filter_bits = config.filter_bits,
                "the index has fewer mappings and shorter filters in memory than usual, to fit into it"
            );
        }
        let for_cascade = Arc::clone(&segments) as Arc<dyn Segments>;
        let cascade = Cascade::new(
            config,
            region,
            parts.image,
            for_cascade,
            &parts.pool,
            &parts.checkpoint_wanted,
        );
        let cascade = cascade.map_err(|error| index(&error))?;
        let tiered = Self {
            store: parts.store,
            cascade,
            segments,
            restored: RestoredKeys::new(&parts.index_use),
            index_use: parts.index_use,
            section: parking_lot::Mutex::new(parts.section),
            numbered_at_section: AtomicU32::new(0),
            checkpoint_segments: settings.checkpoint_segments,
            numbered_at_checkpoint: AtomicU32::new(0),
            hot_bytes: AtomicU64::new(0u64),
        };
        tiered.account();
        Ok(tiered)
    }

    fn account(&self) {
        let bytes = self.cascade.memory_bytes();
        self.index_use.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Accounts for the memory of Tier 1 after a change, if its size has changed.
    fn account_hot(&self) {
        let bytes = self.cascade.tiers.memory.hot();
        if self.hot_bytes.load(Ordering::Relaxed) != bytes {
            self.hot_bytes.store(bytes, Ordering::Relaxed);
            self.account();
        }
    }

    fn displaced(&self, before: Option<Hot>, may_be_below: impl FnOnce() -> bool) -> Displaced {
        match before {
            // Some tombstones have not been journalled.
            Some(Hot::Dead) => Displaced::Unknown,
            Some(Hot::At(code)) => match self.segments.place(code) {
                Some(place) => {
                    self.count(place.segment, place.generation, -1);
                    Displaced::Known(place)
                }
                None => Displaced::Unknown,
            },
            None if may_be_below() => Displaced::Unknown,
            None => Displaced::None,
        }
    }

    fn count(&self, segment: SegmentId, generation: u64, by: i32) {
        if self.segments.numbers.count(segment, generation, by) {
            self.index_use.objects.add(i64::from(by) as u64);
        }
    }

    /// Returns the code of a place, whose generation gets a number if it has none; `None` if no number is left.
    fn code_for(&self, place: Place) -> Option<u64> {
        let forgotten = |items: u32| {
            self.index_use.objects.add(u64::from(items).wrapping_neg());
        };
        loop {
            match self
                .segments
                .numbers
                .give(place.segment, place.generation, forgotten)
            {
                Given::Number(numbered) => {
                    if place.position.offset() == 0 && self.wants_checkpoint() {
                        self.cascade.flash.request.wanted().notify_all();
                    }
                    return Some(
                        self.segments
                            .pack(place.segment, numbered.turn, place.position),
                    );
                }
                Given::Sweep => self.sweep(),
                Given::None => return None,
            }
        }
    }

    fn sweep(&self) {
        let begun = self.segments.numbers.sweep_begins();
        self.cascade.tiers.sweep();
        self.segments.numbers.swept(&begun);
    }

    /// Makes the index name a place for a key. If `is_sure`, Tier 1 may grow beyond its memory: recovery has waited for the
    /// brake, and cannot give an item back.
    fn put(&self, hash: KeyHash, place: Place, is_sure: bool) -> Inserted {
        work::count(Work::IndexStep, 1);
        let insert = |code, may_grow| self.cascade.tiers.insert(hash.0, code, may_grow);
        let may_grow = self.index_use.headroom() > 0;
        let inserted = self.code_for(place).and_then(|code| {
            // A refusal presses the brake, so that the next writes wait.
            let inserted = insert(code, may_grow).or_else(|full| match is_sure {
                true => insert(code, true),
                false => Err(full),
            });
            inserted.ok()
        });
        self.account_hot();
        match inserted {
            Some(before) => {
                let displaced = self.displaced(before, || true);
                self.count(place.segment, place.generation, 1);
                Inserted::Yes(displaced)
            }
            None => {
                let before = self.cascade.tiers.bury(hash.0);
                Inserted::Full(self.displaced(before, || true))
            }
        }
    }

    fn probe_of(&self, hot: Option<(Hot, bool)>, hash: KeyHash) -> Probe {
        match hot {
            Some((Hot::Dead, _)) => Probe::Absent,
            Some((Hot::At(code), fetched)) => match self.segments.place(code) {
                Some(place) => Probe::At(Located { place, fetched }),
                None => Probe::Absent,
            },
            None if self.cascade.tiers.may_be_below(hash.0) => Probe::Perhaps,
            None => Probe::Absent,
        }
    }

    fn wants_checkpoint(&self) -> bool {
        let at_last = self.numbered_at_checkpoint.load(Ordering::Relaxed);
        let since = self.segments.numbers.given().saturating_sub(at_last);
        since >= self.checkpoint_segments || self.cascade.flash.request.is_made()
    }

    async fn load_section(&self, section: &Section) -> Result<(), OpenError> {
        let index = |error: &dyn std::fmt::Display| OpenError::Index(error.to_string());
        if section.version != VERSION {
            return Err(index(&"it was saved by another version"));
        }
        let loaded = self.cascade.checkpoints.load(&section.bytes).await;
        let loaded = loaded.map_err(|error| index(&error))?;
        let (numbered, next) = &loaded.segments;
        let items = self.segments.numbers.load(numbered, *next);
        let items = items.ok_or_else(|| index(&"its segments make no sense"))?;
        self.segments.is_loading.store(true, Ordering::Relaxed);
        self.cascade.checkpoints.resume(loaded);
        self.segments.is_loading.store(false, Ordering::Relaxed);
        self.index_use.objects.store(items, Ordering::Relaxed);
        let given = self.segments.numbers.given();
        self.numbered_at_checkpoint.store(given, Ordering::Relaxed);
        self.account();
        Ok(())
    }

    /// Searches all tiers for a key.
    async fn search(&self, hash: KeyHash) -> Result<Option<Located>, ReadError> {
        work::count(Work::IndexStep, 1);
        let search = self.cascade.searches.search(hash.0);
        let is_answer = |found: &Searched| !matches!(found, Searched::Unreadable);
        let found = self
            .store
            .reader()
            .wait_for_index(search, is_answer)
            .await?;
        let place = match found {
            Searched::At(code, _) => self.segments.place(code),
            Searched::Absent | Searched::Unreadable => None,
        };
        Ok(place.map(|place| Located {
            place,
            fetched: false,
        }))
    }
}

impl Placement for Tiered {
    fn probe(&self, hash: KeyHash, look: Look) -> Probe {
        work::count(Work::IndexStep, 1);
        let hot = match look {
            Look::Peek => self.cascade.tiers.lookup(hash.0),
            Look::Read | Look::Found => self.cascade.tiers.access(hash.0),
        };
        self.probe_of(hot, hash)
    }

    fn warm(&self, hashes: &mut dyn Iterator<Item = KeyHash>) {
        self.cascade.tiers.warm(&mut hashes.map(|hash| hash.0));
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        _counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        let hash = key.hash();
        let look = move || self.probe_of(self.cascade.tiers.lookup(hash.0), hash);
        let locate = async move || self.search(hash).await;
        Box::pin(read_copy(&self.store, key, probe, patience, look, locate))
    }

    fn insert(&self, hash: KeyHash, _version: u64, place: Place, _clock: u8) -> Inserted {
        self.put(hash, place, false)
    }

    fn invalidate(&self, hash: KeyHash, _version: u64) -> Displaced {
        work::count(Work::IndexStep, 1);
        let before = self.cascade.tiers.bury(hash.0);
        self.account_hot();
        self.displaced(before, || true)
    }

    fn load(&self, outdated: Vec<(KeyHash, u64)>) -> PlacementFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            let section = self.section.lock().take();
            if let Some(section) = section {
                self.load_section(&section).await?;
            }
            for (hash, version) in outdated {
                self.invalidate(hash, version);
            }
            Ok(())
        })
    }

    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored)) {
        let Batch { items, beaten, .. } = batch;
        for (number, item) in items.iter().enumerate() {
            let named = match self.cascade.tiers.lookup(item.hash.0) {
                Some((Hot::At(code), _)) => self.segments.place(code),
                _ => None,
            };
            let put = || self.put(item.hash, item.place, true);
            let restored = self.restored.restore(item, named, beaten, put);
            each(number, restored);
        }
    }

    fn locate(&self, hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(async move {
            match self.cascade.searches.peek(hash.0).await {
                Searched::At(code, _) => Ok(self.segments.place(code)),
                Searched::Absent => Ok(None),
                Searched::Unreadable => Err(Unlocated),
            }
        })
    }

    fn note(&self, event: Event<'_>) {
        match event {
            Event::SegmentRestored { .. }
            | Event::Placed { .. }
            | Event::RunFound(_)
            | Event::DeadKeysWanted(_) => {}
            Event::Recovered => self.restored.recovered(),
            Event::CheckpointEnded(is_named) => {
                self.cascade.checkpoints.saved(is_named);
                if is_named == Some(true) {
                    let given = self.numbered_at_section.load(Ordering::Relaxed);
                    self.numbered_at_checkpoint.store(given, Ordering::Relaxed);
                }
            }
        }
    }

    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        let tasks = (0..self.cascade.tiers.partitions()).map(|number| -> BackgroundTask {
            let tiered = Arc::clone(&self);
            Box::new(move || {
                Box::pin(async move {
                    tiered.cascade.upkeep(number).run(|| tiered.account()).await;
                })
            })
        });
        let tiered = Arc::clone(&self);
        let discard: BackgroundTask = Box::new(move || {
            Box::pin(async move {
                tiered.cascade.flash.store.discard().await;
            })
        });
        let tiered = Arc::clone(&self);
        let sweep: BackgroundTask = Box::new(move || {
            Box::pin(async move {
                loop {
                    let due = tiered.segments.numbers.sweep_due.listener();
                    if tiered.segments.numbers.is_sweep_due() {
                        tiered.sweep();
                    }
                    due.await;
                }
            })
        });
        let tiered = Arc::clone(&self);
        let go_on: BackgroundTask = Box::new(move || {
            Box::pin(async move {
                let mut caught_up = tiered.cascade.tiers.brake.released.listener();
                loop {
                    caught_up.await;
                    caught_up = tiered.cascade.tiers.brake.released.listener();
                    tiered.store.pool().space().notify_all();
                }
            })
        });
        tasks.chain([discard, sweep, go_on]).collect()
    }

    fn section(
        &self,
        living: &[SegmentRecord],
        last: bool,
    ) -> PlacementFuture<'_, Option<Section>> {
        let living = living.to_vec();
        Box::pin(async move {
            let given = self.segments.numbers.given();
            self.numbered_at_section.store(given, Ordering::Relaxed);
            let segments = || self.segments.numbers.saved(&living);
            match self.cascade.checkpoints.save(last, segments).await {
                Ok(bytes) => Some(Section {
                    version: VERSION,
                    bytes,
                }),
                Err(error) => {
                    tracing::warn!(%error, "the index is not part of a checkpoint");
                    None
                }
            }
        })
    }

    fn pressure(&self) -> Pressure {
        Pressure {
            space: match self.cascade.tiers.brake.is_pressed() {
                true => Space::Behind,
                false => Space::Free,
            },
            wants_checkpoint: self.wants_checkpoint(),
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let (flash_bytes, bytes_written) = self.cascade.flash_bytes();
        let usage = self.cascade.usage();
        visit("hot_percent", usage.hot_percent.into());
        visit("filter_bits", usage.filter_bits.into());
        self.cascade.counters.read().each(visit);
        for (name, value) in [
            ("index_bytes_written", bytes_written),
            ("index_flash_bytes", flash_bytes),
            ("index_pages_used", usage.pages_used),
            ("index_pages_free", usage.pages_free),
            ("tier1_dram_bytes", usage.tier1_bytes),
            ("lower_tiers_dram_bytes", usage.below_bytes),
            ("page_map_dram_bytes", usage.map_bytes),
        ] {
            visit(name, value);
        }
    }
}

impl Residents for Tiered {
    fn entry(&self, item: &Resident) -> Entered {
        let code = self.segments.code_of(item.place);
        match self.cascade.tiers.lookup(item.hash.0) {
            Some((Hot::At(named), _)) if Some(named) == code => Entered::Yes(Entry::OWN),
            Some(_) => Entered::No,
            None => Entered::Perhaps,
        }
    }

    fn check(&self, item: &Resident, keep: &mut dyn FnMut(Priority) -> bool) -> Named {
        let Some(code) = self.segments.code_of(item.place) else {
            return Named::No;
        };
        match self.cascade.tiers.lookup(item.hash.0) {
            // Being in Tier 1 marks the item as read (section 4.3).
            Some((Hot::At(named), _)) if named == code => {
                if keep(Priority::of_read(true)) {
                    return Named::Kept;
                }
                if !self.cascade.tiers.bury_if(item.hash.0, code) {
                    return Named::No;
                }
                self.count(item.place.segment, item.place.generation, -1);
                Named::Removed
            }
            _ => Named::No,
        }
    }

    fn forget_segment(&self, record: &SegmentRecord) -> u64 {
        let items = self
            .segments
            .numbers
            .forget(record.segment, record.sequence);
        self.index_use.objects.add(u64::from(items).wrapping_neg());
        if self.index_use.is_short() {
            // Reclaim frees this segment to make space in the index.
            self.cascade.trim();
            self.account();
        }
        u64::from(items)
    }

    fn moved(&self, item: &Resident, to: Place) -> bool {
        let Some(old) = self.segments.code_of(item.place) else {
            return false;
        };
        let Some(new) = self.code_for(to) else {
            return false;
        };
        let is_moved = self.cascade.tiers.replace_if(item.hash.0, old, new);
        if is_moved {
            self.count(item.place.segment, item.place.generation, -1);
            self.count(to.segment, to.generation, 1);
        }
        is_moved
    }
}
