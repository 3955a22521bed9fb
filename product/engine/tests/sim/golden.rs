//! The bytes of an image: a small image is compared with a checksum, and read at offsets written down
//! here and in `docs/internals/on-disk-format.md`, not by the engine's own decoders.
//!
//! When this test fails the format has changed: raise `IMAGE_FORMAT`, change the document, then the
//! checksum.

use std::sync::Arc;

use device::{Image, Latency, MemoryDisk};
use flowstone_engine::format::superblock::{HashSeed, ImageShape, IndexRegion, Superblock};
use flowstone_engine::journal::Unusable;
use flowstone_engine::{Distrust, EngineConfig, Put, Start, Stop};

use crate::support::{Media, get, simulate, start, value};

const META: u64 = 1 << 20;
const SEGMENT: u64 = 256 << 10;
const IMAGE: u64 = META + 8 * SEGMENT;
/// XXH3 of the whole image. A CRC would not do: bytes followed by their own CRC do not change it.
const CHECKSUM: u64 = 0x9c1f_4d54_3896_a567;
/// Sequence numbers reserved for a run.
const SEQUENCES: u64 = (1 << 40) + 100_003;
/// Bytes of the second run's checkpoint.
const CHECKPOINT_BYTES: u64 = 60 + 16 + 1 + 12 + 16 + 5;
/// The simulation's wall clock when the items were written.
const NOW: u32 = 1_800_000_000;

fn config() -> EngineConfig {
    EngineConfig {
        memory_bytes: 16 << 20,
        max_value_bytes: 100_000,
        ..EngineConfig::default()
    }
}

/// Returns an image of three items in one partition after clean stops, and its journal. Nothing in it is random.
fn small_image() -> (Image, Vec<u64>) {
    let shape = ImageShape {
        image_id: 0x0123_4567_89ab_cdef,
        hash_seed: HashSeed::new(0x1032_5476_98ba_dcfe),
        image_bytes: IMAGE,
        segment_bytes: SEGMENT as u32,
        segments: 8,
        channels: 1,
        partitions: 1,
        expected_items: 1000,
        index_region: IndexRegion::None,
    };
    let mut image = Image::new(IMAGE);
    image.write(0, &Superblock::new(&shape, "exact").encode());
    simulate(1, async {
        let disk = Arc::new(MemoryDisk::from_image(image, Latency::default()));
        let media = Media::new(disk.clone());
        let engine = start(&media, &config()).await;
        let missing = Distrust::Journal(Unusable::Missing);
        assert_eq!(engine.start(), Start::Empty(missing));
        let rich = Put {
            value: b"a value".into(),
            client_flags: 0x0a0b_0c0d,
            expiry: NOW + 600,
            cas_unique: Some(0x1122_3344_5566_7788),
            stale: true,
            ..Put::default()
        };
        let large = Put {
            value: value(5, 5000).into(),
            ..Put::default()
        };
        for (key, put) in [
            (&b"plain"[..], &Put::default()),
            (b"rich", &rich),
            (b"large", &large),
        ] {
            let key = engine.key(key).unwrap();
            engine.set(key, NOW, put).await.unwrap();
        }
        engine.flush_all(NOW + 3600).await;
        assert_eq!(engine.stop().await, Stop::Complete { objects: 3 });
        drop(engine);
        // A second run, in which one item is removed and one is read.
        let engine = start(&media, &config()).await;
        engine
            .remove(engine.key(b"plain").unwrap(), NOW)
            .await
            .unwrap();
        assert!(get(&engine, b"large").await.is_some());
        assert_eq!(engine.stop().await, Stop::Complete { objects: 2 });
        (disk.snapshot(), media.journal.crash())
    })
}

struct Bytes<'a>(&'a Image);

impl Bytes<'_> {
    fn take<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read(at, &mut bytes);
        bytes
    }

    fn vec(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read(at, &mut bytes);
        bytes
    }

    fn u8(&self, at: u64) -> u8 {
        self.take::<1>(at)[0]
    }

    fn u16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.take(at))
    }

    fn u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.take(at))
    }

    fn u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.take(at))
    }
}

