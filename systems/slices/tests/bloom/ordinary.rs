//! A filter's answers and counters while nothing fails.

use device::{AlignedBuf, Disk};
use flowstone_slices::{BloomSettings, HashSettings, Scheduling, SliceBloom, SliceHash};
use runtime::sim::Sim;
use xxhash_rust::xxh3::Xxh3;

use crate::hardware::Hardware;
use crate::life::{DRIVE_BYTES, PLACEMENTS, key, small};

fn with_filter<T>(
    settings: &BloomSettings,
    drives: usize,
    test: impl AsyncFnOnce(SliceBloom, &Hardware) -> T,
) -> T {
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(settings, drives, 1);
        let filter = hardware.create(settings).await.expect("drives work");
        test(filter, &hardware).await
    })
}

/// Returns how many of the keys the filter may contain.
async fn maybe(filter: &SliceBloom, keys: std::ops::Range<u64>) -> u64 {
    let mut count = 0;
    for number in keys {
        let found = filter.may_contain(&key(number)).await;
        count += u64::from(found.expect("drives work"));
    }
    count
}

#[test]
fn no_inserted_key_is_denied() {
    for placement in PLACEMENTS {
        for (drives, is_channel_aware) in [(1, true), (1, false), (3, true)] {
            let settings = BloomSettings {
                scheduling: Scheduling {
                    is_channel_aware,
                    ..Scheduling::default()
                },
                ..small(40, placement)
            };
            with_filter(&settings, drives, async |filter, _| {
                assert_eq!(maybe(&filter, 0..100).await, 0, "it is empty");
                for number in 0..5_000 {
                    filter.insert(&key(number)).await.expect("drives work");
                    let earlier = number * 7919 % (number + 1);
                    assert_eq!(maybe(&filter, earlier..earlier + 1).await, 1);
                }
                assert_eq!(maybe(&filter, 0..5_000).await, 5_000);
                filter.flush().await.expect("drives work");
                assert_eq!(maybe(&filter, 0..5_000).await, 5_000);
                let stats = filter.stats();
                assert_eq!(stats.evicted, 0, "{stats:?}");
                assert!(stats.flushes > 40 && stats.memory_hits > 0, "{stats:?}");
            });
        }
    }
}

#[test]
fn a_filter_takes_its_keys_and_then_is_flushed() {
    for placement in PLACEMENTS {
        with_filter(&small(40, placement), 1, async |filter, _| {
            let shape = *filter.shape();
            assert!((95..=105).contains(&shape.keys), "{shape:?}");
            for number in 0..3_000 {
                filter.insert(&key(number)).await.expect("drives work");
                // A key that is present takes no more space.
                filter.insert(&key(number)).await.expect("drives work");
            }
            filter.flush().await.expect("drives work");
            let stats = filter.stats();
            assert!((2_900..=3_000).contains(&stats.inserted), "{stats:?}");
            let full = stats.inserted.div_ceil(u64::from(shape.keys));
            assert!((full..full + 3).contains(&stats.flushes), "{stats:?}");
            assert_eq!(
                stats.bytes_written,
                stats.flushes * u64::from(shape.pages) * 4096
            );
        });
    }
}

#[test]
fn the_oldest_incarnation_goes() {
    for placement in PLACEMENTS {
        with_filter(&small(4, placement), 2, async |filter, _| {
            for number in 0..6_000 {
                filter.insert(&key(number)).await.expect("drives work");
            }
            filter.flush().await.expect("drives work");
            // Three partitions of four incarnations. Incarnations that are not full hold fewer keys.
            let keys = u64::from(filter.shape().keys);
            assert_eq!(maybe(&filter, 6_000 - 6 * keys..6_000).await, 6 * keys);
            let old = maybe(&filter, 0..6_000 - 15 * keys).await;
            let rate = old as f64 / (6_000 - 15 * keys) as f64;
            assert!(rate < 0.01, "{rate}: {:?}", filter.shape());
            assert!(filter.stats().evicted > 30);
        });
    }
}

