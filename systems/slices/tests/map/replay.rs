//! Starts that replay records already named by the table, some of which have decayed.

use std::time::Duration;

use flowstone_slices::{HashSettings, MapSettings, SliceError};
use runtime::sim::Sim;

use crate::common::hardware::seeds;
use crate::common::structure::{changed, damaged, fill};
use crate::life::{Hardware, key, opened, small, used_without_power};

/// The table is nearly full, and starts replay half of its entries again and again: the entries of the other half stay.
#[test]
fn starts_displace_no_entry_whose_record_is_there() {
    let settings = MapSettings {
        table: HashSettings {
            partitions: None,
            ..small(8).table
        },
        segment_bytes: 64 << 10,
        ..small(8)
    };
    let mut replayed = 0;
    for seed in all_seeds(12) {
        let mut synced = 0;
        let mut hardware = used_without_power(&settings, 1, seed, async |map, _| {
            let table = map.shape().table;
            let entries = 8 * u64::from(table.partitions) * u64::from(table.table_entries);
            let keys = entries / 20 * 19;
            for of in 0..keys {
                let inserted = map.insert(&key(of), &[7; 8]).await;
                inserted.expect("drives work");
                if of == keys / 2 {
                    map.sync().await.expect("drives work");
                }
            }
            assert_eq!(map.stats().table.evicted, 0, "it has space for all");
            synced = keys / 2;
        });
        for start in 0..seed % 4 {
            let sim = Sim::new(start);
            sim.block_on(async {
                let _ = runtime::timeout(Duration::from_millis(40), hardware.open(&settings)).await;
            });
            let left = hardware.without_power(seed + 100 * start);
            sim.crash();
            hardware = Hardware::of(left, seed);
        }
        opened(&hardware, &settings, seed, async |map| {
            replayed += map.stats().record_bytes;
            for of in 0..=synced {
                let found = map.get(&key(of)).await.expect("drives work");
                assert!(found.is_some(), "seed {seed}: key {of} of {synced}");
            }
        });
    }
    assert!(replayed > 1 << 20, "{replayed} bytes");
}

/// The newest record of a key has decayed, and a start replays older ones: the key is damaged, and has no older value.
#[test]
fn what_has_decayed_uncovers_no_older_value() {
    let settings = small(40);
    let mut all = 0;
    for seed in all_seeds(40) {
        let again = used_without_power(&settings, 1, seed, async |map, _| {
            fill(&map, (0..600).map(|of| changed(of % 150, of / 150))).await;
            // More records than the log holds.
            fill(&map, 1_000..1_600).await;
            map.sync().await.expect("drives work");
        });
        Sim::new(seed).block_on(async {
            let pages = [26, 30, 34].map(|page| page + seed % 4);
            again.decay(0, pages, 40 * seed).await;
            let map = again.open(&settings).await.expect("drives work");
            let newest = (0..150).map(|of| changed(of, 3));
            all += damaged(&map, newest, false, &format!("seed {seed}")).await;
        });
    }
    assert!(all > 20, "{all} in 40 starts");
}

/// A record that fills its segment has decayed: the records behind it stay.
#[test]
fn a_segment_whose_only_record_has_decayed_ends_no_records() {
    let settings = small(40);
    for seed in all_seeds(20) {
        let again = used_without_power(&settings, 1, seed, async |map, _| {
            for of in 0..12 {
                let inserted = map.insert(&key(of), &[of as u8; 15_000]).await;
                inserted.expect("drives work");
            }
            map.sync().await.expect("drives work");
        });
        Sim::new(seed).block_on(async {
            // Segments begin after the superblock, which takes a stripe.
            let segment = 8192 + 4 * u64::from(settings.segment_bytes);
            let decayed = again.disks[0].decay(segment + 5_000, 3);
            decayed.await.expect("it decays");
            let map = again.open(&settings).await.expect("drives work");
            for of in 100..110 {
                let inserted = map.insert(&key(of), &[of as u8; 15_000]).await;
                inserted.expect("drives work");
            }
            map.sync().await.expect("drives work");
            for of in 0..12 {
                match map.get(&key(of)).await {
                    Ok(Some(found)) => assert_eq!(found, [of as u8; 15_000], "seed {seed}"),
                    Err(SliceError::Damaged { .. }) if of == 4 => {}
                    other => panic!("seed {seed}, key {of}: {other:?}"),
                }
            }
        });
    }
}

/// Returns [`seeds`], for a test that counts an event over all of its seeds: never fewer than `usual`.
fn all_seeds(usual: u64) -> std::ops::Range<u64> {
    let seeds = seeds(usual);
    match seeds.start {
        0 => 0..seeds.end.max(usual),
        _ => seeds,
    }
}
