//! The journal: the deaths since the last checkpoint, in memory that survives the process.
//!
//! ```text
//!   placement, flush_all ── append ──> chunk being filled ── full ──> … ── checkpoint ──> free
//! ```
//!
//! An append is a few stores under one mutex and never fails. Requests ask [`has_space`](Journal::has_space) first and
//! wait if there is none; background tasks have a reserve. A lost record makes the journal void: a start would be
//! empty. Records are lost when even the reserve is used up, and when a sync fails, because the operating system then
//! takes the pages that it could not write for clean. A checkpoint made from the index heals the journal
//! ([`restart`](Journal::restart)).
//!
//! Checksums tell which records were once durable: a closed chunk gets a seal, and for the chunk being filled the head
//! records how far the last sync had come. So a rotten or missing page is not taken for the end of the journal. See
//! `docs/internals/recovery.md`.

mod chunk;
pub(crate) mod head;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use device::{Bytes, DeviceError, Journal as Log, Setting};
use runtime::sync::{Notify, Semaphore};

pub use chunk::ChunkRecords;
pub(crate) use chunk::{Damaged, chunks, last_chunk, ring_chunks};
use head::{last_synced, newest_slot, note_time};

use crate::format::journal::{
    BEGUN_WORD, ChunkHeader, Filled, HEAD_WORDS, Head, Record, SEAL_WORD, SYNCED_WORDS, Synced,
    VOID_WORD, chunk_words,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Chunks kept for records that cannot wait for space.
const RESERVE_CHUNKS: u64 = 3;

/// Reason for which the content of a journal cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no journal: it is new.
    #[error("it is missing")]
    Missing,
    /// The journal had these bytes alone.
    #[error("it has been cut short, to {:.2}", Bytes(*bytes))]
    #[allow(missing_docs, reason = "the message says what the field is")]
    Short { bytes: u64 },
    /// The journal has no head.
    #[error("it holds nothing")]
    Blank,
    /// The journal was that of another image, or another program's file, and may be taken.
    #[error("it belonged to another cache or another program")]
    Other,
    /// The journal belongs to another run than the image.
    #[error("it is of another run of the cache")]
    Run,
    /// The size of the journal has changed since it was used.
    #[error("its size has changed")]
    Size,
    /// Records have been lost.
    #[error("records of it were lost, and no checkpoint could be written since")]
    Void,
    /// The journal's head is damaged.
    #[error("its head is damaged")]
    Damaged,
    /// The journal has another version of the format.
    #[error("it is of another format")]
    Format,
}

/// Reason for which a journal cannot be taken over.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The log holds other data than a journal.
    #[error(
        "it holds something that is not a Flowstone journal; name another file with {journal}, or use {force} to \
         overwrite it",
        journal = Setting::Journal, force = Setting::Force
    )]
    Foreign,
    /// The journal belongs to another image.
    #[error(
        "it is the journal of another cache; name this cache's own, or a new file, with {journal}, or use {force} to overwrite \
         it and start empty",
        journal = Setting::Journal, force = Setting::Force
    )]
    OtherImage,
    /// The log is too short.
    #[error(
        "a journal of {:.2} is too small for this image, which needs {:.2}: raise {journal_size} and remove it",
        Bytes(8 * *words as u64), Bytes(8 * *needed as u64),
        journal_size = Setting::JournalSize
    )]
    TooShort { words: usize, needed: usize },
}

/// The journal of a running cache.
pub struct Journal {
    pub(crate) log: Arc<dyn Log>,
    head: Head,
    chunk_words: usize,
    chunks: u64,
    /// Sequence number of the next segment, shared with the store.
    next_segment: Arc<AtomicU64>,
    cursor: Mutex<Cursor>,
    /// Segments declared dead in this run that the store may still have, with their sequence numbers.
    dead_segments: Mutex<HashSet<(u32, u64)>>,
    is_tight: AtomicBool,
    is_void: AtomicBool,
    is_void_durable: AtomicBool,
    /// Number of times that records have been lost.
    losses: AtomicU64,
    is_dirty: AtomicBool,
    records: AtomicU64,
    /// Held during a sync until its losses are noted: the operating system reports an error to one sync, and the next
    /// one succeeds.
    syncing: Semaphore,
    /// Notified when a checkpoint is due.
    pub(crate) pressure: Notify,
    /// Notified when there are records to sync.
    pub(crate) dirtied: Notify,
}

