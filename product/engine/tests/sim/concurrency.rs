//! Many concurrent clients on a slow device.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use device::{Fault, FaultyDisk, Latency, MemoryDisk, Operation, When};
use flowstone_engine::history::{Asked, Effect, History, Moment, Seen as Found};
use flowstone_engine::{Change, Dram, Engine, EngineConfig, ItemView, Lookup, Peek, Put, Stop};
use rand::Rng;

use crate::support::{
    Media, fill, for_each_seed, get, get_item, is_warm, numbered, random, seen, set, simulate,
    start, tight, value,
};

const LATENCY: Latency = Latency {
    read: Duration::from_micros(80),
    write: Duration::from_micros(300),
    sync: Duration::from_micros(500),
};

fn slow_disk(len_bytes: u64) -> Media {
    Media::new(Arc::new(MemoryDisk::with_latency(len_bytes, LATENCY)))
}

/// Returns an engine whose partitions hold only a few items in memory, so that items leave it all the time.
fn hurried() -> EngineConfig {
    EngineConfig {
        partition_bits: 6,
        ..tight()
    }
}

/// Returns the value of a register: its tag, then padding that follows from the tag.
fn register(tag: u64, len: usize) -> Vec<u8> {
    let mut bytes = tag.to_le_bytes().to_vec();
    bytes.extend(value(tag, len));
    bytes
}

fn tag_of(bytes: &[u8]) -> u64 {
    let tag = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes[8..] == value(tag, bytes.len() - 8), "a torn value");
    tag
}

/// Registers that clients read and change. The history of all operations checks each answer.
struct Registers {
    engine: Arc<Engine>,
    history: RefCell<History>,
    may_miss: bool,
}

impl Registers {
    fn ask(&self, number: u64, effect: Effect) -> Asked {
        self.history.borrow_mut().ask(number, effect)
    }

    fn answer(&self, asked: Asked, effect: Effect) {
        let nanos = runtime::now().as_nanos();
        let mut history = self.history.borrow_mut();
        history.answer(asked, Some(effect), nanos);
    }

    /// Checks the item that a request of moment `asked` found.
    fn check(&self, number: u64, asked: Moment, item: Option<&[u8]>) {
        let mut history = self.history.borrow_mut();
        let checked = match item {
            Some(value) => {
                let seen = Found {
                    tag: tag_of(value),
                    expiry: None,
                    unique: None,
                    now: runtime::unix_seconds(),
                };
                history.check(number, asked, Ok(Some(seen)))
            }
            None if self.may_miss => Ok(()),
            None => history.check_miss(number, asked),
        };
        assert_eq!(checked, Ok(()), "{}", history.tell(number));
    }

    /// Runs one operation of a client. A write stores a value of `len` bytes.
    async fn operate(&self, number: u64, choice: u32, tag: u64, len: usize) {
        let engine = &self.engine;
        let name = format!("register-{number}");
        let key = engine.key(name.as_bytes()).unwrap();
        let now = runtime::unix_seconds();
        let written = Effect::Value { tag, expiry: 0 };
        let asked = self.history.borrow_mut().tick();
        match choice {
            0..50 => {
                let found = get(engine, name.as_bytes()).await;
                self.check(number, asked, found.as_deref());
            }
            50..75 => {
                let asked = self.ask(number, written);
                let stored = set(engine, name.as_bytes(), &register(tag, len)).await;
                stored.unwrap();
                self.answer(asked, written);
            }
            75..85 => {
                let asked = self.ask(number, Effect::Gone);
                engine.remove(key, now).await.unwrap();
                self.answer(asked, Effect::Gone);
            }
            _ => {
                let decide = |item: Option<&ItemView<'_>>| {
                    self.check(number, asked, item.map(|item| item.value));
                    let put = Put {
                        value: register(tag, len).into(),
                        ..Put::default()
                    };
                    // It takes effect no earlier.
                    (Change::Put(put), self.ask(number, written))
                };
                let modified = engine.modify(key, now, decide).await.unwrap();
                self.answer(modified.result, written);
            }
        }
    }
}

