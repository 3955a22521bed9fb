//! The placement `runs`: items collect in memory, are written in the order of their hashes, and are found again.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::{Image, Latency, MemoryDisk};
use flowstone_engine::config::{META_BYTES, Sizes};
use flowstone_engine::format::FormatError;
use flowstone_engine::format::item::ItemRef;
use flowstone_engine::format::run_header::HEADER_VERSION;
use flowstone_engine::format::segment::{FOOTER_BYTES, Position, SUMMARY_ENTRY_BYTES};
use flowstone_engine::inspect::{self, Flaw, InspectOptions, Inspection};
use flowstone_engine::preset::RUNS;
use flowstone_engine::{
    DumpCursor, Engine, EngineConfig, MemoryCursor, Put, ReclaimPolicy, Stop, Victim,
};
use futures_util::future::join_all;
use rand::Rng;
use runtime::sim::Sim;

use crate::inspect::{inspect_left, inspect_media, sound};
use crate::support::{
    Left, Media, for_each_seed, get, numbered, random, remove, run_background, set, simulate,
    start, value,
};

const FLASH_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u64 = 1 << 20;

fn config() -> EngineConfig {
    (RUNS.config)(Sizes {
        memory_bytes: 16 << 20,
        flash_bytes: FLASH_BYTES,
        block_bytes: None,
        segment_bytes: Some(SEGMENT_BYTES as u32),
        buffer_bytes: None,
        max_value_bytes: 200_000,
    })
}

fn media() -> (Arc<MemoryDisk>, Media) {
    let disk = MemoryDisk::with_latency(META_BYTES + FLASH_BYTES, Latency::default());
    let disk = Arc::new(disk);
    (disk.clone(), Media::with_words(disk, vec![0; 1 << 17]))
}

/// Returns how many of the items the cache has; none is another version than the latest.
async fn hits(engine: &Arc<Engine>, latest: &HashMap<u64, Option<Vec<u8>>>) -> usize {
    let mut hits = 0;
    for (number, expected) in latest {
        if let Some(found) = get(engine, &numbered(*number)).await {
            assert_eq!(Some(found), *expected, "item {number}");
            hits += 1;
        }
    }
    hits
}

/// Returns a value, of which one in `large` takes an entry of its own in the index.
fn any_value(random: &mut impl Rng, large: u32) -> Vec<u8> {
    let len = match random.random_range(0..large) {
        0 => random.random_range(3000..9000),
        _ => random.random_range(20..600),
    };
    value(random.random(), len)
}

#[test]
fn items_are_found_in_runs_and_after_a_restart() {
    for_each_seed(
        "runs::items_are_found_in_runs_and_after_a_restart",
        3,
        |seed| {
            let mut random = random(seed);
            let (disk, media) = media();
            let mut latest = HashMap::new();
            simulate(seed, async {
                let engine = start(&media, &config()).await;
                for _ in 0..80_000u64 {
                    let number = random.random_range(0..40_000);
                    if random.random_range(0..10) == 0 {
                        remove(&engine, number).await;
                        latest.insert(number, None);
                        continue;
                    }
                    let bytes = any_value(&mut random, 100);
                    set(&engine, &numbered(number), &bytes).await.unwrap();
                    latest.insert(number, Some(bytes));
                }
                let living = latest.values().flatten().count();
                let found = hits(&engine, &latest).await;
                assert!(found == living, "{found} of {living}");
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            });
            let words = media.journal.crash();
            let disk = MemoryDisk::from_image(disk.snapshot(), Latency::default());
            let media = Media::with_words(Arc::new(disk), words);
            simulate(seed, async {
                let engine = start(&media, &config()).await;
                let living = latest.values().flatten().count();
                let found = hits(&engine, &latest).await;
                assert!(found == living, "{found} of {living}");
                let mut dumped = HashSet::new();
                let mut visit = |item: ItemRef<'_>| {
                    dumped.insert(item.key.to_vec());
                    ControlFlow::Continue(())
                };
                let mut cursor = MemoryCursor::default();
                while engine.dump_memory(&mut cursor, &mut visit) {}
                let mut cursor = DumpCursor::default();
                while engine.dump_flash(&mut cursor, &mut visit).await {}
                assert!(dumped.len() == living, "{} of {living}", dumped.len());
            });
        },
    );
}

