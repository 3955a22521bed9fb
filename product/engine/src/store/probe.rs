//! Reading at a place where an item may lie. An index that keeps no keys may name a place that holds another key's
//! item, or no item.

use super::core::{Content, SegmentStore};
use super::read::{FlashItem, Patience, ReadError, SegmentPin};
use crate::format::item::ItemRef;
use crate::format::segment::{PAGE_BYTES, Position, SegmentId};
use crate::sync::atomic::Ordering;

impl SegmentStore {
    /// Returns the item that starts at `offset` of a generation of a segment, whatever its key and length, with the pin
    /// that keeps the segment. `None` if the generation has ended or no item starts there; that is no damage and is not
    /// counted as such. Reads one page; an item that is longer is read a second time, whole.
    ///
    /// Waits for memory as `patience` says, with no segment pinned.
    ///
    /// [`ReadError::NoMemory`], and the errors of the device.
    pub async fn find_at(
        &self,
        segment: SegmentId,
        generation: u64,
        offset: u32,
        patience: Patience,
    ) -> Result<Option<(SegmentPin<'_>, FlashItem)>, ReadError> {
        let mut position = Position::of_slot(offset);
        loop {
            let share = self.read_memory(segment, position, patience).await?;
            let Some(pin) = self.pin(segment, generation) else {
                return Ok(None);
            };
            if offset >= self.segment(segment).data_bytes.load(Ordering::Acquire) {
                return Ok(None);
            }
            let page = offset / PAGE_BYTES * PAGE_BYTES;
            let bytes = self.read_bytes(segment, position);
            let buf = match self.buffered(&pin, page, bytes) {
                Some(buf) => buf,
                None => self.read_range(segment, page, bytes).await?,
            };
            let start = (offset - page) as usize;
            if ItemRef::decode(&buf[start..], generation, offset).is_ok() {
                self.count_read(segment);
                return Ok(Some((pin, FlashItem::at(buf, start, share))));
            }
            match self.large_at(offset, &buf) {
                Some(bytes) if bytes > PAGE_BYTES && position == Position::of_slot(offset) => {
                    position = Position::new(offset, bytes);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Returns the generations of segments that are being filled. No item is appended to any other generation any more,
    /// and the index has been told of all items in it. Takes the store's locks: must not be called with a lock of an
    /// index held.
    pub fn being_filled(&self) -> Vec<(SegmentId, u64)> {
        // A move of a segment tells the index while it holds this lock.
        let cursor = self.filling.lock();
        let generation = |&buffer: &usize| match &*self.buffers[buffer].lock() {
            Content::Filling(filling) => Some((filling.segment, filling.sequence)),
            _ => None,
        };
        let buffers = cursor.filling.iter().flatten();
        buffers.filter_map(generation).collect()
    }
}