#[test]
fn the_image_is_the_one_of_this_format() {
    let mut bytes = vec![0; IMAGE as usize];
    small_image().0.read(0, &mut bytes);
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes);
    assert_eq!(checksum, CHECKSUM, "{checksum:#018x}");
}

#[test]
fn the_superblock_lies_as_documented() {
    let (image, _) = small_image();
    let bytes = Bytes(&image);
    // Each open wrote two generations and each stop one: the sixth is in the first place.
    let (clean, dirty) = (0, META / 2);
    for (at, generation, clean) in [(clean, 6, 1), (dirty, 5, 0)] {
        assert_eq!(&bytes.take(at), b"flowSTNE");
        assert_eq!(bytes.u32(at + 8), 7, "format");
        assert_eq!(bytes.u8(at + 12), clean);
        assert_eq!(&bytes.take(at + 13), b"exact\0\0\0\0\0\0");
        assert_eq!(bytes.u64(at + 24), generation);
        assert_eq!(bytes.u64(at + 32), 0x0123_4567_89ab_cdef, "image");
        assert_eq!(bytes.u64(at + 40), IMAGE);
        assert_eq!(bytes.u32(at + 48), SEGMENT as u32);
        assert_eq!(bytes.u32(at + 52), 8, "segments");
        assert_eq!(bytes.u32(at + 56), 1, "channels");
        assert_eq!(bytes.u32(at + 60), 1, "partitions");
        let reserved: u64 = if clean == 1 { 1 << 30 } else { 1 << 36 };
        assert_eq!(
            bytes.u64(at + 64),
            4 + (1 << 30) + reserved,
            "version limit"
        );
        assert_eq!(bytes.u64(at + 72), 1 + 2 * SEQUENCES, "sequence limit");
        assert_eq!(bytes.u64(at + 3944), 1000, "expected items");
        assert_eq!(bytes.u64(at + 3952) >> 32, 2, "run");
        assert_eq!(bytes.u64(at + 3960), 1, "floor");
        assert_eq!(bytes.u64(at + 3976), 0, "stale below");
        assert_eq!(bytes.u64(at + 3984), 0, "bytes of the index region");
        assert_eq!(bytes.u8(at + 3992), 0, "on a device of its own");
        assert_eq!(bytes.u8(at + 3993), 0, "the journal has lost records");
        assert_eq!(bytes.u64(at + 3994), 0, "sequence number of the clock");
        assert_eq!(bytes.vec(at + 4002, 32), vec![0; 32], "no old clocks");
        assert_eq!(bytes.u64(at + 4034), 0x1032_5476_98ba_dcfe, "hash seed");
        assert_eq!(bytes.vec(at + 4042, 50), vec![0; 50]);
        let sealed = crc32c::crc32c(&bytes.vec(at, 4092));
        assert_eq!(bytes.u32(at + 4092), sealed);
    }
    assert_eq!(bytes.u64(clean + 80), CHECKPOINT_BYTES, "bytes");
    let checkpoint = 1 + SEQUENCES;
    assert_eq!(bytes.u64(clean + 88), checkpoint, "its sequence number");
    assert_eq!(bytes.u32(clean + 96), 1, "segments of the checkpoint");
    assert_eq!(bytes.u32(clean + 104), 2, "the first of them");
    // Two runs have filled a chunk each.
    assert_eq!(bytes.u64(clean + 3968), 3, "journal first");
    assert_eq!(bytes.u64(dirty + 3968), 2);
}

