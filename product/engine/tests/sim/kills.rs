//! Kills at chosen moments, with three kinds of placement: one that locates displaced copies, one that leaves them to the
//! journal, and one whose index is part of checkpoints. Removed, superseded and expired items stay gone.

use std::sync::Arc;
use std::time::Duration;

use device::{Image, Latency, MemoryDisk};
use flowstone_engine::{Dram, Engine, EngineConfig, Put, ReclaimPolicy, Stop, Victim};
use runtime::sim::Sim;

use crate::map_placement::MapKind;
use crate::support::{
    Left, Media, fill, get, numbered, remove, run_background, set, start, tight, value,
};

const IMAGE_BYTES: u64 = 17 << 20;
/// Number of items: a few segments of them.
const ITEMS: u64 = 400;
const BYTES: usize = 2000;

/// The placements; `None` is the exact one.
const PLACEMENTS: [Option<MapKind>; 3] = [None, Some(MapKind::REBUILT), Some(MapKind::SURVIVING)];

/// Returns settings under which items go to segment buffers at once and segments are reclaimed in order of age.
fn config(placement: Option<MapKind>) -> EngineConfig {
    let mut config = EngineConfig {
        dram: Dram::WriteBuffers {
            spare_buffers: None,
        },
        write_back: None,
        ..tight()
    };
    config.reclaim.policy = ReclaimPolicy::Drop {
        victim: Victim::Oldest,
    };
    if let Some(map) = placement {
        config.placement = Arc::new(map);
    }
    config
}

fn empty() -> Left {
    Left::new(Image::new(IMAGE_BYTES))
}

/// Opens `left` on a disk of this latency, does `work` before the end of the recovery, and kills the cache. Returns the state
/// that the kill leaves.
fn killed_early(
    left: &Left,
    latency: Latency,
    config: &EngineConfig,
    work: impl AsyncFnOnce(&Arc<Engine>),
) -> Left {
    let disk = Arc::new(MemoryDisk::from_image(left.image.clone(), latency));
    let media = Media::with_words(disk.clone(), left.words.clone());
    let sim = Sim::new(1);
    sim.block_on(async {
        let engine = media.open(config).await.unwrap();
        run_background(&engine);
        work(&engine).await;
    });
    let left = Left::of(&disk, &media);
    sim.crash();
    left
}

/// Does the same after the recovery, on a disk without latency.
fn killed(left: &Left, config: &EngineConfig, work: impl AsyncFnOnce(&Arc<Engine>)) -> Left {
    killed_early(left, Latency::default(), config, async |engine| {
        engine.recovered().await;
        work(engine).await;
    })
}

/// Opens `left` after this many seconds, and looks at the cache once it has recovered.
fn opened(left: &Left, seconds: i64, config: &EngineConfig, look: impl AsyncFnOnce(&Arc<Engine>)) {
    let sim = Sim::new(2);
    sim.shift_wall_clock(seconds);
    sim.block_on(async {
        let engine = start(&left.media().1, config).await;
        look(&engine).await;
    });
}

async fn set_until(engine: &Arc<Engine>, number: u64, expiry: u32) {
    let put = Put {
        value: value(number, BYTES).into(),
        expiry,
        ..Put::default()
    };
    let name = numbered(number);
    let key = engine.key(&name).unwrap();
    let stored = engine.set(key, runtime::unix_seconds(), &put).await;
    stored.unwrap();
}

/// Overwrites one item and removes another, after a checkpoint that has both. Writes up to two more checkpoints before the
/// kill: the second one has the death from the first one alone.
fn removed_and_killed(placement: Option<MapKind>) {
    let config = config(placement);
    for checkpoints in 0..3 {
        let left = killed(&empty(), &config, async |engine| {
            fill(engine, ITEMS, BYTES).await;
            engine.sync().await.unwrap();
            assert!(engine.checkpoint_now().await);
            set(engine, &numbered(1), b"new").await.unwrap();
            remove(engine, 0).await;
            for _ in 0..checkpoints {
                assert!(engine.checkpoint_now().await);
            }
        });
        opened(&left, 0, &config, async |engine| {
            assert_eq!(get(engine, &numbered(0)).await, None, "{checkpoints}");
            let overwritten = get(engine, &numbered(1)).await;
            assert_ne!(overwritten, Some(value(1, BYTES)), "{checkpoints}");
            assert_eq!(get(engine, &numbered(2)).await, Some(value(2, BYTES)));
        });
    }
}

#[test]
fn what_was_removed_stays_gone_where_copies_are_located() {
    removed_and_killed(None);
}

#[test]
fn what_was_removed_stays_gone_where_the_journal_names_keys() {
    removed_and_killed(Some(MapKind::REBUILT));
}

#[test]
fn what_was_removed_stays_gone_where_the_index_survives() {
    removed_and_killed(Some(MapKind::SURVIVING));
}

