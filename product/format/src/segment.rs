//! Segments: a data area filled from the front, a summary filled from the back, a footer.
//!
//! ```text
//!  0                                    summary_offset        segment_bytes - 64
//!  │ item │ item │ … gap │ item │ … free │ entry n-1 … entry 0 │ footer │
//! ```
//!
//! Items start at multiples of [`UNIT_BYTES`]. An item that fits a page never crosses a page boundary;
//! a longer one starts at a multiple of [`LARGE_UNIT_BYTES`], and one of more than [`MOST_LARGE_BYTES`] at the start of
//! a page. A [`Position`] gives the offset of an item and the number of pages that one read must fetch to have all of it.
//!
//! In a slotted segment every item starts a slot. All slots have the length given in the footer:
//! one read fetches the pages of the slot.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;

/// Items start at multiples of this many bytes.
pub const UNIT_BYTES: u32 = 16;
/// Items longer than a page start at multiples of this many bytes.
pub const LARGE_UNIT_BYTES: u32 = 512;
/// The page that small items do not cross, and the unit of reading.
pub const PAGE_BYTES: u32 = 4096;
/// Bytes of a summary entry.
pub const SUMMARY_ENTRY_BYTES: u32 = 24;
/// Bytes of the footer.
pub const FOOTER_BYTES: u32 = 64;
/// Version of the segment format.
pub const SEGMENT_FORMAT: u16 = 3;
/// Longest item, in bytes on flash, that starts at a multiple of [`LARGE_UNIT_BYTES`]; longer ones start a page.
pub const MOST_LARGE_BYTES: u32 = (STEP_PAGES * STEPS - 1) * PAGE_BYTES;
/// Longest item, in bytes on flash: a value of 64 MiB with its header and key.
pub const LONGEST_ITEM_BYTES: u32 = 65 << 20;

const MAGIC: u64 = u64::from_le_bytes(*b"flowSEGM");
/// Units in [`LARGE_UNIT_BYTES`], and so the number of size classes: their bits are zero in the offset of a large item.
const LARGE_UNITS: u32 = LARGE_UNIT_BYTES / UNIT_BYTES;
/// Set in a [`Position`] of an item longer than a page.
pub const LARGE: u32 = 1 << 31;

/// Pages to read for each size class of an item of up to [`MOST_LARGE_BYTES`]: in steps of one to 8, then three steps an
/// octave.
const CLASS_PAGES: [u32; 22] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20, 26, 32, 41, 52, 64, 82, 104, 128, 164, 208,
];
/// Steps of each octave of the size classes of longer items. The bits of the step, above the bits of the octave, are zero
/// in the offset of a page.
const STEPS: u32 = PAGE_BYTES / LARGE_UNIT_BYTES;
/// Pages of a step of the first octave. It makes the pages of a value of 2^n bytes fill their class to 98 %.
const STEP_PAGES: u32 = 26;
/// Octaves of longer items. Their numbers follow the size classes of [`CLASS_PAGES`].
const OCTAVES: u32 = LARGE_UNITS - CLASS_PAGES.len() as u32;

const _: () = assert!(CLASS_PAGES[CLASS_PAGES.len() - 1] == STEP_PAGES * STEPS);
const _: () = assert!(LONGEST_ITEM_BYTES <= octave_pages(OCTAVES - 1, STEPS - 1) * PAGE_BYTES);

/// Returns the pages of a size class of items longer than [`MOST_LARGE_BYTES`].
const fn octave_pages(octave: u32, step: u32) -> u32 {
    ((STEPS + step) * STEP_PAGES) << octave
}

/// Physical number of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// Content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Items.
    Items = 1,
    /// A part of a checkpoint.
    Checkpoint = 2,
}

/// Offset of an item in its segment, and the length of the read that fetches it.
///
/// Bit 31 is set for a large item. Small: the other bits are the offset in units of [`UNIT_BYTES`]. Large: the
/// low five bits, which are zero in the offset of a large item, hold the size class instead. Longer than
/// [`MOST_LARGE_BYTES`]: these bits hold the octave, and the next three, which are zero in the offset of a page, the
/// step in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u32);

