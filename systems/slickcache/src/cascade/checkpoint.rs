//! Saves a cascade to a checkpoint and loads it at start (section 4.4).
//!
//! A checkpoint writes a stream to the region. The stream names the pages of mappings that are on flash, and holds the
//! mappings that only memory has: buffers and dirty entries of Tier 1. Each partition is encoded in one hold of its lock,
//! so that a mapping is saved once or twice, never not at all.

mod content;
mod errors;
mod stream;

use std::sync::Arc;

use crate::encoding::cascade::Header;
use crate::encoding::mapping::Entry;
use on_flash::NumberedSegment;
use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use super::flash::Flash;
use super::hot::Hot;
use super::pages::PageId;
use super::tiers::Tiers;
use content::{Read, count, encode};
pub use errors::{LoadError, SaveError};
use stream::{Reader, Stream, claim};

/// Gap between the page numbers of successive runs, as the run before may have used numbers that no checkpoint records.
const RUN_NUMBERS: u64 = 1 << 40;
/// Entries that a start has read and inserts into Tier 1 once it knows which segments their numbers name.
pub struct Loaded {
    /// The segments that had a number, and the first number that no segment had.
    pub segments: (Vec<NumberedSegment>, u32),
    /// By partition, newest first.
    hot: Vec<Vec<Entry>>,
}

/// The pages of checkpoints.
#[derive(Default)]
struct Saves {
    /// Pages of the checkpoint in force, and of checkpoints that may be in force.
    named: Vec<PageId>,
    /// Pages of the checkpoint that is written but not named yet.
    pending: Vec<PageId>,
}

/// The checkpoints of the index on the region.
///
/// Invariant: a page of the checkpoint in force, or of one that may be in force, stays used until another checkpoint is
/// named. No page in doubt is named.
pub struct Checkpoints {
    tiers: Arc<Tiers>,
    flash: Arc<Flash>,
    image: u64,
    saves: Mutex<Saves>,
}

