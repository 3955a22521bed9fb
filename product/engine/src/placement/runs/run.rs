//! [`Run`]: a run on flash, as its header has it.

use std::ops::Range;

use index::runs::{PageBoundaries, RibbonKey, RibbonShape, Solution, Solver};

use crate::format::location::Place;
use crate::format::run_header::{LeftBehind, RunHeader, RunPiece};
use crate::format::segment::{PAGE_BYTES, SegmentId};
use crate::key::KeyHash;
use crate::reclaim::Resident;

/// A page has this part more marks than items, as a fraction with this denominator: items have different sizes.
const SPARE_PARTS: u32 = 4;

/// Returns the key of a hash in the ribbons of its group. Order, coefficients and fingerprint have no bits in common with the
/// choice of the group.
pub(super) fn ribbon_key(hash: KeyHash, group_bits: u32) -> RibbonKey {
    // The finalizer of SplitMix64.
    let mut mixed = hash.0;
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        mixed = (mixed ^ mixed >> shift).wrapping_mul(factor);
    }
    mixed ^= mixed >> 31;
    RibbonKey {
        order: (hash.order() << group_bits >> 32) as u32,
        coefficients: mixed as u32,
        fingerprint: (mixed >> 32) as u16,
    }
}

/// Bits of a hash that choose its partition and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashBits {
    pub(super) partition: u32,
    pub(super) group: u32,
}

/// Returns the bytes of the pages of a piece with these numbers, counted from its first page, from an item on to one behind the
/// start of the last.
fn range_of(piece: &RunPiece, pages: Range<u32>) -> Range<u32> {
    let page = |number: u32| (piece.first / PAGE_BYTES + number) * PAGE_BYTES;
    piece.first.max(page(pages.start))..page(pages.end).min(piece.last + 1)
}

/// A byte range of a generation of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) segment: SegmentId,
    pub(super) generation: u64,
    pub(super) range: Range<u32>,
}

/// A run: its items lie one behind the other, in the order of their hashes, in one segment or several.
#[derive(Debug)]
pub(super) struct Run {
    pieces: Box<[RunPiece]>,
    boundaries: PageBoundaries,
    pub(super) items: u32,
    /// Parts of a page that have marks of their own: about as many as items.
    parts: u32,
    /// For each part of each page, whether an item that begins there has been read; empty before the first.
    marks: Box<[u64]>,
}

impl Run {
    /// Returns the run of a header, with the shape and the solution of its ribbon, less the items of the pieces that are not
    /// there; `None` if the header is none of this image's.
    pub(super) fn of(
        header: &RunHeader,
        is_there: impl Fn(&RunPiece) -> bool,
    ) -> Option<(Self, RibbonShape, Solution)> {
        let shape = RibbonShape::new(header.slots, u32::from(header.fingerprint_bits)).ok()?;
        let pages: u64 = header
            .pieces
            .iter()
            .map(|piece| u64::from(pages_of(piece)))
            .sum();
        let items = header.items();
        // Each page has the start of an item.
        let pages = u32::try_from(pages).ok().filter(|&pages| pages <= items)?;
        let left = header.pieces.iter().filter(|piece| is_there(piece));
        let run = Self {
            boundaries: PageBoundaries::of_words(items, pages - 1, &header.boundaries)?,
            pieces: header.pieces.clone().into(),
            items: left.map(|piece| piece.items).sum(),
            parts: (items + items / SPARE_PARTS).div_ceil(pages),
            marks: Box::default(),
        };
        Some((run, shape, Solution::decode(shape, &header.ribbon)?))
    }

