//! Devices that fail: the result is a counted miss, never a wrong value, and the cache never hangs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Fault, FaultyDisk, Operation, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::journal::Unusable;
use flowstone_engine::{Change, Distrust, Engine, EngineConfig, OpenError, Start, Stop};
use rand::Rng;

use crate::support::{
    Media, SEGMENT_BYTES, fill, for_each_seed, get, is_warm, memory_disk, numbered, objects,
    random, remove, run_background, set, simulate, start, tight, value,
};

pub(crate) const IMAGE_BYTES: u64 = 65 << 20;
const SEGMENTS: u64 = (IMAGE_BYTES - META_BYTES) / SEGMENT_BYTES as u64;

pub(crate) async fn engine_on(faulty: &Faulty) -> Arc<Engine> {
    start(&faulty.media, &tight()).await
}

/// Opens the image, with force if a misdirected write has hit its first bytes.
async fn engine_on_or_forced(faulty: &Faulty) -> Arc<Engine> {
    match faulty.media.open(&tight()).await {
        Ok(engine) => {
            run_background(&engine);
            engine.recovered().await;
            engine
        }
        Err(OpenError::Foreign) => {
            let force = EngineConfig {
                force: true,
                ..tight()
            };
            start(&faulty.media, &force).await
        }
        Err(other) => panic!("{other}"),
    }
}

/// A disk that fails on request, with a journal.
pub(crate) struct Faulty {
    pub(crate) disk: Arc<FaultyDisk>,
    pub(crate) media: Media,
}

impl Faulty {
    fn new(len_bytes: u64, seed: u64) -> Self {
        let disk = Arc::new(FaultyDisk::in_memory(len_bytes, seed));
        let media = Media::new(disk.clone());
        Self { disk, media }
    }
}

impl std::ops::Deref for Faulty {
    type Target = FaultyDisk;

    fn deref(&self) -> &FaultyDisk {
        &self.disk
    }
}

pub(crate) fn faulty() -> Faulty {
    Faulty::new(IMAGE_BYTES, 1)
}

/// Reads every item; returns the number of misses.
pub(crate) async fn check(engine: &Arc<Engine>, count: u64, len: usize) -> u64 {
    let mut missed = 0;
    for number in 0..count {
        match get(engine, &numbered(number)).await {
            Some(found) => assert_eq!(found, value(number, len), "item {number}"),
            None => missed += 1,
        }
    }
    missed
}

#[test]
fn failed_reads_are_misses_and_end_with_their_cause() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 5000, 3000).await;
        faulty.script(When::every(Operation::Read), Fault::Error);
        let missed = check(&engine, 1000, 3000).await;
        let stats = engine.stats().paths;
        assert!(missed > 500, "{stats:?}");
        assert_eq!((stats.misses, stats.failed_reads), (missed, missed));
        let counters = engine.store().counters();
        assert_eq!(counters.read_errors.load(Ordering::Relaxed), missed);
        faulty.heal();
        assert_eq!(check(&engine, 5000, 3000).await, 0, "the index kept them");
    });
}

#[test]
fn an_item_that_cannot_be_read_is_a_miss_to_a_change_and_does_not_come_back() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 5000, 3000).await;
        faulty.script(When::every(Operation::Read), Fault::Error);
        let now = runtime::unix_seconds();
        let key = numbered(0);
        let changed = engine
            .modify(engine.key(&key).unwrap(), now, |found| {
                (Change::Use, found.is_some())
            })
            .await;
        assert!(!changed.unwrap().result, "a miss");
        faulty.heal();
        assert_eq!(get(&engine, &key).await, None);
    });
}