/// The checkpoint of the stop has no record of the older copy: the newer one tells that it is dead.
#[test]
fn what_expired_in_the_downtime_keeps_older_copies_dead() {
    for placement in PLACEMENTS {
        let config = config(placement);
        let left = killed(&empty(), &config, async |engine| {
            fill(engine, ITEMS, BYTES).await;
            set_until(engine, 0, runtime::unix_seconds() + 60).await;
            let stopped = engine.stop().await;
            assert!(matches!(stopped, Stop::Complete { .. }), "{stopped:?}");
        });
        opened(&left, 120, &config, async |engine| {
            assert_eq!(get(engine, &numbered(0)).await, None, "{placement:?}");
            assert_eq!(get(engine, &numbered(2)).await, Some(value(2, BYTES)));
        });
    }
}

#[test]
fn what_had_expired_stays_so_when_the_clock_goes_back() {
    for placement in PLACEMENTS {
        let config = config(placement);
        let left = killed(&empty(), &config, async |engine| {
            set_until(engine, 0, runtime::unix_seconds() + 10).await;
            engine.sync().await.unwrap();
            runtime::sleep(Duration::from_secs(20)).await;
            assert!(engine.checkpoint_now().await);
        });
        opened(&left, 0, &config, async |engine| {
            assert_eq!(get(engine, &numbered(0)).await, None, "{placement:?}");
        });
    }
}

/// The index that a start finds in the checkpoint names the latest copies, and each of them is on flash.
#[test]
fn a_checkpoint_in_force_names_what_is_written() {
    let config = config(Some(MapKind::SURVIVING));
    let left = killed(&empty(), &config, async |engine| {
        fill(engine, ITEMS, BYTES).await;
        engine.sync().await.unwrap();
        set(engine, &numbered(1), b"new").await.unwrap();
        assert!(engine.checkpoint_now().await);
    });
    opened(&left, 0, &config, async |engine| {
        assert_eq!(get(engine, &numbered(1)).await, Some(b"new".to_vec()));
    });
}

/// The index of the checkpoint has the first items of a segment, and a start reads the others.
#[test]
fn what_comes_into_a_segment_behind_a_checkpoint_is_found() {
    let config = config(Some(MapKind::SURVIVING));
    let slow = Latency {
        write: Duration::from_millis(100),
        ..Latency::default()
    };
    let left = killed_early(&empty(), slow, &config, async |engine| {
        set(engine, &numbered(0), b"old").await.unwrap();
        engine.sync().await.unwrap();
        set(engine, &numbered(1), b"first").await.unwrap();
        let writing = Arc::clone(engine);
        let written = runtime::spawn(async move { writing.checkpoint_now().await });
        runtime::sleep(Duration::from_millis(10)).await;
        set(engine, &numbered(0), b"new").await.unwrap();
        assert!(written.await.unwrap());
        engine.sync().await.unwrap();
    });
    opened(&left, 0, &config, async |engine| {
        assert_eq!(get(engine, &numbered(1)).await, Some(b"first".to_vec()));
        assert_eq!(get(engine, &numbered(0)).await, Some(b"new".to_vec()));
    });
}

const SLOW_READS: Latency = Latency {
    read: Duration::from_secs(20),
    write: Duration::ZERO,
    sync: Duration::ZERO,
};

/// The place of the copy is not known yet: the record names the key.
#[test]
fn what_is_removed_before_a_recovery_has_found_it_stays_gone() {
    for placement in PLACEMENTS {
        let config = config(placement);
        let left = killed(&empty(), &config, async |engine| {
            fill(engine, ITEMS, BYTES).await;
            engine.sync().await.unwrap();
        });
        let left = killed_early(&left, SLOW_READS, &config, async |engine| {
            remove(engine, 0).await;
            let recovery = engine.recovery();
            assert!(recovery.segments_done < recovery.segments, "{recovery:?}");
        });
        opened(&left, 0, &config, async |engine| {
            assert_eq!(get(engine, &numbered(0)).await, None, "{placement:?}");
            assert_eq!(get(engine, &numbered(2)).await, Some(value(2, BYTES)));
        });
    }
}

/// The checkpoint takes the place of the record, and a later start reads the copy that this one has not come to.
#[test]
fn what_is_removed_in_a_recovery_stays_gone_when_a_checkpoint_follows() {
    let config = config(Some(MapKind::SURVIVING));
    let left = killed(&empty(), &config, async |engine| {
        fill(engine, ITEMS, BYTES).await;
        engine.sync().await.unwrap();
    });
    let left = killed_early(&left, SLOW_READS, &config, async |engine| {
        remove(engine, 0).await;
        assert!(engine.checkpoint_now().await);
        let recovery = engine.recovery();
        assert!(recovery.segments_done < recovery.segments, "{recovery:?}");
    });
    opened(&left, 0, &config, async |engine| {
        assert_eq!(get(engine, &numbered(0)).await, None);
        assert_eq!(get(engine, &numbered(2)).await, Some(value(2, BYTES)));
    });
}

#[test]
fn no_cas_unique_is_given_twice_though_kills_come_between() {
    let (mut left, mut given) = (empty(), Vec::new());
    for _ in 0..4 {
        left = killed(&left, &tight(), async |engine| {
            for number in 0..20 {
                let unique = set(engine, &numbered(0), &value(number, BYTES)).await;
                let unique = unique.unwrap();
                assert!(!given.contains(&unique), "{unique} again");
                given.push(unique);
            }
        });
    }
}
