//! A look-up: the tables in memory, newest first, then a page of the slicetable, or a page of each slicetable if slices are
//! spread.

use futures_util::future::join_all;

use super::hash_table::HashTable;
use crate::drive::Drive;
use crate::error::SliceError;
use crate::keys::Slots;
use crate::page::Page;
use crate::regions::Region;
use crate::table::Change;

/// The result of a look-up on one drive.
struct FoundOn {
    change: Option<(u32, Change)>,
    /// Entries of generations up to this one do not count.
    floor: u32,
    /// Pages that the look-up has read.
    pages: u64,
}

/// Returns the value of a key.
pub(super) async fn get(table: &HashTable, key: u64) -> Result<Option<u64>, SliceError> {
    table.counts.add(|counts| counts.lookups = 1);
    let number = table.keys.partition(key);
    let (first, others) = {
        let state = table.partitions[number as usize].state.lock();
        if let Some(change) = state.known(key) {
            table.counts.add(|counts| counts.memory_hits = 1);
            return Ok(value_of(change));
        }
        // Without spread slices this is empty, and nothing is allocated.
        let others = state.slicetables[1..].to_vec();
        (state.slicetables[0].clone(), others)
    };
    let slots = table.keys.slots(key);
    if !table.filters.may_have(number, slots) {
        table.counts.add(|counts| counts.spared = 1);
        return Ok(None);
    }
    let search = Search {
        table,
        number,
        key,
        slots,
    };
    let mut drives = table.drives_of(number);
    let drive = drives.next().expect("slicetables lie on drives");
    if others.is_empty() {
        let Some(region) = first else {
            return Ok(None);
        };
        let found = search.on(drive, &region).await?;
        let value = found.change.and_then(|(_, change)| value_of(change));
        count_answer(table, value, found.pages);
        return Ok(value);
    }
    let slicetables = std::iter::once(&first).chain(&others);
    let searches = std::iter::once(drive)
        .chain(drives)
        .zip(slicetables)
        .filter_map(|(drive, region)| {
            let region = region.as_deref()?;
            Some(search.on(drive, region))
        });
    let mut youngest: Option<(u32, Change)> = None;
    let (mut floor, mut pages) = (0, 0);
    for found in join_all(searches).await {
        let found = found?;
        pages += found.pages;
        floor = floor.max(found.floor);
        if found.change.map(|(generation, _)| generation)
            > youngest.map(|(generation, _)| generation)
        {
            youngest = found.change;
        }
    }
    let is_known = youngest.is_some_and(|(generation, _)| generation > floor);
    let value = youngest
        .filter(|_| is_known)
        .and_then(|(_, change)| value_of(change));
    count_answer(table, value, pages);
    Ok(value)
}

fn count_answer(table: &HashTable, value: Option<u64>, pages: u64) {
    table.counts.add(|counts| match value {
        Some(_) => counts.drive_hits = 1,
        None => counts.absent_page_reads = pages,
    });
}

/// A search for a key of a partition in the partition's slicetables.
struct Search<'a> {
    table: &'a HashTable,
    number: u32,
    key: u64,
    slots: Slots,
}

impl Search<'_> {
    /// Looks in a slicetable: in its first slot, and in its second if it may have overflowed.
    async fn on(&self, drive: &Drive, region: &Region) -> Result<FoundOn, SliceError> {
        let (table, slots) = (self.table, self.slots);
        let shape = &table.shape.page;
        let per_page = shape.slots as u32;
        let found = |change: Option<(usize, Change)>, floor, pages| FoundOn {
            pages,
            change: change.and_then(|(incarnation, change)| {
                let generation = table
                    .incarnations
                    .generation(region.generation, incarnation)?;
                Some((generation, change))
            }),
            floor,
        };
        let first = drive
            .read_page(region, self.number, slots.first / per_page)
            .await?;
        let page = Page {
            shape,
            bytes: &first.bytes,
        };
        let in_first = page.find((slots.first % per_page) as usize, self.key);
        if in_first.is_some() || !page.may_have_overflowed(slots) {
            return Ok(found(in_first, first.floor, 1));
        }
        let second_slot = (slots.second % per_page) as usize;
        if slots.first / per_page == slots.second / per_page {
            return Ok(found(page.find(second_slot, self.key), first.floor, 1));
        }
        let second = drive
            .read_page(region, self.number, slots.second / per_page)
            .await?;
        let page = Page {
            shape,
            bytes: &second.bytes,
        };
        Ok(found(
            page.find(second_slot, self.key),
            first.floor.max(second.floor),
            2,
        ))
    }
}

fn value_of(change: Change) -> Option<u64> {
    match change {
        Change::Value(value) => Some(value),
        Change::Delete => None,
    }
}