struct Cursor {
    /// Sequence number of the chunk being filled.
    sequence: u64,
    /// Fill of this chunk.
    filled: Filled,
    /// Whether the chunk takes no more records.
    is_closed: bool,
    /// The last sync according to the head. `next_slot` is the one of the head's two slots that the next sync is noted
    /// in.
    synced: Synced,
    next_slot: usize,
    /// Sequence number of the first chunk whose records are in no checkpoint.
    first: u64,
    /// Whether requests wait for space: `false` while no checkpoint is going to free any.
    makes_wait: bool,
}

impl Cursor {
    /// Returns the number of chunks whose records are in no checkpoint, the one being filled included.
    fn used(&self) -> u64 {
        self.sequence + 1 - self.first
    }
}

impl Journal {
    /// Takes a log over for the run `run`. The chunks with the sequence numbers `kept` stay, and new records go behind them.
    /// Kept chunks that a power cut has taken become empty.
    pub(crate) fn take_over(
        log: Arc<dyn Log>,
        image: u64,
        run: u64,
        partitions: u32,
        kept: Range<u64>,
        next_segment: Arc<AtomicU64>,
    ) -> Self {
        let (first, last) = (kept.start, kept.end - 1);
        let chunk_words = chunk_words(partitions);
        let chunks = ring_chunks(&*log, partitions);
        let newest = newest_slot(&*log);
        let synced = last_synced(&*log).unwrap_or(Synced {
            sequence: 0,
            filled: Filled::EMPTY,
        });
        let journal = Self {
            log,
            head: Head {
                image,
                chunk_words: chunk_words as u64,
                chunks,
                run,
            },
            chunk_words,
            chunks,
            next_segment,
            cursor: Mutex::new(Cursor {
                sequence: last,
                filled: Filled::EMPTY,
                is_closed: true,
                synced,
                next_slot: usize::from(newest == Some(0)),
                first,
                makes_wait: true,
            }),
            dead_segments: Mutex::default(),
            is_tight: AtomicBool::new(false),
            is_void: AtomicBool::new(false),
            is_void_durable: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            is_dirty: AtomicBool::new(true),
            records: AtomicU64::new(0),
            syncing: Semaphore::new(1),
            pressure: Notify::new(),
            dirtied: Notify::new(),
        };
        // Chunks that were closed when the last sync began have been verified already.
        for sequence in first.max(synced.sequence)..=last {
            let filled = match journal.chunk(sequence) {
                Some(chunk) => chunk.found(&*journal.log),
                None => None,
            };
            if filled.is_none() {
                journal.begin(sequence);
            }
            let filled = filled.unwrap_or(Filled::EMPTY);
            journal.seal(sequence, filled);
            journal.cursor.lock().filled = filled;
        }
        journal.update(&journal.cursor.lock());
        journal
    }

    /// Appends a record; a record of a flush gets the number of its chunk. The record survives a crash of the process
    /// as soon as this returns.
    pub fn append(&self, mut record: Record) {
        if let Record::SegmentDead {
            segment,
            generation,
        } = record
        {
            self.dead_segments.lock().insert((segment, generation));
        }
        let len = record.encode().words().len();
        let mut cursor = self.cursor.lock();
        let is_full = cursor.is_closed || cursor.filled.next() + len > self.chunk_words;
        if is_full && !self.open_chunk(&mut cursor) {
            return;
        }
        if let Record::FlushAt { chunk, .. } | Record::Cutoff { chunk, .. } = &mut record {
            *chunk = cursor.sequence;
        }
        let encoded = record.encode();
        let words = encoded.words();
        let at = self.place(cursor.sequence) + cursor.filled.next();
        for (offset, &word) in words.iter().enumerate() {
            self.log.store(at + offset, word);
        }
        cursor.filled.append(words);
        drop(cursor);
        self.records.fetch_add(1, Ordering::Relaxed);
        self.mark_dirty();
    }

    fn mark_dirty(&self) {
        if !self.is_dirty.load(Ordering::Relaxed) {
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
        }
    }

    /// Returns whether a request that may need records can go ahead.
    #[inline]
    pub(crate) fn has_space(&self) -> bool {
        !self.is_tight.load(Ordering::Acquire)
    }

    /// Returns whether there is space for the records that can wait longest: a quarter of the ring, and more than the
    /// reserve, stays free for others.
    pub fn has_space_to_spare(&self) -> bool {
        let left = (self.chunks / 4).max(RESERVE_CHUNKS + 1);
        self.cursor.lock().used() + left < self.chunks
    }

