//! The start of a table: the shape of its log, and the changes in the log that no slicetable has.

use std::sync::Arc;

use device::Disk;

use super::hash_table::{Active, FrozenTable, HashTable};
use super::levels::Levels;
use crate::counts::Counts;
use crate::drives::Drives;
use crate::error::SliceError;
use crate::filter::Filters;
use crate::flush::{FLUSHES_PER_DRIVE, Flushes, Partition, State};
use crate::frozen::{Frozen, FrozenQueue};
use crate::incarnations::Incarnations;
use crate::keys::Keys;
use crate::log::{Log, LogShape, Replayed};
use crate::regions::Region;
use crate::settings::{HashSettings, HashShape};
use crate::superblock::Instance;
use crate::table::{Change, Full, Table};

/// Entries of a part of the log for each entry of a table: updates of a key take an entry, too.
const LOG_SHARE: f64 = 1.25;

/// Starts a table with the changes in its log that no slicetable has.
pub(super) fn start(
    disks: Vec<Arc<dyn Disk>>,
    log: Log,
    settings: &HashSettings,
    shape: HashShape,
    instance: Instance,
) -> Result<HashTable, SliceError> {
    let keys = Keys {
        seed: instance.seed,
        partitions: shape.partitions,
        slots: shape.pages * shape.page.slots as u32,
    };
    let layout = settings.layout();
    let drives = Drives::open(disks, &layout, instance, shape.pages, &log.pointers)?;
    let most_keys = shape.page.entries() * shape.pages as usize;
    let mut table = HashTable {
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
    table.partitions = (0..shape.partitions)
        .map(|partition| replayed(&table, partition))
        .collect::<Result<_, _>>()?;
    Ok(table)
}

/// Returns the state of a partition as the log has it.
fn replayed(table: &HashTable, number: u32) -> Result<Partition<HashTable>, SliceError> {
    let slicetables: Vec<Option<Arc<Region>>> = table
        .drives_of(number)
        .enumerate()
        .map(|(nth, drive)| drive.found(table.log.pointers.get(number, nth as u32)))
        .collect();
    let written = slicetables
        .iter()
        .flatten()
        .map(|region| region.generation)
        .max()
        .unwrap_or(0);
    let table_of = |found: Replayed| -> Result<Active, SliceError> {
        let table = with_changes(table.new_table(), number, found.changes)?;
        let part = found.part;
        Ok(Active { table, part })
    };
    let found = table.log.replay(number, written)?.into_iter();
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

/// Returns a partition's table with these changes. `table` is empty.
fn with_changes(
    mut table: Table,
    number: u32,
    changes: Vec<(u64, Change)>,
) -> Result<Table, SliceError> {
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

/// Returns the division of the log of a table with this shape.
pub(super) fn log_shape(shape: &HashShape, settings: &HashSettings, drives: usize) -> LogShape {
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
