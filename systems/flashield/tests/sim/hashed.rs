//! The `hashed` placement: reads by the number of a function, ghosts and hot items, updates that a read has to detect, and
//! tables in which entries of other keys lead to dead items.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Image, MemoryDisk};
use flowstone_engine::format::item::ItemRef;
use flowstone_engine::{
    Dram, DumpCursor, Engine, EngineConfig, IndexSettings, ItemView, Lookup, MemoryCursor, Peek,
    ReclaimPolicy, Stop, Victim,
};
use flowstone_flashield::HashedSettings;
use rand::Rng;

use crate::hashed_placement::HashedFor;
use crate::support::{
    Left, Media, fill, for_each_seed, get, get_item, memory_disk, numbered, random, remove, roomy,
    set, simulate, start, survivors, tight, value,
};

const RETURN: ReclaimPolicy = ReclaimPolicy::ReturnRecent {
    victim: Victim::Oldest,
};

pub(crate) fn hashed_media(flash_bytes: u64, items: u64) -> Media {
    Media {
        placement: Some(Arc::new(HashedFor(items))),
        ..memory_disk(flash_bytes)
    }
}

/// Returns the devices of a cache whose index has fewer slots than items.
fn with_few_slots(left: &Left) -> (Arc<MemoryDisk>, Media) {
    let (disk, mut media) = left.media();
    media.placement = Some(Arc::new(HashedFor(60)));
    (disk, media)
}

fn counted(engine: &Engine, name: &str) -> u64 {
    engine.index_stats().find(name).expect("a statistic")
}

/// Returns the keys and values that a dump lists; no key may occur twice.
async fn dump(engine: &Arc<Engine>) -> HashMap<Vec<u8>, Vec<u8>> {
    let mut listed = HashMap::new();
    let mut visit = |item: ItemRef<'_>| {
        let twice = listed.insert(item.key.to_vec(), item.value.to_vec());
        assert_eq!(twice, None, "{} twice", String::from_utf8_lossy(item.key));
        ControlFlow::Continue(())
    };
    let mut cursor = MemoryCursor::default();
    while engine.dump_memory(&mut cursor, &mut visit) {}
    let mut cursor = DumpCursor::default();
    while engine.dump_flash(&mut cursor, &mut visit).await {}
    listed
}

/// Waits until the list of the dead is as short as it gets.
async fn settle(engine: &Arc<Engine>) {
    engine.sync().await.unwrap();
    runtime::sleep(Duration::from_secs(1)).await;
}

#[test]
fn a_configured_cache_finds_what_it_has_written_before_and_after_a_start() {
    const ITEMS: u64 = 3000;
    simulate(1, async {
        let config = EngineConfig {
            placement: Arc::new(HashedSettings::default()),
            index: IndexSettings::of_memory(50),
            ..roomy()
        };
        let media = memory_disk(33 << 20);
        let mut engine = start(&media, &config).await;
        for number in 0..ITEMS {
            let bytes = value(number, 1000 + number as usize % 7000);
            set(&engine, &numbered(number), &bytes).await.unwrap();
        }
        for _ in 0..2 {
            for number in 0..ITEMS {
                let bytes = value(number, 1000 + number as usize % 7000);
                assert_eq!(get(&engine, &numbered(number)).await, Some(bytes));
            }
            let corrupt = &engine.store().counters().corrupt_items;
            assert_eq!(corrupt.load(Ordering::Relaxed), 0);
            assert_eq!(counted(&engine, "index_removed_unread"), 0);
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            engine = start(&media, &config).await;
        }
    });
}