    /// Returns whether a checkpoint is due: half of the ring is full.
    pub(crate) fn is_due(&self) -> bool {
        self.cursor.lock().used() >= self.chunks / 2
    }

    /// Returns the segments declared dead in this run that the store may still have, with their sequence numbers.
    pub(crate) fn dead_segments(&self) -> HashSet<(u32, u64)> {
        self.dead_segments.lock().clone()
    }

    /// Forgets dead segments for which `is_there` is false: the store no longer has the generation, and it does not
    /// come back.
    pub(crate) fn forget_dead_segments(&self, is_there: impl Fn(&(u32, u64)) -> bool) {
        self.dead_segments.lock().retain(is_there);
    }

    /// Returns whether records have been lost that no checkpoint holds.
    pub fn is_void(&self) -> bool {
        self.is_void.load(Ordering::Acquire)
    }

    /// Returns the number of times that records have been lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Notes that records are lost, and logs `why`. Requests do not wait for space until the journal is
    /// [restarted](Journal::restart).
    pub(crate) fn lose(&self, why: &str) {
        self.lose_at(&mut self.cursor.lock(), why);
    }

    fn lose_at(&self, cursor: &mut Cursor, why: &str) {
        cursor.makes_wait = false;
        self.is_tight.store(false, Ordering::Release);
        // Stored each time: the failed sync may have lost this word, too.
        self.log.store(VOID_WORD, 1);
        if !self.is_void.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "{why}: if the cache ends before a whole checkpoint is written, the next start is empty"
            );
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
            self.pressure.notify_all();
        }
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns [`losses`](Journal::losses) and [`is_void`](Journal::is_void) as of one moment.
    pub(crate) fn losses_and_void(&self) -> (u64, bool) {
        let _cursor = self.cursor.lock();
        (self.losses(), self.is_void())
    }

    /// Discards the records of the journal and takes new ones. Called for a checkpoint that needs none of the old
    /// records. Returns, like [`cut`](Journal::cut), the first chunk of the new records.
    pub(crate) fn restart(&self) -> u64 {
        let mut cursor = self.cursor.lock();
        self.restore_head();
        self.close(&mut cursor);
        cursor.first = cursor.sequence + 1;
        cursor.makes_wait = true;
        self.update(&cursor);
        cursor.first
    }

    /// Stores the head again where the system has taken its page away. A void journal is marked first, so that no start believes
    /// the head. Returns whether the head had been lost.
    fn restore_head(&self) -> bool {
        if self.is_void() {
            self.log.store(VOID_WORD, 1);
        }
        let is_lost = head::store(&*self.log, self.head);
        if is_lost {
            self.log.store(BEGUN_WORD, self.head.run);
        }
        is_lost
    }

    /// Ends the void state once a checkpoint holds all deaths before the restart, unless records have been lost since
    /// `losses` was read.
    pub(crate) fn heal(&self, losses: u64) {
        let _cursor = self.cursor.lock();
        if self.losses() == losses && self.is_void.swap(false, Ordering::AcqRel) {
            self.log.store(VOID_WORD, 0);
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
            tracing::info!("the journal is whole again: a checkpoint holds all that has died");
        }
    }

    /// Notes whether the superblock durably says that records have been lost.
    pub(crate) fn note_void_durable(&self, is: bool) {
        self.is_void_durable.store(is, Ordering::Release);
    }

    /// Returns whether a start after a power cut would know that records have been lost.
    pub(crate) fn is_void_durable(&self) -> bool {
        self.is_void_durable.load(Ordering::Acquire)
    }

    /// Returns the number of records appended in this run.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.chunks * 8 * self.chunk_words as u64
    }

    /// Returns the bytes of memory of a journal kept in a log: the chunk being filled and the one before.
    pub(crate) fn memory_of(partitions: u32) -> u64 {
        2 * 8 * chunk_words(partitions) as u64
    }

    /// Returns the bytes of the ring, and the bytes of its chunks in use.
    pub fn fill(&self) -> (u64, u64) {
        let used = self.cursor.lock().used();
        (self.ring_bytes(), used * 8 * self.chunk_words as u64)
    }

    /// Returns the number of times that the ring has been filled.
    pub fn laps(&self) -> u64 {
        self.cursor.lock().sequence / self.chunks
    }

    /// Closes the chunk being filled. Returns the number of the next chunk; the chunks before it are complete.
    pub(crate) fn cut(&self) -> u64 {
        let mut cursor = self.cursor.lock();
        self.close(&mut cursor);
        cursor.sequence + 1
    }

    /// Returns the complete chunks before `end`.
    ///
    /// [`Damaged`] when one of the chunks is missing.
    pub(crate) fn before(&self, end: u64) -> Result<Vec<ChunkRecords>, Damaged> {
        let first = self.cursor.lock().first;
        let chunk = |sequence| {
            let chunk = self.chunk(sequence).ok_or(Damaged)?;
            Ok(chunk.closed())
        };
        (first..end).map(chunk).collect()
    }

    /// Frees the chunks before `end`: a checkpoint holds their records.
    pub(crate) fn retire(&self, end: u64) {
        let mut cursor = self.cursor.lock();
        cursor.first = cursor.first.max(end);
        self.update(&cursor);
    }

    /// Makes every record so far durable, and notes the time `now` in the head.
    pub(crate) async fn sync(&self, now: u32) -> Result<(), DeviceError> {
        let _turn = self.syncing.acquire().await;
        self.sync_in_turn(now).await
    }

    /// Makes the records before [`reached`](Self::reached) durable, unless a sync since then or a checkpoint has done
    /// so. While records are lost and the superblock does not durably say so, always syncs.
    pub(crate) async fn sync_to(&self, reached: &Synced, now: u32) -> Result<(), DeviceError> {
        let _turn = self.syncing.acquire().await;
        let is_needed = {
            let cursor = self.cursor.lock();
            let is_unknown = self.is_void() && !self.is_void_durable();
            is_unknown || reached.sequence >= cursor.first && reached.is_beyond(&cursor.synced)
        };
        if !is_needed {
            return Ok(());
        }
        self.sync_in_turn(now).await
    }

    /// Returns the fill of the journal: the chunk being filled, and its fill.
    pub(crate) fn reached(&self) -> Synced {
        let cursor = self.cursor.lock();
        Synced {
            sequence: cursor.sequence,
            filled: cursor.filled,
        }
    }

    async fn sync_in_turn(&self, now: u32) -> Result<(), DeviceError> {
        self.is_dirty.store(false, Ordering::Relaxed);
        note_time(&*self.log, now);
        let reached = self.reached();
        if let Err(error) = self.log.sync().await {
            let mut cursor = self.cursor.lock();
            // Nothing is lost if the checkpoint holds every record and the head has its space.
            if cursor.sequence >= cursor.first || error.is_full() {
                self.lose_at(
                    &mut cursor,
                    &format!("the journal cannot be synced ({error})"),
                );
            }
            if self.restore_head() {
                self.mark_dirty();
            }
            return Err(error);
        }
        let mut cursor = self.cursor.lock();
        // Only on progress: any store would make the journal dirty again.
        if reached.is_beyond(&cursor.synced) {
            let at = SYNCED_WORDS[cursor.next_slot];
            for (number, word) in reached.encode().into_iter().enumerate() {
                self.log.store(at + number, word);
            }
            cursor.synced = reached;
            cursor.next_slot ^= 1;
            // The note is durable with the next sync, so it never covers records that are not.
            self.mark_dirty();
        }
        Ok(())
    }

    /// Returns whether a record, a loss or the note of a sync has been stored since the last sync began.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Relaxed)
    }

    /// Returns the word at which a chunk starts.
    fn place(&self, sequence: u64) -> usize {
        HEAD_WORDS + ((sequence - 1) % self.chunks) as usize * self.chunk_words
    }

    /// Opens the next chunk. Returns `false` if the ring is full; the journal is void then.
    fn open_chunk(&self, cursor: &mut Cursor) -> bool {
        if cursor.used() >= self.chunks {
            self.lose_at(
                cursor,
                "the journal is full and no checkpoint can be written",
            );
            return false;
        }
        self.close(cursor);
        if cursor.sequence >= cursor.first {
            let full = self.place(cursor.sequence);
            self.log.let_go(full..full + self.chunk_words);
        }
        cursor.sequence += 1;
        cursor.filled = Filled::EMPTY;
        cursor.is_closed = false;
        self.begin(cursor.sequence);
        self.update(cursor);
        true
    }

    /// Closes the chunk being filled.
    fn close(&self, cursor: &mut Cursor) {
        if !cursor.is_closed {
            cursor.is_closed = true;
            self.seal(cursor.sequence, cursor.filled);
        }
    }

    /// Writes the seal of a chunk: how far it is filled.
    fn seal(&self, sequence: u64, filled: Filled) {
        let seal = self.place(sequence) + SEAL_WORD;
        if self.log.load(seal) != filled.encode() {
            self.log.store(seal, filled.encode());
        }
    }

    /// Makes the chunk with this sequence number an empty one.
    fn begin(&self, sequence: u64) {
        let start = self.place(sequence);
        // The old header goes first: until the new header is complete, the chunk is empty.
        self.log.clear(start..start + self.chunk_words);
        let header = ChunkHeader {
            image: self.head.image,
            sequence,
            next_segment: self.next_segment.load(Ordering::Acquire),
        };
        for (number, word) in header.encode().into_iter().enumerate().rev() {
            self.log.store(start + number, word);
        }
    }

    /// Returns the chunk with this sequence number, if it is there.
    fn chunk(&self, sequence: u64) -> Option<ChunkRecords> {
        let start = self.place(sequence);
        ChunkRecords::read(&*self.log, start, start + self.chunk_words).filter(|chunk| {
            chunk.header.image == self.head.image && chunk.header.sequence == sequence
        })
    }

    fn update(&self, cursor: &Cursor) {
        let used = cursor.used();
        let is_full = used + RESERVE_CHUNKS >= self.chunks;
        let is_tight = is_full && cursor.makes_wait;
        self.is_tight.store(is_tight, Ordering::Release);
        if used >= self.chunks / 2 {
            self.pressure.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use device::MemoryJournal;
    use runtime::sim::Sim;

    use super::*;

    const NOW: u32 = 1_800_000_000;

    /// Returns a new journal, and its log.
    fn begun() -> (Journal, Arc<MemoryJournal>) {
        let log = Arc::new(MemoryJournal::new(HEAD_WORDS + 8 * chunk_words(1)));
        let journal = Journal::take_over(log.clone(), 7, 1, 1, 1..1, Arc::default());
        (journal, log)
    }

    fn is_synced(journal: &Journal, reached: &Synced) -> bool {
        Sim::new(1).block_on(journal.sync_to(reached, NOW)).is_ok()
    }

    #[test]
    fn what_a_checkpoint_holds_waits_for_no_sync() {
        let (journal, log) = begun();
        journal.append(Record::Retired { segment: 1 });
        let reached = journal.reached();
        journal.retire(journal.cut());
        log.set_sync_fails(true);
        assert!(is_synced(&journal, &reached));
        journal.append(Record::Retired { segment: 2 });
        assert!(!is_synced(&journal, &journal.reached()));
    }

    #[test]
    fn what_was_lost_waits_until_a_start_would_know() {
        let (journal, log) = begun();
        journal.append(Record::Retired { segment: 1 });
        assert!(is_synced(&journal, &journal.reached()));
        journal.lose("the test says so");
        log.set_sync_fails(true);
        assert!(!is_synced(&journal, &journal.reached()));
        journal.note_void_durable(true);
        assert!(is_synced(&journal, &journal.reached()));
    }

    /// The system takes the page of the head away, and gives back an empty one.
    #[test]
    fn a_head_that_was_lost_is_stored_again_behind_the_mark() {
        let (journal, log) = begun();
        let head = || std::array::from_fn::<u64, { BEGUN_WORD + 1 }, _>(|word| log.load(word));
        for is_in_checkpoint in [true, false] {
            journal.append(Record::Retired { segment: 1 });
            if is_in_checkpoint {
                journal.retire(journal.cut());
            }
            log.clear(0..HEAD_WORDS);
            log.set_sync_fails(true);
            let reached = journal.reached();
            assert_eq!(is_synced(&journal, &reached), is_in_checkpoint);
            assert!(Sim::new(1).block_on(journal.sync(NOW)).is_err());
            assert_eq!(head()[..2], journal.head.encode()[..2]);
            assert_eq!(head()[BEGUN_WORD], journal.head.run);
            assert_eq!(log.load(VOID_WORD), u64::from(!is_in_checkpoint));
            log.set_sync_fails(false);
        }
        log.clear(0..HEAD_WORDS);
        journal.restart();
        assert_eq!((log.load(VOID_WORD), head()[5]), (1, journal.head.run));
    }
}
