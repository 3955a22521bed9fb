//! Large values: they lie in memory, small amendments do not write them, and small items keep their share.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flowstone_engine::{Amend, Change, Engine, EngineConfig, ItemView, Peek, Put, Stop};
use rand::Rng;

use crate::memory::check;
use crate::support::*;

/// Bytes of the value of most tests: 14 times the share of memory of a partition.
const BIG: usize = 900_000;
/// Time after which a cache with the default settings has written back all dirty items.
const WINDOW: Duration = Duration::from_secs(60);
/// Bytes of a short command line.
const LINE_BYTES: u64 = 30;

/// Returns the server's smallest cache: 64 MiB of memory and 64 partitions.
fn small_server() -> EngineConfig {
    EngineConfig {
        memory_bytes: 64 << 20,
        segment_bytes: Some(2 << 20),
        ..EngineConfig::default()
    }
}

fn written(engine: &Engine) -> u64 {
    let counters = engine.store().counters();
    counters.bytes_written.load(Ordering::Relaxed)
}

async fn modify<'v>(
    engine: &Engine,
    name: &[u8],
    mut decide: impl FnMut(&ItemView<'_>) -> Change<'v>,
) {
    let key = engine.key(name).unwrap();
    let now = runtime::unix_seconds();
    let modified = engine.modify(key, now, |found| match found {
        Some(item) => (decide(item), true),
        None => (Change::Keep, false),
    });
    assert!(modified.await.unwrap().result, "the item is there");
}

/// Kinds of small amendments, as a server makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Append,
    Prepend,
    AppendFields,
    Touch,
    TouchForEver,
    GetAndTouch,
    Stale,
    StaleWithCas,
    Win,
    NewCas,
}

const KINDS: [Kind; 10] = [
    Kind::Append,
    Kind::Prepend,
    Kind::AppendFields,
    Kind::Touch,
    Kind::TouchForEver,
    Kind::GetAndTouch,
    Kind::Stale,
    Kind::StaleWithCas,
    Kind::Win,
    Kind::NewCas,
];

/// Amends an item. Returns the bytes that a client sends for it.
async fn amend(engine: &Engine, name: &[u8], kind: Kind, step: u64) -> u64 {
    let expiry = runtime::unix_seconds() + 10_000 + step as u32;
    let longer = |item: &ItemView<'_>, is_in_front: bool, added: &[u8]| {
        let parts = match is_in_front {
            true => [added, item.value],
            false => [item.value, added],
        };
        Change::Put(Put {
            value: Cow::Owned(parts.concat()),
            client_flags: item.client_flags,
            expiry: item.expiry,
            ..Put::default()
        })
    };
    let change = |amend: Amend| move |_: &ItemView<'_>| Change::Amend(amend);
    let usual = Amend::default();
    match kind {
        Kind::Append => modify(engine, name, |item| longer(item, false, b"a")).await,
        Kind::Prepend => modify(engine, name, |item| longer(item, true, b"p")).await,
        Kind::AppendFields => modify(engine, name, |item| longer(item, false, &[7; 100])).await,
        Kind::Touch => {
            let expiry = Some(expiry);
            modify(engine, name, change(Amend { expiry, ..usual })).await;
        }
        Kind::TouchForEver => {
            let expiry = Some(if step.is_multiple_of(2) { 0 } else { expiry });
            modify(engine, name, change(Amend { expiry, ..usual })).await;
        }
        Kind::GetAndTouch => {
            let (expiry, access) = (Some(expiry), true);
            let amend = Amend {
                expiry,
                access,
                ..usual
            };
            modify(engine, name, change(amend)).await;
        }
        Kind::Stale => {
            let stale = Some(step.is_multiple_of(2));
            modify(engine, name, change(Amend { stale, ..usual })).await;
        }
        Kind::StaleWithCas => {
            let amend = Amend {
                stale: Some(true),
                expiry: Some(expiry),
                cas_unique: Some(Some(step + 1)),
                ..usual
            };
            modify(engine, name, change(amend)).await;
        }
        Kind::Win => {
            let won = Some(step.is_multiple_of(2));
            modify(engine, name, change(Amend { won, ..usual })).await;
        }
        Kind::NewCas => {
            let cas_unique = Some(None);
            modify(
                engine,
                name,
                change(Amend {
                    cas_unique,
                    ..usual
                }),
            )
            .await;
        }
    }
    LINE_BYTES + if kind == Kind::AppendFields { 100 } else { 1 }
}

#[test]
fn an_attempt_that_has_to_be_repeated_counts_no_read() {
    simulate(1, async {
        let engine = start(&memory_disk(257 << 20), &small_server()).await;
        set(&engine, b"big", &value(7, BIG)).await.unwrap();
        for number in 0..60 {
            let other = numbered(number);
            set(&engine, &other, &value(number, BIG)).await.unwrap();
        }
        runtime::sleep(2 * WINDOW).await;
        let mut attempts = 0;
        modify(&engine, b"big", |item| {
            attempts += 1;
            assert!(!item.fetched);
            Change::Amend(Amend {
                expiry: Some(0x7fff_ffff),
                access: true,
                ..Amend::default()
            })
        })
        .await;
        assert_eq!(attempts, 2, "memory for the value is claimed in between");
        let paths = engine.stats().paths;
        assert_eq!((paths.dram_hits, paths.flash_hits), (0, 1));
        modify(&engine, b"big", |item| {
            assert!(item.fetched);
            Change::Keep
        })
        .await;
    });
}

