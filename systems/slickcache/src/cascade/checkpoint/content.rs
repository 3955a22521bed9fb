//! The partitions in the stream of a checkpoint.

use crate::encoding::cascade::BlockHead;
use crate::encoding::mapping::Entry;
use zerocopy::IntoBytes;

use super::super::block::Block;
use super::super::hot::Hot;
use super::super::layout::{BlockLayout, PageRef};
use super::super::layouts::Layouts;
use super::super::pages::PageId;
use super::super::partition::{BucketPage, Partition};
use super::super::segments::Segments;
use super::super::shape::Shape;
use super::super::slices::Slices;
use super::super::tiers::Tiers;
use super::super::upkeep::entry_of;
use super::errors::LoadError;
use super::stream::Reader;

/// Appends a partition: the pages of its mappings on flash, and the mappings that only memory has. With `is_last` also
/// the clean entries of Tier 1.
pub(super) fn encode(
    partition: &Partition,
    segments: &dyn Segments,
    is_last: bool,
    out: &mut Vec<u8>,
) {
    encode_blocks(partition.direct.iter(), out);
    for list in &partition.lists {
        encode_blocks(list.blocks.iter().chain(&list.compacted), out);
        let with_pages = list.buckets.iter().enumerate();
        let with_pages = with_pages.filter(|(_, bucket)| !bucket.pages.is_empty());
        count(with_pages.clone().count(), out);
        for (number, bucket) in with_pages {
            count(number, out);
            count(bucket.pages.len(), out);
            for page in &bucket.pages {
                out.extend_from_slice(encoded(page).as_bytes());
            }
        }
        let sealed = list.sealed.as_deref().unwrap_or_default().iter();
        let sealed = sealed.filter(|entry| list.buffer.find(entry.key()).is_none());
        encode_entries(list.buffer.iter().chain(sealed).copied(), out);
    }
    let demoted = partition.demoted.iter().map(|entries| entries.len());
    let most = partition.hot.len() + demoted.sum::<usize>();
    out.reserve_exact(size_of::<u32>() + most * size_of::<Entry>());
    let mut hot = Entries::begin(out);
    partition.hot.for_each(|entry| {
        if !is_last && !entry.is_dirty {
            return;
        }
        let key = entry.hash;
        let named = match entry.hot {
            Hot::At(code) => segments.named_by(code),
            Hot::Dead => None,
        };
        match named {
            Some(named) => {
                let is_dirty = entry.is_dirty || partition.is_unwritten(key);
                hot.push(&entry_of(key, named, is_dirty));
            }
            None if entry.is_dirty => hot.push(&Entry::tombstone(key)),
            // A lower tier has the mapping, and its segment is gone.
            None => {}
        }
    });
    // `resume` takes the first entry of each key. A clean entry hides an older dirty one that is not written yet, so
    // it is saved as dirty.
    for entry in partition
        .demoted
        .iter()
        .rev()
        .flat_map(|entries| &**entries)
    {
        match entry.item() {
            Some(item) if entry.is_clean() && partition.is_unwritten(entry.key()) => {
                hot.push(&entry_of(entry.key(), item, true));
            }
            _ if is_last || !entry.is_clean() => hot.push(entry),
            _ => {}
        }
    }
    hot.end();
}

/// The decoded part of a stream that belongs to one partition.
#[derive(Default)]
pub(super) struct Read {
    direct: Vec<Block>,
    lists: Vec<ReadList>,
    /// Entries of Tier 1, newest first.
    pub(super) hot: Vec<Entry>,
}

#[derive(Default)]
struct ReadList {
    blocks: Vec<Block>,
    buckets: Vec<(usize, Vec<BucketPage>)>,
    buffered: Vec<Entry>,
}

impl Read {
    /// Decodes the next partition of a stream, and marks the pages that it names as used.
    ///
    /// # Errors
    /// [`LoadError`]; some pages may be marked then.
    pub(super) async fn of(
        from: &mut Reader<'_>,
        layouts: &Layouts,
        shape: &Shape,
    ) -> Result<Self, LoadError> {
        let mut read = Self {
            direct: decode_blocks(from, &layouts.direct).await?,
            ..Self::default()
        };
        for _ in 0..shape.lists() {
            let mut list = ReadList {
                blocks: decode_blocks(from, &layouts.active).await?,
                ..ReadList::default()
            };
            let mut least = 0;
            for _ in 0..from.count().await? {
                let bucket = from.count().await?;
                if bucket < least || bucket >= shape.ratio {
                    return Err(LoadError::Nonsense);
                }
                least = bucket + 1;
                let pages = from.count().await?;
                let pages: Vec<crate::encoding::cascade::BucketPage> = from.all(pages).await?;
                for page in &pages {
                    if page.entries.get() as usize > shape.page_entries {
                        return Err(LoadError::Nonsense);
                    }
                    from.claim(PageId(page.page.get()))?;
                }
                let pages = pages.iter().map(decoded).collect();
                list.buckets.push((bucket, pages));
            }
            let buffered = from.count().await?;
            list.buffered = from.all(buffered).await?;
            read.lists.push(list);
        }
        let hot = from.count().await?;
        read.hot = from.all(hot).await?;
        Ok(read)
    }