#[test]
fn decayed_bits_cost_the_items_they_hit() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 6000, 1000).await;
        engine.stop().await;
        drop(engine);
        let engine = engine_on(&faulty).await;
        assert!(is_warm(&engine), "{:?}", engine.start());
        assert_eq!(objects(&engine), 6000);
        let mut random = random(3);
        for _ in 0..2000 {
            let offset = random.random_range(META_BYTES..META_BYTES + (6 << 20));
            let bit = random.random_range(0..8);
            faulty.decay(offset, bit).await.unwrap();
        }
        let missed = check(&engine, 6000, 1000).await;
        let corrupt = engine
            .store()
            .counters()
            .corrupt_items
            .load(Ordering::Relaxed);
        assert!(missed > 500 && missed < 2001, "{missed}");
        assert_eq!(corrupt, missed);
        // Corrupt items leave the index: another lookup costs no read.
        let reads = engine.store().counters().reads.sum();
        for number in 0..6000 {
            get(&engine, &numbered(number)).await;
        }
        let again = engine.store().counters().reads.sum() - reads;
        assert!(again < 6000 - missed + 1, "{again} reads");
    });
}

/// Every kind of wrong write at once, with reclaim running and restarts in between.
#[test]
fn whatever_the_device_does_no_answer_is_wrong() {
    for_each_seed("whatever_the_device_does", 12, |seed| {
        simulate(seed, async {
            let faulty = Faulty::new(17 << 20, seed);
            let mut engine = engine_on(&faulty).await;
            let mut random = random(seed);
            let mut newest = vec![None; 3000];
            let mut hits = 0;
            for round in 0..6 {
                faulty.set_rates(vec![
                    (Operation::Read, Fault::Error, 0.02),
                    (Operation::Read, Fault::FlippedBit, 0.02),
                    (Operation::Write, Fault::Error, 0.02),
                    (Operation::Write, Fault::FlippedBit, 0.02),
                    (Operation::Write, Fault::Torn, 0.03),
                    (Operation::Write, Fault::Zeroed, 0.02),
                    (Operation::Write, Fault::Lost, 0.03),
                    (Operation::Write, Fault::Misdirected, 0.03),
                    (Operation::Erase, Fault::Error, 0.02),
                ]);
                for _ in 0..4000 {
                    let number = random.random_range(0..3000u64);
                    let slot = &mut newest[number as usize];
                    match random.random_range(0..10) {
                        0..5 => {
                            let len = random.random_range(0..12_000);
                            let tag = random.random();
                            set(&engine, &numbered(number), &value(tag, len))
                                .await
                                .unwrap();
                            *slot = Some((tag, len));
                        }
                        5 => {
                            let now = runtime::unix_seconds();
                            engine
                                .remove(engine.key(&numbered(number)).unwrap(), now)
                                .await
                                .unwrap();
                            *slot = None;
                        }
                        _ => {
                            if let Some(found) = get(&engine, &numbered(number)).await {
                                hits += 1;
                                let (tag, len) = slot.expect("removed");
                                assert!(found == value(tag, len), "item {number}");
                            }
                        }
                    }
                }
                // The superblock is spared: its loss has a test of its own.
                faulty.heal();
                let stopped = engine.stop().await;
                if round % 2 == 0 {
                    engine = engine_on_or_forced(&faulty).await;
                    if engine.start() == Start::Forced {
                        newest.fill(None);
                        continue;
                    }
                    match stopped {
                        Stop::Complete { .. } => assert!(is_warm(&engine)),
                        _ => assert!(!is_warm(&engine)),
                    }
                    continue;
                }
                // Once as if the process had died before it could stop.
                engine = engine_on_or_forced(&faulty).await;
                if engine.start() == Start::Forced {
                    newest.fill(None);
                }
            }
            assert!(hits > 1000, "{hits}");
        });
    });
}

#[test]
fn a_segment_that_cannot_be_written_is_retired_and_its_items_counted_lost() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        // Every write to the first two segments fails.
        let bad = META_BYTES..META_BYTES + 2 * u64::from(SEGMENT_BYTES);
        faulty.script(When::every(Operation::Write).within(bad), Fault::Error);
        let mut lost = 0;
        for round in 0..8 {
            for number in 0..8000 {
                let key = numbered(number);
                set(&engine, &key, &value(number, 3000)).await.unwrap();
            }
            lost = engine.stats().placement.items_lost;
            let retired = engine
                .store()
                .counters()
                .segments_retired
                .load(Ordering::Relaxed);
            if retired == 2 && round > 5 {
                break;
            }
        }
        let counters = engine.store().counters();
        assert_eq!(counters.segments_retired.load(Ordering::Relaxed), 2);
        assert_eq!(counters.write_errors.load(Ordering::Relaxed), 6);
        assert!(lost > 0 && lost <= 6 * 90, "{lost}");
        check(&engine, 8000, 3000).await;
        let stats = engine.stats();
        assert!(
            matches!(engine.stop().await, Stop::Complete { .. }),
            "{stats:#?}"
        );
    });
}

