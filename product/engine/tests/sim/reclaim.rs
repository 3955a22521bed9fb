//! Reclaim: items that are read stay longer, within the limits on copying.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Image, Latency, MemoryDisk};
use flowstone_engine::placement::Look;
use flowstone_engine::{
    AdmitRandom, AfterDowntime, Dram, Engine, EngineConfig, NamedCounts as _, Peek, ReclaimPolicy,
    Schedule, Start, Stop, Victim,
};
use rand::Rng;
use rand::seq::SliceRandom;
use runtime::sim::Sim;

use crate::support::{
    Left, Media, SEGMENT_BYTES, fill, for_each_seed, get, get_item, in_slots, memory_disk,
    numbered, random, remove, set, simulate, start, survivors, tight, value,
};

/// Writes a base of items, then twice as much as the flash holds, and keeps reading every fourth item of the base.
/// Returns how many read and unread items of the base survive, of 1,000 and 3,000.
fn turn_over(seed: u64, config: &EngineConfig) -> (usize, usize, Arc<Engine>) {
    const BASE: u64 = 4000;
    simulate(seed, async {
        let disk = memory_disk(41 << 20);
        let engine = start(&disk, config).await;
        for number in 0..BASE {
            set(&engine, &numbered(number), &value(number, 2000))
                .await
                .unwrap();
        }
        let mut next_read = 0;
        for number in BASE..BASE + 40_000 {
            set(&engine, &numbered(number), &value(number, 2000))
                .await
                .unwrap();
            if number % 2 == 0 {
                get(&engine, &numbered(next_read)).await;
                next_read = (next_read + 4) % BASE;
            }
            if number % 64 == 0 {
                runtime::yield_now().await;
            }
        }
        let read = survivors(&engine, (0..BASE).step_by(4)).await;
        let unread = survivors(&engine, (0..BASE).filter(|number| number % 4 != 0)).await;
        (read, unread, engine)
    })
}

#[test]
fn what_is_read_survives_and_what_is_not_does_not() {
    let (mut all_read, mut all_unread) = (0, 0);
    for seed in 1..=3 {
        let (read, unread, engine) = turn_over(seed, &tight());
        let stats = engine.stats().placement;
        all_read += read;
        all_unread += unread;
        assert!(stats.items_copied + engine.stats().tier.demotions > 0);
    }
    // One run keeps 877 to 999 of 1,000.
    assert!(all_read > 2600, "{all_read} of 3,000 read");
    assert!(all_unread < 900, "{all_unread} of 9,000 unread");
}

/// Nothing is copied on flash: items that are read return to memory, from where they are written again.
#[test]
fn what_is_read_goes_back_to_memory_where_it_is_returned() {
    let mut config = tight();
    let victim = Victim::Oldest;
    config.reclaim.policy = ReclaimPolicy::ReturnRecent { victim };
    let (read, unread, engine) = turn_over(1, &config);
    let stats = engine.stats().placement;
    assert!(
        read > 900 && unread < 300,
        "{read} read, {unread} unread; {stats:?}"
    );
    assert!(
        stats.items_returned > 100 && stats.items_copied == 0,
        "{stats:?}"
    );
    config.reclaim.policy = ReclaimPolicy::Drop { victim };
    let (dropped_read, ..) = turn_over(1, &config);
    assert!(dropped_read < read, "{dropped_read} of {read}");
}

/// Items that are stale after a long downtime stay stale when reclaim returns them to memory.
#[test]
fn what_is_stale_goes_back_to_memory_so() {
    let mut config = tight();
    let victim = Victim::Oldest;
    config.reclaim.policy = ReclaimPolicy::ReturnRecent { victim };
    let disk = memory_disk(41 << 20);
    simulate(1, async {
        let engine = start(&disk, &config).await;
        for number in 0..4000 {
            set(&engine, &numbered(number), &value(number, 2000))
                .await
                .unwrap();
        }
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    });
    config.max_downtime = Some(100);
    config.after_downtime = AfterDowntime::Stale;
    let sim = Sim::new(2);
    sim.shift_wall_clock(1000);
    sim.block_on(async {
        let engine = start(&disk, &config).await;
        engine.recovered().await;
        let mut returned = 0;
        for number in 4000..44_000 {
            set(&engine, &numbered(number), &value(number, 2000))
                .await
                .unwrap();
            let old = numbered(number / 2 % 1000 * 4);
            if number % 64 == 0 {
                runtime::yield_now().await;
            }
            if let Some(item) = get_item(&engine, &old, Peek::No).await {
                assert!(item.stale, "{returned} have come back");
            }
            returned = engine.stats().placement.items_returned;
        }
        assert!(returned > 100, "{returned} have come back");
    });
}

