//! The part of the index that a checkpoint saves: the changes in memory, and the segment numbers.

use crate::encoding::{DELETED, Value};
use device::{AlignedBuf, DeviceError, Disk as _, SharedBuf};
use on_flash::NumberedSegment;
use slices::{InMemory, Known, TableInMemory};
use zerocopy::{FromBytes as _, IntoBytes as _};

use on_flash::IndexDisk;

/// Bytes written or read at once.
const CHUNK_BYTES: usize = 128 << 10;

/// Reason why the saved part cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it cannot be read: {0}")]
    Device(#[from] DeviceError),
    #[error("what was saved of it does not verify")]
    Checksum,
    #[error("what was saved of it makes no sense")]
    Senseless,
}

/// Writes the saved part to an area.
pub(super) struct Saver<'a> {
    disk: &'a IndexDisk,
    chunk: Vec<u8>,
    written: u64,
    pub(super) bytes: u64,
    pub(super) checksum: u32,
}

/// Reason why the index cannot be saved.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSaved {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "so much has been deleted that it does not fit its part of the region: it follows when that is on flash"
    )]
    TooMuch,
}

impl<'a> Saver<'a> {
    pub(super) fn new(disk: &'a IndexDisk) -> Self {
        Self {
            disk,
            chunk: Vec::with_capacity(CHUNK_BYTES),
            written: 0,
            bytes: 0,
            checksum: 0,
        }
    }

    async fn add(&mut self, mut bytes: &[u8]) -> Result<(), NotSaved> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == CHUNK_BYTES {
                self.write_chunk().await?;
            }
        }
        Ok(())
    }

    async fn write_chunk(&mut self) -> Result<(), NotSaved> {
        let len = self.chunk.len().next_multiple_of(device::PAGE_BYTES);
        if self.written + len as u64 > self.disk.len_bytes() {
            return Err(NotSaved::TooMuch);
        }
        let mut bytes = AlignedBuf::new(len);
        bytes[..self.chunk.len()].copy_from_slice(&self.chunk);
        self.chunk.clear();
        self.disk
            .write(self.written, SharedBuf::from(bytes))
            .await?;
        self.written += len as u64;
        Ok(())
    }

    pub(super) async fn partition(&mut self, tables: &InMemory) -> Result<(), NotSaved> {
        let mut bytes = Vec::new();
        bytes.extend((tables.len() as u32).to_le_bytes());
        for table in tables {
            bytes.extend(table.generation.to_le_bytes());
            bytes.extend((table.changes.len() as u32).to_le_bytes());
            for &(key, change) in &table.changes {
                let value = match change {
                    Known::Value(value) => value,
                    Known::Deleted => DELETED,
                };
                bytes.extend(key.to_le_bytes());
                bytes.extend(value.to_le_bytes());
            }
        }
        self.add(&bytes).await
    }

    pub(super) async fn segments(
        &mut self,
        numbered: &[NumberedSegment],
        next: u32,
    ) -> Result<(), NotSaved> {
        self.add(&(numbered.len() as u32).to_le_bytes()).await?;
        self.add(numbered.as_bytes()).await?;
        self.add(&next.to_le_bytes()).await
    }

    /// Writes the remaining bytes, and syncs. Returns the number of bytes written, in whole pages.
    pub(super) async fn finish(&mut self) -> Result<u64, NotSaved> {
        if !self.chunk.is_empty() {
            self.write_chunk().await?;
        }
        self.disk.sync().await?;
        Ok(self.written)
    }
}

/// Reads the saved part, one chunk at a time.
pub(super) struct Loader<'a> {
    disk: &'a IndexDisk,
    len: u64,
    /// Bytes read so far.
    read: u64,
    chunk: Vec<u8>,
    at: usize,
}

impl<'a> Loader<'a> {
    /// Returns a loader of the first `len` bytes of an area, once it has verified their checksum.
    pub(super) async fn checked(
        disk: &'a IndexDisk,
        len: u64,
        checksum: u32,
    ) -> Result<Self, Unusable> {
        if len > disk.len_bytes() {
            return Err(Unusable::Senseless);
        }
        let mut loader = Self {
            disk,
            len,
            read: 0,
            chunk: Vec::new(),
            at: 0,
        };
        let mut found = 0;
        while loader.read < len {
            loader.chunk.clear();
            loader.read_chunk().await?;
            found = crc32c::crc32c_append(found, &loader.chunk);
        }
        loader.chunk.clear();
        loader.read = 0;
        match found == checksum {
            true => Ok(loader),
            false => Err(Unusable::Checksum),
        }
    }

    /// Reads the next chunk, and appends it to the bytes not taken yet.
    async fn read_chunk(&mut self) -> Result<(), Unusable> {
        let left = self.len - self.read;
        if left == 0 {
            return Err(Unusable::Senseless);
        }
        let bytes = left.min(CHUNK_BYTES as u64) as usize;
        let buf = AlignedBuf::new(bytes.next_multiple_of(device::PAGE_BYTES));
        let found = self.disk.read(self.read, buf).await?;
        self.chunk.drain(..self.at);
        self.at = 0;
        self.chunk.extend_from_slice(&found[..bytes]);
        self.read += bytes as u64;
        Ok(())
    }

    async fn take<const N: usize>(&mut self) -> Result<[u8; N], Unusable> {
        while self.chunk.len() - self.at < N {
            self.read_chunk().await?;
        }
        let bytes = self.chunk[self.at..].first_chunk::<N>();
        self.at += N;
        Ok(*bytes.expect("as many have been read"))
    }

    async fn number(&mut self) -> Result<u32, Unusable> {
        Ok(u32::from_le_bytes(self.take().await?))
    }

    pub(super) async fn partition(&mut self) -> Result<InMemory, Unusable> {
        let tables = self.number().await?;
        let mut found = InMemory::new();
        for _ in 0..tables {
            found.push(self.table().await?);
        }
        Ok(found)
    }

    async fn table(&mut self) -> Result<TableInMemory, Unusable> {
        let (generation, count) = (self.number().await?, self.number().await?);
        let mut changes = Vec::new();
        for _ in 0..count {
            let key = u64::from_le_bytes(self.take().await?);
            let value = u64::from_le_bytes(self.take().await?);
            let change = match Value::decode(value) {
                Some(_) => Known::Value(value),
                None => Known::Deleted,
            };
            changes.push((key, change));
        }
        Ok(TableInMemory {
            generation,
            changes,
        })
    }

    pub(super) async fn segments(&mut self) -> Result<(Vec<NumberedSegment>, u32), Unusable> {
        let count = self.number().await?;
        let mut segments = Vec::new();
        for _ in 0..count {
            let bytes: [u8; size_of::<NumberedSegment>()] = self.take().await?;
            let segment = NumberedSegment::read_from_bytes(&bytes);
            segments.push(segment.map_err(|_| Unusable::Senseless)?);
        }
        Ok((segments, self.number().await?))
    }
}
