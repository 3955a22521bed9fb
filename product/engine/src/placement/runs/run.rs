//! [`Run`]: a run on flash, and [`RunItems`], its items while it is placed or restored.

use std::ops::Range;

use index::runs::{PageBoundaries, RibbonKey};

use crate::format::location::Place;
use crate::format::segment::{PAGE_BYTES, SegmentId};
use crate::key::KeyHash;

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

/// A stretch of a segment with items of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) segment: SegmentId,
    pub(super) generation: u64,
    /// Offset of the first item.
    start: u32,
    /// Offset of the last item.
    last: u32,
}

impl Piece {
    fn pages(&self) -> u32 {
        self.last / PAGE_BYTES - self.start / PAGE_BYTES + 1
    }

    /// Returns the bytes of its pages with these numbers, counted from its first page, from an item on to one behind the start of
    /// the last.
    fn range(&self, pages: Range<u32>) -> Range<u32> {
        let page = |number: u32| (self.start / PAGE_BYTES + number) * PAGE_BYTES;
        self.start.max(page(pages.start))..page(pages.end).min(self.last + 1)
    }
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
    pieces: Box<[Piece]>,
    boundaries: PageBoundaries,
    pub(super) items: u32,
}

impl Run {
    /// Returns the newest segment's sequence number.
    pub(super) fn generation(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.generation)
    }

    /// Returns where an item may lie, the newest stretch first.
    pub(super) fn stretches(&self, order: u32) -> impl Iterator<Item = Stretch> + '_ {
        let (first, last) = self.boundaries.pages_of(order).into_inner();
        let mut before = 0;
        let pieces = self.pieces.iter().filter_map(move |piece| {
            let own = before..before + piece.pages();
            before = own.end;
            let (from, to) = (first.max(own.start), (last + 1).min(own.end));
            let pages = (from < to).then(|| from - own.start..to - own.start)?;
            Some(Stretch {
                segment: piece.segment,
                generation: piece.generation,
                range: piece.range(pages),
            })
        });
        pieces.collect::<Vec<_>>().into_iter().rev()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&self.pieces[..]);
        (own + self.boundaries.memory_bytes()) as u64
    }
}

/// The items of a run, in order.
#[derive(Debug, Default)]
pub(super) struct RunItems {
    pub(super) items: Vec<(KeyHash, Place)>,
}

impl RunItems {
    /// Estimates the bytes that the items take, by the offsets of those of one segment.
    pub(super) fn bytes(&self) -> u64 {
        let Some((_, first)) = self.items.first() else {
            return 0;
        };
        let of_first = self
            .items
            .iter()
            .take_while(|(_, place)| place.generation == first.generation);
        let (count, last) = of_first.fold((0, first), |(count, _), (_, place)| (count + 1, place));
        let bytes = u64::from(last.position.offset() - first.position.offset());
        bytes * self.items.len() as u64 / count.max(1)
    }

    /// Returns the run of the items, of which so many are alive. They lie in the order of their hashes.
    pub(super) fn run(&self, group_bits: u32, alive: u32) -> Run {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut boundaries = Vec::new();
        // Number of the next page that has no boundary yet.
        let (mut pages, mut next) = (0, 1);
        for &(hash, place) in &self.items {
            let offset = place.position.offset();
            let is_same = |piece: &&mut Piece| piece.generation == place.generation;
            match pieces.last_mut().filter(is_same) {
                Some(piece) => piece.last = offset,
                None => {
                    pages += pieces.last().map_or(0, Piece::pages);
                    pieces.push(Piece {
                        segment: place.segment,
                        generation: place.generation,
                        start: offset,
                        last: offset,
                    });
                }
            }
            let piece = pieces.last().expect("it was pushed");
            let page = pages + offset / PAGE_BYTES - piece.start / PAGE_BYTES;
            let order = ribbon_key(hash, group_bits).order;
            // Pages of which no item is left have the boundary of the next one.
            while next <= page {
                boundaries.push(order);
                next += 1;
            }
        }
        Run {
            boundaries: PageBoundaries::new(self.items.len() as u32, &boundaries),
            pieces: pieces.into(),
            items: alive,
        }
    }
}
