//! Tests of a full region, and of upkeep that is behind.

use zerocopy::FromBytes as _;

use super::*;

fn small_pages() -> CascadeConfig {
    CascadeConfig {
        sizes: Sizes {
            partitions: Some(1),
            active_blocks: Some(4),
            ratio: Some(128),
            page_entries: Some(16),
            ..Sizes::default()
        },
        ..CascadeConfig::new(20_000, 34)
    }
}

/// With more mappings than the region has space for, the oldest are dropped and counted, and Tier 1 stays so small that a
/// checkpoint of it finds space.
#[test]
fn a_full_region_lets_go_of_the_oldest_and_goes_on() {
    const KEYS: u64 = 250_000;
    let config = small_pages();
    for seed in 1..=2 {
        in_simulation(seed, || async {
            // Slower than the writes.
            let latency = Latency {
                write: Duration::from_millis(2),
                ..Latency::default()
            };
            let mut bench = Bench::with_latency(config, latency);
            let cascade = Arc::clone(&bench.cascade);
            runtime::spawn_detached(async move { cascade.upkeep(0).run(|| ()).await });
            let cascade = Arc::clone(&bench.cascade);
            runtime::spawn_detached(async move {
                loop {
                    runtime::sleep(Duration::from_millis(10)).await;
                    // The checkpoint in force has the pages of a full Tier 1 when the next one begins.
                    if seed == 2 || cascade.flash.request.is_made() {
                        // No image has more segments than pages of its index.
                        let all = vec![
                            NumberedSegment::read_from_bytes(&[0; 20]).expect("20 bytes");
                            REGION_PAGES
                        ];
                        let saved = cascade.checkpoints.save(false, || (all, 0)).await;
                        saved.expect("there is space for it");
                        cascade.checkpoints.saved(Some(true));
                    }
                }
            });
            let shape = &bench.cascade.tiers.shape;
            let most = shape.hot_entries + shape.demoted();
            for key in 0..KEYS {
                let code = bench.place(u32::MAX);
                while bench
                    .cascade
                    .tiers
                    .insert(hash_of(key), code, true)
                    .is_err()
                {
                    runtime::sleep(Duration::from_millis(1)).await;
                }
                bench.model.insert(key, Some(code));
                if key % 16 == 0 {
                    runtime::sleep(Duration::from_micros(100)).await;
                }
            }
            runtime::sleep(Duration::from_secs(600)).await;
            let hot = bench.cascade.tiers.lock(0).hot.len();
            assert!(hot <= most, "{hot} mappings in Tier 1: upkeep stands still");
            assert!(bench.cascade.counters.evicted.load(Ordering::Relaxed) > 0);
            for key in KEYS - 10_000..KEYS {
                let found = bench.cascade.searches.search(hash_of(key)).await;
                let Searched::At(code, _) = found else {
                    continue;
                };
                assert_eq!(Some(code), bench.expected(key), "key {key}");
            }
        });
    }
}

/// Upkeep is slower than the writers, which wait when told to: then everything finds space.
#[test]
fn who_waits_for_upkeep_loses_nothing() {
    const KEYS: u64 = 20_000;
    in_simulation(1, || async {
        let latency = Latency {
            write: Duration::from_millis(2),
            ..Latency::default()
        };
        let mut bench = Bench::with_latency(small_pages(), latency);
        let cascade = Arc::clone(&bench.cascade);
        runtime::spawn_detached(async move { cascade.upkeep(0).run(|| ()).await });
        runtime::sleep(Duration::from_millis(1)).await;
        let mut waits = 0;
        for key in 0..KEYS {
            loop {
                let caught_up = bench.cascade.tiers.brake.released.listener();
                if !bench.cascade.tiers.brake.is_pressed() {
                    break;
                }
                waits += 1;
                caught_up.await;
            }
            let code = bench.place(u32::MAX);
            let inserted = bench.cascade.tiers.insert(hash_of(key), code, false);
            inserted.expect("space, as nobody is behind");
            bench.model.insert(key, Some(code));
        }
        assert!(waits > 10, "{waits}");
        for key in 0..KEYS {
            let found = bench.cascade.searches.search(hash_of(key)).await;
            assert!(
                matches!(found, Searched::At(code, _) if Some(code) == bench.expected(key)),
                "key {key}: {found:?}"
            );
        }
    });
}

