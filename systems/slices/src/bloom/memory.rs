//! The filters in memory, which are words of the log (section 8, "Tolerating failures").
//!
//! ```text
//!   head │ pointer of each partition │ two heads of each │ two marks of each │ partition 0: half 0, half 1 │ partition 1: …
//!                                      └ generation, keys   └ generation        └ a filter, whole pages
//! ```
//!
//! Generation g is written to half g mod 2, which is emptied when g begins. The head of g follows with the first key. Within a
//! generation bits are set and never unset, so a repeated store does no harm, and neither does a power cut that keeps only some
//! stores. Each page of a half names its generation and has a check of its bits ([`FilterPage`]). All bits of a decayed page
//! count as set. A mark says that pages of its generation are durable. From then on an empty page, or another generation's page,
//! has decayed, too.
//!
//! A half holds a generation if its head, its mark or one of its pages says so. If none does, nothing of the generation was
//! synced, since a sync makes all three durable with the bits. After a power cut a half may have bits that its head does not
//! count. They count as keys, so that no filter gets much fuller than it may.

use std::ops::Range;
use std::sync::Arc;

use crate::encoding::filter::{
    FILTER_BIT_WORDS, FILTER_PAGE_WORDS, FilterCheck, FilterPage, FilterPageState, filter_word,
};
use crate::encoding::log::FilterHead;
use device::{Journal, PAGE_BYTES};

use super::settings::BloomShape;
use crate::error::SliceError;
use crate::pointers::{LogSize, Pointers};
use crate::words;

const WORDS_PER_PAGE: usize = PAGE_BYTES / size_of::<u64>();
const _: () = assert!(FILTER_PAGE_WORDS == WORDS_PER_PAGE);

/// The filters of all partitions. Methods that store are called under the lock of the partition.
pub(super) struct MemoryFilters {
    pub(super) pointers: Pointers,
    partitions: u32,
    functions: u32,
    /// Words of a half of the log. Each filter in memory has a half.
    half_words: usize,
}

/// A filter as a start has found it.
pub(super) struct FoundFilter {
    /// Keys that have been inserted.
    pub(super) keys: u32,
    /// Pages that had decayed, and have all bits set now.
    pub(super) pages_lost: u64,
}

/// The bits of a filter, in order.
pub(super) struct FilterBits {
    pub(super) words: Vec<u64>,
    /// Pages that have decayed. All of their bits count as set.
    pub(super) pages_lost: u64,
}

impl MemoryFilters {
    fn first_half(partitions: u32) -> usize {
        let heads_and_marks = Pointers::end(partitions, 1) + 4 * partitions as usize;
        heads_and_marks.next_multiple_of(WORDS_PER_PAGE)
    }

    /// Returns the words of the whole log.
    pub(super) fn words(shape: &BloomShape) -> usize {
        Self::first_half(shape.partitions) + 2 * shape.partitions as usize * shape.filter_words()
    }

    fn size(shape: &BloomShape) -> LogSize {
        LogSize {
            partitions: shape.partitions,
            drives: 1,
            words: Self::words(shape),
        }
    }

    fn of(pointers: Pointers, shape: &BloomShape) -> Self {
        Self {
            pointers,
            partitions: shape.partitions,
            functions: shape.functions,
            half_words: shape.filter_words(),
        }
    }

    /// Creates the filters of a new structure. Returns when they are durable.
    pub(super) async fn create(
        journal: Arc<dyn Journal>,
        shape: &BloomShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::create(journal, Self::size(shape), instance)?;
        pointers.sync(|| (), || (), || ()).await?;
        Ok(Self::of(pointers, shape))
    }

    /// Opens the filters of an existing structure.
    pub(super) fn open(
        journal: Arc<dyn Journal>,
        shape: &BloomShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::open(journal, Self::size(shape), instance)?;
        Ok(Self::of(pointers, shape))
    }

    fn journal(&self) -> &dyn Journal {
        &*self.pointers.journal
    }

