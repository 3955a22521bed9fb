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
//! checkpoint of what the index says heals it ([`restart`](Journal::restart)).
//!
//! What was once durable is known by its checksums: a chunk that is closed gets a seal, and the head tells of the one
//! being filled how far the last sync had come. A page that rots or is not there is not taken for the journal's end.
//! See `docs/internals/recovery.md`.

use std::collections::HashSet;
use std::sync::Arc;

use device::{Bytes, DeviceError, Journal as Log};
use runtime::sync::{Notify, Semaphore};

use crate::format::FormatError;
use crate::format::journal::{
    CHUNK_HEADER_WORDS, CLOCK_WORD, ChunkHeader, Filled, HEAD_WORDS, Head, Record, SEAL_WORD,
    SYNCED_WORDS, Synced, VOID_WORD, chunk_words, decode_clock, encode_clock,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    is_void_durable: AtomicBool,
    /// Times that records have been lost.
    losses: AtomicU64,
    is_dirty: AtomicBool,
    records: AtomicU64,
    /// Held while a sync goes on, until what it has lost is noted: the system tells one sync of an error, and the next
    /// one succeeds.
    syncing: Semaphore,
    /// Notified when a checkpoint is due.
    pub(crate) pressure: Notify,
    /// Notified when there is something to sync.
    pub(crate) dirtied: Notify,
}

