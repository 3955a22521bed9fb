//! The superblock: shape of the image, whether it was stopped cleanly, and the versions and sequence numbers reserved.
//!
//! Two copies, one page each, are written in turn and synced; the valid copy with the higher generation
//! counts. A torn write leaves the other copy.

use std::fmt;

use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;
use crate::journal::VERSION_LIMIT;
use crate::segment::PAGE_BYTES;

/// Bytes of a copy.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Version of the whole image format.
pub const IMAGE_FORMAT: u32 = 7;
/// Most partitions of an image.
pub const MAX_PARTITIONS: u32 = 1 << 12;
/// Segment sequence numbers are lower than this.
pub const SEQUENCE_LIMIT: u64 = 1 << 63;
/// Most segments a checkpoint may fill.
pub const MAX_CHECKPOINT_SEGMENTS: usize = 960;

const MAGIC: u64 = u64::from_le_bytes(*b"flowSTNE");

/// One copy of the superblock, byte for byte.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Superblock {
    magic: U64,
    format: U32,
    clean: u8,
    placement: [u8; 11],
    /// Counts the writes of the superblock.
    pub generation: U64,
    /// Identity of the image; drawn when it was made.
    pub image_id: U64,
    /// Bytes of the whole image.
    pub image_bytes: U64,
    /// Bytes of a segment.
    pub segment_bytes: U32,
    /// Segments on the flash.
    pub segments: U32,
    /// Channels of the flash.
    pub channels: U32,
    /// Partitions of the key space, a power of two.
    pub partitions: U32,
    /// Versions below this may have been used.
    pub version_limit: U64,
    /// Segment sequence numbers below this may have been used.
    pub sequence_limit: U64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: U64,
    /// Sequence number of the checkpoint's segments.
    pub checkpoint_sequence: U64,
    checkpoint_segments: U32,
    reserved: [u8; 4],
    checkpoint_segment: [U32; MAX_CHECKPOINT_SEGMENTS],
    /// Items that the index is laid out for.
    pub expected_items: U64,
    /// The [run](next_run).
    pub run: U64,
    /// Segments with lower sequence numbers are empty.
    pub floor_sequence: U64,
    /// Journal chunks below this sequence number are covered by the checkpoint.
    pub journal_first: U64,
    /// Items with lower versions are stale: they missed writes while the cache was down.
    pub stale_below: U64,
    index_bytes: U64,
    index_is_apart: u8,
    journal_void: u8,
    /// Checkpoints with lower sequence numbers tell the time of an earlier clock.
    clock_sequence: U64,
    old_clocks: [OldClock; 2],
    hash_seed: HashSeed,
    padding: [u8; 50],
    checksum: U32,
}

const _: () = assert!(size_of::<Superblock>() == SUPERBLOCK_BYTES);

/// The difference between the clock of earlier runs and the present one.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct OldClock {
    /// Items with lower versions were stored by the earlier clock; 0 if there is none.
    pub below: U64,
    /// Seconds by which the earlier clock is ahead of the present one.
    pub ahead: I64,
}

/// The secret seed of an image's key hash. Who knows it can make keys of one hash, so that nothing prints it.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct HashSeed(U64);

impl HashSeed {
    /// Returns the seed of this number.
    pub const fn new(seed: u64) -> Self {
        Self(U64::new(seed))
    }

    /// Returns the number, to hash with.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed")
    }
}

/// Settings with which an image is made, and which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// Identity of the image.
    pub image_id: u64,
    /// Seed of the key hash.
    pub hash_seed: HashSeed,
    /// Bytes of the whole image.
    pub image_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Segments on the flash.
    pub segments: u32,
    /// Channels of the flash.
    pub channels: u32,
    /// Partitions of the key space.
    pub partitions: u32,
    /// Items that the index is laid out for: it decides which bits of a hash the index keeps.
    pub expected_items: u64,
    /// Region that the index overwrites in place.
    pub index_region: IndexRegion,
}

/// Location and size of the region that an index overwrites in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexRegion {
    /// The index overwrites nothing in place.
    #[default]
    None,
    /// The region lies on the disk behind the superblock and has this many bytes, whole MiB.
    Inside(u64),
    /// The region lies behind the head of a device of its own and has this many bytes.
    Apart(u64),
}

impl IndexRegion {
    /// Returns the bytes of the region that lie between superblock and segments.
    pub fn inside_bytes(self) -> u64 {
        match self {
            Self::Inside(bytes) => bytes,
            Self::None | Self::Apart(_) => 0,
        }
    }
}

