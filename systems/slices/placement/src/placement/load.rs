//! A start: makes an empty index, or loads the index that the last checkpoint saved.

use std::sync::Arc;

use device::Region;
use slices::{PagedLog, SliceIndex};
use zerocopy::FromBytes as _;

use super::made::Made;
use super::plan::{AREAS, ITEM_BYTES, Part, Plan, SHARES, Tables};
use super::saved::{Loader, Unusable};
use super::segments::SlicedSegments;
use super::settings::SlicedSettings;
use crate::encoding::{Header, VERSION};
use engine::OpenError;
use engine::format::checkpoint::Section;
use engine::reclaim::IndexUse;
use on_flash::{IndexDisk, IndexSyncs, PatientStart};
use std::sync::atomic::Ordering;

pub(super) fn error_of(error: &dyn std::fmt::Display) -> OpenError {
    OpenError::Index(error.to_string())
}

/// Makes an index in its region, or opens the index of the last run. No other part of the placement writes to the region before the
/// index has been returned.
pub(super) struct Maker {
    pub(super) settings: SlicedSettings,
    pub(super) segments: Arc<SlicedSegments>,
    pub(super) index_use: Arc<IndexUse>,
    pub(super) region: Region,
    pub(super) syncs: Arc<IndexSyncs>,
    /// The start, during which operations of the index's device are repeated after an error. Ends when background work
    /// starts.
    pub(super) start: Arc<PatientStart>,
    pub(super) expected_items: u64,
}

impl Maker {
    /// Returns the plan and the tables of an empty index. They are for the expected items, or for fewer if the region, which
    /// may have been made with other settings, has no space for them.
    pub(super) fn new_tables(&self) -> Result<(Plan, Tables), OpenError> {
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
        let table = self.segments.store.table();
        u64::from(table.segments()) * u64::from(table.segment_bytes())
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
    async fn make(
        &self,
        plan: Plan,
        tables: Tables,
        found: Option<u64>,
    ) -> Result<Made, OpenError> {
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
        made.account(&self.index_use);
        let bytes_an_item = self.segments_bytes() / plan.items.max(1);
        if bytes_an_item > ITEM_BYTES + ITEM_BYTES / 2 {
            tracing::warn!(
                items = plan.items,
                bytes_an_item,
                "memory, or the region of the index, does not do for more items: where they are smaller than that, a part of the \
                 flash is not found again; more memory or more incarnations make it larger, of a region only when a new image is \
                 forced"
            );
        }
        Ok(made)
    }

    /// Makes an empty index.
    pub(super) async fn make_empty(&self) -> Result<Made, OpenError> {
        self.index_use.objects.store(0, Ordering::Relaxed);
        let (plan, tables) = self.new_tables()?;
        let made = self.make(plan, tables, None).await?;
        self.reserve_numbers(&made, 0).await?;
        Ok(made)
    }

    /// Opens the index that a section describes. Returns the index, and the area of the section.
    pub(super) async fn load_section(&self, section: &Section) -> Result<(Made, usize), OpenError> {
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
        let made = self.make(plan, tables, Some(header.instance.get())).await?;
        for partition in 0..tables.partitions {
            let saved = loader.partition().await.map_err(|error| error_of(&error))?;
            let put_back = made.index.put_back(partition, saved).await;
            put_back.map_err(|error| error_of(&error))?;
        }
        let (numbered, next) = loader.segments().await.map_err(|error| error_of(&error))?;
        let begin = next.max(made.reserved());
        let items = self.segments.numbers.load(&numbered, begin);
        let items = items.ok_or_else(senseless)?;
        self.reserve_numbers(&made, begin).await?;
        self.index_use.objects.store(items, Ordering::Relaxed);
        Ok((made, area))
    }

    /// Reserves numbers from `begin` on, before the first one is given.
    async fn reserve_numbers(&self, made: &Made, begin: u32) -> Result<(), OpenError> {
        let limit = loop {
            match made.reserve(begin).await {
                Ok(limit) => break limit,
                Err(error) if self.start.waits_for(&error).await => {}
                Err(error) => return Err(error_of(&error)),
            }
        };
        let limit = limit.ok_or_else(|| error_of(&"it has no more numbers for segments"))?;
        self.segments.numbers.limit(limit);
        Ok(())
    }
}
