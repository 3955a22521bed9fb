//! `sliced`: an index that is a hash table of slices. It lies on flash, except the changes since the last flush ("Design
//! Patterns for Tunable and Efficient SSD-based Indexes", ANCS '14).
//!
//! [`SliceIndex`] is the index itself. It maps a key, as far as the journal keeps its hash, to the number of a segment's
//! generation and a position in the segment. So reclaim of a segment need not remove its entries. Copies cannot be located
//! without a read of flash, so displaced copies are journalled by key. Each checkpoint includes the part of the index in
//! memory; the part on flash may be newer than the checkpoint: `docs/papers/sliced.md`.

mod kind;
mod load;
mod made;
mod plan;
mod residents;
mod saved;
mod segments;
mod settings;

pub use settings::SlicedSettings;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use runtime::sync::Notify;
use runtime::work::{self, Work};
use slices::{Before, Known, SliceIndex};
use zerocopy::IntoBytes as _;

use crate::encoding::{Header, VERSION};
use device::Setting;
use engine::OpenError;
use engine::format::checkpoint::Section;
use engine::format::journal::kept_hash;
use engine::format::location::Place;
use engine::placement::{
    BackgroundTask, Batch, Counts, Displaced, Event, Found, Inserted, Located, Look, Parts,
    Placement, PlacementFuture, Pressure, Probe, Restored, Space, Unlocated, read_copy,
};
use engine::reclaim::IndexUse;
use engine::store::{Patience, ReadError, SegmentRecord, SegmentStore};
use engine::{Count as _, NamedCounts as _};
use engine::{Key, KeyHash};
use load::Maker;
use made::{Made, NUMBERS_AHEAD};
use on_flash::{IndexSyncs, Numbers, PatientStart, RestoredKeys};
use parking_lot::Mutex;
use plan::AREAS;
use saved::{NotSaved, Saver};
use segments::SlicedSegments;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pause after a failed reservation of numbers.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Most items placed between two checks whether a table is nearly full: half of the items that a nearly full table still
/// takes.
const PLACED_AT_ONCE: usize = 16;

/// A [`SliceIndex`] over the segments of a store.
struct Sliced {
    store: Arc<SegmentStore>,
    segments: Arc<SlicedSegments>,
    index_use: Arc<IndexUse>,
    maker: Maker,
    /// The index, set by `load`.
    made: OnceLock<Made>,
    /// Section of the last run, until it is loaded.
    section: Mutex<Option<Section>>,
    /// Keys restored in this run.
    restored: RestoredKeys,
    areas: Mutex<Areas>,
    /// Segment numbers given at the last checkpoint, and at the last section.
    numbered_at_checkpoint: AtomicU32,
    numbered_at_section: AtomicU32,
    checkpoint_wanted: Arc<Notify>,
    /// Notified when half of the reserved numbers have been given.
    numbers_wanted: Notify,
    answers: Counters,
    /// Searches that could not read the index.
    unreadable: AtomicU64,
    /// Bytes written by [`save`](Self::save).
    saved_bytes: AtomicU64,
}

engine::counters! {
    /// Answers of the index.
    struct Answers {
        memory_hits = "index_memory_hits",
        flash_hits = "index_flash_hits",
        misses = "index_absent",
    }
    from struct Counters of AtomicU64
}

/// Areas that a checkpoint in force may name.
#[derive(Default)]
struct Areas {
    may_be_named: [bool; AREAS],
    /// Area of the last section.
    last: usize,
}

impl Areas {
    /// Notes that the checkpoint in force names the area of the last section, and no other area.
    fn name_last(&mut self) {
        self.may_be_named = [false; AREAS];
        self.may_be_named[self.last] = true;
    }
}

fn key_of(hash: KeyHash) -> u64 {
    kept_hash(hash.0)
}

