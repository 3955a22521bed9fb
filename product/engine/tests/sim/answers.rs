//! Answers of the cache against those of a plain map, with different placements and policies.

use std::sync::Arc;
use std::time::Duration;

use flowstone_engine::{
    AdmissionKind, AdmitGhosts, AdmitRandom, Amend, Change, EngineConfig, Peek,
};

use crate::filter::filtered;
use crate::map_placement::MapKind;
use crate::model::{Misses, run, run_on};
use crate::support::{
    Media, for_each_seed, get, get_item, memory_disk, numbered, set, simulate, slotted, start,
    tight, value,
};

#[test]
fn answers_are_the_maps_when_flash_has_room_for_all() {
    for_each_seed("answers_are_the_maps_when", 60, |seed| {
        run(seed, tight(), 257 << 20, Misses::Never, 2500);
    });
}

#[test]
fn answers_are_the_maps_or_misses_when_flash_is_small() {
    for_each_seed("answers_are_the_maps_or", 60, |seed| {
        run(seed, tight(), 9 << 20, Misses::Allowed, 4000);
    });
}

#[test]
fn answers_of_write_buffers_and_slots_are_the_maps_or_misses() {
    for_each_seed("answers_of_write_buffers", 30, |seed| {
        let (flash_mib, misses) = match seed % 3 {
            0 => (257, Misses::Never),
            1 => (41, Misses::Allowed),
            _ => (9, Misses::Allowed),
        };
        run(seed, slotted(seed), flash_mib << 20, misses, 3000);
    });
}

/// Like the tests above, with memory as a filter and each kind of admission.
#[test]
fn answers_behind_a_filter_are_the_maps_or_misses() {
    for_each_seed("answers_behind_a_filter", 40, |seed| {
        let admission: [Arc<dyn AdmissionKind>; 2] = [
            Arc::new(AdmitGhosts { reads: 1 }),
            Arc::new(AdmitRandom { per_mille: 500 }),
        ];
        let admission = Arc::clone(&admission[seed as usize / 2 % 2]);
        let config = filtered(admission, tight());
        let flash_mib = if seed % 2 == 0 { 41 } else { 9 };
        run(seed, config, flash_mib << 20, Misses::Allowed, 4000);
    });
}

/// Like the tests above, with an index that locates no displaced item; each start rebuilds it or finds it in a checkpoint.
#[test]
fn answers_of_a_placement_that_says_perhaps_are_the_maps_or_misses() {
    for_each_seed("answers_of_a_placement", 30, |seed| {
        let (flash_mib, misses) = match seed % 2 {
            0 => (257, Misses::Never),
            _ => (9, Misses::Allowed),
        };
        let disk = Media {
            placement: Some(Arc::new(match seed % 4 {
                0 | 1 => MapKind::REBUILT,
                _ => MapKind::SURVIVING,
            })),
            ..memory_disk(flash_mib << 20)
        };
        run_on(seed, tight(), disk, misses, 2500);
    });
}

#[test]
fn a_flush_that_has_come_is_not_undone_by_a_later_one() {
    simulate(1, async {
        let engine = start(&memory_disk(64 << 20), &tight()).await;
        let now = runtime::unix_seconds();
        for number in 0..50 {
            set(&engine, &numbered(number), b"old").await.unwrap();
        }
        engine.flush_all(now + 10).await;
        runtime::sleep(Duration::from_secs(11)).await;
        // No item has been read since the deadline.
        engine.flush_all(now + 1000).await;
        for number in 0..50 {
            assert_eq!(get(&engine, &numbered(number)).await, None);
        }
    });
}

#[test]
fn items_too_large_for_memorys_share_are_stored_read_and_changed() {
    simulate(1, async {
        // 64 partitions of less than 100 KiB each.
        let config = EngineConfig {
            partition_bits: 6,
            ..tight()
        };
        let disk = memory_disk(64 << 20);
        let engine = start(&disk, &config).await;
        let now = runtime::unix_seconds();
        for number in 0..40 {
            let stored = set(&engine, &numbered(number), &value(number, 200_000)).await;
            stored.unwrap();
        }
        for number in 0..40 {
            let name = numbered(number);
            let key = engine.key(&name).unwrap();
            let touched = engine
                .modify(key, now, |item| {
                    let flags = Amend {
                        expiry: Some(now + 500),
                        ..Amend::default()
                    };
                    (Change::Amend(flags), item.map(|item| item.value.to_vec()))
                })
                .await
                .unwrap();
            assert_eq!(touched.result, Some(value(number, 200_000)));
        }
        for number in 0..40 {
            let item = get_item(&engine, &numbered(number), Peek::No)
                .await
                .unwrap();
            assert_eq!(
                (item.expiry, item.value),
                (now + 500, value(number, 200_000))
            );
        }
        let reads = engine.store().counters().reads.sum();
        assert!(reads <= 80, "{reads} flash reads for 80 requests");
    });
}