#[test]
fn items_that_memory_holds_are_not_lost_with_their_segments() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        faulty.script(When::every(Operation::Write), Fault::Error);
        fill(&engine, 300, 3000).await;
        let stop = engine.stop().await;
        assert!(
            matches!(
                stop,
                Stop::Incomplete {
                    items_left: 300,
                    ..
                }
            ),
            "{stop:?}"
        );
        let stats = engine.flash_stats();
        assert_eq!(stats.items_lost, 0, "in none of the rounds");
        assert!(stats.items_unplaced >= 300);
    });
}

#[test]
fn a_device_that_takes_no_writes_leaves_a_cache_in_memory() {
    for full in [false, true] {
        simulate(1, async {
            let faulty = faulty();
            let engine = engine_on(&faulty).await;
            if full {
                faulty.set_full(true);
            } else {
                faulty.script(When::every(Operation::Write), Fault::Error);
            }
            // Far more items than memory holds, and than three failures of every segment: no request waits for ever.
            let count = SEGMENTS * 4 * 85;
            fill(&engine, count, 3000).await;
            let stats = engine.stats();
            assert!(stats.placement.items_lost > 0);
            assert_eq!(
                get(&engine, &numbered(count - 1)).await,
                Some(value(count - 1, 3000))
            );
            check(&engine, count, 3000).await;
            let retired = &engine.store().counters().segments_retired;
            assert_eq!(retired.load(Ordering::Relaxed), 0, "no segment's fault");
            // The device has recovered.
            faulty.heal();
            fill(&engine, 4000, 3000).await;
            assert_eq!(check(&engine, 4000, 3000).await, 0);
        });
    }
}

#[test]
fn a_stop_that_fails_is_incomplete_and_the_next_start_has_what_was_on_flash() {
    for when in [
        // The checkpoint's write, every write, and the syncs.
        When::every(Operation::Write),
        When::every(Operation::Sync),
        When::every(Operation::Write).within(0..META_BYTES),
    ] {
        simulate(1, async {
            let faulty = faulty();
            let engine = engine_on(&faulty).await;
            fill(&engine, 3000, 1000).await;
            faulty.script(when.clone(), Fault::Error);
            let stopped = engine.stop().await;
            assert!(
                matches!(stopped, Stop::Incomplete { .. }),
                "{when:?}: {stopped:?}"
            );
            faulty.heal();
            drop(engine);
            let engine = engine_on(&faulty).await;
            let found = objects(&engine);
            let missed = check(&engine, 3000, 1000).await;
            assert_eq!(missed, 3000 - found, "{when:?}");
            // The mark may have reached the device although the device reported an error.
            assert!(!is_warm(&engine) || missed == 0, "{when:?}");
        });
    }
}

#[test]
fn a_superblock_that_cannot_be_written_takes_no_more_of_the_flash() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 3000, 1000).await;
        assert!(engine.checkpoint_now().await);
        let free = engine.store().pool().counts().free;
        let superblock = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblock, Fault::Error);
        for round in 0..100 {
            assert!(!engine.checkpoint_now().await);
            assert!(engine.store().pool().counts().free + 1 >= free, "{round}");
        }
        faulty.heal();
        assert!(engine.checkpoint_now().await);
        assert_eq!(engine.store().pool().counts().free, free);
    });
}

