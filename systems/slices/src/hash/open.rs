//! Creates or opens a table: its superblocks, its log, and the changes in the log that no slicetable has.

use std::sync::Arc;

use crate::encoding::table::SliceKind;
use device::{Disk, Journal};

use super::created::{created_settings, created_shape, superblock_of};
use super::levels::Levels;
use super::{Active, FrozenTable, HashTable, SliceHash};
use crate::counts::Counts;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{self, FLUSHES_PER_DRIVE, Flushes, Partition, State};
use crate::frozen::{Frozen, FrozenQueue};
use crate::incarnations::Incarnations;
use crate::keys::Keys;
use crate::layout::drive_bytes;
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
        let instance = Instance::random();
        let superblock = superblock_of(settings, &shape, instance);
        let (words, layout) = (log_shape.words(), settings.layout());
        superblock::create(&disks, &*journal, words, superblock, &layout).await?;
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
        let found = superblock::read(&disks, SliceKind::Hash).await?;
        let settings = created_settings(&found, settings)?;
        let shape = created_shape(&found)?;
        let log_shape = log_shape(&shape, &settings, disks.len());
        let instance = Instance::of(&found);
        let log = Log::open(journal, log_shape, instance.id)?;
        superblock::check_space(&disks, &found, &settings.layout(), &log.pointers)?;
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
        let layout = settings.layout();
        let drives = Drives::open(disks, &layout, instance, shape.pages, &log.pointers)?;
        let most_keys = shape.page.entries() * shape.pages as usize;
        let mut inner = HashTable {
            filters: Filters::new(shape.partitions, most_keys, settings.filter_bytes),
            flushes: Flushes::new(drives.len(), shape.side_tables),
            levels: Levels::new(shape.partitions, shape.table_entries, shape.places()),
            incarnations: Incarnations {
                count: shape.page.incarnations,
                slicetables: if settings.spread {
                    drives.len() as u32
                } else {
                    1
                },
            },
            shape,
            keys,
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
        flush::all_flushed(&opened.0).await?;
        Ok(opened)
    }
}

impl HashTable {
    /// Returns the state of a partition as the log has it.
    fn replayed(&self, number: u32) -> Result<Partition<Self>, SliceError> {
        let slicetables: Vec<Option<Arc<Region>>> = self
            .drives_of(number)
            .enumerate()
            .map(|(nth, drive)| drive.found(self.log.pointers.get(number, nth as u32)))
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
