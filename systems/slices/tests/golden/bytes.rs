//! A drive and a log, read by documented offsets.

use std::ops::Range;
use std::sync::Arc;

use device::{Disk, Journal, MemoryDisk, MemoryJournal};
use flowstone_slices::Channels;
use runtime::sim::Sim;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of the one drive of each structure.
pub(crate) const DRIVE_BYTES: u64 = 512 << 10;
/// Two channels, so the superblock's stripe has 8 KiB.
pub(crate) const CHANNELS: Channels = Channels {
    count: 2,
    chunk_bytes: 4096,
};
pub(crate) const STRIPE: usize = 8192;
const PAGE: usize = 4096;

/// Bytes of a structure on its one drive, and words in its log.
pub(crate) struct Left {
    pub(crate) drive: Vec<u8>,
    pub(crate) log: Vec<u64>,
}

impl Left {
    /// Returns the drive and the log after `used` has run, without a crash. Instance and seed follow from the simulation's
    /// seed.
    pub(crate) fn by(
        words: usize,
        used: impl AsyncFnOnce(Vec<Arc<dyn Disk>>, Arc<dyn Journal>),
    ) -> Self {
        let disk = Arc::new(MemoryDisk::new(DRIVE_BYTES));
        let log = Arc::new(MemoryJournal::new(words));
        Sim::new(1).block_on(used(vec![disk.clone()], log.clone()));
        let mut drive = vec![0; DRIVE_BYTES as usize];
        disk.snapshot().read(0, &mut drive);
        Self {
            drive,
            log: log.crash(),
        }
    }

    /// Returns XXH3 of the drive and the log. A CRC would not change if bytes change together with their own CRC.
    pub(crate) fn checksum(&self) -> u64 {
        let log: Vec<u8> = self
            .log
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        xxh3_64(&[&self.drive[..], &log].concat())
    }

    pub(crate) fn drive(&self) -> Bytes<'_> {
        Bytes(&self.drive)
    }
}

/// Bytes of a drive or of a page, read by offset.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn from(self, at: usize) -> Self {
        Self(&self.0[at..])
    }

    pub(crate) fn at(self, range: Range<usize>) -> &'a [u8] {
        &self.0[range]
    }

    fn take<const N: usize>(self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("as many bytes")
    }

    pub(crate) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.take(at))
    }

    pub(crate) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.take(at))
    }

    pub(crate) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.take(at))
    }

    pub(crate) fn bit(self, bit: usize) -> bool {
        self.0[bit / 8] >> (bit % 8) & 1 == 1
    }
}

/// Fields that the superblocks of all kinds have.
#[derive(Clone, Copy)]
pub(crate) struct Superblock {
    pub(crate) instance: u64,
    pub(crate) seed: u64,
    pub(crate) partitions: u32,
    pub(crate) pages: u32,
    pub(crate) incarnations: u32,
    pub(crate) slots: u32,
}

impl Superblock {
    /// Checks the superblock at the start of a drive.
    pub(crate) fn of(bytes: Bytes<'_>, kind: u32) -> Self {
        assert_eq!(bytes.at(0..8), b"flowSLCE");
        assert_eq!(bytes.u32(8), 1, "format");
        let mut unsigned = bytes.at(0..116).to_vec();
        unsigned[12..16].fill(0);
        assert_eq!(bytes.u32(12), crc32c::crc32c(&unsigned));
        assert_eq!(bytes.u32(32), kind);
        assert_eq!((bytes.u32(36), bytes.u32(40)), (0, 1), "drive, drives");
        assert_eq!(bytes.u32(44), 0, "spread");
        assert_eq!(bytes.u32(56), PAGE as u32, "bytes of a page");
        assert_eq!((bytes.u32(76), bytes.u32(80)), (2, 4096), "channels");
        assert!(bytes.at(116..STRIPE).iter().all(|&byte| byte == 0));
        Self {
            instance: bytes.u64(16),
            seed: bytes.u64(24),
            partitions: bytes.u32(48),
            pages: bytes.u32(52),
            incarnations: bytes.u32(60),
            slots: bytes.u32(64),
        }
    }

    /// Checks the first words of a log.
    pub(crate) fn check_log(&self, log: &[u64]) {
        let magic = u64::from_le_bytes(*b"flowSLOG");
        assert_eq!(log[..3], [magic, 1, self.instance]);
    }

    /// Returns generation and region of a partition's slicetable.
    pub(crate) fn pointer(&self, log: &[u64], partition: u32) -> (u32, u32) {
        self.sealed(log[8 + partition as usize], partition, 0)
    }

    /// Checks the checksum of a pointer word, and returns the two numbers of the word.
    pub(crate) fn sealed(&self, word: u64, partition: u32, number: u32) -> (u32, u32) {
        let mut of = self.instance.to_le_bytes().to_vec();
        of.extend(partition.to_le_bytes());
        of.extend(number.to_le_bytes());
        let salt = (crc32c::crc32c(&of) % 255) as u8 + 1;
        let bare = word & !(0xff << 24);
        assert_eq!((word >> 24) as u8, salt ^ crc8(bare));
        ((word >> 32) as u32, word as u32 & 0xff_ffff)
    }

    /// Checks the head of a page of a partition's slicetable, and returns the page. Regions begin at `start`.
    pub(crate) fn page<'a>(
        &self,
        left: &'a Left,
        start: usize,
        partition: u32,
        page: u32,
    ) -> Bytes<'a> {
        let (generation, region) = self.pointer(&left.log, partition);
        let at = start + (region * self.pages + page) as usize * PAGE;
        let bytes = Bytes(left.drive().from(at).at(0..PAGE));
        assert_eq!(
            [4, 8, 12, 16, 20].map(|at| bytes.u32(at)),
            [partition, page, generation, 0, 0]
        );
        let mut unsigned = bytes.0.to_vec();
        unsigned[..4].fill(0);
        let sealed = crc32c::crc32c(&self.instance.to_le_bytes());
        assert_eq!(bytes.u32(0), crc32c::crc32c_append(sealed, &unsigned));
        bytes
    }
}

/// Returns the CRC-8 with the polynomial x^8 + x^2 + x + 1, most significant byte first.
pub(crate) fn crc8(word: u64) -> u8 {
    let mut crc = 0_u8;
    for byte in word.to_be_bytes() {
        crc ^= byte;
        for _ in 0..8 {
            crc = crc << 1 ^ if crc >> 7 == 1 { 7 } else { 0 };
        }
    }
    crc
}

/// Maps `hash` mod 2^32 to `0..range`.
pub(crate) fn spread(hash: u64, range: u32) -> u32 {
    (((hash & 0xffff_ffff) * u64::from(range)) >> 32) as u32
}

/// Returns the finalizer of MurmurHash3, called mix in the document.
pub(crate) fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Returns partition and slots of an 8-byte number in a hash table.
pub(crate) fn place(superblock: &Superblock, key: u64) -> (u32, [u32; 2]) {
    let hash = xxh3_64_with_seed(&key.to_le_bytes(), superblock.seed);
    let slots = superblock.pages * superblock.slots;
    let first = spread(mix(hash) >> 32, slots);
    let second = match spread(mix(hash), slots) {
        second if second == first => (first + 1) % slots,
        second => second,
    };
    (spread(hash >> 32, superblock.partitions), [first, second])
}
