//! A limit on writes: the drive never gets more, no request waits for it, and items beyond the limit are misses.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use device::{Disk, MemoryJournal, MeteredDisk, MeteredJournal, WriteMeter};
use flowstone_engine::config::journal_bytes;
use flowstone_engine::{EngineConfig, Opening, Stop};
use runtime::now;

use crate::limit::{VALUE_BYTES, limited, metered, over_ten, overload};
use crate::support::{
    didacache, fill, for_each_seed, get, memory_disk, numbered, roomy, run_background, set,
    simulate, slotted, start, tight, value,
};

#[test]
fn ten_times_as_much_as_may_be_written_makes_nobody_wait_and_no_old_value() {
    for_each_seed("write_limit", 1, |seed| {
        for config in [tight(), roomy(), slotted(seed), didacache()] {
            simulate(seed, overload(seed, &limited(config), 20));
        }
    });
}

#[test]
fn what_is_within_the_limit_is_kept_as_without() {
    simulate(1, async {
        let (meter, media) = metered(96 << 20);
        let config = EngineConfig {
            write_back: None,
            ..limited(tight())
        };
        let engine = start(&media, &config).await;
        for number in 0..20_000 {
            set(&engine, &numbered(number), &value(number, VALUE_BYTES))
                .await
                .unwrap();
            // 1.25 MB a second.
            runtime::sleep(Duration::from_micros(1600)).await;
        }
        let stats = engine.stats();
        assert_eq!(stats.tier.held_back, 0);
        assert!(meter.bytes() > 20 << 20);
        for number in 0..20_000 {
            assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
        }
    });
}

/// A stop saves the items for which its deadline leaves time; the others are misses.
#[test]
fn a_stop_keeps_within_the_limit_and_brings_back_no_old_value() {
    simulate(1, async {
        let (meter, media) = metered(96 << 20);
        let config = EngineConfig {
            stop_deadline: Duration::from_secs(3),
            write_back: None,
            ..limited(roomy())
        };
        let engine = start(&media, &config).await;
        for version in [1, 2] {
            for number in 0..20_000 {
                set(&engine, &numbered(number), &value(version, VALUE_BYTES))
                    .await
                    .unwrap();
            }
        }
        let stopped = engine.stop().await;
        assert!(matches!(stopped, Stop::Incomplete { .. }), "{stopped:?}");
        let over_ten = over_ten(&meter);
        assert!(over_ten <= 1.02, "{over_ten} of the limit");
        let engine = start(&media, &config).await;
        engine.recovered().await;
        for number in 0..20_000 {
            if let Some(seen) = get(&engine, &numbered(number)).await {
                assert!(seen == value(2, VALUE_BYTES), "an older value of {number}");
            }
        }
    });
}

/// The limit's bytes are for items that leave memory: write-back must not take them.
#[test]
fn write_back_rests_while_writes_wait() {
    simulate(1, async {
        let (_, media) = metered(96 << 20);
        let config = EngineConfig {
            write_back: Some(Duration::from_secs(1)),
            ..limited(roomy())
        };
        let engine = start(&media, &config).await;
        for number in 0..200_000 {
            set(&engine, &numbered(number), &value(number, VALUE_BYTES))
                .await
                .unwrap();
            runtime::sleep(Duration::from_micros(100)).await;
        }
        let tier = engine.stats().tier;
        assert!(tier.held_back > 100_000, "{}", tier.held_back);
        assert!(
            tier.written_back * 10 < tier.demotions,
            "{} written back, {} left memory for flash",
            tier.written_back,
            tier.demotions
        );
    });
}

/// Flash of the tests of overwriting clients: a quarter of 256 MiB, and so are keys, memory and limits.
const FLASH_BYTES: u64 = 64 << 20;
const KEYS: u64 = 300_000;

fn quarter(limit: Option<NonZeroU64>) -> EngineConfig {
    EngineConfig {
        memory_bytes: 24 << 20,
        segment_bytes: Some(512 << 10),
        write_back: None,
        flash_write_limit: limit,
        ..roomy()
    }
}

/// Overwrites keys on flash under a limit, 100,000 a second. Returns the longest wait, and the most bytes that reached the drive
/// within ten seconds, journal included, as a multiple of the limit.
async fn overwrite_flash(limit: u64) -> (Duration, f64) {
    let limit = NonZeroU64::new(limit);
    let disk = memory_disk(FLASH_BYTES).disk;
    let config = quarter(limit);
    let bytes = journal_bytes(FLASH_BYTES, 64 << 20, config.partition_bits, limit);
    let words = Arc::new(MemoryJournal::new(bytes as usize / 8));
    let log = Arc::clone(&words);
    let opening = Opening::new(Arc::clone(&disk), quarter(None));
    let engine = opening.open(move || Ok(log)).await.unwrap();
    run_background(&engine);
    fill(&engine, KEYS, 100).await;
    assert!(matches!(engine.stop().await, Stop::Complete { .. }));
    drop(engine);
    let meter = Arc::new(WriteMeter::new(Duration::from_secs(10)));
    let disk = MeteredDisk::new(disk, Arc::clone(&meter));
    let log = Arc::new(MeteredJournal::new(words, Arc::clone(&meter)));
    let opening = Opening::new(Arc::new(disk) as Arc<dyn Disk>, config);
    let engine = opening.open(move || Ok(log)).await.unwrap();
    run_background(&engine);
    engine.recovered().await;
    assert!(engine.flash_stats().objects > KEYS * 9 / 10);
    let mut longest = Duration::ZERO;
    for number in 0..KEYS {
        let asked = now();
        set(&engine, &numbered(number), &value(number + 1, 100))
            .await
            .unwrap();
        longest = longest.max(now().since(asked));
        if number % 10 == 0 {
            runtime::sleep(Duration::from_micros(100)).await;
        }
    }
    runtime::sleep(Duration::from_secs(20)).await;
    assert!(engine.checkpoint_stats().written > 0);
    let most = meter.most() as f64 / (10 * limit.unwrap().get()) as f64;
    eprintln!(
        "{limit:?} {longest:?} {most} {bytes} {:?}",
        engine.checkpoint_stats()
    );
    (longest, most)
}

/// Issue: "under `--flash-write-limit` one client that overwrites keys on flash (64 MiB : 256 MiB) waits for a checkpoint
/// that waits for the limit", and "count the journal, and let checkpoints go first within the limit".
#[test]
fn a_client_that_overwrites_keys_on_flash_does_not_wait_for_the_limit() {
    // 600TB/5y, 1 MiB and 256 KiB a second. Records alone are eight times the last limit.
    for (limit, longest) in [(3_802_570 / 4, 0), (1 << 18, 0), (1 << 16, 6)] {
        let (waited, most) = simulate(1, overwrite_flash(limit));
        let longest = Duration::from_secs(longest);
        assert!(waited <= longest, "{limit}: {waited:?}");
        assert!(most <= 1.02, "{limit}: {most} of the limit");
    }
}
