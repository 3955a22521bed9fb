//! [`Cascade`]: its parts.

use std::sync::Arc;

use device::Region;
use runtime::pages::PagePool;
use runtime::sync::{Notify, Semaphore};

use super::bounds::Bounds;
use super::checkpoint::Checkpoints;
use super::counters::Counters;
use super::flash::Flash;
use super::footprint::Footprint;
use super::pages::PageStore;
use super::request::CheckpointRequest;
use super::search::Searches;
use super::segments::Segments;
use super::shape::{CascadeConfig, Shape};
use super::tiers::Tiers;
use super::upkeep::Upkeep;
use super::usage::Usage;

use index::ConfigError;

/// Most compactions at once: each holds a whole list.
const COMPACTIONS: usize = 1;

/// The index: its parts, each with its own operations. All threads use it at once.
///
/// Invariant: all parts share the same tiers and the same flash, whose settings are those of `config`.
pub struct Cascade {
    /// The tiers in memory, and the operations on Tier 1.
    pub tiers: Arc<Tiers>,
    /// The pages of the region.
    pub flash: Arc<Flash>,
    /// Look-ups in all tiers.
    pub searches: Searches,
    /// Saves the index and loads it.
    pub checkpoints: Checkpoints,
    /// Counts since the cascade was opened.
    pub counters: Arc<Counters>,
    pub(super) config: CascadeConfig,
    compactions: Semaphore,
}

/// Reason why a cascade cannot be created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum CascadeError {
    /// Tier 1 cannot be created.
    #[error("tier 1 cannot be made: {0}")]
    Hot(#[from] ConfigError),
    /// The region is too small.
    #[error("the index region has {pages} pages and needs {least} for {capacity} mappings")]
    Region {
        pages: usize,
        least: usize,
        capacity: u64,
    },
}

impl Cascade {
    /// Creates an empty cascade on a region of `image`. It notifies `checkpoint_wanted` when it begins to want a
    /// checkpoint.
    ///
    /// # Errors
    /// [`CascadeError`].
    pub fn new(
        config: CascadeConfig,
        region: Region,
        image: u64,
        segments: Arc<dyn Segments>,
        pool: &Arc<PagePool>,
        checkpoint_wanted: &Arc<Notify>,
    ) -> Result<Self, CascadeError> {
        let shape = Shape::of(&config);
        let pages = PageStore::pages_of(&region);
        let bounds = Bounds::new(&config, &shape, pages);
        let store = PageStore::new(region, bounds.reserved(), config.discard);
        let least = Footprint::of(&config).least_pages();
        if store.pages() < least {
            return Err(CascadeError::Region {
                pages: store.pages(),
                least,
                capacity: config.capacity,
            });
        }
        let counters = Arc::default();
        let tiers = Tiers::new(&config, shape, bounds, image, segments, &counters, pool)?;
        let request = CheckpointRequest::new(checkpoint_wanted);
        let flash = Flash::new(store, request, tiers.partitions(), &counters);
        for (number, partition) in tiers.partitions.iter().enumerate() {
            tiers.account(number, &partition.lock(), &flash.store);
        }
        let (tiers, flash) = (Arc::new(tiers), Arc::new(flash));
        Ok(Self {
            searches: Searches::new(&tiers, &flash, &counters, config.batch),
            checkpoints: Checkpoints::new(&tiers, &flash, image),
            tiers,
            flash,
            counters,
            config,
            compactions: Semaphore::new(COMPACTIONS),
        })
    }

    /// Returns the upkeep of a partition. Each partition needs one task that [runs](Upkeep::run) it.
    pub fn upkeep(&self, partition: usize) -> Upkeep<'_> {
        Upkeep::new(partition, &self.tiers, &self.flash, &self.compactions)
    }

    /// Drops outdated pages at once, as memory is short; otherwise the next compaction drops them. Releases the oldest
    /// pages of each inactive bucket, with their filters, as long as they name only segments that are gone. Memory
    /// operations only.
    pub fn trim(&self) {
        let horizon = self.tiers.segments.horizon();
        let filter = &self.tiers.layouts.active.page_filter;
        for (number, partition) in self.tiers.partitions.iter().enumerate() {
            let partition = &mut *partition.lock();
            let buckets = partition.lists.iter_mut();
            let mut has_changed = false;
            for bucket in buckets.flat_map(|list| &mut list.buckets) {
                let oldest = bucket.pages.iter();
                let gone = oldest.take_while(|page| page.newest < horizon).count();
                if gone > 0 {
                    self.flash.store.release(bucket.drop_oldest(filter, gone));
                    bucket.shrink();
                    has_changed = true;
                }
            }
            if has_changed {
                // A search may have read a mapping on a page that is released now.
                partition.epoch += 1;
                self.tiers.account(number, partition, &self.flash.store);
            }
        }
    }

    /// Returns the bytes of memory in use, without the buffers of running searches and compactions.
    pub fn memory_bytes(&self) -> u64 {
        let below = self.tiers.memory.below();
        self.tiers.memory.hot() + below + self.flash.store.memory_bytes()
    }

    /// Returns the bytes of flash in use, and the bytes written so far.
    pub fn flash_bytes(&self) -> (u64, u64) {
        let page = device::PAGE_BYTES as u64;
        let store = &self.flash.store;
        let used = store.pages() - store.free_pages();
        (used as u64 * page, store.pages_written() * page)
    }

    /// Returns the present usage.
    pub fn usage(&self) -> Usage {
        let store = &self.flash.store;
        let pages_free = store.free_pages();
        Usage {
            hot_percent: self.config.hot_percent,
            filter_bits: self.config.filter_bits,
            tier1_bytes: self.tiers.memory.hot(),
            below_bytes: self.tiers.memory.below(),
            map_bytes: store.memory_bytes(),
            pages_used: (store.pages() - pages_free) as u64,
            pages_free: pages_free as u64,
        }
    }
}
