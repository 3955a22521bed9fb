//! A clean image whose checkpoint holds any bytes at all, with checksums that fit: it opens, warm
//! or empty, serves, makes room, stops and opens again.
#![no_main]

use std::sync::Arc;

use flowstone_device::{Disk, Image, Latency, MemoryDisk};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::format::checkpoint::MAGIC;
use flowstone_engine::format::segment::{FOOTER_BYTES, Footer, SegmentKind};
use flowstone_engine::format::superblock::{ImageShape, Superblock};
use flowstone_engine::{Engine, EngineConfig, Lookup, Peek, Put, Start, Stop};
use flowstone_runtime::{self as runtime, sim::Sim};
use libfuzzer_sys::fuzz_target;
use zerocopy::IntoBytes;

const SEGMENT_BYTES: u32 = 64 << 10;
const SEGMENTS: u32 = 16;
const CHECKPOINT_SEGMENT: u32 = 3;
const SEQUENCE: u64 = 77;

fuzz_target!(|input: &[u8]| {
    let input = &input[..input.len().min(SEGMENT_BYTES as usize - 4096)];
    let disk = Arc::new(MemoryDisk::from_image(image(input), Latency::default()));
    Sim::new(1).block_on(async {
        let engine = open(&disk).await;
        assert!(matches!(engine.start(), Start::Warm { .. } | Start::Unreadable));
        for round in 0..3u32 {
            for number in 0..40u32 {
                read(&engine, &number.to_le_bytes()).await;
                let put = Put { value: vec![round as u8; 20_000].into(), ..Put::default() };
                let key = number.to_le_bytes();
                let now = runtime::unix_seconds();
                let _ = engine.set(engine.key(&key).expect("a key"), now, &put).await;
            }
        }
        let Stop::Complete { objects } = engine.stop().await else {
            panic!("the device does not fail");
        };
        let engine = open(&disk).await;
        assert_eq!(engine.start(), Start::Warm { objects });
        for number in 0..40u32 {
            if let Some(value) = read(&engine, &number.to_le_bytes()).await {
                assert_eq!(value, vec![2; 20_000]);
            }
        }
    });
});

async fn open(disk: &Arc<MemoryDisk>) -> Arc<Engine> {
    let config = EngineConfig {
        memory_bytes: 16 << 20,
        buffers: 2,
        max_value_bytes: 40_000,
        ..EngineConfig::default()
    };
    let disk: Arc<dyn Disk> = disk.clone();
    let engine = Engine::open(disk, config).await.expect("the superblock is sound");
    engine.start_background(|task| {
        runtime::spawn(async move { task().await });
    });
    engine
}

async fn read(engine: &Arc<Engine>, key: &[u8]) -> Option<Vec<u8>> {
    let now = runtime::unix_seconds();
    let key = engine.key(key)?;
    match engine.lookup(key, now, Peek::No, |item| item.value.to_vec()) {
        Lookup::Hit(value) => Some(value),
        Lookup::Miss => None,
        Lookup::Flash(flight) => {
            let hit = engine.read_flash(key, flight, now, Peek::No).await?;
            Some(hit.view().value.to_vec())
        }
    }
}

/// The first byte of the input says how much of the stream's beginning is as it should be.
fn image(input: &[u8]) -> Image {
    let (choice, rest) = input.split_first().map_or((0, input), |(byte, rest)| (*byte, rest));
    let mut stream = Vec::new();
    if choice & 1 == 0 {
        stream.extend_from_slice(&MAGIC.to_le_bytes());
        stream.extend_from_slice(&0u32.to_le_bytes());
        stream.extend_from_slice(&2u32.to_le_bytes());
        stream.extend_from_slice(&[0; 16]);
    }
    if choice & 2 == 0 {
        stream.extend_from_slice(&2u32.to_le_bytes());
        for segment in [5u32, 6] {
            stream.extend_from_slice(&segment.to_le_bytes());
            stream.extend_from_slice(&u32::from(choice >> 4).to_le_bytes());
            stream.extend_from_slice(&(u64::from(segment) + 10).to_le_bytes());
        }
    }
    stream.extend_from_slice(rest);
    let image_bytes = META_BYTES + u64::from(SEGMENTS) * u64::from(SEGMENT_BYTES);
    let shape = ImageShape {
        hash_seed: 5,
        image_bytes,
        segment_bytes: SEGMENT_BYTES,
        segments: SEGMENTS,
        channels: 1,
        partitions: 2,
        expected_items: 1000,
    };
    let mut superblock = Superblock::new(&shape, "exact");
    superblock.generation = 1.into();
    superblock.version_limit = 1000.into();
    superblock.sequence_limit = 1000.into();
    superblock.mark_clean(stream.len() as u64, SEQUENCE, &[CHECKPOINT_SEGMENT]);
    let mut image = Image::new(image_bytes);
    image.write(0, &superblock.encode());
    let at = META_BYTES + u64::from(CHECKPOINT_SEGMENT * SEGMENT_BYTES);
    let footer = Footer::new(
        SegmentKind::Checkpoint,
        CHECKPOINT_SEGMENT,
        SEQUENCE,
        0,
        stream.len() as u32,
        crc32c::crc32c(&stream),
    );
    image.write(at, &stream);
    let footer_at = at + u64::from(SEGMENT_BYTES - FOOTER_BYTES);
    image.write(footer_at, footer.as_bytes());
    image
}
