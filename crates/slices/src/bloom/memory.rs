//! The filters in memory, which are words of the log (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition │ two heads of each │ partition 0: half 0, half 1 │ partition 1: …
//!                                      └ generation, keys   └ the bits of a filter, whole pages
//! ```
//!
//! Generation g is written to half g mod 2, which is emptied when g begins; its head follows with the first key. A bit is set and
//! never unset until then, so a store that is repeated, or two of which a power cut keeps any, do no harm. What a half holds
//! counts where its head is the generation's. One with another head has nothing that was synced, since a sync makes the head
//! durable with the bits. After a power cut a half may have bits that its head does not count, even some from before it was
//! emptied: they count as keys, so that no filter gets much fuller than it may.

use std::ops::Range;
use std::sync::Arc;

use device::{Journal, PAGE_BYTES};
use format::slices::FilterHead;

use super::settings::BloomShape;
use crate::error::SliceError;
use crate::pointers::Pointers;

const WORDS_PER_PAGE: usize = PAGE_BYTES / size_of::<u64>();

/// The filters of all partitions. What stores is called under the lock of its partition.
pub(super) struct MemoryFilters {
    pub(super) pointers: Pointers,
    partitions: u32,
    functions: u32,
    /// Words of a half.
    half_words: usize,
}

impl MemoryFilters {
    fn first_half(partitions: u32) -> usize {
        let heads = Pointers::end(partitions, 1) + 2 * partitions as usize;
        heads.next_multiple_of(WORDS_PER_PAGE)
    }

    /// Words of all of the log.
    pub(super) fn words(shape: &BloomShape) -> usize {
        Self::first_half(shape.partitions) + 2 * shape.partitions as usize * shape.filter_words()
    }

    fn of(pointers: Pointers, shape: &BloomShape) -> Self {
        Self {
            pointers,
            partitions: shape.partitions,
            functions: shape.functions,
            half_words: shape.filter_words(),
        }
    }

    /// Those of a new structure. Returns when they are durable.
    pub(super) async fn create(
        journal: Arc<dyn Journal>,
        shape: &BloomShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers =
            Pointers::create(journal, (shape.partitions, 1), Self::words(shape), instance)?;
        pointers.sync(|| (), || (), || ()).await?;
        Ok(Self::of(pointers, shape))
    }

    /// Those of a structure that there is.
    pub(super) fn open(
        journal: Arc<dyn Journal>,
        shape: &BloomShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers =
            Pointers::open(journal, (shape.partitions, 1), Self::words(shape), instance)?;
        Ok(Self::of(pointers, shape))
    }

    fn journal(&self) -> &dyn Journal {
        &*self.pointers.journal
    }

    /// Which of all halves a generation has.
    fn nth(partition: u32, generation: u32) -> usize {
        2 * partition as usize + (generation % 2) as usize
    }

    fn head(&self, partition: u32, generation: u32) -> usize {
        Pointers::end(self.partitions, 1) + Self::nth(partition, generation)
    }

    fn half(&self, partition: u32, generation: u32) -> Range<usize> {
        let first = Self::first_half(self.partitions);
        let start = first + Self::nth(partition, generation) * self.half_words;
        start..start + self.half_words
    }

    /// The keys that have gone into the filter of a generation; `None` where its half does not hold it.
    pub(super) fn keys(&self, partition: u32, generation: u32) -> Result<Option<u32>, SliceError> {
        let mut head = [0];
        let read = self
            .journal()
            .read(self.head(partition, generation), &mut head);
        read.map_err(SliceError::log)?;
        let head = FilterHead::decode(head[0]);
        if head.generation != generation {
            return Ok(None);
        }
        let bits = self.read(partition, generation)?;
        let ones: u32 = bits.iter().map(|word| word.count_ones()).sum();
        Ok(Some(head.keys.max(ones.div_ceil(self.functions))))
    }

    /// The bits of a filter.
    pub(super) fn read(&self, partition: u32, generation: u32) -> Result<Vec<u64>, SliceError> {
        let mut words = vec![0; self.half_words];
        let start = self.half(partition, generation).start;
        let read = self.journal().read(start, &mut words);
        read.map_err(SliceError::log)?;
        Ok(words)
    }

    /// Whether all these bits of a filter are set.
    pub(super) fn has(&self, partition: u32, generation: u32, slots: &[u32]) -> bool {
        let start = self.half(partition, generation).start;
        let is_set =
            |&slot: &u32| self.journal().load(start + slot as usize / 64) >> (slot % 64) & 1 == 1;
        slots.iter().all(is_set)
    }

    /// Sets these bits of a filter, whose head is this one then.
    pub(super) fn insert(&self, partition: u32, head: FilterHead, slots: &[u32]) {
        let start = self.half(partition, head.generation).start;
        for &slot in slots {
            let word = start + slot as usize / 64;
            let bits = self.journal().load(word) | 1 << (slot % 64);
            self.journal().store(word, bits);
        }
        let word = self.head(partition, head.generation);
        self.journal().store(word, head.encode());
    }

    /// Empties the half of a generation, whose last use, two generations before, is over.
    pub(super) fn begin(&self, partition: u32, generation: u32) {
        self.journal().clear(self.half(partition, generation));
    }

    /// What a generation has is durable elsewhere: its half need not stay in memory.
    pub(super) fn let_go(&self, partition: u32, generation: u32) {
        self.journal().let_go(self.half(partition, generation));
    }

    /// A failed sync may have left pages that count as written and are not.
    pub(super) fn store_again(&self, partition: u32, generation: u32) {
        let head = self.head(partition, generation);
        for word in self.half(partition, generation).chain(head..=head) {
            self.journal().store(word, self.journal().load(word));
        }
    }
}