impl Position {
    /// Returns the position of an item of `bytes` bytes at `offset`, which comes from [`align`].
    ///
    /// # Panics
    /// When the item is longer than [`LONGEST_ITEM_BYTES`].
    pub fn new(offset: u32, bytes: u32) -> Self {
        let units = offset / UNIT_BYTES;
        if bytes <= PAGE_BYTES {
            return Self(units);
        }
        if bytes <= MOST_LARGE_BYTES {
            let pages = (offset % PAGE_BYTES + bytes).div_ceil(PAGE_BYTES);
            let class = CLASS_PAGES.partition_point(|&class_pages| class_pages < pages);
            return Self(LARGE | units | class as u32);
        }
        assert!(
            bytes <= LONGEST_ITEM_BYTES,
            "the caller has checked the length"
        );
        let steps = bytes.div_ceil(PAGE_BYTES).div_ceil(STEP_PAGES);
        let mut octave = (steps / STEPS).ilog2();
        let mut step = steps.div_ceil(1 << octave) - STEPS;
        if step == STEPS {
            (octave, step) = (octave + 1, 0);
        }
        let class = CLASS_PAGES.len() as u32 + octave;
        Self(LARGE | units | (step * LARGE_UNITS) | class)
    }

    /// Returns the position of an item in a slot that starts at `offset`.
    pub fn of_slot(offset: u32) -> Self {
        Self(offset / UNIT_BYTES)
    }

    /// Returns the position with these bits, which come from [`Position::bits`].
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits. Bit 31 is set for a large item; the rest is below `segment_bytes / UNIT_BYTES`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the item is longer than a page.
    pub const fn is_large(self) -> bool {
        self.0 & LARGE != 0
    }

    /// Returns the offset of the item in its segment, in bytes.
    pub const fn offset(self) -> u32 {
        if self.0 & LARGE == 0 {
            return self.0 * UNIT_BYTES;
        }
        let classes = match self.octave() {
            None => LARGE_UNITS,
            Some(_) => LARGE_UNITS * STEPS,
        };
        (self.0 & !LARGE & !(classes - 1)) * UNIT_BYTES
    }

    /// Returns the bytes to read, from the start of the item's first page, to have the whole item. `slot_bytes` is
    /// the slot length of its segment, 0 if items are packed.
    pub const fn read_bytes(self, slot_bytes: u32) -> u32 {
        if slot_bytes > 0 {
            (self.offset() % PAGE_BYTES + slot_bytes).next_multiple_of(PAGE_BYTES)
        } else if self.0 & LARGE == 0 {
            PAGE_BYTES
        } else if let Some(octave) = self.octave() {
            let step = self.0 / LARGE_UNITS % STEPS;
            octave_pages(octave, step) * PAGE_BYTES
        } else {
            CLASS_PAGES[(self.0 % LARGE_UNITS) as usize] * PAGE_BYTES
        }
    }

    /// Returns the octave of a large item of more than [`MOST_LARGE_BYTES`].
    const fn octave(self) -> Option<u32> {
        (self.0 % LARGE_UNITS).checked_sub(CLASS_PAGES.len() as u32)
    }
}

/// Returns whether a large item of `bytes` bytes may start at `offset`.
pub const fn may_start_large(offset: u32, bytes: u32) -> bool {
    offset.is_multiple_of(large_unit(bytes))
}

/// Returns the bytes of which the offset of a large item is a multiple.
const fn large_unit(bytes: u32) -> u32 {
    if bytes > MOST_LARGE_BYTES {
        PAGE_BYTES
    } else {
        LARGE_UNIT_BYTES
    }
}

/// Returns the first offset at or after `cursor` at which an item of `bytes` bytes may start.
pub fn align(cursor: u32, bytes: u32) -> u32 {
    if bytes > PAGE_BYTES {
        return cursor.next_multiple_of(large_unit(bytes));
    }
    let start = cursor.next_multiple_of(UNIT_BYTES);
    let left_in_page = PAGE_BYTES - start % PAGE_BYTES;
    if bytes <= left_in_page {
        start
    } else {
        start.next_multiple_of(PAGE_BYTES)
    }
}

