//! An image whose checkpoint, journal and one summary hold any bytes, with checksums that match. The engine
//! opens it, warm or empty, finds the live items, serves, reclaims, stops and opens again. An item that the
//! journal marks dead never comes back, nor a value that has been overwritten since. An inspection beforehand
//! predicts the start and its items.
//!
//! The input consists of one byte that chooses the valid parts, the number of the journal's words, the number
//! of summary entries, the journal's words, the entries, and the rest of the checkpoint.
#![no_main]

use std::sync::Arc;

use flowstone_device::{Disk, Image, Latency, MemoryDisk, MemoryJournal};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::format::checkpoint::{DeadKey, DeadList, Head as CheckpointHead, Section};
use flowstone_engine::format::item::{ItemHeader, ItemRef};
use flowstone_engine::format::journal::{
    CHUNK_HEADER_WORDS, ChunkHeader, HEAD_WORDS, Head, MIN_CHUNKS, Record, chunk_words,
};
use flowstone_engine::format::segment::{
    FOOTER_BYTES, Footer, Position, SUMMARY_ENTRY_BYTES, SegmentId, SegmentKind, SummaryEntry,
    UNIT_BYTES,
};
use flowstone_engine::format::superblock::{ImageShape, IndexRegion, Superblock};
use flowstone_engine::inspect::{InspectOptions, Inspection, Outlook, inspect};
use flowstone_engine::{Engine, EngineConfig, HashSeed, ItemView, Key, Lookup, Opening, Peek, Put, Start, Stop};
use flowstone_runtime::{self as runtime, sim::Sim};
use libfuzzer_sys::fuzz_target;
use zerocopy::IntoBytes;

const SEGMENT_BYTES: u32 = 64 << 10;
const SEGMENTS: u32 = 16;
const PARTITIONS: u32 = 2;
const SEED: u64 = 5;
const RUN: u64 = 1;
const CHECKPOINT_SEGMENT: u32 = 3;
const CHECKPOINT_SEQUENCE: u64 = 77;
/// Segments with items, and their sequence numbers; each segment holds all [`KEYS`].
const LIVING: [(u32, u64); 2] = [(5, 15), (6, 16)];
const KEYS: u32 = 40;
const ITEM_BYTES: usize = 900;
/// Distance between items, so that no item crosses a page.
const STRIDE: u32 = 1024;
const NEW_BYTES: usize = 20_000;

/// The decoded input.
struct Input<'a> {
    choice: u8,
    records: Vec<u64>,
    summary: &'a [u8],
    stream: &'a [u8],
}

impl<'a> Input<'a> {
    fn read(input: &'a [u8]) -> Self {
        let input = &input[..input.len().min(SEGMENT_BYTES as usize / 2)];
        let (head, rest) = input.split_at(input.len().min(3));
        let at = |number: usize| head.get(number).copied().unwrap_or(0);
        let (records, rest) = rest.split_at(rest.len().min(8 * usize::from(at(1))) / 8 * 8);
        let entry = SUMMARY_ENTRY_BYTES as usize;
        let (summary, stream) =
            rest.split_at(rest.len().min(entry * usize::from(at(2))) / entry * entry);
        Self {
            choice: at(0),
            records: records
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                .collect(),
            summary,
            stream,
        }
    }

    fn has(&self, bit: u8) -> bool {
        self.choice & bit != 0
    }

    /// Returns whether the journal marks the item of a key in a segment as dead.
    fn is_dead(&self, key: u32, segment: u32, sequence: u64) -> bool {
        let unit = u64::from(segment * (SEGMENT_BYTES / UNIT_BYTES) + key * STRIDE / UNIT_BYTES);
        let mut rest = &self.records[..];
        while !rest.is_empty() {
            let (record, len) = Record::decode(rest);
            let kills = match record {
                Some(Record::Dead {
                    location,
                    generation,
                }) => location == unit && generation == sequence,
                Some(Record::SegmentDead {
                    segment: dead,
                    generation,
                }) => (dead, generation) == (segment, sequence),
                _ => false,
            };
            if kills {
                return true;
            }
            rest = &rest[len..];
        }
        false
    }
}

