//! Checkpoint segments: a byte stream, written and read a piece at a time.
//!
//! A part of the stream fills whole pages of a segment from its start. Its footer ends the next page. All parts but the
//! last have [`checkpoint_capacity`] bytes.

use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, SharedBuf};
use zerocopy::IntoBytes;

use super::core::SegmentStore;
use super::read::ReadError;
use crate::format::FormatError;
use crate::format::checkpoint::Source;
use crate::format::segment::{FOOTER_BYTES, Footer, SegmentId, SegmentKind};
use crate::format::superblock::MAX_CHECKPOINT_SEGMENTS;

/// Bytes written or read at once, unless a page is longer.
const PIECE_BYTES: u32 = 64 << 10;

/// Time that a checkpoint waits for a free segment.
const SEGMENT_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of memory for writing one checkpoint while reading another.
pub(crate) const CHECKPOINT_STREAM_BYTES: u64 = 3 * PIECE_BYTES as u64;

/// Place of a checkpoint on flash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SavedCheckpoint {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Sequence number of all its segments.
    pub sequence: u64,
    /// The segments, in order.
    pub segments: Vec<SegmentId>,
}

/// Writes a checkpoint, a piece in memory at a time.
pub(crate) struct CheckpointSink {
    store: Arc<SegmentStore>,
    piece: AlignedBuf,
    used: usize,
    /// Bytes of the present part written so far.
    part_bytes: u32,
    /// Checksum of these `part_bytes`.
    part_checksum: u32,
    /// Bytes written to flash, footers included.
    pub flash_bytes: u64,
    /// Place of the stream written so far.
    pub saved: SavedCheckpoint,
}

impl CheckpointSink {
    pub(crate) fn new(store: Arc<SegmentStore>) -> Self {
        Self {
            piece: AlignedBuf::new(piece_bytes(&store) as usize),
            used: 0,
            part_bytes: 0,
            part_checksum: 0,
            flash_bytes: 0,
            saved: SavedCheckpoint::default(),
            store,
        }
    }

    /// Appends to the stream. `None` if no segment becomes free, the checkpoint has too many segments, or the device
    /// fails.
    pub(crate) async fn push(&mut self, mut bytes: &[u8]) -> Option<()> {
        self.saved.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let left = checkpoint_capacity(&self.store) - self.part_bytes;
            let most = self.piece.len().min(left as usize);
            let fit = bytes.len().min(most - self.used);
            self.piece[self.used..self.used + fit].copy_from_slice(&bytes[..fit]);
            self.used += fit;
            bytes = &bytes[fit..];
            if self.used == most {
                self.write_piece().await?;
                if self.part_bytes == checkpoint_capacity(&self.store) {
                    self.end_part().await?;
                }
            }
        }
        Some(())
    }

    /// Writes the rest of the stream; `None` as for [`push`](Self::push).
    pub(crate) async fn finish(&mut self) -> Option<()> {
        if self.used > 0 {
            self.write_piece().await?;
        }
        if self.part_bytes > 0 {
            self.end_part().await?;
        }
        Some(())
    }

    async fn write_piece(&mut self) -> Option<()> {
        if self.part_bytes == 0 {
            self.start_part().await?;
        }
        let used = std::mem::take(&mut self.used);
        let bytes = used.next_multiple_of(flash_page_bytes(&self.store) as usize);
        self.piece[used..bytes].fill(0);
        self.part_checksum = crc32c::crc32c_append(self.part_checksum, &self.piece[..used]);
        let start = self.part_bytes;
        self.part_bytes += used as u32;
        self.program(start, bytes).await
    }

    async fn start_part(&mut self) -> Option<()> {
        if self.saved.segments.len() == MAX_CHECKPOINT_SEGMENTS {
            return None;
        }
        let free = self.store.pool().next_free();
        let segment = runtime::timeout(SEGMENT_PATIENCE, free).await.ok()??;
        // The segment is written at once, and not by a writer of sealed segments.
        self.store.pool().forget_opened(segment);
        if self.saved.segments.is_empty() {
            self.saved.sequence = self.store.appender().take_sequence();
        }
        // Named before it is written, so that a segment whose write fails is given back, too.
        self.saved.segments.push(segment);
        self.store.blocks().erase(segment).await.ok()
    }

    async fn end_part(&mut self) -> Option<()> {
        let segment = *self.saved.segments.last()?;
        let number = self.saved.segments.len() as u32 - 1;
        let bytes = std::mem::take(&mut self.part_bytes);
        let checksum = std::mem::take(&mut self.part_checksum);
        let footer = Footer::new(
            SegmentKind::Checkpoint,
            segment.0,
            self.saved.sequence,
            number,
            bytes,
            checksum,
        )
        .of_image(self.store.table().image, 0);
        let page = flash_page_bytes(&self.store);
        let at = page as usize - FOOTER_BYTES as usize;
        self.piece[..at].fill(0);
        self.piece[at..page as usize].copy_from_slice(footer.as_bytes());
        self.program(bytes.next_multiple_of(page), page as usize)
            .await
    }

    /// Writes the first `bytes` of the piece at `start` of the present segment.
    async fn program(&mut self, start: u32, bytes: usize) -> Option<()> {
        let segment = *self.saved.segments.last()?;
        let first_page = start / flash_page_bytes(&self.store);
        let piece = Arc::new(std::mem::replace(&mut self.piece, AlignedBuf::new(0)));
        let data = SharedBuf::new(Arc::clone(&piece), 0..bytes);
        let programmed = self
            .store
            .blocks()
            .program_checkpoint(segment, first_page, data)
            .await;
        // The device may still hold a reference for a moment.
        self.piece = Arc::try_unwrap(piece)
            .unwrap_or_else(|_| AlignedBuf::new(piece_bytes(&self.store) as usize));
        self.flash_bytes += bytes as u64;
        programmed.ok()
    }
}

