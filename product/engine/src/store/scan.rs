//! [`Scan`]: the segments of an earlier run, found from the last pages of all segments.

use device::DeviceError;
use futures_util::stream::{self, StreamExt};

use super::blocks::Blocks;
use super::segment::SegmentRecord;
use super::table::SegmentTable;
use crate::format::segment::{Footer, PAGE_BYTES, SegmentId, SegmentKind};

/// Footers read concurrently when an image is opened.
const SCAN_DEPTH: usize = 64;

/// The segments found from the last pages of all segments.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Segments that hold items, in a generation not below the floor, oldest first.
    pub found: Vec<SegmentRecord>,
    /// Segments whose last page cannot be read.
    pub unreadable: Vec<SegmentId>,
}

impl Scan {
    /// Reads the last page of every segment. Calls `progress` for each.
    pub(crate) async fn of(
        table: &SegmentTable,
        blocks: &Blocks,
        floor: u64,
        progress: &mut dyn FnMut(SegmentId),
    ) -> Self {
        let look = |number: u32| async move {
            let segment = SegmentId(number);
            let offset = table.segment_bytes() - PAGE_BYTES;
            let page = blocks.read_patiently(segment, offset, PAGE_BYTES as usize);
            (segment, page.await)
        };
        let mut pages = stream::iter(0..table.segments())
            .map(look)
            .buffer_unordered(SCAN_DEPTH);
        let mut scan = Self::default();
        while let Some((segment, page)) = pages.next().await {
            progress(segment);
            let page = match page {
                Ok(page) => page,
                // Its erase or programs had not ended: it holds no items, and is erased before it is used.
                Err(DeviceError::Unreadable { .. }) => continue,
                Err(_) => {
                    scan.unreadable.push(segment);
                    continue;
                }
            };
            let footer = Footer::read(&page, segment.0, table.segment_bytes());
            if let Ok(footer) = footer
                && footer.is_of(SegmentKind::Items)
                && footer.image.get() == table.image
                && footer.sequence.get() >= floor
            {
                scan.found.push(SegmentRecord {
                    segment,
                    sequence: footer.sequence.get(),
                    items: footer.items.get(),
                    slot_bytes: footer.slot_bytes.get(),
                    data_bytes: footer.data_bytes.get(),
                });
            }
        }
        scan.found.sort_unstable_by_key(|record| record.sequence);
        scan
    }
}