fn registers(seed: u64, flash_bytes: u64, may_miss: bool) {
    const KEYS: u64 = 40;
    simulate(seed, async {
        let engine = start(&slow_disk(flash_bytes), &hurried()).await;
        let registers = Rc::new(Registers {
            engine: Arc::clone(&engine),
            history: RefCell::default(),
            may_miss,
        });
        let mut clients = Vec::new();
        for client in 0..16 {
            let registers = Rc::clone(&registers);
            clients.push(runtime::spawn(async move {
                let mut random = random(seed * 1000 + client);
                for step in 0..400 {
                    let tag = 1 + client * 1_000_000 + step;
                    if random.random_bool(0.6) {
                        // Other items push the registers out of memory.
                        let other = numbered(random.random_range(0..4000));
                        let stored = set(&registers.engine, &other, &value(tag, 26_000)).await;
                        stored.unwrap();
                        continue;
                    }
                    let number = random.random_range(0..KEYS);
                    let len = random.random_range(0..60_000) / random.random_range(1..20);
                    let choice = random.random_range(0..100);
                    registers.operate(number, choice, tag, len).await;
                    if random.random_bool(0.1) {
                        runtime::sleep(Duration::from_micros(random.random_range(1..500))).await;
                    }
                }
            }));
        }
        for client in clients {
            assert!(client.await.is_some());
        }
        let stats = engine.stats();
        assert!(stats.paths.flash_hits > 20, "{stats:#?}");
        if may_miss {
            assert!(stats.placement.segments_reclaimed > 10, "{stats:#?}");
        }
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    });
}

#[test]
fn every_read_is_of_a_value_that_was_current_meanwhile() {
    for_each_seed("every_read_is_of_a_value", 12, |seed| {
        registers(seed, 129 << 20, false);
    });
}

#[test]
fn every_read_is_current_or_a_miss_while_reclaim_runs() {
    for_each_seed("every_read_is_current_or", 8, |seed| {
        registers(seed, 9 << 20, true);
    });
}

#[test]
fn no_increment_is_lost() {
    for_each_seed("no_increment_is_lost", 6, |seed| {
        simulate(seed, async {
            let engine = start(&slow_disk(129 << 20), &hurried()).await;
            let mut clients = Vec::new();
            for client in 0..20u64 {
                let engine = Arc::clone(&engine);
                clients.push(runtime::spawn(async move {
                    for step in 0..40 {
                        let other = numbered(client * 100 + step);
                        set(&engine, &other, &value(step, 12_000)).await.unwrap();
                        // Time for segments to be written, so that clients meet at the device.
                        let pause = LATENCY.write * 2 - Duration::from_micros(client);
                        runtime::sleep(pause).await;
                        let name = format!("counter-{}", step % 5);
                        // Some values are too large for memory's share, so that they live on flash.
                        let len = 8 + (step % 5) as usize * 7000;
                        let decide = |item: Option<&ItemView<'_>>| {
                            let count = item.map_or(0, |item| tag_of(item.value)) + 1;
                            let put = Put {
                                value: register(count, len).into(),
                                ..Put::default()
                            };
                            (Change::Put(put), count)
                        };
                        let now = runtime::unix_seconds();
                        let key = engine.key(name.as_bytes()).unwrap();
                        engine.modify(key, now, decide).await.unwrap();
                    }
                }));
            }
            for client in clients {
                assert!(client.await.is_some());
            }
            for counter in 0..5 {
                let found = get(&engine, format!("counter-{counter}").as_bytes()).await;
                assert_eq!(tag_of(&found.unwrap()), 20 * 8);
            }
        });
    });
}