/// Checks the magic number (`is_ours`) and the format version of a structure.
pub(crate) fn check(is_ours: bool, found: u32) -> Result<(), FormatError> {
    let expected = IMAGE_FORMAT;
    if !is_ours {
        return Err(FormatError::Magic);
    }
    let is_known = found == expected;
    is_known
        .then_some(())
        .ok_or(FormatError::Version { found, expected })
}

/// Returns the run after `run`. The upper 32 bits count the opens; the lower ones are random, so that runs begun from copies of
/// the same files differ.
pub fn next_run(run: u64, random: u64) -> u64 {
    (u64::from(run_number(run)) + 1) << 32 | random & u64::from(u32::MAX)
}

/// Returns the number of a run of its image, from 1 on.
pub fn run_number(run: u64) -> u32 {
    (run >> 32) as u32
}

impl Superblock {
    /// Returns the first superblock of a new image, not yet clean.
    ///
    /// # Panics
    /// When the placement's name is longer than 11 bytes.
    pub fn new(shape: &ImageShape, placement: &str) -> Self {
        let mut superblock: Self = zerocopy::FromZeros::new_zeroed();
        superblock.magic = U64::new(MAGIC);
        superblock.format = U32::new(IMAGE_FORMAT);
        superblock.placement[..placement.len()].copy_from_slice(placement.as_bytes());
        superblock.image_id = U64::new(shape.image_id);
        superblock.hash_seed = shape.hash_seed;
        superblock.image_bytes = U64::new(shape.image_bytes);
        superblock.segment_bytes = U32::new(shape.segment_bytes);
        superblock.segments = U32::new(shape.segments);
        superblock.channels = U32::new(shape.channels);
        superblock.partitions = U32::new(shape.partitions);
        superblock.expected_items = U64::new(shape.expected_items);
        let (index_bytes, is_apart) = match shape.index_region {
            IndexRegion::None => (0, false),
            IndexRegion::Inside(bytes) => (bytes, false),
            IndexRegion::Apart(bytes) => (bytes, true),
        };
        superblock.index_bytes = U64::new(index_bytes);
        superblock.index_is_apart = u8::from(is_apart);
        superblock.journal_first = U64::new(1);
        superblock.version_limit = U64::new(1);
        superblock.sequence_limit = U64::new(1);
        superblock
    }

    /// Returns the settings with which the image was made.
    pub fn shape(&self) -> ImageShape {
        ImageShape {
            image_id: self.image_id.get(),
            hash_seed: self.hash_seed,
            image_bytes: self.image_bytes.get(),
            segment_bytes: self.segment_bytes.get(),
            segments: self.segments.get(),
            channels: self.channels.get(),
            partitions: self.partitions.get(),
            expected_items: self.expected_items.get(),
            index_region: match (self.index_bytes.get(), self.index_is_apart) {
                (0, _) => IndexRegion::None,
                (bytes, 0) => IndexRegion::Inside(bytes),
                (bytes, _) => IndexRegion::Apart(bytes),
            },
        }
    }

    /// Returns the name of the placement for which the image was made.
    pub fn placement(&self) -> &str {
        let name = self.placement.split(|&byte| byte == 0).next();
        std::str::from_utf8(name.unwrap_or_default()).unwrap_or("?")
    }

    /// Returns whether the image was stopped cleanly, with all of memory on flash. If not, it is in use, or its process died and
    /// items that were only in memory are lost.
    pub fn is_clean(&self) -> bool {
        self.clean == 1
    }

    /// Sets whether the run counts as clean if the superblock is not written again.
    pub fn mark_clean(&mut self, is_clean: bool) {
        self.clean = u8::from(is_clean);
    }

    /// Returns whether the journal has lost records. If so, a start uses neither the journal nor the checkpoint.
    pub fn is_journal_void(&self) -> bool {
        self.journal_void == 1
    }

    /// Sets whether the journal has lost records that no checkpoint holds.
    pub fn mark_journal_void(&mut self, is_void: bool) {
        self.journal_void = u8::from(is_void);
    }

    /// Returns whether another run can begin that reserves this many versions and segment sequence numbers.
    pub fn has_left(&self, versions: u64, sequences: u64) -> bool {
        self.version_limit.get() + versions < VERSION_LIMIT
            && self.sequence_limit.get() + sequences < SEQUENCE_LIMIT
            && run_number(self.run.get()) < u32::MAX
    }

    /// Returns the differences between the clocks of earlier runs and the present one, by falling age.
    pub fn old_clocks(&self) -> [OldClock; 2] {
        self.old_clocks
    }