impl Sliced {
    fn new(settings: SlicedSettings, parts: Parts) -> Result<Self, OpenError> {
        let region = parts.index_region.ok_or_else(|| {
            load::error_of(&format!(
                "it needs a file or a drive, and this is open flash: give it a device of its own ({})",
                Setting::IndexFlash
            ))
        })?;
        let segments = Arc::new(SlicedSegments {
            numbers: Numbers::new(parts.store.table().segments()),
            units_per_segment: parts.codec.units_per_segment,
            store: Arc::clone(&parts.store),
            index_use: Arc::clone(&parts.index_use),
        });
        let sliced = Self {
            maker: Maker {
                settings,
                segments: Arc::clone(&segments),
                index_use: Arc::clone(&parts.index_use),
                region,
                syncs: Arc::new(IndexSyncs::new(&parts.store, parts.index_is_apart)),
                start: Arc::new(PatientStart::new(&parts.store)),
                expected_items: parts.expected_items,
            },
            segments,
            store: parts.store,
            restored: RestoredKeys::new(&parts.index_use),
            index_use: parts.index_use,
            made: OnceLock::new(),
            section: Mutex::new(parts.section),
            areas: Mutex::default(),
            numbered_at_checkpoint: AtomicU32::new(0),
            numbered_at_section: AtomicU32::new(0),
            checkpoint_wanted: parts.checkpoint_wanted,
            numbers_wanted: Notify::default(),
            answers: Counters::default(),
            unreadable: AtomicU64::new(0),
            saved_bytes: AtomicU64::new(0),
        };
        // Impossible settings are refused before anything is written. An existing index keeps the settings that it was made
        // with.
        if sliced.section.lock().is_none() {
            sliced.maker.new_tables()?;
        }
        Ok(sliced)
    }

    /// Opens the index of the last run, or makes an empty one.
    async fn load_index(&self) -> Result<(), OpenError> {
        let section = self.section.lock().take();
        let made = match section {
            Some(section) => {
                let (made, area) = self.maker.load_section(&section).await?;
                self.areas.lock().may_be_named[area] = true;
                let given = self.segments.numbers.given();
                self.numbered_at_checkpoint.store(given, Ordering::Relaxed);
                made
            }
            None => self.maker.make_empty().await?,
        };
        let is_first = self.made.set(made).is_ok();
        debug_assert!(is_first, "it is loaded once");
        Ok(())
    }

    fn made(&self) -> &Made {
        self.made.get().expect("it is loaded before all else")
    }

    fn index(&self) -> &SliceIndex {
        &self.made().index
    }

    fn wants_numbers(&self) -> bool {
        self.segments.numbers.left() < NUMBERS_AHEAD / 2
    }

    /// Reserves more numbers before the reserved ones run out, independently of checkpoints. Runs until no numbers are left.
    async fn keep_numbers(&self) {
        loop {
            let wanted = self.numbers_wanted.listener();
            if self.wants_numbers() {
                match self.made().reserve(self.segments.numbers.given()).await {
                    Ok(Some(limit)) => self.segments.numbers.limit(limit),
                    Ok(None) => {
                        tracing::error!(
                            "the index has no more numbers for segments: nothing is stored on flash until the next start, which is empty"
                        );
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no more numbers for segments could be reserved; it is tried again");
                        runtime::sleep(RETRY_PAUSE).await;
                    }
                }
                continue;
            }
            wanted.await;
        }
    }

    /// Saves the part of the index in memory to an area that no checkpoint in force may name. Returns `None` if there is no
    /// such area.
    async fn save(&self, living: &[SegmentRecord]) -> Result<Option<Header>, NotSaved> {
        let made = self.made();
        let area = {
            let mut areas = self.areas.lock();
            let free = (0..AREAS).find(|&area| !areas.may_be_named[area]);
            let Some(free) = free else {
                return Ok(None);
            };
            areas.last = free;
            free
        };
        let mut saver = Saver::new(&made.areas[area]);
        for partition in 0..made.tables.partitions {
            saver.partition(&made.index.in_memory(partition)).await?;
        }
        let (numbered, next) = self.segments.numbers.saved(living);
        saver.segments(&numbered, next).await?;
        let written = saver.finish().await?;
        self.saved_bytes.add(written);
        Ok(Some(Header {
            instance: made.instance.into(),
            incarnations: made.tables.incarnations.into(),
            table_bytes: made.tables.table_bytes.into(),
            partitions: made.tables.partitions.into(),
            area: (area as u32).into(),
            bytes: saver.bytes.into(),
            checksum: saver.checksum.into(),
        }))
    }

    fn account(&self) {
        if let Some(made) = self.made.get() {
            made.account(&self.index_use);
        }
    }

