//! Saves a cascade to a checkpoint and loads it at start (section 4.4).
//!
//! A checkpoint writes a stream to the region. The stream names the pages of mappings that are on flash, and holds the
//! mappings that only memory has: buffers and dirty entries of Tier 1. Each partition is encoded in one hold of its lock,
//! so that a mapping is saved once or twice, never not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{AlignedBuf, DeviceError, PAGE_BYTES};
use format::FormatError;
use format::cascade::{BlockHead, Header, NumberedSegment, STREAM_BYTES, decode_page, encode_page};
use format::mapping::Entry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::block::Block;
use super::core::Cascade;
use super::hot::Hot;
use super::layout::{BlockLayout, PageRef};
use super::pages::{PageId, PageStore};
use super::partition::{BucketPage, Layouts, Partition};
use super::slices::Slices;
use super::upkeep::entry_of;

/// Number of pages of the stream written or read at once.
const PIECE_PAGES: usize = 64;
/// Gap between the page numbers of successive runs, as the run before may have used numbers that no checkpoint records.
const RUN_NUMBERS: u64 = 1 << 40;
/// Page numbers set aside for the stream of each checkpoint, whose length is not known at its start. If a run fails to
/// name 2^15 checkpoints, the next one may give some numbers twice.
const SAVE_NUMBERS: u64 = 1 << 24;

/// Reason why a checkpoint was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum SaveError {
    /// The device failed.
    #[error("the index cannot be saved: {0}")]
    Device(#[from] DeviceError),
    /// The region is full.
    #[error("no page of the index region is free for a checkpoint")]
    Full,
    /// Pages that a failed sync may have lost are not written again yet.
    #[error("what a failed sync may have lost is still to be written again")]
    InDoubt,
}