    /// Returns the newest segment's sequence number.
    pub(super) fn generation(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.sequence)
    }

    /// Returns where an item may lie, the newest stretch first.
    pub(super) fn stretches(&self, order: u32) -> impl Iterator<Item = Stretch> + '_ {
        let (first, last) = self.boundaries.pages_of(order).into_inner();
        let mut before = 0;
        let pieces = self.pieces.iter().filter_map(move |piece| {
            let own = before..before + pages_of(piece);
            before = own.end;
            let (from, to) = (first.max(own.start), (last + 1).min(own.end));
            let pages = (from < to).then(|| from - own.start..to - own.start)?;
            Some(Stretch {
                segment: SegmentId(piece.segment),
                generation: piece.sequence,
                range: range_of(piece, pages),
            })
        });
        pieces.collect::<Vec<_>>().into_iter().rev()
    }

    /// Returns the number of the mark of an item; `None` if the run has no item there.
    fn mark_of(&self, place: Place) -> Option<usize> {
        let offset = place.position.offset();
        let mut before = 0;
        for piece in &self.pieces {
            if piece.sequence == place.generation && (piece.first..=piece.last).contains(&offset) {
                let page = before + offset / PAGE_BYTES - piece.first / PAGE_BYTES;
                let part = offset % PAGE_BYTES * self.parts / PAGE_BYTES;
                return Some((page * self.parts + part) as usize);
            }
            before += pages_of(piece);
        }
        None
    }

    /// Marks an item as read. Returns false if the run has no item there.
    pub(super) fn mark(&mut self, place: Place) -> bool {
        let Some(number) = self.mark_of(place) else {
            return false;
        };
        if self.marks.is_empty() {
            let pages: u32 = self.pieces.iter().map(pages_of).sum();
            self.marks = vec![0; (pages * self.parts).div_ceil(64) as usize].into();
        }
        self.marks[number / 64] |= 1 << (number % 64);
        true
    }

    /// Returns whether the item at a place has been marked; `None` if the run has no item there.
    pub(super) fn is_marked(&self, place: Place) -> Option<bool> {
        let number = self.mark_of(place)?;
        let word = self.marks.get(number / 64).copied().unwrap_or(0);
        Some(word >> (number % 64) & 1 == 1)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&self.pieces[..]) + size_of_val(&self.marks[..]);
        (own + self.boundaries.memory_bytes()) as u64
    }
}

/// Returns the header of a run with a ribbon of this shape, for items of one group that lie in the order of their hashes.
pub(super) fn header_of(
    items: &[Resident],
    group: usize,
    bits: HashBits,
    shape: RibbonShape,
) -> RunHeader {
    let mut pieces: Vec<RunPiece> = Vec::new();
    let mut boundaries = Vec::new();
    let (mut solver, mut behind) = (Solver::new(shape), Vec::new());
    // Number of the next page that has no boundary yet.
    let (mut pages, mut next) = (0, 1);
    for item in items {
        let (place, offset) = (item.place, item.place.position.offset());
        let is_same = |piece: &&mut RunPiece| piece.sequence == place.generation;
        match pieces.last_mut().filter(is_same) {
            Some(piece) => {
                piece.last = offset;
                piece.items += 1;
            }
            None => {
                pages += pieces.last().map_or(0, pages_of);
                pieces.push(RunPiece {
                    segment: place.segment.0,
                    sequence: place.generation,
                    first: offset,
                    last: offset,
                    items: 1,
                });
            }
        }
        let piece = pieces.last().expect("it was pushed");
        let page = pages + offset / PAGE_BYTES - piece.first / PAGE_BYTES;
        let key = ribbon_key(item.hash, bits.group);
        while next <= page {
            boundaries.push(key.order);
            next += 1;
        }
        if !solver.insert(&key) {
            behind.push(LeftBehind {
                hash: item.hash.0,
                piece: pieces.len() as u16 - 1,
                position: place.position,
            });
        }
    }
    let boundaries = PageBoundaries::new(items.len() as u32, &boundaries);
    RunHeader {
        group: group as u32,
        partition_bits: bits.partition as u8,
        group_bits: bits.group as u8,
        version: items.iter().map(|item| item.version).max().unwrap_or(0),
        pieces,
        slots: shape.slots(),
        fingerprint_bits: shape.fingerprint_bits() as u8,
        behind,
        boundaries: boundaries.words().to_vec(),
        ribbon: solver.solve().encode(shape),
    }
}

fn pages_of(piece: &RunPiece) -> u32 {
    piece.last / PAGE_BYTES - piece.first / PAGE_BYTES + 1
}

/// Estimates the bytes that the items of a run take, by the offsets of those of one segment.
pub(super) fn bytes_of(items: &[Resident]) -> u64 {
    let Some(first) = items.first() else {
        return 0;
    };
    let is_of_first = |item: &&Resident| item.place.generation == first.place.generation;
    let of_first = items.iter().take_while(is_of_first);
    let (count, last) = of_first.fold((0, first), |(count, _), item| (count + 1, item));
    let bytes = u64::from(last.place.position.offset() - first.place.position.offset());
    bytes * items.len() as u64 / count.max(1)
}
