//! The journal: what has died since the last checkpoint, in memory that survives the process.
//!
//! ```text
//!   placement, flush_all ── append ──> chunk being filled ── full ──> … ── checkpoint ──> free
//! ```
//!
//! An append is a few stores under one mutex and never fails. Requests ask
//! [`has_space`](Journal::has_space) first and wait if there is none; what goes on in background has a
//! reserve. Where a record is lost all the same the journal is void: a start would find nothing. That is so when even
//! the reserve is used up, and when a sync fails: the system takes the pages it could not write for written. A
//! checkpoint of what the index says heals it ([`restart`](Journal::restart)). See `docs/recovery.md`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Bytes, DeviceError, Journal as Log};
use parking_lot::Mutex;
use runtime::sync::Notify;

use crate::format::journal::{
    CHUNK_HEADER_WORDS, CLOCK_WORD, ChunkHeader, HEAD_WORDS, Head, Record, SYNCED_WORD, VOID_WORD,
    chunk_words,
};

/// Chunks kept for what cannot wait.
const RESERVE_CHUNKS: u64 = 3;

/// Chunks of the ring in a log.
pub(crate) fn ring_chunks(log: &dyn Log, partitions: u32) -> u64 {
    ((log.words() - HEAD_WORDS) / chunk_words(partitions)) as u64
}

/// Why what a journal holds cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The journal is new, has been cut short, or is that of another image that was here before.
    #[error("it is missing, cut short, or holds nothing")]
    Missing,
    /// The journal is of another run than the image.
    #[error("it is of another run of the cache")]
    Run,
    /// The journal has another size than when it was used.
    #[error("its size has changed")]
    Size,
    /// Records had to be left out.
    #[error("records of it were lost, and no checkpoint could be written since")]
    Void,
    /// The journal's head is damaged.
    #[error("its head is damaged")]
    Damaged,
    /// The journal is of another version of the format.
    #[error("it is of another format")]
    Format,
}

/// A journal that cannot be taken over.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The log holds something that is no journal.
    #[error(
        "it holds something that is not a Flowstone journal; name another file with cache.journal, or use --force to \
         overwrite it"
    )]
    Foreign,
    /// The journal belongs to another image.
    #[error(
        "it is the journal of another image; name this image's with cache.journal, or use --force to start empty"
    )]
    OtherImage,
    /// The log is too short.
    #[error(
        "a journal of {:.2} is too small for this image, which needs {:.2}: raise cache.journal_size and remove it",
        Bytes(8 * *words as u64), Bytes(8 * *needed as u64)
    )]
    TooShort { words: usize, needed: usize },
}

/// The journal of a running cache.
pub struct Journal {
    pub(crate) log: Arc<dyn Log>,
    image: u64,
    chunk_words: usize,
    chunks: u64,
    /// The sequence number of the next segment, as the store counts.
    next_segment: Arc<AtomicU64>,
    cursor: Mutex<Cursor>,
    /// Segments declared dead in this run that the store may still have, with their sequence numbers.
    dead_segments: Mutex<HashSet<(u32, u64)>>,
    is_tight: AtomicBool,
    is_void: AtomicBool,
    /// Times that records have been lost.
    losses: AtomicU64,
    is_dirty: AtomicBool,
    records: AtomicU64,
    /// Notified when a checkpoint is due.
    pub(crate) pressure: Notify,
    /// Notified when there is something to sync.
    pub(crate) dirtied: Notify,
}

struct Cursor {
    /// The chunk being filled.
    sequence: u64,
    /// The next word in it.
    next: usize,
    /// The first chunk that no checkpoint has taken.
    first: u64,
    /// Whether requests wait for space: not where nothing is going to make some.
    makes_wait: bool,
}

impl Cursor {
    /// Chunks that hold records no checkpoint has taken, the one being filled included.
    fn used(&self) -> u64 {
        self.sequence + 1 - self.first
    }
}

impl Journal {
    /// The latest Unix second a journal has seen.
    pub(crate) fn clock(log: &dyn Log) -> u32 {
        u32::try_from(log.load(CLOCK_WORD)).unwrap_or(0)
    }