fuzz_target!(|input: &[u8]| {
    let input = Input::read(input);
    let disk = Arc::new(MemoryDisk::from_image(image(&input), Latency::default()));
    let log = Arc::new(MemoryJournal::from_words(journal(&input)));
    Sim::new(1).block_on(async {
        let inspection = look(&disk, &log).await;
        let engine = open(&disk, &log).await;
        assert_as_told(&engine, &inspection, &input);
        for key in 0..KEYS {
            if let Some(value) = read(&engine, key).await {
                let living = LIVING.iter().any(|&(segment, sequence)| {
                    value == old(sequence) && !input.is_dead(key, segment, sequence)
                });
                assert!(living, "item {key} is dead, or never was");
            }
        }
        for round in 0..3u8 {
            for key in 0..KEYS {
                read(&engine, key).await;
                let put = Put {
                    value: vec![round; NEW_BYTES].into(),
                    ..Put::default()
                };
                let key = key.to_le_bytes();
                let now = runtime::unix_seconds();
                let _ = engine
                    .set(engine.key(&key).expect("a key"), now, &put)
                    .await;
            }
        }
        let stop = engine.stop().await;
        drop(engine);
        let engine = open(&disk, &log).await;
        let orderly = matches!(stop, Stop::Complete { .. });
        assert!(
            matches!(engine.start(), Start::Warm { orderly: o, .. } if o == orderly),
            "{stop:?}"
        );
        for key in 0..KEYS {
            if let Some(value) = read(&engine, key).await {
                assert!(value == [2; NEW_BYTES], "an old value of {key} is back");
            }
        }
    });
});

async fn look(disk: &Arc<MemoryDisk>, log: &Arc<MemoryJournal>) -> Inspection {
    let disk: Arc<dyn Disk> = disk.clone();
    let options = InspectOptions {
        verify: true,
        memory_bytes: 1000,
    };
    let inspected = inspect(&disk, Some(&**log), options, &mut |_| {}).await;
    inspected.expect("superblock and journal are sound")
}

fn assert_as_told(engine: &Engine, inspection: &Inspection, input: &Input<'_>) {
    match (engine.start(), inspection.outlook) {
        (Start::Warm { .. }, Outlook::Warm { .. }) => {}
        (Start::Empty(why), Outlook::Empty(told)) => assert_eq!(why, told),
        (start, outlook) => panic!("{start:?}, and {outlook:?} was told"),
    }
    let (found, told) = (engine.flash_stats().objects, inspection.items.alive);
    if input.has(4) {
        // The index takes equal hashes for one object.
        assert!(found <= told, "{found} of {told}");
    } else {
        assert_eq!((found, inspection.flaw_count), (told, 0));
    }
}

async fn open(disk: &Arc<MemoryDisk>, log: &Arc<MemoryJournal>) -> Arc<Engine> {
    let mut config = EngineConfig {
        memory_bytes: 16 << 20,
        max_value_bytes: 40_000,
        ..EngineConfig::default()
    };
    config.writing.buffers = 2;
    let (disk, log): (Arc<dyn Disk>, _) = (disk.clone(), log.clone());
    let opened = Opening::new(disk, config).open(move || Ok(log)).await;
    let engine = opened.expect("superblock and journal are sound");
    engine.start_background(|task| {
        runtime::spawn(async move { task().await });
    });
    engine.recovered().await;
    engine
}

async fn read(engine: &Arc<Engine>, key: u32) -> Option<Vec<u8>> {
    let now = runtime::unix_seconds();
    let key = key.to_le_bytes();
    let key = engine.key(&key)?;
    match engine.lookup(key, now, Peek::No, |item| item.value.to_vec()) {
        Lookup::Hit(value) => Some(value),
        Lookup::Miss => None,
        Lookup::Flash(read) => {
            let hit = engine.read_flash(key, read).await?;
            Some(ItemView::of_flash(&hit).value.to_vec())
        }
    }
}

/// Returns the value of every item in a segment.
fn old(sequence: u64) -> Vec<u8> {
    vec![sequence as u8 + 100; ITEM_BYTES]
}

fn segment_start(segment: u32) -> u64 {
    META_BYTES + u64::from(segment) * u64::from(SEGMENT_BYTES)
}

fn image(input: &Input<'_>) -> Image {
    let image_bytes = segment_start(SEGMENTS);
    let shape = ImageShape {
        image_id: SEED,
        hash_seed: HashSeed::new(SEED),
        image_bytes,
        segment_bytes: SEGMENT_BYTES,
        segments: SEGMENTS,
        channels: 1,
        partitions: PARTITIONS,
        expected_items: 1000,
        index_region: IndexRegion::None,
    };
    let stream = stream(input);
    let mut superblock = Superblock::new(&shape, "exact");
    superblock.generation = 1.into();
    superblock.run = RUN.into();
    superblock.version_limit = 1000.into();
    superblock.sequence_limit = 1000.into();
    if !input.has(8) {
        let segments = [CHECKPOINT_SEGMENT];
        superblock.set_checkpoint(stream.len() as u64, CHECKPOINT_SEQUENCE, &segments, 1);
    }
    let mut image = Image::new(image_bytes);
    image.write(0, &superblock.encode());
    image.write(segment_start(CHECKPOINT_SEGMENT), &stream);
    write_footer(
        &mut image,
        Footer::new(
            SegmentKind::Checkpoint,
            CHECKPOINT_SEGMENT,
            CHECKPOINT_SEQUENCE,
            0,
            stream.len() as u32,
            crc32c::crc32c(&stream),
        ),
    );
    for (segment, sequence) in LIVING {
        write_items(&mut image, segment, sequence, input);
    }
    image
}