#[test]
fn small_amendments_write_a_large_value_once_a_window() {
    const STEPS: u64 = 1200;
    const WINDOWS: u64 = 4;
    for kind in KINDS {
        simulate(1, async {
            let config = small_server();
            let engine = start(&memory_disk(257 << 20), &config).await;
            fill(&engine, 60_000, 1000).await;
            set(&engine, b"big", &value(7, BIG)).await.unwrap();
            runtime::sleep(2 * WINDOW).await;
            let (before, read) = (written(&engine), engine.stats().paths.flash_hits);
            let mut sent = 0;
            for step in 0..STEPS {
                sent += amend(&engine, b"big", kind, step).await;
                runtime::sleep(WINDOW * WINDOWS as u32 / STEPS as u32).await;
            }
            check(&engine, &config);
            let copies = (WINDOWS + 1) * (BIG + (256 << 10)) as u64;
            let bytes = written(&engine) - before;
            assert!(
                bytes <= 4 * sent + copies,
                "{kind:?}: {bytes} bytes for {sent}"
            );
            assert_eq!(engine.stats().paths.flash_hits, read, "{kind:?}");
            let found = get(&engine, b"big").await.unwrap();
            let big = value(7, BIG);
            assert!(
                found.starts_with(&big) || found.ends_with(&big),
                "{kind:?}: the value is whole"
            );
        });
    }
}

#[test]
fn overwrites_of_a_large_value_are_not_written() {
    simulate(1, async {
        let config = small_server();
        let engine = start(&memory_disk(257 << 20), &config).await;
        for tag in 0..200 {
            set(&engine, b"big", &value(tag, BIG)).await.unwrap();
            check(&engine, &config);
        }
        assert_eq!(written(&engine), 0);
        assert_eq!(get(&engine, b"big").await, Some(value(199, BIG)));
    });
}

#[test]
fn a_hot_large_value_is_read_from_memory() {
    simulate(1, async {
        let config = small_server();
        let media = memory_disk(513 << 20);
        let engine = start(&media, &config).await;
        set(&engine, b"big", &value(7, BIG)).await.unwrap();
        for number in 0..300 {
            set(&engine, &numbered(number), &value(number, 500_000))
                .await
                .unwrap();
            assert_eq!(get(&engine, b"big").await, Some(value(7, BIG)));
            runtime::sleep(Duration::from_millis(100)).await;
            check(&engine, &config);
        }
        assert_eq!(engine.stats().paths.flash_hits, 0);
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        // After a restart the first read brings it to memory, which is empty.
        let engine = start(&media, &config).await;
        for _ in 0..10 {
            assert_eq!(get(&engine, b"big").await, Some(value(7, BIG)));
        }
        let paths = engine.stats().paths;
        assert_eq!((paths.flash_hits, paths.dram_hits), (1, 9));
    });
}

#[test]
fn a_large_value_read_often_comes_to_a_full_memory() {
    simulate(1, async {
        let config = small_server();
        let engine = start(&memory_disk(513 << 20), &config).await;
        set(&engine, b"big", &value(7, BIG)).await.unwrap();
        for number in 0..200 {
            set(&engine, &numbered(number), &value(number, 500_000))
                .await
                .unwrap();
        }
        for _ in 0..40 {
            assert_eq!(get(&engine, b"big").await, Some(value(7, BIG)));
            check(&engine, &config);
        }
        let hits = engine.stats().paths.flash_hits;
        assert!((1..=4).contains(&hits), "{hits} reads from flash");
    });
}

#[test]
fn cold_large_values_make_way_for_hot_small_items() {
    simulate(1, async {
        let config = small_server();
        let engine = start(&memory_disk(513 << 20), &config).await;
        for number in 0..100 {
            set(&engine, &numbered(number), &value(number, BIG))
                .await
                .unwrap();
        }
        let filled = check(&engine, &config);
        let tier = filled.dram_limit_bytes;
        assert!(filled.dram_large_bytes > tier / 2, "{filled:#?}");
        // Three quarters of the memory for items, in use all the time.
        let hot = tier * 3 / 4 / 1200;
        for _ in 0..60 {
            for number in 1000..1000 + hot {
                if get(&engine, &numbered(number)).await.is_none() {
                    set(&engine, &numbered(number), &value(number, 1000))
                        .await
                        .unwrap();
                }
            }
            runtime::sleep(Duration::from_secs(1)).await;
            check(&engine, &config);
        }
        engine.reset_stats();
        for number in 1000..1000 + hot {
            assert_eq!(
                get(&engine, &numbered(number)).await,
                Some(value(number, 1000))
            );
        }
        let hits = engine.stats().paths.dram_hits;
        assert!(hits > hot * 9 / 10, "{hits} of {hot} from memory");
    });
}