impl Checkpoints {
    pub(super) fn new(tiers: &Arc<Tiers>, flash: &Arc<Flash>, image: u64) -> Self {
        Self {
            tiers: Arc::clone(tiers),
            flash: Arc::clone(flash),
            image,
            saves: Mutex::default(),
        }
    }

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
        self.flash.request.withdraw();
        if self.flash.doubt.is_any() {
            return Err(SaveError::InDoubt);
        }
        self.flash.store.checkpoint_begins();
        let written = self.write_stream(is_last, segments).await;
        self.flash.store.checkpoint_is_complete();
        let (section, pages) = written?;
        self.saves.lock().pending = pages;
        if !self.sync_region().await {
            self.saved(Some(false));
            return Err(SaveError::InDoubt);
        }
        Ok(section)
    }

    /// Takes the outcome of the checkpoint that [`save`](Self::save) was called for: in force (`Some(true)`), never to be
    /// in force (`Some(false)`), or unknown (`None`).
    pub fn saved(&self, is_named: Option<bool>) {
        let mut saves = self.saves.lock();
        let pending = std::mem::take(&mut saves.pending);
        self.flash.store.checkpoint_ends(is_named == Some(true));
        if is_named != Some(true) {
            // The need for a checkpoint remains.
            self.flash.request.make();
        }
        match is_named {
            Some(true) => {
                let before = std::mem::replace(&mut saves.named, pending);
                self.flash.store.free_checkpoint(before);
            }
            Some(false) => self.flash.store.free_checkpoint(pending),
            // It may be in force, so its pages count as named.
            None => saves.named.extend(pending),
        }
    }

    /// Makes all written pages durable. Returns false, and wakes upkeep to write pages again, if a sync has failed since
    /// the last successful one began.
    async fn sync_region(&self) -> bool {
        let is_durable = self.flash.sync(&*self.tiers.segments).await;
        if !is_durable {
            self.tiers.work.iter().for_each(|work| work.notify_all());
        }
        is_durable
    }

    async fn write_stream(
        &self,
        is_last: bool,
        segments: impl FnOnce() -> (Vec<NumberedSegment>, u32),
    ) -> Result<(Vec<u8>, Vec<PageId>), SaveError> {
        let mut stream = Stream::new(&self.flash, self.image);
        let written = async {
            for partition in &self.tiers.partitions {
                let mut bytes = Vec::new();
                encode(
                    &partition.lock(),
                    &*self.tiers.segments,
                    is_last,
                    &mut bytes,
                );
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
                self.flash.store.free_checkpoint(stream.pages);
                return Err(error);
            }
        }
        let header = Header {
            kept_bits: self.tiers.kept.leading_ones().into(),
            partition_bits: self.tiers.shape.partition_bits.into(),
            list_bits: self.tiers.shape.list_bits.into(),
            ratio: (self.tiers.shape.ratio as u32).into(),
            first_number: stream.first_number.into(),
            next_number: self.flash.next_number().into(),
            bytes: stream.bytes.into(),
        };
        let mut section = header.as_bytes().to_vec();
        for run in stream.pages.chunk_by(|one, other| one.0 + 1 == other.0) {
            section.extend(run[0].0.to_le_bytes());
            section.extend((run.len() as u32).to_le_bytes());
        }
        Ok((section, stream.pages))
    }

    /// Reads the index that a checkpoint's `section` names into an empty cascade.
    ///
    /// # Errors
    /// [`LoadError`]; the cascade must not be used then.
    pub async fn load(&self, section: &[u8]) -> Result<Loaded, LoadError> {
        let (header, extents) =
            Header::read_from_prefix(section).map_err(|_| LoadError::Nonsense)?;
        let same = header.kept_bits.get() == self.tiers.kept.leading_ones()
            && header.partition_bits.get() == self.tiers.shape.partition_bits
            && header.list_bits.get() == self.tiers.shape.list_bits
            && header.ratio.get() as usize == self.tiers.shape.ratio;
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
                claim(&self.flash.store, PageId(page))?;
                pages.push(PageId(page));
            }
        }
        let next_number = header.next_number.get().checked_add(RUN_NUMBERS);
        self.flash
            .number_from(next_number.ok_or(LoadError::Nonsense)?);
        let mut reader = Reader::new(
            &self.flash.store,
            self.image,
            &pages,
            header.first_number.get(),
            header.bytes.get(),
        );
        let mut hot = Vec::with_capacity(self.tiers.partitions.len());
        for (number, partition) in self.tiers.partitions.iter().enumerate() {
            let mut read = Read::of(&mut reader, &self.tiers.layouts, &self.tiers.shape).await?;
            read.belongs_to(&self.tiers, number)?;
            hot.push(std::mem::take(&mut read.hot));
            read.put_into(&mut partition.lock(), &self.tiers.layouts);
        }
        let segments = reader.count().await?;
        let segments = reader.all(segments).await?;
        let next: zerocopy::little_endian::U32 = reader.one().await?;
        self.flash.store.claimed_for_checkpoint(pages.len());
        self.saves.lock().named = pages;
        Ok(Loaded {
            segments: (segments, next.get()),
            hot,
        })
    }

    /// Inserts the loaded entries into Tier 1, which completes the load.
    pub fn resume(&self, loaded: Loaded) {
        for (number, entries) in loaded.hot.into_iter().enumerate() {
            let mut partition = self.tiers.partitions[number].lock();
            let before = partition.hot.memory_bytes();
            for entry in entries {
                if partition.hot.get(entry.key()).is_some() {
                    continue;
                }
                match self.tiers.segments.code_of(&entry) {
                    Some(code) => partition
                        .hot
                        .put(entry.key(), Hot::At(code), !entry.is_clean()),
                    // A tombstone keeps older mappings hidden.
                    None if !entry.is_clean() => partition.hot.put(entry.key(), Hot::Dead, true),
                    None => {}
                }
            }
            let grown = partition.hot.memory_bytes().wrapping_sub(before);
            self.tiers.memory.hot_has_grown(grown);
        }
        let found: Vec<usize> = self
            .tiers
            .partitions
            .iter()
            .map(|of| of.lock().hot.len())
            .collect();
        if self
            .tiers
            .bounds
            .resume(&self.tiers.shape, &found, self.flash.store.free_or_saved())
        {
            tracing::warn!(
                "the index's part of the flash is full of what an earlier run has left there: \
                Tier 1 stays smaller than the settings say"
            );
        }
        self.flash.store.reserve(self.tiers.bounds.reserved());
        for (number, partition) in self.tiers.partitions.iter().enumerate() {
            let partition = partition.lock();
            // The last run may have had memory for more entries. Recovery inserts next, and items that Tier 1 refuses
            // then are lost.
            self.tiers
                .press_where_full(number, &partition, self.tiers.bounds.most_hot());
            self.tiers.account(number, &partition, &self.flash.store);
        }
    }
}