/// Returns the offset of the summary of `items` items in a segment of `segment_bytes` bytes; `None` if it does not fit.
pub fn summary_offset(segment_bytes: u32, items: u32) -> Option<u32> {
    let summary = items
        .checked_mul(SUMMARY_ENTRY_BYTES)?
        .checked_add(FOOTER_BYTES)?;
    segment_bytes.checked_sub(summary)
}

/// Returns the length of the longest item, in bytes on flash, that a segment can hold.
pub fn largest_item(segment_bytes: u32) -> u32 {
    summary_offset(segment_bytes, 1)
        .unwrap_or(0)
        .min(LONGEST_ITEM_BYTES)
}

/// Returns the bytes of a segment that `items` items of `bytes` bytes each, longer than a page, fill.
pub fn filled_by(items: u64, bytes: u64) -> u64 {
    let stride = match u32::try_from(bytes) {
        Ok(bytes) => u64::from(bytes.next_multiple_of(large_unit(bytes))),
        Err(_) => bytes,
    };
    items * (stride + u64::from(SUMMARY_ENTRY_BYTES)) + u64::from(FOOTER_BYTES)
}

/// Summary entry of an item.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SummaryEntry {
    /// Hash of the key.
    pub hash: U64,
    /// Version of the item.
    pub version: U64,
    /// Expiry, Unix seconds, 0 for never.
    pub expiry: U32,
    /// Bits of the [`Position`]; the length follows from its size class and the next position.
    pub position: U32,
}

const _: () = assert!(size_of::<SummaryEntry>() == SUMMARY_ENTRY_BYTES as usize);

/// The last bytes of a segment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Footer {
    magic: U64,
    /// The segment's sequence number.
    pub sequence: U64,
    /// The segment's physical number.
    pub segment: U32,
    /// Items in the data area; 0 for a checkpoint.
    pub items: U32,
    /// Bytes of the data area in use.
    pub data_bytes: U32,
    /// CRC-32C of the summary entries of an items segment, or of the data area of a checkpoint segment.
    pub content_checksum: U32,
    format: zerocopy::byteorder::little_endian::U16,
    kind: u8,
    reserved: u8,
    /// Bytes of each item's slot; 0 if items are packed.
    pub slot_bytes: U32,
    /// The image that the segment belongs to.
    pub image: U64,
    padding: [u8; 12],
    checksum: U32,
}

const _: () = assert!(size_of::<Footer>() == FOOTER_BYTES as usize);

impl Footer {
    /// Returns the footer of a segment whose content has the checksum `content_checksum`.
    pub fn new(
        kind: SegmentKind,
        segment: u32,
        sequence: u64,
        items: u32,
        data_bytes: u32,
        content_checksum: u32,
    ) -> Self {
        let mut footer = Self {
            magic: U64::new(MAGIC),
            sequence: U64::new(sequence),
            segment: U32::new(segment),
            items: U32::new(items),
            data_bytes: U32::new(data_bytes),
            content_checksum: U32::new(content_checksum),
            format: SEGMENT_FORMAT.into(),
            kind: kind as u8,
            reserved: 0,
            slot_bytes: U32::new(0),
            image: U64::new(0),
            padding: [0; 12],
            checksum: U32::new(0),
        };
        footer.checksum = U32::new(footer.own_checksum());
        footer
    }

    /// Returns the footer with the image set, and with slots of `slot_bytes` bytes; 0 if items are packed.
    pub fn of_image(mut self, image: u64, slot_bytes: u32) -> Self {
        self.image = U64::new(image);
        self.slot_bytes = U32::new(slot_bytes);
        self.checksum = U32::new(self.own_checksum());
        self
    }

