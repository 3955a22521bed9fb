//! Look-ups and starts at the point where the ring of records wraps around.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use flowstone_slices::{HashSettings, MapSettings, SliceMap};

use crate::life::{filling, key, opened, short_ring, used_without_power, with};

/// A key is always changed again before its record is overwritten. So the key is found at every moment, even by a look-up that
/// had the old address when its record was overwritten.
#[test]
fn a_key_that_is_changed_in_time_is_never_missed() {
    let ring = short_ring();
    let settings = MapSettings {
        table: HashSettings {
            partitions: Some(1),
            ..ring.table.clone()
        },
        ..ring
    };
    with(&settings, 1, async |map, _| {
        let segments = map.shape().records.segments;
        let asked = key(1);
        let insert = async |map: &SliceMap, key: &[u8]| {
            let value = filling(key, 4096, 7);
            map.insert(key, &value).await.expect("drives work");
        };
        // The key's record is the last of its segment, here and below.
        for other in 0..3 {
            insert(&map, &key(10 + other)).await;
        }
        insert(&map, &asked).await;
        let has_ended = Rc::new(Cell::new(false));
        let mut readers = Vec::new();
        for _ in 0..4 {
            let (map, asked, has_ended) = (map.clone(), asked.clone(), Rc::clone(&has_ended));
            readers.push(runtime::spawn(async move {
                let (mut asks, mut missed) = (0, 0);
                while !has_ended.get() {
                    let found = map.get(&asked).await.expect("drives work");
                    asks += 1;
                    missed += u32::from(found.is_none());
                    runtime::sleep(Duration::from_micros(3)).await;
                }
                (asks, missed)
            }));
        }
        let mut other = 20;
        for _ in 0..150 {
            // The key's record and these take one segment less than the ring has.
            for _ in 1..4 * (segments - 1) {
                insert(&map, &key(other)).await;
                other += 1;
            }
            // By now there is space for the segment that begins next, over the key's old record.
            runtime::sleep(Duration::from_millis(20)).await;
            insert(&map, &asked).await;
        }
        has_ended.set(true);
        for reader in readers {
            let (asks, missed) = reader.await.expect("it ends");
            assert_eq!(missed, 0, "of {asks}");
            assert!(asks > 100);
        }
    });
}

/// A power cut tears the segment that is written over the oldest one: the rest of the oldest is gone, and not reported as
/// damage.
#[test]
fn what_a_power_cut_has_left_of_the_oldest_segment_is_gone() {
    let settings = short_ring();
    for seed in 0..200 {
        let mut keys = 0;
        let again = used_without_power(&settings, 1, seed, async |map, _| {
            // Two records leave a page and more of a segment free.
            let insert = async |of: u64| {
                let key = key(of);
                let value = filling(&key, 6000, of as u8);
                map.insert(&key, &value).await.expect("drives work");
            };
            let in_the_ring = 2 * map.shape().records.segments;
            for of in 0..in_the_ring {
                insert(of).await;
            }
            map.sync().await.expect("drives work");
            for of in in_the_ring..in_the_ring + 5 {
                insert(of).await;
            }
            runtime::sleep(Duration::from_micros(10 * seed)).await;
            keys = in_the_ring + 5;
        });
        opened(&again, &settings, seed, async |map| {
            for of in 0..keys {
                let key = key(of);
                let found = map.get(&key).await;
                let found = found.unwrap_or_else(|error| panic!("seed {seed}, key {of}: {error}"));
                assert!(found.is_none_or(|found| found == filling(&key, 6000, of as u8)));
            }
        });
    }
}

/// Between two syncs the ring wraps around, and keys are changed again before their records are overwritten. A power cut then
/// takes any of the words of the log about these changes, but no key: each key has a record on the drive that was not
/// overwritten.
#[test]
fn a_power_cut_takes_no_key_that_was_changed_in_time() {
    let settings = short_ring();
    for seed in 0..200 {
        let mut keys = 0;
        let again = used_without_power(&settings, 3, seed, async |map, _| {
            let segments = 3 * map.shape().records.segments;
            // Four records to a segment. Some segments are in memory, and the oldest of the ring may be torn.
            keys = 4 * (segments - 6);
            let insert = async |of: u64, fill: u8| {
                let key = key(of);
                let value = filling(&key, 4096, fill);
                map.insert(&key, &value).await.expect("drives work");
            };
            for of in 0..keys {
                insert(of, 0).await;
            }
            map.sync().await.expect("drives work");
            let changes = 3 * 4 * segments + seed % (4 * segments);
            for change in 0..changes {
                insert(change % keys, 1).await;
            }
            runtime::sleep(Duration::from_micros(17 * (seed % 100))).await;
        });
        opened(&again, &settings, seed, async |map| {
            for of in 0..keys {
                let found = map.get(&key(of)).await.expect("drives work");
                assert!(found.is_some(), "seed {seed}: key {of} of {keys} is gone");
            }
        });
    }
}
