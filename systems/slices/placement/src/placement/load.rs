//! A start: makes an empty index, or loads the index that the last checkpoint saved.

use std::sync::{Arc, OnceLock};

use runtime::sync::Notify;
use slices::{PagedLog, SliceIndex};
use zerocopy::FromBytes as _;

use super::plan::{AREAS, ITEM_BYTES, Part, Plan, SHARES, Tables};
use super::saved::{Loader, Unusable};
use super::segments::SlicedSegments;
use super::settings::SlicedSettings;
use super::{Counters, Made, Sliced};
use crate::encoding::{Header, VERSION};
use engine::OpenError;
use engine::format::checkpoint::Section;
use engine::placement::Parts;
use on_flash::Numbers;
use on_flash::RestoredKeys;
use on_flash::{IndexDisk, IndexSyncs, PatientStart};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

fn error_of(error: &dyn std::fmt::Display) -> OpenError {
    OpenError::Index(error.to_string())
}

impl Sliced {
    pub(super) fn new(settings: SlicedSettings, parts: Parts) -> Result<Self, OpenError> {
        let region = parts.index_region.ok_or_else(|| {
            error_of(&"it needs a file or a drive, and this is open flash: give it a device of its own (--index-flash)")
        })?;
        let syncs = Arc::new(IndexSyncs::new(&parts.store, parts.index_is_apart));
        let start = Arc::new(PatientStart::new(&parts.store));
        let sliced = Self {
            start,
            segments: Arc::new(SlicedSegments {
                numbers: Numbers::new(parts.store.table().segments()),
                units_per_segment: parts.codec.units_per_segment,
                store: Arc::clone(&parts.store),
                index_use: Arc::clone(&parts.index_use),
            }),
            settings,
            store: parts.store,
            restored: RestoredKeys::new(&parts.index_use),
            index_use: parts.index_use,
            region,
            syncs,
            expected_items: parts.expected_items,
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
        if !sliced.has_section() {
            sliced.new_tables()?;
        }
        Ok(sliced)
    }

    fn has_section(&self) -> bool {
        self.section.lock().is_some()
    }

    /// Returns the plan and the tables of an empty index. They are for the expected items, or for fewer if the region, which
    /// may have been made with other settings, has no space for them.
    fn new_tables(&self) -> Result<(Plan, Tables), OpenError> {
        let with = |items| {
            let tables = Tables::for_items(&self.settings, items);
            self.plan(tables).map(|plan| (plan, tables))
        };
        let items = self.expected_items;
        with(items).or_else(|error| {
            let less = (1..SHARES).rev().map(|share| items / SHARES * share);
            less.map(with).find_map(Result::ok).ok_or(error)
        })
    }

    fn segments_bytes(&self) -> u64 {
        u64::from(self.store.table().segments()) * u64::from(self.store.table().segment_bytes())
    }

    fn plan(&self, tables: Tables) -> Result<Plan, OpenError> {
        let max_bytes = self.index_use.max_bytes;
        let for_filters = max_bytes / 100 * u64::from(self.settings.filter_percent);
        let least = self.settings.least_bytes(self.expected_items);
        let filter_bytes = for_filters.min(max_bytes.saturating_sub(least));
        let plan = Plan::new(tables, self.segments_bytes(), filter_bytes);
        let plan = plan.map_err(|error| error_of(&error))?;
        let (has, needs) = (device::Disk::len_bytes(&self.region), plan.region_bytes());
        if has < needs {
            return Err(error_of(&format!(
                "its region has {has} bytes and needs {needs}: force a new image"
            )));
        }
        Ok(plan)
    }

    fn disk(&self, part: Part) -> Result<IndexDisk, OpenError> {
        let (first, len_bytes) = part;
        IndexDisk::new(
            &self.region,
            first,
            len_bytes,
            &self.syncs,
            Some(&self.start),
        )
        .map_err(|error| error_of(&error))
    }

    /// Makes an empty index, or opens the index with the instance `found` in a section.
    async fn make(&self, plan: Plan, tables: Tables, found: Option<u64>) -> Result<(), OpenError> {
        let log_disk = Arc::new(self.disk(plan.log)?);
        let slices = Arc::new(self.disk(plan.slices)?);
        let failed = |error| error_of(&error);
        let instance = found.unwrap_or_else(runtime::random_u64);
        let log = match found {
            Some(_) => PagedLog::open(log_disk, plan.log_words + 1, instance).await,
            None => Ok(PagedLog::create(log_disk, plan.log_words + 1, instance)),
        };
        let log = Arc::new(log.map_err(failed)?);
        let journal = Arc::clone(&log) as Arc<dyn device::Journal>;
        let index = match found {
            Some(_) => SliceIndex::open(slices, journal, &plan.hash).await,
            None => SliceIndex::create(slices, journal, &plan.hash).await,
        };
        let index = index.map_err(failed)?;
        let segments = Arc::clone(&self.segments);
        index
            .tell_of_gone(move |values| values.iter().for_each(|&value| segments.count_out(value)));
        let areas = [
            self.disk(plan.areas[0])?,
            self.disk(plan.areas[1])?,
            self.disk(plan.areas[2])?,
        ];
        let memory = index.memory();
        let made = Made {
            // The pieces that flushes hold count as working memory.
            fixed_bytes: memory.total() - memory.pieces + log.memory_bytes(),
            index,
            log,
            tables,
            instance,
            areas,
        };
        let is_first = self.made.set(made).is_ok();
        debug_assert!(is_first, "it is loaded once");
        self.account();
        let bytes_an_item = self.segments_bytes() / plan.items.max(1);
        if bytes_an_item > ITEM_BYTES + ITEM_BYTES / 2 {
            tracing::warn!(
                items = plan.items,
                bytes_an_item,
                "memory, or the region of the index, does not do for more items: where they are smaller than that, a part of the \
                 flash is not found again; more --memory or more incarnations make it larger, of a region only when a new image is \
                 forced"
            );
        }
        Ok(())
    }

    async fn load_section(&self, section: &Section) -> Result<(), OpenError> {
        if section.version != VERSION {
            return Err(error_of(&"it was saved by another version"));
        }
        let senseless = || error_of(&Unusable::Senseless);
        let header = Header::read_from_bytes(&section.bytes).map_err(|_| senseless())?;
        let tables = Tables::of(&header);
        let area = header.area.get() as usize;
        if area >= AREAS || tables.partitions == 0 {
            return Err(senseless());
        }
        let plan = self.plan(tables)?;
        let (needs, most) = (plan.memory_bytes(), self.index_use.max_bytes);
        if needs > most {
            // The tables would leave no memory to store anything.
            return Err(error_of(&format!(
                "its tables take {needs} bytes of memory, and it may take {most}"
            )));
        }
        let disk = self.disk(plan.areas[area])?;
        let loader = Loader::checked(&disk, header.bytes.get(), header.checksum.get()).await;
        let mut loader = loader.map_err(|error| error_of(&error))?;
        self.make(plan, tables, Some(header.instance.get())).await?;
        self.areas.lock().may_be_named[area] = true;
        for partition in 0..tables.partitions {
            let saved = loader.partition().await.map_err(|error| error_of(&error))?;
            let put_back = self.index().put_back(partition, saved).await;
            put_back.map_err(|error| error_of(&error))?;
        }
        let (numbered, next) = loader.segments().await.map_err(|error| error_of(&error))?;
        let begin = next.max(self.made().reserved());
        let items = self.segments.numbers.load(&numbered, begin);
        let items = items.ok_or_else(senseless)?;
        self.reserve_numbers(begin).await?;
        self.index_use.objects.store(items, Ordering::Relaxed);
        let given = self.segments.numbers.given();
        self.numbered_at_checkpoint.store(given, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves numbers from `begin` on, before the first one is given.
    async fn reserve_numbers(&self, begin: u32) -> Result<(), OpenError> {
        let limit = loop {
            match self.made().reserve(begin).await {
                Ok(limit) => break limit,
                Err(error) if self.start.waits_for(&error).await => {}
                Err(error) => return Err(error_of(&error)),
            }
        };
        let limit = limit.ok_or_else(|| error_of(&"it has no more numbers for segments"))?;
        self.segments.numbers.limit(limit);
        Ok(())
    }

    /// Opens the index of the last run, or makes an empty one.
    pub(super) async fn load_index(&self) -> Result<(), OpenError> {
        let section = self.section.lock().take();
        match section {
            Some(section) => self.load_section(&section).await,
            None => {
                self.index_use.objects.store(0, Ordering::Relaxed);
                let (plan, tables) = self.new_tables()?;
                self.make(plan, tables, None).await?;
                self.reserve_numbers(0).await
            }
        }
    }
}
