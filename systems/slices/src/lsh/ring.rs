//! Vectors on the drives: a ring of places for generations, each of segments that the drives take in turn.
//!
//! The place of a vector follows from its id. The vector lies in one page if it fits, otherwise in as few as hold it. A place is
//! reused when the incarnation that names its vectors has gone ([`Readers`](super::readers::Readers)).

use std::sync::Arc;

use crate::encoding::lsh::{VECTOR_HEAD_BYTES, seal_vector, verify_vector};
use device::{AlignedBuf, SharedBuf};
use format::FormatError;

use crate::drive::Drive;
use crate::error::SliceError;
use crate::lsh::settings::RingShape;

/// 2^32 over the golden ratio. Its multiples modulo 2^32 lie evenly.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// Identifies a vector within its index. Ids rise, and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VectorId(pub u64);

/// A vector's generation, in which it was inserted, and its number within the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Vector {
    pub(crate) generation: u32,
    pub(crate) ordinal: u32,
}

impl Vector {
    pub(crate) fn new(generation: u32, ordinal: u32) -> Self {
        Self {
            generation,
            ordinal,
        }
    }

    pub(crate) fn id(self, batch: u32) -> VectorId {
        VectorId(u64::from(self.generation) * u64::from(batch) + u64::from(self.ordinal))
    }

    /// Returns the vector of an id; `None` for an id that no index gives.
    pub(crate) fn of(id: VectorId, batch: u32) -> Option<Self> {
        Some(Self {
            generation: u32::try_from(id.0 / u64::from(batch)).ok()?,
            ordinal: (id.0 % u64::from(batch)) as u32,
        })
    }
}

/// The places of an index's vectors: one for each generation, written in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) shape: RingShape,
    pub(crate) instance: u64,
    /// Vectors of a generation. Ids are divided by it.
    pub(crate) batch: u32,
    /// Bytes in front of the ring.
    pub(crate) start: u64,
    /// Last generation that the previous process may have written with other vectors; 0 if there was no previous process.
    pub(crate) last_in_doubt: u32,
}

/// The page, or the few pages, in which a vector lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block {
    /// Number of its drive.
    pub(crate) drive: usize,
    pub(crate) offset: u64,
}

/// Vectors that are written at once.
#[derive(Clone)]
pub(crate) struct Segment<B> {
    pub(crate) generation: u32,
    /// Number of the segment within its generation.
    pub(crate) number: u32,
    pub(crate) count: u32,
    pub(crate) bytes: B,
}

/// A segment that takes vectors.
pub(crate) type OpenSegment = Segment<AlignedBuf>;
/// A segment that takes no more vectors, and may be under way to its drive.
pub(crate) type ClosedSegment = Segment<Arc<AlignedBuf>>;

impl Ring {
    fn segment(&self, generation: u32, number: u32) -> Block {
        let shape = &self.shape;
        let place = u64::from(generation % shape.places);
        let of_drive = place * u64::from(shape.segments.div_ceil(shape.drives))
            + u64::from(number / shape.drives);
        Block {
            drive: (number % shape.drives) as usize,
            offset: self.start + of_drive * u64::from(shape.segment_bytes),
        }
    }

    /// Returns the place of a vector in its segment: the first byte of its block, and the first byte of the vector in the block.
    /// Each generation begins at another block of its segments, so that segments that are not full load all channels alike.
    fn within(&self, vector: Vector) -> (usize, usize) {
        let nth = vector.ordinal % self.shape.segment_vectors;
        let blocks = self.shape.segment_vectors / self.shape.vectors_per_block;
        let turn = u64::from(vector.generation.wrapping_mul(GOLDEN_RATIO));
        let first = ((turn * u64::from(blocks)) >> 32) as u32;
        let block = (nth / self.shape.vectors_per_block + first) % blocks;
        let within = (nth % self.shape.vectors_per_block) as usize * self.shape.vector_bytes;
        (block as usize * self.shape.block_bytes, within)
    }

    pub(crate) fn block(&self, vector: Vector) -> Block {
        let number = vector.ordinal / self.shape.segment_vectors;
        let segment = self.segment(vector.generation, number);
        Block {
            offset: segment.offset + self.within(vector).0 as u64,
            ..segment
        }
    }

