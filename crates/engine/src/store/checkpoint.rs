//! Checkpoint segments: a byte stream, written and read a segment at a time.

use std::sync::Arc;

use device::{AlignedBuf, PAGE_BYTES};
use zerocopy::IntoBytes;

use super::{ReadError, SegmentId, SegmentStore};
use crate::format::FormatError;
use crate::format::segment::{FOOTER_BYTES, Footer, SegmentKind, summary_offset};
use crate::format::superblock::MAX_CHECKPOINT_SEGMENTS;

/// Where a checkpoint lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Sequence number of all its segments.
    pub sequence: u64,
    /// The segments, in order.
    pub segments: Vec<SegmentId>,
}

/// Writes a checkpoint, one segment's worth of memory at a time.
pub struct CheckpointSink {
    store: Arc<SegmentStore>,
    part: Option<AlignedBuf>,
    used: usize,
    saved: SavedCheckpoint,
}

impl CheckpointSink {
    /// An empty checkpoint in `store`.
    #[must_use]
    pub fn new(store: Arc<SegmentStore>) -> Self {
        let saved = SavedCheckpoint {
            bytes: 0,
            sequence: 0,
            segments: Vec::new(),
        };
        Self {
            store,
            part: None,
            used: 0,
            saved,
        }
    }

    /// Appends to the stream; `None` when there is no free segment or the device fails.
    pub async fn push(&mut self, mut bytes: &[u8]) -> Option<()> {
        let capacity = capacity(self.store.segment_bytes);
        self.saved.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let segment_bytes = self.store.segment_bytes as usize;
            let part = self
                .part
                .get_or_insert_with(|| AlignedBuf::new(segment_bytes));
            let fit = bytes.len().min(capacity - self.used);
            part[self.used..self.used + fit].copy_from_slice(&bytes[..fit]);
            self.used += fit;
            bytes = &bytes[fit..];
            if self.used == capacity {
                self.write_part().await?;
            }
        }
        Some(())
    }

    /// Writes what is left; `None` as for [`push`](Self::push).
    pub async fn finish(&mut self) -> Option<()> {
        if self.used > 0 {
            self.write_part().await?;
        }
        Some(())
    }

    /// Where what has been written lies.
    #[must_use]
    pub fn saved(self) -> SavedCheckpoint {
        self.saved
    }

    async fn write_part(&mut self) -> Option<()> {
        if self.saved.segments.len() == MAX_CHECKPOINT_SEGMENTS {
            return None;
        }
        let mut part = self.part.take()?;
        let segment = self.store.queues.lock().free.pop_front()?;
        if self.saved.segments.is_empty() {
            self.saved.sequence = self.store.filling.lock().take_sequence();
        }
        let number = self.saved.segments.len() as u32;
        let used = std::mem::take(&mut self.used);
        part[used..].fill(0);
        let checksum = crc32c::crc32c(&part[..used]);
        let footer = Footer::new(
            SegmentKind::Checkpoint,
            segment.0,
            self.saved.sequence,
            number,
            used as u32,
            checksum,
        )
        .of_image(self.store.image);
        let footer_at = part.len() - FOOTER_BYTES as usize;
        part[footer_at..].copy_from_slice(footer.as_bytes());
        // Named before it is written: one that fails is given back, too.
        self.saved.segments.push(segment);
        self.store.program(segment, &Arc::new(part)).await.ok()?;
        Some(())
    }
}

/// Reads a checkpoint, one segment at a time.
pub struct CheckpointSource {
    store: Arc<SegmentStore>,
    saved: SavedCheckpoint,
    next: usize,
    bytes: Vec<u8>,
    at: usize,
}

impl SegmentStore {
    /// The start of a checkpoint in this store.
    #[must_use]
    pub fn open_checkpoint(self: &Arc<Self>, saved: &SavedCheckpoint) -> CheckpointSource {
        let store = Arc::clone(self);
        CheckpointSource {
            store,
            saved: saved.clone(),
            next: 0,
            bytes: Vec::new(),
            at: 0,
        }
    }
}

impl CheckpointSource {
    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// When a segment cannot be read or does not verify, or the stream has ended.
    pub async fn take<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        while self.bytes.len() - self.at < N {
            self.read_part().await?;
        }
        let taken = self.bytes[self.at..self.at + N]
            .try_into()
            .expect("N bytes were read");
        self.at += N;
        Ok(taken)
    }

    /// Takes four bytes as an integer.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub async fn u32(&mut self) -> Result<u32, ReadError> {
        self.take().await.map(u32::from_le_bytes)
    }

    /// Takes eight bytes as an integer.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub async fn u64(&mut self) -> Result<u64, ReadError> {
        self.take().await.map(u64::from_le_bytes)
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub async fn bytes(&mut self, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut taken = Vec::new();
        while taken.len() < len {
            if self.at == self.bytes.len() {
                self.read_part().await?;
            }
            let here = (len - taken.len()).min(self.bytes.len() - self.at);
            taken.extend_from_slice(&self.bytes[self.at..self.at + here]);
            self.at += here;
        }
        Ok(taken)
    }

    /// Whether the whole stream has been taken.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.next == self.saved.segments.len() && self.at == self.bytes.len()
    }

    /// The error of a stream that verifies and makes no sense.
    #[must_use]
    pub fn nonsense(&self) -> ReadError {
        self.corrupt(FormatError::Range)
    }

    fn corrupt(&self, source: FormatError) -> ReadError {
        let last = self.next.saturating_sub(1);
        let segment = self.saved.segments.get(last).map_or(0, |segment| segment.0);
        ReadError::Corrupt {
            segment,
            offset: self.at as u32,
            source,
        }
    }

    async fn read_part(&mut self) -> Result<(), ReadError> {
        let Some(&segment) = self.saved.segments.get(self.next) else {
            return Err(self.corrupt(FormatError::Range));
        };
        let (sequence, number) = (self.saved.sequence, self.next as u32);
        self.next += 1;
        if segment.0 >= self.store.segments() {
            return Err(self.corrupt(FormatError::Range));
        }
        let len = self.store.segment_bytes;
        let part = self.store.read_range(segment, 0, len as usize).await?;
        let footer = Footer::decode(&part, SegmentKind::Checkpoint, segment.0, sequence, len)
            .map_err(|error| self.corrupt(error))?;
        if footer.items.get() != number {
            return Err(self.corrupt(FormatError::Identity));
        }
        let part = &part[..footer.data_bytes.get() as usize];
        if crc32c::crc32c(part) != footer.content_checksum.get() {
            return Err(self.corrupt(FormatError::Checksum));
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(part);
        Ok(())
    }
}

/// Bytes of a checkpoint one segment takes.
fn capacity(segment_bytes: u32) -> usize {
    let capacity = summary_offset(segment_bytes, 0).expect("segments are longer than a footer");
    capacity as usize / PAGE_BYTES * PAGE_BYTES
}
