//! Devices that fail for some seconds, and parts of devices that fail for good: which requests wait, and which items are lost.

use std::sync::Arc;
use std::time::Duration;

use device::{Fault, Operation, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{CacheError, Change, Engine, Lookup, Peek, Put, Stop};
use futures_util::future::join;

use crate::faults::{Faulty, IMAGE_BYTES, check, engine_on, faulty};
use crate::support::{SEGMENT_BYTES, fill, get, is_warm, numbered, remove, set, simulate, value};

/// Makes the journal lose the record that item 0 is dead, and sets item 0 again.
async fn lose_records(faulty: &Faulty, engine: &Arc<Engine>, len: usize) {
    faulty.media.journal.set_sync_fails(true);
    remove(engine, 0).await;
    runtime::sleep(Duration::from_secs(1)).await;
    assert!(engine.journal().is_void());
    faulty.media.journal.set_sync_fails(false);
    set(engine, &numbered(0), &value(0, len)).await.unwrap();
}

/// A device whose reads fail for some seconds causes misses but loses no item: not in a checkpoint that has to be made from
/// the index, not in a clean stop, and not in a start.
#[test]
fn what_a_device_does_not_give_for_some_seconds_is_there_afterwards() {
    const ITEMS: u64 = 3000;
    let outage = Duration::from_secs(6);
    let faulty = faulty();
    let lasting = |faulty: &Faulty| {
        let disk = Arc::clone(&faulty.disk);
        // The superblocks are left out, since a start without them fails at once.
        let segments = When::every(Operation::Read).within(META_BYTES..IMAGE_BYTES);
        disk.script(segments, Fault::Error);
        async move {
            runtime::sleep(outage).await;
            disk.heal();
        }
    };
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        fill(&engine, ITEMS, 6000).await;
        assert!(engine.checkpoint_now().await);
        // Makes the next checkpoint use the index.
        faulty.media.journal.set_sync_fails(true);
        lose_records(&faulty, &engine, 6000).await;
        lasting(&faulty).await;
        assert!(engine.journal().is_void(), "no checkpoint could be written");
        runtime::sleep(Duration::from_secs(60)).await;
        assert!(!engine.journal().is_void());
        assert_eq!(engine.flash_stats().items_lost, 0);
        assert_eq!(check(&engine, ITEMS, 6000).await, 0);
        // No checkpoint can be read when the stop begins.
        let (stop, ()) = join(engine.stop(), lasting(&faulty)).await;
        assert_eq!(stop, Stop::Complete { objects: ITEMS });
    });
    simulate(2, async {
        let (engine, ()) = join(engine_on(&faulty), lasting(&faulty)).await;
        assert!(is_warm(&engine));
        assert_eq!(check(&engine, ITEMS, 6000).await, 0);
        // The device stays unreadable until the process has ended.
        faulty.script(When::every(Operation::Read), Fault::Error);
        faulty.script(When::every(Operation::Write), Fault::Error);
        let stop = engine.stop().await;
        assert!(
            matches!(
                stop,
                Stop::Incomplete {
                    next_is_empty: false,
                    ..
                }
            ),
            "{stop:?}"
        );
        assert_eq!(engine.flash_stats().items_lost, 0);
    });
    faulty.heal();
    simulate(3, async {
        let engine = engine_on(&faulty).await;
        assert_eq!(check(&engine, ITEMS, 6000).await, 0);
    });
}

/// Segments that can never be read again delay no checkpoint. Those of their items that are in memory are placed again before a
/// clean stop ends.
#[test]
fn what_a_device_never_gives_again_is_lost_alone() {
    const ITEMS: u64 = 3000;
    let faulty = faulty();
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        fill(&engine, ITEMS, 3000).await;
        assert_eq!(engine.stop().await, Stop::Complete { objects: ITEMS });
    });
    simulate(2, async {
        let engine = engine_on(&faulty).await;
        let first = META_BYTES..META_BYTES + u64::from(SEGMENT_BYTES);
        let first = When::every(Operation::Read).within(first);
        faulty.script(first.clone(), Fault::Error);
        let mut lost = Vec::new();
        for number in 1..ITEMS {
            if get(&engine, &numbered(number)).await.is_none() {
                lost.push(number);
            }
        }
        assert!(!lost.is_empty());
        faulty.heal();
        // Half of the lost items are in memory.
        let (in_memory, elsewhere) = lost.split_at(lost.len() / 2);
        for _ in 0..3 {
            for &number in in_memory {
                assert!(get(&engine, &numbered(number)).await.is_some());
            }
        }
        faulty.script(first, Fault::Error);
        lose_records(&faulty, &engine, 3000).await;
        let objects = ITEMS - elsewhere.len() as u64;
        assert_eq!(engine.stop().await, Stop::Complete { objects });
    });
    simulate(3, async {
        let engine = engine_on(&faulty).await;
        assert!(is_warm(&engine));
        assert!(check(&engine, ITEMS, 3000).await < 50);
    });
}