    fn own_checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..FOOTER_BYTES as usize - 4])
    }

    /// Reads the footer at the end of `bytes`. Checks that it is a `kind` footer of `segment` with `sequence`, and that
    /// its lengths fit a segment of `segment_bytes` bytes.
    ///
    /// # Errors
    /// The [`FormatError`] of the check that fails.
    pub fn decode(
        bytes: &[u8],
        kind: SegmentKind,
        segment: u32,
        sequence: u64,
        segment_bytes: u32,
    ) -> Result<Self, FormatError> {
        let footer = Self::read(bytes, segment, segment_bytes)?;
        let is_wanted = footer.is_of(kind) && footer.sequence.get() == sequence;
        is_wanted.then_some(footer).ok_or(FormatError::Identity)
    }

    /// Returns whether the segment holds content of this kind.
    pub fn is_of(&self, kind: SegmentKind) -> bool {
        self.kind == kind as u8
    }

    /// Reads the footer at the end of `bytes`, of any kind and any generation of `segment`.
    pub fn read(bytes: &[u8], segment: u32, segment_bytes: u32) -> Result<Self, FormatError> {
        let (_, footer) = Self::read_from_suffix(bytes).map_err(|_| FormatError::Range)?;
        if footer.magic.get() != MAGIC {
            return Err(FormatError::Magic);
        }
        if footer.checksum.get() != footer.own_checksum() {
            return Err(FormatError::Checksum);
        }
        if footer.format.get() != SEGMENT_FORMAT {
            return Err(FormatError::Version {
                found: footer.format.get().into(),
                expected: SEGMENT_FORMAT.into(),
            });
        }
        if footer.segment.get() != segment {
            return Err(FormatError::Identity);
        }
        let summary = summary_offset(segment_bytes, footer.items.get());
        let fits = summary.is_some_and(|summary| footer.data_bytes.get() <= summary)
            && footer.slot_bytes.get() <= segment_bytes;
        fits.then_some(footer).ok_or(FormatError::Range)
    }
}

/// Reads the footer and the summary of an items segment from `tail`, its last bytes.
pub fn decode_tail(
    tail: &[u8],
    segment: u32,
    sequence: u64,
    segment_bytes: u32,
) -> Result<(Footer, Vec<SummaryEntry>), FormatError> {
    let footer = Footer::decode(tail, SegmentKind::Items, segment, sequence, segment_bytes)?;
    Ok((footer, decode_summary(tail, &footer)?))
}