/// A value that is written while a change fetches an older one is the value that the change sees, even
/// if memory keeps no items and the index says only that there is an item on flash.
#[test]
fn a_change_sees_what_was_written_while_it_fetched() {
    simulate(1, async {
        let config = EngineConfig {
            dram: Dram::WriteBuffers {
                spare_buffers: None,
            },
            write_back: None,
            ..hurried()
        };
        let engine = start(&slow_disk(129 << 20), &config).await;
        let large = |tag| register(tag, 60_000);
        set(&engine, b"counter", &large(1)).await.unwrap();
        fill(&engine, 6000, 3000).await;
        // No write may wait for a buffer.
        engine.sync().await.unwrap();
        let hits = engine.stats().paths.dram_hits;
        let changing = Arc::clone(&engine);
        let change = runtime::spawn(async move {
            let now = runtime::unix_seconds();
            let key = changing.key(b"counter").unwrap();
            let decide = |item: Option<&ItemView<'_>>| (Change::Keep, tag_of(item.unwrap().value));
            changing.modify(key, now, decide).await.unwrap().result
        });
        runtime::sleep(LATENCY.read / 2).await;
        set(&engine, b"counter", &large(2)).await.unwrap();
        assert_eq!(change.await, Some(2));
        assert_eq!(engine.stats().paths.dram_hits, hits, "it lives on flash");
    });
}

/// Memory suffices to read three of these values at once. A change whose value has been replaced during its read gives its
/// memory back before it waits for more.
#[test]
fn changes_of_large_values_on_flash_do_not_wait_for_each_others_memory() {
    simulate(1, async {
        let engine = start(&slow_disk(129 << 20), &hurried()).await;
        for counter in 0..8 {
            let name = format!("counter-{counter}");
            let value = register(1, 180_000);
            set(&engine, name.as_bytes(), &value).await.unwrap();
        }
        fill(&engine, 6000, 3000).await;
        engine.sync().await.unwrap();
        let began = runtime::now();
        let clients: Vec<_> = (0..64)
            .map(|client| {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move {
                    let now = runtime::unix_seconds();
                    let name = format!("counter-{}", client % 8);
                    let key = engine.key(name.as_bytes()).unwrap();
                    let decide = |item: Option<&ItemView<'_>>| {
                        let put = Put {
                            value: register(tag_of(item.unwrap().value) + 1, 180_000).into(),
                            ..Put::default()
                        };
                        (Change::Put(put), ())
                    };
                    engine.modify(key, now, decide).await.unwrap();
                })
            })
            .collect();
        for client in clients {
            assert!(client.await.is_some());
        }
        let took = runtime::now().since(began);
        assert!(took < Duration::from_secs(5), "{took:?}");
        for counter in 0..8 {
            let found = get(&engine, format!("counter-{counter}").as_bytes()).await;
            assert_eq!(tag_of(&found.unwrap()), 9);
        }
    });
}

async fn cold_item(engine: &Arc<Engine>) -> Vec<u8> {
    set(engine, b"cold", &value(77, 2000)).await.unwrap();
    fill(engine, 6000, 3000).await;
    value(77, 2000)
}

fn reads(engine: &Engine) -> u64 {
    engine.store().counters().reads.sum()
}

#[test]
fn a_thousand_readers_of_a_cold_item_cost_one_flash_read() {
    simulate(1, async {
        let engine = start(&slow_disk(65 << 20), &tight()).await;
        let cold = cold_item(&engine).await;
        let before = reads(&engine);
        let readers: Vec<_> = (0..1000)
            .map(|_| {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move { get(&engine, b"cold").await })
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), Some(cold.clone()));
        }
        assert_eq!(reads(&engine) - before, 1);
        let stats = engine.stats().paths;
        assert_eq!((stats.flash_hits, stats.shared_reads), (1000, 999));
        assert_eq!(get(&engine, b"cold").await, Some(cold));
        assert_eq!(engine.stats().paths.dram_hits, 1, "it was kept in memory");
    });
}

