//! Creates or opens a table: its superblocks, its log, and the changes in the log that no slicetable has.

use std::sync::Arc;

use device::{Disk, Journal};
use format::slices::SliceKind;
use format::slices_log::Pointer;

use super::created::{created_settings, created_shape, superblock_of};
use super::levels::Levels;
use super::stats::Counts;
use super::{Active, FrozenTable, Inner, SliceHash};
use crate::drive::{TableShape, drives};
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{self, FLUSHES_PER_DRIVE, Flushes, Partition, State};
use crate::frozen::{Frozen, FrozenQueue};
use crate::keys::Keys;
use crate::layout::{drive_bytes, refuse_parts, refuse_twice};
use crate::log::{Log, LogShape, Replayed};
use crate::regions::Region;
use crate::settings::{HashSettings, HashShape};
use crate::superblock::{self, Instance};
use crate::table::{Change, Full, Table};

/// Entries of a part of the log for each entry of a table: updates of a key take an entry, too.
const LOG_SHARE: f64 = 1.25;

impl SliceHash {
    /// Returns the words of the log of a table with these settings on drives of these sizes.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words(settings: &HashSettings, drive_bytes: &[u64]) -> Result<usize, SliceError> {
        let shape = settings.shape(drive_bytes)?;
        Ok(log_shape(&shape, settings, drive_bytes.len()).words())
    }

    /// Returns [`log_words`](Self::log_words) for these drives.
    ///
    /// # Errors
    /// As [`HashSettings::shape`].
    pub fn log_words_for(
        settings: &HashSettings,
        disks: &[Arc<dyn Disk>],
    ) -> Result<usize, SliceError> {
        Self::log_words(settings, &drive_bytes(disks))
    }

    /// Creates an empty table on `disks`, whose contents are lost, with a log of at least [`log_words`](Self::log_words).
    ///
    /// # Errors
    /// Settings that are out of range, and errors of the devices.
    pub async fn create(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        let shape = settings.shape(&drive_bytes(&disks))?;
        let log_shape = log_shape(&shape, settings, disks.len());
        refuse_parts(&disks, &*journal, log_shape.words())?;
        let instance = Instance::random();
        let superblock = superblock_of(settings, &shape, instance);
        superblock::write(&disks, superblock, &settings.layout()).await?;
        let log = Log::create(journal, log_shape, instance.id)?;
        log.sync(|_| (), || ()).await?;
        Self::start(disks, log, settings, shape, instance).await
    }

    /// Opens the table on `disks`, named in the order of its creation, with its log. Changes that had not reached a drive are
    /// taken from the log. `settings` says how the table is used; values that were chosen at its creation are kept.
    ///
    /// # Errors
    /// If the disks hold no table, if a drive or the log is missing, belongs to another structure or is shorter than it was, if a
    /// setting is out of range, and errors of the devices.
    pub async fn open(
        disks: Vec<Arc<dyn Disk>>,
        journal: Arc<dyn Journal>,
        settings: &HashSettings,
    ) -> Result<Self, SliceError> {
        refuse_twice(&disks)?;
        let found = superblock::read(&disks, SliceKind::Hash).await?;
        let settings = created_settings(&found, settings)?;
        let shape = created_shape(&found)?;
        superblock::check_space(&disks, &found, &settings.layout(), |_| Vec::new())?;
        let log_shape = log_shape(&shape, &settings, disks.len());
        let instance = Instance::of(&found);
        let log = Log::open(journal, log_shape, instance.id)?;
        let pointers = |drive| pointers_of(&log, &shape, settings.spread, disks.len(), drive);
        superblock::check_space(&disks, &found, &settings.layout(), pointers)?;
        Self::start(disks, log, &settings, shape, instance).await
    }

    async fn start(
        disks: Vec<Arc<dyn Disk>>,
        log: Log,
        settings: &HashSettings,
        shape: HashShape,
        instance: Instance,
    ) -> Result<Self, SliceError> {
        let keys = Keys {
            seed: instance.seed,
            partitions: shape.partitions,
            slots: shape.pages * shape.page.slots as u32,
        };
        let table_shape = TableShape {
            instance: instance.id,
            is_new: instance.is_new,
            pages: shape.pages,
            page_bytes: shape.page.page_bytes,
            piece_bytes: settings.piece_bytes as usize,
            head_bytes: settings.layout().head_bytes(),
            channels: settings.channels,
        };
        let count = disks.len();
        let pointers = |number| pointers_of(&log, &shape, settings.spread, count, number);
        let drives = drives(disks, table_shape, settings.scheduling, pointers)?;
        let most_keys = shape.page.entries() * shape.pages as usize;
        let mut inner = Inner {
            filters: Filters::new(shape.partitions, most_keys, settings.filter_bytes),
            flushes: Flushes::new(count, shape.side_tables),
            levels: Levels::new(shape.partitions, shape.table_entries, shape.places()),
            shape,
            keys,
            is_spread: settings.spread,
            drives,
            partitions: Box::new([]),
            log,
            counts: Counts::default(),
        };
        inner.partitions = (0..shape.partitions)
            .map(|partition| inner.replayed(partition))
            .collect::<Result<_, _>>()?;
        let opened = Self(Arc::new(inner));
        // Makes the changes found in the log durable. The first new change overwrites the count that covers them.
        opened.sync().await?;
        for number in 0..shape.partitions {
            flush::flushed(&opened.0, number).await?;
        }
        Ok(opened)
    }
}

