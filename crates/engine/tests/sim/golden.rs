//! The bytes of an image: a small one is compared with a checksum, and read by offsets written down
//! here and in `docs/on-disk-format.md`, not by the engine's own decoders.
//!
//! When this fails the format has changed: raise `IMAGE_FORMAT`, change the document, then the
//! checksum.

use std::sync::Arc;

use device::{Disk, Image, Latency, MemoryDisk};
use flowstone_engine::format::superblock::{ImageShape, Superblock};
use flowstone_engine::{Engine, EngineConfig, Put, Start, Stop};

use crate::support::{run_background, simulate, value};

const META: u64 = 1 << 20;
const SEGMENT: u64 = 256 << 10;
const IMAGE: u64 = META + 8 * SEGMENT;
/// CRC-32C of the whole image.
const CHECKSUM: u32 = 0x6edd_0def;
/// The simulation's wall clock when the items were written.
const NOW: u32 = 1_800_000_000;

fn config() -> EngineConfig {
    EngineConfig {
        memory_bytes: 16 << 20,
        max_value_bytes: 100_000,
        ..EngineConfig::default()
    }
}

/// Three items in one partition, stopped orderly. Nothing in it is left to chance.
fn small_image() -> Image {
    let shape = ImageShape {
        hash_seed: 0x0123_4567_89ab_cdef,
        image_bytes: IMAGE,
        segment_bytes: SEGMENT as u32,
        segments: 8,
        channels: 1,
        partitions: 1,
        expected_items: 1000,
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
        engine.flush_all(NOW + 3600);
        assert_eq!(engine.stop().await, Stop::Complete { objects: 3 });
        disk.snapshot()
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
    small_image().read(0, &mut bytes);
    let checksum = crc32c::crc32c(&bytes);
    assert_eq!(checksum, CHECKSUM, "{checksum:#010x}");
}

#[test]
fn the_superblock_lies_as_documented() {
    let image = small_image();
    let bytes = Bytes(&image);
    // Opening wrote generations 1 and 2, stopping the third: to the second place.
    let (clean, dirty) = (META / 2, 0);
    for (at, generation, clean) in [(clean, 3, 1), (dirty, 2, 0)] {
        assert_eq!(&bytes.take(at), b"flowSTNE");
        assert_eq!(bytes.u32(at + 8), 1, "format");
        assert_eq!(bytes.u8(at + 12), clean);
        assert_eq!(&bytes.take(at + 13), b"exact\0\0\0\0\0\0");
        assert_eq!(bytes.u64(at + 24), generation);
        assert_eq!(bytes.u64(at + 32), 0x0123_4567_89ab_cdef, "hash seed");
        assert_eq!(bytes.u64(at + 40), IMAGE);
        assert_eq!(bytes.u32(at + 48), SEGMENT as u32);
        assert_eq!(bytes.u32(at + 52), 8, "segments");
        assert_eq!(bytes.u32(at + 56), 1, "channels");
        assert_eq!(bytes.u32(at + 60), 1, "partitions");
        assert_eq!(bytes.u64(at + 64), 1 + (1 << 44), "version limit");
        assert_eq!(bytes.u64(at + 72), 1 + (1 << 40), "sequence limit");
        assert_eq!(bytes.u64(at + 3944), 1000, "expected items");
        assert_eq!(bytes.vec(at + 3952, 140), vec![0; 140]);
        let sealed = crc32c::crc32c(&bytes.vec(at, 4092));
        assert_eq!(bytes.u32(at + 4092), sealed);
    }
    let head = 8 + 4 + 4 + 8;
    let segments = 4 + 16;
    let entries = 8 + 3 * 16;
    assert_eq!(bytes.u64(clean + 80), head + segments + entries, "bytes");
    assert_eq!(
        bytes.u64(clean + 88),
        2,
        "sequence number of the checkpoint"
    );
    assert_eq!(bytes.u32(clean + 96), 1, "segments of the checkpoint");
    assert_eq!(bytes.u32(clean + 104), 1, "the first of them");
    assert_eq!(bytes.u32(dirty + 96), 0);
}

fn item_checksum(bytes: &Bytes<'_>, segment: u64, offset: u32, body: usize, sequence: u64) -> u32 {
    let mut covered = sequence.to_le_bytes().to_vec();
    covered.extend(offset.to_le_bytes());
    covered.extend(bytes.vec(segment + u64::from(offset) + 4, body));
    crc32c::crc32c(&covered)
}

#[test]
fn items_and_their_segment_lie_as_documented() {
    let image = small_image();
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
    // The rich one, at the next multiple of 16.
    let rich = segment + 48;
    assert_eq!(bytes.u32(rich), item_checksum(&bytes, segment, 48, 47, 1));
    assert_eq!(bytes.u64(rich + 4), 2);
    assert_eq!(bytes.u32(rich + 12), 7);
    assert_eq!(bytes.u32(rich + 16), 0x0a0b_0c0d);
    assert_eq!(bytes.u32(rich + 20), NOW + 600);
    assert_eq!(bytes.u8(rich + 29), 2 | 8, "stale, with a CAS unique");
    assert_eq!(bytes.u64(rich + 32), 0x1122_3344_5566_7788);
    assert_eq!(&bytes.take(rich + 40), b"richa value");
    // The large one, at the next multiple of 512.
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
    assert_eq!(bytes.u16(footer + 32), 1, "format");
    assert_eq!(bytes.u8(footer + 34), 1, "kind: items");
    assert_eq!(bytes.vec(footer + 35, 25), vec![0; 25]);
    let sealed = crc32c::crc32c(&bytes.vec(footer, 60));
    assert_eq!(bytes.u32(footer + 60), sealed);
}

#[test]
fn the_checkpoint_lies_as_documented() {
    let image = small_image();
    let bytes = Bytes(&image);
    let at = META + SEGMENT;
    assert_eq!(&bytes.take(at), b"flowCKPT");
    assert_eq!(
        bytes.u32(at + 8),
        NOW + 3600,
        "deadline of the flush to come"
    );
    assert_eq!(bytes.u32(at + 12), 1, "partitions");
    assert_eq!(bytes.u64(at + 16), 0, "cutoff of partition 0");
    assert_eq!(bytes.u32(at + 24), 1, "written segments");
    assert_eq!(bytes.u32(at + 28), 0, "number");
    assert_eq!(bytes.u32(at + 32), 3, "items");
    assert_eq!(bytes.u64(at + 36), 1, "sequence number");
    assert_eq!(bytes.u64(at + 44), 3, "entries of shard 0");
    // 8 segments of 2^14 units: 17 bits, and one for large items.
    let mut locations: Vec<u64> = (0..3)
        .map(|entry| bytes.u64(at + 60 + 16 * entry))
        .collect();
    locations.sort_unstable();
    assert_eq!(locations, [0, 3, (1 << 17) | 32 | 1]);
    let footer = at + SEGMENT - 64;
    assert_eq!(&bytes.take(footer), b"flowSEGM");
    assert_eq!(bytes.u64(footer + 8), 2, "sequence number");
    assert_eq!(bytes.u32(footer + 16), 1, "segment");
    assert_eq!(bytes.u32(footer + 20), 0, "items");
    assert_eq!(bytes.u32(footer + 24), 100, "bytes of the stream here");
    let stream = crc32c::crc32c(&bytes.vec(at, 100));
    assert_eq!(bytes.u32(footer + 28), stream);
    assert_eq!(bytes.u8(footer + 34), 2, "kind: checkpoint");
}