#[test]
fn clients_at_once_find_what_they_have_inserted() {
    for placement in PLACEMENTS {
        for drives in [1, 3] {
            with_filter(&small(40, placement), drives, async |filter, _| {
                let tasks: Vec<_> = (0..8_u64)
                    .map(|task| {
                        let filter = filter.clone();
                        runtime::spawn(async move {
                            for round in 0..300 {
                                let number = task * 1_000 + round;
                                filter.insert(&key(number)).await.expect("drives work");
                                let earlier = task * 1_000 + round / 2;
                                assert_eq!(maybe(&filter, number..number + 1).await, 1);
                                assert_eq!(maybe(&filter, earlier..earlier + 1).await, 1);
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("tasks end");
                }
                assert!(filter.stats().flushes > 10);
            });
        }
    }
}

#[test]
fn what_is_opened_again_has_what_it_had() {
    for placement in PLACEMENTS {
        let settings = small(40, placement);
        with_filter(&settings, 2, async |filter, hardware| {
            for number in 0..2_000 {
                filter.insert(&key(number)).await.expect("drives work");
            }
            let shape = *filter.shape();
            let absent = maybe(&filter, 10_000..20_000).await;
            let again = Hardware::of(hardware.killed(3), 3);
            let other = BloomSettings {
                functions: 7,
                bits_per_key: 9,
                placement: PLACEMENTS[usize::from(placement == PLACEMENTS[0])],
                ..BloomSettings::default()
            };
            let opened = again.open(&other).await.expect("drives work");
            assert_eq!(*opened.shape(), shape, "as it was created");
            assert_eq!(maybe(&opened, 0..2_000).await, 2_000);
            assert_eq!(maybe(&opened, 10_000..20_000).await, absent);
        });
    }
}

#[test]
fn what_is_opened_must_be_what_was_created() {
    let settings = small(8, PLACEMENTS[0]);
    Sim::new(1).block_on(async {
        let refusal = async |hardware: &Hardware| match hardware.open(&settings).await {
            Ok(_) => panic!("it was opened"),
            Err(error) => error.to_string(),
        };
        let hardware = Hardware::new(&settings, 2, 1);
        let none = refusal(&hardware).await;
        assert!(none.contains("make one with `create`"), "{none}");
        drop(hardware.create(&settings).await.expect("drives work"));

        let (disks, journal) = hardware.parts();
        let hash = HashSettings {
            partitions: Some(1),
            table_bytes: 8 << 10,
            incarnations: 3,
            ..HashSettings::default()
        };
        let opened = SliceHash::open(disks.clone(), journal.clone(), &hash).await;
        let as_table = opened.err().expect("it is no hash table").to_string();
        assert!(
            as_table.contains("holds a Bloom filter, not a hash table"),
            "{as_table}"
        );

        let sizes = [DRIVE_BYTES; 2];
        let words = SliceHash::log_words(&hash, &sizes).expect("they can be");
        let log = std::sync::Arc::new(device::MemoryJournal::new(words));
        let made = SliceHash::create(disks, log, &hash).await;
        drop(made.expect("drives work"));
        let as_filter = refusal(&hardware).await;
        assert!(
            as_filter.contains("holds a hash table, not a Bloom filter"),
            "{as_filter}"
        );

        drop(hardware.create(&settings).await.expect("drives work"));
        let other = Hardware::new(&settings, 2, 2);
        drop(other.create(&settings).await.expect("drives work"));
        let without_log = Hardware {
            media: Vec::new(),
            disks: hardware.disks.clone(),
            journal: other.journal.clone(),
        };
        let message = refusal(&without_log).await;
        assert!(message.contains("the log belongs to another"), "{message}");
        let (disks, _) = hardware.parts();
        let short = std::sync::Arc::new(device::MemoryJournal::new(100));
        let opened = SliceBloom::open(disks, short, &settings).await;
        let message = opened.err().expect("the log is too short").to_string();
        assert!(message.contains("as long as `log_words` says"), "{message}");
    });
}

/// Checks the bytes against docs/internals/on-disk-format.md: one by one where it is easy, and slicetables and filters by a
/// checksum.
#[test]
fn the_bytes_on_the_drive_are_those_of_the_format() {
    let mut sums = Vec::new();
    for placement in PLACEMENTS {
        let settings = small(8, placement);
        sums.push(with_filter(&settings, 1, async |filter, hardware| {
            for number in 0..400 {
                filter.insert(&key(number)).await.expect("drives work");
            }
            let shape = *filter.shape();
            let disk = &hardware.media[0];
            let page = AlignedBuf::new(4096);
            let superblock = disk.read(0, page).await.expect("it can be read");
            let number =
                |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("4 bytes"));
            assert_eq!(&superblock[..8], b"flowSLCE");
            assert_eq!((number(32), number(60), number(64)), (2, 8, 4072));
            let own = [84, 92, 100, 108].map(number);
            let is_one_page = u32::from(placement == PLACEMENTS[1]);
            assert_eq!(own, [shape.keys, 3, is_one_page, 0]);

            let words = hardware.journal.crash();
            assert_eq!(words.len(), 512 + 3 * 2 * 512);
            // Four words of head in use, three pointers, six heads, six marks.
            for partition in 0..3 {
                let (generation, keys) = (words[8 + partition] >> 32, shape.keys as u64);
                let heads = &words[11 + 2 * partition..][..2];
                let head = heads[(generation + 1) as usize % 2];
                assert_eq!(head >> 32, generation + 1);
                assert!((1..=keys).contains(&(head & 0xffff_ffff)));
            }
            filter.flush().await.expect("drives work");
            let words = hardware.journal.crash();
            let mut sum = Xxh3::new();
            for partition in 0..3 {
                let region = words[8 + partition] & 0x00ff_ffff;
                let at = 8192 + region * shape.region_bytes;
                let table = AlignedBuf::new(shape.region_bytes as usize);
                sum.update(&disk.read(at, table).await.expect("it can be read"));
            }
            for word in &words[512..] {
                sum.update(&word.to_le_bytes());
            }
            sum.digest()
        }));
    }
    assert_eq!(
        sums,
        [10_824_527_362_222_555_140, 9_231_841_798_266_759_645]
    );
}
