//! A Bloom filter, with bits on its drive and in its log.

use flowstone_slices::{BitPlacement, BloomSettings, SliceBloom};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::bytes::{Bytes, CHANNELS, DRIVE_BYTES, Left, STRIPE, Superblock, mix, spread};

const CHECKSUMS: [(BitPlacement, u64); 2] = [
    (BitPlacement::Spread, 0x6c0e_545f_94e9_5557),
    (BitPlacement::OnePage, 0xc46b_9f38_d2ae_7d4f),
];
const FILTER_PAGE_WORDS: usize = 512;

fn settings(placement: BitPlacement) -> BloomSettings {
    BloomSettings {
        partitions: Some(2),
        filter_bytes: 1 << 10,
        bits_per_key: 80,
        incarnations: 8,
        placement,
        channels: CHANNELS,
        piece_bytes: STRIPE as u32,
        ..BloomSettings::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("https://example.org/{number}").into_bytes()
}

/// Two incarnations of 50 keys on the drive, 50 keys in memory.
fn small(placement: BitPlacement) -> Left {
    let words = SliceBloom::log_words(&settings(placement), &[DRIVE_BYTES]).expect("they can be");
    Left::by(words, async |disks, log| {
        let filter = SliceBloom::create(disks, log, &settings(placement)).await;
        let filter = filter.expect("drives work");
        for number in 0..150 {
            filter.insert(&key(number)).await.expect("drives work");
            if number == 49 || number == 99 {
                filter.flush().await.expect("drives work");
            }
        }
        filter.sync().await.expect("drives work");
    })
}

struct Filter<'a> {
    left: &'a Left,
    superblock: Superblock,
    keys: u32,
    functions: u32,
    placement: BitPlacement,
}

impl Filter<'_> {
    /// Returns partition and slots of a key.
    fn slots(&self, key: &[u8]) -> (u32, Vec<u32>) {
        let hash = xxh3_128_with_seed(key, self.superblock.seed);
        let (high, low) = ((hash >> 64) as u64, hash as u64);
        let partition = spread(high >> 32, self.superblock.partitions);
        let of_page = self.superblock.slots;
        let hash = |number: u32| {
            let step = mix(high) | 1;
            mix(low.wrapping_add(u64::from(number).wrapping_mul(step)))
        };
        let mut slots: Vec<u32> = Vec::new();
        match self.placement {
            BitPlacement::Spread => {
                let all = self.superblock.pages * of_page;
                slots.extend((0..self.functions).map(|number| spread(hash(number), all)));
            }
            BitPlacement::OnePage => {
                let page = spread(mix(high ^ low.rotate_left(32)), self.superblock.pages);
                for number in 0..self.functions {
                    let left = (page * of_page..(page + 1) * of_page)
                        .filter(|slot| !slots.contains(slot))
                        .nth(spread(hash(number), of_page - number) as usize);
                    slots.push(left.expect("there are as many"));
                }
            }
        }
        (partition, slots)
    }

    /// Returns the incarnations that have all bits of a key, and whether the filter in memory has them.
    fn find(&self, key: &[u8]) -> (Vec<u32>, bool) {
        let (partition, slots) = self.slots(key);
        let of_page = self.superblock.slots;
        let bit = |incarnation: u32, slot: u32| {
            let page = self
                .superblock
                .page(self.left, STRIPE, partition, slot / of_page);
            let slice_bytes = self.superblock.incarnations.div_ceil(8) as usize;
            let slice = page.from(24 + (slot % of_page) as usize * slice_bytes);
            slice.bit(incarnation as usize)
        };
        let incarnations = (0..self.superblock.incarnations)
            .filter(|&incarnation| slots.iter().all(|&slot| bit(incarnation, slot)));
        let log = &self.left.log;
        let generation = self.superblock.pointer(log, partition).0 + 1;
        let (partition, partitions) = (partition as usize, self.superblock.partitions as usize);
        let first = (8 + partitions + 4 * partitions).next_multiple_of(FILTER_PAGE_WORDS);
        let half_words = (log.len() - first) / (2 * partitions);
        assert_eq!(half_words % FILTER_PAGE_WORDS, 0);
        let half = (0..2)
            .map(|half| 2 * partition + half)
            .find(|half| (log[8 + partitions + half] >> 32) as u32 == generation)
            .expect("a half is the one of the next generation");
        let inserted = log[8 + partitions + half] as u32;
        assert!((1..=self.keys).contains(&inserted), "{inserted} inserts");
        let words = &log[first + half * half_words..][..half_words];
        let is_set = |slot: &u32| {
            // The last word of a page has no bits.
            let word = *slot as usize / 64;
            let at =
                word / (FILTER_PAGE_WORDS - 1) * FILTER_PAGE_WORDS + word % (FILTER_PAGE_WORDS - 1);
            assert_eq!(
                (words[at | (FILTER_PAGE_WORDS - 1)] >> 32) as u32,
                generation
            );
            words[at] >> (slot % 64) & 1 == 1
        };
        (incarnations.collect(), slots.iter().all(is_set))
    }
}

#[test]
fn filters_are_those_of_this_format() {
    for (placement, expected) in CHECKSUMS {
        let checksum = small(placement).checksum();
        assert_eq!(checksum, expected, "{placement:?}: {checksum:#018x}");
    }
}

#[test]
fn filters_lie_as_documented() {
    for (placement, _) in CHECKSUMS {
        let left = small(placement);
        let drive = Bytes(&left.drive);
        let superblock = Superblock::of(drive, 2);
        superblock.check_log(&left.log);
        assert_eq!([68, 72].map(|at| drive.u32(at)), [0, 0], "entries, filter");
        let is_on_one_page = u64::from(placement == BitPlacement::OnePage);
        assert_eq!([100, 108].map(|at| drive.u64(at)), [is_on_one_page, 0]);
        assert_eq!((superblock.incarnations, superblock.slots), (8, 4072));
        let filter = Filter {
            left: &left,
            keys: drive.u64(84) as u32,
            functions: drive.u64(92) as u32,
            superblock,
            placement,
        };
        // 1 KiB of 80 bits a key.
        assert!((95..=105).contains(&filter.keys), "{}", filter.keys);
        assert_eq!(filter.functions, 3);
        for number in 0..150 {
            let (incarnations, is_in_memory) = filter.find(&key(number));
            match number / 50 {
                // A flush of generation g writes incarnation g - 1.
                nth @ 0..2 => assert!(incarnations.contains(&nth), "key {number}"),
                _ => assert!(is_in_memory, "key {number}"),
            }
        }
        let wrong = (1_000..2_000)
            .filter(|&number| filter.find(&key(number)) != (Vec::new(), false))
            .count();
        assert!(wrong < 50, "{wrong} of 1000 that nobody has inserted");
    }
}
