//! Blocks of mappings on flash: what memory knows of them, and how they are written and read.
//!
//! A block is sorted by hash and lies in pages that each verify on their own, so that a look-up reads the one page in which
//! a key is if it is in the block. Memory keeps of each page where it lies, and the beginning of its first hash; filters of
//! whole blocks are [`Slices`](super::slices::Slices).

use std::ops::Range;
use std::sync::Arc;

use device::{AlignedBuf, DeviceError, PAGE_BYTES};
use format::cascade::BlockHead;
use format::mapping::{self, BlockError, Entry};

use super::pages::{PageId, PageStore};
use super::slices::Filter;

/// A page of a block, and the number by which it tells itself from what lay there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    pub(super) page: PageId,
    pub(super) number: u64,
}

/// A block on flash.
#[derive(Debug)]
pub(super) struct Block {
    /// Number of its first page; those of the others follow.
    pub(super) number: u64,
    /// The highest segment number in it.
    pub(super) newest: u32,
    pub(super) entries: u32,
    pub(super) pages: Box<[PageId]>,
    /// For each page, 16 bits of its first hash, behind those that are the same for the whole block.
    fences: Box<[u16]>,
    /// Whether it has its filter: after a start it is made when the block has been read.
    pub(super) is_filtered: bool,
}

/// What blocks are written with.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLayout {
    pub(super) image: u64,
    /// Bits of a hash that are the same for the whole block.
    pub(super) prefix_bits: u32,
    /// Filters of whole blocks, and of pages.
    pub(super) filter: Filter,
    pub(super) page_filter: Filter,
    /// Entries in a page.
    pub(super) page_entries: usize,
}

/// Why a page of a block gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error("a page of the index cannot be read: {0}")]
    Device(#[from] DeviceError),
    #[error("a page of the index is damaged: {0}")]
    Damaged(#[from] BlockError),
}

impl PageError {
    /// Whether reading it again may help.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Device(_))
    }
}

impl BlockLayout {
    /// Pages of a block of so many entries.
    pub(super) fn pages_for(&self, entries: usize) -> usize {
        entries.div_ceil(self.page_entries)
    }

    fn fence(&self, hash: u64) -> u16 {
        (hash << self.prefix_bits >> 48) as u16
    }
}

impl Block {
    /// Bytes of memory that it takes beside its own.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.pages) + size_of_val(&*self.fences)
    }

    pub(super) fn page_refs(&self) -> impl Iterator<Item = PageRef> {
        let numbered = self.pages.iter().zip(self.number..);
        numbered.map(|(&page, number)| PageRef { page, number })
    }

    /// Whether it is this page of it.
    pub(super) fn has(&self, page: PageRef) -> bool {
        self.page_refs().any(|of_block| of_block == page)
    }

    /// The pages that may have a key, by its beginning: one, or two where one begins as the one before ends, or none.
    pub(super) fn span(&self, layout: &BlockLayout, key: u64) -> Range<usize> {
        let fence = layout.fence(key);
        let end = self.fences.partition_point(|&first| first <= fence);
        let before = self.fences[..end].partition_point(|&first| first < fence);
        before.saturating_sub(1)..end
    }

    pub(super) fn page(&self, page: usize) -> PageRef {
        PageRef {
            page: self.pages[page],
            number: self.number + page as u64,
        }
    }

    /// What a checkpoint has of it, beside its pages and [`fences`](Self::fences).
    pub(super) fn head(&self) -> BlockHead {
        BlockHead {
            number: self.number.into(),
            newest: self.newest.into(),
            entries: self.entries.into(),
        }
    }

    pub(super) fn fences(&self) -> &[u16] {
        &self.fences
    }

    /// The block of which a checkpoint tells.
    pub(super) fn saved(head: &BlockHead, pages: Box<[PageId]>, fences: Box<[u16]>) -> Self {
        Self {
            number: head.number.get(),
            newest: head.newest.get(),
            entries: head.entries.get(),
            pages,
            fences,
            is_filtered: false,
        }
    }

    /// Whether its filter is still to be made.
    pub(super) fn lacks_filter(&self, filter: &Filter) -> bool {
        filter.is_kept() && !self.is_filtered
    }
}

/// A block that is to be written: its pages, and what will be known of it.
pub(super) struct Draft {
    pub(super) block: Block,
    bytes: Arc<AlignedBuf>,
}

impl Draft {
    /// The block of some entries, one a key and sorted by it, on pages that have been taken for it.
    pub(super) fn new(
        layout: &BlockLayout,
        number: u64,
        entries: &[Entry],
        pages: Box<[PageId]>,
    ) -> Self {
        debug_assert_eq!(pages.len(), layout.pages_for(entries.len()));
        debug_assert!(entries.is_sorted_by(|one, other| one.key() < other.key()));
        let contents: Vec<_> = entries.chunks(layout.page_entries).collect();
        let fences = entries.chunks(layout.page_entries);
        let fences = fences.map(|page| layout.fence(page[0].key())).collect();
        Self {
            block: Block {
                number,
                newest: newest(entries),
                entries: entries.len() as u32,
                pages,
                fences,
                is_filtered: true,
            },
            bytes: encode_pages(layout.image, number, &contents),
        }
    }

    /// Writes the block to the pages that have been taken for it.
    ///
    /// # Errors
    /// What the device says; then its pages are still taken.
    pub(super) async fn write(&self, store: &PageStore) -> Result<(), DeviceError> {
        store.write(&self.block.pages, &self.bytes).await
    }
}

/// The highest segment number of some entries; 0 where all are tombstones.
pub(super) fn newest(entries: &[Entry]) -> u32 {
    let named = entries.iter().filter_map(Entry::item);
    named.map(|(segment, _)| segment).max().unwrap_or(0)
}

/// The bytes of pages that are blocks each.
pub(super) fn encode_pages(image: u64, first: u64, contents: &[&[Entry]]) -> Arc<AlignedBuf> {
    let mut bytes = AlignedBuf::new(contents.len() * PAGE_BYTES);
    let pages = contents.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES));
    for ((entries, page), number) in pages.zip(first..) {
        mapping::encode(page, image, number, entries, &[]);
    }
    Arc::new(bytes)
}

/// Looks for a key in a page.
///
/// # Errors
/// Where the page cannot be read, or is not what it should be.
pub(super) async fn find(
    store: &PageStore,
    layout: &BlockLayout,
    page: PageRef,
    hash: u64,
) -> Result<Option<Entry>, PageError> {
    let bytes = store.read(page.page).await?;
    Ok(mapping::Block::decode(&bytes, layout.image, page.number)?.find(hash))
}

/// Reads all entries of a page.
///
/// # Errors
/// Where the page cannot be read, or is not what it should be.
pub(super) async fn read(
    store: &PageStore,
    layout: &BlockLayout,
    page: PageRef,
    entries: &mut Vec<Entry>,
) -> Result<(), PageError> {
    let bytes = store.read(page.page).await?;
    entries.extend(mapping::Block::decode(&bytes, layout.image, page.number)?.entries());
    Ok(())
}