/// A rejected item is a miss, and so is the item on flash that it replaced.
#[test]
fn what_is_not_admitted_is_gone_and_nothing_older_comes_back() {
    simulate(1, async {
        let config = EngineConfig {
            admission: Arc::new(AdmitRandom { per_mille: 300 }),
            ..tight()
        };
        let media = memory_disk(129 << 20);
        let all = start(&media, &tight()).await;
        for number in 0..8000 {
            let put = set(&all, &numbered(number), &value(1, 2000)).await;
            put.unwrap();
        }
        assert!(matches!(all.stop().await, Stop::Complete { .. }));
        let engine = start(&media, &config).await;
        for number in 0..8000 {
            let put = set(&engine, &numbered(number), &value(2, 2000)).await;
            put.unwrap();
        }
        let mut found = 0;
        for number in 0..4000 {
            if let Some(seen) = get(&engine, &numbered(number)).await {
                assert!(seen == value(2, 2000), "an older value");
                found += 1;
            }
        }
        assert!((1000..1400).contains(&found), "{found} of 4,000 admitted");
        assert!(engine.stats().tier.rejections > 4000);
    });
}

/// Returns the smallest engine, with copying limited to `sixteenths` of a segment.
fn copying_at_most(sixteenths: u32) -> EngineConfig {
    let mut config = tight();
    config.reclaim.policy = config.reclaim.policy.with_max_copy(sixteenths);
    config
}

#[test]
fn without_copying_what_is_read_goes_too_unless_memory_has_it() {
    let config = copying_at_most(0);
    let (_, _, engine) = turn_over(1, &config);
    assert_eq!(engine.stats().placement.items_copied, 0);
}

#[test]
fn copies_never_exceed_their_part_of_a_segment() {
    simulate(1, async {
        let config = copying_at_most(2);
        let disk = memory_disk(33 << 20);
        let engine = start(&disk, &config).await;
        for round in 0..6 {
            for number in 0..10_000u64 {
                let key = numbered(number + round * 1000);
                set(&engine, &key, &value(number, 2000)).await.unwrap();
                get(&engine, &numbered(number / 2 + round * 1000)).await;
            }
        }
        let stats = engine.stats().placement;
        let part = u64::from(SEGMENT_BYTES) * 2 / 16;
        assert!(
            stats.bytes_copied <= stats.segments_reclaimed * part,
            "{stats:?}"
        );
        assert!(stats.segments_reclaimed > 50, "{stats:?}");
    });
}

#[test]
fn expired_items_are_dropped_not_copied() {
    simulate(1, async {
        let disk = memory_disk(33 << 20);
        let engine = start(&disk, &tight()).await;
        let now = runtime::unix_seconds();
        for number in 0..8000 {
            let put = flowstone_engine::Put {
                value: value(number, 2000).into(),
                expiry: now + 10,
                ..Default::default()
            };
            let key = numbered(number);
            engine
                .set(engine.key(&key).unwrap(), now, &put)
                .await
                .unwrap();
        }
        for number in 0..8000 {
            get(&engine, &numbered(number)).await;
        }
        runtime::sleep(std::time::Duration::from_secs(20)).await;
        for number in 8000..30_000 {
            set(&engine, &numbered(number), &value(number, 2000))
                .await
                .unwrap();
        }
        let stats = engine.stats();
        assert!(stats.placement.items_expired > 1000, "{stats:#?}");
        assert_eq!(stats.placement.items_copied, 0, "{stats:#?}");
        assert_eq!(get(&engine, &numbered(5)).await, None);
    });
}

/// The drive is slow: seconds pass between the choice of an item and its copy.
#[test]
fn what_expires_while_it_is_read_to_be_copied_is_not_copied() {
    for expires_after in 60..72 {
        expire_during_copies(expires_after);
    }
}

