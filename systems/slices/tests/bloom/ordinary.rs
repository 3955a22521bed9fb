//! A filter's answers and counters while nothing fails.

use flowstone_slices::{BloomSettings, Scheduling, SliceBloom};

use crate::common::structure::{fill, fill_drives, missing};
use crate::life::{Hardware, PLACEMENTS, key, small, with};
use crate::plain::at_once;

/// Returns how many of the keys the filter may contain.
async fn maybe(filter: &SliceBloom, keys: std::ops::Range<u64>) -> u64 {
    let all = keys.end - keys.start;
    all - missing(filter, keys).await as u64
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
            with(&settings, drives, async |filter, _| {
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
        with(&small(40, placement), 1, async |filter, _| {
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
        with(&small(4, placement), 2, async |filter, _| {
            fill_drives(&filter, 0..6_000).await;
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
            with(&small(40, placement), drives, async |filter, _| {
                at_once(8, |task| {
                    let filter = filter.clone();
                    async move {
                        for round in 0..300 {
                            let number = task * 1_000 + round;
                            filter.insert(&key(number)).await.expect("drives work");
                            let earlier = task * 1_000 + round / 2;
                            assert_eq!(maybe(&filter, number..number + 1).await, 1);
                            assert_eq!(maybe(&filter, earlier..earlier + 1).await, 1);
                        }
                    }
                })
                .await;
                assert!(filter.stats().flushes > 10);
            });
        }
    }
}

#[test]
fn what_is_opened_again_has_what_it_had() {
    for placement in PLACEMENTS {
        let settings = small(40, placement);
        with(&settings, 2, async |filter, hardware| {
            fill(&filter, 0..2_000).await;
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