    /// Whether a chunk from sequence number `first` on is missing among those `found` though it was
    /// durable. Others may be: a power cut takes what was not synced in any order.
    pub(crate) fn has_gap(log: &dyn Log, found: &[ChunkRecords], first: u64) -> bool {
        let synced = log.load(SYNCED_WORD);
        let durable = found.iter().filter(|chunk| chunk.header.sequence <= synced);
        (durable.count() as u64) < (synced + 1).saturating_sub(first)
    }

    /// The valid chunks of `image` in a log from sequence number `first` on, in order.
    pub(crate) fn chunks(
        log: &dyn Log,
        image: u64,
        partitions: u32,
        first: u64,
    ) -> Vec<ChunkRecords> {
        let chunk_words = chunk_words(partitions);
        let chunks = ring_chunks(log, partitions) as usize;
        let belongs_at = |header: &ChunkHeader, place: usize| {
            header.image == image
                && header.sequence >= first
                && (header.sequence - 1) % chunks as u64 == place as u64
        };
        let chunk_at = |place| {
            let start = HEAD_WORDS + place * chunk_words;
            let header = header_at(log, start).filter(|header| belongs_at(header, place))?;
            let end = start + chunk_words;
            Some(ChunkRecords { header, start, end })
        };
        let mut found: Vec<ChunkRecords> = (0..chunks).filter_map(chunk_at).collect();
        found.sort_unstable_by_key(|chunk| chunk.header.sequence);
        found
    }

    /// Makes a log that of a run, durably. From one run to the next a single word changes, so that a
    /// crash leaves one or the other.
    pub(crate) async fn write_head(log: &dyn Log, head: Head) -> Result<(), DeviceError> {
        for (number, word) in head.encode().into_iter().enumerate() {
            if log.load(number) != word {
                log.store(number, word);
            }
        }
        log.sync().await
    }

    /// Remembers that it is `now`, durably: what recovery finds expired or flushed by then is not declared
    /// dead one by one, and must stay so when the clock is set back.
    pub(crate) async fn write_clock(log: &dyn Log, now: u32) -> Result<(), DeviceError> {
        note_time(log, now);
        log.sync().await
    }

    /// Takes a log over for a run: its chunks from `first` on stay, new records go behind `last`. What a
    /// power cut has taken between them is empty from then on.
    pub(crate) fn take_over(
        log: Arc<dyn Log>,
        image: u64,
        partitions: u32,
        (first, last): (u64, u64),
        next_segment: Arc<AtomicU64>,
    ) -> Self {
        let chunk_words = chunk_words(partitions);
        let chunks = ring_chunks(&*log, partitions);
        let journal = Self {
            log,
            image,
            chunk_words,
            chunks,
            next_segment,
            cursor: Mutex::new(Cursor {
                sequence: last,
                next: chunk_words,
                first,
                makes_wait: true,
            }),
            dead_segments: Mutex::default(),
            is_tight: AtomicBool::new(false),
            is_void: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            is_dirty: AtomicBool::new(true),
            records: AtomicU64::new(0),
            pressure: Notify::new(),
            dirtied: Notify::new(),
        };
        for sequence in first..=last {
            if journal.header(sequence).is_none() {
                journal.begin(sequence);
            }
        }
        journal.update(&journal.cursor.lock());
        journal
    }

    /// Forgets that records were left out, and what was durable: the image starts empty from here.
    pub(crate) fn start_empty(log: &dyn Log) {
        log.store(VOID_WORD, 0);
        log.store(SYNCED_WORD, 0);
    }

    /// Appends a record, one of a flush with the chunk it comes to lie in: what it says holds after a
    /// crash of the process as soon as this returns.
    pub(crate) fn append(&self, mut record: Record) {
        if let Record::SegmentDead {
            segment,
            generation,
        } = record
        {
            self.dead_segments.lock().insert((segment, generation));
        }
        let len = record.encode().words().len();
        let mut cursor = self.cursor.lock();
        if cursor.next + len > self.chunk_words && !self.open_chunk(&mut cursor) {
            return;
        }
        if let Record::FlushAt { chunk, .. } | Record::Cutoff { chunk, .. } = &mut record {
            *chunk = cursor.sequence;
        }
        let encoded = record.encode();
        let words = encoded.words();
        let at = self.place(cursor.sequence) + cursor.next;
        for (offset, &word) in words.iter().enumerate() {
            self.log.store(at + offset, word);
        }
        cursor.next += words.len();
        drop(cursor);
        self.records.fetch_add(1, Ordering::Relaxed);
        if !self.is_dirty.load(Ordering::Relaxed) {
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
        }
    }