    /// Fails unless all buffered and hot entries belong to this partition, and buffered ones to their list.
    pub(super) fn belongs_to(&self, tiers: &Tiers, number: usize) -> Result<(), LoadError> {
        let is_of_partition = |entry: &Entry| tiers.number_of(entry.key()) == number;
        let buffered = self.lists.iter().enumerate().all(|(list, read)| {
            let is_of_list = |entry: &Entry| tiers.layouts.list(entry.key()) == list;
            let mut buffered = read.buffered.iter();
            buffered.all(|entry| is_of_partition(entry) && is_of_list(entry))
        });
        let all = buffered && self.hot.iter().all(is_of_partition);
        all.then_some(()).ok_or(LoadError::Nonsense)
    }

    /// Puts everything below Tier 1 into an empty partition.
    pub(super) fn put_into(self, partition: &mut Partition, layouts: &Layouts) {
        partition.filters = Slices::unknown(&layouts.direct.filter, self.direct.len());
        partition.direct = self.direct.into();
        for (list, read) in partition.lists.iter_mut().zip(self.lists) {
            list.filters = Slices::unknown(&layouts.active.filter, read.blocks.len());
            list.blocks = read.blocks.into();
            for (bucket, pages) in read.buckets {
                list.buckets[bucket].pages = pages;
            }
            for entry in read.buffered {
                list.buffer.put(entry);
            }
        }
    }
}

async fn decode_blocks(
    from: &mut Reader<'_>,
    layout: &BlockLayout,
) -> Result<Vec<Block>, LoadError> {
    let mut blocks = Vec::new();
    for _ in 0..from.count().await? {
        let head: BlockHead = from.one().await?;
        let count = layout.pages_for(head.entries.get() as usize);
        let jump_pages = head.jump_pages.get() as usize;
        let all = count.checked_add(jump_pages).ok_or(LoadError::Nonsense)?;
        let end = head.number.get().checked_add(all as u64);
        end.ok_or(LoadError::Nonsense)?;
        let pages: Vec<zerocopy::little_endian::U32> = from.all(all).await?;
        let fences: Vec<zerocopy::little_endian::U16> = from.all(count + 1).await?;
        let pages: Vec<PageId> = pages.iter().map(|page| PageId(page.get())).collect();
        for &page in &pages {
            from.claim(page)?;
        }
        let (pages, jump_pages) = pages.split_at(count);
        let fences = fences.iter().map(|fence| fence.get()).collect();
        let (pages, jump_pages) = (pages.into(), jump_pages.into());
        blocks.push(Block::saved(&head, pages, jump_pages, fences));
    }
    Ok(blocks)
}

/// Appends a number of 32 bits.
pub(super) fn count(number: usize, out: &mut Vec<u8>) {
    let number = u32::try_from(number).expect("counts of a partition fit 32 bits");
    out.extend(number.to_le_bytes());
}

fn encode_blocks<'b>(blocks: impl Iterator<Item = &'b Block> + Clone, out: &mut Vec<u8>) {
    count(blocks.clone().count(), out);
    for block in blocks {
        out.extend_from_slice(block.head().as_bytes());
        out.extend(block.all_pages().flat_map(|page| page.0.to_le_bytes()));
        out.extend(block.fences().iter().flat_map(|fence| fence.to_le_bytes()));
    }
}

fn encode_entries(entries: impl Iterator<Item = Entry>, out: &mut Vec<u8>) {
    let mut encoded = Entries::begin(out);
    entries.for_each(|entry| encoded.push(&entry));
    encoded.end();
}

/// Writes entries behind their number, which is filled in at the end.
struct Entries<'o> {
    out: &'o mut Vec<u8>,
    at: usize,
    count: u32,
}

impl<'o> Entries<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Self {
        let at = out.len();
        count(0, out);
        Self { out, at, count: 0 }
    }

    fn push(&mut self, entry: &Entry) {
        self.out.extend_from_slice(entry.as_bytes());
        self.count += 1;
    }

    fn end(self) {
        self.out[self.at..][..size_of::<u32>()].copy_from_slice(&self.count.to_le_bytes());
    }
}

fn encoded(page: &BucketPage) -> crate::encoding::cascade::BucketPage {
    crate::encoding::cascade::BucketPage {
        number: page.page.number.into(),
        page: page.page.page.0.into(),
        newest: page.newest.into(),
        entries: u32::from(page.entries).into(),
    }
}

fn decoded(page: &crate::encoding::cascade::BucketPage) -> BucketPage {
    BucketPage {
        page: PageRef {
            page: PageId(page.page.get()),
            number: page.number.get(),
        },
        newest: page.newest.get(),
        entries: page.entries.get() as u16,
    }
}
