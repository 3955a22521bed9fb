//! A hash table, with entries on its drive and in its log.

use flowstone_slices::{HashSettings, SliceHash};

use crate::bytes::{Bytes, CHANNELS, DRIVE_BYTES, Left, STRIPE, Superblock, place};

const CHECKSUM: u64 = 0x71c0_d604_40a0_82d2;
const PARTITIONS: u32 = 2;
const BUCKET: usize = 3;
/// Number of parts of the log: one for each partition, and two more.
const PARTS: usize = PARTITIONS as usize + 2;

pub(crate) fn settings() -> HashSettings {
    HashSettings {
        partitions: Some(PARTITIONS),
        table_bytes: 4 << 10,
        incarnations: 3,
        bucket_entries: Some(BUCKET as u32),
        channels: CHANNELS,
        piece_bytes: STRIPE as u32,
        ..HashSettings::default()
    }
}

/// Two flushes, the second with a delete and two inserts; then a delete and two inserts in memory. Key 7 and key 8 are updates.
fn small() -> Left {
    let words = SliceHash::log_words(&settings(), &[DRIVE_BYTES]).expect("they can be");
    Left::by(words, async |disks, log| {
        let table = SliceHash::create(disks, log, &settings()).await;
        let table = table.expect("drives work");
        for key in 0..200 {
            table.insert(key, 3 * key).await.expect("drives work");
        }
        table.flush().await.expect("drives work");
        table.delete(5).await.expect("drives work");
        table.insert(7, 1007).await.expect("drives work");
        table.insert(300, 1300).await.expect("drives work");
        table.flush().await.expect("drives work");
        table.delete(6).await.expect("drives work");
        table.insert(8, 1008).await.expect("drives work");
        table.insert(301, 1301).await.expect("drives work");
        table.sync().await.expect("drives work");
    })
}

fn expected(key: u64) -> Option<u64> {
    match key {
        5 | 6 => None,
        7 | 8 | 300 | 301 => Some(1000 + key),
        key => (key < 200).then_some(3 * key),
    }
}

/// A hash table whose regions begin at byte `start` of the drive.
pub(crate) struct Table<'a> {
    pub(crate) left: &'a Left,
    pub(crate) start: usize,
    pub(crate) superblock: Superblock,
}

impl<'a> Table<'a> {
    pub(crate) fn of(left: &'a Left, at: usize) -> Self {
        let bytes = left.drive().from(at);
        let superblock = Superblock::of(bytes, 1);
        assert_eq!(bytes.u32(68), BUCKET as u32);
        assert_eq!([92, 100, 108].map(|at| bytes.u64(at)), [0; 3], "own");
        superblock.check_log(&left.log);
        Self {
            left,
            start: at + STRIPE,
            superblock,
        }
    }

    /// Returns the last change of a key in the log's part of the partition's newest generation.
    fn in_log(&self, key: u64, partition: u32) -> Option<Option<u64>> {
        let log = &self.left.log;
        let written = self.superblock.pointer(log, partition).0;
        let most = self.left.drive().from(self.start - STRIPE).u64(84);
        let most = (most as f64 * 1.25) as usize + 1;
        let marks = most.div_ceil(64);
        let words = (4 + marks + 2 * most).next_multiple_of(8);
        let first = (8 + PARTITIONS as usize).next_multiple_of(8);
        (0..PARTS).find_map(|part| {
            let words = &log[first + part * words..][..words];
            let (generation, of) = self.superblock.sealed(words[3], part as u32, u32::MAX);
            if (generation, of) != (written + 1, partition) {
                return None;
            }
            let entries = (words[0] >> 32) as usize;
            let pairs = words[4 + marks..].chunks_exact(2).take(entries);
            let deleted = |entry: usize| words[4 + entry / 64] >> (entry % 64) & 1;
            let mut checksum = crc32c::crc32c(&self.superblock.instance.to_le_bytes());
            for number in [partition, generation] {
                checksum = crc32c::crc32c_append(checksum, &number.to_le_bytes());
            }
            let mut found = None;
            for (entry, pair) in pairs.enumerate() {
                for word in [pair[0], pair[1], deleted(entry)] {
                    checksum = crc32c::crc32c_append(checksum, &word.to_le_bytes());
                }
                if pair[0] == key {
                    found = Some((deleted(entry) == 0).then_some(pair[1]));
                }
            }
            assert_eq!(words[0] as u32, checksum);
            assert!(words[1..3].contains(&words[0]), "it has been synced");
            found
        })
    }