/// A device on which writes last for hours: every request is answered within the patience, a set with a refusal.
#[test]
fn no_write_waits_longer_than_the_patience() {
    const ITEMS: u64 = 20_000;
    let faulty = faulty();
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        let patience = engine.config().write_patience;
        fill(&engine, 2000, 3000).await;
        let hours = Fault::Slow(Duration::from_secs(36_000));
        faulty.script(When::every(Operation::Write), hours);
        let (mut refused, mut longest) = (0, Duration::ZERO);
        for number in 0..ITEMS {
            let begin = runtime::now();
            let stored = set(&engine, &numbered(number), &value(number, 3000)).await;
            longest = longest.max(runtime::now().since(begin));
            refused += u64::from(stored.is_err());
            if refused == 3 {
                break;
            }
        }
        assert_eq!(refused, 3, "memory has no space for so many items");
        assert!(
            longest >= patience && longest < patience + Duration::from_secs(2),
            "{longest:?}"
        );
        let now = runtime::unix_seconds();
        for number in 0..2000 {
            let begin = runtime::now();
            let _ = engine
                .remove(engine.key(&numbered(number)).unwrap(), now)
                .await;
            assert!(runtime::now().since(begin) < patience + Duration::from_secs(2));
        }
    });
}

/// A device that refuses every write, the journal's too: once a request has waited for the patience, the others are refused at
/// once, until a segment can be written again.
#[test]
fn one_request_waits_for_a_device_that_refuses_all_writes() {
    let faulty = faulty();
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        let patience = engine.config().write_patience;
        faulty.script(When::every(Operation::Write), Fault::Error);
        faulty.media.journal.set_sync_fails(true);
        let mut waits = Vec::new();
        for number in 0..20_000 {
            let begin = runtime::now();
            let stored = set(&engine, &numbered(number), &value(number, 3000)).await;
            if stored.is_err() {
                waits.push(runtime::now().since(begin));
            }
        }
        assert!(waits.len() > 100, "memory has no space for so many items");
        assert!(waits[0] >= patience, "{waits:?}");
        let others: Duration = waits[1..].iter().sum();
        assert!(others < patience, "{others:?}");
        faulty.heal();
        faulty.media.journal.set_sync_fails(false);
        runtime::sleep(patience).await;
        fill(&engine, 2000, 3000).await;
    });
}

/// A device on which reads last for hours: requests for items on flash are answered within the patience, later ones at once, and
/// one a second still reads. A removal is made, other changes leave the item as it was, and the device that answers again is
/// noticed.
#[test]
fn no_request_waits_longer_than_the_patience_for_a_read() {
    const ITEMS: u64 = 3000;
    let faulty = faulty();
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        let patience = engine.config().write_patience;
        fill(&engine, ITEMS, 6000).await;
        assert!(engine.checkpoint_now().await);
        let on_flash = on_flash(&engine, ITEMS).await;
        let first = on_flash[0];
        let hours = Fault::Slow(Duration::from_secs(36_000));
        faulty.script(When::every(Operation::Read), hours);
        let begin = runtime::now();
        let key = numbered(first);
        let together = join(get(&engine, &key), get(&engine, &key));
        assert_eq!(together.await, (None, None));
        assert_eq!(runtime::now().since(begin), patience);
        // Most are refused at once; a second apart, one is let through.
        let begin = runtime::now();
        let reads = engine.store().counters().reads.sum();
        let mut missed = Vec::new();
        for &number in &on_flash {
            match get(&engine, &numbered(number)).await {
                // It is in a write buffer.
                Some(found) => assert!(found == value(number, 6000), "item {number}"),
                None => missed.push(number),
            }
        }
        let [kept, removed, ..] = missed[..] else {
            panic!("nothing needs a read");
        };
        let waited = runtime::now().since(begin);
        let reads = engine.store().counters().reads.sum() - reads;
        assert!(
            waited <= patience * reads as u32,
            "{waited:?} for {reads} reads"
        );
        assert!(reads <= 2, "{reads} reads of {}", on_flash.len());
        let change = |number, change: Change<'static>| {
            let engine = Arc::clone(&engine);
            async move {
                let key = numbered(number);
                let key = engine.key(&key).unwrap();
                let begin = runtime::now();
                let changed = engine
                    .modify(key, runtime::unix_seconds(), |found| {
                        (change.clone(), found.is_some())
                    })
                    .await;
                assert!(runtime::now().since(begin) <= patience);
                changed.map(|modified| modified.result)
            }
        };
        let put = Change::Put(Put::default());
        assert_eq!(change(kept, put).await, Err(CacheError::NoAnswer));
        assert_eq!(change(removed, Change::Remove).await, Ok(false));
        faulty.heal();
        runtime::sleep(Duration::from_secs(1)).await;
        let found = get(&engine, &numbered(first)).await;
        assert!(found == Some(value(first, 6000)), "it tries once a second");
        runtime::sleep(2 * patience).await;
        for number in on_flash {
            let found = get(&engine, &numbered(number)).await;
            let expected = (number != removed).then(|| value(number, 6000));
            assert!(found == expected, "item {number}");
        }
    });
}

/// Returns the items that a lookup does not find in memory.
async fn on_flash(engine: &Arc<Engine>, items: u64) -> Vec<u64> {
    let now = runtime::unix_seconds();
    let is_on_flash = |number: &u64| {
        let key = numbered(*number);
        let key = engine.key(&key).unwrap();
        matches!(engine.lookup(key, now, Peek::Yes, |_| ()), Lookup::Flash(_))
    };
    (0..items).filter(is_on_flash).collect()
}
