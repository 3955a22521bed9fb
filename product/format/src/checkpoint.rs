//! Checkpoints: the dead items of every live segment, the counters, and a section that belongs to the placement. A
//! checkpoint is a stream of bytes in checkpoint segments.
//!
//! ```text
//!  "flowCKPT" │ clock u32 │ flush deadline u32, 0 for none │ partitions u32
//!  per partition: flush cutoff u64
//!  next segment sequence number u64
//!  the index covers segments below this sequence number: u64
//!  partly covered segments u32, each: number u32 │ items covered u32
//!  retired segments u32, each: number u32
//!  live segments u32, each, in rising number:
//!     number u32 │ sequence number u64 │ bytes of dead u32 │ dead
//!  dead keys, in batches: keys u32, each: hash u64 │ version u64 │ before u64; ended by an empty batch
//!  section: version u32 │ bytes u64 │ bytes of the placement
//! ```
//!
//! `dead` is a list of positions and [marks](crate::hashed::entry_mark) in rising order: varints (LEB128) of the
//! differences, the first from 0.

use crate::FormatError;
use crate::segment::{SegmentId, UNIT_BYTES};

/// Bytes of a section that one read takes.
const PIECE_BYTES: u64 = 64 << 10;

/// First word of the stream.
pub const MAGIC: u64 = u64::from_le_bytes(*b"flowCKPT");

/// A stream of bytes that a checkpoint is read from.
pub trait Source {
    /// Error of a failed read.
    type Error;

    /// Takes the next `len` bytes.
    fn bytes(&mut self, len: usize) -> impl Future<Output = Result<Vec<u8>, Self::Error>>;

    /// Returns the error for bytes that verify but do not decode.
    fn nonsense(&self) -> Self::Error;
}

async fn u32_of<S: Source>(from: &mut S) -> Result<u32, S::Error> {
    let bytes = from.bytes(4).await?;
    Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

async fn u64_of<S: Source>(from: &mut S) -> Result<u64, S::Error> {
    let bytes = from.bytes(8).await?;
    Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// A key hash all of whose copies below a version are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadKey {
    /// The hash; journal records do not keep its low bits.
    pub hash: u64,
    /// Copies with lower versions are dead.
    pub version: u64,
    /// Segments with this sequence number or a higher one hold no dead copy.
    pub before: u64,
}

/// Most keys of a [batch](DeadKey::batch).
const BATCH_KEYS: u32 = 1 << 12;

impl DeadKey {
    const BYTES: usize = 24;

    /// Encodes a batch of keys. An empty batch ends the keys of a checkpoint.
    ///
    /// # Panics
    /// When there are more than 4096 keys.
    pub fn batch(keys: &[Self]) -> Vec<u8> {
        let count = keys.len() as u32;
        assert!(count <= BATCH_KEYS, "{count} keys in a batch");
        let words = keys
            .iter()
            .flat_map(|key| [key.hash, key.version, key.before]);
        let bytes = words.flat_map(u64::to_le_bytes);
        count.to_le_bytes().into_iter().chain(bytes).collect()
    }

    /// Reads a batch. Returns [`Source::nonsense`] if its count is too high.
    pub async fn read_batch<S: Source>(from: &mut S) -> Result<Vec<Self>, S::Error> {
        let count = u32_of(from).await?;
        if count > BATCH_KEYS {
            return Err(from.nonsense());
        }
        let bytes = from.bytes(count as usize * Self::BYTES).await?;
        let key = |bytes: &[u8; Self::BYTES]| {
            let (words, _) = bytes.as_chunks();
            let word = |number: usize| u64::from_le_bytes(words[number]);
            Self {
                hash: word(0),
                version: word(1),
                before: word(2),
            }
        };
        Ok(bytes.as_chunks().0.iter().map(key).collect())
    }
}

/// Segments, and first items of segments, that an index in the checkpoint covers: it has their items and later deaths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The index covers all segments with lower sequence numbers, except those in `partly`.
    pub below: u64,
    /// Partly covered segments below `below`, each with the number of its first items that the index covers.
    pub partly: Vec<(SegmentId, u32)>,
}

impl Coverage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.below.to_le_bytes());
        out.extend((self.partly.len() as u32).to_le_bytes());
        for (segment, items) in &self.partly {
            out.extend(segment.0.to_le_bytes());
            out.extend(items.to_le_bytes());
        }
    }

    async fn read<S: Source>(from: &mut S, segments: u32) -> Result<Self, S::Error> {
        let mut coverage = Self {
            below: u64_of(from).await?,
            partly: Vec::new(),
        };
        let partly = u32_of(from).await?;
        if partly > segments {
            return Err(from.nonsense());
        }
        for _ in 0..partly {
            let segment = SegmentId(u32_of(from).await?);
            coverage.partly.push((segment, u32_of(from).await?));
        }
        Ok(coverage)
    }
}

