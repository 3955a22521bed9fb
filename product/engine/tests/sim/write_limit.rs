//! A limit on writes: the drive never gets more, no request waits for it, and items beyond the limit are misses.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use device::{MeteredDisk, WriteMeter};
use flowstone_engine::{EngineConfig, ReclaimPolicy, Stop, Victim};
use rand::Rng;
use runtime::now;

use crate::support::{
    Media, SEGMENT_BYTES, didacache, for_each_seed, get, memory_disk, numbered, random, roomy, set,
    simulate, slotted, start, tight, value,
};
use crate::tiered::slickcache;

const LIMIT: u64 = 2 << 20;
/// Bytes set each second: ten times the limit.
const SET_BYTES: u64 = 20 << 20;
const VALUE_BYTES: usize = 2000;
/// Longest time of a request: shorter than the write of a segment at the limit.
const LONGEST: Duration = Duration::from_millis(50);

/// Returns an empty disk, and the meter of its writes.
fn metered(bytes: u64) -> (Arc<WriteMeter>, Media) {
    let meter = Arc::new(WriteMeter::new(Duration::from_secs(10)));
    let disk = MeteredDisk::new(memory_disk(bytes).disk, Arc::clone(&meter));
    (meter, Media::new(Arc::new(disk)))
}

/// Returns the most bytes written within ten seconds, as a multiple of the limit.
fn over_ten(meter: &WriteMeter) -> f64 {
    meter.most() as f64 / (10 * LIMIT) as f64
}

fn limited(config: EngineConfig) -> EngineConfig {
    EngineConfig {
        flash_write_limit: NonZeroU64::new(LIMIT),
        ..config
    }
}

/// Sets and gets for `seconds` seconds, at ten times the limit; every value found must be the newest.
async fn overload(seed: u64, config: &EngineConfig, seconds: u64) {
    const KEYS: u64 = 60_000;
    let (meter, media) = metered(96 << 20);
    let engine = start(&media, config).await;
    let random = &mut random(seed);
    let mut versions = vec![0; KEYS as usize];
    let each = Duration::from_secs(1) / (SET_BYTES / VALUE_BYTES as u64) as u32;
    let (begun, mut sets, mut found) = (now(), 0, 0);
    while now().since(begun) < Duration::from_secs(seconds) {
        let key = random.random_range(0..KEYS);
        versions[key as usize] += 1;
        let asked = now();
        let newest = value(versions[key as usize], VALUE_BYTES);
        set(&engine, &numbered(key), &newest).await.unwrap();
        let took = now().since(asked);
        assert!(took <= LONGEST, "a set took {took:?}");
        sets += 1;
        let key = random.random_range(0..KEYS);
        if let Some(seen) = get(&engine, &numbered(key)).await {
            let newest = value(versions[key as usize], VALUE_BYTES);
            assert!(seen == newest, "an older value of {key}");
            found += 1;
        }
        runtime::sleep(each).await;
    }
    let over_ten = over_ten(&meter);
    assert!(over_ten <= 1.02, "{over_ten} of the limit");
    // The limit is also used up.
    let used = meter.bytes() as f64 / (seconds * LIMIT) as f64;
    assert!((0.8..=1.02).contains(&used), "{used} of the limit");
    assert!(found > sets / 100, "{found} of {sets} found");
    let stats = engine.stats();
    let (bytes_per_s, held_back) = stats.write_limit.unwrap();
    assert_eq!(bytes_per_s, LIMIT);
    assert!(held_back.waits > 0);
    assert!(stats.tier.held_back > sets / 2, "{}", stats.tier.held_back);
    assert!(stats.tier.rejections >= stats.tier.held_back);
}

#[test]
fn ten_times_as_much_as_may_be_written_makes_nobody_wait_and_no_old_value() {
    for_each_seed("write_limit", 1, |seed| {
        let tiered = slickcache(
            ReclaimPolicy::Drop {
                victim: Victim::Oldest,
            },
            2000,
        );
        for config in [tight(), roomy(), slotted(seed), didacache(), tiered] {
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

/// A checkpoint of an index on flash is written behind all sealed buffers. With a limit few buffers are sealed, and none are
/// kept for reads.
#[test]
fn little_waits_for_the_limit_where_checkpoints_wait_for_that() {
    simulate(1, async {
        let (_, media) = metered(96 << 20);
        let tiered = slickcache(
            ReclaimPolicy::Drop {
                victim: Victim::Oldest,
            },
            2000,
        );
        let buffers = tiered.writing.buffers as u32;
        let engine = start(&media, &limited(tiered)).await;
        // The segments of half a second, and one that is sealed when that many wait.
        let most = (LIMIT / 2 / u64::from(SEGMENT_BYTES)) as u32 + 1;
        assert!(most < buffers - 2, "{most} of {buffers}");
        let mut seen = 0;
        for number in 0..60_000 {
            set(&engine, &numbered(number), &value(number, VALUE_BYTES))
                .await
                .unwrap();
            seen = seen.max(engine.store().sealed_segments());
            if number % 16 == 0 {
                runtime::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!((1..=most).contains(&seen), "{seen} sealed segments waited");
        runtime::sleep(Duration::from_secs(10)).await;
        assert_eq!(engine.store().sealed_segments(), 0);
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
