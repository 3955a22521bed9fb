//! The log of a similarity index: vectors that are not on the drives yet, deletes, and the pointers to slicetables.
//!
//! ```text
//!   head │ pointer of each partition │ stored vectors of each place │ deletes of each place │ halves: 0 1 2 3
//!                                                          a bit for a vector     └ count, synced count x 2, mark │ vectors
//! ```
//!
//! Segment `s` of generation `g` has half `2 * (g mod 2) + s mod 2`. Generation `g` has place `g mod places`. Counts are as in
//! the log of a hash table: stores survive the process in their order, and after a power cut the checksum of a count says whether
//! all vectors that it counts are there. A half whose mark names the expected segment has a right count. A half whose mark names
//! an earlier segment has not been begun. Every other half has decayed.

use std::sync::Arc;

use crate::encoding::log::{LogCount, PART_ALIGN_WORDS, PART_HEAD_WORDS, half_mark};
use crate::encoding::lsh::StoredVectors;
use device::Journal;

use crate::error::SliceError;
use crate::part::{self, COUNTS, Part};
use crate::pointers::{LogSize, Pointers};
use crate::words;

/// Number of halves: two segments of each of two generations.
const HALVES: usize = 4;

/// The division of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogShape {
    pub(crate) partitions: u32,
    /// Places of the ring, one for each generation that the index may have.
    pub(crate) places: u32,
    /// Vectors of a generation. Each has a bit for its delete.
    pub(crate) batch: u32,
    pub(crate) segment_vectors: u32,
    /// Words of the components of a vector.
    pub(crate) vector_words: usize,
}

impl LogShape {
    fn pointers_end(&self) -> usize {
        Pointers::end(self.partitions, 1)
    }

    fn place(&self, generation: u32) -> usize {
        self.pointers_end() + (generation % self.places) as usize
    }

    fn delete_words(&self) -> usize {
        (self.batch as usize).div_ceil(64)
    }

    fn deletes_start(&self) -> usize {
        self.pointers_end() + self.places as usize
    }

    fn deletes(&self, generation: u32) -> usize {
        self.deletes_start() + (generation % self.places) as usize * self.delete_words()
    }

    fn halves_start(&self) -> usize {
        let deletes = self.places as usize * self.delete_words();
        (self.deletes_start() + deletes).next_multiple_of(PART_ALIGN_WORDS)
    }

    fn half_words(&self) -> usize {
        let words = PART_HEAD_WORDS + self.segment_vectors as usize * self.vector_words;
        words.next_multiple_of(PART_ALIGN_WORDS)
    }

    fn half(&self, generation: u32, segment: u32) -> usize {
        let half = 2 * (generation % 2) + segment % 2;
        self.halves_start() + half as usize * self.half_words()
    }

    fn size(&self) -> LogSize {
        LogSize {
            partitions: self.partitions,
            drives: 1,
            words: self.words(),
        }
    }

    /// Returns the words of the whole log.
    pub(crate) fn words(&self) -> usize {
        self.halves_start() + HALVES * self.half_words()
    }

    /// Returns the bytes of the bits that mark deleted vectors.
    pub(crate) fn delete_bytes(&self) -> u64 {
        8 * u64::from(self.places) * self.delete_words() as u64
    }
}

/// The log of a similarity index. Deletes and the start of a generation need the lock of the index.
pub(crate) struct Log {
    pub(crate) pointers: Pointers,
    pub(crate) shape: LogShape,
}

/// The part of a segment, and the components of its vectors, in order.
pub(crate) type Replayed = (Part, Vec<Vec<u8>>);

