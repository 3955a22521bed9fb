//! Requests during recovery: their writes, their removals, and the journal records that they cost. No item whose removal was
//! acknowledged comes back, and requests and recovery never deadlock.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use device::{Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{Change, Dram, Engine, EngineConfig, ItemView, Put, Start};
use futures_util::FutureExt;
use runtime::sim::Sim;

use crate::journal::{IMAGE_BYTES, ITEMS, SHORT_JOURNAL, count_right, fill_tagged, killed};
use crate::map_placement::MapKind;
use crate::support::{
    Left, Media, SEGMENT_BYTES, fill, for_each_seed, get, numbered, remove, run_background, set,
    simulate, start, tight,
};

/// Every key is overwritten early in a recovery. Each overwrite costs records now, and more once the old copy is
/// found. The ring has space for a fraction of these records.
#[test]
fn a_burst_of_writes_during_a_slow_recovery_leaves_a_warm_start() {
    let left = killed(SHORT_JOURNAL);
    let slow = Latency {
        read: Duration::from_millis(100),
        write: Duration::from_micros(300),
        sync: Duration::from_micros(500),
    };
    let sim = Sim::new(2);
    let disk = Arc::new(MemoryDisk::from_image(left.image, slow));
    let media = Media::with_words(disk.clone(), left.words);
    let (during, last) = sim.block_on(async {
        let engine = media.open(&tight()).await.unwrap();
        assert!(matches!(engine.start(), Start::Warm { .. }));
        run_background(&engine);
        let (mut longest, mut meanwhile) = (Duration::ZERO, 0);
        let mut during = None;
        for number in 0..ITEMS {
            let began = runtime::now();
            fill_tagged(&engine, number..number + 1, ITEMS).await;
            longest = longest.max(runtime::now().since(began));
            let recovery = engine.recovery();
            if recovery.segments_done < recovery.segments {
                meanwhile = engine.checkpoint_stats().written;
                if meanwhile == 2 && during.is_none() {
                    during = Some((Left::of(&disk, &media), number));
                }
            }
        }
        assert!(meanwhile > 1, "{meanwhile} checkpoints during recovery");
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        assert!(!engine.journal().is_void());
        during.unwrap()
    });
    sim.crash();
    let left = Left::of(&disk, &media);
    simulate(3, async {
        let engine = start(&left.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        let found = count_right(&engine, 0..ITEMS, ITEMS).await;
        assert!(found as u64 > ITEMS / 2, "{found}");
    });
    simulate(4, async {
        let engine = start(&during.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        count_right(&engine, 0..last + 1, ITEMS).await;
        assert!(count_right(&engine, last + 1..ITEMS, 0).await > 0);
    });
}

/// The number of keys written during a recovery is limited. Beyond the limit, segments that have not been read are given up.
#[test]
fn more_keys_than_a_recovery_can_note_end_it() {
    let left = killed(1 << 20);
    let stuck = Latency {
        read: Duration::from_secs(20),
        ..Latency::default()
    };
    simulate(2, async {
        let disk = Arc::new(MemoryDisk::from_image(left.image, stuck));
        let media = Media::with_words(disk, left.words);
        let config = tight();
        let engine = media.open(&config).await.unwrap();
        run_background(&engine);
        let mut refused = 0;
        for number in 0..400_000 {
            let stored = set(&engine, format!("other-{number}").as_bytes(), b"").await;
            refused += u32::from(stored.is_err());
            if number % 1000 == 0 {
                let noted = engine.stats().memory.index_bytes;
                assert!(noted < config.memory_bytes / 2, "{noted} bytes");
            }
        }
        assert!(refused < 4000, "{refused} found no space for ten seconds");
        engine.recovered().await;
        assert!(
            engine.recovery().segments_unreadable > 0,
            "some are given up"
        );
        assert!(!engine.journal().is_void());
        count_right(&engine, 0..ITEMS, 0).await;
    });
}

/// No checkpoint can be written, the journal is full, and then it cannot be synced either. Tasks that wait for its space
/// go on all the same.
#[test]
fn a_recovery_that_waits_for_the_journal_goes_on_when_that_is_void() {
    let left = killed(SHORT_JOURNAL);
    let slow = Latency {
        read: Duration::from_millis(100),
        ..Latency::default()
    };
    let config = EngineConfig {
        sync_interval: Duration::from_secs(2),
        ..tight()
    };
    let disk = Arc::new(FaultyDisk::from_image(left.image, slow, 1));
    let media = Media::with_words(disk.clone(), left.words);
    simulate(2, async {
        let engine = media.open(&config).await.unwrap();
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        disk.script(superblocks, Fault::Error);
        run_background(&engine);
        let now = runtime::unix_seconds();
        let has_removed = |number| engine.try_remove(engine.key(&numbered(number)).unwrap(), now);
        assert!(!(0..ITEMS).all(has_removed), "the journal is full before");
        runtime::sleep(Duration::from_secs(1)).await;
        let recovery = engine.recovery();
        assert!(recovery.segments_done < recovery.segments);
        assert!(!engine.journal().is_void());
        media.journal.set_sync_fails(true);
        let goes_on = async {
            engine.recovered().await;
            remove(&engine, ITEMS - 1).await;
        };
        let within = runtime::timeout(Duration::from_secs(60), goes_on).await;
        assert!(within.is_ok(), "{:?}", engine.recovery());
        assert!(engine.journal().is_void());
    });
}

/// The journal is full, and no segment is free for the checkpoint that would make space. Reclaim waits for a segment whose
/// reader waits for that space: the reader leaves the segment off.
#[test]
fn a_recovery_leaves_off_a_segment_that_reclaim_needs_for_a_checkpoint() {
    const FEW: u64 = 500;
    let (disk, media) = Left {
        image: Image::new(META_BYTES + 16 * u64::from(SEGMENT_BYTES)),
        words: vec![0; SHORT_JOURNAL],
    }
    .media();
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..FEW, 0).await;
        engine.sync().await.unwrap();
        Left::of(&disk, &media)
    });
    let slow = Latency {
        read: Duration::from_millis(100),
        ..Latency::default()
    };
    let disk = Arc::new(MemoryDisk::from_image(left.image, slow));
    let media = Media::with_words(disk, left.words);
    simulate(2, async {
        let engine = media.open(&tight()).await.unwrap();
        run_background(&engine);
        runtime::sleep(Duration::from_millis(1)).await;
        let recovery = engine.recovery();
        assert!(recovery.segments > 0 && recovery.segments_done == 0);
        let has_stored = |number: u64| {
            let name = format!("large-{number}");
            let stored = set(&engine, name.as_bytes(), &[0; 100_000]);
            stored.now_or_never().is_some()
        };
        assert!(!(0..1000).all(has_stored), "no segment is free before");
        let now = runtime::unix_seconds();
        let has_removed = |number: u64| {
            let name = format!("other-{number}");
            engine.try_remove(engine.key(name.as_bytes()).unwrap(), now)
        };
        assert!(!(0..10_000).all(has_removed), "the journal is full before");
        assert_eq!(engine.store().pool().counts().free, 0);
        let within = runtime::timeout(Duration::from_secs(60), engine.recovered()).await;
        assert!(within.is_ok(), "{:?}", engine.recovery());
        assert!(!engine.journal().is_void());
        let checkpoints = engine.checkpoint_stats();
        assert!(checkpoints.written > 0 && checkpoints.failed == 0);
        assert!(count_right(&engine, 0..FEW, 0).await > 0);
    });
}

