//! Segments by priority: items promoted by reads stay, and the others do not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use flowstone_engine::placement::Look;
use flowstone_engine::{
    Engine, EngineConfig, ExactSettings, Layout, ReclaimPolicy, Reserve, StaticReserve, Stop,
};
use rand::Rng;

use crate::support::{
    Left, SEGMENT_BYTES, for_each_seed, get, memory_disk, numbered, objects, random, remove, set,
    simulate, start, survivors, tight, value,
};

const FLASH_BYTES: u64 = 41 << 20;
/// Number of items in the base, and number of items that are read.
const BASE: u64 = 4000;
const READ: usize = 1000;

/// Returns the smallest engine, built like `RIPQ`.
fn ripq() -> EngineConfig {
    let mut config = EngineConfig {
        placement: Arc::new(ExactSettings {
            layout: Layout::Packed,
            priorities: 8,
        }),
        write_back: None,
        ..tight()
    };
    config.reclaim.policy = ReclaimPolicy::CopyPromoted;
    config.reclaim.bound_copies = false;
    config.reclaim.reserve = Reserve::Static(StaticReserve {
        low_percent: 2,
        high_percent: 10,
    });
    config.writing.buffers = 12;
    config
}

async fn write(engine: &Arc<Engine>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let stored = set(engine, &numbered(number), &value(number, 2000)).await;
        stored.unwrap();
        if number % 8 == 0 {
            // Reclaim keeps up, so that nothing is dropped under pressure.
            runtime::sleep(Duration::from_micros(200)).await;
        }
    }
}

/// Marks every fourth item of the base as read, without bringing it from flash into memory.
fn read_base(engine: &Arc<Engine>) {
    for number in (0..BASE).step_by(4) {
        let name = numbered(number);
        engine
            .placement()
            .probe(engine.key(&name).unwrap().hash(), Look::Read);
    }
}

/// Returns how many read and unread items of the base are found.
async fn found(engine: &Arc<Engine>) -> (usize, usize) {
    let read = survivors(engine, (0..BASE).step_by(4)).await;
    let unread = survivors(engine, (0..BASE).filter(|number| number % 4 != 0)).await;
    (read, unread)
}

/// An item that is read once is copied once, to a priority where no later item pushes it down.
#[test]
fn what_was_promoted_survives_turnovers_and_what_was_not_does_not() {
    for_each_seed(
        "what_was_promoted_survives_turnovers_and_what_was_not_does_not",
        2,
        |seed| {
            simulate(seed, async {
                let engine = start(&memory_disk(FLASH_BYTES), &ripq()).await;
                write(&engine, 0..BASE + 8000).await;
                read_base(&engine);
                // Four times the capacity of the flash.
                write(&engine, BASE + 8000..BASE + 88_000).await;
                let (read, unread) = found(&engine).await;
                let stats = engine.flash_stats();
                assert!(
                    read > READ * 19 / 20 && unread == 0,
                    "{read} read, {unread} unread; {stats:?}"
                );
                // Once each; the items of one segment may still have been in memory.
                let copied = stats.items_copied as usize;
                assert!(copied <= READ && copied > READ * 9 / 10, "{stats:?}");
            });
        },
    );
}

/// More items are promoted than fit the priorities above the lowest: items that are not read again go.
#[test]
fn what_was_promoted_moves_down_when_others_are_and_goes_unless_it_is_read_again() {
    simulate(1, async {
        let engine = start(&memory_disk(FLASH_BYTES), &ripq()).await;
        write(&engine, 0..BASE + 8000).await;
        read_base(&engine);
        let promote = |number: u64| {
            let name = numbered(number);
            engine
                .placement()
                .probe(engine.key(&name).unwrap().hash(), Look::Read);
        };
        // Every second later item is read once while it is on flash.
        let mut read_again = 0;
        for number in BASE + 8000..BASE + 108_000 {
            write(&engine, number..number + 1).await;
            if number % 2 == 0 {
                promote(number - 7000);
            }
            if number % 4 == 0 {
                // Half of the read items of the base.
                promote(read_again);
                read_again = (read_again + 8) % BASE;
            }
        }
        let again = survivors(&engine, (0..BASE).step_by(8)).await;
        let once = survivors(&engine, (4..BASE).step_by(8)).await;
        let stats = engine.flash_stats();
        assert!(again > 400, "{again} of 500 read again; {stats:?}");
        assert!(once < 50, "{once} of 500 read once; {stats:?}");
    });
}