#[test]
fn a_stop_that_takes_too_long_is_incomplete() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 3000, 1000).await;
        let hours = std::time::Duration::from_secs(7200);
        faulty.script(When::every(Operation::Write), Fault::Slow(hours));
        let before = runtime::now();
        let stopped = engine.stop().await;
        let nothing_is_written = Stop::Incomplete {
            items_left: 3000,
            next_is_empty: false,
        };
        assert_eq!(stopped, nothing_is_written);
        assert_eq!(runtime::now().since(before), tight().stop_deadline);
        let sealed = engine.store().pool().counts().sealed;
        runtime::sleep(10 * hours).await;
        let writers = tight().writing.writers as u32;
        let left = engine.store().pool().counts().sealed;
        assert!(left > 0 && left + writers >= sealed, "{left} of {sealed}");
    });
}

#[test]
fn items_whose_segment_fails_during_the_stop_are_written_elsewhere() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 1000, 3000).await;
        faulty.script(When::next(Operation::Write).after(3), Fault::Error);
        assert_eq!(engine.stop().await, Stop::Complete { objects: 1000 });
        let engine = engine_on(&faulty).await;
        assert_eq!(check(&engine, 1000, 3000).await, 0);
    });
}

#[test]
fn a_damaged_checkpoint_starts_empty() {
    // Damage that makes no sense, and damage that would: to the clock, and to a cutoff.
    for (byte, bit) in [(8, 5), (24, 7)] {
        simulate(1, async {
            let faulty = faulty();
            let engine = engine_on(&faulty).await;
            fill(&engine, 300, 1000).await;
            let used = engine
                .store()
                .counters()
                .segments_written
                .load(Ordering::Relaxed);
            assert_eq!(used, 0);
            assert_eq!(engine.stop().await, Stop::Complete { objects: 300 });
            drop(engine);
            // Items fill the first two segments; the checkpoint is in the third.
            let checkpoint = META_BYTES + 2 * u64::from(SEGMENT_BYTES);
            faulty.decay(checkpoint + byte, bit).await.unwrap();
            let engine = engine_on(&faulty).await;
            assert_eq!(engine.start(), Start::Empty(Distrust::Checkpoint));
            assert_eq!(check(&engine, 300, 1000).await, 300);
            fill(&engine, 300, 1000).await;
            assert_eq!(engine.stop().await, Stop::Complete { objects: 300 });
            drop(engine);
            let engine = engine_on(&faulty).await;
            assert!(is_warm(&engine), "{:?}", engine.start());
            assert_eq!(objects(&engine), 300);
        });
    }
}

/// After a crash the start uses the previous checkpoint, and no overwritten item comes back.
#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_one_before() {
    for when in [
        When::every(Operation::Write).within(META_BYTES..IMAGE_BYTES),
        When::every(Operation::Write).within(0..META_BYTES),
        When::every(Operation::Sync),
    ] {
        let faulty = faulty();
        simulate(1, async {
            let engine = engine_on(&faulty).await;
            fill(&engine, 3000, 1000).await;
            assert!(engine.checkpoint_now().await);
            fill(&engine, 1000, 900).await;
            faulty.script(when.clone(), Fault::Error);
            assert!(!engine.checkpoint_now().await, "{when:?}");
            let stats = engine.checkpoint_stats();
            assert_eq!((stats.written, stats.failed), (1, 1), "{when:?}");
        });
        faulty.heal();
        simulate(2, async {
            let engine = engine_on(&faulty).await;
            assert!(matches!(engine.start(), Start::Warm { orderly: false, .. }));
            for number in 0..1000 {
                if let Some(found) = get(&engine, &numbered(number)).await {
                    assert_eq!(found, value(number, 900), "{when:?}: item {number}");
                }
            }
            assert!(engine.checkpoint_now().await, "{when:?}: it goes on");
        });
    }
}

/// Deaths since the checkpoint were only in the journal: a start without it is empty, and so is the next
/// start if that start is cut off half-way.
#[test]
fn a_lost_journal_stays_lost_when_the_start_after_it_fails() {
    let faulty = faulty();
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        fill(&engine, 6000, 3000).await;
    });
    simulate(2, async {
        let without_journal = Media::new(faulty.disk.clone());
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        let failed = without_journal.open(&tight()).await;
        assert!(matches!(failed.err(), Some(OpenError::Device(_))));
        faulty.heal();
        let engine = start(&without_journal, &tight()).await;
        assert!(
            matches!(engine.start(), Start::Empty(_)),
            "{:?}",
            engine.start()
        );
        assert_eq!(check(&engine, 6000, 3000).await, 6000);
    });
}