    /// Returns whether the time of the checkpoint in force is one of the present clock.
    pub fn has_clock_of_checkpoint(&self) -> bool {
        self.checkpoint_sequence >= self.clock_sequence
    }

    /// Returns the difference that the last [`note_old_clock`](Self::note_old_clock) has noted, if it was called when the limit
    /// of sequence numbers was `sequence` or more.
    pub fn old_clock_noted_since(&self, sequence: u64) -> Option<i64> {
        let [_, newer] = self.old_clocks;
        let is_since = newer.below.get() > 0 && self.clock_sequence.get() >= sequence;
        is_since.then(|| newer.ahead.get())
    }

    /// Notes that all items with versions below the limit were stored by clocks that are ahead of the present one by `seconds`
    /// more than they have been. The two differences known before become one, the larger.
    pub fn note_old_clock(&mut self, seconds: i64) {
        let [older, newer] = self.old_clocks;
        let ahead = older.ahead.get().max(newer.ahead.get());
        let ahead = match older.below.get() {
            0 => newer.ahead.get(),
            _ => ahead,
        };
        let both = OldClock {
            below: newer.below,
            ahead: ahead.saturating_add(seconds).into(),
        };
        self.old_clocks = [
            if newer.below.get() > 0 {
                both
            } else {
                OldClock::default()
            },
            OldClock {
                below: self.version_limit,
                ahead: seconds.into(),
            },
        ];
        self.clock_sequence = self.sequence_limit;
    }

    /// Empties the cache: nothing written so far counts any more, nor does the journal before chunk `journal_first`.
    pub fn start_empty(&mut self, journal_first: u64) {
        self.floor_sequence = self.sequence_limit;
        self.journal_first = U64::new(journal_first);
        self.checkpoint_segments = U32::new(0);
        self.checkpoint_bytes = U64::new(0);
        self.stale_below = U64::new(0);
        self.journal_void = 0;
        self.old_clocks = Default::default();
        self.clock_sequence = U64::new(0);
    }

    /// Names a checkpoint of `bytes` bytes in `segments`, all with sequence number `sequence`, and the
    /// first journal chunk that it does not cover.
    ///
    /// # Panics
    /// When there are more than [`MAX_CHECKPOINT_SEGMENTS`].
    pub fn set_checkpoint(
        &mut self,
        bytes: u64,
        sequence: u64,
        segments: &[u32],
        journal_first: u64,
    ) {
        self.journal_first = U64::new(journal_first);
        self.checkpoint_bytes = U64::new(bytes);
        self.checkpoint_sequence = U64::new(sequence);
        self.checkpoint_segments = U32::new(segments.len() as u32);
        let slots = &mut self.checkpoint_segment[..segments.len()];
        for (slot, &segment) in slots.iter_mut().zip(segments) {
            *slot = U32::new(segment);
        }
    }

