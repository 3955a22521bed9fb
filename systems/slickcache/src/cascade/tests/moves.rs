//! Mappings on their way through the tiers: of two mappings of a key the newer one is found, wherever both are.

use super::*;

const KEYS: u64 = 6000;

#[test]
fn what_has_left_tier_1_is_found_below() {
    in_simulation(1, || async {
        let mut bench = Bench::new(config());
        bench.insert_all(0..KEYS).await;
        bench.check_all(0..KEYS).await;
        let counters = &bench.cascade.counters;
        for found in [&counters.tier2_hits, &counters.tier3_hits] {
            assert!(found.load(Ordering::Relaxed) > 100, "{counters:?}");
        }
    });
}

#[test]
fn a_buried_key_stays_so_when_its_tombstone_moves_down() {
    in_simulation(1, || async {
        let mut bench = Bench::new(config());
        bench.insert_all(0..KEYS).await;
        for key in (0..KEYS).step_by(10) {
            bench.bury(key);
        }
        bench.check_all(0..KEYS).await;
        bench.insert_all(KEYS..2 * KEYS).await;
        bench.check_all(0..2 * KEYS).await;
    });
}

#[test]
fn a_filter_of_a_list_denies_none_of_the_keys_behind_it() {
    in_simulation(1, || async {
        let bench = Bench::with_a_long_list(long_list()).await;
        for &key in bench.model.keys() {
            bench.check(key).await;
        }
    });
}

/// While a look-up reads the older mapping on flash, a newer one comes into Tier 1 and leaves it again.
#[test]
fn a_look_up_puts_no_mapping_into_tier_1_that_was_overtaken() {
    in_simulation(1, || async {
        const KEY: u64 = 7;
        let latency = Latency {
            read: Duration::from_millis(1),
            ..Latency::default()
        };
        let mut bench = Bench::with_latency(config(), latency);
        bench.insert_all(0..KEYS).await;
        assert_eq!(bench.cascade.tiers.lookup(hash_of(KEY)), None);
        let older = bench.expected(KEY).expect("it has been inserted");
        let cascade = Arc::clone(&bench.cascade);
        let search = runtime::spawn(async move { cascade.searches.search(hash_of(KEY)).await });
        runtime::sleep(Duration::from_micros(100)).await;
        let newer = bench.place(u32::MAX);
        let inserted = bench.cascade.tiers.insert(hash_of(KEY), newer, true);
        inserted.expect("there is space");
        bench.model.insert(KEY, Some(newer));
        let number = bench.cascade.tiers.number_of(hash_of(KEY));
        let upkeep = bench.cascade.upkeep(number);
        while bench.cascade.tiers.lookup(hash_of(KEY)).is_some() {
            upkeep.demote(&mut bench.cascade.tiers.lock(hash_of(KEY)));
        }
        let found = search.await.expect("it ends");
        assert!(
            matches!(found, Searched::At(code, _) if code == older),
            "{found:?}"
        );
        bench.check(KEY).await;
    });
}
