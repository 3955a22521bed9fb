//! [`Walk`]: the items of a segment that its summary does not list, found by going through its pages.

use zerocopy::FromBytes;

use crate::format::item::{CHECKSUM_BYTES, ItemHeader, ItemRef, is_page_end};
use crate::format::segment::{PAGE_BYTES, Position, SummaryEntry, UNIT_BYTES};
use crate::key::{HashSeed, Key};

/// A walk through a packed segment, in which items that are not listed lie without gaps and cross no page.
pub(crate) struct Walk<'a> {
    sequence: u64,
    seed: HashSeed,
    /// Entries of the summary that have not been passed, in the order in which the items lie.
    listed: &'a [SummaryEntry],
    next: u32,
    /// Entries of the items that the walk has found.
    pub(crate) found: Vec<SummaryEntry>,
}

impl<'a> Walk<'a> {
    /// Begins a walk through the generation of a segment with this sequence number and summary.
    pub(crate) fn new(sequence: u64, seed: HashSeed, listed: &'a [SummaryEntry]) -> Self {
        Self {
            sequence,
            seed,
            listed,
            next: 0,
            found: Vec::new(),
        }
    }

    /// Walks through the whole pages of a part that begins at `start`, up to where the last part has ended.
    pub(crate) fn go_through(&mut self, part: &[u8], start: u32) {
        let end = start + part.len() as u32;
        self.next = self.next.max(start);
        while self.next < end {
            let offset = self.next;
            let next_page = (offset + 1).next_multiple_of(PAGE_BYTES);
            let rest = &part[(offset - start) as usize..(next_page - start) as usize];
            let listed = self.listed.first().map(offset_of);
            self.next = match listed {
                Some(listed) if listed <= offset => {
                    self.listed = &self.listed[1..];
                    end_of_item(rest, listed).unwrap_or(next_page)
                }
                _ if is_page_end(rest, self.sequence, offset) => next_page,
                _ => match ItemRef::decode(rest, self.sequence, offset) {
                    Ok(item) => self.note(&item, offset),
                    Err(_) => listed.map_or(next_page, |listed| listed.min(next_page)),
                },
            };
        }
    }

    /// Notes an item. Returns the offset of what follows.
    fn note(&mut self, item: &ItemRef<'_>, offset: u32) -> u32 {
        let bytes = item.flash_bytes() as u32;
        if let Some(key) = Key::new(item.key, self.seed) {
            self.found.push(SummaryEntry {
                hash: key.hash().0.into(),
                version: item.header.version,
                expiry: item.header.expiry,
                position: Position::new(offset, bytes).bits().into(),
            });
        }
        (offset + bytes).next_multiple_of(UNIT_BYTES)
    }
}

/// Returns the offset of an item in its segment.
pub(crate) fn offset_of(entry: &SummaryEntry) -> u32 {
    Position::from_bits(entry.position.get()).offset()
}

/// Returns the end of the item at an offset, by its header; `None` if it cannot be that of an item.
fn end_of_item(bytes: &[u8], offset: u32) -> Option<u32> {
    let (header, _) = ItemHeader::ref_from_prefix(bytes.get(CHECKSUM_BYTES..)?).ok()?;
    let bytes = u32::try_from(CHECKSUM_BYTES + header.body_bytes()).ok()?;
    offset
        .checked_add(bytes)?
        .checked_next_multiple_of(UNIT_BYTES)
}