/// Recovery goes from the newest segment to the oldest: a copy found before it has ended is the latest version. Large items and
/// small ones of the same keys take turns, so that entries of their own lie between runs.
#[test]
fn the_latest_versions_are_found_before_recovery_has_ended() {
    for_each_seed(
        "runs::the_latest_versions_are_found_before_recovery_has_ended",
        3,
        |seed| {
            let mut random = random(seed);
            let (disk, media) = media();
            let mut latest = HashMap::new();
            simulate(seed, async {
                let engine = start(&media, &config()).await;
                for _ in 0..60_000u64 {
                    let number = random.random_range(0..10_000);
                    let bytes = any_value(&mut random, 50);
                    set(&engine, &numbered(number), &bytes).await.unwrap();
                    latest.insert(number, Some(bytes));
                }
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            });
            let words = media.journal.crash();
            let slow = Latency {
                read: Duration::from_millis(1),
                ..Latency::default()
            };
            let disk = MemoryDisk::from_image(disk.snapshot(), slow);
            let media = Media::with_words(Arc::new(disk), words);
            simulate(seed, async {
                let engine = media.open(&config()).await.unwrap();
                run_background(&engine);
                let mut early = 0;
                while engine.recovery().is_running {
                    let mut asked = HashMap::new();
                    for _ in 0..50 {
                        let number = random.random_range(0..10_000);
                        asked.insert(number, latest.get(&number).cloned().flatten());
                    }
                    let parts = asked.into_iter().map(|(number, bytes)| {
                        let one = HashMap::from([(number, bytes)]);
                        let engine = &engine;
                        async move { hits(engine, &one).await }
                    });
                    early += join_all(parts).await.into_iter().sum::<usize>();
                    runtime::sleep(Duration::from_millis(1)).await;
                }
                assert!(early > 50, "{early} found before the end");
                assert_eq!(hits(&engine, &latest).await, latest.len());
            });
        },
    );
}

#[test]
fn a_run_has_all_that_its_group_has_collected() {
    let (_, media) = media();
    simulate(1, async {
        let engine = start(&media, &config()).await;
        for number in 0..120_000 {
            set(&engine, &numbered(number), &[7; 250]).await.unwrap();
        }
        let stats = engine.index_stats();
        let items = engine.flash_stats().objects - stats.get("index_own_entries");
        let runs = stats.get("index_runs");
        assert!(items / runs > 1550, "{items} items in {runs} runs");
    });
}

/// Fills the segments several times over, and reads some items now and then, long after they have left memory; every other one is
/// then overwritten. Returns how many of those that are not overwritten are found at the end, and how many items were taken back.
fn kept_by_reads(config: &EngineConfig) -> (usize, u64) {
    const READ: u64 = 2000;
    let (_, media) = media();
    let mut latest: HashMap<u64, Option<Vec<u8>>> = HashMap::new();
    simulate(1, async {
        let engine = start(&media, config).await;
        for number in 0..600_000 {
            let bytes = value(number, 250);
            set(&engine, &numbered(number), &bytes).await.unwrap();
            // No faster than reclaim.
            runtime::sleep(Duration::from_micros(20)).await;
            if number < READ {
                latest.insert(number, Some(bytes));
            }
            if number % 50_000 == 49_999 {
                hits(&engine, &latest).await;
                for read in (0..READ).step_by(2) {
                    let bytes = value(number + read, 250);
                    set(&engine, &numbered(read), &bytes).await.unwrap();
                    latest.insert(read, Some(bytes));
                }
            }
        }
        hits(&engine, &latest).await;
        latest.retain(|number, _| number % 2 == 1);
        let found = hits(&engine, &latest).await;
        (found, engine.flash_stats().items_returned)
    })
}