/// The start of a checkpoint, before its lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The latest Unix second.
    pub clock: u32,
    /// A `flush_all` whose time has not come.
    pub flush_deadline: Option<u32>,
    /// Flush cutoff of each partition.
    pub cutoffs: Vec<u64>,
    /// Sequence number of the next segment to be opened.
    pub next_sequence: u64,
    /// Coverage of the index when the checkpoint was begun; empty if the checkpoint has no index.
    pub covered: Coverage,
    /// Segments that are out of use for good.
    pub retired: Vec<SegmentId>,
    /// Number of [`DeadList`]s that follow: one for each live segment.
    pub living: u32,
}

impl Head {
    /// Encodes the head.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC.to_le_bytes());
        out.extend(self.clock.to_le_bytes());
        out.extend(self.flush_deadline.unwrap_or(0).to_le_bytes());
        out.extend((self.cutoffs.len() as u32).to_le_bytes());
        out.extend(self.cutoffs.iter().flat_map(|cutoff| cutoff.to_le_bytes()));
        out.extend(self.next_sequence.to_le_bytes());
        self.covered.encode(&mut out);
        out.extend((self.retired.len() as u32).to_le_bytes());
        out.extend(
            self.retired
                .iter()
                .flat_map(|segment| segment.0.to_le_bytes()),
        );
        out.extend(self.living.to_le_bytes());
        out
    }

    /// Reads the head of a checkpoint of an image with `partitions` partitions and `segments` segments. Returns
    /// [`Source::nonsense`] if the bytes do not fit such an image.
    pub async fn read<S: Source>(
        from: &mut S,
        partitions: u32,
        segments: u32,
    ) -> Result<Self, S::Error> {
        if u64_of(from).await? != MAGIC {
            return Err(from.nonsense());
        }
        let clock = u32_of(from).await?;
        let deadline = u32_of(from).await?;
        let mut head = Self {
            clock,
            flush_deadline: (deadline != 0).then_some(deadline),
            ..Self::default()
        };
        if u32_of(from).await? != partitions {
            return Err(from.nonsense());
        }
        for _ in 0..partitions {
            head.cutoffs.push(u64_of(from).await?);
        }
        head.next_sequence = u64_of(from).await?;
        head.covered = Coverage::read(from, segments).await?;
        let retired = u32_of(from).await?;
        if retired > segments {
            return Err(from.nonsense());
        }
        for _ in 0..retired {
            head.retired.push(SegmentId(u32_of(from).await?));
        }
        head.living = u32_of(from).await?;
        if head.living > segments {
            return Err(from.nonsense());
        }
        Ok(head)
    }
}

/// The dead items of one generation of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadList {
    /// The segment.
    pub segment: SegmentId,
    /// The segment's sequence number.
    pub sequence: u64,
    /// Whether the checkpoint has left out dead keys because copies in this segment supersede them.
    pub supersedes: bool,
    /// Packed positions.
    pub dead: Vec<u8>,
}

/// Bit of a list's sequence number that says that the segment supersedes dead keys. Sequence numbers are below it.
const SUPERSEDES: u64 = 1 << 63;

impl DeadList {
    /// Encodes the bytes in front of the packed positions.
    pub fn encode_head(
        segment: SegmentId,
        sequence: u64,
        supersedes: bool,
        dead_bytes: usize,
    ) -> [u8; 16] {
        let mark = if supersedes { SUPERSEDES } else { 0 };
        let mut out = [0; 16];
        out[..4].copy_from_slice(&segment.0.to_le_bytes());
        out[4..12].copy_from_slice(&(sequence | mark).to_le_bytes());
        out[12..].copy_from_slice(&(dead_bytes as u32).to_le_bytes());
        out
    }

    /// Parses a list from the front of `bytes`, and returns it with the bytes behind it; `None` if `bytes` are too short.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(16)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (dead, rest) = rest.split_at_checked(word(12) as usize)?;
        let sequence = u64::from(word(8)) << 32 | u64::from(word(4));
        let list = Self::new(SegmentId(word(0)), sequence, dead.to_vec());
        Some((list, rest))
    }

    /// Reads a list. Returns [`Source::nonsense`] if it is longer than the positions of a segment of `segment_bytes` can be.
    pub async fn read<S: Source>(from: &mut S, segment_bytes: u32) -> Result<Self, S::Error> {
        let segment = SegmentId(u32_of(from).await?);
        let sequence = u64_of(from).await?;
        let dead_bytes = u32_of(from).await?;
        if dead_bytes > most_packed_bytes(segment_bytes) {
            return Err(from.nonsense());
        }
        let dead = from.bytes(dead_bytes as usize).await?;
        Ok(Self::new(segment, sequence, dead))
    }

    fn new(segment: SegmentId, marked: u64, dead: Vec<u8>) -> Self {
        Self {
            segment,
            sequence: marked & !SUPERSEDES,
            supersedes: marked & SUPERSEDES != 0,
            dead,
        }
    }
}