/// Reads the summary of a segment from `tail`, its last bytes, in the order of the items' offsets.
///
/// # Errors
/// [`FormatError::Range`] when `tail` is too short or the positions are not those of items in rising order,
/// [`FormatError::Checksum`] when the entries do not match their checksum.
pub fn decode_summary(tail: &[u8], footer: &Footer) -> Result<Vec<SummaryEntry>, FormatError> {
    let entries_bytes = footer.items.get() as usize * SUMMARY_ENTRY_BYTES as usize;
    let end = tail
        .len()
        .checked_sub(FOOTER_BYTES as usize)
        .ok_or(FormatError::Range)?;
    let start = end.checked_sub(entries_bytes).ok_or(FormatError::Range)?;
    let bytes = &tail[start..end];
    if crc32c::crc32c(bytes) != footer.content_checksum.get() {
        return Err(FormatError::Checksum);
    }
    let entries = <[SummaryEntry]>::ref_from_bytes(bytes).map_err(|_| FormatError::Range)?;
    let in_order: Vec<SummaryEntry> = entries.iter().rev().copied().collect();
    let units = footer.data_bytes.get() / UNIT_BYTES;
    let mut free_from = 0;
    for entry in &in_order {
        let bits = entry.position.get();
        if bits & !LARGE > units {
            return Err(FormatError::Range);
        }
        let offset = Position::from_bits(bits).offset();
        if offset < free_from || offset >= footer.data_bytes.get() {
            return Err(FormatError::Range);
        }
        free_from = offset + 1;
    }
    Ok(in_order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_read_at_its_position_covers_the_item(
            cursor in 0u32..90_000_000,
            bytes in prop_oneof![1u32..3_000_000, 1..=LONGEST_ITEM_BYTES],
        ) {
            let offset = align(cursor, bytes);
            prop_assert!(offset >= cursor && offset - cursor < PAGE_BYTES);
            let position = Position::new(offset, bytes);
            prop_assert_eq!(position.offset(), offset);
            let read_start = offset / PAGE_BYTES * PAGE_BYTES;
            prop_assert!(read_start + position.read_bytes(0) >= offset + bytes);
            // A read is at most a third longer than necessary, and an eighth if it is long.
            let needed = (offset % PAGE_BYTES + bytes).div_ceil(PAGE_BYTES);
            let part = if bytes > MOST_LARGE_BYTES { 8 } else { 3 };
            prop_assert!(position.read_bytes(0) / PAGE_BYTES <= needed + needed.div_ceil(part));
            prop_assert_eq!(Position::from_bits(position.bits()), position);
        }

        #[test]
        fn a_read_of_a_slot_covers_it(units in 1u32..20_000, slot in 0u32..500) {
            let slot_bytes = units * UNIT_BYTES;
            let offset = slot * slot_bytes;
            let position = Position::of_slot(offset);
            prop_assert_eq!(position.offset(), offset);
            prop_assert_eq!(Position::from_bits(position.bits()), position);
            let read_start = offset / PAGE_BYTES * PAGE_BYTES;
            let read_end = read_start + position.read_bytes(slot_bytes);
            prop_assert!((offset + slot_bytes..offset + slot_bytes + PAGE_BYTES).contains(&read_end));
        }

        #[test]
        fn a_damaged_footer_is_refused(byte in 0usize..60, bit in 0u8..8) {
            let footer = Footer::new(SegmentKind::Items, 3, 9, 2, 100, 7);
            let mut bytes = footer.as_bytes().to_vec();
            bytes[byte] ^= 1 << bit;
            prop_assert!(Footer::decode(&bytes, SegmentKind::Items, 3, 9, 1 << 20).is_err());
        }
    }

    #[test]
    fn every_length_has_a_size_class() {
        let lengths = (0..=16)
            .map(|n| 1 << (10 + n))
            .flat_map(|n| [n - 300, n, n + 300]);
        let edges = [MOST_LARGE_BYTES, MOST_LARGE_BYTES + 1, LONGEST_ITEM_BYTES];
        for bytes in lengths.chain(edges) {
            let position = Position::new(align(12_345, bytes), bytes);
            assert!(position.read_bytes(0) >= bytes, "{bytes}");
            assert_eq!(position.offset(), align(12_345, bytes), "{bytes}");
        }
        for mib in [1, 2, 4, 8, 16, 32, 64] {
            let bytes = (mib << 20) + 300;
            let read = Position::new(0, bytes).read_bytes(0);
            assert!(
                read - bytes < bytes / 50,
                "{mib} MiB are read by {read} bytes"
            );
        }
    }

    #[test]
    fn a_footer_names_its_segment() {
        let kind = SegmentKind::Items;
        let footer = Footer::new(kind, 3, 9, 2, 100, 7);
        for (segment, sequence, segment_bytes, expected) in [
            (3, 9, 1 << 20, Ok(footer)),
            (4, 9, 1 << 20, Err(FormatError::Identity)),
            (3, 10, 1 << 20, Err(FormatError::Identity)),
            (3, 9, 160, Err(FormatError::Range)),
        ] {
            let read = Footer::decode(footer.as_bytes(), kind, segment, sequence, segment_bytes);
            assert_eq!(read, expected, "{segment} {sequence} {segment_bytes}");
        }
    }

    #[test]
    fn a_summary_reads_in_item_order() {
        let entry = |n: u64| SummaryEntry {
            hash: U64::new(n),
            version: U64::new(n),
            expiry: U32::new(0),
            position: U32::new(n as u32),
        };
        let mut bytes = Vec::new();
        for n in [2, 1, 0] {
            bytes.extend_from_slice(entry(n).as_bytes());
        }
        let footer = |data_bytes, entries: &[u8]| {
            let checksum = crc32c::crc32c(&entries[..72]);
            Footer::new(SegmentKind::Items, 0, 1, 3, data_bytes, checksum)
        };
        let sound = footer(99, &bytes);
        bytes.extend_from_slice(sound.as_bytes());
        let entries = decode_summary(&bytes, &sound).unwrap();
        assert_eq!(entries, [entry(0), entry(1), entry(2)]);
        let mut beyond = bytes.clone();
        beyond[23] = 0x7f;
        let read = decode_summary(&beyond, &footer(99, &beyond));
        assert_eq!(read, Err(FormatError::Range));
        let read = decode_summary(&bytes, &footer(30, &bytes));
        assert_eq!(read, Err(FormatError::Range), "less data");
        bytes[5] ^= 1;
        assert_eq!(decode_summary(&bytes, &sound), Err(FormatError::Checksum));
    }
}
