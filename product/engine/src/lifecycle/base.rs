//! [`Base`]: the parts of an engine that an open makes first.
//!
//! This file writes nothing.

use std::sync::Arc;

use device::{Journal as Log, Region, WriteClass, WriteLimit};

use super::budget::Budget;
use super::image::Image;
use crate::admission::{AdmissionRoom, Gate};
use crate::config::EngineConfig;
use crate::config::check::check_image;
use crate::durability::dead::DeadCopies;
use crate::durability::error::OpenError;
use crate::durability::find::look_at_journal;
use crate::durability::journal::Unusable;
use crate::durability::medium::{Medium, limited_flash};
use crate::format::superblock::{ImageShape, Superblock};
use crate::placement::Description;
use crate::store::{SegmentStore, StoreConfig, StoreFlash};

/// The parts of an engine on which the others are built. Nothing has been written with them.
pub(super) struct Base {
    /// Shape of the image.
    pub(super) shape: ImageShape,
    /// Facts about the placement.
    pub(super) description: Description,
    /// Region that the index overwrites in place.
    pub(super) index_region: Option<Region>,
    /// The log of the journal.
    pub(super) log: Arc<dyn Log>,
    /// Whether the journal holds all deaths since the checkpoint that the superblock names.
    pub(super) usable: Result<(), Unusable>,
    /// The segments, none of which has been looked at.
    pub(super) store: Arc<SegmentStore>,
    /// Admission to flash.
    pub(super) gate: Box<Gate>,
    /// Division of the memory.
    pub(super) budget: Budget,
}

impl Base {
    /// Checks the settings against the image, opens the `journal`, and makes the parts that need neither the last run
    /// nor the index. Segments and index write to `medium` within the limit.
    pub(super) fn new(
        medium: &Medium,
        write_limit: Option<&Arc<WriteLimit>>,
        config: &EngineConfig,
        image: &Image,
        journal: impl FnOnce() -> Result<Arc<dyn Log>, device::JournalError>,
    ) -> Result<Self, OpenError> {
        let shape = image.superblock.shape();
        check_image(config, u64::from(shape.segments), shape.segment_bytes)?;
        let description = config.placement.describe();
        if description.dead_copies != DeadCopies::Located {
            config.check_in_order_of_age()?;
        }
        let index_region = image.index_region(&medium.limited(write_limit, WriteClass::Items))?;
        let log = journal()?;
        let usable = check_journal(&*log, image, config)?;
        let store = open_store(medium, write_limit, config, &image.superblock)?;
        // Checked before anything is read that takes memory.
        let flash_bytes = u64::from(shape.segments) * u64::from(shape.segment_bytes);
        let policy = config.admission.open(AdmissionRoom {
            memory_bytes: config.memory_bytes,
            flash_bytes,
        });
        let gate = Box::new(Gate::new(policy));
        let budget = Budget::divide(config, &shape, &store, &*log, &gate)?;
        Ok(Self {
            shape,
            description,
            index_region,
            log,
            usable,
            store,
            gate,
            budget,
        })
    }

    /// Returns the bits of a hash that choose the partition.
    pub(super) fn partition_bits(&self) -> u32 {
        self.shape.partitions.trailing_zeros()
    }
}

/// Checks whether the journal can be used. One that cannot is refused if the image names another file.
fn check_journal(
    log: &dyn Log,
    image: &Image,
    config: &EngineConfig,
) -> Result<Result<(), Unusable>, OpenError> {
    // A new image takes the journal of an earlier one at its place, but not a journal that was named.
    let takes_others = image.is_new() && !config.journal_is_named;
    let looked = look_at_journal(log, &image.superblock, takes_others, config.force);
    // A void journal is the right one.
    let is_right = matches!(looked, Ok(Ok(()) | Err(Unusable::Void)));
    match (&image.journal_place, log.origin().path) {
        (Some(expected), Some(given)) if !is_right && !config.force && *expected != given => {
            let expected = expected.clone();
            Err(OpenError::JournalMoved { expected, given })
        }
        _ => Ok(looked?),
    }
}

/// Makes the segment store of an image.
fn open_store(
    medium: &Medium,
    write_limit: Option<&Arc<WriteLimit>>,
    config: &EngineConfig,
    superblock: &Superblock,
) -> Result<Arc<SegmentStore>, OpenError> {
    let shape = superblock.shape();
    let streams = config.placement.describe().streams;
    let usual_write_bytes = medium.usual_write_bytes();
    let flash = medium.clone().flash(&shape, config.writing.discard)?;
    let limited = |class| limited_flash(&flash, write_limit, class);
    let store = SegmentStore::new(
        StoreFlash {
            segments: limited(WriteClass::Items),
            checkpoints: limited(WriteClass::Checkpoint),
        },
        streams.streams(shape.segment_bytes),
        &StoreConfig {
            buffers: config.buffers(shape.segment_bytes),
            image: shape.image_id,
            first_sequence: superblock.sequence_limit.get(),
            large_read_bytes: config.large_read_bytes(),
            small_read_bytes: config.small_read_bytes(),
            read_patience: config.write_patience,
            write_bytes: config.writing.write_bytes.unwrap_or(usual_write_bytes),
            counts_reads: config.counts_reads(),
        },
    );
    Ok(Arc::new(store))
}
