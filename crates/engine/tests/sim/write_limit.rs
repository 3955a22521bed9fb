//! A limit on writes: the drive gets no more, nobody waits for it, and what does not fit is a miss.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::{AlignedBuf, Disk, IoFuture, SharedBuf};
use flowstone_engine::{EngineConfig, ReclaimPolicy, Stop, Victim};
use rand::Rng;
use runtime::{Instant, now};

use crate::support::{
    Media, didacache, for_each_seed, get, memory_disk, numbered, random, roomy, set, simulate,
    slotted, start, tight, value,
};
use crate::tiered::slickcache;

const LIMIT: u64 = 2 << 20;
/// Set each second: some ten times as much as may be written.
const SET_BYTES: u64 = 20 << 20;
const VALUE_BYTES: usize = 2000;
/// The longest that a request may take: no write of a segment at the limit's pace.
const LONGEST: Duration = Duration::from_millis(50);

/// A disk that notes when how much is written.
struct Noted {
    inner: Arc<dyn Disk>,
    writes: Mutex<Vec<(Instant, usize)>>,
}

impl Noted {
    fn media(bytes: u64) -> (Arc<Self>, Media) {
        let noted = Arc::new(Self {
            inner: memory_disk(bytes).disk,
            writes: Mutex::default(),
        });
        let media = Media::new(Arc::clone(&noted) as Arc<dyn Disk>);
        (noted, media)
    }

    fn bytes(&self) -> u64 {
        let writes = self.writes.lock().unwrap();
        writes.iter().map(|&(_, bytes)| bytes as u64).sum()
    }

    /// The most bytes written within so long.
    fn most_within(&self, window: Duration) -> u64 {
        let writes = self.writes.lock().unwrap();
        let (mut most, mut sum, mut first) = (0, 0, 0);
        for &(at, bytes) in &*writes {
            sum += bytes as u64;
            while at.since(writes[first].0) >= window {
                sum -= writes[first].1 as u64;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }
}

impl Disk for Noted {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf) -> IoFuture<'_, ()> {
        self.writes.lock().unwrap().push((now(), data.len()));
        self.inner.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.inner.discard(offset, len)
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        self.inner.sync()
    }
}

fn limited(config: EngineConfig) -> EngineConfig {
    EngineConfig {
        flash_write_limit: NonZeroU64::new(LIMIT),
        ..config
    }
}

/// Sets and gets for so many seconds, ten times as much as may be written; whatever is found is the newest value.
async fn overload(seed: u64, config: &EngineConfig, seconds: u64) {
    const KEYS: u64 = 60_000;
    let (noted, media) = Noted::media(96 << 20);
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
    let over_ten = noted.most_within(Duration::from_secs(10)) as f64 / (10 * LIMIT) as f64;
    assert!(over_ten <= 1.02, "{over_ten} of the limit");
    // It is used, too: what is written is what may be.
    let used = noted.bytes() as f64 / (seconds * LIMIT) as f64;
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
        let (noted, media) = Noted::media(96 << 20);
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
        assert!(noted.bytes() > 20 << 20);
        for number in 0..20_000 {
            assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
        }
    });
}

/// A stop saves what its deadline leaves time for; what it does not save is a miss.
#[test]
fn a_stop_keeps_within_the_limit_and_brings_back_no_old_value() {
    simulate(1, async {
        let (noted, media) = Noted::media(96 << 20);
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
        let over_ten = noted.most_within(Duration::from_secs(10)) as f64 / (10 * LIMIT) as f64;
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