/// Flash has space for all items, so that only a wrong entry loses one, and many entries lead to other keys' copies. A start
/// may lose a few: items with the mark of an entry that belonged to another key.
#[test]
fn an_update_takes_its_entry_and_no_other() {
    const KEYS: u64 = 1200;
    for_each_seed("an_update_takes_its_entry", 8, |seed| {
        simulate(seed, async {
            let mut random = random(seed);
            let media = hashed_media(65 << 20, 4 * KEYS);
            let config = EngineConfig {
                partition_bits: 1,
                ..tight()
            };
            let mut engine = start(&media, &config).await;
            let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
            // Keys of the model that a start has lost: gone until they are set again.
            let mut lost = HashSet::new();
            for round in 0..4 {
                for tag in 0..2 * KEYS {
                    let number = random.random_range(0..KEYS);
                    lost.remove(&number);
                    if random.random_ratio(1, 8) {
                        remove(&engine, number).await;
                        model.remove(&number);
                    } else {
                        let bytes = value(round * 100_000 + tag, random.random_range(0..3000));
                        set(&engine, &numbered(number), &bytes).await.unwrap();
                        model.insert(number, bytes);
                    }
                }
                settle(&engine).await;
                for name in ["index_removed_unread", "index_displaced_hot"] {
                    assert_eq!(counted(&engine, name), 0, "{name}");
                }
                for number in 0..KEYS {
                    let found = get(&engine, &numbered(number)).await;
                    let expected = model.get(&number).filter(|_| !lost.contains(&number));
                    assert_eq!(found.as_ref(), expected, "{number}");
                }
                let listed = dump(&engine).await;
                assert_eq!(listed.len(), model.len() - lost.len());
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
                engine = start(&media, &config).await;
                engine.recovered().await;
                for number in 0..KEYS {
                    match get(&engine, &numbered(number)).await {
                        None if model.contains_key(&number) => drop(lost.insert(number)),
                        found => assert_eq!(found.as_ref(), model.get(&number), "{number}"),
                    }
                }
                let (lost, all) = (lost.len(), model.len());
                assert!(lost * 100 <= 5 * all, "{lost} of {all}");
            }
        });
    });
}

/// All keys of a partition share their slots, so that nearly every entry also leads to other keys' copies.
#[test]
fn nothing_dead_is_found_by_the_entries_of_other_keys() {
    const KEYS: u64 = 300;
    for_each_seed("nothing_dead_is_found_by", 12, |seed| {
        simulate(seed, async {
            let mut random = random(seed);
            let items = [16, 60, 250][(seed % 3) as usize];
            let media = hashed_media(17 << 20, items);
            let config = EngineConfig {
                partition_bits: 0,
                ..tight()
            };
            let mut engine = start(&media, &config).await;
            let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
            let mut found = 0;
            for tag in 0..6000u64 {
                let number = random.random_range(0..KEYS);
                match random.random_range(0..20) {
                    0..9 => {
                        let bytes = value(tag, random.random_range(0..6000));
                        set(&engine, &numbered(number), &bytes).await.unwrap();
                        model.insert(number, bytes);
                    }
                    9 => {
                        remove(&engine, number).await;
                        model.remove(&number);
                    }
                    _ => {
                        if let Some(bytes) = get(&engine, &numbered(number)).await {
                            assert_eq!(Some(&bytes), model.get(&number), "{number}");
                            found += 1;
                        }
                    }
                }
                if random.random_ratio(1, 40) {
                    runtime::sleep(Duration::from_millis(20)).await;
                }
                if random.random_ratio(1, 1000) {
                    for (key, bytes) in dump(&engine).await {
                        let number = (0..KEYS).find(|&number| numbered(number) == key);
                        assert_eq!(Some(&bytes), number.and_then(|number| model.get(&number)));
                    }
                    assert!(matches!(engine.stop().await, Stop::Complete { .. }));
                    engine = start(&media, &config).await;
                }
            }
            assert!(found > 100, "{found}");
        });
    });
}

