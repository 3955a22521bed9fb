//! Admission with ghosts: items that come back go to flash, and no older value ever comes back.

use std::sync::Arc;
use std::time::Duration;

use flowstone_engine::{
    AdmissionKind, AdmitAdaptive, AdmitGhosts, AdmitRandom, AdmitReread, EngineConfig,
};

use crate::filter::{VALUE_BYTES, filter, nothing_older_comes_back};
use crate::support::{for_each_seed, get, memory_disk, roomy, set, simulate, start, value};

#[test]
fn one_that_comes_back_is_admitted_and_a_stranger_is_not() {
    simulate(4, async {
        let config = filter(Arc::new(AdmitGhosts { reads: 2 }));
        let engine = start(&memory_disk(65 << 20), &config).await;
        let name = |number: u64| format!("key{number}").into_bytes();
        for number in 0..30_000 {
            set(&engine, &name(number), &value(1, VALUE_BYTES))
                .await
                .unwrap();
        }
        let stats = engine.stats();
        assert_eq!(stats.tier.demotions, 0, "nobody has come back");
        for number in 25_000..50_000 {
            // Every second item is known.
            let number = if number % 2 == 0 {
                number - 15_000
            } else {
                number + 100_000
            };
            set(&engine, &name(number), &value(2, VALUE_BYTES))
                .await
                .unwrap();
        }
        let stats = engine.stats();
        assert!(stats.admission.remembered > 5000, "{:?}", stats.admission);
        assert_eq!(stats.admission.remembered, stats.admission.admitted);
        assert_eq!(stats.tier.demotions, stats.admission.admitted);
    });
}

/// With `reread` everything fills an empty flash. Then an item that nobody has read is refused, one that outdates a copy on
/// flash is kept up, and memory keeps items that are read.
#[test]
fn a_full_flash_gets_what_is_read_again_or_was_there_before() {
    simulate(5, async {
        let config = EngineConfig {
            admission: Arc::new(AdmitReread { reads: 2 }),
            write_back: None,
            ..roomy()
        };
        let engine = start(&memory_disk(65 << 20), &config).await;
        let name = |number: u64| format!("key{number}").into_bytes();
        let fill = async |keys: std::ops::Range<u64>| {
            for number in keys {
                let stored = set(&engine, &name(number), &value(1, VALUE_BYTES)).await;
                stored.unwrap();
            }
        };
        fill(0..30_000).await;
        assert_eq!(engine.stats().admission.refused, 0, "flash has space");
        fill(30_000..200_000).await;
        let filled = engine.stats();
        assert!(filled.admission.refused > 100_000, "{:?}", filled.admission);

        let mut updated = Vec::new();
        for number in 20_000..60_000 {
            if updated.len() < 100 && get(&engine, &name(number)).await.is_some() {
                let stored = set(&engine, &name(number), &value(2, VALUE_BYTES)).await;
                stored.unwrap();
                updated.push(number);
            }
        }
        assert_eq!(updated.len(), 100);
        fill(300_000..301_000).await;
        for _ in 0..2 {
            for number in 300_000..300_100 {
                assert!(get(&engine, &name(number)).await.is_some(), "in memory");
            }
        }
        fill(400_000..430_000).await;
        let stats = engine.stats();
        assert_eq!(stats.admission.remembered, filled.admission.remembered);
        assert_eq!(stats.admission.admitted, filled.admission.admitted + 200);
        for number in updated {
            let found = get(&engine, &name(number)).await;
            assert_eq!(found, Some(value(2, VALUE_BYTES)), "{number}");
        }
    });
}

/// With any admission, a get finds the newest value or none, across stops and starts.
#[test]
fn nothing_older_comes_back_whatever_is_admitted() {
    for_each_seed("nothing_older", 4, |seed| {
        let admission: [Arc<dyn AdmissionKind>; 3] = [
            Arc::new(AdmitReread { reads: 2 }),
            Arc::new(AdmitGhosts { reads: 1 }),
            Arc::new(AdmitRandom { per_mille: 500 }),
        ];
        let admission = Arc::clone(&admission[seed as usize % 3]);
        nothing_older_comes_back(seed, &filter(admission));
    });
}

/// A key that comes back once and late finds its item only if flash gets every item: with `adaptive` it does.
#[test]
fn an_adaptive_admission_takes_everything_where_ghosts_find_less() {
    simulate(6, async {
        let config = EngineConfig {
            admission: Arc::new(AdmitAdaptive { reads: 2 }),
            write_back: None,
            ..roomy()
        };
        let engine = start(&memory_disk(65 << 20), &config).await;
        let name = |number: u64| format!("key{number}").into_bytes();
        let mut found = 0;
        for number in 0..200_000_u64 {
            let earlier = number.checked_sub(20_000).map(name);
            for key in [Some(name(number)), earlier].into_iter().flatten() {
                match get(&engine, &key).await {
                    Some(_) if number >= 150_000 => found += 1,
                    Some(_) => {}
                    None => {
                        let stored = set(&engine, &key, &value(1, VALUE_BYTES)).await;
                        stored.unwrap();
                    }
                }
            }
            if number % 1000 == 0 {
                runtime::sleep(Duration::from_secs(1)).await;
            }
        }
        let learned = engine.learner_stats();
        assert_eq!(learned.find("all_is_admitted"), Some(1), "{learned:?}");
        assert!(found > 45_000, "{found} of 50,000");
    });
}