/// Lets a base of items expire after `expires_after` seconds, while some of them are being copied.
fn expire_during_copies(expires_after: u32) {
    const BASE: u64 = 4000;
    simulate(1, async {
        let slow = Latency {
            read: Duration::from_secs(3),
            ..Latency::default()
        };
        let disk = Media::new(Arc::new(MemoryDisk::with_latency(41 << 20, slow)));
        let engine = start(&disk, &tight()).await;
        let began = runtime::unix_seconds();
        let expiry = began + expires_after;
        for number in 0..BASE {
            let put = flowstone_engine::Put {
                value: value(number, 2000).into(),
                expiry,
                ..Default::default()
            };
            let name = numbered(number);
            let key = engine.key(&name).unwrap();
            engine.set(key, began, &put).await.unwrap();
        }
        let mut next = BASE;
        let mut write_one = async || {
            next += 1;
            let stored = set(&engine, &numbered(next), &value(next, 2000)).await;
            stored.unwrap();
        };
        // Until reclaim is about to reach the base.
        while engine.store().pool().counts().free > engine.flash_stats().high_watermark {
            write_one().await;
        }
        for number in 0..BASE {
            let name = numbered(number);
            // Marked as read without moving into memory.
            engine
                .placement()
                .probe(engine.key(&name).unwrap().hash(), Look::Read);
        }
        let pause = Duration::from_millis(100);
        while runtime::unix_seconds() < expiry {
            write_one().await;
            runtime::sleep(pause).await;
        }
        let before = engine.flash_stats();
        assert!(before.items_copied > 0, "{before:#?}");
        while runtime::unix_seconds() < expiry + 30 {
            write_one().await;
            runtime::sleep(pause).await;
        }
        let after = engine.flash_stats();
        assert_eq!(after.items_copied, before.items_copied, "{after:#?}");
        assert!(after.items_expired > before.items_expired, "{after:#?}");
    });
}

/// Reclaim reads the items that it copies in few reads, not in one for each item.
#[test]
fn copying_reads_runs_not_items() {
    let (_, _, engine) = turn_over(4, &tight());
    let stats = engine.stats();
    let reads = engine.store().counters().reads.sum();
    let asked = stats.paths.flash_hits + stats.paths.failed_reads;
    let own = reads.saturating_sub(asked);
    let copied = stats.placement.items_copied;
    assert!(
        own <= stats.placement.segments_reclaimed * 4 + copied / 4,
        "{own} reads for {copied} items; {stats:#?}"
    );
}

#[test]
fn what_was_read_before_a_restart_counts_after_it() {
    simulate(1, async {
        let disk = memory_disk(41 << 20);
        let engine = start(&disk, &tight()).await;
        let write = async |engine: &Arc<Engine>, numbers: std::ops::Range<u64>| {
            for number in numbers {
                set(engine, &numbered(number), &value(number, 2000))
                    .await
                    .unwrap();
                if number % 64 == 0 {
                    runtime::yield_now().await;
                }
            }
        };
        write(&engine, 0..7000).await;
        survivors(&engine, (0..4000).step_by(4)).await;
        write(&engine, 7000..12_000).await;
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        let engine = start(&disk, &tight()).await;
        write(&engine, 12_000..26_000).await;
        let read = survivors(&engine, (0..4000).step_by(4)).await;
        let unread = survivors(&engine, (0..4000).filter(|number| number % 4 != 0)).await;
        assert!(
            read > 900 && unread < 300,
            "{read} of 1,000, {unread} of 3,000"
        );
    });
}

