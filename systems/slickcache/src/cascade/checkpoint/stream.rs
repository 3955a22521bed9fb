//! The stream of a checkpoint: bytes cut into pages, and read back.

use std::sync::Arc;

use crate::encoding::cascade::{STREAM_BYTES, decode_page, encode_page};
use device::{AlignedBuf, PAGE_BYTES};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::super::flash::Flash;
use super::super::pages::{PageId, PageStore};
use super::errors::{LoadError, SaveError};

/// Number of pages of the stream written or read at once.
const PIECE_PAGES: usize = 64;
/// Page numbers set aside for the stream of each checkpoint, whose length is not known at its start. If a run fails to
/// name 2^15 checkpoints, the next one may give some numbers twice.
const SAVE_NUMBERS: u64 = 1 << 24;

/// Marks a page that a checkpoint names as used.
///
/// # Errors
/// [`LoadError::Nonsense`] if it is used already or does not exist.
pub(super) fn claim(store: &PageStore, page: PageId) -> Result<(), LoadError> {
    let is_free = store.claim(page);
    is_free.then_some(()).ok_or(LoadError::Nonsense)
}

/// Writer that cuts a stream of bytes into pages. The numbers of the pages follow each other; all pages but the last are
/// full.
pub(super) struct Stream<'c> {
    flash: &'c Flash,
    image: u64,
    pub(super) first_number: u64,
    /// Pages written so far, whose numbers follow the first.
    pub(super) pages: Vec<PageId>,
    /// Bytes written so far.
    pub(super) bytes: u64,
    /// Bytes not written yet.
    rest: Vec<u8>,
}

impl<'c> Stream<'c> {
    pub(super) fn new(flash: &'c Flash, image: u64) -> Self {
        Self {
            flash,
            image,
            first_number: flash.take_numbers(SAVE_NUMBERS),
            pages: Vec::new(),
            bytes: 0,
            rest: Vec::new(),
        }
    }

    /// Writes whole pieces, and keeps the rest.
    pub(super) async fn append(&mut self, mut bytes: &[u8]) -> Result<(), SaveError> {
        let piece = PIECE_PAGES * STREAM_BYTES;
        while self.rest.len() + bytes.len() >= piece {
            let (now, later) = bytes.split_at(piece - self.rest.len());
            self.rest.extend_from_slice(now);
            bytes = later;
            let mut full = std::mem::take(&mut self.rest);
            self.write(&full).await?;
            full.clear();
            self.rest = full;
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) async fn end(&mut self) -> Result<(), SaveError> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return Ok(());
        }
        self.write(&rest).await
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), SaveError> {
        let count = piece.len().div_ceil(STREAM_BYTES);
        let store = &self.flash.store;
        let pages = store.take_for_checkpoint(count).ok_or(SaveError::Full)?;
        let number = self.first_number + self.pages.len() as u64;
        self.pages.extend_from_slice(&pages);
        let mut bytes = AlignedBuf::new(count * PAGE_BYTES);
        let parts = piece
            .chunks(STREAM_BYTES)
            .zip(bytes.chunks_exact_mut(PAGE_BYTES));
        for ((part, page), number) in parts.zip(number..) {
            encode_page(page, self.image, number, part);
        }
        store.write(&pages, &Arc::new(bytes)).await?;
        self.bytes += piece.len() as u64;
        Ok(())
    }
}

/// Reads a stream back. Allocates no more than the stream has bytes.
pub(super) struct Reader<'c> {
    store: &'c PageStore,
    image: u64,
    /// Pages still to be read.
    pages: &'c [PageId],
    /// Number of the first page of `pages`.
    number: u64,
    /// Bytes of the stream still to be returned.
    left: u64,
    bytes: Vec<u8>,
    at: usize,
}

impl<'c> Reader<'c> {
    /// Creates a reader of a stream of `len` bytes in `pages`, the first of which has this number.
    pub(super) fn new(
        store: &'c PageStore,
        image: u64,
        pages: &'c [PageId],
        number: u64,
        len: u64,
    ) -> Self {
        Self {
            store,
            image,
            pages,
            number,
            left: len,
            bytes: Vec::new(),
            at: 0,
        }
    }

    /// Marks a page that the stream names as used.
    ///
    /// # Errors
    /// [`LoadError::Nonsense`] if it is used already or does not exist.
    pub(super) fn claim(&self, page: PageId) -> Result<(), LoadError> {
        claim(self.store, page)
    }

    async fn bytes(&mut self, len: usize) -> Result<&[u8], LoadError> {
        self.left = self
            .left
            .checked_sub(len as u64)
            .ok_or(LoadError::Nonsense)?;
        if self.bytes.len() - self.at < len {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        while self.bytes.len() < len {
            let (&page, rest) = self.pages.split_first().ok_or(LoadError::Nonsense)?;
            let read = self.store.read(page).await?;
            self.bytes
                .extend(decode_page(&read, self.image, self.number)?);
            self.pages = rest;
            self.number = self.number.checked_add(1).ok_or(LoadError::Nonsense)?;
        }
        self.at += len;
        Ok(&self.bytes[self.at - len..self.at])
    }

    pub(super) async fn one<T: FromBytes + KnownLayout + Immutable>(
        &mut self,
    ) -> Result<T, LoadError> {
        let bytes = self.bytes(size_of::<T>()).await?;
        T::read_from_bytes(bytes).map_err(|_| LoadError::Nonsense)
    }

    pub(super) async fn all<T>(&mut self, count: usize) -> Result<Vec<T>, LoadError>
    where
        T: FromBytes + KnownLayout + Immutable + Copy,
    {
        let len = count
            .checked_mul(size_of::<T>())
            .ok_or(LoadError::Nonsense)?;
        if len as u64 > self.left {
            return Err(LoadError::Nonsense);
        }
        let bytes = self.bytes(len).await?;
        let parts = bytes.chunks_exact(size_of::<T>());
        parts
            .map(|part| T::read_from_bytes(part).map_err(|_| LoadError::Nonsense))
            .collect()
    }

    pub(super) async fn count(&mut self) -> Result<usize, LoadError> {
        let count: zerocopy::little_endian::U32 = self.one().await?;
        Ok(count.get() as usize)
    }
}