    /// Whether a request that may need records can go ahead.
    #[inline]
    pub(crate) fn has_space(&self) -> bool {
        !self.is_tight.load(Ordering::Acquire)
    }

    /// Whether a checkpoint is due: half of the ring is full.
    pub(crate) fn is_due(&self) -> bool {
        self.cursor.lock().used() >= self.chunks / 2
    }

    /// Segments declared dead in this run that the store may still have, with their sequence numbers.
    pub(crate) fn dead_segments(&self) -> HashSet<(u32, u64)> {
        self.dead_segments.lock().clone()
    }

    /// Forgets segments that the store does not have any more: such a generation does not come back.
    pub(crate) fn forget_dead_segments(&self, is_there: impl Fn(&(u32, u64)) -> bool) {
        self.dead_segments.lock().retain(is_there);
    }

    /// Whether records have been lost that no checkpoint holds.
    pub fn is_void(&self) -> bool {
        self.is_void.load(Ordering::Acquire)
    }

    /// Times that records have been lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Records are lost, and why: nobody waits for space until the journal has been [healed](Journal::heal).
    pub(crate) fn lose(&self, why: &str) {
        self.lose_at(&mut self.cursor.lock(), why);
    }

    fn lose_at(&self, cursor: &mut Cursor, why: &str) {
        self.losses.fetch_add(1, Ordering::AcqRel);
        cursor.makes_wait = false;
        self.is_tight.store(false, Ordering::Release);
        if !self.is_void.swap(true, Ordering::AcqRel) {
            self.log.store(VOID_WORD, 1);
            tracing::error!(
                "{why}: if the cache ends before a whole checkpoint is written, the next start is empty"
            );
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
            self.pressure.notify_all();
        }
    }

    /// Gives up what the journal holds and takes records again; what it is begun afresh for is a checkpoint that
    /// needs none of them. Returns, as [`cut`](Journal::cut) does, the first chunk of the records from now on.
    pub(crate) fn restart(&self) -> u64 {
        let mut cursor = self.cursor.lock();
        cursor.next = self.chunk_words;
        cursor.first = cursor.sequence + 1;
        cursor.makes_wait = true;
        self.update(&cursor);
        cursor.first
    }

    /// A checkpoint holds what has died before chunk `end`, and nothing has been lost since `losses`.
    pub(crate) fn heal(&self, losses: u64) {
        if self.losses() == losses && self.is_void.swap(false, Ordering::AcqRel) {
            self.log.store(VOID_WORD, 0);
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
            tracing::info!("the journal is whole again: a checkpoint holds all that has died");
        }
    }

