//! Items that reclaim has copied but not yet written: a kill loses a limited number of them, if a limit is set.

use std::time::Duration;

use flowstone_engine::{Dram, EngineConfig, ReclaimPolicy, Schedule, Victim};
use rand::Rng;

use crate::support::{
    Left, SEGMENT_BYTES, for_each_seed, get, in_slots, numbered, random, set, simulate, start,
    survivors, tight, value,
};

/// Bytes of the shortest values.
const LEAST_BYTES: usize = 900;

/// Syncs a base of items, half of the flash, and turns over the other items so that reclaim copies the base again and again.
/// Returns the most items of the base that a kill loses, besides evicted ones.
fn most_taken_by_a_kill(seed: u64, config: &EngineConfig) -> u64 {
    const BASE: u64 = 9_000;
    const OTHERS: u64 = 1_500;
    simulate(seed, async {
        let (disk, media) = Left::new(device::Image::new(41 << 20)).media();
        let engine = start(&media, config).await;
        let mut random = random(seed);
        for number in 0..BASE {
            let bytes = value(number, random.random_range(LEAST_BYTES..2000));
            set(&engine, &numbered(number), &bytes).await.unwrap();
        }
        engine.sync().await.unwrap();
        let mut most = 0;
        for number in 0..60_000 {
            let key = numbered(BASE + random.random_range(0..OTHERS));
            let bytes = value(number, random.random_range(LEAST_BYTES..2000));
            set(&engine, &key, &bytes).await.unwrap();
            get(&engine, &numbered(random.random_range(0..BASE))).await;
            if number % 64 == 0 {
                runtime::sleep(Duration::from_millis(1)).await;
            }
            if number % 4000 == 3999 {
                let evicted = engine.flash_stats().items_evicted;
                let (_disk, left) = Left::of(&disk, &media).media();
                let again = start(&left, config).await;
                let found = survivors(&again, 0..BASE).await as u64;
                most = most.max((BASE - found).saturating_sub(evicted));
            }
        }
        let stats = engine.flash_stats();
        assert!(stats.items_copied > BASE, "{stats:#?}");
        most
    })
}

/// Number of items in two segments: the most that a kill loses if copies are bounded.
const BOUND: u64 = 2 * SEGMENT_BYTES as u64 / LEAST_BYTES as u64;

const RECENT: ReclaimPolicy = ReclaimPolicy::CopyRecent {
    victim: Victim::Oldest,
    max_copy_sixteenths: 15,
};
const VALID: ReclaimPolicy = ReclaimPolicy::CopyValid {
    victim: Victim::Oldest,
    max_copy_sixteenths: 15,
};

/// Returns an engine whose sealed segments stay in buffers, and whose reclaim copies to these.
fn copies_to_buffers(policy: ReclaimPolicy, schedule: Schedule) -> EngineConfig {
    let mut config = EngineConfig {
        dram: Dram::WriteBuffers {
            spare_buffers: Some(5),
        },
        placement: in_slots(),
        write_back: None,
        ..tight()
    };
    config.writing.writers = 4;
    config.reclaim.policy = policy;
    config.reclaim.schedule = schedule;
    config.reclaim.reclaimers = 4;
    config
}

#[test]
fn a_kill_takes_two_segments_worth_of_copies_at_most_though_segments_stay_in_buffers() {
    for_each_seed(
        "a_kill_takes_two_segments_worth_of_copies_at_most_though_segments_stay_in_buffers",
        3,
        |seed| {
            let (policy, schedule) = [
                (RECENT, Schedule::Background),
                (VALID, Schedule::Background),
                (VALID, Schedule::OnDemand),
            ][seed as usize % 3];
            let taken = most_taken_by_a_kill(seed, &copies_to_buffers(policy, schedule));
            assert!(taken <= BOUND, "{taken} of {BOUND} items");
        },
    );
}

#[test]
fn where_copies_are_not_bounded_a_kill_takes_more_of_them() {
    for_each_seed(
        "where_copies_are_not_bounded_a_kill_takes_more_of_them",
        1,
        |seed| {
            let mut config = copies_to_buffers(VALID, Schedule::OnDemand);
            config.reclaim.bound_copies = false;
            let taken = most_taken_by_a_kill(seed, &config);
            assert!(taken > BOUND, "{taken} of {BOUND} items");
        },
    );
}
