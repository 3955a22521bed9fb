//! A limit on writes: an overload, and the meter that tells whether the limit is kept.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use device::{MeteredDisk, WriteMeter};
use flowstone_engine::EngineConfig;
use rand::Rng;
use runtime::now;

use crate::support::{Media, get, memory_disk, numbered, random, set, start, value};

pub(crate) const LIMIT: u64 = 2 << 20;
/// Bytes set each second: ten times the limit.
pub(crate) const SET_BYTES: u64 = 20 << 20;
pub(crate) const VALUE_BYTES: usize = 2000;
/// Longest time of a request: shorter than the write of a segment at the limit.
pub(crate) const LONGEST: Duration = Duration::from_millis(50);

/// Returns an empty disk, and the meter of its writes.
pub(crate) fn metered(bytes: u64) -> (Arc<WriteMeter>, Media) {
    let meter = Arc::new(WriteMeter::new(Duration::from_secs(10)));
    let disk = MeteredDisk::new(memory_disk(bytes).disk, Arc::clone(&meter));
    (meter, Media::new(Arc::new(disk)))
}

/// Returns the most bytes written within ten seconds, as a multiple of the limit.
pub(crate) fn over_ten(meter: &WriteMeter) -> f64 {
    meter.most() as f64 / (10 * LIMIT) as f64
}

pub(crate) fn limited(config: EngineConfig) -> EngineConfig {
    EngineConfig {
        flash_write_limit: NonZeroU64::new(LIMIT),
        ..config
    }
}

/// Sets and gets for `seconds` seconds, at ten times the limit; every value found must be the newest.
pub(crate) async fn overload(seed: u64, config: &EngineConfig, seconds: u64) {
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
