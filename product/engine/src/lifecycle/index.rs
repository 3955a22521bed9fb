//! [`IndexOpener`]: opens the placement of a run that is about to begin.

use std::sync::{Arc, OnceLock};

use device::Region;
use runtime::pages::PagePool;

use super::base::Base;
use super::budget::kept_bytes;
use super::run_start::RunStart;
use crate::config::EngineConfig;
use crate::durability::dead::DeadCopies;
use crate::durability::error::{Distrust, OpenError};
use crate::durability::journal::Journal;
use crate::flash::Indexed;
use crate::format::checkpoint::Section;
use crate::format::superblock::{ImageShape, IndexRegion};
use crate::placement::{Collecting, Description, Parts};
use crate::reclaim::IndexUse;
use crate::store::SegmentStore;

/// Opens the placement of a run that is about to begin.
pub(super) struct IndexOpener<'a> {
    config: &'a EngineConfig,
    shape: ImageShape,
    description: Description,
    collecting: Option<Collecting>,
    store: Arc<SegmentStore>,
    /// Region that the index overwrites in place.
    region: Option<Region>,
    /// Number of items for which the index may reserve space at once.
    items_to_restore: usize,
    /// Counters that the placement shares with reclaim.
    pub(super) index_use: Arc<IndexUse>,
    /// The journal of the run; set once the run has begun.
    pub(super) journal: Arc<OnceLock<Arc<Journal>>>,
}

impl<'a> IndexOpener<'a> {
    pub(super) fn new(config: &'a EngineConfig, base: &Base, run: &RunStart) -> Self {
        let budget = &base.budget;
        Self {
            config,
            shape: base.shape,
            description: base.description.clone(),
            collecting: budget.collecting(),
            store: Arc::clone(&base.store),
            region: base.index_region.clone(),
            items_to_restore: run.items_to_restore(budget),
            index_use: Arc::new(IndexUse::new(
                budget.index_bytes,
                budget.index_room_bytes + config.lendable_bytes,
            )),
            journal: Arc::default(),
        }
    }

    /// Opens the placement and loads it. If the section of the last checkpoint cannot be loaded, opens an empty
    /// placement, and `run` gives up the state of the last run.
    pub(super) async fn open_loaded(&self, run: &mut RunStart) -> Result<Indexed, OpenError> {
        let mut indexed = self.open(run.take_section())?;
        let outdated = match self.description.dead_copies {
            DeadCopies::BySection => run.outdated(false),
            DeadCopies::AtReads => run.outdated(true),
            _ => Vec::new(),
        };
        if let Err(error) = indexed.placement.load(outdated).await {
            tracing::warn!(%error, "the saved index of the last run cannot be used");
            indexed = self.open(None)?;
            indexed.placement.load(Vec::new()).await?;
            run.give_up(Distrust::Index);
        }
        Ok(indexed)
    }

    /// Opens the placement from a section, or an empty one.
    fn open(&self, section: Option<Section>) -> Result<Indexed, OpenError> {
        let (config, shape) = (self.config, &self.shape);
        let (clock, checkpoint_wanted) = (Arc::default(), Arc::default());
        let superseded = Arc::default();
        let placement = config.placement.open(Parts {
            image: shape.image_id,
            hash_seed: shape.hash_seed,
            codec: self.store.codec,
            store: Arc::clone(&self.store),
            pool: Arc::new(PagePool::new(kept_bytes(config) as usize)),
            partition_bits: shape.partitions.trailing_zeros(),
            expected_items: shape.expected_items,
            collecting: self.collecting,
            items_to_restore: self.items_to_restore,
            index_use: Arc::clone(&self.index_use),
            index_region: self.region.clone(),
            index_is_apart: matches!(shape.index_region, IndexRegion::Apart(_)),
            discard: config.writing.discard,
            settings: config.index,
            section: section.filter(|section| *section != Section::default()),
            journal: Arc::clone(&self.journal),
            checkpoint_wanted: Arc::clone(&checkpoint_wanted),
            clock: Arc::clone(&clock),
            superseded: Arc::clone(&superseded),
        })?;
        Ok(Indexed {
            placement,
            description: self.description.clone(),
            collecting: self.collecting,
            clock,
            checkpoint_wanted,
            superseded,
            hash_seed: shape.hash_seed,
        })
    }
}