/// No checkpoint frees a page, and everything is deleted: tombstones take no more of Tier 1 than a checkpoint has space
/// for, and no deleted key is found.
#[test]
fn tombstones_do_not_outgrow_a_checkpoint() {
    const KEYS: u64 = 30_000;
    in_simulation(1, || async {
        let mut bench = Bench::new(small_pages());
        let cascade = Arc::clone(&bench.cascade);
        runtime::spawn_detached(async move { cascade.upkeep(0).run(|| ()).await });
        for round in 0..2 {
            for key in round * KEYS..(round + 1) * KEYS {
                let code = bench.place(u32::MAX);
                if bench.cascade.tiers.insert(hash_of(key), code, true).is_ok() {
                    bench.model.insert(key, Some(code));
                }
                if key % 16 == 0 {
                    runtime::sleep(Duration::from_millis(1)).await;
                }
            }
            // A checkpoint names all present mappings, and no other one follows.
            if round == 0 {
                let saved = bench
                    .cascade
                    .checkpoints
                    .save(false, || (Vec::new(), 0))
                    .await;
                saved.expect("there is space for it");
                bench.cascade.checkpoints.saved(Some(true));
            }
        }
        let bound = bench.cascade.tiers.bounds.buried();
        let mut most = 0;
        for key in 0..2 * KEYS {
            bench.bury(key);
            most = most.max(bench.cascade.tiers.lock(0).hot.len());
            if key % 16 == 0 {
                runtime::sleep(Duration::from_millis(20)).await;
            }
        }
        assert!(most > bound, "{most}: not as many as it takes");
        assert!(most < bound + bound / 8, "{most} of {bound}");
        for key in 0..2 * KEYS {
            let found = bench.cascade.searches.search(hash_of(key)).await;
            assert_eq!(found, Searched::Absent, "key {key}");
        }
    });
}

/// No entry that leaves Tier 1 has to be written then, and a writer that waits for upkeep would wait for ever.
#[test]
fn upkeep_rests_only_when_tier_1_is_small_though_all_that_it_names_has_gone() {
    in_simulation(1, || async {
        let mut bench = Bench::new(small_pages());
        let hot_entries = bench.cascade.tiers.shape.hot_entries;
        for key in 0..3 * hot_entries as u64 {
            let code = bench.place(u32::MAX);
            let inserted = bench.cascade.tiers.insert(hash_of(key), code, true);
            inserted.expect("Tier 1 may grow so far");
        }
        let given = bench.numbers.0.lock().end;
        *bench.numbers.0.lock() = given..given + 1;
        bench.tidy().await;
        let hot = bench.cascade.tiers.lock(0).hot.len();
        assert!(hot <= hot_entries, "{hot} of {hot_entries}");
    });
}

/// Without upkeep Tier 1 grows as far as memory beside the lower tiers allows, and by a few demotions in any case.
#[test]
fn tier_1_grows_no_further_than_memory_allows() {
    in_simulation(1, || async {
        let most_with = |spare_bytes| {
            let bench = Bench::new(CascadeConfig {
                spare_bytes,
                ..small_pages()
            });
            let mut key = 0;
            while bench.cascade.tiers.insert(hash_of(key), 1, true).is_ok() {
                key += 1;
            }
            (
                bench.cascade.tiers.lock(0).hot.len(),
                bench.cascade.tiers.shape.most_hot(),
            )
        };
        let (without, least) = most_with(0);
        assert_eq!(without, least);
        let (some, _) = most_with(20_000);
        let usual = small_pages().capacity * u64::from(small_pages().hot_percent) / 100;
        assert_eq!(some, usual as usize + 2000);
        let (any, _) = most_with(u64::MAX);
        assert!(
            any > some,
            "{any} with as much memory as it likes, {some} with little"
        );
    });
}
