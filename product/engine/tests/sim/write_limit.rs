//! A limit on writes: the drive never gets more, no request waits for it, and items beyond the limit are misses.

use std::time::Duration;

use flowstone_engine::{EngineConfig, Stop};

use crate::limit::{VALUE_BYTES, limited, metered, over_ten, overload};
use crate::support::{
    didacache, for_each_seed, get, numbered, roomy, set, simulate, slotted, start, tight, value,
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