    fn displaced(&self, before: Option<Before>, hash: KeyHash) -> Displaced {
        let is_frozen = before.is_some_and(|before| before.is_frozen);
        match before.map(|before| before.known) {
            // Some deletes have not been journalled.
            Some(Known::Deleted) => Displaced::Unknown,
            Some(Known::Value(value)) => match self.segments.place(value) {
                Some(place) => {
                    // The flush that has a frozen value counts it out.
                    if !is_frozen {
                        self.segments.count(place.segment, place.generation, -1);
                    }
                    Displaced::Known(place)
                }
                None => Displaced::Unknown,
            },
            None if self.index().may_be_on_drive(key_of(hash)) => Displaced::Unknown,
            None => Displaced::None,
        }
    }

    /// Makes the index name a place for a key.
    fn put(&self, hash: KeyHash, place: Place) -> Inserted {
        work::count(Work::IndexStep, 1);
        let key = key_of(hash);
        let inserted = match self.segments.value_for(place) {
            Some(value) => self.index().try_insert(key, value),
            None => Err(None),
        };
        if place.position.offset() == 0 {
            if self.wants_checkpoint() {
                self.checkpoint_wanted.notify_all();
            }
            if self.wants_numbers() {
                self.numbers_wanted.notify_all();
            }
        }
        match inserted {
            Ok(before) => {
                let displaced = self.displaced(before, hash);
                self.segments.count(place.segment, place.generation, 1);
                Inserted::Yes(displaced)
            }
            Err(_) => Inserted::Full(self.invalidate(hash, 0)),
        }
    }

    /// Returns the last change of a key that memory has.
    fn named(&self, hash: KeyHash) -> Option<Known> {
        self.index().known(key_of(hash))
    }

    /// Returns whether the index may name a place for a key.
    fn may_have(&self, hash: KeyHash) -> bool {
        self.named(hash).is_some() || self.index().may_be_on_drive(key_of(hash))
    }

    fn probe_of(&self, hash: KeyHash) -> Probe {
        work::count(Work::IndexStep, 1);
        match self.named(hash) {
            Some(Known::Deleted) => Probe::Absent,
            Some(Known::Value(value)) => match self.segments.place(value) {
                Some(place) => Probe::At(Located {
                    place,
                    fetched: false,
                }),
                None => Probe::Absent,
            },
            None if self.index().may_be_on_drive(key_of(hash)) => Probe::Perhaps,
            None => Probe::Absent,
        }
    }

    /// Searches memory and flash for a key.
    async fn search(&self, hash: KeyHash) -> Result<Option<Located>, ReadError> {
        work::count(Work::IndexStep, 1);
        let look_up = self.index().get(key_of(hash));
        let found = self
            .store
            .reader()
            .wait_for_index(look_up, Result::is_ok)
            .await?;
        let counter = match &found {
            Ok(Some(_)) => &self.answers.flash_hits,
            Ok(None) => &self.answers.misses,
            Err(_) => &self.unreadable,
        };
        counter.add(1);
        let value = found.ok().flatten();
        let place = value.and_then(|value| self.segments.place(value));
        Ok(place.map(|place| Located {
            place,
            fetched: false,
        }))
    }

    fn wants_checkpoint(&self) -> bool {
        let at_last = self.numbered_at_checkpoint.load(Ordering::Relaxed);
        let since = self.segments.numbers.given().saturating_sub(at_last);
        since >= self.maker.settings.checkpoint_segments
    }

    async fn invalidate_all(&self, outdated: Vec<(KeyHash, u64)>) {
        for (hash, version) in outdated {
            if !self.may_have(hash) {
                continue;
            }
            match self.index().remove(key_of(hash)).await {
                Ok(before) => drop(self.displaced(before, hash)),
                // While its device fails, the index keeps deletes beside its tables.
                Err(_) => drop(self.invalidate(hash, version)),
            }
        }
    }
}

impl Placement for Sliced {
    fn probe(&self, hash: KeyHash, _look: Look) -> Probe {
        self.probe_of(hash)
    }