#[test]
fn a_ghost_that_is_read_is_hot_and_goes_back_to_memory() {
    const ITEMS: u64 = 24_000;
    simulate(1, async {
        let mut config = roomy();
        config.reclaim.policy = RETURN;
        let engine = start(&hashed_media(33 << 20, 30_000), &config).await;
        let hot = |nth: u64| numbered(nth * 100);
        let mut lost = 0;
        for number in 0..ITEMS {
            set(&engine, &numbered(number), &value(number, 1900))
                .await
                .unwrap();
            // Each hot item is read a few times in the life of a segment.
            if number > 2000 && number % 8 == 0 {
                let nth = number / 8 % 20;
                let found = get(&engine, &hot(nth)).await;
                lost += u64::from(found != Some(value(nth * 100, 1900)));
            }
            if number % 16 == 0 {
                runtime::sleep(Duration::from_millis(1)).await;
            }
        }
        let placement = engine.stats().placement;
        assert!(placement.segments_reclaimed > 50, "{placement:?}");
        assert!(placement.items_returned > 50, "{placement:?}");
        assert!(lost < 20, "{lost} misses");
        let [ghosts, entries] =
            ["index_ghosts", "index_entries"].map(|name| counted(&engine, name) as f64);
        let share = ghosts / entries;
        assert!((0.2..0.6).contains(&share), "{share} ghosts");
        assert!(placement.items_evicted > ITEMS / 4, "{placement:?}");
    });
}

/// Sets items one by one; some are read while they are in memory, and never again. Returns the percentage of unread and of read
/// items left later, and the engine.
async fn once_read(settings: HashedSettings) -> ([u64; 2], Arc<Engine>) {
    const ITEMS: u64 = 24_000;
    let mut config = EngineConfig {
        dram: Dram::Filter,
        placement: Arc::new(settings),
        index: IndexSettings::of_memory(50),
        ..roomy()
    };
    config.reclaim.policy = RETURN;
    let engine = start(&memory_disk(33 << 20), &config).await;
    let is_read = |number: u64| number.is_multiple_of(8);
    for number in 0..ITEMS {
        let bytes = value(number, 1900);
        set(&engine, &numbered(number), &bytes).await.unwrap();
        if is_read(number) {
            assert_eq!(get(&engine, &numbered(number)).await, Some(bytes));
        }
        if number % 16 == 0 {
            runtime::sleep(Duration::from_millis(1)).await;
        }
    }
    let mut left = [0, 0];
    let mut all = [0, 0];
    for number in ITEMS - 18_000..ITEMS - 12_000 {
        let item = get_item(&engine, &numbered(number), Peek::Yes).await;
        let kind = usize::from(is_read(number));
        all[kind] += 1;
        left[kind] += u64::from(item.is_some());
    }
    ([0, 1].map(|kind| 100 * left[kind] / all[kind]), engine)
}

#[test]
fn with_one_clock_what_was_read_in_memory_outlives_the_rest_on_flash() {
    simulate(1, async {
        let settings = HashedSettings {
            one_clock: true,
            hot_percent: 40,
        };
        let (left, engine) = once_read(settings).await;
        let stats = engine.stats();
        assert!(left[1] > left[0] + 30, "{left:?}");
        // The clock hand passes over memory, too; one pass suffices to find unread items, which arrive with a value of zero.
        let passed = stats.tier.chunks_passed;
        assert!((20..450).contains(&passed), "{passed}");
    });
}

#[test]
fn only_a_look_that_counts_makes_an_item_read() {
    const ITEMS: u64 = 8000;
    simulate(1, async {
        let config = EngineConfig {
            dram: Dram::Filter,
            ..roomy()
        };
        let engine = start(&hashed_media(65 << 20, 30_000), &config).await;
        fill(&engine, ITEMS, 1900).await;
        let is_fetched = async |number, peek| {
            let name = numbered(number);
            let (key, now) = (engine.key(&name).unwrap(), runtime::unix_seconds());
            let Lookup::Flash(read) = engine.lookup(key, now, peek, |_| ()) else {
                panic!("{number} is on flash");
            };
            ItemView::of_flash(&engine.read_flash(key, read).await.unwrap()).fetched
        };
        // The oldest items have left memory.
        for number in 0..100 {
            for _ in 0..3 {
                assert!(!is_fetched(number, Peek::Yes).await, "{number}");
            }
            assert!(!is_fetched(number, Peek::No).await, "{number}");
            assert!(is_fetched(number, Peek::Yes).await, "{number}");
        }
        assert_eq!(engine.stats().paths.flash_hits, 500);
        // Two lookups share a read of flash, and only one counts.
        for number in 100..200 {
            let name = numbered(number);
            let key = engine.key(&name).unwrap();
            let now = runtime::unix_seconds();
            let mut reads = Vec::new();
            for peek in [Peek::Yes, Peek::No] {
                let Lookup::Flash(read) = engine.lookup(key, now, peek, |_| ()) else {
                    panic!("{number} is on flash");
                };
                reads.push(read);
            }
            for read in reads {
                assert!(engine.read_flash(key, read).await.is_some());
            }
            assert!(is_fetched(number, Peek::Yes).await, "{number}");
        }
    });
}

