//! Learned admission: items that are read again go to flash, and no older value ever comes back.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use flowstone_engine::{AdmissionKind, Engine};
use flowstone_flashield::Learning;
use rand::Rng;

use crate::filter::{VALUE_BYTES, filter, nothing_older_comes_back};
use crate::support::{for_each_seed, get, memory_disk, random, set, simulate, start, value};

const WINDOW: Duration = Duration::from_secs(10);
/// Number of keys that are read repeatedly, and of keys that are overwritten repeatedly.
const KEYS: u64 = 4000;

fn learning(delimiter: Option<u8>) -> Arc<dyn AdmissionKind> {
    Arc::new(Learning {
        reads: 2,
        window: WINDOW,
        delimiter,
        ..Learning::default()
    })
}

/// Runs three applications for the given seconds, with 1,000 steps each. Keys of `good` are read repeatedly, keys of `bad` are
/// overwritten repeatedly, and keys of `once` are stored, read once and left.
async fn run(engine: &Arc<Engine>, seconds: Range<u64>, [good, bad, once]: [&str; 3]) {
    let random = &mut random(seconds.start);
    let name = |of: &str, number: u64| format!("{of}:{number}").into_bytes();
    for second in seconds {
        for step in 0..1000 {
            let wanted = name(good, random.random_range(0..KEYS));
            if get(engine, &wanted).await.is_none() {
                set(engine, &wanted, &value(1, VALUE_BYTES)).await.unwrap();
            }
            let updated = name(bad, random.random_range(0..KEYS));
            if get(engine, &updated).await.is_none() || step % 2 == 0 {
                set(engine, &updated, &value(second, VALUE_BYTES))
                    .await
                    .unwrap();
            }
            let left = name(once, second * 1000 + step);
            set(engine, &left, &value(2, VALUE_BYTES)).await.unwrap();
            get(engine, &left).await;
        }
        let rest = Duration::from_secs(1);
        runtime::sleep(rest).await;
    }
}

/// Reads an application's keys; returns the number of hits on flash.
async fn on_flash(engine: &Arc<Engine>, of: &str, keys: Range<u64>) -> u64 {
    let before = engine.stats().paths.flash_hits;
    for number in keys {
        get(engine, format!("{of}:{number}").as_bytes()).await;
    }
    engine.stats().paths.flash_hits - before
}

#[test]
fn what_goes_to_flash_is_what_is_read_again_and_not_updated() {
    simulate(1, async {
        let engine = start(&memory_disk(65 << 20), &filter(learning(Some(b':')))).await;
        run(&engine, 0..30, ["good", "bad", "once"]).await;
        let learner = engine.learner_stats();
        let learned = |name| learner.find(name).expect("a statistic");
        assert!(
            learned("lessons") >= 2 && learned("applications") >= 2,
            "{learner:?}"
        );
        assert!(learned("samples_right_per_mille") > 850, "{learner:?}");
        let before = engine.stats();
        run(&engine, 30..50, ["good", "bad", "once"]).await;
        let stats = engine.stats();
        let placed = stats.tier.demotions - before.tier.demotions;
        let rejected = stats.tier.rejections - before.tier.rejections;
        let good = on_flash(&engine, "good", 0..KEYS).await;
        let bad = on_flash(&engine, "bad", 0..KEYS).await;
        let once = on_flash(&engine, "once", 30_000..50_000).await;
        assert!(good > KEYS * 8 / 10, "{good} of {KEYS}");
        assert!(bad < KEYS / 8 && once < 200, "{bad} and {once} on flash");
        assert!(
            rejected > 20_000 && placed < 2 * KEYS,
            "{placed} placed, {rejected} not"
        );
    });
}

/// The good and the bad application change places: after two windows admission has learned that.
#[test]
fn what_changes_overnight_is_learned_within_two_windows() {
    simulate(2, async {
        let engine = start(&memory_disk(65 << 20), &filter(learning(Some(b':')))).await;
        run(&engine, 0..30, ["one", "other", "once"]).await;
        assert!(on_flash(&engine, "one", 0..KEYS).await > KEYS * 8 / 10);
        run(&engine, 30..60, ["other", "one", "once"]).await;
        let before = engine.stats().tier.demotions;
        run(&engine, 60..70, ["other", "one", "once"]).await;
        let placed = engine.stats().tier.demotions - before;
        let now_good = on_flash(&engine, "other", 0..KEYS).await;
        let now_bad = on_flash(&engine, "one", 0..KEYS).await;
        assert!(
            now_good > KEYS * 8 / 10 && now_bad < KEYS / 8,
            "{now_good} and {now_bad}"
        );
        assert!(placed < KEYS, "{placed} placed in ten seconds");
    });
}

#[test]
fn of_many_applications_the_small_ones_share_one() {
    simulate(3, async {
        let engine = start(&memory_disk(33 << 20), &filter(learning(Some(b'/')))).await;
        let random = &mut random(3);
        for _ in 0..40 {
            for _ in 0..4000 {
                let large = random.random_range(0..2) == 0;
                let application = if large {
                    0
                } else {
                    random.random_range(1..10_000)
                };
                let key = format!("app{application}/{}", random.random_range(0..2));
                if get(&engine, key.as_bytes()).await.is_none() {
                    set(&engine, key.as_bytes(), b"some").await.unwrap();
                }
            }
            runtime::sleep(Duration::from_secs(1)).await;
        }
        let learner = engine.learner_stats();
        let learned = |name| learner.find(name).expect("a statistic");
        assert!(
            learned("applications") <= 1 && learned("samples") > 64,
            "{learner:?}"
        );
        assert!(
            learned("keys_watched_one_in") > 1,
            "no more keys than memory is for: {learner:?}"
        );
    });
}

/// Before the first lesson, items whose keys have been read are admitted. A read after the item has left memory counts, if keys
/// are remembered. A store without a read does not count.
#[test]
fn what_was_asked_for_after_it_had_left_is_known_when_it_comes_back() {
    for remembers in [true, false] {
        simulate(5, async {
            let config = filter(Arc::new(Learning {
                remembers,
                ..Learning::default()
            }));
            let engine = start(&memory_disk(65 << 20), &config).await;
            let store = async |numbers: Range<u64>| {
                for number in numbers {
                    let name = format!("key{number}").into_bytes();
                    set(&engine, &name, &value(1, VALUE_BYTES)).await.unwrap();
                }
            };
            store(0..40_000).await;
            for number in 10_000..12_000 {
                let name = format!("key{number}").into_bytes();
                assert!(get(&engine, &name).await.is_none(), "refused");
            }
            store(10_000..14_000).await;
            store(100_000..140_000).await;
            let stats = engine.stats();
            let least = if remembers { 1900 } else { 0 };
            let admitted = stats.admission.admitted;
            assert!((least..=2000).contains(&admitted), "{admitted}");
            assert_eq!(admitted > 0, remembers);
        });
    }
}

/// A get finds the newest value or none, across stops and starts.
#[test]
fn nothing_older_comes_back_while_admission_learns() {
    for_each_seed("nothing_older", 4, |seed| {
        let delimiter = [None, Some(b'1')][seed as usize % 2];
        nothing_older_comes_back(seed, &filter(learning(delimiter)));
    });
}