impl Log {
    /// Creates the log of a new index.
    pub(crate) fn create(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::create(journal, shape.size(), instance)?;
        let log = Self { pointers, shape };
        for (generation, segment) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            log.begin_segment(generation, segment);
        }
        Ok(log)
    }

    /// Opens the log of an existing index.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        shape: LogShape,
        instance: u64,
    ) -> Result<Self, SliceError> {
        let pointers = Pointers::open(journal, shape.size(), instance)?;
        Ok(Self { pointers, shape })
    }

    fn journal(&self) -> &dyn Journal {
        &*self.pointers.journal
    }

    /// Returns the number of a generation's vectors that are on the drives.
    pub(crate) fn stored(&self, generation: u32) -> u32 {
        let word = self.journal().load(self.shape.place(generation));
        let stored = StoredVectors::decode(word);
        match stored.generation == generation {
            true => stored.count.min(self.shape.batch),
            false => 0,
        }
    }

    /// Stores the number of a generation's vectors that are on the drives. Returns when it is durable.
    pub(crate) async fn store(&self, generation: u32, count: u32) -> Result<(), SliceError> {
        let stored = StoredVectors { generation, count };
        let place = self.shape.place(generation);
        let store = || self.journal().store(place, stored.encode());
        self.pointers.durably(store).await
    }

    /// Begins a generation in its place, or goes on with it: `stored` of its vectors are on the drives, and `count` are known.
    /// Clears the deletes of vectors from number `count` on.
    pub(crate) fn begin_generation(&self, generation: u32, stored: u32, count: u32) {
        let place = StoredVectors {
            generation,
            count: stored,
        };
        self.journal()
            .store(self.shape.place(generation), place.encode());
        let start = self.shape.deletes(generation);
        let whole = start + (count as usize).div_ceil(64);
        if !count.is_multiple_of(64) {
            let word = start + count as usize / 64;
            let others = self.journal().load(word) & ((1 << (count % 64)) - 1);
            self.journal().store(word, others);
        }
        for word in whole..start + self.shape.delete_words() {
            self.journal().store(word, 0);
        }
    }

    fn delete_bit(&self, generation: u32, ordinal: u32) -> (usize, u64) {
        let word = self.shape.deletes(generation) + ordinal as usize / 64;
        (word, 1 << (ordinal % 64))
    }

    /// Returns whether a vector has been deleted. A number that its generation does not have counts as deleted.
    pub(crate) fn is_deleted(&self, generation: u32, ordinal: u32) -> bool {
        if ordinal >= self.shape.batch {
            return true;
        }
        let (word, bit) = self.delete_bit(generation, ordinal);
        self.journal().load(word) & bit != 0
    }

    pub(crate) fn delete(&self, generation: u32, ordinal: u32) {
        let (word, bit) = self.delete_bit(generation, ordinal);
        self.journal().store(word, self.journal().load(word) | bit);
    }

    fn none(&self, generation: u32, segment: u32) -> LogCount {
        LogCount::none(self.pointers.instance, segment, generation)
    }

    fn mark(&self, generation: u32, segment: u32) -> u64 {
        half_mark(self.pointers.instance, segment, generation)
    }

    /// Returns whether a mark is that of a segment that had the half before the given one.
    fn is_earlier(&self, mark: u64, generation: u32, segment: u32) -> bool {
        let of = (mark >> 32) as u32;
        let segments = self.shape.batch.div_ceil(self.shape.segment_vectors).max(2);
        let end = match of == generation {
            true => segment,
            false => segments,
        };
        let mut segments = (segment % 2..end).step_by(2);
        of <= generation
            && of % 2 == generation % 2
            && segments.any(|segment| self.mark(of, segment) == mark)
    }

    /// Begins the log of a segment. The vectors that its half held before must be on a drive.
    pub(crate) fn begin_segment(&self, generation: u32, segment: u32) -> Part {
        let start = self.shape.half(generation, segment);
        let none = self.none(generation, segment);
        Part::begin(self.journal(), start, none, self.mark(generation, segment))
    }

    /// Appends a vector, for which the half must have space.
    pub(crate) fn append(&self, half: &mut Part, components: &[u8]) {
        let words = words_of(components, self.shape.vector_words);
        let start = half.start + PART_HEAD_WORDS;
        let at = start + half.count.entries as usize * self.shape.vector_words;
        for (nth, &word) in words.iter().enumerate() {
            self.journal().store(at + nth, word);
        }
        half.add(self.journal(), &words);
    }

    /// Returns the vectors of a segment that the log has, in order, with the segment's half, which takes further vectors; `None`
    /// if the segment has not been begun.
    ///
    /// # Errors
    /// [`SliceError::DamagedSegment`], and errors of the device.
    pub(crate) fn replay(
        &self,
        generation: u32,
        segment: u32,
    ) -> Result<Option<Replayed>, SliceError> {
        let start = self.shape.half(generation, segment);
        let words = words::read(self.journal(), start..start + self.shape.half_words())?;
        let (head, vectors) = words.split_at(PART_HEAD_WORDS);
        let damaged = |what| SliceError::DamagedSegment { generation, what };
        if head[COUNTS] != self.mark(generation, segment) {
            return match self.is_earlier(head[COUNTS], generation, segment) {
                true => Ok(None),
                false => Err(damaged("its head names no segment that can be")),
            };
        }
        let vectors = vectors.chunks_exact(self.shape.vector_words);
        let vectors = vectors.take(self.shape.segment_vectors as usize);
        let half = Part::found(start, head, self.none(generation, segment), vectors.clone());
        let half = half.ok_or_else(|| damaged("its vectors are not those that were synced"))?;
        let vectors = vectors.take(half.count.entries as usize);
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(Some((half, vectors.map(bytes).collect())))
    }

    /// Makes the log durable as it is under the lock of the index at the time of the call. `locked` takes the lock. `halves` also
    /// takes it, and passes each half to the function that it is given.
    pub(crate) async fn sync(
        &self,
        halves: impl Fn(&mut dyn FnMut(&mut Part)),
        locked: impl FnOnce(&dyn Fn()),
    ) -> Result<(), SliceError> {
        let rest = self.shape.pointers_end()..self.shape.halves_start();
        let rest_again = || locked(&|| words::store_again(self.journal(), rest.clone()));
        part::sync(
            &self.pointers,
            self.shape.half_words(),
            halves,
            rest_again,
            || (),
        )
        .await
    }
}

