//! The page of a region that a slot of a table has. All chunks of a table lie on one channel, different tables on different
//! channels (section 6).
//!
//! ```text
//!            channel 0    1      2    …   C-1
//!   row 0   │ table 0 │  1   │  2   │ … │       a chunk each
//!   row 1   │ table 0 │  1   │  2   │ … │       layer 0: as many rows as a sub-table has chunks
//!     …
//!   row r   │ …                                 layer 1: the tables for which layer 0 had no column
//! ```
//!
//! A region is rows of one chunk for each channel. A column of a layer belongs to one table. With more channels than tables, a
//! table has several *sub-tables*, each with a column of its own, so that most channels are used; a key's hash chooses the
//! sub-table. With fewer channels, tables share a channel, in layers. The number of sub-tables is chosen so that no channel has
//! much more to do than others.

/// Maximum ratio of the pages of the fullest channel to the mean, in the sub-tables of a region.
const MOST_LOAD: f64 = 1.1;

/// The places of slots in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LshLayout {
    /// LSH tables of the index.
    pub tables: u32,
    /// Parts that each LSH table is divided into, so that more channels have some of its pages.
    pub sub_tables: u32,
    /// Slots of a part, a page each: whole chunks.
    pub slots: u32,
    /// Channels of a drive, over which sub-tables are spread.
    pub channels: u32,
    /// Pages of a chunk, which lie on one channel.
    pub pages_per_chunk: u32,
}

/// Returns the fewest sub-tables that use the channels evenly.
pub(crate) fn sub_tables(tables: u32, channels: u32) -> u32 {
    let load = |&sub_tables: &u32| {
        let all = tables * sub_tables;
        let fullest = all.div_ceil(channels);
        f64::from(fullest) * f64::from(channels) / f64::from(all)
    };
    // With as many sub-tables as channels, each channel has one of every table.
    ((channels / tables).max(1)..=channels)
        .find(|sub_tables| load(sub_tables) <= MOST_LOAD)
        .unwrap_or(channels)
}

impl LshLayout {
    /// Returns the chunks of a sub-table, one in each row of its channel.
    fn rows(&self) -> u32 {
        self.slots / self.pages_per_chunk
    }

    /// Returns the columns that are used: one for each sub-table of each table.
    fn columns(&self) -> u32 {
        self.tables * self.sub_tables
    }

    /// Returns the pages of a region, including those that fill its last stripe.
    pub fn pages(&self) -> u32 {
        let layers = self.columns().div_ceil(self.channels);
        layers * self.rows() * self.channels * self.pages_per_chunk
    }

    /// Returns the slots of all tables of a partition, a page each.
    pub(crate) fn all_slots(&self) -> usize {
        self.columns() as usize * self.slots as usize
    }

    /// Returns the number of a slot among the slots of all tables.
    pub(crate) fn number(&self, table: u32, sub_table: u32, slot: u32) -> usize {
        (sub_table * self.tables + table) as usize * self.slots as usize + slot as usize
    }

    /// Returns the page of a slot. Neighbouring tables lie on neighbouring channels. A query reads one slot of each table.
    pub(crate) fn page(&self, number: usize) -> u32 {
        let (column, slot) = (number as u32 / self.slots, number as u32 % self.slots);
        let (layer, channel) = (column / self.channels, column % self.channels);
        let row = layer * self.rows() + slot / self.pages_per_chunk;
        (row * self.channels + channel) * self.pages_per_chunk + slot % self.pages_per_chunk
    }

    /// Returns the slot that has a page; `None` if the page is in an unused column.
    pub(crate) fn slot_of(&self, page: u32) -> Option<usize> {
        let (chunk, within) = (page / self.pages_per_chunk, page % self.pages_per_chunk);
        let (row, channel) = (chunk / self.channels, chunk % self.channels);
        let column = row / self.rows() * self.channels + channel;
        let slot = row % self.rows() * self.pages_per_chunk + within;
        (column < self.columns()).then(|| column as usize * self.slots as usize + slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn layout(tables: u32, channels: u32) -> LshLayout {
        LshLayout {
            tables,
            sub_tables: sub_tables(tables, channels),
            slots: 6,
            channels,
            pages_per_chunk: 2,
        }
    }

    #[test]
    fn pages_and_slots_answer_to_each_other() {
        for (tables, channels) in [
            (10, 1),
            (10, 4),
            (10, 8),
            (10, 10),
            (10, 32),
            (3, 7),
            (1, 5),
        ] {
            let layout = layout(tables, channels);
            let pages: HashSet<u32> = (0..layout.all_slots())
                .map(|slot| layout.page(slot))
                .collect();
            assert_eq!(pages.len(), layout.all_slots());
            for page in 0..layout.pages() {
                match layout.slot_of(page) {
                    Some(slot) => assert_eq!(layout.page(slot), page),
                    None => assert!(!pages.contains(&page)),
                }
            }
            assert!(pages.iter().all(|&page| page < layout.pages()));
        }
    }

    #[test]
    fn a_sub_table_has_one_channel_and_channels_have_equally_many() {
        for tables in [1, 5, 10, 20] {
            for channels in 1..=40 {
                let layout = layout(tables, channels);
                let channel = |slot| layout.page(slot) / layout.pages_per_chunk % channels;
                let mut load = vec![0_u32; channels as usize];
                for slot in 0..layout.all_slots() {
                    assert_eq!(channel(slot), channel(slot - slot % layout.slots as usize));
                    load[channel(slot) as usize] += 1;
                }
                let mean = layout.all_slots() as f64 / f64::from(channels);
                let fullest = load.into_iter().max().expect("there is a channel");
                assert!(f64::from(fullest) <= 1.2 * mean, "{layout:?}");
            }
        }
    }

    #[test]
    fn tables_of_a_query_lie_on_different_channels_where_there_are_enough() {
        assert_eq!(sub_tables(10, 10), 1);
        assert_eq!(sub_tables(10, 32), 3);
        assert_eq!(sub_tables(10, 8), 3);
        assert_eq!(sub_tables(10, 1), 1);
        let layout = layout(10, 10);
        let channels: HashSet<u32> = (0..10)
            .map(|table| layout.page(layout.number(table, 0, 3)) / 2 % 10)
            .collect();
        assert_eq!(channels.len(), 10);
    }
}