#[test]
fn memory_is_accounted_for_and_given_back() {
    simulate(1, async {
        let engine = start(&hashed_media(17 << 20, 20_000), &tight()).await;
        let of_index = || {
            let held = engine.stats().memory.index_bytes;
            let [tables, filters] =
                ["index_table_bytes", "index_filter_bytes"].map(|name| counted(&engine, name));
            let known = tables + filters;
            // The rest is dead keys and their queue.
            assert!(
                held >= known && held - known < 600_000,
                "{held} with {tables} of tables and {filters} of filters"
            );
            held
        };
        let empty = of_index();
        for round in 0..3 {
            for number in 0..20_000 {
                set(&engine, &numbered(number), &value(number + round, 600))
                    .await
                    .unwrap();
                if number % 500 == 0 {
                    of_index();
                }
            }
        }
        assert!(engine.stats().placement.segments_reclaimed > 50);
        settle(&engine).await;
        let full = of_index();
        assert!(full < empty + 800_000, "{full} after {empty}");
    });
}

/// A sync frees space on flash for the items in memory. It must not go on for ever with items that reclaim returns to memory.
#[test]
fn a_sync_of_a_full_flash_ends_though_all_of_it_has_been_read() {
    const ITEMS: u64 = 12_000;
    simulate(1, async {
        let mut config = EngineConfig {
            dram: Dram::Filter,
            ..roomy()
        };
        config.reclaim.policy = RETURN;
        let media = hashed_media(9 << 20, ITEMS);
        let engine = start(&media, &config).await;
        let limit = engine.stats().dram_limit_bytes;
        engine.loans().lend(limit - (2 << 20));
        for number in 0..ITEMS {
            let bytes = value(number, 1500);
            set(&engine, &numbered(number), &bytes).await.unwrap();
            let _ = get(&engine, &numbered(number * 3 / 4)).await;
        }
        for number in ITEMS..ITEMS + 20 {
            for number in 0..ITEMS {
                let _ = get(&engine, &numbered(number)).await;
            }
            engine.sync().await.expect("everything can be placed");
            set(&engine, &numbered(number), &value(number, 1500))
                .await
                .unwrap();
        }
        assert!(engine.stats().placement.items_returned > 0);
    });
}

/// Segments of items at positions that follow from their keys cannot be written in parts.
#[test]
fn syncs_that_seal_segments_share_a_round() {
    simulate(1, async {
        let engine = start(&hashed_media(33 << 20, 1000), &roomy()).await;
        let written = || {
            let counters = engine.store().counters();
            counters.bytes_written.load(Ordering::Relaxed)
        };
        let (began, before) = (runtime::now(), written());
        let clients: Vec<_> = (0..200)
            .map(|number| {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move {
                    runtime::sleep(Duration::from_millis(number * 10)).await;
                    let name = numbered(number);
                    set(&engine, &name, b"value").await.unwrap();
                    engine.sync().await.unwrap();
                })
            })
            .collect();
        for client in clients {
            assert!(client.await.is_some());
        }
        let took = runtime::now().since(began);
        assert!(took < Duration::from_secs(4), "{took:?}");
        let sealed = (written() - before) / (256 << 10);
        assert!(sealed <= 4 * 4, "{sealed} segments for 200 syncs");
        assert_eq!(engine.stats().dram_dirty_items, 0);
    });
}