    fn get<'a>(
        &'a self,
        key: Key<'a>,
        probe: Probe,
        patience: Patience,
        _counts: Counts<'a>,
    ) -> PlacementFuture<'a, Result<Found, ReadError>> {
        if matches!(probe, Probe::At(_)) {
            self.answers.memory_hits.add(1);
        }
        let hash = key.hash();
        let look = move || self.probe_of(hash);
        let locate = async move || self.search(hash).await;
        Box::pin(read_copy(&self.store, key, probe, patience, look, locate))
    }

    fn insert(&self, hash: KeyHash, _version: u64, place: Place, _clock: u8) -> Inserted {
        self.put(hash, place)
    }

    fn invalidate(&self, hash: KeyHash, _version: u64) -> Displaced {
        work::count(Work::IndexStep, 1);
        if !self.may_have(hash) {
            return Displaced::None;
        }
        let before = self.index().bury(key_of(hash));
        self.displaced(before, hash)
    }

    fn load(&self, outdated: Vec<(KeyHash, u64)>) -> PlacementFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            self.load_index().await?;
            self.invalidate_all(outdated).await;
            self.account();
            Ok(())
        })
    }

    fn restore(&self, batch: Batch<'_>, each: &mut dyn FnMut(usize, Restored)) {
        let Batch { items, beaten, .. } = batch;
        for (number, item) in items.iter().enumerate() {
            let named = match self.named(item.hash) {
                Some(Known::Value(value)) => self.segments.place(value),
                _ => None,
            };
            let put = || self.put(item.hash, item.place);
            let restored = self.restored.restore(item, named, beaten, put);
            each(number, restored);
        }
    }

    fn locate(&self, hash: KeyHash) -> PlacementFuture<'_, Result<Option<Place>, Unlocated>> {
        Box::pin(async move {
            match self.index().get(key_of(hash)).await {
                Ok(found) => Ok(found.and_then(|value| self.segments.place(value))),
                Err(_) => Err(Unlocated),
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
            // If the outcome is unknown, the engine makes sure that the section is not in force before it asks for another.
            Event::CheckpointEnded(Some(true)) => {
                self.areas.lock().name_last();
                let given = self.numbered_at_section.load(Ordering::Relaxed);
                self.numbered_at_checkpoint.store(given, Ordering::Relaxed);
            }
            Event::CheckpointEnded(_) => {}
        }
    }

    fn background(self: Arc<Self>) -> Vec<BackgroundTask> {
        self.maker.start.end();
        let sliced = Arc::clone(&self);
        let keep_up: BackgroundTask =
            Box::new(move || Box::pin(async move { sliced.index().keep_up().await }));
        let sliced = Arc::clone(&self);
        let keep_numbers: BackgroundTask =
            Box::new(move || Box::pin(async move { sliced.keep_numbers().await }));
        let go_on: BackgroundTask = Box::new(move || {
            Box::pin(async move {
                loop {
                    let caught_up = self.index().caught_up().listener();
                    self.account();
                    self.store.pool().space().notify_all();
                    caught_up.await;
                }
            })
        });
        vec![keep_up, keep_numbers, go_on]
    }

    fn section(
        &self,
        living: &[SegmentRecord],
        _last: bool,
    ) -> PlacementFuture<'_, Option<Section>> {
        let living = living.to_vec();
        Box::pin(async move {
            let given = self.segments.numbers.given();
            self.numbered_at_section.store(given, Ordering::Relaxed);
            match self.save(&living).await {
                Ok(Some(header)) => Some(Section {
                    version: VERSION,
                    bytes: header.as_bytes().to_vec(),
                }),
                Ok(None) => {
                    tracing::warn!(
                        "the index has no area to save to: of the last checkpoints it is not known which one counts"
                    );
                    None
                }
                Err(error) => {
                    tracing::warn!(%error, "the index is not part of a checkpoint");
                    None
                }
            }
        })
    }

    fn pressure(&self) -> Pressure {
        let index = self.index();
        Pressure {
            space: match (index.is_full(), index.is_behind()) {
                (true, _) => Space::Full,
                (false, true) => Space::Behind,
                (false, false) => Space::Free,
            },
            wants_checkpoint: self.wants_checkpoint(),
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let Some(made) = self.made.get() else {
            return;
        };
        let stats = made.index.stats();
        let shape = made.index.shape();
        self.answers.read().each(visit);
        for (name, value) in [
            (
                "index_hit_reads",
                stats.page_reads - stats.absent_page_reads,
            ),
            ("index_absent_reads", stats.absent_page_reads),
            ("index_tables_flushed", stats.flushes),
            ("index_mappings_flushed", stats.flushed_entries),
            ("mappings_evicted", stats.evicted),
            (
                "index_pages_damaged",
                stats.pages_lost + self.unreadable.get(),
            ),
            (
                "index_bytes_written",
                stats.bytes_written + self.saved_bytes.get(),
            ),
            (
                "index_flash_bytes",
                u64::from(shape.partitions) * shape.region_bytes,
            ),
        ] {
            visit(name, value);
        }
    }
}