#[test]
fn a_read_that_nobody_waits_for_any_more_still_serves_the_others() {
    simulate(1, async {
        let engine = start(&slow_disk(65 << 20), &tight()).await;
        let cold = cold_item(&engine).await;
        let now = runtime::unix_seconds();
        let key = engine.key(b"cold").unwrap();
        let Lookup::Flash(mut first) = engine.lookup(key, now, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        first.start(key);
        let Lookup::Flash(mut second) = engine.lookup(key, now, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        second.start(key);
        let before = reads(&engine);
        drop(first);
        let hit = engine.read_flash(key, second).await.unwrap();
        assert_eq!(ItemView::of_flash(&hit).value, cold);
        assert!(reads(&engine) - before <= 1);
    });
}

#[test]
fn a_write_overtakes_a_read_of_the_old_item() {
    simulate(1, async {
        let engine = start(&slow_disk(129 << 20), &tight()).await;
        let old = cold_item(&engine).await;
        let now = runtime::unix_seconds();
        let key = engine.key(b"cold").unwrap();
        let Lookup::Flash(mut read) = engine.lookup(key, now, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        read.start(key);
        runtime::sleep(LATENCY.read / 2).await;
        set(&engine, b"cold", b"new").await.unwrap();
        // Later reads see the new item, even while the first read is in progress.
        assert_eq!(get(&engine, b"cold").await.unwrap(), b"new");
        let hit = engine.read_flash(key, read).await.unwrap();
        assert!(ItemView::of_flash(&hit).value == old || ItemView::of_flash(&hit).value == b"new");
        assert_eq!(get(&engine, b"cold").await.unwrap(), b"new");
        fill(&engine, 6000, 3000).await;
        assert_eq!(get(&engine, b"cold").await.unwrap(), b"new");
    });
}

#[test]
fn a_removal_overtakes_a_read_and_nothing_comes_back() {
    simulate(1, async {
        let engine = start(&slow_disk(129 << 20), &tight()).await;
        cold_item(&engine).await;
        let now = runtime::unix_seconds();
        let key = engine.key(b"cold").unwrap();
        let Lookup::Flash(mut read) = engine.lookup(key, now, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        read.start(key);
        runtime::sleep(LATENCY.read / 2).await;
        engine.remove(key, now).await.unwrap();
        assert_eq!(get(&engine, b"cold").await, None);
        engine.read_flash(key, read).await;
        assert_eq!(get(&engine, b"cold").await, None);
    });
}

#[test]
fn a_flush_overtakes_a_read_and_nothing_comes_back() {
    simulate(1, async {
        let engine = start(&slow_disk(129 << 20), &tight()).await;
        cold_item(&engine).await;
        let now = runtime::unix_seconds();
        let key = engine.key(b"cold").unwrap();
        let Lookup::Flash(mut read) = engine.lookup(key, now, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        read.start(key);
        runtime::sleep(LATENCY.read / 2).await;
        engine.flush_all(now).await;
        engine.read_flash(key, read).await;
        assert_eq!(get(&engine, b"cold").await, None);
        assert_eq!(get(&engine, &numbered(5999)).await, None);
    });
}

/// One flash read, two readers: the item has expired for the later one.
#[test]
fn a_shared_read_gives_nobody_what_has_expired_for_him() {
    simulate(1, async {
        let engine = start(&slow_disk(129 << 20), &tight()).await;
        let now = runtime::unix_seconds();
        let put = flowstone_engine::Put {
            value: value(1, 3000).into(),
            expiry: now + 1000,
            ..Default::default()
        };
        let key = engine.key(b"cold").unwrap();
        engine.set(key, now, &put).await.unwrap();
        fill(&engine, 6000, 3000).await;
        let Lookup::Flash(mut early) = engine.lookup(key, now, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        early.start(key);
        let Lookup::Flash(late) = engine.lookup(key, now + 1000, Peek::No, |_| ()) else {
            panic!("it is on flash");
        };
        assert!(engine.stats().paths.shared_reads > 0);
        let late = engine.read_flash(key, late).await;
        assert!(late.is_none(), "expired");
        let early = engine.read_flash(key, early).await;
        assert!(early.is_some(), "still alive");
    });
}

#[test]
fn all_that_share_a_failed_read_miss_and_the_next_read_is_a_new_one() {
    simulate(1, async {
        let medium = Arc::new(MemoryDisk::with_latency(65 << 20, LATENCY));
        let faulty = Arc::new(FaultyDisk::new(medium, 1));
        let engine = start(&Media::new(faulty.clone()), &tight()).await;
        let cold = cold_item(&engine).await;
        let slow = Fault::Slow(Duration::from_millis(1));
        faulty.set_rates(Operation::ALL.map(|each| (each, slow.clone(), 1.0)).into());
        faulty.script(When::next(Operation::Read), Fault::Error);
        let readers: Vec<_> = (0..100)
            .map(|_| {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move { get(&engine, b"cold").await })
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), None);
        }
        let stats = engine.stats().paths;
        assert_eq!((stats.failed_reads, stats.shared_reads), (100, 99));
        assert_eq!(get(&engine, b"cold").await, Some(cold));
    });
}

/// An item stored while the read of an older copy was in progress is not affected when the read fails.
#[test]
fn a_change_whose_read_fails_leaves_what_was_stored_meanwhile() {
    simulate(1, async {
        let medium = Arc::new(MemoryDisk::with_latency(65 << 20, LATENCY));
        let faulty = Arc::new(FaultyDisk::new(medium, 1));
        let engine = start(&Media::new(faulty.clone()), &tight()).await;
        cold_item(&engine).await;
        let slow = Fault::Slow(Duration::from_millis(1));
        faulty.set_rates(vec![(Operation::Read, slow, 1.0)]);
        faulty.script(When::next(Operation::Read), Fault::Error);
        let changing = Arc::clone(&engine);
        let changed = runtime::spawn(async move {
            let key = changing.key(b"cold").unwrap();
            let decide = |present: Option<&ItemView<'_>>| {
                let found = present.map(|item| item.value.to_vec());
                (Change::Keep, found)
            };
            let now = runtime::unix_seconds();
            changing.modify(key, now, decide).await.unwrap().result
        });
        runtime::sleep(Duration::from_micros(500)).await;
        set(&engine, b"cold", b"new").await.unwrap();
        assert_eq!(changed.await, Some(Some(b"new".to_vec())));
        assert_eq!(faulty.counts().met(&Fault::Error), 1);
        assert_eq!(get(&engine, b"cold").await, Some(b"new".to_vec()));
    });
}

/// The fewest buffers and a slow device: every request waits for space, and none for ever. A simulation
/// that is stuck panics.
#[test]
fn waiting_for_room_ends() {
    for_each_seed("waiting_for_room_ends", 8, |seed| {
        simulate(seed, async {
            let mut config = EngineConfig {
                segment_bytes: Some([256 << 10, 4 << 20][(seed % 2) as usize]),
                ..hurried()
            };
            config.writing.buffers = 2;
            let slow = Latency {
                read: Duration::from_millis(2),
                write: Duration::from_millis(8),
                sync: Duration::from_millis(20),
            };
            let flash_bytes = [17 << 20, 65 << 20][(seed % 2) as usize];
            let disk = Media::new(Arc::new(MemoryDisk::with_latency(flash_bytes, slow)));
            let engine = start(&disk, &config).await;
            let clients: Vec<_> = (0..100u64)
                .map(|client| {
                    let engine = Arc::clone(&engine);
                    runtime::spawn(async move {
                        for step in 0..40 {
                            let key = numbered((client * 7 + step * 13) % 900);
                            match (client + step) % 3 {
                                0 => drop(get(&engine, &key).await),
                                1 => {
                                    set(&engine, &key, &value(step, 20_000)).await.unwrap();
                                }
                                _ => {
                                    let now = runtime::unix_seconds();
                                    let decide = |_: Option<&ItemView<'_>>| {
                                        let put = Put {
                                            value: value(step, 15_000).into(),
                                            ..Put::default()
                                        };
                                        (Change::Put(put), ())
                                    };
                                    let key = engine.key(&key).unwrap();
                                    engine.modify(key, now, decide).await.unwrap();
                                }
                            }
                        }
                    })
                })
                .collect();
            for client in clients {
                assert!(client.await.is_some());
            }
            assert!(engine.stats().write_waits > 0);
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        });
    });
}

/// Peeks and accesses are distinguished, also for items from flash.
#[test]
fn properties_survive_the_way_through_flash() {
    simulate(1, async {
        let engine = start(&slow_disk(65 << 20), &tight()).await;
        let now = runtime::unix_seconds();
        let put = Put {
            value: value(1, 500).into(),
            client_flags: 0xfeed,
            expiry: now + 1000,
            cas_unique: Some(42),
            stale: true,
            won: true,
            fetched: false,
            binary_key: true,
        };
        let key = engine.key(b"rich").unwrap();
        engine.set(key, now, &put).await.unwrap();
        let before = engine.lookup(key, now, Peek::Yes, seen);
        let Lookup::Hit(before) = before else {
            panic!("it is in memory");
        };
        fill(&engine, 6000, 3000).await;
        let after = get_item(&engine, b"rich", Peek::Yes).await.unwrap();
        assert_eq!(before, after);
        assert!(engine.stats().paths.flash_hits > 0);
    });
}

/// Clients that go on during a stop may lose their writes; the checkpoint is whole.
#[test]
fn a_checkpoint_is_whole_whatever_goes_on_while_it_is_written() {
    for_each_seed("a_checkpoint_is_whole", 4, |seed| {
        simulate(seed, async {
            let disk = slow_disk(129 << 20);
            let engine = start(&disk, &tight()).await;
            // More index entries than two segments of a checkpoint hold.
            fill(&engine, 40_000, 300).await;
            for client in 0..8u64 {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move {
                    for step in 0..2000 {
                        let key = numbered(1_000_000 + client * 10_000 + step);
                        let stored = set(&engine, &key, &value(step, 20_000)).await;
                        stored.unwrap();
                        runtime::sleep(Duration::from_micros(100)).await;
                    }
                });
            }
            let stopped = engine.stop().await;
            assert!(matches!(stopped, Stop::Complete { .. }), "{stopped:?}");
            let engine = start(&disk, &tight()).await;
            assert!(is_warm(&engine), "{:?}", engine.start());
            for number in 0..40_000 {
                let found = get(&engine, &numbered(number)).await;
                assert!(found == Some(value(number, 300)), "item {number}");
            }
        });
    });
}

/// An item changed while memory is being saved is there after the restart, or a miss: never an older
/// value.
#[test]
fn a_change_during_the_stop_never_leaves_an_older_value() {
    for_each_seed("a_change_during_the_stop", 12, |seed| {
        simulate(seed, async {
            let disk = slow_disk(129 << 20);
            let engine = start(&disk, &tight()).await;
            fill(&engine, 5000, 1000).await;
            let changing = Arc::clone(&engine);
            let changed = Rc::new(Cell::new(0));
            let counter = Rc::clone(&changed);
            runtime::spawn(async move {
                for number in 0..5000 {
                    runtime::sleep(Duration::from_micros(seed * 7)).await;
                    if number % 2 == 0 {
                        set(&changing, &numbered(number), b"new").await.unwrap();
                    } else {
                        let now = runtime::unix_seconds();
                        changing
                            .remove(changing.key(&numbered(number)).unwrap(), now)
                            .await
                            .unwrap();
                    }
                    counter.set(number + 1);
                }
            });
            let stopped = engine.stop().await;
            assert!(matches!(stopped, Stop::Complete { .. }), "{stopped:?}");
            let changed = changed.get();
            let engine = start(&disk, &tight()).await;
            for number in 0..5000 {
                let found = get(&engine, &numbered(number)).await;
                let was = value(number, 1000);
                match found {
                    Some(found) if number < changed => {
                        assert!(number % 2 == 0 && found == b"new", "item {number}");
                    }
                    Some(found) => assert!(found == was || found == b"new", "item {number}"),
                    None => {}
                }
            }
        });
    });
}