/// Items are taken back in their latest version.
#[test]
fn items_that_are_read_while_they_are_old_are_taken_back() {
    let (found, returned) = kept_by_reads(&config());
    // One in eight is not taken back, at each turn of the flash: a newer run seems to have its key.
    assert!(found > 500, "{found} found");
    assert!((500..20_000).contains(&returned), "{returned} taken back");
    let mut dropping = config();
    dropping.reclaim.policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    let (found, returned) = kept_by_reads(&dropping);
    assert!(found < 300 && returned == 0, "{found} found");
}

/// Returns the places of the run headers on a disk, each with the hash of its name: those of a segment in their order.
fn headers(image: &Image) -> Vec<(u64, u64)> {
    let number = |at: u64, bytes: usize| {
        let mut number = [0; 8];
        image.read(at, &mut number[..bytes]);
        u64::from_le_bytes(number)
    };
    let mut found = Vec::new();
    for segment in 0..FLASH_BYTES / SEGMENT_BYTES {
        let start = META_BYTES + segment * SEGMENT_BYTES;
        let footer = start + SEGMENT_BYTES - u64::from(FOOTER_BYTES);
        let items = number(footer + 20, 4);
        for item in 1..=items {
            let entry = footer - item * u64::from(SUMMARY_ENTRY_BYTES);
            if number(entry + 8, 8) == HEADER_VERSION {
                let position = Position::from_bits(number(entry + 20, 4) as u32);
                found.push((start + u64::from(position.offset()), number(entry, 8)));
            }
        }
    }
    found
}

/// Stores two versions of the same items, stops, and lets `damage` change the disk. Returns how many of the second ones a start
/// then finds; it finds none of the first.
fn found_after(damage: impl Fn(&mut Image)) -> usize {
    let (disk, media) = media();
    let mut latest = HashMap::new();
    simulate(1, async {
        let engine = start(&media, &config()).await;
        for version in 0..2 {
            for number in 0..30_000 {
                let bytes = value(number * 2 + version, 250);
                set(&engine, &numbered(number), &bytes).await.unwrap();
                latest.insert(number, Some(bytes));
            }
        }
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    });
    let mut image = disk.snapshot();
    damage(&mut image);
    let disk = MemoryDisk::from_image(image, Latency::default());
    let media = Media::with_words(Arc::new(disk), media.journal.crash());
    simulate(1, async {
        let engine = start(&media, &config()).await;
        hits(&engine, &latest).await
    })
}

#[test]
fn a_run_whose_header_is_lost_once_is_found_by_the_other_copy() {
    let found = found_after(|image| {
        let mut seen = std::collections::HashSet::new();
        for (at, name) in headers(image) {
            if seen.insert(name) {
                image.flip_bit(at + 60, 1);
            }
        }
        assert!(seen.len() > 20, "{} runs", seen.len());
    });
    assert_eq!(found, 30_000);
}

#[test]
fn a_run_whose_header_is_lost_twice_brings_nothing_older_back() {
    let found = found_after(|image| {
        let (_, last) = *headers(image).last().unwrap();
        for (at, name) in headers(image) {
            if name == last {
                image.flip_bit(at + 60, 1);
            }
        }
    });
    assert!(found < 30_000);
}