#[test]
fn cold_small_items_make_way_for_hot_large_values() {
    simulate(1, async {
        let config = small_server();
        let engine = start(&memory_disk(513 << 20), &config).await;
        fill(&engine, 60_000, 1000).await;
        let tier = check(&engine, &config).dram_limit_bytes;
        let hot = tier * 5 / 8 / BIG as u64;
        for round in 0..20 {
            for number in 0..hot {
                let name = format!("large-{number}");
                if round == 0 {
                    let bytes = value(number, BIG);
                    set(&engine, name.as_bytes(), &bytes).await.unwrap();
                }
                let found = get(&engine, name.as_bytes()).await;
                assert_eq!(found, Some(value(number, BIG)));
            }
            runtime::sleep(Duration::from_secs(1)).await;
            check(&engine, &config);
        }
        assert_eq!(engine.stats().paths.flash_hits, 0);
    });
}

#[test]
fn values_of_all_sizes_stay_within_memory_and_are_those_last_stored() {
    for_each_seed("values_of_all_sizes", 4, |seed| {
        simulate(seed, async {
            let mut random = random(seed);
            let config = EngineConfig {
                memory_bytes: [24, 40, 64][random.random_range(0..3)] << 20,
                partition_bits: random.random_range(2..=6),
                ..small_server()
            };
            let engine = start(&memory_disk(257 << 20), &config).await;
            let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
            let mut lent = 0;
            for step in 0..2500 {
                let number = random.random_range(0..120);
                let name = numbered(number);
                match random.random_range(0..20) {
                    0 => {
                        remove(&engine, number).await;
                        model.remove(&number);
                    }
                    1 if lent == 0 => {
                        lent = random.random_range(0..config.memory_bytes / 8);
                        engine.loans().lend(lent);
                    }
                    2 => engine.loans().end(std::mem::take(&mut lent)),
                    3 => runtime::sleep(Duration::from_millis(400)).await,
                    4..7 if model.contains_key(&number) => {
                        if get_item(&engine, &name, Peek::Yes).await.is_none() {
                            model.remove(&number);
                        } else {
                            amend(&engine, &name, Kind::Append, step).await;
                            amend(&engine, &name, Kind::Touch, step).await;
                            model.entry(number).and_modify(|value| value.push(b'a'));
                        }
                    }
                    7..14 => {
                        let found = get(&engine, &name).await;
                        let is_same = found.is_none() || found.as_ref() == model.get(&number);
                        assert!(is_same, "item {number} at step {step}");
                    }
                    _ => {
                        let len = match random.random_range(0..3) {
                            0 => any_len(&mut random, 200_000),
                            1 => random.random_range(10_000..1_000_000),
                            _ => random.random_range(0..3000),
                        };
                        let bytes = value(step, len);
                        let _ = set(&engine, &name, &bytes).await;
                        model.insert(number, bytes);
                    }
                }
                if lent > 0 {
                    engine.loans().shrink();
                } else {
                    check(&engine, &config);
                }
            }
            let in_memory = engine.stats();
            assert!(in_memory.dram_large_bytes > 0, "{in_memory:#?}");
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        });
    });
}

#[test]
fn an_amended_large_value_is_on_flash_when_it_is_older_than_the_window() {
    simulate(1, async {
        let config = small_server();
        let new = Left::new(device::Image::new(65 << 20));
        let (disk, media) = new.media();
        let engine = start(&media, &config).await;
        set(&engine, b"big", &value(7, BIG)).await.unwrap();
        runtime::sleep(2 * WINDOW).await;
        amend(&engine, b"big", Kind::Append, 0).await;
        let killed = async |is_there: bool| {
            let (_disk, media) = Left::of(&disk, &media).media();
            let engine = start(&media, &config).await;
            let mut longer = value(7, BIG);
            longer.push(b'a');
            let found = get(&engine, b"big").await;
            assert!(found.is_none() || found == Some(longer), "the old value");
            assert_eq!(found.is_some(), is_there);
        };
        // The value before the amendment does not come back.
        runtime::sleep(Duration::from_secs(1)).await;
        killed(false).await;
        runtime::sleep(WINDOW).await;
        killed(true).await;
    });
}

#[test]
fn deleted_and_expired_large_values_give_their_memory_back() {
    simulate(1, async {
        let config = small_server();
        let engine: Arc<Engine> = start(&memory_disk(257 << 20), &config).await;
        for number in 0..20 {
            set(&engine, &numbered(number), &value(number, BIG))
                .await
                .unwrap();
        }
        for number in 0..10 {
            remove(&engine, number).await;
        }
        let half = check(&engine, &config).dram_large_bytes;
        let expiry = Some(runtime::unix_seconds() + 2);
        for number in 10..20 {
            let amend = Amend {
                expiry,
                ..Amend::default()
            };
            modify(&engine, &numbered(number), |_| Change::Amend(amend)).await;
        }
        assert_eq!(check(&engine, &config).dram_large_bytes, half);
        runtime::sleep(Duration::from_secs(10)).await;
        let stats = check(&engine, &config);
        assert_eq!((stats.dram_large_bytes, stats.dram_items), (0, 0));
    });
}