/// The look-up of a removed key finds nothing once the key is no longer listed as dead: no entry leads to its copy.
#[test]
fn what_was_removed_has_no_entry_when_it_leaves_the_list_of_the_dead() {
    simulate(1, async {
        let engine = start(&hashed_media(17 << 20, 1000), &roomy()).await;
        for number in 0..20 {
            let bytes = value(number, 1000);
            set(&engine, &numbered(number), &bytes).await.unwrap();
        }
        settle(&engine).await;
        for number in 0..10 {
            remove(&engine, number).await;
        }
        settle(&engine).await;
        assert_eq!(counted(&engine, "index_dead_keys"), 0);
        for number in 0..20 {
            let found = get(&engine, &numbered(number)).await.is_some();
            assert_eq!(found, number >= 10, "{number}");
        }
    });
}

/// The removal of a key whose entry has been displaced finds no copy, and records none: a start goes by the lost entry.
#[test]
fn what_has_lost_its_entry_stays_gone_after_a_removal_and_a_kill() {
    const KEYS: u64 = 200;
    let config = EngineConfig {
        partition_bits: 0,
        ..roomy()
    };
    let (disk, media) = with_few_slots(&Left::new(Image::new(17 << 20)));
    let left = simulate(1, async {
        let engine = start(&media, &config).await;
        for number in 0..KEYS {
            let bytes = value(number, 1000);
            set(&engine, &numbered(number), &bytes).await.unwrap();
        }
        settle(&engine).await;
        assert!(counted(&engine, "index_recorded_lost") > KEYS / 2);
        for number in 0..KEYS {
            remove(&engine, number).await;
        }
        settle(&engine).await;
        Left::of(&disk, &media)
    });
    simulate(2, async {
        let engine = start(&with_few_slots(&left).1, &config).await;
        for number in 0..KEYS {
            assert_eq!(get(&engine, &numbered(number)).await, None, "{number}");
        }
    });
}

/// A copy whose entry is lost may be found by the entry of another key. A checkpoint by the index leaves the copy out: once the
/// other entry has gone as well, a removal of the key finds no copy, and records none. Most runs have a copy of this kind.
#[test]
fn no_checkpoint_by_the_index_has_a_copy_that_only_entries_of_other_keys_lead_to() {
    const KEYS: u64 = 2000;
    let config = EngineConfig {
        partition_bits: 0,
        ..roomy()
    };
    let set_all = async |engine: &Arc<Engine>, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let bytes = value(number, 300);
            set(engine, &numbered(number), &bytes).await.unwrap();
        }
    };
    for_each_seed("no_checkpoint_by_the_index_has", 8, |seed| {
        let (disk, media) = with_few_slots(&Left::new(Image::new(17 << 20)));
        let left = simulate(seed, async {
            let engine = start(&media, &config).await;
            set_all(&engine, 0..KEYS).await;
            settle(&engine).await;
            media.journal.set_sync_fails(true);
            set_all(&engine, KEYS..KEYS + 1).await;
            assert!(engine.sync().await.is_err());
            assert!(engine.journal().is_void());
            media.journal.set_sync_fails(false);
            let before = engine.checkpoint_stats().written;
            runtime::sleep(Duration::from_secs(60)).await;
            assert!(!engine.journal().is_void(), "a checkpoint has healed it");
            assert!(engine.checkpoint_stats().written > before);
            set_all(&engine, KEYS + 1..2 * KEYS).await;
            settle(&engine).await;
            assert_eq!(engine.stats().placement.segments_reclaimed, 0);
            for number in 0..KEYS {
                remove(&engine, number).await;
            }
            settle(&engine).await;
            Left::of(&disk, &media)
        });
        simulate(!seed, async {
            let engine = start(&with_few_slots(&left).1, &config).await;
            assert_eq!(survivors(&engine, 0..KEYS).await, 0);
        });
    });
}