/// Reason why a saved index cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum LoadError {
    /// The device failed.
    #[error("the index cannot be read: {0}")]
    Device(#[from] DeviceError),
    /// A page does not verify.
    #[error("a page of the saved index is damaged: {0}")]
    Damaged(#[from] FormatError),
    /// The saved bytes are inconsistent.
    #[error("the saved index makes no sense")]
    Nonsense,
    /// The index was saved with other sizes than the settings give.
    #[error("the index was saved with other sizes")]
    Sizes,
}

/// Entries that a start has read and inserts into Tier 1 once it knows which segments their numbers name.
pub struct Loaded {
    /// The segments that had a number, and the first number that no segment had.
    pub segments: (Vec<NumberedSegment>, u32),
    /// By partition, newest first.
    hot: Vec<Vec<Entry>>,
}

impl Cascade {
    /// Writes a checkpoint of the index to the region, and makes it durable. Returns the section that the cache's
    /// checkpoint has to hold. With `is_last` it also saves the clean entries of Tier 1. Calls `segments` at the end for
    /// the numbers of all segments and the next number, because saved mappings may name any number given until then.
    ///
    /// Only one call runs at a time. The caller reports the outcome to [`saved`](Self::saved).
    ///
    /// # Errors
    /// [`SaveError`]; the checkpoint in force is unchanged.
    pub async fn save(
        &self,
        is_last: bool,
        segments: impl FnOnce() -> (Vec<NumberedSegment>, u32),
    ) -> Result<Vec<u8>, SaveError> {
        self.wants_checkpoint.store(false, Ordering::Relaxed);
        if self.doubt.is_any() {
            return Err(SaveError::InDoubt);
        }
        self.store.checkpoint_begins();
        let written = self.write_stream(is_last, segments).await;
        self.store.checkpoint_is_complete();
        let (section, pages) = written?;
        self.saved.lock().pending = pages;
        if !self.sync_region().await {
            self.saved(Some(false));
            return Err(SaveError::InDoubt);
        }
        Ok(section)
    }

    /// Takes the outcome of the checkpoint that [`save`](Self::save) was called for: in force (`Some(true)`), never to be
    /// in force (`Some(false)`), or unknown (`None`).
    pub fn saved(&self, is_named: Option<bool>) {
        let mut saves = self.saved.lock();
        let pending = std::mem::take(&mut saves.pending);
        self.store.checkpoint_ends(is_named == Some(true));
        if is_named != Some(true) {
            // The need for a checkpoint remains.
            self.ask_for_checkpoint();
        }
        match is_named {
            Some(true) => {
                let before = std::mem::replace(&mut saves.named, pending);
                self.store.free_checkpoint(before);
            }
            Some(false) => self.store.free_checkpoint(pending),
            // It may be in force, so its pages count as named.
            None => saves.named.extend(pending),
        }
    }

    /// Makes all written pages durable. Returns false if a sync has failed since the last successful one began.
    async fn sync_region(&self) -> bool {
        let next = || self.next_number.load(Ordering::Relaxed);
        let begun = self.doubt.sync_begins(next);
        let is_good = self.segments.sync(self.store.region()).await.is_ok();
        let failures = self.segments.failed_syncs();
        let is_durable = self.doubt.sync_ended(is_good, failures, begun, next());
        if !is_durable {
            self.work.iter().for_each(|work| work.notify_all());
        }
        is_durable
    }

    async fn write_stream(
        &self,
        is_last: bool,
        segments: impl FnOnce() -> (Vec<NumberedSegment>, u32),
    ) -> Result<(Vec<u8>, Vec<PageId>), SaveError> {
        let mut stream = Stream::new(self);
        let written = async {
            for partition in &self.partitions {
                let mut bytes = Vec::new();
                self.encode(&partition.lock(), is_last, &mut bytes);
                stream.append(&bytes).await?;
            }
            let (segments, next) = segments();
            let mut bytes = Vec::with_capacity(size_of_val(&*segments) + 8);
            count(segments.len(), &mut bytes);
            bytes.extend_from_slice(segments.as_bytes());
            bytes.extend(next.to_le_bytes());
            stream.append(&bytes).await?;
            stream.end().await
        };
        match written.await {
            Ok(()) => {}
            Err(error) => {
                self.store.free_checkpoint(stream.pages);
                return Err(error);
            }
        }
        let header = Header {
            kept_bits: self.kept.leading_ones().into(),
            partition_bits: self.shape.partition_bits.into(),
            list_bits: self.shape.list_bits.into(),
            ratio: (self.shape.ratio as u32).into(),
            first_number: stream.first_number.into(),
            next_number: self.next_number.load(Ordering::Relaxed).into(),
            bytes: stream.bytes.into(),
        };
        let mut section = header.as_bytes().to_vec();
        for run in stream.pages.chunk_by(|one, other| one.0 + 1 == other.0) {
            section.extend(run[0].0.to_le_bytes());
            section.extend((run.len() as u32).to_le_bytes());
        }
        Ok((section, stream.pages))
    }

    fn encode(&self, partition: &Partition, is_last: bool, out: &mut Vec<u8>) {
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
                    out.extend_from_slice(page.encoded().as_bytes());
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
                Hot::At(code) => self.segments.named_by(code),
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

    /// Reads the index that a checkpoint's `section` names into an empty cascade.
    ///
    /// # Errors
    /// [`LoadError`]; the cascade must not be used then.
    pub async fn load(&self, section: &[u8]) -> Result<Loaded, LoadError> {
        let (header, extents) =
            Header::read_from_prefix(section).map_err(|_| LoadError::Nonsense)?;
        let same = header.kept_bits.get() == self.kept.leading_ones()
            && header.partition_bits.get() == self.shape.partition_bits
            && header.list_bits.get() == self.shape.list_bits
            && header.ratio.get() as usize == self.shape.ratio;
        if !same {
            return Err(LoadError::Sizes);
        }
        let mut pages = Vec::new();
        let (extents, rest) = extents.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(LoadError::Nonsense);
        }
        for extent in extents {
            let word = |at: usize| {
                u32::from_le_bytes([extent[at], extent[at + 1], extent[at + 2], extent[at + 3]])
            };
            for page in word(0)..word(0).checked_add(word(4)).ok_or(LoadError::Nonsense)? {
                self.claim(PageId(page))?;
                pages.push(PageId(page));
            }
        }
        let next_number = header.next_number.get().checked_add(RUN_NUMBERS);
        self.next_number
            .store(next_number.ok_or(LoadError::Nonsense)?, Ordering::Relaxed);
        let mut reader = Reader {
            store: &self.store,
            image: self.image,
            pages: &pages,
            number: header.first_number.get(),
            left: header.bytes.get(),
            bytes: Vec::new(),
            at: 0,
        };
        let mut hot = Vec::with_capacity(self.partitions.len());
        for (number, partition) in self.partitions.iter().enumerate() {
            let mut read = Read::default();
            self.decode(&mut reader, &mut read).await?;
            read.belongs_to(self, number)?;
            hot.push(std::mem::take(&mut read.hot));
            read.put_into(&mut partition.lock(), &self.layouts);
        }
        let segments = reader.count().await?;
        let segments = reader.all(segments).await?;
        let next: zerocopy::little_endian::U32 = reader.one().await?;
        self.store.claimed_for_checkpoint(pages.len());
        self.saved.lock().named = pages;
        Ok(Loaded {
            segments: (segments, next.get()),
            hot,
        })
    }

    /// Inserts the loaded entries into Tier 1, which completes the load.
    pub fn resume(&self, loaded: Loaded) {
        for (number, entries) in loaded.hot.into_iter().enumerate() {
            let mut partition = self.partitions[number].lock();
            let before = partition.hot.memory_bytes();
            for entry in entries {
                if partition.hot.get(entry.key()).is_some() {
                    continue;
                }
                match self.code_of(&entry) {
                    Some(code) => partition
                        .hot
                        .put(entry.key(), Hot::At(code), !entry.is_clean()),
                    // A tombstone keeps older mappings hidden.
                    None if !entry.is_clean() => partition.hot.put(entry.key(), Hot::Dead, true),
                    None => {}
                }
            }
            let grown = partition.hot.memory_bytes().wrapping_sub(before);
            self.hot_bytes.fetch_add(grown, Ordering::Relaxed);
        }
        let found: Vec<usize> = self
            .partitions
            .iter()
            .map(|of| of.lock().hot.len())
            .collect();
        if self
            .bounds
            .resume(&self.shape, &found, self.store.free_or_saved())
        {
            tracing::warn!(
                "the index's part of the flash is full of what an earlier run has left there: \
                Tier 1 stays smaller than the settings say"
            );
        }
        self.store.reserve(self.bounds.reserved());
        for (number, partition) in self.partitions.iter().enumerate() {
            let partition = partition.lock();
            // The last run may have had memory for more entries. Recovery inserts next, and items that Tier 1 refuses
            // then are lost.
            self.press_where_full(number, &partition, self.bounds.most_hot());
            self.account(number, &partition);
        }
    }

    fn claim(&self, page: PageId) -> Result<(), LoadError> {
        let is_free = self.store.claim(page);
        is_free.then_some(()).ok_or(LoadError::Nonsense)
    }

    async fn decode(&self, from: &mut Reader<'_>, read: &mut Read) -> Result<(), LoadError> {
        read.direct = self.decode_blocks(from, &self.layouts.direct).await?;
        for _ in 0..self.shape.lists() {
            let mut list = ReadList {
                blocks: self.decode_blocks(from, &self.layouts.active).await?,
                ..ReadList::default()
            };
            let mut least = 0;
            for _ in 0..from.count().await? {
                let bucket = from.count().await?;
                if bucket < least || bucket >= self.shape.ratio {
                    return Err(LoadError::Nonsense);
                }
                least = bucket + 1;
                let pages = from.count().await?;
                let pages: Vec<format::cascade::BucketPage> = from.all(pages).await?;
                for page in &pages {
                    if page.entries.get() as usize > self.shape.page_entries {
                        return Err(LoadError::Nonsense);
                    }
                    self.claim(PageId(page.page.get()))?;
                }
                let pages = pages.iter().map(BucketPage::decoded).collect();
                list.buckets.push((bucket, pages));
            }
            let buffered = from.count().await?;
            list.buffered = from.all(buffered).await?;
            read.lists.push(list);
        }
        let hot = from.count().await?;
        read.hot = from.all(hot).await?;
        Ok(())
    }

    async fn decode_blocks(
        &self,
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
                self.claim(page)?;
            }
            let (pages, jump_pages) = pages.split_at(count);
            let fences = fences.iter().map(|fence| fence.get()).collect();
            let (pages, jump_pages) = (pages.into(), jump_pages.into());
            blocks.push(Block::saved(&head, pages, jump_pages, fences));
        }
        Ok(blocks)
    }
}

