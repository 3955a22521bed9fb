//! The chunks of a log: their headers, seals and records.

use device::Journal as Log;

use super::head::last_synced;
use crate::format::journal::{
    CHUNK_HEADER_WORDS, ChunkHeader, Filled, HEAD_WORDS, Record, SEAL_WORD, chunk_words,
};

/// Returns the number of chunks of the ring in a log.
pub(crate) fn ring_chunks(log: &dyn Log, partitions: u32) -> u64 {
    ((log.words() - HEAD_WORDS) / chunk_words(partitions)) as u64
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
    pub(super) fn read(log: &dyn Log, start: usize, end: usize) -> Option<Self> {
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

    /// Returns the chunk as one that is durable to its end.
    pub(super) fn closed(self) -> Self {
        let durable = Durable::Closed;
        Self { durable, ..self }
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
    pub(super) fn found(&self, log: &dyn Log) -> Option<Filled> {
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