/// Returns the most bytes that the positions of a segment of `segment_bytes`, and the marks of its lost entries, can take. A
/// difference takes no more bytes than it counts units, except the leap from small to large items. An item has at most one
/// mark, and at least three units.
fn most_packed_bytes(segment_bytes: u32) -> u32 {
    4 * (segment_bytes / UNIT_BYTES) + 2 * LARGEST_VARINT_BYTES
}

const LARGEST_VARINT_BYTES: u32 = 5;

/// The part of a checkpoint that belongs to the placement, in a format and version of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Version of the placement's format.
    pub version: u32,
    /// Bytes of the section, in the placement's format.
    pub bytes: Vec<u8>,
}

impl Section {
    /// Encodes the bytes in front of the section's bytes.
    pub fn encode_head(&self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..4].copy_from_slice(&self.version.to_le_bytes());
        out[4..].copy_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        out
    }

    /// Reads a section. One longer than `most_bytes` is skipped, and an empty section returned.
    pub async fn read<S: Source>(from: &mut S, most_bytes: u64) -> Result<Self, S::Error> {
        let mut section = Self {
            version: u32_of(from).await?,
            bytes: Vec::new(),
        };
        let len = u64_of(from).await?;
        let mut left = len;
        while left > 0 {
            let piece = from.bytes(left.min(PIECE_BYTES) as usize).await?;
            left -= piece.len() as u64;
            if len <= most_bytes {
                section.bytes.extend_from_slice(&piece);
            }
        }
        Ok(if len <= most_bytes {
            section
        } else {
            Self::default()
        })
    }
}

/// Packs rising positions one by one.
#[derive(Debug, Default)]
pub struct Packer {
    bytes: Vec<u8>,
    before: u32,
}

impl Packer {
    /// Appends a position, which must be above all earlier ones.
    pub fn push(&mut self, position: u32) {
        let mut rest = position - self.before;
        self.before = position;
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// Returns the packed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all positions; keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.before = 0;
    }
}

/// Iterator over the positions that a [`Packer`] has packed, rising. Ends after an error.
#[derive(Clone, Debug)]
pub struct Positions<'a> {
    rest: std::slice::Iter<'a, u8>,
    before: Option<u32>,
}

impl<'a> Positions<'a> {
    /// Iterates over the positions in `bytes`.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes.iter(),
            before: None,
        }
    }

    /// Iterates over `bytes`, the rest of a list whose last position read was `before`.
    pub fn behind(before: u32, bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes.iter(),
            before: Some(before),
        }
    }

    /// Returns the number of bytes that have not been read yet.
    pub fn rest_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Reads a position; `None` at the end. Fails with [`FormatError::Range`] if no [`Packer`] can have made the bytes.
    fn read(&mut self) -> Result<Option<u32>, FormatError> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let Some(&byte) = self.rest.next() else {
                return if shift == 0 {
                    Ok(None)
                } else {
                    Err(FormatError::Range)
                };
            };
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(FormatError::Range);
            }
        }
        if self.before.is_some() && value == 0 {
            return Err(FormatError::Range);
        }
        let position = u64::from(self.before.unwrap_or(0)) + value;
        let position = u32::try_from(position).map_err(|_| FormatError::Range)?;
        self.before = Some(position);
        Ok(Some(position))
    }
}

impl Iterator for Positions<'_> {
    type Item = Result<u32, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            self.rest = [].iter();
        }
        read.transpose()
    }
}

/// Packs the positions of the packed list `before` and those of `more`, each once.
///
/// # Errors
/// [`FormatError::Range`] if `before` is no packed list.
pub fn merge(out: &mut Packer, before: &[u8], more: &mut [u32]) -> Result<(), FormatError> {
    more.sort_unstable();
    let mut more = more.iter().copied().peekable();
    let mut last = None;
    let mut push = |position: u32| {
        if last != Some(position) {
            last = Some(position);
            out.push(position);
        }
    };
    for position in Positions::of(before) {
        let position = position?;
        while let Some(smaller) = more.next_if(|&next| next < position) {
            push(smaller);
        }
        push(position);
    }
    more.for_each(push);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(positions: &[u32]) -> Vec<u8> {
        let mut packer = Packer::default();
        positions.iter().for_each(|&position| packer.push(position));
        packer.bytes().to_vec()
    }

    proptest! {
        #[test]
        fn positions_come_back(positions in proptest::collection::btree_set(any::<u32>(), 0..200)) {
            let positions: Vec<u32> = positions.into_iter().collect();
            let packed = pack(&positions);
            let unpacked: Result<Vec<u32>, _> = Positions::of(&packed).collect();
            prop_assert_eq!(unpacked, Ok(positions));
        }

        #[test]
        fn any_bytes_unpack_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let positions: Vec<_> = Positions::of(&bytes).collect();
            prop_assert!(positions.iter().rev().skip(1).all(Result::is_ok));
            let positions: Vec<u32> = positions.into_iter().flatten().collect();
            prop_assert!(positions.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn neighbours_take_a_byte_each() {
        let positions: Vec<u32> = (0..1000).map(|n| n * 21).collect();
        assert_eq!(pack(&positions).len(), 1000);
    }
}