#[test]
fn the_journal_lies_as_documented() {
    let (_, words) = small_image();
    let checksum = |words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        u64::from(crc32c::crc32c(&bytes))
    };
    let image = 0x0123_4567_89ab_cdef;
    let head = [u64::from_le_bytes(*b"flowJRNL"), 4, image, 1024, 128];
    assert_eq!(words[..5], head);
    assert_eq!(words[5] >> 32, 2, "run");
    assert_eq!(words[6], checksum(&head));
    let clock = u64::from(NOW);
    assert_eq!(words[8], checksum(&[clock]) << 32 | clock, "clock");
    assert_eq!(words[9], 0, "void");
    let magic = u64::from_le_bytes(*b"flowJCHK");
    let flush_at = 7 << 60 | 1 << 32 | u64::from(NOW + 3600);
    // The plain item, at the start of segment 0 in its first generation.
    let dead = 1 << 60 | 1 << 42;
    for (number, next_segment, record) in [(1, 1, flush_at), (2, 1 + SEQUENCES, dead)] {
        let at = 512 + 1024 * (number - 1);
        let header = [magic, image, number as u64, next_segment];
        assert_eq!(words[at..at + 4], header, "chunk {number}");
        assert_eq!(words[at + 4], checksum(&header));
        let filled = 9 << 32 | checksum(&[record]);
        assert_eq!(words[at + 5..at + 8], [filled, 0, 0]);
        assert_eq!(words[at + 8], record);
        assert!(words[at + 9..at + 1024].iter().all(|&word| word == 0));
    }
    assert!(words[512 + 2 * 1024..].iter().all(|&word| word == 0));
    // The last sync of each run.
    for (at, sequence, record) in [(10, 1, flush_at), (13, 2, dead)] {
        let synced = [sequence, 9 << 32 | checksum(&[record])];
        assert_eq!(words[at..at + 2], synced);
        assert_eq!(words[at + 2], checksum(&synced));
    }
    assert!(words[16..512].iter().all(|&word| word == 0));
}

fn item_checksum(bytes: &Bytes<'_>, segment: u64, offset: u32, body: usize, sequence: u64) -> u32 {
    let mut covered = sequence.to_le_bytes().to_vec();
    covered.extend(offset.to_le_bytes());
    covered.extend(bytes.vec(segment + u64::from(offset) + 4, body));
    crc32c::crc32c(&covered)
}

#[test]
fn items_and_their_segment_lie_as_documented() {
    let (image, _) = small_image();
    let bytes = Bytes(&image);
    let segment = META;
    // The plain item, at the start.
    assert_eq!(bytes.u32(segment), item_checksum(&bytes, segment, 0, 33, 1));
    assert_eq!(bytes.u64(segment + 4), 1, "version");
    assert_eq!(bytes.u32(segment + 12), 0, "bytes of the value");
    assert_eq!(bytes.u32(segment + 16), 0, "client flags");
    assert_eq!(bytes.u32(segment + 20), 0, "expiry");
    assert_eq!(bytes.u32(segment + 24), NOW, "last access");
    assert_eq!(bytes.u8(segment + 28), 5, "bytes of the key");
    assert_eq!(bytes.u8(segment + 29), 0, "state");
    assert_eq!(bytes.u16(segment + 30), 0, "reserved");
    assert_eq!(&bytes.take(segment + 32), b"plain");
    // The rich item, at the next multiple of 16.
    let rich = segment + 48;
    assert_eq!(bytes.u32(rich), item_checksum(&bytes, segment, 48, 47, 1));
    assert_eq!(bytes.u64(rich + 4), 2);
    assert_eq!(bytes.u32(rich + 12), 7);
    assert_eq!(bytes.u32(rich + 16), 0x0a0b_0c0d);
    assert_eq!(bytes.u32(rich + 20), NOW + 600);
    assert_eq!(bytes.u8(rich + 29), 2 | 8, "stale, with a CAS unique");
    assert_eq!(bytes.u64(rich + 32), 0x1122_3344_5566_7788);
    assert_eq!(&bytes.take(rich + 40), b"richa value");
    // The large item, at the next multiple of 512.
    let large = segment + 512;
    assert_eq!(bytes.u32(large + 12), 5000);
    assert_eq!(&bytes.take(large + 32), b"large");
    assert_eq!(bytes.vec(large + 37, 5000), value(5, 5000));
    // Summary entries, the last item's first.
    let footer = segment + SEGMENT - 64;
    let entry = |number: u64| footer - 24 * (number + 1);
    let positions = [0, 48 / 16, (1 << 31) | (512 / 16) | 1];
    for (number, position) in positions.into_iter().enumerate() {
        let at = entry(number as u64);
        assert_eq!(bytes.u64(at + 8), number as u64 + 1, "version");
        assert_eq!(bytes.u32(at + 20), position);
    }
    assert_eq!(bytes.u32(entry(1) + 16), NOW + 600, "expiry");
    // Footer.
    assert_eq!(&bytes.take(footer), b"flowSEGM");
    assert_eq!(bytes.u64(footer + 8), 1, "sequence number");
    assert_eq!(bytes.u32(footer + 16), 0, "segment");
    assert_eq!(bytes.u32(footer + 20), 3, "items");
    assert_eq!(bytes.u32(footer + 24), 512 + 37 + 5000, "bytes of data");
    let summary = crc32c::crc32c(&bytes.vec(entry(2), 72));
    assert_eq!(bytes.u32(footer + 28), summary);
    assert_eq!(bytes.u16(footer + 32), 3, "format");
    assert_eq!(bytes.u8(footer + 34), 1, "kind: items");
    assert_eq!(bytes.vec(footer + 35, 5), vec![0; 5]);
    assert_eq!(bytes.u64(footer + 40), 0x0123_4567_89ab_cdef, "image");
    assert_eq!(bytes.vec(footer + 48, 12), vec![0; 12]);
    let sealed = crc32c::crc32c(&bytes.vec(footer, 60));
    assert_eq!(bytes.u32(footer + 60), sealed);
}