struct Cursor {
    /// The chunk being filled.
    sequence: u64,
    /// How far it is filled.
    filled: Filled,
    /// Whether it takes no more records.
    is_closed: bool,
    /// What the head tells of the last sync, and in which of its two places the next is told of.
    synced: Synced,
    next_slot: usize,
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
        decode_clock(log.load(CLOCK_WORD)).unwrap_or(0)
    }

    /// What the head of a journal says.
    ///
    /// # Errors
    /// [`FormatError`]; one that cannot be read does not verify.
    pub(crate) fn head(log: &dyn Log) -> Result<Option<Head>, FormatError> {
        let mut words = [0; HEAD_WORDS];
        let read = log.read(0, &mut words);
        read.map_err(|_| FormatError::Checksum)?;
        Head::decode(&std::array::from_fn(|word| words[word]))
    }

    /// Whether what the head of a journal says beside [`Head`] verifies. Of what it tells of the last syncs one half
    /// may be what a crash has left half written.
    pub(crate) fn is_head_sound(log: &dyn Log) -> bool {
        let is_written = |at: &usize| (*at..at + Synced::WORDS).any(|word| log.load(word) != 0);
        decode_clock(log.load(CLOCK_WORD)).is_ok()
            && (last_synced(log).is_some() || !SYNCED_WORDS.iter().all(is_written))
    }

    /// The chunks of `image` in a log from sequence number `first` on, in order. Whether each holds what was durable
    /// shows when its records are visited.
    ///
    /// # Errors
    /// [`Damaged`] when one is missing though it was durable. Others may be: a power cut takes what was not synced in
    /// any order.
    pub(crate) fn chunks(
        log: &dyn Log,
        image: u64,
        partitions: u32,
        first: u64,
    ) -> Result<Vec<ChunkRecords>, Damaged> {
        let synced = last_synced(log);
        let mut found = headers(log, image, partitions, first);
        for chunk in &mut found {
            let sequence = chunk.header.sequence;
            chunk.durable = match synced {
                Some(synced) if sequence < synced.sequence => Durable::Closed,
                Some(synced) if sequence == synced.sequence => Durable::UpTo(synced.filled),
                _ => Durable::Unknown,
            };
        }
        let durable = found
            .iter()
            .filter(|chunk| chunk.durable != Durable::Unknown);
        let end = synced.map_or(0, |synced| synced.sequence + 1);
        if (durable.count() as u64) < end.saturating_sub(first) {
            return Err(Damaged);
        }
        Ok(found)
    }

    /// The highest sequence number of a chunk of `image` in a log, as far as is known.
    pub(crate) fn last_chunk(log: &dyn Log, image: u64, partitions: u32) -> u64 {
        let found = headers(log, image, partitions, 1);
        let last = found.last().map_or(0, |chunk| chunk.header.sequence);
        last_synced(log).map_or(last, |synced| last.max(synced.sequence))
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
        let newest = newest_slot(&*log);
        let synced = last_synced(&*log).unwrap_or(Synced {
            sequence: 0,
            filled: Filled::EMPTY,
        });
        let journal = Self {
            log,
            image,
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
        // What had been closed when the last sync began has been found to be sound.
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

    /// Zeros the head where it cannot be read, so that it can be used again.
    pub(crate) fn renew_head(log: &dyn Log) {
        if log.read(0, &mut [0; HEAD_WORDS]).is_err() {
            log.clear(0..HEAD_WORDS);
        }
    }

    /// Forgets that records were left out, and what was durable: the image starts empty from here.
    pub(crate) fn start_empty(log: &dyn Log) {
        for at in SYNCED_WORDS {
            log.clear(at..at + Synced::WORDS);
        }
        log.store(VOID_WORD, 0);
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

    /// Whether a request that may need records can go ahead.
    #[inline]
    pub(crate) fn has_space(&self) -> bool {
        !self.is_tight.load(Ordering::Acquire)
    }

    /// Whether there is space for what can wait longest: a quarter of the ring is left to others, and more than the reserve.
    pub(crate) fn has_space_to_spare(&self) -> bool {
        let left = (self.chunks / 4).max(RESERVE_CHUNKS + 1);
        self.cursor.lock().used() + left < self.chunks
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
        cursor.makes_wait = false;
        self.is_tight.store(false, Ordering::Release);
        // Each time: the sync that fails may have lost this word, too.
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

    /// [`losses`](Journal::losses) and [`is_void`](Journal::is_void), of one moment.
    pub(crate) fn losses_and_void(&self) -> (u64, bool) {
        let _cursor = self.cursor.lock();
        (self.losses(), self.is_void())
    }

    /// Gives up what the journal holds and takes records again; what it is begun afresh for is a checkpoint that
    /// needs none of them. Returns, as [`cut`](Journal::cut) does, the first chunk of the records from now on.
    pub(crate) fn restart(&self) -> u64 {
        let mut cursor = self.cursor.lock();
        self.close(&mut cursor);
        cursor.first = cursor.sequence + 1;
        cursor.makes_wait = true;
        self.update(&cursor);
        cursor.first
    }

    /// A checkpoint holds what has died before chunk `end`, and nothing has been lost since `losses`.
    pub(crate) fn heal(&self, losses: u64) {
        let _cursor = self.cursor.lock();
        if self.losses() == losses && self.is_void.swap(false, Ordering::AcqRel) {
            self.log.store(VOID_WORD, 0);
            self.is_dirty.store(true, Ordering::Relaxed);
            self.dirtied.notify_all();
            tracing::info!("the journal is whole again: a checkpoint holds all that has died");
        }
    }

    /// Whether the superblock says durably that records have been lost.
    pub(crate) fn note_void_durable(&self, is: bool) {
        self.is_void_durable.store(is, Ordering::Release);
    }

    /// Whether what starts after a power cut knows that records have been lost.
    pub(crate) fn is_void_durable(&self) -> bool {
        self.is_void_durable.load(Ordering::Acquire)
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

    /// Times that its ring has been gone round.
    pub fn laps(&self) -> u64 {
        self.cursor.lock().sequence / self.chunks
    }

    /// Closes the chunk being filled. The chunks before the one returned are complete.
    pub(crate) fn cut(&self) -> u64 {
        let mut cursor = self.cursor.lock();
        self.close(&mut cursor);
        cursor.sequence + 1
    }

    /// The complete chunks before `end`.
    ///
    /// # Errors
    /// [`Damaged`] when one is not there any more.
    pub(crate) fn before(&self, end: u64) -> Result<Vec<ChunkRecords>, Damaged> {
        let first = self.cursor.lock().first;
        let chunk = |sequence| {
            let chunk = self.chunk(sequence).ok_or(Damaged)?;
            let durable = Durable::Closed;
            Ok(ChunkRecords { durable, ..chunk })
        };
        (first..end).map(chunk).collect()
    }

    /// A checkpoint holds what the chunks before `end` say: they are free.
    pub(crate) fn retire(&self, end: u64) {
        let mut cursor = self.cursor.lock();
        cursor.first = cursor.first.max(end);
        self.update(&cursor);
    }

    /// Makes every record so far durable, and remembers that it is `now`.
    pub(crate) async fn sync(&self, now: u32) -> Result<(), DeviceError> {
        let _turn = self.syncing.acquire().await;
        self.sync_in_turn(now).await
    }

    /// The same for the records up to where it had [`reached`](Self::reached), unless a sync since has, or a checkpoint
    /// holds them. What has been lost is beyond every sync until a start would know.
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

    /// How far it is filled.
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
            // All that the checkpoint holds is safe.
            if cursor.sequence >= cursor.first {
                self.lose_at(&mut cursor, "the journal cannot be synced");
            }
            return Err(error);
        }
        let mut cursor = self.cursor.lock();
        // Another word would make the journal dirty again for nothing.
        if reached.is_beyond(&cursor.synced) {
            let at = SYNCED_WORDS[cursor.next_slot];
            for (number, word) in reached.encode().into_iter().enumerate() {
                self.log.store(at + number, word);
            }
            cursor.synced = reached;
            cursor.next_slot ^= 1;
            // What it tells is durable with the next sync, so that it never tells of more than is.
            self.mark_dirty();
        }
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

    /// Takes no more records into the chunk being filled.
    fn close(&self, cursor: &mut Cursor) {
        if !cursor.is_closed {
            cursor.is_closed = true;
            self.seal(cursor.sequence, cursor.filled);
        }
    }

    /// Tells in a chunk how far it is filled.
    fn seal(&self, sequence: u64, filled: Filled) {
        let seal = self.place(sequence) + SEAL_WORD;
        if self.log.load(seal) != filled.encode() {
            self.log.store(seal, filled.encode());
        }
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

    /// The chunk with a sequence number, if it is there.
    fn chunk(&self, sequence: u64) -> Option<ChunkRecords> {
        let start = self.place(sequence);
        ChunkRecords::read(&*self.log, start, start + self.chunk_words)
            .filter(|chunk| chunk.header.image == self.image && chunk.header.sequence == sequence)
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

/// The chunks of `image` in a log from sequence number `first` on, in order.
fn headers(log: &dyn Log, image: u64, partitions: u32, first: u64) -> Vec<ChunkRecords> {
    let chunk_words = chunk_words(partitions);
    let chunks = ring_chunks(log, partitions) as usize;
    let chunk_at = |place: usize| {
        let start = HEAD_WORDS + place * chunk_words;
        ChunkRecords::read(log, start, start + chunk_words).filter(|chunk| {
            let header = &chunk.header;
            header.image == image
                && header.sequence >= first
                && (header.sequence - 1) % chunks as u64 == place as u64
        })
    };
    let mut found: Vec<ChunkRecords> = (0..chunks).filter_map(chunk_at).collect();
    found.sort_unstable_by_key(|chunk| chunk.header.sequence);
    found
}

/// In which of its two places the head tells of the last sync it knows of.
fn newest_slot(log: &dyn Log) -> Option<usize> {
    let [first, second] = SYNCED_WORDS.map(|at| synced_at(log, at));
    match (first, second) {
        (None, None) => None,
        (Some(first), Some(second)) => Some(usize::from(second.is_beyond(&first))),
        (first, _) => Some(usize::from(first.is_none())),
    }
}

/// How far the last sync had come of which the head tells.
fn last_synced(log: &dyn Log) -> Option<Synced> {
    newest_slot(log).and_then(|slot| synced_at(log, SYNCED_WORDS[slot]))
}

fn synced_at(log: &dyn Log, at: usize) -> Option<Synced> {
    Synced::decode(&std::array::from_fn(|word| log.load(at + word)))
}

/// The clock never goes back, even if the system's does.
fn note_time(log: &dyn Log, now: u32) {
    if now > Journal::clock(log) {
        log.store(CLOCK_WORD, encode_clock(now));
    }
}

/// Records that were durable are not in the journal any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// What is known to have been durable of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    /// No sync is known to have covered any of it.
    Unknown,
    /// It was filled so far.
    UpTo(Filled),
    /// All of it, its seal included.
    Closed,
}

/// A chunk of records in a log.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRecords {
    /// What the header of the chunk says.
    pub header: ChunkHeader,
    start: usize,
    end: usize,
    /// How far it was filled when it was closed.
    seal: Option<Filled>,
    durable: Durable,
}

impl ChunkRecords {
    /// The chunk in these words of a log; `None` where its header does not verify.
    fn read(log: &dyn Log, start: usize, end: usize) -> Option<Self> {
        let mut header = [0; CHUNK_HEADER_WORDS];
        log.read(start, &mut header).ok()?;
        Some(Self {
            header: ChunkHeader::decode(&header)?,
            start,
            end,
            seal: Filled::decode(header[SEAL_WORD]),
            durable: Durable::Unknown,
        })
    }

    /// Its words behind the header. They do not stay in memory.
    fn words(&self, log: &dyn Log) -> Result<Vec<u64>, Damaged> {
        let mut words = vec![0; self.end - self.start - CHUNK_HEADER_WORDS];
        match log.read(self.start + CHUNK_HEADER_WORDS, &mut words) {
            Ok(()) => Ok(words),
            Err(error) => {
                tracing::error!(%error, "the journal cannot be read");
                Err(Damaged)
            }
        }
    }

    /// Its records among its words: up to the seal where that verifies. Where it does not, a power cut has left any
    /// part of what had not been synced, and what was in the place before.
    fn records<'a>(&self, words: &'a [u64]) -> Result<&'a [u64], Damaged> {
        let closed = self.seal.and_then(|seal| seal.records(words));
        let is_durable_there = match self.durable {
            Durable::Unknown => true,
            Durable::UpTo(filled) => filled.records(words).is_some(),
            Durable::Closed => closed.is_some(),
        };
        if is_durable_there {
            Ok(closed.unwrap_or(words))
        } else {
            Err(Damaged)
        }
    }

    /// How far it is filled, by what [`each`](Self::each) visits.
    fn found(&self, log: &dyn Log) -> Option<Filled> {
        let words = self.words(log).ok()?;
        let mut filled = Filled::EMPTY;
        filled.append(self.records(&words).ok()?);
        Some(filled)
    }

    /// Visits its records in the order they were appended.
    ///
    /// # Errors
    /// [`Damaged`] when it does not hold what was durable; none has been visited then.
    pub(crate) fn each(&self, log: &dyn Log, mut visit: impl FnMut(Record)) -> Result<(), Damaged> {
        let words = self.words(log)?;
        let mut rest = self.records(&words)?;
        while !rest.is_empty() {
            let (record, len) = Record::decode(rest);
            if let Some(record) = record {
                visit(record);
            }
            rest = &rest[len..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use device::MemoryJournal;
    use runtime::sim::Sim;

    use super::*;

    const NOW: u32 = 1_800_000_000;

    /// A new journal, and the log that it is in.
    fn begun() -> (Journal, Arc<MemoryJournal>) {
        let log = Arc::new(MemoryJournal::new(HEAD_WORDS + 8 * chunk_words(1)));
        let journal = Journal::take_over(log.clone(), 7, 1, (1, 0), Arc::default());
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
}
