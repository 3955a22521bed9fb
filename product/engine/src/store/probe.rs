//! Reading where an item may lie: by an index that keeps no keys, so that what it names may be another's, or no item.

use super::core::{Content, SegmentStore};
use super::read::{FlashItem, Patience, ReadError, SegmentPin};
use crate::format::item::ItemRef;
use crate::format::segment::{PAGE_BYTES, Position, SegmentId};
use crate::sync::atomic::Ordering;

impl SegmentStore {
    /// The item that starts at `offset` of a generation of a segment, whatever its key and its length, and the pin that keeps
    /// it there. `None` where the generation has ended, or no item starts there: nobody had said that one does, so that no
    /// damage is counted. Reads a page, and an item that is longer a second time, whole.
    ///
    /// Memory is waited for as `patience` says, with no segment pinned.
    ///
    /// # Errors
    /// [`ReadError::NoMemory`], and those of the device.
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

    /// The generations of segments that are being filled. To any other nothing is appended any more, and of what has been the
    /// index has been told. Takes the store's locks: nobody calls it who holds one of an index.
    pub(crate) fn being_filled(&self) -> Vec<(SegmentId, u64)> {
        // Whoever moves a segment tells the index while it holds this.
        let cursor = self.filling.lock();
        let generation = |&buffer: &usize| match &*self.buffers[buffer].lock() {
            Content::Filling(filling) => Some((filling.segment, filling.sequence)),
            _ => None,
        };
        let buffers = cursor.filling.iter().flatten();
        buffers.filter_map(generation).collect()
    }
}