#[test]
fn what_was_promoted_before_a_restart_is_copied_after_it() {
    simulate(1, async {
        let media = memory_disk(FLASH_BYTES);
        let engine = start(&media, &ripq()).await;
        write(&engine, 0..BASE + 8000).await;
        read_base(&engine);
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        let engine = start(&media, &ripq()).await;
        write(&engine, BASE + 8000..BASE + 88_000).await;
        let (read, unread) = found(&engine).await;
        assert!(
            read > READ * 19 / 20 && unread == 0,
            "{read} read, {unread} unread"
        );
    });
}

/// Promoted items are copied: even if all items are, writes go on.
#[test]
fn writes_go_on_where_everything_is_read() {
    simulate(1, async {
        let engine = start(&memory_disk(FLASH_BYTES), &ripq()).await;
        for number in 0..60_000 {
            write(&engine, number..number + 1).await;
            for back in [3000, 5000, 8000, 12_000] {
                if number >= back {
                    let name = numbered(number - back);
                    engine
                        .placement()
                        .probe(engine.key(&name).unwrap().hash(), Look::Read);
                }
            }
        }
        let held = objects(&engine) * 2000;
        assert!(held > FLASH_BYTES / 2, "{held} bytes");
        let stats = engine.flash_stats();
        assert!(stats.items_copied > 1000, "{stats:?}");
        assert!(
            stats.bytes_copied < 20 * 60_000 * 2000,
            "copied again and again: {stats:?}"
        );
    });
}

/// Versions decide after a kill, in whichever priorities the copies of a key lie.
#[test]
fn a_kill_brings_nothing_back_that_was_overwritten_or_removed() {
    const KEYS: u64 = 40_000;
    for_each_seed(
        "a_kill_brings_nothing_back_that_was_overwritten_or_removed",
        2,
        |seed| {
            simulate(seed, async {
                let (disk, media) = Left::new(device::Image::new(FLASH_BYTES)).media();
                let engine = start(&media, &ripq()).await;
                let mut random = random(seed);
                let mut latest: HashMap<u64, u64> = HashMap::new();
                for tag in 0..120_000u64 {
                    let number = random.random_range(0..KEYS);
                    match random.random_range(0..8) {
                        0 => {
                            remove(&engine, number).await;
                            latest.remove(&number);
                        }
                        1..4 => {
                            let seen = get(&engine, &numbered(number)).await;
                            let expected = latest.get(&number).map(|&tag| value(tag, 1500));
                            assert!(seen.is_none() || seen == expected, "item {number}");
                        }
                        _ => {
                            let stored = set(&engine, &numbered(number), &value(tag, 1500)).await;
                            stored.unwrap();
                            latest.insert(number, tag);
                        }
                    }
                    if tag % 8 == 0 {
                        runtime::sleep(Duration::from_micros(200)).await;
                    }
                    if tag % 30_000 == 29_999 {
                        let (_disk, left) = Left::of(&disk, &media).media();
                        let again = start(&left, &ripq()).await;
                        let mut found = 0;
                        for number in 0..KEYS {
                            let seen = get(&again, &numbered(number)).await;
                            let expected = latest.get(&number).map(|&tag| value(tag, 1500));
                            assert!(seen.is_none() || seen == expected, "item {number}");
                            found += u64::from(seen.is_some());
                        }
                        // Items in memory are lost: in the beginning nearly all.
                        assert!(tag < 60_000 || found > KEYS / 8, "{found} found");
                    }
                }
                let stats = engine.flash_stats();
                let segment_items = u64::from(SEGMENT_BYTES) / 1600;
                assert!(stats.items_copied > 10 * segment_items, "{stats:?}");
            });
        },
    );
}