/// A caller that abandons its checkpoint prevents neither other callers nor the stop from writing one.
#[test]
fn a_checkpoint_that_is_dropped_half_way_blocks_no_other() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 3000, 1000).await;
        let slow = Fault::Slow(Duration::from_secs(1));
        faulty.script(When::next(Operation::Sync), slow);
        let impatient = runtime::timeout(Duration::from_millis(500), engine.checkpoint_now());
        assert!(impatient.await.is_err(), "it takes a second");
        assert!(engine.checkpoint_now().await);
        assert_eq!(engine.stop().await, Stop::Complete { objects: 3000 });
    });
}

#[test]
fn a_checkpoint_that_is_dropped_half_way_holds_no_segments() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 3000, 1000).await;
        assert!(engine.checkpoint_now().await);
        let free = engine.store().pool().counts().free;
        for after in 0..8 {
            // At each of its syncs, and at writes.
            let slow = Fault::Slow(Duration::from_secs(1));
            let operation = [Operation::Sync, Operation::Write][after % 2];
            faulty.script(When::next(operation).after(after as u64 / 2), slow);
            let impatient = runtime::timeout(Duration::from_millis(500), engine.checkpoint_now());
            let _ = impatient.await;
            assert!(engine.checkpoint_now().await);
        }
        assert_eq!(engine.store().pool().counts().free, free);
    });
}

/// Items of the segment are not in the index, so that no delete declares them dead one by one. The segment stays dead after
/// any number of checkpoints.
#[test]
fn a_segment_that_recovery_could_not_read_does_not_come_back() {
    for checkpoints in 0..3 {
        let faulty = faulty();
        simulate(1, async {
            let engine = engine_on(&faulty).await;
            fill(&engine, 3000, 6000).await;
        });
        simulate(2, async {
            // The first read of its last page finds that there is a summary.
            let tail =
                META_BYTES + u64::from(SEGMENT_BYTES) - 4096..META_BYTES + u64::from(SEGMENT_BYTES);
            let summary = When::every(Operation::Read).within(tail).after(1);
            faulty.script(summary, Fault::Error);
            let engine = engine_on(&faulty).await;
            assert_eq!(engine.recovery().segments_unreadable, 1);
            for number in 0..3000 {
                remove(&engine, number).await;
            }
            for _ in 0..checkpoints {
                assert!(engine.checkpoint_now().await);
            }
        });
        simulate(3, async {
            let engine = engine_on(&faulty).await;
            assert!(matches!(engine.start(), Start::Warm { .. }));
            assert_eq!(check(&engine, 3000, 6000).await, 3000, "{checkpoints}");
        });
    }
}

/// No request waits for ever, and the next start finds nothing that cannot be trusted.
#[test]
fn a_journal_that_is_full_with_no_checkpoint_to_be_had_is_void() {
    let faulty = faulty();
    simulate(1, async {
        let engine = engine_on(&faulty).await;
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        // Each round is more than memory holds: nearly every item displaces one on flash.
        let mut round = 0;
        while !engine.journal().is_void() {
            assert!(round < 40, "it fills up");
            for number in 0..20_000 {
                set(&engine, &numbered(number), &value(round, 300))
                    .await
                    .unwrap();
            }
            round += 1;
        }
        assert!(engine.checkpoint_stats().failed > 0);
        fill(&engine, 3000, 1000).await;
        assert_eq!(get(&engine, &numbered(2999)).await, Some(value(2999, 1000)));
    });
    faulty.heal();
    simulate(2, async {
        let engine = engine_on(&faulty).await;
        let void = Distrust::Journal(Unusable::Void);
        assert_eq!(engine.start(), Start::Empty(void));
        fill(&engine, 300, 1000).await;
        assert!(!engine.journal().is_void(), "the next life has one again");
    });
}

