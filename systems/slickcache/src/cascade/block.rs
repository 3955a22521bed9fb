//! Blocks of mappings on flash: their state in memory, reads and writes.
//!
//! A block is sorted by hash. Each of its pages verifies on its own, so a look-up reads only the page that may hold the
//! key. Memory keeps the place of each page and the beginning of its first hash; filters of whole blocks are in
//! [`Slices`](super::slices::Slices).

use std::ops::Range;
use std::sync::Arc;

use crate::encoding::cascade::BlockHead;
use crate::encoding::mapping::{self, Entry};
use device::{AlignedBuf, DeviceError, PAGE_BYTES};

use super::jump::{Jump, JumpFilter};
use super::layout::{BlockLayout, PageError, PageRef};
use super::pages::{PageId, PageStore};
use super::slices::Filter;

/// One step of a search.
#[derive(Clone, Debug)]
pub(super) enum Read {
    /// Read a page that may have the key.
    Page(PageRef),
    /// Read a whole block, in which this range of pages may have the key.
    Block(Box<[PageRef]>, Range<usize>),
    /// Read a page of a jump filter. If it denies the key, skip this many of the reads behind it.
    Jump(PageRef, usize),
}

impl Read {
    pub(super) fn pages(&self) -> usize {
        match self {
            Self::Page(_) | Self::Jump(..) => 1,
            Self::Block(pages, _) => pages.len(),
        }
    }
}

/// A block on flash.
#[derive(Debug)]
pub(super) struct Block {
    /// Number of its first page; those of the others follow.
    pub(super) number: u64,
    /// The highest segment number in the block.
    pub(super) newest: u32,
    pub(super) entries: u32,
    pub(super) pages: Box<[PageId]>,
    /// Filter of this block and older blocks of its list, if it is stored with this one.
    pub(super) jump: Option<Jump>,
    /// 16 bits of hash behind the prefix that the block shares: of the first hash of each page, then of the last hash.
    fences: Box<[u16]>,
    /// Whether its filter is in memory. After a start the filter is made from the block's pages.
    pub(super) is_filtered: bool,
}

impl Block {
    /// Returns the bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        let jump = self.jump.as_ref();
        let jump = jump.map_or(0, |jump| size_of_val(&*jump.pages));
        size_of_val(&*self.pages) + size_of_val(&*self.fences) + jump
    }

    /// Returns all pages in use, those of the jump filter included.
    pub(super) fn all_pages(&self) -> impl Iterator<Item = PageId> {
        let jump = self.jump.iter().flat_map(|jump| &jump.pages);
        self.pages.iter().chain(jump).copied()
    }

    pub(super) fn page_refs(&self) -> impl Iterator<Item = PageRef> {
        let numbered = self.pages.iter().zip(self.number..);
        numbered.map(|(&page, number)| PageRef { page, number })
    }

    /// Whether the block has this page.
    pub(super) fn has(&self, page: PageRef) -> bool {
        self.page_refs().any(|of_block| of_block == page)
    }

    /// Returns the range of pages that may have a key, judged by 16 bits of its hash: none or one, plus a page for each
    /// first hash with the same bits.
    pub(super) fn span(&self, layout: &BlockLayout, key: u64) -> Range<usize> {
        let fence = layout.fence(key);
        let Some((&last, firsts)) = self.fences.split_last() else {
            return 0..0;
        };
        if fence > last {
            return 0..0;
        }
        let end = firsts.partition_point(|&first| first <= fence);
        let before = firsts[..end].partition_point(|&first| first < fence);
        before.saturating_sub(1)..end
    }

    fn page(&self, page: usize) -> PageRef {
        PageRef {
            page: self.pages[page],
            number: self.number + page as u64,
        }
    }

    /// Appends the reads for a range of pages that may have a key.
    pub(super) fn append_reads(
        &self,
        layout: &BlockLayout,
        may_have: Range<usize>,
        reads: &mut Vec<Read>,
    ) {
        if layout.whole_blocks {
            reads.push(Read::Block(self.page_refs().collect(), may_have));
        } else {
            reads.extend(may_have.map(|page| Read::Page(self.page(page))));
        }
    }

    /// Returns the page of its jump filter that covers a key.
    pub(super) fn jump_page(&self, layout: &BlockLayout, key: u64) -> Option<PageRef> {
        let first = self.number + self.pages.len() as u64;
        Some(self.jump.as_ref()?.page(layout, first, key))
    }

    /// Returns the record in a checkpoint, without pages and [`fences`](Self::fences).
    pub(super) fn head(&self) -> BlockHead {
        BlockHead {
            number: self.number.into(),
            newest: self.newest.into(),
            entries: self.entries.into(),
            jump_blocks: self.jump.as_ref().map_or(0, |jump| jump.blocks).into(),
            jump_pages: (self.jump_pages().len() as u32).into(),
        }
    }

    /// Returns the pages of its jump filter.
    pub(super) fn jump_pages(&self) -> &[PageId] {
        self.jump.as_ref().map_or(&[], |jump| &jump.pages)
    }

    pub(super) fn fences(&self) -> &[u16] {
        &self.fences
    }

    /// Restores a block from a checkpoint.
    pub(super) fn saved(
        head: &BlockHead,
        pages: Box<[PageId]>,
        jump_pages: Box<[PageId]>,
        fences: Box<[u16]>,
    ) -> Self {
        let jump = (!jump_pages.is_empty()).then(|| Jump {
            blocks: head.jump_blocks.get(),
            pages: jump_pages,
        });
        Self {
            number: head.number.get(),
            newest: head.newest.get(),
            entries: head.entries.get(),
            pages,
            jump,
            fences,
            is_filtered: false,
        }
    }

    /// Whether its filter is still to be made.
    pub(super) fn lacks_filter(&self, filter: &Filter) -> bool {
        filter.is_kept() && !self.is_filtered
    }
}