/// An item is removed while reclaim holds it: the copy is dead from the start.
#[test]
fn what_is_removed_while_it_is_copied_stays_so() {
    for seed in 1..=4 {
        simulate(seed, async {
            let slow = Latency {
                read: Duration::from_millis(3),
                write: Duration::from_micros(200),
                sync: Duration::ZERO,
            };
            let disk = Media::new(Arc::new(MemoryDisk::with_latency(41 << 20, slow)));
            let engine = start(&disk, &tight()).await;
            const BASE: u64 = 4000;
            // Until reclaim is about to reach the base.
            for number in 0..BASE + 13_000 {
                let stored = set(&engine, &numbered(number), &value(number, 2000)).await;
                stored.unwrap();
            }
            let writer = Arc::clone(&engine);
            let writing = runtime::spawn(async move {
                for number in BASE + 13_000..BASE + 22_000 {
                    let stored = set(&writer, &numbered(number), &value(number, 2000)).await;
                    stored.unwrap();
                    runtime::sleep(Duration::from_micros(50)).await;
                }
            });
            let now = runtime::unix_seconds();
            let mut gone = Vec::new();
            for number in 0..BASE {
                let name = numbered(number);
                let key = engine.key(&name).unwrap();
                // Marked as read without moving into memory.
                engine.placement().probe(key.hash(), Look::Read);
            }
            let mut order: Vec<u64> = (0..BASE).filter(|number| number % 2 == 0).collect();
            order.shuffle(&mut random(seed));
            for number in order {
                let name = numbered(number);
                engine
                    .remove(engine.key(&name).unwrap(), now)
                    .await
                    .unwrap();
                gone.push(name);
                runtime::sleep(Duration::from_micros(300)).await;
            }
            writing.await;
            for name in gone {
                assert!(get(&engine, &name).await.is_none());
            }
            let stats = engine.stats().placement;
            assert!(stats.items_copied > 100, "{stats:?}");
        });
    }
}

/// Returns an engine that copies the valid items of victims, while writes wait.
fn copying(victim: Victim) -> EngineConfig {
    let mut config = EngineConfig {
        dram: Dram::WriteBuffers {
            spare_buffers: None,
        },
        placement: in_slots(),
        ..tight()
    };
    config.reclaim.policy = ReclaimPolicy::CopyValid {
        victim,
        max_copy_sixteenths: 15,
    };
    config.writing.buffers = 8;
    config
}

/// Writes 1,000 items that are never read, among others that are overwritten until the flash has been turned
/// over several times. Returns how many of the 1,000 survive.
fn unread_survivors(config: &EngineConfig) -> usize {
    simulate(1, async {
        let engine = start(&memory_disk(17 << 20), config).await;
        let put = async |number| set(&engine, &numbered(number), &value(number, 2000)).await;
        for number in 0..1000 {
            put(number).await.unwrap();
            for other in 0..3 {
                put(10_000 + (3 * number + other) % 1500).await.unwrap();
            }
        }
        for turn in 0..25_000 {
            put(10_000 + turn % 1500).await.unwrap();
        }
        survivors(&engine, 0..1000).await
    })
}

#[test]
fn what_is_valid_survives_unread_where_it_is_kept() {
    for victim in [Victim::Oldest, Victim::FewestValid] {
        let kept = unread_survivors(&copying(victim));
        assert!(kept > 900, "{victim:?}: {kept} of 1,000 kept");
    }
    let victim = Victim::Oldest;
    let mut dropping = copying(victim);
    dropping.reclaim.policy = ReclaimPolicy::Drop { victim };
    let kept = unread_survivors(&dropping);
    assert_eq!(kept, 0, "kept though they are to be dropped");
}

/// The index knows nothing of a dropped segment's items, and their removal leaves no record. Until the segment is written
/// again, a start finds it on flash.
#[test]
fn what_was_dropped_with_its_segment_and_removed_later_does_not_come_back() {
    const ITEMS: u64 = 10_000;
    let victim = Victim::Oldest;
    let mut config = tight();
    config.reclaim.policy = ReclaimPolicy::Drop { victim };
    let (disk, media) = Left::new(Image::new(17 << 20)).media();
    simulate(1, async {
        let engine = start(&media, &config).await;
        fill(&engine, ITEMS, 3000).await;
        let reclaimed = engine.stats().placement.segments_reclaimed;
        assert!(reclaimed > 5, "{reclaimed}");
        for number in 0..ITEMS {
            remove(&engine, number).await;
        }
    });
    let left = Left::of(&disk, &media);
    simulate(2, async {
        let engine = start(&left.media().1, &config).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        assert_eq!(survivors(&engine, 0..ITEMS).await, 0);
    });
}

/// Short segments of many slab classes seem to have much free space, but their copies fill short
/// segments again.
#[test]
fn copies_leave_writes_their_part_where_slab_classes_outnumber_buffers() {
    simulate(1, async {
        let engine = start(&memory_disk(17 << 20), &copying(Victim::Oldest)).await;
        for number in 0..40_000_u64 {
            // Most items are small, and all keys differ: reclaim gains nothing.
            let bytes = 100_usize << (number % 256 + 1).trailing_zeros();
            let put = set(&engine, &numbered(number), &value(number, bytes)).await;
            put.unwrap();
        }
        let counters = engine.store().counters();
        let for_copies = counters.bytes_for_copies.load(Ordering::Relaxed);
        let stats = engine.stats().placement;
        let reclaimed = stats.segments_reclaimed * u64::from(SEGMENT_BYTES);
        assert!(stats.items_copied > 0 && reclaimed > 100 << 20, "{stats:?}");
        // The limit, and the copies in progress beyond it.
        assert!(
            for_copies <= reclaimed / 32 * 31,
            "{for_copies} of {reclaimed} bytes"
        );
    });
}