    /// Returns the segments that hold the checkpoint, in order.
    pub fn checkpoint_segments(&self) -> impl Iterator<Item = u32> + '_ {
        let count = (self.checkpoint_segments.get() as usize).min(MAX_CHECKPOINT_SEGMENTS);
        self.checkpoint_segment[..count]
            .iter()
            .map(|segment| segment.get())
    }

    /// Returns the bytes to write, with the checksum set.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut sealed = *self;
        sealed.checksum = U32::new(sealed.own_checksum());
        zerocopy::transmute!(sealed)
    }

    fn own_checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..SUPERBLOCK_BYTES - 4])
    }

    fn check_ranges(&self) -> Result<(), FormatError> {
        let shape = self.shape();
        let flash_bytes = u64::from(shape.segments).checked_mul(u64::from(shape.segment_bytes));
        let used =
            flash_bytes.and_then(|bytes| bytes.checked_add(shape.index_region.inside_bytes()));
        let fits = used.is_some_and(|bytes| bytes <= shape.image_bytes);
        let sane = shape.partitions.is_power_of_two()
            && shape.partitions <= MAX_PARTITIONS
            && shape.segment_bytes.is_multiple_of(PAGE_BYTES)
            && shape.segment_bytes > 0
            && shape.segments > 0
            && (1..=shape.segments).contains(&shape.channels)
            && shape.segments.is_multiple_of(shape.channels)
            && self.checkpoint_segments.get() as usize <= MAX_CHECKPOINT_SEGMENTS
            && self.journal_first.get() > 0
            && self.index_bytes.get().is_multiple_of(u64::from(PAGE_BYTES))
            && self.version_limit.get() < VERSION_LIMIT
            && self.sequence_limit.get() < SEQUENCE_LIMIT;
        (fits && sane).then_some(()).ok_or(FormatError::Range)
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if the bytes are no superblock, [`FormatError::Version`] for another format,
    /// [`FormatError::Checksum`] for a torn or damaged copy, [`FormatError::Range`] for fields out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let (superblock, _) = Self::read_from_prefix(bytes).map_err(|_| FormatError::Range)?;
        check(superblock.magic.get() == MAGIC, superblock.format.get())?;
        if superblock.checksum.get() != superblock.own_checksum() {
            return Err(FormatError::Checksum);
        }
        superblock.check_ranges()?;
        Ok(superblock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ImageShape = ImageShape {
        image_id: 1,
        hash_seed: HashSeed::new(0x0f1e_2d3c_4b5a_6978),
        image_bytes: 1 << 30,
        segment_bytes: 1 << 20,
        segments: 1015,
        channels: 1,
        partitions: 64,
        expected_items: 4 << 20,
        index_region: IndexRegion::Inside(8 << 20),
    };

    #[test]
    fn a_checkpoint_is_named_and_forgotten() {
        let mut superblock = Superblock::new(&SHAPE, "exact");
        assert!(!superblock.is_clean());
        superblock.set_checkpoint(99, 7, &[3, 1, 4], 5);
        superblock.mark_clean(true);
        let read = Superblock::decode(&superblock.encode()).unwrap();
        assert!(read.is_clean());
        assert_eq!(read.checkpoint_segments().collect::<Vec<_>>(), [3, 1, 4]);
        assert_eq!((read.placement(), read.shape()), ("exact", SHAPE));
        superblock.start_empty(6);
        assert_eq!(superblock.checkpoint_segments().count(), 0);
        assert_eq!(superblock.journal_first.get(), 6);
    }

    #[test]
    fn clocks_of_earlier_runs_add_up_and_go_with_their_items() {
        let clocks = |superblock: &Superblock| {
            let clocks = superblock.old_clocks();
            clocks.map(|clock| (clock.below.get(), clock.ahead.get()))
        };
        let mut superblock = Superblock::new(&SHAPE, "exact");
        assert!(superblock.has_clock_of_checkpoint());
        superblock.version_limit = 100.into();
        superblock.sequence_limit = 7.into();
        superblock.note_old_clock(7200);
        assert_eq!(clocks(&superblock), [(0, 0), (100, 7200)]);
        assert!(!superblock.has_clock_of_checkpoint());
        assert_eq!(superblock.old_clock_noted_since(7), Some(7200));
        assert_eq!(superblock.old_clock_noted_since(8), None);
        superblock.set_checkpoint(99, 7, &[3], 5);
        assert!(superblock.has_clock_of_checkpoint());
        superblock.version_limit = 200.into();
        superblock.note_old_clock(-50);
        assert_eq!(clocks(&superblock), [(100, 7150), (200, -50)]);
        superblock.version_limit = 300.into();
        superblock.note_old_clock(60);
        assert_eq!(clocks(&superblock), [(200, 7210), (300, 60)]);
        superblock.start_empty(9);
        assert_eq!(clocks(&superblock), [(0, 0), (0, 0)]);
    }

    #[test]
    fn the_hash_seed_is_not_shown() {
        let superblock = Superblock::new(&SHAPE, "exact");
        assert_eq!(superblock.shape().hash_seed.get(), 0x0f1e_2d3c_4b5a_6978);
        let shown = format!("{superblock:?} {SHAPE:?}");
        let seed = SHAPE.hash_seed.get();
        for form in [format!("{seed}"), format!("{seed:x}")] {
            assert!(!shown.contains(&form));
        }
    }

    #[test]
    fn a_damaged_copy_is_refused() {
        let bytes = Superblock::new(&SHAPE, "exact").encode();
        for byte in [0, 9, 13, 40, 200, 3000, 4095] {
            let mut damaged = bytes;
            damaged[byte] ^= 4;
            assert!(Superblock::decode(&damaged).is_err(), "byte {byte}");
        }
        assert_eq!(Superblock::decode(&[0; 4096]), Err(FormatError::Magic));
    }

    #[test]
    fn another_format_is_named() {
        let mut bytes = Superblock::new(&SHAPE, "exact").encode();
        bytes[8] = 9;
        assert_eq!(
            Superblock::decode(&bytes),
            Err(FormatError::Version {
                found: 9,
                expected: IMAGE_FORMAT
            })
        );
    }
}
