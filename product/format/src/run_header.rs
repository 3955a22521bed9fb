//! Run headers: what the index of the placement `runs` keeps of a run, as the value of an item behind the run.
//!
//! ```text
//!  version u64 │ group u32 │ items, slots, keys left behind, words of boundaries u32 each
//!  │ pieces u16 │ partition bits, group bits, bits of a fingerprint u8 each │ 0 u8
//!  │ pieces: sequence u64, segment, first, last, items u32 each
//!  │ keys left behind: hash u64, position u32, piece u16 │ boundaries u64 each │ the ribbon's solution
//! ```
//!
//! The item has the version 0, which no other item has, in its header and in its summary entry.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;
use crate::segment::{Position, SummaryEntry};

/// The version of the items that are run headers.
pub const HEADER_VERSION: u64 = 0;

/// Returns whether an entry of a summary is that of a run header.
pub fn is_header(entry: &SummaryEntry) -> bool {
    entry.version.get() == HEADER_VERSION
}

/// A stretch of a segment with items of a run, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPiece {
    /// Number of the segment.
    pub segment: u32,
    /// Sequence number of the segment's generation.
    pub sequence: u64,
    /// Offset of the first item.
    pub first: u32,
    /// Offset of the last item.
    pub last: u32,
    /// Number of items of the run in this stretch.
    pub items: u32,
}

/// A key of which the ribbon does not say that the run holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Hash of the key.
    pub hash: u64,
    /// Number of the piece with its item, from 0 on.
    pub piece: u16,
    /// Position of the item in the segment of its piece.
    pub position: Position,
}

