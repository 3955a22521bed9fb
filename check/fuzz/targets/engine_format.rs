//! The decoders of flash and of the journal: no bytes make them panic, accepted bytes are an encoding of the
//! result, and a damaged bit is detected.
#![no_main]

use flowstone_engine::format::checkpoint::{Packer, Positions};
use flowstone_engine::format::index_device::{INDEX_HEADER_BYTES, IndexHeader};
use flowstone_engine::format::item::{HEADER_BYTES, ItemHeader, ItemRef, MAX_KEY_BYTES};
use flowstone_engine::format::journal::{
    CHUNK_HEADER_WORDS, ChunkHeader, Filled, Head, Record, Synced, decode_clock, encode_clock,
    is_generation, kept_hash,
};
use flowstone_engine::format::segment::{
    FOOTER_BYTES, Footer, Position, SUMMARY_ENTRY_BYTES, SegmentKind, decode_summary, largest_item,
};
use flowstone_engine::format::superblock::{HashSeed, ImageShape, IndexRegion, SUPERBLOCK_BYTES, Superblock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    superblock(input);
    index_header(input);
    item(input);
    segment(input);
    journal(input);
    positions(input);
});

fn word(input: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(input.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

fn index_header(input: &[u8]) {
    let is_read = IndexHeader::decode(input);
    let header = IndexHeader::new(word(input, 0), word(input, 8));
    let mut page = header.encode();
    assert_eq!(IndexHeader::decode(&page), Ok(header));
    let damaged = word(input, 16) as usize % (8 * size_of::<IndexHeader>());
    page[damaged / 8] ^= 1 << (damaged % 8);
    assert!(IndexHeader::decode(&page).is_err(), "bit {damaged}");
    if let Ok(found) = is_read {
        let len = input.len().min(INDEX_HEADER_BYTES);
        let used = len.min(size_of::<IndexHeader>());
        assert_eq!(found.encode()[..used], input[..used]);
    }
}

fn superblock(input: &[u8]) {
    let mut page = [0; SUPERBLOCK_BYTES];
    let len = input.len().min(SUPERBLOCK_BYTES);
    page[..len].copy_from_slice(&input[..len]);
    if let Ok(found) = Superblock::decode(&page) {
        assert_eq!(found.encode(), page);
    }
    // The same bytes with a matching checksum: the numbers must be refused or make sense.
    page[SUPERBLOCK_BYTES - 4..].fill(0);
    let checksum = crc32c::crc32c(&page[..SUPERBLOCK_BYTES - 4]);
    page[SUPERBLOCK_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(found) = Superblock::decode(&page) {
        let shape = found.shape();
        assert!(shape.partitions.is_power_of_two() && shape.channels > 0);
        assert!(u64::from(shape.segments) * u64::from(shape.segment_bytes) <= shape.image_bytes);
        assert!(found.checkpoint_segments().count() <= 960);
        let _ = found.placement();
    }
    let shape = ImageShape {
        image_id: word(input, 0),
        hash_seed: HashSeed::new(word(input, 0)),
        image_bytes: 1 << 30,
        segment_bytes: 1 << 20,
        segments: 1023,
        channels: 1,
        partitions: 64,
        expected_items: word(input, 8),
        index_region: IndexRegion::None,
    };
    let mut sound = Superblock::new(&shape, "exact").encode();
    assert!(Superblock::decode(&sound).is_ok());
    let damaged = word(input, 16) as usize % (SUPERBLOCK_BYTES * 8);
    sound[damaged / 8] ^= 1 << (damaged % 8);
    assert!(Superblock::decode(&sound).is_err());
}

fn item(input: &[u8]) {
    let (sequence, offset) = (word(input, 0), word(input, 8) as u32);
    if let Ok(found) = ItemRef::decode(input, sequence, offset) {
        assert!(!found.key.is_empty() && found.key.len() <= MAX_KEY_BYTES);
        assert!(found.flash_bytes() <= input.len());
    }
    let _ = ItemRef::parse(input);
    let Some((key_bytes, rest)) = input.split_first() else {
        return;
    };
    let key_bytes = usize::from(*key_bytes)
        .clamp(1, MAX_KEY_BYTES)
        .min(rest.len());
    let (key, value) = rest.split_at(key_bytes);
    if key.is_empty() {
        return;
    }
    let header = ItemHeader {
        version: word(input, 1).into(),
        value_bytes: (value.len() as u32).into(),
        client_flags: (word(input, 2) as u32).into(),
        expiry: (word(input, 3) as u32).into(),
        last_access: 0.into(),
        key_bytes: key.len() as u8,
        state: word(input, 4) as u8,
        reads: 0,
        updates: 0,
    };
    let item = ItemRef {
        header: &header,
        cas_unique: word(input, 5),
        key,
        value,
    };
    let mut bytes = vec![0; item.flash_bytes()];
    item.encode(&mut bytes, sequence, offset);
    let read = ItemRef::decode(&bytes, sequence, offset).expect("as it was written");
    assert_eq!((read.key, read.value), (key, value));
    assert!(ItemRef::decode(&bytes, sequence ^ 1, offset).is_err());
    assert!(ItemRef::decode(&bytes, sequence, offset ^ 16).is_err());
    let damaged = word(input, 6) as usize % (bytes.len() * 8);
    bytes[damaged / 8] ^= 1 << (damaged % 8);
    assert!(
        ItemRef::decode(&bytes, sequence, offset).is_err(),
        "bit {damaged}"
    );
    assert!(bytes.len() >= HEADER_BYTES);
}

fn segment(input: &[u8]) {
    const SEGMENT_BYTES: u32 = 64 << 10;
    let items = (input.len() / SUMMARY_ENTRY_BYTES as usize).min(1000);
    let entries = &input[..items * SUMMARY_ENTRY_BYTES as usize];
    let (number, sequence) = (word(input, 0) as u32, word(input, 4));
    let data_bytes = word(input, 12) as u32;
    let decode = |tail: &[u8]| {
        Footer::decode(tail, SegmentKind::Items, number, sequence, SEGMENT_BYTES)
            .and_then(|footer| decode_summary(tail, &footer))
    };
    assert!(decode(input).is_err() || input.len() >= FOOTER_BYTES as usize);
    // A summary of any entries under a footer that matches.
    let checksum = crc32c::crc32c(entries);
    let kind = SegmentKind::Items;
    let footer = Footer::new(kind, number, sequence, items as u32, data_bytes, checksum);
    let mut tail = entries.to_vec();
    tail.extend_from_slice(zerocopy::IntoBytes::as_bytes(&footer));
    if let Ok(summary) = decode(&tail) {
        assert_eq!(summary.len(), items);
        let mut last = None;
        for entry in &summary {
            let offset = Position::from_bits(entry.position.get()).offset();
            assert!(offset < data_bytes && last < Some(offset));
            last = Some(offset);
        }
    }
    let damaged = word(input, 20) as usize % (tail.len() * 8);
    tail[damaged / 8] ^= 1 << (damaged % 8);
    assert!(decode(&tail).is_err(), "bit {damaged}");
    assert!(largest_item(SEGMENT_BYTES) < SEGMENT_BYTES);
}

fn journal(input: &[u8]) {
    let any: Vec<u64> = (0..input.len() / 8)
        .map(|number| word(input, 8 * number))
        .collect();
    if let Some(words) = any.first_chunk() {
        if let Ok(Some(head)) = Head::decode(words) {
            assert_eq!(head.encode(), *words);
        }
    }
    if let Some(words) = any.first_chunk::<CHUNK_HEADER_WORDS>() {
        if let Some(header) = ChunkHeader::decode(words) {
            assert_eq!(header.encode()[..5], words[..5]);
        }
    }
    let mut sound = Head {
        image: word(input, 0),
        chunk_words: word(input, 1),
        chunks: word(input, 2),
        run: word(input, 3),
    }
    .encode();
    assert!(Head::decode(&sound).is_ok_and(|head| head.is_some()));
    // The checksum does not cover word 5, the run: it changes alone.
    let mut damaged = word(input, 4) as usize % ((sound.len() - 1) * 64);
    if damaged >= 5 * 64 {
        damaged += 64;
    }
    sound[damaged / 64] ^= 1 << (damaged % 64);
    assert!(Head::decode(&sound).is_err(), "bit {damaged}");
    let mut sound = ChunkHeader {
        image: word(input, 5),
        sequence: word(input, 6),
        next_segment: word(input, 7),
    }
    .encode();
    assert!(ChunkHeader::decode(&sound).is_some());
    let damaged = word(input, 8) as usize % (5 * 64);
    sound[damaged / 64] ^= 1 << (damaged % 64);
    assert!(ChunkHeader::decode(&sound).is_none(), "bit {damaged}");
    let mut filled = Filled::EMPTY;
    filled.append(&any);
    assert_eq!(Filled::decode(filled.encode()), Some(filled));
    assert_eq!(filled.records(&any), Some(&any[..]));
    let sequence = word(input, 9);
    let synced = Synced { sequence, filled };
    assert_eq!(Synced::decode(&synced.encode()), Some(synced));
    let damaged = word(input, 10) as usize;
    let mut words = synced.encode();
    words[damaged / 64 % Synced::WORDS] ^= 1 << (damaged % 64);
    assert_eq!(Synced::decode(&words), None, "bit {damaged}");
    let _ = decode_clock(sequence);
    let clock = encode_clock(sequence as u32);
    assert_eq!(decode_clock(clock), Ok(sequence as u32));
    assert!(decode_clock(clock ^ 1 << (damaged % 64)).is_err());
    if let Some(words) = any.first_chunk() {
        let _ = Synced::decode(words);
    }
    let mut rest = &any[..];
    while !rest.is_empty() {
        let (record, len) = Record::decode(rest);
        assert!((1..=rest.len()).contains(&len));
        if let Some(record) = record {
            let encoded = record.encode();
            let (again, len) = Record::decode(encoded.words());
            assert_eq!((again, len), (Some(record), encoded.words().len()));
        }
        match record {
            Some(Record::KeyDead { hash, .. }) => assert_eq!(kept_hash(hash), hash),
            Some(Record::Dead { generation, .. }) => {
                assert!(is_generation(generation, generation | 1 << 60));
            }
            _ => {}
        }
        rest = &rest[len..];
    }
}

fn positions(input: &[u8]) {
    let unpacked: Result<Vec<u32>, _> = Positions::of(input).collect();
    if let Ok(positions) = unpacked {
        assert!(positions.is_sorted_by(|before, after| before < after));
        let mut packer = Packer::default();
        positions.iter().for_each(|&position| packer.push(position));
        assert!(
            Positions::of(packer.bytes())
                .map_while(Result::ok)
                .eq(positions)
        );
    }
}
