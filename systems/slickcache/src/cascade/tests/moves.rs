//! Mappings on their way through the tiers: of two mappings of a key the newer one is found, wherever both are.

use super::*;

const KEYS: u64 = 6000;

impl Bench {
    /// Maps these keys to new places, one after the other.
    async fn insert_all(&mut self, keys: impl Iterator<Item = u64>) {
        for key in keys {
            self.insert(key, u32::MAX).await;
            self.tidy().await;
        }
    }

    async fn check_all(&self, keys: std::ops::Range<u64>) {
        for key in keys {
            self.check(key).await;
        }
    }
}

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

/// Entries of the lists' buffers are nowhere else.
#[test]
fn a_checkpoint_has_what_waits_in_the_buffers_of_lists() {
    in_simulation(1, || async {
        let mut bench = Bench::new(config());
        bench.insert_all(0..KEYS).await;
        let buffered = |bench: &Bench| {
            let mut entries = 0;
            for partition in &bench.cascade.tiers.partitions {
                let lists = &partition.lock().lists;
                entries += lists.iter().map(|list| list.buffer.len()).sum::<usize>();
            }
            entries
        };
        let mut keys = KEYS;
        while buffered(&bench) == 0 {
            bench.insert_all(keys..keys + 1).await;
            keys += 1;
        }
        let section = bench.save(true).await;
        bench.cascade.checkpoints.saved(Some(true));
        bench.load(&section).await;
        bench.check_all(0..keys).await;
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

/// A compaction rewrites a bucket and waits for pages. Its oldest page is evicted for them, and a key of that page is buried
/// without a tombstone, since nothing is left to be hidden.
#[test]
fn a_compaction_brings_back_nothing_that_was_evicted_and_buried_meanwhile() {
    const REWRITTEN_PAGES: usize = 12;
    let sizes = Sizes {
        partitions: Some(1),
        direct_blocks: Some(1),
        direct_pages: Some(1),
        lists: Some(1),
        active_blocks: Some(2),
        active_pages: Some(1),
        ratio: Some(1),
        hot_entries: Some(40),
        page_entries: Some(40),
    };
    in_simulation(1, || async {
        let mut bench = Bench::new(CascadeConfig { sizes, ..config() });
        let cascade = Arc::clone(&bench.cascade);
        let is_due = || {
            let list = &cascade.tiers.partitions[0].lock().lists[0];
            list.blocks.len() >= 2 && list.buckets[0].pages.len() >= REWRITTEN_PAGES
        };
        for key in 0.. {
            let code = bench.place(u32::MAX);
            let inserted = cascade.tiers.insert(hash_of(key), code, true);
            inserted.expect("there is space");
            while !is_due() && cascade.upkeep(0).tidy().await {}
            if is_due() {
                break;
            }
        }
        let store = &cascade.flash.store;
        let taken: Vec<_> = std::iter::from_fn(|| store.take(1)).flatten().collect();
        let compacting = Arc::clone(&bench.cascade);
        let compacted = runtime::spawn(async move { compacting.upkeep(0).tidy().await });
        while cascade.counters.evicted.load(Ordering::Relaxed) == 0 {
            runtime::sleep(Duration::from_millis(1)).await;
        }
        let tiers = &cascade.tiers;
        let is_evicted =
            |&key: &u64| tiers.lookup(hash_of(key)).is_none() && !tiers.may_be_below(hash_of(key));
        let evicted = (0..bench.next).find(is_evicted);
        let evicted = evicted.expect("a key of the page");
        bench.bury(evicted);
        assert_eq!(tiers.lookup(hash_of(evicted)), None, "no tombstone");
        store.release(taken);
        assert_eq!(compacted.await, Some(true));
        bench.check(evicted).await;
    });
}