/// Items that recovery has declared dead are durably dead when it ends. The newer copies are removed after that, each with a
/// record of its own, and a power cut keeps any subset of the records.
#[test]
fn what_recovery_found_superseded_stays_gone_when_a_power_cut_follows() {
    const TWICE: u64 = 1000;
    let config = EngineConfig {
        sync_interval: Duration::from_secs(3600),
        ..tight()
    };
    for_each_seed("what_recovery_found_superseded", 5, |seed| {
        let cut = |disk: &MemoryDisk, media: &Media| Left {
            image: disk.snapshot(),
            words: media.journal.power_cut(seed),
        };
        let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
        let media = Media::new(disk.clone());
        simulate(seed, async {
            let engine = start(&media, &config).await;
            for tag in [0, ITEMS] {
                fill_tagged(&engine, 0..TWICE, tag).await;
                let others = TWICE..ITEMS / 2;
                fill_tagged(&engine, others.start + tag..others.end + tag, 0).await;
            }
        });
        let (disk, media) = cut(&disk, &media).media();
        simulate(seed, async {
            let engine = start(&media, &config).await;
            for number in 0..TWICE {
                remove(&engine, number).await;
            }
        });
        let (_, media) = cut(&disk, &media).media();
        simulate(seed, async {
            let engine = start(&media, &config).await;
            count_right(&engine, 0..TWICE, ITEMS).await;
        });
    });
}

/// Returns the keys that are removed in tests of checkpoints during a recovery.
fn removed() -> StepBy<Range<u64>> {
    (0..ITEMS).step_by(20)
}