/// The decoded part of a stream that belongs to one partition.
#[derive(Default)]
struct Read {
    direct: Vec<Block>,
    lists: Vec<ReadList>,
    hot: Vec<Entry>,
}

#[derive(Default)]
struct ReadList {
    blocks: Vec<Block>,
    buckets: Vec<(usize, Vec<BucketPage>)>,
    buffered: Vec<Entry>,
}

impl Read {
    /// Fails unless all buffered and hot entries belong to this partition, and buffered ones to their list.
    fn belongs_to(&self, cascade: &Cascade, number: usize) -> Result<(), LoadError> {
        let is_of_partition = |entry: &Entry| cascade.number_of(entry.key()) == number;
        let buffered = self.lists.iter().enumerate().all(|(list, read)| {
            let is_of_list = |entry: &Entry| cascade.layouts.list(entry.key()) == list;
            let mut buffered = read.buffered.iter();
            buffered.all(|entry| is_of_partition(entry) && is_of_list(entry))
        });
        let all = buffered && self.hot.iter().all(is_of_partition);
        all.then_some(()).ok_or(LoadError::Nonsense)
    }

    fn put_into(self, partition: &mut Partition, layouts: &Layouts) {
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

fn count(number: usize, out: &mut Vec<u8>) {
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

impl BucketPage {
    fn encoded(&self) -> format::cascade::BucketPage {
        format::cascade::BucketPage {
            number: self.page.number.into(),
            page: self.page.page.0.into(),
            newest: self.newest.into(),
            entries: u32::from(self.entries).into(),
        }
    }

    fn decoded(page: &format::cascade::BucketPage) -> Self {
        Self {
            page: PageRef {
                page: PageId(page.page.get()),
                number: page.number.get(),
            },
            newest: page.newest.get(),
            entries: page.entries.get() as u16,
        }
    }
}

/// Writer that cuts a stream of bytes into pages.
struct Stream<'c> {
    cascade: &'c Cascade,
    first_number: u64,
    pages: Vec<PageId>,
    bytes: u64,
    /// Bytes not written yet.
    rest: Vec<u8>,
}

impl<'c> Stream<'c> {
    fn new(cascade: &'c Cascade) -> Self {
        let first_number = cascade
            .next_number
            .fetch_add(SAVE_NUMBERS, Ordering::Relaxed);
        Self {
            cascade,
            first_number,
            pages: Vec::new(),
            bytes: 0,
            rest: Vec::new(),
        }
    }

    /// Writes whole pieces, and keeps the rest.
    async fn append(&mut self, mut bytes: &[u8]) -> Result<(), SaveError> {
        let piece = PIECE_PAGES * STREAM_BYTES;
        while self.rest.len() + bytes.len() >= piece {
            let (now, later) = bytes.split_at(piece - self.rest.len());
            self.rest.extend_from_slice(now);
            bytes = later;
            let mut full = std::mem::take(&mut self.rest);
            self.write(&full).await?;
            full.clear();
            self.rest = full;
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    async fn end(&mut self) -> Result<(), SaveError> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return Ok(());
        }
        self.write(&rest).await
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), SaveError> {
        let count = piece.len().div_ceil(STREAM_BYTES);
        let store = &self.cascade.store;
        let pages = store.take_for_checkpoint(count).ok_or(SaveError::Full)?;
        let number = self.first_number + self.pages.len() as u64;
        self.pages.extend_from_slice(&pages);
        let mut bytes = AlignedBuf::new(count * PAGE_BYTES);
        let parts = piece
            .chunks(STREAM_BYTES)
            .zip(bytes.chunks_exact_mut(PAGE_BYTES));
        for ((part, page), number) in parts.zip(number..) {
            encode_page(page, self.cascade.image, number, part);
        }
        store.write(&pages, &Arc::new(bytes)).await?;
        self.bytes += piece.len() as u64;
        Ok(())
    }
}

/// Reads a stream back. Allocates no more than the stream has bytes.
struct Reader<'c> {
    store: &'c PageStore,
    image: u64,
    /// Pages still to be read.
    pages: &'c [PageId],
    /// Number of the first page of `pages`.
    number: u64,
    /// Bytes of the stream still to be returned.
    left: u64,
    bytes: Vec<u8>,
    at: usize,
}

impl Reader<'_> {
    async fn bytes(&mut self, len: usize) -> Result<&[u8], LoadError> {
        self.left = self
            .left
            .checked_sub(len as u64)
            .ok_or(LoadError::Nonsense)?;
        if self.bytes.len() - self.at < len {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        while self.bytes.len() < len {
            let (&page, rest) = self.pages.split_first().ok_or(LoadError::Nonsense)?;
            let read = self.store.read(page).await?;
            self.bytes
                .extend(decode_page(&read, self.image, self.number)?);
            self.pages = rest;
            self.number = self.number.checked_add(1).ok_or(LoadError::Nonsense)?;
        }
        self.at += len;
        Ok(&self.bytes[self.at - len..self.at])
    }

    async fn one<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, LoadError> {
        let bytes = self.bytes(size_of::<T>()).await?;
        T::read_from_bytes(bytes).map_err(|_| LoadError::Nonsense)
    }

    async fn all<T>(&mut self, count: usize) -> Result<Vec<T>, LoadError>
    where
        T: FromBytes + KnownLayout + Immutable + Copy,
    {
        let len = count
            .checked_mul(size_of::<T>())
            .ok_or(LoadError::Nonsense)?;
        if len as u64 > self.left {
            return Err(LoadError::Nonsense);
        }
        let bytes = self.bytes(len).await?;
        let parts = bytes.chunks_exact(size_of::<T>());
        parts
            .map(|part| T::read_from_bytes(part).map_err(|_| LoadError::Nonsense))
            .collect()
    }

    async fn count(&mut self) -> Result<usize, LoadError> {
        let count: zerocopy::little_endian::U32 = self.one().await?;
        Ok(count.get() as usize)
    }
}
