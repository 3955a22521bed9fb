//! A map, with records on its drive and in its log.

use flowstone_slices::{MapSettings, SliceMap};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bytes::{DRIVE_BYTES, Left, STRIPE, Superblock, crc8};
use crate::hash::{self, Table};

const CHECKSUM: u64 = 0x605d_25a3_ba4d_98ae;
const SEGMENT: usize = 16 << 10;
/// Number of segments of records for which the log has slots.
const SLOTS: usize = 4;

fn settings() -> MapSettings {
    MapSettings {
        table: hash::settings(),
        mean_bytes: 100,
        segment_bytes: SEGMENT as u32,
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 3 * number as usize]
}

/// More than a segment of records, synced, with a delete among them; then an update and another delete, in the log alone.
fn small() -> Left {
    let words = SliceMap::log_words(&settings(), &[DRIVE_BYTES]).expect("they can be");
    Left::by(words, async |disks, log| {
        let map = SliceMap::create(disks, log, &settings()).await;
        let map = map.expect("drives work");
        for number in 0..100 {
            let inserted = map.insert(&key(number), &value(number)).await;
            inserted.expect("drives work");
        }
        map.delete(&key(5)).await.expect("drives work");
        map.sync().await.expect("drives work");
        map.insert(&key(7), b"newer").await.expect("drives work");
        map.delete(&key(6)).await.expect("drives work");
    })
}

fn expected(number: u64) -> Option<Vec<u8>> {
    match number {
        5 | 6 => None,
        7 => Some(b"newer".to_vec()),
        _ => (number < 100).then(|| value(number)),
    }
}

struct Map<'a> {
    table: Table<'a>,
    left: &'a Left,
    superblock: Superblock,
    segments: usize,
    /// First word behind the table's words.
    first_word: usize,
}

/// A record: its number of bytes, its key and its value.
type Found<'a> = (usize, &'a [u8], Option<&'a [u8]>);

impl<'a> Map<'a> {
    fn of(left: &'a Left) -> Self {
        let superblock = Superblock::of(left.drive(), 4);
        let own = [84, 92, 100, 108].map(|at| left.drive().u64(at));
        assert_eq!((own[0], &own[2..]), (SEGMENT as u64, &[0; 2][..]));
        let segments = own[1] as usize;
        let table = Table::of(left, (STRIPE + segments * SEGMENT).next_multiple_of(STRIPE));
        assert_ne!(table.superblock.instance, superblock.instance);
        let of_map = 512 + SLOTS * SEGMENT / 8;
        Self {
            table,
            left,
            superblock,
            segments,
            first_word: left.log.len() - of_map,
        }
    }

    fn number(&self, word: usize, salt: u8) -> u64 {
        let word = self.left.log[self.first_word + word];
        assert_eq!(word as u8, crc8(word & !0xff) ^ salt);
        word >> 8
    }

    /// Returns the record at a position, if there is one.
    fn record(&self, bytes: &'a [u8], position: usize) -> Option<Found<'a>> {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let value_bytes = (number(4) != u32::MAX).then_some(number(4) as usize);
        let key_bytes = (number(20) & 0xffff) as usize;
        let len = (24 + key_bytes + value_bytes.unwrap_or(0)).next_multiple_of(16);
        let mut unsigned = bytes.get(..len)?.to_vec();
        unsigned[..4].fill(0);
        let sealed = crc32c::crc32c(&self.superblock.instance.to_le_bytes());
        if number(0) != crc32c::crc32c_append(sealed, &unsigned) {
            return None;
        }
        assert_eq!(number(20) >> 16, 0);
        assert_eq!(number(16), 1, "epoch");
        assert_eq!(number(8) as usize | (number(12) as usize) << 32, position);
        let (key, rest) = bytes[24..len].split_at(key_bytes);
        let (value, padding) = rest.split_at(value_bytes.unwrap_or(0));
        assert!(padding.iter().all(|&byte| byte == 0));
        Some((len, key, value_bytes.map(|_| value)))
    }

    /// Returns the value of a key on the drive.
    fn on_drive(&self, key: &[u8]) -> Option<Vec<u8>> {
        let word = self
            .table
            .get(xxh3_64_with_seed(key, self.superblock.seed))
            .0?;
        let (position, bytes) = ((word >> 16) as usize * 16, (word & 0xffff) as usize * 16);
        let (segment, within) = (position / SEGMENT, position % SEGMENT);
        let at = STRIPE + segment % self.segments * SEGMENT + within;
        let record = self.record(&self.left.drive[at..at + bytes], position);
        let (len, found, value) = record.expect("its address says where it is");
        assert_eq!((len, found), (bytes, key));
        value.map(<[u8]>::to_vec)
    }
}

#[test]
fn a_map_is_the_one_of_this_format() {
    let left = small();
    let map = Map::of(&left);
    // Leaves out the table: the order of its entries depends on which of several concurrent inserts came first.
    let checksum = Left {
        drive: left.drive[..map.table.start - STRIPE].to_vec(),
        log: left.log[map.first_word..].to_vec(),
    }
    .checksum();
    assert_eq!(checksum, CHECKSUM, "{checksum:#018x}");
}

#[test]
fn a_map_lies_as_documented() {
    let left = small();
    let map = Map::of(&left);
    let head = &left.log[map.first_word..];
    assert_eq!(map.first_word % 512, 0);
    assert_eq!(head[0], map.superblock.instance);
    assert_eq!(map.number(1, 0x35), 1, "epoch");
    let end = map.number(2, 0x5b) as usize * 4096;
    assert!(end > SEGMENT, "more than a segment is on the drive");
    assert!(head[3..512].iter().all(|&word| word == 0));
    for number in (0..110).filter(|number| ![6, 7].contains(number)) {
        assert_eq!(map.on_drive(&key(number)), expected(number), "key {number}");
    }
    // Records in the log alone, from the end on.
    let slots: Vec<u8> = head[512..]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let slots = Vec::leak(slots);
    let (mut at, mut found) = (end, Vec::new());
    while let Some((len, key, value)) = map.record(&slots[at % (SLOTS * SEGMENT)..], at) {
        found.push((key, value));
        at += len;
    }
    assert_eq!(found, [(&key(7)[..], Some(&b"newer"[..])), (&key(6), None)]);
}