#[test]
fn the_checkpoint_lies_as_documented() {
    let (image, _) = small_image();
    let bytes = Bytes(&image);
    // The checkpoint of the first run was in segment 1.
    let at = META + 2 * SEGMENT;
    assert_eq!(&bytes.take(at), b"flowCKPT");
    assert_eq!(bytes.u32(at + 8), NOW, "clock");
    assert_eq!(
        bytes.u32(at + 12),
        NOW + 3600,
        "deadline of the flush to come"
    );
    assert_eq!(bytes.u32(at + 16), 1, "partitions");
    assert_eq!(bytes.u64(at + 20), 0, "cutoff of partition 0");
    assert_eq!(bytes.u64(at + 28), 1 + SEQUENCES, "next sequence");
    assert_eq!(bytes.u64(at + 36), 0, "covered");
    assert_eq!(bytes.u32(at + 44), 0, "partly covered");
    assert_eq!(bytes.u32(at + 48), 0, "retired");
    assert_eq!(bytes.u32(at + 52), 1, "living");
    assert_eq!(bytes.u32(at + 56), 0, "number");
    assert_eq!(bytes.u64(at + 60), 1, "sequence number");
    assert_eq!(bytes.u32(at + 68), 1, "bytes of dead");
    assert_eq!(bytes.u8(at + 72), 0, "the plain item's position");
    assert_eq!(bytes.u32(at + 73), 0, "dead keys");
    assert_eq!(bytes.u32(at + 77), 1, "version of the section");
    assert_eq!(bytes.u64(at + 81), 21, "bytes of the section");
    assert_eq!(bytes.u32(at + 89), 0, "number");
    assert_eq!(bytes.u64(at + 93), 1, "sequence number");
    assert_eq!(bytes.u32(at + 101), 5, "bytes of recent");
    let large: u32 = 1 << 31 | 32 | 1;
    let leb = |shift: u32| (large >> shift) as u8 | 0x80;
    let packed = [leb(0), leb(7), leb(14), leb(21), (large >> 28) as u8];
    assert_eq!(bytes.take(at + 105), packed, "the large item's position");
    // The page behind the stream ends with the footer.
    let footer = at + 2 * 4096 - 64;
    assert_eq!(&bytes.take(footer), b"flowSEGM");
    assert_eq!(bytes.u64(footer + 8), 1 + SEQUENCES, "sequence number");
    assert_eq!(bytes.u32(footer + 16), 2, "segment");
    assert_eq!(bytes.u32(footer + 20), 0, "items");
    let len = CHECKPOINT_BYTES as u32;
    assert_eq!(bytes.u32(footer + 24), len, "bytes of the stream here");
    let stream = crc32c::crc32c(&bytes.vec(at, len as usize));
    assert_eq!(bytes.u32(footer + 28), stream);
    assert_eq!(bytes.u8(footer + 34), 2, "kind: checkpoint");
}