    /// Returns the entry of a key in the page of a slot.
    fn in_slot(&self, key: u64, partition: u32, slot: u32) -> Option<Option<u64>> {
        let Superblock {
            slots,
            incarnations,
            ..
        } = self.superblock;
        let page = self
            .superblock
            .page(self.left, self.start, partition, slot / slots);
        let bucket = incarnations as usize * BUCKET;
        let entries = slots as usize * bucket;
        let bitmap = entries.div_ceil(64) * 8;
        let first = (slot % slots) as usize * bucket;
        (first..first + bucket).find_map(|entry| {
            let at = 24 + 2 * bitmap + 16 * entry;
            let is_there = page.from(24).bit(entry) && page.u64(at) == key;
            let is_delete = page.from(24 + bitmap).bit(entry);
            is_there.then(|| (!is_delete).then(|| page.u64(at + 8)))
        })
    }

    /// Returns whether a page says that a key may have overflowed from one of its slots.
    fn has_overflowed(&self, key: u64, partition: u32, slot: u32) -> bool {
        let Superblock {
            slots,
            incarnations,
            seed,
            ..
        } = self.superblock;
        let page = self
            .superblock
            .page(self.left, self.start, partition, slot / slots);
        let entries = slots as usize * incarnations as usize * BUCKET;
        let filters = 24 + 2 * entries.div_ceil(64) * 8 + 16 * entries;
        let filter_bytes = self.left.drive().from(self.start - STRIPE).u32(72);
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(&key.to_le_bytes(), seed) as u32;
        let bits = [hash, hash.wrapping_mul(0x9e37_79b9)];
        (0..incarnations as usize).any(|incarnation| {
            let filter = page.from(filters + incarnation * filter_bytes as usize);
            let is_set = |bits: u32| {
                filter.bit(((u64::from(bits) * 8 * u64::from(filter_bytes)) >> 32) as usize)
            };
            bits.into_iter().all(is_set)
        })
    }

    /// Returns the value of a key, and whether it was found in the key's second slot.
    pub(crate) fn get(&self, key: u64) -> (Option<u64>, bool) {
        let (partition, [first, second]) = place(&self.superblock, key);
        if let Some(found) = self.in_log(key, partition) {
            return (found, false);
        }
        if self.superblock.pointer(&self.left.log, partition).0 == 0 {
            return (None, false);
        }
        if let Some(found) = self.in_slot(key, partition, first) {
            return (found, false);
        }
        match self.in_slot(key, partition, second) {
            Some(found) => {
                assert!(self.has_overflowed(key, partition, first), "key {key}");
                (found, true)
            }
            None => (None, false),
        }
    }
}

#[test]
fn a_table_is_the_one_of_this_format() {
    let checksum = small().checksum();
    assert_eq!(checksum, CHECKSUM, "{checksum:#018x}");
}

#[test]
fn a_table_lies_as_documented() {
    let left = small();
    let table = Table::of(&left, 0);
    assert_eq!(table.superblock.partitions, PARTITIONS);
    assert_eq!(table.superblock.incarnations, 3);
    for partition in 0..PARTITIONS {
        assert!(table.superblock.pointer(&left.log, partition).0 > 0);
    }
    let mut in_second = 0;
    for key in 0..400 {
        let (found, is_in_second) = table.get(key);
        assert_eq!(found, expected(key), "key {key}");
        in_second += u32::from(is_in_second);
    }
    assert!(in_second > 0, "both slots are read");
    // Instance and seed differ, so no test confuses them.
    let superblock = Bytes(&left.drive);
    assert_ne!(superblock.u64(16), superblock.u64(24));
}