    /// Returns the number of the half of a generation, among all halves.
    fn nth(partition: u32, generation: u32) -> usize {
        2 * partition as usize + (generation % 2) as usize
    }

    fn head(&self, partition: u32, generation: u32) -> usize {
        Pointers::end(self.partitions, 1) + Self::nth(partition, generation)
    }

    fn mark(&self, partition: u32, generation: u32) -> usize {
        self.head(partition, generation) + 2 * self.partitions as usize
    }

    fn half(&self, partition: u32, generation: u32) -> Range<usize> {
        let first = Self::first_half(self.partitions);
        let start = first + Self::nth(partition, generation) * self.half_words;
        start..start + self.half_words
    }

    fn page(&self, partition: u32, generation: u32, page: usize) -> FilterPage {
        FilterPage {
            instance: self.pointers.instance,
            partition,
            generation,
            page: page as u32,
        }
    }

    /// Finds the filter of a generation, and sets all bits of its decayed pages. Returns `None` if the half does not hold the
    /// generation.
    pub(super) fn find(
        &self,
        partition: u32,
        generation: u32,
    ) -> Result<Option<FoundFilter>, SliceError> {
        let word = |at: usize| {
            let word = words::read(self.journal(), at..at + 1)?;
            Ok::<_, SliceError>(FilterHead::decode(word[0]))
        };
        let head = word(self.head(partition, generation))?;
        let is_synced = word(self.mark(partition, generation))?.generation == generation;
        let words = self.read_words(partition, generation)?;
        let states: Vec<FilterPageState> = words
            .chunks_exact(FILTER_PAGE_WORDS)
            .enumerate()
            .map(|(page, words)| self.page(partition, generation, page).state(words))
            .collect();
        let is_sound = |state: &FilterPageState| matches!(state, FilterPageState::Sound(_));
        if !is_synced && head.generation != generation && !states.iter().any(is_sound) {
            return Ok(None);
        }
        let (mut ones, mut pages_lost) = (0, 0);
        for ((page, state), words) in states
            .iter()
            .enumerate()
            .zip(words.chunks_exact(FILTER_PAGE_WORDS))
        {
            match state {
                FilterPageState::Sound(check) => {
                    let bits = words[..FILTER_BIT_WORDS].iter();
                    ones += bits.map(|word| word.count_ones()).sum::<u32>();
                    let last = self.page(partition, generation, page).check_word(*check);
                    // A crash has cut a change short.
                    if words[FILTER_BIT_WORDS] != last {
                        self.store_check(partition, generation, page, *check);
                    }
                }
                FilterPageState::NotBegun if !is_synced => {
                    self.fill(partition, generation, page, 0);
                }
                FilterPageState::NotBegun | FilterPageState::Damaged => {
                    self.fill(partition, generation, page, u64::MAX);
                    pages_lost += 1;
                }
            }
        }
        let counted = match head.generation == generation {
            true => head.keys,
            false => 0,
        };
        Ok(Some(FoundFilter {
            keys: counted.max(ones.div_ceil(self.functions)),
            pages_lost,
        }))
    }

    fn read_words(&self, partition: u32, generation: u32) -> Result<Vec<u64>, SliceError> {
        words::read(self.journal(), self.half(partition, generation))
    }

    /// Stores `bits` to all words of a page, with their check.
    fn fill(&self, partition: u32, generation: u32, page: usize, bits: u64) {
        let start = self.half(partition, generation).start + page * FILTER_PAGE_WORDS;
        for word in start..start + FILTER_BIT_WORDS {
            self.journal().store(word, bits);
        }
        let of = self.page(partition, generation, page);
        let check = of.check(&[bits; FILTER_BIT_WORDS]);
        self.store_check(partition, generation, page, check);
    }

    fn store_check(&self, partition: u32, generation: u32, page: usize, check: u16) {
        let start = self.half(partition, generation).start + page * FILTER_PAGE_WORDS;
        let word = self.page(partition, generation, page).check_word(check);
        self.journal().store(start + FILTER_BIT_WORDS, word);
    }

