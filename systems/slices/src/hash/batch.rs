//! The full tables of a partition that one flush writes into its slicetable, as consecutive incarnations.
//!
//! A flush reads and writes the slicetable once, however many tables it takes along: the more tables, the fewer bytes for each
//! entry. If several tables have a key, only its newest change is written.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::encoding::table::EntryPage;

use crate::keys::{Keys, Slots};
use crate::page::PageMut;
use crate::table::{Change, Table};

/// A table that is written, and the incarnation that it becomes.
pub(super) struct Member {
    pub(super) table: Arc<Table>,
    pub(super) incarnation: usize,
}

/// The tables of a flush.
pub(super) struct Batch<'a> {
    shape: &'a EntryPage,
    keys: Keys,
    /// Whether deletes are written: other slicetables may then have older copies of their keys.
    keeps_deletes: bool,
    /// The tables that are written, oldest first, each with the slots of its overflowed keys in the order of their pages.
    members: Vec<(Member, Peekable<IntoIter<Slots>>)>,
    pub(super) evicted: u64,
    pub(super) erased: u64,
}

impl<'a> Batch<'a> {
    /// Returns a batch of these tables, oldest first, each of another incarnation.
    pub(super) fn new(
        shape: &'a EntryPage,
        keys: Keys,
        keeps_deletes: bool,
        members: Vec<Member>,
    ) -> Self {
        let with_overflowed = |member: Member| {
            let mut overflowed: Vec<Slots> = member.table.overflowed().collect();
            overflowed.sort_unstable_by_key(|slots| slots.first);
            (member, overflowed.into_iter().peekable())
        };
        Self {
            shape,
            keys,
            keeps_deletes,
            members: members.into_iter().map(with_overflowed).collect(),
            evicted: 0,
            erased: 0,
        }
    }

    /// Returns the number of changes in all tables of the batch.
    pub(super) fn len(&self) -> usize {
        self.members.iter().map(|(of, _)| of.table.len()).sum()
    }

    /// Returns the number of tables.
    pub(super) fn tables(&self) -> usize {
        self.members.len()
    }

    /// Brings the tables into a page of the slicetable. Called for the pages in their order. Calls `note` with each key that the
    /// page has then, and `gone` with each value that it no longer has.
    pub(super) fn change(
        &mut self,
        page_number: u32,
        bytes: &mut [u8],
        note: &mut impl FnMut(u64),
        mut gone: impl FnMut(u64),
    ) {
        let shape = self.shape;
        let mut page = PageMut { shape, bytes };
        for (member, _) in &self.members {
            self.evicted += page.evict(member.incarnation, &mut gone);
        }
        self.erased += page.erase(|key| self.is_in(0, key), &mut *note, &mut gone);
        let slots = shape.slots as u32;
        for (nth, (member, _)) in self.members.iter().enumerate() {
            for slot in 0..slots {
                let is_kept = |&(key, change): &(u64, Change)| {
                    let is_newest = nth + 1 == self.members.len() || !self.is_in(nth + 1, key);
                    is_newest && (self.keeps_deletes || change != Change::Delete)
                };
                let bucket = member.table.bucket(page_number * slots + slot);
                let bucket = bucket.filter(is_kept).inspect(|&(key, _)| note(key));
                page.put(slot as usize, member.incarnation, bucket);
            }
        }
        for (member, overflowed) in &mut self.members {
            while let Some(of) = overflowed.next_if(|of| of.first / slots == page_number) {
                page.note_overflow(member.incarnation, of);
            }
        }
    }

    /// Returns whether a table from number `from` on has a key.
    fn is_in(&self, from: usize, key: u64) -> bool {
        let slots = self.keys.slots(key);
        let mut tables = self.members[from..].iter();
        tables.any(|(member, _)| member.table.has(key, slots))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::page::Page;

    const SHAPE: (usize, usize) = (8, 4);

    fn keys() -> Keys {
        Keys {
            seed: 5,
            partitions: 1,
            slots: 8,
        }
    }

    /// Returns the changes of a key in a slicetable of four pages, as a look-up would find them.
    fn found(shape: &EntryPage, pages: &[Vec<u8>], key: u64) -> Vec<Change> {
        let slots = keys().slots(key);
        let page = |slot: u32| Page {
            shape,
            bytes: &pages[slot as usize / shape.slots],
        };
        let in_slot = |slot: u32| page(slot).find(slot as usize % shape.slots, key);
        let first = in_slot(slots.first);
        let second = page(slots.first).may_have_overflowed(slots);
        let second = second.then(|| in_slot(slots.second)).flatten();
        first
            .into_iter()
            .chain(second)
            .map(|(_, change)| change)
            .collect()
    }

    proptest! {
        /// However tables are batched, a slicetable has the newest value of a key once, and no value of a deleted key.
        #[test]
        fn the_newest_change_of_a_key_stays(
            flushes in prop::collection::vec(
                prop::collection::vec(
                    prop::collection::vec((0_u64..60, prop::option::of(any::<u64>())), 0..30),
                    1..5,
                ),
                1..3,
            ),
        ) {
            let shape = EntryPage::of(4096, SHAPE.0, 2, SHAPE.1).expect("it fits");
            let mut pages = vec![vec![0; 4096]; 4];
            let mut model = HashMap::new();
            let mut incarnation = 0;
            for tables in flushes {
                let mut members = Vec::new();
                for changes in tables {
                    let mut table = Table::new(keys(), SHAPE.1, usize::MAX);
                    for (key, value) in changes {
                        let change = value.map_or(Change::Delete, Change::Value);
                        if table.insert(key, change).is_ok() {
                            model.insert(key, change);
                        }
                    }
                    table.settle();
                    members.push(Member { table: Arc::new(table), incarnation });
                    incarnation += 1;
                }
                let mut batch = Batch::new(&shape, keys(), false, members);
                for (number, page) in pages.iter_mut().enumerate() {
                    let mut noted = Vec::new();
                    batch.change(number as u32, page, &mut |key| noted.push(key), |_| ());
                    let page = Page { shape: &shape, bytes: page };
                    let mut there: Vec<u64> = page.entries().map(|(_, key, _)| key).collect();
                    there.sort_unstable();
                    noted.sort_unstable();
                    prop_assert_eq!(noted, there);
                }
            }
            for key in 0..60 {
                let expected: Vec<Change> = match model.get(&key) {
                    Some(&Change::Value(value)) => vec![Change::Value(value)],
                    _ => Vec::new(),
                };
                prop_assert_eq!(found(&shape, &pages, key), expected);
            }
        }
    }
}