    /// Records appended in this run.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Bytes of the ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.chunks * 8 * self.chunk_words as u64
    }

    /// Bytes of memory that a journal takes which is kept in a log: the chunk being filled and the one before.
    pub(crate) fn memory_of(partitions: u32) -> u64 {
        2 * 8 * chunk_words(partitions) as u64
    }

    /// Bytes of the ring, and how many of them hold records.
    pub fn fill(&self) -> (u64, u64) {
        let used = self.cursor.lock().used();
        (self.ring_bytes(), used * 8 * self.chunk_words as u64)
    }

    /// Closes the chunk being filled. The chunks before the one returned are complete.
    pub(crate) fn cut(&self) -> u64 {
        let mut cursor = self.cursor.lock();
        cursor.next = self.chunk_words;
        cursor.sequence + 1
    }

    /// The complete chunks before `end`.
    pub(crate) fn before(&self, end: u64) -> Vec<ChunkRecords> {
        let first = self.cursor.lock().first;
        let chunk = |sequence| {
            let start = self.place(sequence);
            let (header, end) = (self.header(sequence)?, start + self.chunk_words);
            Some(ChunkRecords { header, start, end })
        };
        (first..end).filter_map(chunk).collect()
    }

    /// A checkpoint holds what the chunks before `end` say: they are free.
    pub(crate) fn retire(&self, end: u64) {
        let mut cursor = self.cursor.lock();
        cursor.first = cursor.first.max(end);
        self.update(&cursor);
    }

    /// Makes every record so far durable, and remembers that it is `now`.
    pub(crate) async fn sync(&self, now: u32) -> Result<(), DeviceError> {
        self.is_dirty.store(false, Ordering::Relaxed);
        note_time(&*self.log, now);
        let last = self.cursor.lock().sequence;
        if let Err(error) = self.log.sync().await {
            let mut cursor = self.cursor.lock();
            // All that the checkpoint holds is safe.
            if cursor.sequence >= cursor.first {
                self.lose_at(&mut cursor, "the journal cannot be synced");
            }
            return Err(error);
        }
        // This word itself is durable with the next sync: it never names a chunk that is not.
        // Of two syncs at once the one that has come further may end first.
        self.log
            .store(SYNCED_WORD, last.max(self.log.load(SYNCED_WORD)));
        Ok(())
    }

    /// Whether anything has been appended since the last sync began.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Relaxed)
    }

    /// The word at which a chunk starts.
    fn place(&self, sequence: u64) -> usize {
        HEAD_WORDS + ((sequence - 1) % self.chunks) as usize * self.chunk_words
    }

    /// Opens the next chunk; false when there is none, and then the journal is void.
    fn open_chunk(&self, cursor: &mut Cursor) -> bool {
        if cursor.used() >= self.chunks {
            self.lose_at(
                cursor,
                "the journal is full and no checkpoint can be written",
            );
            return false;
        }
        if cursor.sequence >= cursor.first {
            let full = self.place(cursor.sequence);
            self.log.let_go(full..full + self.chunk_words);
        }
        cursor.sequence += 1;
        cursor.next = CHUNK_HEADER_WORDS;
        self.begin(cursor.sequence);
        self.update(cursor);
        true
    }

    /// Makes the chunk with a sequence number an empty one.
    fn begin(&self, sequence: u64) {
        let start = self.place(sequence);
        // The old header first: until the new one is there, the chunk holds nothing.
        self.log.clear(start..start + self.chunk_words);
        let header = ChunkHeader {
            image: self.image,
            sequence,
            next_segment: self.next_segment.load(Ordering::Acquire),
        };
        for (number, word) in header.encode().into_iter().enumerate().rev() {
            self.log.store(start + number, word);
        }
    }

    /// The header of the chunk with a sequence number, if it is there.
    fn header(&self, sequence: u64) -> Option<ChunkHeader> {
        let start = self.place(sequence);
        header_at(&*self.log, start)
            .filter(|header| header.image == self.image && header.sequence == sequence)
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

fn header_at(log: &dyn Log, start: usize) -> Option<ChunkHeader> {
    let mut header = [0; CHUNK_HEADER_WORDS];
    log.read(start, &mut header);
    ChunkHeader::decode(&header)
}

/// The clock never goes back, even if the system's does.
fn note_time(log: &dyn Log, now: u32) {
    if u64::from(now) > log.load(CLOCK_WORD) {
        log.store(CLOCK_WORD, u64::from(now));
    }
}

/// A chunk of records in a log.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRecords {
    /// What the header of the chunk says.
    pub header: ChunkHeader,
    start: usize,
    end: usize,
}

impl ChunkRecords {
    /// Visits its records in the order they were appended. Its words do not stay in memory.
    pub(crate) fn each(&self, log: &dyn Log, mut visit: impl FnMut(Record)) {
        let mut words = vec![0; self.end - self.start - CHUNK_HEADER_WORDS];
        log.read(self.start + CHUNK_HEADER_WORDS, &mut words);
        let mut rest = &words[..];
        while !rest.is_empty() {
            let (record, len) = Record::decode(rest);
            if let Some(record) = record {
                visit(record);
            }
            rest = &rest[len..];
        }
    }
}
