//! A segment whose block failed while it was written goes to another one, from its buffer: what had been
//! accepted is not lost with a block (`DIDACache`, TOS 2018, section 4.2, bad block management).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::AlignedBuf;

use super::core::{Content, SegmentStore};
use super::filling::Filling;
use super::incoming::{AppendItem, Source};
use super::layout::StreamLayout;
use super::write::WriteFailure;
use crate::counter::Count as _;
use crate::format::item::ItemRef;
use crate::format::location::Place;
use crate::format::segment::{Position, SummaryEntry};
use crate::key::KeyHash;

impl SegmentStore {
    /// Moves what a segment on a block gone bad holds to a free one, in the same buffer, and has that written.
    /// Only entries that `is_current` are moved; `moved` is told where each came to lie. False when the
    /// block is not bad, or no segment is free: then the items are lost.
    ///
    /// A reader that had found the old place may miss; it finds the new one when it looks again.
    pub fn move_elsewhere(
        &self,
        failure: &WriteFailure,
        is_current: impl Fn(&SummaryEntry) -> bool,
        mut moved: impl FnMut(&SummaryEntry, Place),
    ) -> bool {
        if !self.is_bad(failure.segment) {
            return false;
        }
        // Until the buffer names the new segment: whoever looks for live segments waits for this.
        let mut cursor = self.filling.lock();
        let Some(segment) = self.pop_free() else {
            return false;
        };
        let sequence = cursor.take_sequence();
        let mut content = self.buffers[failure.buffer].lock();
        let old = match &*content {
            Content::Sealed { bytes, .. } => Arc::clone(bytes),
            _ => unreachable!("a sealed segment stays in its buffer until it is freed"),
        };
        let slot_bytes = self
            .segment(failure.segment)
            .slot_bytes
            .load(Ordering::Relaxed);
        let bytes = AlignedBuf::new(old.len());
        let layout = match slot_bytes {
            0 => StreamLayout::Packed,
            bytes => StreamLayout::Slotted(bytes),
        };
        let mut filling = Filling::new(segment, sequence, bytes, layout);
        let mut placed = Vec::with_capacity(failure.entries.len());
        for entry in failure.entries.iter().filter(|entry| is_current(entry)) {
            let offset = Position::from_bits(entry.position.get()).offset();
            let Ok(item) = ItemRef::decode(&old[offset as usize..], failure.sequence, offset)
            else {
                continue;
            };
            let hash = KeyHash(entry.hash.get());
            if let Some(position) = filling.append(&AppendItem { hash, item }, Source::Copy) {
                placed.push((entry, position));
            }
        }
        self.begin_generation(segment, sequence, slot_bytes, failure.buffer);
        let (_, items, bytes) = filling.finish(self.image);
        self.segment(segment).items.store(items, Ordering::Release);
        *content = Content::Sealed {
            segment,
            bytes: Arc::new(bytes),
        };
        drop(cursor);
        self.segment(failure.segment)
            .buffer
            .store(0, Ordering::Release);
        // A reader that is sent to the bad block from here on finds that the index names another.
        for (entry, position) in placed {
            self.count_in(segment);
            let place = Place {
                segment,
                generation: sequence,
                position,
            };
            moved(entry, place);
        }
        drop(content);
        self.queues.lock().push_sealed(segment, failure.buffer);
        self.counters.segments_moved.add(1);
        self.work.notify_all();
        true
    }
}