fn flash_page_bytes(store: &SegmentStore) -> u32 {
    store.blocks().flash().geometry().page_bytes
}

fn piece_bytes(store: &SegmentStore) -> u32 {
    PIECE_BYTES.next_multiple_of(flash_page_bytes(store))
}

/// Returns the bytes of a checkpoint that one segment takes.
fn checkpoint_capacity(store: &SegmentStore) -> u32 {
    store.table().segment_bytes() - flash_page_bytes(store)
}

/// Reads a checkpoint, a piece in memory at a time. The bytes count only once the end of the stream has been reached
/// without an error: a part is verified when its last byte has been read.
pub(crate) struct CheckpointSource {
    store: Arc<SegmentStore>,
    saved: SavedCheckpoint,
    /// Number of the next part.
    next: usize,
    part: Part,
    bytes: Vec<u8>,
    at: usize,
}

/// Progress of reading a part.
#[derive(Default)]
struct Part {
    bytes: u32,
    read: u32,
    checksum: u32,
    expected: u32,
}

impl CheckpointSource {
    /// Opens a checkpoint in a store to read it from the start.
    pub(crate) fn new(store: Arc<SegmentStore>, saved: &SavedCheckpoint) -> Self {
        Self {
            store,
            saved: saved.clone(),
            next: 0,
            part: Part::default(),
            bytes: Vec::new(),
            at: 0,
        }
    }

    /// Returns whether the whole stream has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.next == self.saved.segments.len()
            && self.part.read == self.part.bytes
            && self.at == self.bytes.len()
    }

    fn corrupt(&self, source: FormatError) -> ReadError {
        let last = self.next.saturating_sub(1);
        let segment = self.saved.segments.get(last).map_or(0, |segment| segment.0);
        ReadError::Corrupt {
            segment,
            offset: self.part.read,
            source,
        }
    }

    async fn read_piece(&mut self) -> Result<(), ReadError> {
        if self.part.read == self.part.bytes {
            self.open_part().await?;
        }
        let segment = self.saved.segments[self.next - 1];
        let bytes = (self.part.bytes - self.part.read).min(piece_bytes(&self.store));
        let padded = bytes.next_multiple_of(flash_page_bytes(&self.store));
        let piece = self
            .store
            .blocks()
            .read_patiently(segment, self.part.read, padded as usize)
            .await?;
        let piece = &piece[..bytes as usize];
        self.part.read += bytes;
        self.part.checksum = crc32c::crc32c_append(self.part.checksum, piece);
        if self.part.read == self.part.bytes && self.part.checksum != self.part.expected {
            return Err(self.corrupt(FormatError::Checksum));
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    async fn open_part(&mut self) -> Result<(), ReadError> {
        let Some(&segment) = self.saved.segments.get(self.next) else {
            return Err(self.corrupt(FormatError::Range));
        };
        let number = self.next as u32;
        self.next += 1;
        let capacity = checkpoint_capacity(&self.store);
        let before = u64::from(number) * u64::from(capacity);
        let bytes = self.saved.bytes.saturating_sub(before);
        let bytes = bytes.min(u64::from(capacity)) as u32;
        if segment.0 >= self.store.table().segments() || bytes == 0 {
            return Err(self.corrupt(FormatError::Range));
        }
        let page = flash_page_bytes(&self.store);
        let at = bytes.next_multiple_of(page);
        let footer = self
            .store
            .blocks()
            .read_patiently(segment, at, page as usize);
        let footer = footer.await?;
        let footer = Footer::decode(
            &footer,
            SegmentKind::Checkpoint,
            segment.0,
            self.saved.sequence,
            self.store.table().segment_bytes(),
        )
        .map_err(|error| self.corrupt(error))?;
        if (footer.items.get(), footer.data_bytes.get()) != (number, bytes) {
            return Err(self.corrupt(FormatError::Identity));
        }
        self.part = Part {
            bytes,
            read: 0,
            checksum: 0,
            expected: footer.content_checksum.get(),
        };
        Ok(())
    }
}

impl Source for CheckpointSource {
    type Error = ReadError;

    async fn bytes(&mut self, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut taken = Vec::new();
        while taken.len() < len {
            if self.at == self.bytes.len() {
                self.read_piece().await?;
            }
            let here = (len - taken.len()).min(self.bytes.len() - self.at);
            taken.extend_from_slice(&self.bytes[self.at..self.at + here]);
            self.at += here;
        }
        Ok(taken)
    }

    fn nonsense(&self) -> ReadError {
        self.corrupt(FormatError::Range)
    }
}