/// Returns the state after random operations of every kind, and a stop or a crash, and the keys that were used.
fn left_behind(seed: u64) -> (Left, u64) {
    const KEYS: u64 = 60_000;
    let sim = Sim::new(seed);
    let mut random = random(seed);
    let (disk, media) = media();
    for run in 0..2 {
        sim.block_on(async {
            let engine = start(&media, &config()).await;
            for number in 0..60_000 {
                let now = runtime::unix_seconds();
                let key = numbered(random.random_range(0..KEYS));
                let key = engine.key(&key).unwrap();
                match random.random_range(0..100_000) {
                    0..10_000 => engine.remove(key, now).await.unwrap(),
                    10_000..10_020 => {
                        assert!(engine.checkpoint_now().await);
                    }
                    10_020..10_023 if run == 0 => engine.flush_all(now).await,
                    other => {
                        let len = match other % 100 {
                            0 => random.random_range(3000..9000),
                            _ => random.random_range(20..600),
                        };
                        let put = Put {
                            value: value(number, len).into(),
                            expiry: if other < 20_000 { now + 1 } else { 0 },
                            ..Put::default()
                        };
                        engine.set(key, now, &put).await.unwrap();
                    }
                }
            }
            runtime::sleep(Duration::from_secs(2)).await;
            if seed.is_multiple_of(2) {
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            }
        });
        sim.crash();
    }
    (Left::of(&disk, &media), KEYS)
}

#[test]
fn an_inspection_counts_what_the_next_start_finds() {
    for_each_seed(
        "runs::an_inspection_counts_what_the_next_start_finds",
        4,
        |seed| {
            let (left, keys) = left_behind(seed);
            let inspection = sound(&left);
            let found = simulate(2, async {
                let engine = start(&left.media().1, &config()).await;
                let mut found = 0;
                for number in 0..keys {
                    found += u64::from(get(&engine, &numbered(number)).await.is_some());
                }
                found
            });
            let items = inspection.items;
            assert_eq!(items.alive, found, "{items:?}");
            assert!(items.superseded + items.overwritten > 0, "{items:?}");
            // With memory for a few items at a time the report is the same.
            let few = simulate(3, async {
                let options = InspectOptions {
                    verify: false,
                    memory_bytes: items.listed / 3 * inspect::ITEM_BYTES,
                };
                inspect_media(&left.media().1, options).await.unwrap()
            });
            assert_eq!(few.items, items);
        },
    );
}

/// Returns the damage that an inspection finds, with and without reading all items, after `damage` has changed the disk.
fn flaws_after(damage: impl Fn(&mut Image)) -> [Inspection; 2] {
    let (disk, media) = media();
    simulate(1, async {
        let engine = start(&media, &config()).await;
        for number in 0..30_000 {
            set(&engine, &numbered(number), &[7; 250]).await.unwrap();
        }
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    });
    let mut left = Left::of(&disk, &media);
    damage(&mut left.image);
    [false, true].map(|verify| inspect_left(&left, verify).unwrap())
}

#[test]
fn an_inspection_finds_damage_to_runs_and_their_headers() {
    let [quick, whole] = flaws_after(|_| {});
    assert!(quick.is_sound() && whole.is_sound());
    assert_eq!(whole.verified.unwrap().items_sound, 30_000);
    let first = |image: &Image| headers(image)[0];
    let [quick, whole] = flaws_after(|image| image.flip_bit(first(image).0 + 60, 1));
    for inspection in [&quick, &whole] {
        assert!(!inspection.is_sound());
        assert_eq!(inspection.items.alive, 30_000, "the other copy serves");
        let [place] = inspection.flaws[..] else {
            panic!("{:?}", inspection.flaws);
        };
        assert_eq!(place.flaw, Flaw::RunHeader(FormatError::Checksum));
    }
    // An item of the first run.
    let [quick, whole] = flaws_after(|image| image.flip_bit(META_BYTES + 4096 + 900, 1));
    assert!(quick.is_sound(), "{:?}", quick.flaws);
    let [place] = whole.flaws[..] else {
        panic!("{:?}", whole.flaws);
    };
    let Flaw::OfRun(missing) = place.flaw else {
        panic!("{place:?}");
    };
    let verified = whole.verified.unwrap();
    assert!((1..=16).contains(&missing));
    assert_eq!(verified.items_corrupt, u64::from(missing));
    assert_eq!(verified.items_sound, 30_000 - u64::from(missing));
    assert_eq!(quick.items.alive, verified.items_sound);
}