    /// Returns the components of a vector in its block.
    pub(crate) fn in_block<'a>(
        &self,
        vector: Vector,
        block: &'a [u8],
    ) -> Result<&'a [u8], FormatError> {
        let start = self.within(vector).1;
        let record = &block[start..start + self.shape.vector_bytes];
        verify_vector(self.instance, vector.id(self.batch).0, record)
    }

    /// Returns the components of a vector in its segment, which has been in memory since the vector was put there.
    pub(crate) fn in_segment<'a>(&self, vector: Vector, segment: &'a [u8]) -> &'a [u8] {
        let (block, within) = self.within(vector);
        let start = block + within;
        &segment[start + VECTOR_HEAD_BYTES..start + self.shape.vector_bytes]
    }

    pub(crate) fn open_segment(&self, generation: u32, number: u32) -> OpenSegment {
        Segment {
            generation,
            number,
            count: 0,
            bytes: AlignedBuf::new(self.shape.segment_bytes as usize),
        }
    }

    /// Adds a vector to a segment that is not full. Returns the vector.
    pub(crate) fn put(&self, segment: &mut OpenSegment, components: &[u8]) -> Vector {
        let vector = Vector::new(
            segment.generation,
            segment.number * self.shape.segment_vectors + segment.count,
        );
        let (block, within) = self.within(vector);
        let start = block + within;
        let record = &mut segment.bytes[start..start + self.shape.vector_bytes];
        record[VECTOR_HEAD_BYTES..].copy_from_slice(components);
        seal_vector(self.instance, vector.id(self.batch).0, record);
        segment.count += 1;
        vector
    }

    /// Returns whether a segment has the place of a vector.
    pub(crate) fn is_in<B>(&self, segment: &Segment<B>, vector: Vector) -> bool {
        segment.generation == vector.generation
            && segment.number == vector.ordinal / self.shape.segment_vectors
    }

    /// Returns the number of vectors in a full segment.
    pub(crate) fn capacity(&self, number: u32) -> u32 {
        let first = number * self.shape.segment_vectors;
        self.shape.segment_vectors.min(self.batch - first)
    }

    /// Writes a segment to its drive, and syncs it. If the drive loses the write, vectors that the previous process has written
    /// in the same place could pass for the segment. A segment of a generation in doubt is therefore read back.
    ///
    /// # Errors
    /// Errors of the drive, and a lost write.
    pub(crate) async fn write(
        &self,
        drives: &[Drive],
        segment: &ClosedSegment,
    ) -> Result<(), SliceError> {
        let place = self.segment(segment.generation, segment.number);
        let drive = &drives[place.drive];
        let len = segment.bytes.len();
        let data = SharedBuf::new(Arc::clone(&segment.bytes), 0..len);
        drive.write_beside(&*drive.disk, place.offset, data).await?;
        if segment.generation > self.last_in_doubt {
            return Ok(());
        }
        let turn = drive.scheduler.write().await;
        let read = drive.disk.read(place.offset, AlignedBuf::new(len)).await;
        drop(turn);
        match read {
            Ok(found) if found[..] != segment.bytes[..] => Err(drive.lost_write(place.offset, len)),
            // A segment that cannot be read back passes.
            _ => Ok(()),
        }
    }

    /// Reads a whole segment, whose pages may be damaged.
    pub(crate) async fn read_segment(
        &self,
        drives: &[Drive],
        generation: u32,
        number: u32,
    ) -> Result<AlignedBuf, SliceError> {
        let place = self.segment(generation, number);
        let buf = AlignedBuf::new(self.shape.segment_bytes as usize);
        let read = drives[place.drive].disk.read(place.offset, buf).await;
        read.map_err(SliceError::device(place.drive))
    }

    /// Returns the verified components of a vector in its segment.
    pub(crate) fn verified<'a>(
        &self,
        vector: Vector,
        segment: &'a [u8],
    ) -> Result<&'a [u8], FormatError> {
        let block = self.within(vector).0;
        self.in_block(vector, &segment[block..block + self.shape.block_bytes])
    }

    /// Reads the pages of a block.
    pub(crate) async fn read_block(
        &self,
        drives: &[Drive],
        block: Block,
    ) -> Result<AlignedBuf, SliceError> {
        let drive = &drives[block.drive];
        let len = self.shape.block_bytes;
        drive.read_beside(&drive.disk, block.offset, len).await
    }
}

impl OpenSegment {
    pub(crate) fn close(self) -> ClosedSegment {
        Segment {
            generation: self.generation,
            number: self.number,
            count: self.count,
            bytes: Arc::new(self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(vector_bytes: usize, vectors_per_block: u32, block_bytes: usize) -> Ring {
        Ring {
            shape: RingShape {
                vector_bytes,
                vectors_per_block,
                block_bytes,
                segment_vectors: 2 * vectors_per_block,
                segment_bytes: 2 * block_bytes as u32,
                segments: 5,
                places: 4,
                drives: 2,
            },
            instance: 3,
            batch: 10 * vectors_per_block - 1,
            start: 1 << 20,
            last_in_doubt: 0,
        }
    }

    #[test]
    fn vectors_have_places_of_their_own() {
        for ring in [ring(800, 5, 4096), ring(9000, 1, 12288)] {
            let mut places = std::collections::HashSet::new();
            for generation in 5..9 {
                for ordinal in 0..ring.batch {
                    let vector = Vector::new(generation, ordinal);
                    let block = ring.block(vector);
                    assert!(block.offset >= ring.start && block.offset % 4096 == 0);
                    let end = block.offset + ring.shape.block_bytes as u64;
                    assert!(end <= ring.start + ring.shape.drive_bytes());
                    assert!(places.insert((block, ring.within(vector).1)));
                    assert_eq!(Vector::of(vector.id(ring.batch), ring.batch), Some(vector));
                }
            }
        }
    }

    #[test]
    fn a_vector_is_read_from_its_segment_and_its_block() {
        let ring = ring(800, 5, 4096);
        let mut segment = ring.open_segment(6, 4);
        let mut vectors = Vec::new();
        for nth in 0..ring.capacity(4) {
            vectors.push(ring.put(&mut segment, &[nth as u8; 788]));
        }
        assert_eq!((ring.capacity(0), vectors.len()), (10, 9));
        for (nth, &vector) in vectors.iter().enumerate() {
            assert_eq!((vector.generation, vector.ordinal), (6, 40 + nth as u32));
            let expected = [nth as u8; 788];
            assert_eq!(ring.in_segment(vector, &segment.bytes), expected);
            assert_eq!(ring.verified(vector, &segment.bytes), Ok(&expected[..]));
            let older = Vector {
                generation: 2,
                ..vector
            };
            assert!(ring.verified(older, &segment.bytes).is_err());
        }
    }
}