/// Returns the words that hold `components`, the last one filled with zeros.
fn words_of(components: &[u8], words: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let found: Vec<u64> = components.chunks(8).map(word).collect();
    debug_assert_eq!(found.len(), words, "vectors are of one length");
    found
}

#[cfg(test)]
mod tests {
    use device::MemoryJournal;

    use super::*;

    const SHAPE: LogShape = LogShape {
        partitions: 3,
        places: 4,
        batch: 130,
        segment_vectors: 50,
        vector_words: 2,
    };

    fn log() -> (Arc<MemoryJournal>, Log) {
        let journal = Arc::new(MemoryJournal::new(SHAPE.words()));
        let log = Log::create(journal.clone(), SHAPE, 7).expect("it fits");
        (journal, log)
    }

    #[test]
    fn what_a_generation_has_deleted_is_forgotten_with_its_place() {
        let (_, log) = log();
        log.begin_generation(1, 0, 0);
        for ordinal in [0, 63, 64, 70, 129] {
            log.delete(1, ordinal);
            assert!(log.is_deleted(1, ordinal) && !log.is_deleted(2, ordinal));
        }
        log.begin_generation(1, 0, 70);
        let deleted: Vec<u32> = (0..130).filter(|&at| log.is_deleted(1, at)).collect();
        assert_eq!(deleted, [0, 63, 64]);
        log.begin_generation(5, 0, 0);
        assert!((0..130).all(|at| !log.is_deleted(5, at)));
    }

    #[test]
    fn vectors_are_replayed_as_they_were_appended_and_by_their_segment_alone() {
        let (journal, log) = log();
        let mut half = log.begin_segment(3, 1);
        let vector = |nth: u8| [nth; 11];
        for nth in 0..20 {
            log.append(&mut half, &vector(nth));
        }
        let shared = parking_lot::Mutex::new(half);
        let sync = log.sync(|each| each(&mut shared.lock()), |_| ());
        runtime::sim::Sim::new(1).block_on(sync).expect("it works");
        half = shared.into_inner();
        log.append(&mut half, &vector(20));
        let replayed = |log: &Log| log.replay(3, 1).expect("it is read").expect("it is begun");
        let (_, found) = replayed(&log);
        assert_eq!(found.len(), 21);
        for (nth, bytes) in found.iter().enumerate() {
            assert_eq!(
                (&bytes[..11], &bytes[11..]),
                (&vector(nth as u8)[..], &[0; 5][..])
            );
        }
        // Later segments have not been begun. The replay of an earlier segment reports damage.
        for (generation, segment) in [(5, 1), (3, 3), (3, 0)] {
            let found = log.replay(generation, segment);
            assert!(matches!(found, Ok(None)), "{generation} {segment}");
        }
        let found = log.replay(1, 1);
        let is_damage = matches!(found, Err(SliceError::DamagedSegment { generation: 1, .. }));
        assert!(is_damage, "{found:?}");
        // The last vector was not synced, and a power cut has damaged it.
        let mut words = journal.crash();
        words[SHAPE.half(3, 1) + PART_HEAD_WORDS + 40] ^= 1;
        let again = Log::open(Arc::new(MemoryJournal::from_words(words)), SHAPE, 7);
        let again = again.expect("it is one");
        let (mut half, found) = replayed(&again);
        assert_eq!(found.len(), 20);
        again.append(&mut half, &vector(99));
        assert_eq!(replayed(&again).1.len(), 21);
        let other = Log::open(
            Arc::new(MemoryJournal::from_words(journal.crash())),
            SHAPE,
            8,
        );
        assert!(matches!(other, Err(SliceError::OtherLog)));
    }
}