/// Returns a checkpoint. The input decides whether its head and its sections are valid.
fn stream(input: &Input<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if !input.has(1) {
        let head = CheckpointHead {
            cutoffs: vec![0; PARTITIONS as usize],
            next_sequence: u64::from(input.choice >> 4) + 10,
            living: LIVING.len() as u32,
            ..CheckpointHead::default()
        };
        out = head.encode();
    }
    if !input.has(2) {
        let dead = usize::from(input.stream.first().map_or(0, |&bytes| bytes & 7));
        let dead = input.stream.get(1..1 + dead).unwrap_or_default();
        for (segment, sequence) in LIVING {
            let head = DeadList::encode_head(SegmentId(segment), sequence & !(1 << 63), sequence >> 63 == 1, dead.len());
            out.extend_from_slice(&head);
            out.extend_from_slice(dead);
        }
        out.extend(DeadKey::batch(&[]));
        // A section of `exact`, with any contents.
        let section = Section {
            version: 1,
            bytes: input.stream.to_vec(),
        };
        out.extend_from_slice(&section.encode_head());
    }
    out.extend_from_slice(input.stream);
    out
}

/// Writes a segment of valid items; the input may replace the summary of the second segment.
fn write_items(image: &mut Image, segment: u32, sequence: u64, input: &Input<'_>) {
    let at = segment_start(segment);
    let mut summary = Vec::new();
    for key in (0..KEYS).rev() {
        let (offset, version) = (key * STRIDE, u64::from(key) + 50 * sequence);
        let (key, value) = (key.to_le_bytes(), old(sequence));
        let header = ItemHeader {
            version: version.into(),
            value_bytes: (value.len() as u32).into(),
            client_flags: 0.into(),
            expiry: 0.into(),
            last_access: 0.into(),
            key_bytes: key.len() as u8,
            state: 0,
            reads: 0,
            updates: 0,
        };
        let item = ItemRef {
            header: &header,
            cas_unique: version,
            key: &key,
            value: &value,
        };
        let mut bytes = vec![0; item.flash_bytes()];
        item.encode(&mut bytes, sequence, offset);
        image.write(at + u64::from(offset), &bytes);
        let entry = SummaryEntry {
            hash: Key::new(&key, HashSeed::new(SEED)).expect("a key").hash().0.into(),
            version: version.into(),
            expiry: 0.into(),
            position: Position::new(offset, bytes.len() as u32).bits().into(),
        };
        summary.extend_from_slice(entry.as_bytes());
    }
    if input.has(4) && segment == LIVING[1].0 {
        summary = input.summary.to_vec();
    }
    let items = summary.len() as u32 / SUMMARY_ENTRY_BYTES;
    let checksum = crc32c::crc32c(&summary);
    let data_bytes = KEYS * STRIDE;
    let summary_at = at + u64::from(SEGMENT_BYTES - FOOTER_BYTES) - summary.len() as u64;
    image.write(summary_at, &summary);
    write_footer(
        image,
        Footer::new(
            SegmentKind::Items,
            segment,
            sequence,
            items,
            data_bytes,
            checksum,
        ),
    );
}

fn write_footer(image: &mut Image, footer: Footer) {
    let at = segment_start(footer.segment.get()) + u64::from(SEGMENT_BYTES - FOOTER_BYTES);
    image.write(at, footer.of_image(SEED, 0).as_bytes());
}

/// Returns a journal whose first chunk has the input's words as records.
fn journal(input: &Input<'_>) -> Vec<u64> {
    let chunk_words = chunk_words(PARTITIONS);
    let mut words = vec![0; HEAD_WORDS + MIN_CHUNKS * chunk_words];
    let head = Head {
        image: SEED,
        chunk_words: chunk_words as u64,
        chunks: MIN_CHUNKS as u64,
        run: RUN,
    };
    let head = head.encode();
    words[..head.len()].copy_from_slice(&head);
    let header = ChunkHeader {
        image: SEED,
        sequence: 1,
        next_segment: 900,
    };
    let chunk = &mut words[HEAD_WORDS..];
    chunk[..CHUNK_HEADER_WORDS].copy_from_slice(&header.encode());
    chunk[CHUNK_HEADER_WORDS..][..input.records.len()].copy_from_slice(&input.records);
    words
}
