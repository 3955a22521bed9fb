//! Jump lists (section 4.1.3): on-flash filters, each over a few blocks of an active list, for a cascade without filters
//! in memory.
//!
//! ```text
//!   newest                                                             oldest, for D = 3
//!   block │ block │ block + filter │ block │ block │ block + filter │ block │ block
//!                   └── it covers these three ────┘  └── and this one these ──────┘
//! ```
//!
//! A filter covers `D = ceil(sqrt(K))` blocks and is written with the newest one, on pages behind those of that block.
//! Each of its pages has the keys of a range of hashes, so that a look-up reads one page. If the page denies the key, the
//! look-up skips up to D reads. The blocks before the first filter of a list are too few for one.
//!
//! Blocks stay in their list and in their order until the whole list or its oldest blocks go. So a filter may cover
//! blocks that are gone, but never lacks keys of a block that it covers.
//!
//! Failure: a page of a filter that cannot be read or does not verify denies nothing.

use crate::encoding::mapping::{self, FILTER_BITS_PER_ENTRY, FILTER_UNIT_BYTES, HEADER_BYTES};
use device::PAGE_BYTES;
use on_flash::bloom::Bloom;

use super::layout::{BlockLayout, PageError, PageRef};
use super::pages::{PageId, PageStore};

/// Average number of keys whose filter fills a page.
const PAGE_KEYS: usize = PAGE_BYTES * 8 / FILTER_BITS_PER_ENTRY as usize;
/// Bytes of filter in a page.
const PAGE_FILTER_BYTES: usize =
    (PAGE_BYTES - HEADER_BYTES) / FILTER_UNIT_BYTES * FILTER_UNIT_BYTES;

/// Returns the number of blocks that a filter covers in lists of up to `blocks`. A distance below two needs no filter.
pub(super) fn distance(blocks: usize) -> usize {
    let root = blocks.isqrt();
    root + usize::from(root * root < blocks)
}

/// Returns the most pages that the filters of a list take, given its blocks and entries.
pub(super) fn most_pages(blocks: usize, entries: usize) -> usize {
    let distance = distance(blocks);
    blocks / distance * (entries / blocks * distance).div_ceil(PAGE_KEYS)
}

fn bloom() -> Bloom {
    Bloom::new(FILTER_BITS_PER_ENTRY)
}

/// Returns the page, of `pages`, that has the keys near a hash.
fn page_of(layout: &BlockLayout, pages: usize, key: u64) -> usize {
    let ours = key << layout.prefix_bits;
    ((u128::from(ours) * pages as u128) >> 64) as usize
}

/// A filter stored with its block.
#[derive(Debug)]
pub(super) struct Jump {
    /// Blocks that it covers: its own, and the next older ones.
    pub(super) blocks: u32,
    pub(super) pages: Box<[PageId]>,
}

/// A filter to be written.
pub(super) struct JumpFilter {
    pub(super) blocks: u32,
    /// The filter bytes of each page.
    pub(super) pages: Vec<Vec<u8>>,
}

impl JumpFilter {
    /// Creates the filter of `blocks` blocks with these keys.
    pub(super) fn new(layout: &BlockLayout, blocks: usize, keys: &[u64]) -> Self {
        let count = keys.len().div_ceil(PAGE_KEYS).max(1);
        let mut pages = vec![vec![0; PAGE_FILTER_BYTES]; count];
        for &key in keys {
            bloom().insert(&mut pages[page_of(layout, count, key)], key);
        }
        Self {
            blocks: blocks as u32,
            pages,
        }
    }
}

impl Jump {
    /// Returns the page that covers a key. `first` is the number of the filter's first page.
    pub(super) fn page(&self, layout: &BlockLayout, first: u64, key: u64) -> PageRef {
        let page = page_of(layout, self.pages.len(), key);
        PageRef {
            page: self.pages[page],
            number: first + page as u64,
        }
    }
}

/// Whether a key may be in the blocks that a filter page covers.
///
/// # Errors
/// If the page cannot be read or does not verify. The key may be there then.
pub(super) async fn may_have(
    store: &PageStore,
    layout: &BlockLayout,
    page: PageRef,
    key: u64,
) -> Result<bool, PageError> {
    let bytes = store.read(page.page).await?;
    let block = mapping::Block::decode(&bytes, layout.image, page.number)?;
    Ok(bloom().contains(block.filter(), key))
}

#[cfg(test)]
mod tests {
    use super::super::slices::Filter;
    use super::*;

    fn layout() -> BlockLayout {
        BlockLayout {
            image: 1,
            prefix_bits: 5,
            filter: Filter::new(8128, 0),
            page_filter: Filter::new(254, 0),
            page_entries: 254,
            whole_blocks: false,
        }
    }

    /// Hashes of one list: the same top bits.
    fn key(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        0b10011 << 59 | (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 5 & !0xff_ffff
    }

    fn says(filter: &JumpFilter, key: u64) -> bool {
        let page = page_of(&layout(), filter.pages.len(), key);
        bloom().contains(&filter.pages[page], key)
    }

    #[test]
    fn a_distance_is_the_root_of_the_length() {
        let distances = [1, 2, 3, 4, 5, 16, 17, 63, 64, 65].map(distance);
        assert_eq!(distances, [1, 2, 2, 2, 3, 4, 5, 8, 8, 9]);
    }

    /// The paper's: 8 blocks of 128 KiB, 2 bytes an entry, 0.5 % (section 4.1.3).
    #[test]
    fn no_more_is_taken_for_there_than_the_paper_has() {
        for blocks in [1, 2, 8] {
            let entries = blocks * 8128;
            let keys: Vec<u64> = (0..entries).map(key).collect();
            let filter = JumpFilter::new(&layout(), blocks as usize, &keys);
            assert_eq!(filter.pages.len() as u64, entries.div_ceil(2048));
            assert!(keys.iter().all(|&key| says(&filter, key)));
            let absent = 1_000_000..2_000_000;
            let wrong = absent.filter(|&number| says(&filter, key(number)));
            let wrong = wrong.count() as f64 / 1e6;
            assert!(wrong <= 0.005, "{blocks} blocks: {wrong}");
            assert!(wrong > 0.0001, "{blocks} blocks: {wrong}");
        }
    }
}