#[test]
fn a_journal_that_cannot_be_synced_is_counted() {
    simulate(1, async {
        let media = memory_disk(IMAGE_BYTES);
        let engine = start(&media, &tight()).await;
        media.journal.set_sync_fails(true);
        fill(&engine, 2000, 1000).await;
        runtime::sleep(std::time::Duration::from_secs(30)).await;
        assert!(engine.checkpoint_stats().sync_errors > 0);
        assert_eq!(get(&engine, &numbered(0)).await, Some(value(0, 1000)));
        media.journal.set_sync_fails(false);
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    });
}

#[test]
fn a_device_that_fails_while_opening_is_said_so() {
    for operation in [Operation::Read, Operation::Write, Operation::Sync] {
        simulate(1, async {
            let faulty = faulty();
            faulty.script(When::every(operation), Fault::Error);
            let opened = faulty.media.open(&tight()).await;
            assert!(
                matches!(
                    opened.err(),
                    Some(OpenError::Device(_) | OpenError::NoSync(_))
                ),
                "{operation}"
            );
        });
    }
}

/// The flash has too little space for all of memory and a checkpoint at once: the oldest items are
/// dropped, and the stop succeeds.
#[test]
fn a_stop_finds_room_on_a_full_flash() {
    for seed in 1..=6 {
        simulate(seed, async {
            let disk = memory_disk(META_BYTES + (8 + seed * 4) * u64::from(SEGMENT_BYTES));
            let mut config = tight();
            config.writing.buffers = 8;
            let engine = start(&disk, &config).await;
            let count = 20_000 + seed * 321;
            for number in 0..count {
                set(&engine, &numbered(number), &value(number, 1000))
                    .await
                    .unwrap();
                if number % 3 == 0 {
                    get(&engine, &numbered(number / 2)).await;
                }
            }
            let stopped = engine.stop().await;
            let Stop::Complete { objects } = stopped else {
                panic!("{stopped:?} {:#?}", engine.stats());
            };
            assert!(objects > 200, "{objects}");
            drop(engine);
            let engine = start(&disk, &config).await;
            assert!(is_warm(&engine), "{:?}", engine.start());
            // Reclaim may have started at once.
            assert_eq!(engine.recovery().items, objects);
            let missed = check(&engine, count, 1000).await;
            let stats = engine.stats();
            let dropped = stats.placement.items_evicted;
            assert!(
                count - missed + dropped >= objects,
                "{objects} {missed} {stats:#?}"
            );
            let corrupt = engine
                .store()
                .counters()
                .corrupt_items
                .load(Ordering::Relaxed);
            assert_eq!(corrupt, 0, "the checkpoint names what is there");
        });
    }
}

/// The device loses every write of a run and keeps the items of the run before, item for item in the
/// same places: no old item passes for an item of the new run.
#[test]
fn what_a_lost_write_leaves_of_an_earlier_run_does_not_verify() {
    simulate(1, async {
        let faulty = faulty();
        let engine = engine_on(&faulty).await;
        fill(&engine, 5000, 3000).await;
        drop(engine);
        // Without its journal nothing on it counts.
        let media = Media::new(faulty.media.disk.clone());
        let engine = start(&media, &tight()).await;
        let missing = Distrust::Journal(Unusable::Missing);
        assert_eq!(engine.start(), Start::Empty(missing));
        let segments = META_BYTES..IMAGE_BYTES;
        faulty.script(When::every(Operation::Write).within(segments), Fault::Lost);
        for number in 0..5000 {
            let new = value(number + 1_000_000, 3000);
            set(&engine, &numbered(number), &new).await.unwrap();
        }
        let mut missed = 0;
        for number in 0..5000 {
            match get(&engine, &numbered(number)).await {
                Some(found) => assert!(found == value(number + 1_000_000, 3000), "{number}"),
                None => missed += 1,
            }
        }
        assert!(missed > 1000, "{missed}");
        let corrupt = &engine.store().counters().corrupt_items;
        assert_eq!(corrupt.load(Ordering::Relaxed), missed);
    });
}