    /// Returns the bits of a filter. All bits of a decayed page count as set.
    pub(super) fn read(&self, partition: u32, generation: u32) -> Result<FilterBits, SliceError> {
        let mut pages_lost = 0;
        let mut words = Vec::with_capacity(self.half_words);
        let read = self.read_words(partition, generation)?;
        for (page, found) in read.chunks_exact(FILTER_PAGE_WORDS).enumerate() {
            match self.page(partition, generation, page).state(found) {
                FilterPageState::Sound(_) => words.extend(&found[..FILTER_BIT_WORDS]),
                FilterPageState::NotBegun | FilterPageState::Damaged => {
                    words.extend([u64::MAX; FILTER_BIT_WORDS]);
                    pages_lost += 1;
                }
            }
        }
        Ok(FilterBits { words, pages_lost })
    }

    /// Returns whether all these bits of a filter are set.
    pub(super) fn has(&self, partition: u32, generation: u32, slots: &[u32]) -> bool {
        let start = self.half(partition, generation).start;
        let is_set = |&slot: &u32| {
            let word = start + filter_word(slot as usize);
            self.journal().load(word) >> (slot % 64) & 1 == 1
        };
        slots.iter().all(is_set)
    }

    /// Sets bits of a filter, given in ascending order, and stores its head.
    pub(super) fn insert(&self, partition: u32, head: FilterHead, slots: &[u32]) {
        let start = self.half(partition, head.generation).start;
        let page_of = |slot: &u32| filter_word(*slot as usize) / FILTER_PAGE_WORDS;
        for slots in slots.chunk_by(|a, b| page_of(a) == page_of(b)) {
            let number = page_of(&slots[0]);
            let page = self.page(partition, head.generation, number);
            let first = start + number * FILTER_PAGE_WORDS;
            let last = first + FILTER_BIT_WORDS;
            let [_, mut check] = FilterCheck::decode(self.journal().load(last)).checks;
            for slots in slots.chunk_by(|a, b| a / 64 == b / 64) {
                let word = start + filter_word(slots[0] as usize);
                let before = self.journal().load(word);
                let bits = slots
                    .iter()
                    .fold(before, |bits, slot| bits | 1 << (slot % 64));
                // After a crash between two stores, one of the two checks is right for the bits.
                let after = check ^ FilterPage::change(word - first, bits ^ before);
                self.journal().store(last, page.changing_word(check, after));
                self.journal().store(word, bits);
                check = after;
            }
            self.journal().store(last, page.check_word(check));
        }
        let word = self.head(partition, head.generation);
        self.journal().store(word, head.encode());
    }

    /// Empties the half of a generation. The last use of the half, two generations before, must be over.
    pub(super) fn begin(&self, partition: u32, generation: u32) {
        self.journal().clear(self.half(partition, generation));
        for page in 0..self.half_words / FILTER_PAGE_WORDS {
            let check = self.page(partition, generation, page).empty_check();
            self.store_check(partition, generation, page, check);
        }
    }

    /// Returns whether the log says that pages of a generation are durable.
    pub(super) fn is_marked(&self, partition: u32, generation: u32) -> bool {
        let mark = self.journal().load(self.mark(partition, generation));
        FilterHead::decode(mark).generation == generation
    }

    /// Marks a generation as durable, after the success of a sync that began after the generation.
    pub(super) fn set_mark(&self, partition: u32, generation: u32) {
        let mark = FilterHead {
            generation,
            keys: 0,
        };
        let word = self.mark(partition, generation);
        self.journal().store(word, mark.encode());
    }

    /// Lets the half of a generation leave memory: its bits are durable elsewhere.
    pub(super) fn let_go(&self, partition: u32, generation: u32) {
        self.journal().let_go(self.half(partition, generation));
    }

    /// Stores the words of a generation again.
    pub(super) fn store_again(&self, partition: u32, generation: u32) {
        let head = self.head(partition, generation);
        let mark = self.mark(partition, generation);
        let words = self.half(partition, generation).chain([head, mark]);
        words::store_again(self.journal(), words);
    }
}
