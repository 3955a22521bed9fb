//! [`FlashItem`]: an item read from flash.

use std::sync::Arc;

use device::AlignedBuf;
use runtime::budget::Share;
use zerocopy::FromBytes;

use crate::format::item::{CHECKSUM_BYTES, ItemHeader, ItemRef};

/// An item read from flash, in the buffer it was read into.
#[derive(Debug)]
pub struct FlashItem {
    bytes: AlignedBuf,
    /// Offset of the item's body in `bytes`.
    body: usize,
    /// The item's share of the memory for reads, given back when the item is dropped. `None` for a copy.
    share: Option<Share>,
    /// Seconds by which the clock that the item goes by is ahead of this run's.
    clock_ahead: i64,
}

impl FlashItem {
    /// Returns the item, already verified, at the `start` of the bytes read.
    pub(super) fn at(bytes: AlignedBuf, start: usize, share: Share) -> Self {
        Self {
            bytes,
            body: start + CHECKSUM_BYTES,
            share: Some(share),
            clock_ahead: 0,
        }
    }

    /// Copies an item that lies elsewhere.
    pub fn copy_of(item: &ItemRef<'_>) -> Self {
        let mut bytes = AlignedBuf::new(item.flash_bytes());
        item.encode(&mut bytes, 0, 0);
        Self {
            bytes,
            body: CHECKSUM_BYTES,
            share: None,
            clock_ahead: 0,
        }
    }

    /// Sets bits of its state: [`state`](crate::format::item::state).
    ///
    /// # Panics
    /// Never: it was parsed when it was read.
    pub fn mark(&mut self, bits: u8) {
        let (header, _) = ItemHeader::mut_from_prefix(&mut self.bytes[self.body..])
            .expect("verified when it was read");
        header.state |= bits;
    }

    /// Sets the seconds by which the clock that the item goes by is ahead of this run's.
    pub(crate) fn set_clock_ahead(&mut self, seconds: i64) {
        self.clock_ahead = seconds;
    }

    /// Returns the seconds by which the clock that the item goes by is ahead of this run's.
    pub(crate) fn clock_ahead(&self) -> i64 {
        self.clock_ahead
    }

    /// Returns the item.
    ///
    /// # Panics
    /// Never: it was parsed when it was read.
    pub fn item(&self) -> ItemRef<'_> {
        ItemRef::parse(&self.bytes[self.body..]).expect("verified when it was read")
    }

    /// Returns the item's fixed part.
    pub fn header(&self) -> &ItemHeader {
        ItemHeader::ref_from_prefix(&self.bytes[self.body..])
            .expect("verified when it was read")
            .0
    }

    /// Completes when a read waits for the memory that this item holds; never for a copy. If the item is shared, the
    /// wish is passed on to the next holder: the memory is freed when the last one drops the item.
    pub async fn wanted(self: &Arc<Self>) {
        let Some(share) = &self.share else {
            return std::future::pending().await;
        };
        share.wanted().await;
        if Arc::strong_count(self) > 1 {
            share.ask_another();
        }
    }

    /// Bytes of memory it holds.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes.len()
    }
}