impl Inner {
    /// Returns the state of a partition as the log has it.
    fn replayed(&self, number: u32) -> Result<Partition<Self>, SliceError> {
        let slicetables: Vec<Option<Arc<Region>>> = self
            .drives_of(number)
            .enumerate()
            .map(|(nth, drive)| {
                let pointer = self.log.pointers.get(number, nth as u32);
                let used = || Arc::new(drive.regions.used(pointer.region, pointer.generation));
                (pointer.generation > 0).then(used)
            })
            .collect();
        let written = slicetables
            .iter()
            .flatten()
            .map(|region| region.generation)
            .max()
            .unwrap_or(0);
        let table_of = |found: Replayed| -> Result<Active, SliceError> {
            let table = self.table_of(number, found.changes)?;
            let part = found.part;
            Ok(Active { table, part })
        };
        let found = self.log.replay(number, written)?.into_iter();
        let mut tables = found.map(table_of).collect::<Result<Vec<_>, _>>()?;
        let active = tables.pop().expect("one is to go on with");
        let generation = written + 1 + tables.len() as u32;
        let left = (written + 1..).zip(tables).map(|(generation, full)| {
            let (table, part) = (Arc::new(full.table), full.part);
            Frozen::left(FrozenTable { table, part }, generation)
        });
        Ok(Partition::new(State {
            active,
            generation,
            frozen: FrozenQueue::left(left),
            slicetables,
        }))
    }

    fn table_of(&self, number: u32, changes: Vec<(u64, Change)>) -> Result<Table, SliceError> {
        let mut table = self.new_table();
        for (key, change) in changes {
            // Changes that fitted once fit again: places follow from the order of changes.
            table
                .insert(key, change)
                .map_err(|Full| SliceError::DamagedLog {
                    partition: number,
                    what: "its entries do not fit a table",
                })?;
        }
        Ok(table)
    }
}

fn log_shape(shape: &HashShape, settings: &HashSettings, drives: usize) -> LogShape {
    LogShape {
        partitions: shape.partitions,
        drives: if settings.spread { drives as u32 } else { 1 },
        spare_parts: drives as u32 * (FLUSHES_PER_DRIVE + shape.side_tables),
        entries: match settings.log_changes {
            true => (f64::from(shape.table_entries) * LOG_SHARE) as u32 + 1,
            false => 0,
        },
    }
}

/// Returns the pointers to the slicetables on a drive, one for each of its partitions.
fn pointers_of(
    log: &Log,
    shape: &HashShape,
    is_spread: bool,
    drives: usize,
    drive: usize,
) -> Vec<(u32, Pointer)> {
    let (first, step, nth) = match is_spread {
        true => (0, 1, drive as u32),
        false => (drive as u32, drives, 0),
    };
    let partitions = (first..shape.partitions).step_by(step);
    let pointers = partitions.map(|partition| (partition, log.pointers.get(partition, nth)));
    pointers.collect()
}