/// A run: a partition's items of one group, in the order of their hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// The partition, and below it the group, of the run's hashes.
    pub group: u32,
    /// Bits of the hash that choose the partition.
    pub partition_bits: u8,
    /// Bits of the hash that choose the group of a partition.
    pub group_bits: u8,
    /// Highest version of the items.
    pub version: u64,
    /// Where the items lie, in their order.
    pub pieces: Vec<RunPiece>,
    /// Slots of the ribbon: at least as many as items.
    pub slots: u32,
    /// Bits of a fingerprint of the ribbon.
    pub fingerprint_bits: u8,
    /// Keys that the ribbon leaves behind.
    pub behind: Vec<LeftBehind>,
    /// Encoded boundaries of the pages.
    pub boundaries: Vec<u64>,
    /// Solution of the ribbon.
    pub ribbon: Vec<u8>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    version: U64,
    group: U32,
    slots: U32,
    behind: U32,
    words: U32,
    pieces: U16,
    partition_bits: u8,
    group_bits: u8,
    fingerprint_bits: u8,
    zero: u8,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Piece {
    sequence: U64,
    segment: U32,
    first: U32,
    last: U32,
    items: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Behind {
    hash: U64,
    position: U32,
    piece: U16,
}

impl RunHeader {
    /// Returns the number of items.
    pub fn items(&self) -> u32 {
        let items = self.pieces.iter().map(|piece| piece.items);
        items.fold(0, u32::saturating_add)
    }

    /// Encodes the header as the value of an item.
    pub fn encode(&self) -> Vec<u8> {
        let head = Head {
            version: self.version.into(),
            group: self.group.into(),
            slots: self.slots.into(),
            behind: (self.behind.len() as u32).into(),
            words: (self.boundaries.len() as u32).into(),
            pieces: (self.pieces.len() as u16).into(),
            partition_bits: self.partition_bits,
            group_bits: self.group_bits,
            fingerprint_bits: self.fingerprint_bits,
            zero: 0,
        };
        let mut out = head.as_bytes().to_vec();
        for piece in &self.pieces {
            let piece = Piece {
                sequence: piece.sequence.into(),
                segment: piece.segment.into(),
                first: piece.first.into(),
                last: piece.last.into(),
                items: piece.items.into(),
            };
            out.extend_from_slice(piece.as_bytes());
        }
        for key in &self.behind {
            let key = Behind {
                hash: key.hash.into(),
                position: key.position.bits().into(),
                piece: key.piece.into(),
            };
            out.extend_from_slice(key.as_bytes());
        }
        for &word in &self.boundaries {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.ribbon);
        out
    }

    /// Decodes the value of an item.
    ///
    /// # Errors
    /// [`FormatError::Range`] if a number does not fit the others.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        const WRONG: FormatError = FormatError::Range;
        let (head, rest) = Head::read_from_prefix(value).map_err(|_| WRONG)?;
        let pieces = usize::from(head.pieces.get());
        let (pieces, rest) =
            <[Piece]>::ref_from_prefix_with_elems(rest, pieces).map_err(|_| WRONG)?;
        let behind = head.behind.get() as usize;
        let (behind, rest) =
            <[Behind]>::ref_from_prefix_with_elems(rest, behind).map_err(|_| WRONG)?;
        let words = head.words.get() as usize;
        let (words, ribbon) =
            <[U64]>::ref_from_prefix_with_elems(rest, words).map_err(|_| WRONG)?;
        let this = Self {
            group: head.group.get(),
            partition_bits: head.partition_bits,
            group_bits: head.group_bits,
            version: head.version.get(),
            pieces: pieces
                .iter()
                .map(|piece| RunPiece {
                    segment: piece.segment.get(),
                    sequence: piece.sequence.get(),
                    first: piece.first.get(),
                    last: piece.last.get(),
                    items: piece.items.get(),
                })
                .collect(),
            slots: head.slots.get(),
            fingerprint_bits: head.fingerprint_bits,
            behind: behind
                .iter()
                .map(|key| LeftBehind {
                    hash: key.hash.get(),
                    piece: key.piece.get(),
                    position: Position::from_bits(key.position.get()),
                })
                .collect(),
            boundaries: words.iter().map(|word| word.get()).collect(),
            ribbon: ribbon.to_vec(),
        };
        let are_in_order = this.pieces.iter().all(|piece| piece.first <= piece.last)
            && this.pieces.is_sorted_by_key(|piece| piece.sequence);
        let items: u64 = this.pieces.iter().map(|piece| u64::from(piece.items)).sum();
        let is_there = |key: &LeftBehind| usize::from(key.piece) < this.pieces.len();
        let is_whole = items > 0
            && items <= u64::from(this.slots)
            && are_in_order
            && this.behind.iter().all(is_there);
        is_whole.then_some(this).ok_or(WRONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RunHeader {
        let piece = |sequence| RunPiece {
            segment: 3,
            sequence,
            first: 32,
            last: 4096,
            items: 7,
        };
        RunHeader {
            group: 5,
            partition_bits: 2,
            group_bits: 1,
            version: 99,
            pieces: vec![piece(4), piece(5)],
            slots: 32,
            fingerprint_bits: 4,
            behind: vec![LeftBehind {
                hash: u64::MAX,
                piece: 1,
                position: Position::new(64, 100),
            }],
            boundaries: vec![1, 2, 3],
            ribbon: vec![4; 16],
        }
    }

    #[test]
    fn a_header_reads_as_it_was_written() {
        let value = header().encode();
        assert_eq!(RunHeader::decode(&value), Ok(header()));
        assert_eq!(header().items(), 14);
        let short = RunHeader::decode(&value[..60]);
        assert_eq!(short, Err(FormatError::Range));
    }

    #[test]
    fn a_header_whose_numbers_do_not_fit_is_refused() {
        let changes: [fn(&mut RunHeader); 4] = [
            |header| header.pieces.clear(),
            |header| header.pieces.reverse(),
            |header| header.pieces[0].first = 5000,
            |header| header.behind[0].piece = 2,
        ];
        for change in changes {
            let mut header = header();
            change(&mut header);
            let read = RunHeader::decode(&header.encode());
            assert_eq!(read, Err(FormatError::Range));
        }
    }
}