/// Starts from `left`, once for each of many moments of its recovery: writes a checkpoint at that moment, cuts the power, and
/// looks for keys that were [`removed`], before or by `begin`. Returns how many recoveries ended during their checkpoint.
fn checkpointed_in_recovery(
    left: &Left,
    slow: Latency,
    config: &EngineConfig,
    begin: impl AsyncFn(&Arc<Engine>, StepBy<Range<u64>>),
) -> u32 {
    let mut ended_meanwhile = 0;
    for step in 0..40 {
        let disk = Arc::new(MemoryDisk::from_image(left.image.clone(), slow));
        // The start syncs the words that it finds.
        let media = Media::with_words(disk.clone(), left.words.clone());
        let cut = simulate(step, async {
            let engine = media.open(config).await.unwrap();
            run_background(&engine);
            begin(&engine, removed()).await;
            runtime::sleep(Duration::from_millis(200 + 5 * step)).await;
            let is_recovering = || engine.recovery().segments_done < engine.recovery().segments;
            let before = is_recovering();
            assert!(engine.checkpoint_now().await);
            ended_meanwhile += u32::from(before && !is_recovering());
            Left {
                image: disk.snapshot(),
                words: media.journal.power_cut(step),
            }
        });
        simulate(step, async {
            let engine = start(&cut.media().1, &tight()).await;
            for number in removed() {
                let item = get(&engine, &numbered(number)).await;
                assert_eq!(item, None, "item {number}, step {step}");
            }
        });
    }
    ended_meanwhile
}

/// A checkpoint begun during a recovery lists the keys that died in it only while the recovery is in progress. If the recovery
/// ends first, it has found their copies, and records the place of each, behind the records that the checkpoint covers.
#[test]
fn what_died_during_a_recovery_stays_gone_whenever_a_checkpoint_is_begun() {
    let left = killed(1 << 20);
    let slow = Latency {
        read: Duration::from_millis(20),
        write: Duration::from_millis(20),
        sync: Duration::from_millis(1),
    };
    let config = EngineConfig {
        sync_interval: Duration::from_secs(3600),
        ..tight()
    };
    let ended = checkpointed_in_recovery(&left, slow, &config, async |engine, is_removed| {
        for number in is_removed {
            remove(engine, number).await;
        }
    });
    assert!(ended > 0, "no recovery has ended during a checkpoint");
}

/// Items that a recovery has declared dead are durably dead when it ends. A checkpoint in progress has neither their records,
/// which are behind its cut, nor the keys that these replace. With it the records that named the keys are dropped.
#[test]
fn what_was_durably_dead_stays_gone_when_a_recovery_ends_during_a_checkpoint() {
    let slow = Latency {
        read: Duration::from_millis(20),
        ..Latency::default()
    };
    let config = EngineConfig {
        sync_interval: Duration::from_secs(3600),
        ..tight()
    };
    let checkpointed = simulate(1, async {
        let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
        let media = Media::with_words(disk.clone(), vec![0; 1 << 20]);
        let engine = start(&media, &config).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        assert!(engine.checkpoint_now().await);
        Left::of(&disk, &media)
    });
    // The records name keys, since recovery has not read the places of the copies.
    let left = simulate(2, async {
        let disk = Arc::new(MemoryDisk::from_image(checkpointed.image, slow));
        let media = Media::with_words(disk.clone(), checkpointed.words);
        let engine = media.open(&config).await.unwrap();
        for number in removed() {
            remove(&engine, number).await;
        }
        Left::of(&disk, &media)
    });
    let ended = checkpointed_in_recovery(&left, slow, &config, async |_, _| ());
    assert!(ended > 0, "no recovery has ended during a checkpoint");
}

/// Where copies are known by key alone, items of earlier runs are found once all are recovered. An item of this run is found
/// at once: of clients that race to create an item, one wins.
#[test]
fn an_item_stored_during_recovery_is_found_during_recovery() {
    let stored = 3000;
    for placement in [MapKind::REBUILT, MapKind::SURVIVING] {
        let config = EngineConfig {
            placement: Arc::new(placement),
            dram: Dram::WriteBuffers {
                spare_buffers: Some(1),
            },
            write_back: None,
            ..tight()
        };
        let sim = Sim::new(5);
        let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        sim.block_on(async {
            let engine = start(&media, &config).await;
            fill(&engine, stored, 3000).await;
            assert_eq!(engine.sync().await, Ok(()));
        });
        sim.crash();
        let media = Left::of(&disk, &media).media().1;
        sim.block_on(async {
            let engine = media.open(&config).await.unwrap();
            assert!(engine.recovery().is_running, "nothing recovers yet");
            let name = numbered(stored);
            let key = engine.key(&name).unwrap();
            let mut winners = 0;
            for _ in 0..16 {
                let create = |found: Option<&ItemView<'_>>| match found {
                    None => (Change::Put(Put::default()), 1),
                    Some(_) => (Change::Keep, 0),
                };
                let now = runtime::unix_seconds();
                let modified = engine.modify(key, now, create).await;
                winners += modified.unwrap().result;
            }
            assert_eq!(winners, 1);
            assert!(get(&engine, &name).await.is_some());
            assert!(get(&engine, &numbered(0)).await.is_none(), "hidden");
            remove(&engine, stored).await;
            assert!(get(&engine, &name).await.is_none());
            run_background(&engine);
            engine.recovered().await;
            assert!(get(&engine, &name).await.is_none());
            assert!(get(&engine, &numbered(0)).await.is_some());
        });
    }
}
