//! A limit on writes with an index on flash.

use std::time::Duration;

use flowstone_engine::{ReclaimPolicy, Victim};

use crate::limit::{LIMIT, VALUE_BYTES, limited, metered, overload};
use crate::support::{SEGMENT_BYTES, numbered, set, simulate, start, value};
use crate::tiered::slickcache;

const DROP: ReclaimPolicy = ReclaimPolicy::Drop {
    victim: Victim::Oldest,
};

#[test]
fn ten_times_as_much_as_may_be_written_makes_nobody_wait_and_no_old_value() {
    simulate(1, overload(1, &limited(slickcache(DROP, 2000)), 20));
}

/// A checkpoint of an index on flash is written behind all sealed buffers. With a limit few buffers are sealed, and none are
/// kept for reads.
#[test]
fn little_waits_for_the_limit_where_checkpoints_wait_for_that() {
    simulate(1, async {
        let (_, media) = metered(96 << 20);
        let tiered = slickcache(DROP, 2000);
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
            seen = seen.max(engine.store().pool().counts().sealed);
            if number % 16 == 0 {
                runtime::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!((1..=most).contains(&seen), "{seen} sealed segments waited");
        runtime::sleep(Duration::from_secs(10)).await;
        assert_eq!(engine.store().pool().counts().sealed, 0);
    });
}