/// Tasks do not wake each other without a reason while a device is busy: that would never end.
#[test]
fn reclaims_that_wait_for_one_another_do_not_go_round_in_circles() {
    let name = "reclaim::reclaims_that_wait_for_one_another_do_not_go_round_in_circles";
    for_each_seed(name, 2, |seed| {
        for schedule in [Schedule::OnDemand, Schedule::Background] {
            simulate(seed, async {
                let mut config = copying(Victim::Oldest);
                config.reclaim.schedule = schedule;
                config.reclaim.reclaimers = 4;
                config.writing.buffers = 16;
                config.writing.writers = 8;
                let slow = Latency {
                    read: Duration::from_micros(300),
                    write: Duration::from_millis(2),
                    sync: Duration::ZERO,
                };
                let disk = Media::new(Arc::new(MemoryDisk::with_latency(12 << 20, slow)));
                let engine = start(&disk, &config).await;
                let clients = (0..32).map(|client| {
                    let engine = Arc::clone(&engine);
                    runtime::spawn(async move {
                        let mut random = random(client);
                        for _ in 0..2000 {
                            let (key, bytes) =
                                (random.random_range(0..2160), random.random_range(10..5000));
                            set(&engine, &numbered(key), &value(key, bytes))
                                .await
                                .unwrap();
                        }
                    })
                });
                let clients: Vec<_> = clients.collect();
                for client in clients {
                    client.await.expect("no panic");
                }
                assert!(engine.stats().placement.items_copied > 0);
            });
        }
    });
}

