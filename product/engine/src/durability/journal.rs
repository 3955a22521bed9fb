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

use std::collections::HashSet;
use std::ops::Range;
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

/// Chunks kept for records that cannot wait for space.
const RESERVE_CHUNKS: u64 = 3;

/// Returns the number of chunks of the ring in a log.
pub(crate) fn ring_chunks(log: &dyn Log, partitions: u32) -> u64 {
    ((log.words() - HEAD_WORDS) / chunk_words(partitions)) as u64
}

/// Reason for which the content of a journal cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The journal is new, has been cut short, or belongs to an image that was here before.
    #[error("it is missing, cut short, or holds nothing")]
    Missing,
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
    /// Returns the latest Unix second that a journal has seen.
    pub(crate) fn clock(log: &dyn Log) -> u32 {
        decode_clock(log.load(CLOCK_WORD)).unwrap_or(0)
    }

    /// Reads the head of a journal.
    ///
    /// [`FormatError`]; a head that cannot be read counts as one that does not verify.
    pub(crate) fn head(log: &dyn Log) -> Result<Option<Head>, FormatError> {
        let mut words = [0; HEAD_WORDS];
        let read = log.read(0, &mut words);
        read.map_err(|_| FormatError::Checksum)?;
        Head::decode(&std::array::from_fn(|word| words[word]))
    }

    /// Returns whether the other words of the head verify, beside [`Head`]. A crash may leave one of the two notes of
    /// the last syncs half written.
    pub(crate) fn is_head_sound(log: &dyn Log) -> bool {
        let is_written = |at: &usize| (*at..at + Synced::WORDS).any(|word| log.load(word) != 0);
        decode_clock(log.load(CLOCK_WORD)).is_ok()
            && (last_synced(log).is_some() || !SYNCED_WORDS.iter().all(is_written))
    }

    /// Returns the chunks of `image` in a log from sequence number `first` on, in order. A chunk is checked for its
    /// durable records when they are visited.
    ///
    /// [`Damaged`] when a durable chunk is missing. Other chunks may be missing: a power cut loses unsynced chunks in
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

    /// Returns the highest known sequence number of a chunk of `image` in a log.
    pub(crate) fn last_chunk(log: &dyn Log, image: u64, partitions: u32) -> u64 {
        let found = headers(log, image, partitions, 1);
        let last = found.last().map_or(0, |chunk| chunk.header.sequence);
        last_synced(log).map_or(last, |synced| last.max(synced.sequence))
    }

    /// Durably makes a log the journal of a run. From one run to the next a single word changes, so that a crash leaves
    /// one run or the other.
    pub(crate) async fn write_head(log: &dyn Log, head: Head) -> Result<(), DeviceError> {
        for (number, word) in head.encode().into_iter().enumerate() {
            if log.load(number) != word {
                log.store(number, word);
            }
        }
        log.sync().await
    }

    /// Takes a log over for a run. The chunks with the sequence numbers `kept` stay, and new records go behind them.
    /// Kept chunks that a power cut has taken become empty.
    pub(crate) fn take_over(
        log: Arc<dyn Log>,
        image: u64,
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

    /// Zeros the head if it cannot be read, so that it can be used again.
    pub(crate) fn renew_head(log: &dyn Log) {
        if log.read(0, &mut [0; HEAD_WORDS]).is_err() {
            log.clear(0..HEAD_WORDS);
        }
    }

    /// Clears the mark of lost records and the notes of the last syncs: the image starts empty.
    pub(crate) fn start_empty(log: &dyn Log) {
        for at in SYNCED_WORDS {
            log.clear(at..at + Synced::WORDS);
        }
        log.store(VOID_WORD, 0);
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
        self.close(&mut cursor);
        cursor.first = cursor.sequence + 1;
        cursor.makes_wait = true;
        self.update(&cursor);
        cursor.first
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
            let durable = Durable::Closed;
            Ok(ChunkRecords { durable, ..chunk })
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
            // Nothing is lost if the checkpoint holds every record.
            if cursor.sequence >= cursor.first {
                self.lose_at(&mut cursor, "the journal cannot be synced");
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
            image: self.image,
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

/// Returns the chunks of `image` in a log from sequence number `first` on, in order.
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

/// Returns the slot of the head with the note of the latest sync.
fn newest_slot(log: &dyn Log) -> Option<usize> {
    let [first, second] = SYNCED_WORDS.map(|at| synced_at(log, at));
    match (first, second) {
        (None, None) => None,
        (Some(first), Some(second)) => Some(usize::from(second.is_beyond(&first))),
        (first, _) => Some(usize::from(first.is_none())),
    }
}

/// Returns how far the last sync noted in the head had come.
fn last_synced(log: &dyn Log) -> Option<Synced> {
    newest_slot(log).and_then(|slot| synced_at(log, SYNCED_WORDS[slot]))
}

fn synced_at(log: &dyn Log, at: usize) -> Option<Synced> {
    Synced::decode(&std::array::from_fn(|word| log.load(at + word)))
}

/// Notes the time. The clock never goes back, even if the system's does.
fn note_time(log: &dyn Log, now: u32) {
    if now > Journal::clock(log) {
        log.store(CLOCK_WORD, encode_clock(now));
    }
}

/// Durable records are missing from the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// The part of a chunk that is known to have been durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    /// No part: no sync is known to have covered the chunk.
    Unknown,
    /// The chunk up to this point.
    UpTo(Filled),
    /// The whole chunk, its seal included.
    Closed,
}

/// A chunk of records in a log.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRecords {
    /// Header of the chunk.
    pub header: ChunkHeader,
    start: usize,
    end: usize,
    /// Fill of the chunk when it was closed.
    seal: Option<Filled>,
    durable: Durable,
}

impl ChunkRecords {
    /// Reads the chunk in these words of a log; `None` if its header does not verify.
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

    /// Reads the words behind the header. They do not stay in memory.
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

    /// Returns the words that hold records: up to the seal if that verifies, else all. Without a valid seal, a power
    /// cut has left any part of the unsynced records, among words of an earlier chunk.
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

    /// Returns how far the chunk is filled with records that [`each`](Self::each) visits.
    fn found(&self, log: &dyn Log) -> Option<Filled> {
        let words = self.words(log).ok()?;
        let mut filled = Filled::EMPTY;
        filled.append(self.records(&words).ok()?);
        Some(filled)
    }

    /// Visits the records in the order in which they were appended.
    ///
    /// [`Damaged`] when durable records are missing; none has been visited then.
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

    /// Returns a new journal, and its log.
    fn begun() -> (Journal, Arc<MemoryJournal>) {
        let log = Arc::new(MemoryJournal::new(HEAD_WORDS + 8 * chunk_words(1)));
        let journal = Journal::take_over(log.clone(), 7, 1, 1..1, Arc::default());
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