/// A block to be written: its bytes, and its state in memory.
pub(super) struct Draft {
    pub(super) block: Block,
    bytes: Arc<AlignedBuf>,
}

impl Draft {
    /// Lays out sorted entries, one a key, and optionally a jump filter, on pages taken for them.
    pub(super) fn new(
        layout: &BlockLayout,
        number: u64,
        entries: &[Entry],
        jump: Option<&JumpFilter>,
        pages: &[PageId],
    ) -> Self {
        let filters = jump.map_or(&[][..], |jump| &jump.pages);
        let (pages, jump_pages) = pages.split_at(layout.pages_for(entries.len()));
        debug_assert_eq!(jump_pages.len(), filters.len());
        debug_assert!(entries.is_sorted_by(|one, other| one.key() < other.key()));
        let contents: Vec<_> = entries.chunks(layout.page_entries).collect();
        let firsts = contents.iter().filter_map(|page| page.first());
        let fences = firsts.chain(entries.last());
        let fences = fences.map(|entry| layout.fence(entry.key())).collect();
        Self {
            block: Block {
                number,
                newest: newest(entries),
                entries: entries.len() as u32,
                pages: pages.into(),
                jump: jump.map(|jump| Jump {
                    blocks: jump.blocks,
                    pages: jump_pages.into(),
                }),
                fences,
                is_filtered: true,
            },
            bytes: encode_pages(layout.image, number, &contents, filters),
        }
    }

    /// Writes the block to its pages.
    ///
    /// # Errors
    /// The error of the device. The pages stay taken.
    pub(super) async fn write(&self, store: &PageStore) -> Result<(), DeviceError> {
        let pages: Vec<PageId> = self.block.all_pages().collect();
        store.write(&pages, &self.bytes).await
    }
}

/// Returns the highest segment number of entries; 0 if all are tombstones.
pub(super) fn newest(entries: &[Entry]) -> u32 {
    let named = entries.iter().filter_map(Entry::item);
    named.map(|(segment, _)| segment).max().unwrap_or(0)
}

/// Encodes pages that verify on their own: pages of entries first, then pages of a filter.
pub(super) fn encode_pages(
    image: u64,
    first: u64,
    contents: &[&[Entry]],
    filters: &[Vec<u8>],
) -> Arc<AlignedBuf> {
    let mut bytes = AlignedBuf::new((contents.len() + filters.len()) * PAGE_BYTES);
    let with_entries = contents.iter().map(|&entries| (entries, &[][..]));
    let with_filter = filters.iter().map(|filter| (&[][..], &**filter));
    let pages = with_entries
        .chain(with_filter)
        .zip(bytes.chunks_exact_mut(PAGE_BYTES));
    for (((entries, filter), page), number) in pages.zip(first..) {
        mapping::encode(page, image, number, entries, filter);
    }
    Arc::new(bytes)
}

/// Looks for a key in a page.
///
/// # Errors
/// If the page cannot be read or does not verify.
pub(super) async fn find(
    store: &PageStore,
    layout: &BlockLayout,
    page: PageRef,
    hash: u64,
) -> Result<Option<Entry>, PageError> {
    let bytes = store.read(page.page).await?;
    Ok(mapping::Block::decode(&bytes, layout.image, page.number)?.find(hash))
}

/// Reads a whole block, and looks for a key in the pages that may have it.
///
/// # Errors
/// If a page that may have the key cannot be read or does not verify.
pub(super) async fn find_in_block(
    store: &PageStore,
    layout: &BlockLayout,
    pages: &[PageRef],
    may_have: Range<usize>,
    hash: u64,
) -> Result<Option<Entry>, (PageRef, PageError)> {
    let ids: Vec<PageId> = pages.iter().map(|page| page.page).collect();
    let runs = store.read_runs(&ids).await;
    let runs = runs.map_err(|error| (pages[may_have.start], error.into()))?;
    let bytes = runs.iter().flat_map(|run| run.chunks_exact(PAGE_BYTES));
    let numbered = pages.iter().zip(bytes);
    for (&page, bytes) in numbered.skip(may_have.start).take(may_have.len()) {
        let block = mapping::Block::decode(bytes, layout.image, page.number);
        let block = block.map_err(|error| (page, error.into()))?;
        if let Some(entry) = block.find(hash) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Reads all entries of a page.
///
/// # Errors
/// If the page cannot be read or does not verify.
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