/// Overwrites items of several slab classes on a slow drive, with many clients. Calls `watch` with the engine throughout.
fn overwrite_slowly(config: &EngineConfig, mut watch: impl FnMut(&Engine)) {
    /// Number of keys: two thirds of the flash, with slot overhead.
    const KEYS: u64 = 4200;
    simulate(1, async {
        let slow = Latency {
            read: Duration::from_micros(300),
            write: Duration::from_millis(2),
            sync: Duration::ZERO,
        };
        let disk = Media::new(Arc::new(MemoryDisk::with_latency(17 << 20, slow)));
        let engine = start(&disk, config).await;
        let under_way = Rc::new(());
        let clients = (0..32).map(|client| {
            let engine = Arc::clone(&engine);
            let under_way = Rc::clone(&under_way);
            runtime::spawn(async move {
                let _under_way = under_way;
                let mut random = random(client);
                for _ in 0..1500 {
                    let key = random.random_range(0..KEYS);
                    let value = value(key, 1000 << (key % 3));
                    set(&engine, &numbered(key), &value).await.unwrap();
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        while Rc::strong_count(&under_way) > 1 {
            watch(&engine);
            runtime::sleep(Duration::from_micros(100)).await;
        }
        for client in clients {
            client.await.expect("no panic");
        }
        let stats = engine.stats().placement;
        assert!(stats.items_copied > 0, "{stats:?}");
        assert_eq!(stats.items_evicted, 0, "{stats:?}");
    });
}

/// More reclaims run at once than segments are reserved for copies.
#[test]
fn many_reclaims_at_once_starve_one_another_of_nothing() {
    for schedule in [Schedule::OnDemand, Schedule::Background] {
        let mut config = copying(Victim::FewestValid);
        config.reclaim.schedule = schedule;
        config.reclaim.reclaimers = 8;
        config.writing.buffers = 8;
        config.writing.writers = 4;
        overwrite_slowly(&config, |_| ());
    }
}

#[test]
fn on_demand_too_no_more_are_reclaimed_at_once_than_is_set() {
    for (reclaimers, writers) in [(1, 4), (3, 1)] {
        let mut config = copying(Victim::FewestValid);
        config.reclaim.schedule = Schedule::OnDemand;
        config.reclaim.reclaimers = reclaimers;
        config.writing.buffers = 16;
        config.writing.writers = writers;
        let mut most = 0;
        overwrite_slowly(&config, |engine| {
            most = most.max(engine.store().pool().counts().reclaiming);
        });
        let most = most as usize;
        assert!(
            (1..=reclaimers).contains(&most),
            "{most}, {writers} writers"
        );
    }
}

#[test]
fn on_demand_a_write_that_stalls_waits_for_all_that_it_takes() {
    simulate(1, async {
        let mut config = copying(Victim::Oldest);
        config.reclaim.schedule = Schedule::OnDemand;
        config.reclaim.reclaimers = 4;
        let engine = start(&memory_disk(17 << 20), &config).await;
        let (mut stalls, mut waited) = (0, 0);
        for number in 0..20_000_u64 {
            let put = set(&engine, &numbered(number % 3000), &value(number, 2000)).await;
            put.unwrap();
            let stats = engine.stats();
            if stats.write_waits > stalls {
                waited += 1;
                let free = engine.store().pool().counts().free;
                let high = stats.placement.high_watermark;
                assert_eq!(engine.store().pool().counts().reclaiming, 0);
                assert!(free + 1 >= high, "{free} of {high} after {number}");
            }
            stalls = stats.write_waits;
        }
        assert!(waited > 20, "{waited} writes have stalled");
    });
}

/// Work of one background task on reclaim, in one poll.
struct Turn {
    task: usize,
    items: u64,
    segments: u64,
}

/// Sets some of `keys` until the flash has been filled twice, and returns the items that each poll of a background task
/// has dropped or copied.
fn turns(seed: u64, policy: ReclaimPolicy, keys: u64) -> Vec<Turn> {
    let mut config = tight();
    config.dram = Dram::WriteBuffers {
        spare_buffers: None,
    };
    config.placement = in_slots();
    config.write_back = None;
    config.reclaim.policy = policy;
    config.reclaim.reclaimers = 8;
    simulate(seed, async {
        let engine = memory_disk(33 << 20).open(&config).await.unwrap();
        let turns = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = 0;
        engine.start_background(|task| {
            let (engine, turns) = (Arc::clone(&engine), Rc::clone(&turns));
            let number = tasks;
            tasks += 1;
            runtime::spawn(async move {
                let mut task = task();
                let watched = std::future::poll_fn(|cx| {
                    let before = engine.flash_stats();
                    let polled = task.as_mut().poll(cx);
                    let did = engine.flash_stats().since(&before);
                    turns.borrow_mut().push(Turn {
                        task: number,
                        items: did.items_evicted + did.items_copied,
                        segments: did.segments_reclaimed,
                    });
                    polled
                });
                watched.await;
            });
        });
        let mut random = random(seed);
        for tag in 0..160_000 {
            let name = numbered(random.random_range(0..keys));
            set(&engine, &name, &value(tag, 300)).await.unwrap();
            if tag % 16_000 == 0 {
                // All buffers are empty now, and are filled before any segment is reclaimed.
                engine.sync().await.unwrap();
            }
        }
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        turns.take()
    })
}

/// Returns the most tasks that process items of a segment at once, and the most items in a poll that ends no segment.
fn most_at_once(turns: &[Turn]) -> (usize, u64) {
    let mut at_items = BTreeSet::new();
    let mut most = (0, 0);
    for turn in turns {
        if turn.items > 0 {
            at_items.insert(turn.task);
            most.0 = most.0.max(at_items.len());
        }
        if turn.segments == 0 {
            most.1 = most.1.max(turn.items);
        }
        if turn.items == 0 || turn.segments > 0 {
            at_items.remove(&turn.task);
        }
    }
    most
}

#[test]
fn two_reclaims_are_at_items_at_once_and_let_requests_pass_after_each_64() {
    let victim = Victim::Oldest;
    let drops = ReclaimPolicy::Drop { victim };
    let copies = ReclaimPolicy::CopyValid {
        victim,
        max_copy_sixteenths: 15,
    };
    for_each_seed("two_reclaims_are_at_items_at_once", 3, |seed| {
        for (policy, keys) in [(drops, 1_000_000), (copies, 50_000)] {
            let most = most_at_once(&turns(seed, policy, keys));
            assert_eq!(most, (2, 64), "{policy:?}");
        }
    });
}
