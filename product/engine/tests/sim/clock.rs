//! Clocks that are wrong in one run and right in the next: no item comes back, and none is lost.

use std::sync::Arc;
use std::time::Duration;

use device::Image;
use flowstone_engine::{
    AfterDowntime, Amend, Change, Distrust, Engine, EngineConfig, Peek, Put, Start,
};
use parking_lot::Mutex;
use runtime::sim::Sim;

use crate::faults::IMAGE_BYTES;
use crate::support::{Left, fill, get, get_item, numbered, set, start, tight, value};

const HOUR: i64 = 3600;
const YEAR: i64 = 366 * 24 * HOUR;

/// A cache whose runs end with a kill, each under a wall clock of its own.
struct Cache {
    sim: Sim,
    left: Left,
}

impl Cache {
    fn new() -> Self {
        Self {
            sim: Sim::new(11),
            left: Left::new(Image::new(IMAGE_BYTES)),
        }
    }

    /// Runs the cache once, after the wall clock has moved by `seconds`.
    fn run(&mut self, seconds: i64, config: &EngineConfig, work: impl AsyncFnOnce(Arc<Engine>)) {
        self.sim.shift_wall_clock(seconds);
        let (disk, media) = self.left.media();
        self.sim.block_on(async {
            let engine = start(&media, config).await;
            engine.recovered().await;
            work(Arc::clone(&engine)).await;
            assert_eq!(engine.sync().await, Ok(()));
        });
        self.sim.crash();
        self.left = Left::of(&disk, &media);
    }
}

fn is_warm(start: Start) -> bool {
    matches!(start, Start::Warm { .. })
}

/// Stores an item with a time to live.
async fn set_for(engine: &Engine, number: u64, seconds: u32) {
    let now = runtime::unix_seconds();
    let put = Put {
        value: value(number, 100).into(),
        expiry: now + seconds,
        ..Put::default()
    };
    let key = numbered(number);
    engine
        .set(engine.key(&key).unwrap(), now, &put)
        .await
        .unwrap();
}

async fn is_there(engine: &Arc<Engine>, number: u64) -> bool {
    get(engine, &numbered(number)).await.is_some()
}

/// Returns the time to live that readers see.
async fn time_to_live(engine: &Arc<Engine>, number: u64) -> u32 {
    let seen = get_item(engine, &numbered(number), Peek::Yes).await;
    seen.expect("it is there").expiry - runtime::unix_seconds()
}

async fn pass(seconds: u64) {
    runtime::sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn a_clock_of_two_hours_ahead_costs_no_item_at_the_starts_after_it() {
    let mut cache = Cache::new();
    cache.run(2 * HOUR, &tight(), async |engine| {
        set_for(&engine, 1, 3600).await;
        set_for(&engine, 2, 60).await;
        pass(100).await;
        assert!(!is_there(&engine, 2).await);
    });
    cache.run(-2 * HOUR, &tight(), async |engine| {
        assert!(is_warm(engine.start()) && is_there(&engine, 1).await);
        assert!(!is_there(&engine, 2).await, "an expired item is back");
        assert!((3400..3600).contains(&time_to_live(&engine, 1).await));
        set_for(&engine, 3, 3600).await;
        pass(100).await;
    });
    cache.run(0, &tight(), async |engine| {
        assert!(is_there(&engine, 1).await && is_there(&engine, 3).await);
        assert!(!is_there(&engine, 2).await, "an expired item is back");
        assert!((3400..3600).contains(&time_to_live(&engine, 3).await));
        pass(3450).await;
        assert!(!is_there(&engine, 1).await, "an item outlives its time");
        assert!(is_there(&engine, 3).await);
        pass(100).await;
        assert!(!is_there(&engine, 3).await);
    });
}

#[test]
fn a_start_decades_ahead_expires_nothing() {
    let mut cache = Cache::new();
    cache.run(0, &tight(), async |engine| {
        fill(&engine, 3000, 3000).await;
        set_for(&engine, 1, 3600).await;
        set_for(&engine, 2, 600).await;
    });
    cache.run(30 * YEAR, &tight(), async |engine| {
        assert!(is_there(&engine, 1).await && is_there(&engine, 2).await);
        assert!((3400..=3600).contains(&time_to_live(&engine, 1).await));
        // Long enough for the crawler and a write-back to judge the copy in memory.
        pass(300).await;
        assert!(is_there(&engine, 2).await);
        pass(400).await;
        assert!(!is_there(&engine, 2).await, "an item outlives its time");
        set_for(&engine, 3, 3600).await;
    });
    cache.run(-30 * YEAR, &tight(), async |engine| {
        assert!(!is_there(&engine, 2).await, "an expired item is back");
        assert!(is_there(&engine, 1).await && is_there(&engine, 3).await);
        pass(2950).await;
        assert!(!is_there(&engine, 1).await, "an item outlives its time");
        assert!(is_there(&engine, 3).await);
    });
}

#[test]
fn an_item_of_another_clock_that_is_amended_keeps_its_time_to_live() {
    let mut cache = Cache::new();
    cache.run(2 * HOUR, &tight(), async |engine| {
        set_for(&engine, 1, 3600).await;
        set_for(&engine, 2, 3600).await;
    });
    cache.run(-2 * HOUR, &tight(), async |engine| {
        let now = runtime::unix_seconds();
        let (one, two) = (numbered(1), numbered(2));
        let won = Amend {
            won: Some(true),
            ..Amend::default()
        };
        engine
            .modify(engine.key(&one).unwrap(), now, |_| (Change::Amend(won), ()))
            .await
            .unwrap();
        let replace = |item: Option<&flowstone_engine::ItemView<'_>>| {
            let put = Put {
                expiry: item.expect("it is there").expiry,
                ..Put::default()
            };
            (Change::Put(put), ())
        };
        engine
            .modify(engine.key(&two).unwrap(), now, replace)
            .await
            .unwrap();
        for number in [1, 2] {
            assert!((3500..=3600).contains(&time_to_live(&engine, number).await));
        }
    });
    cache.run(0, &tight(), async |engine| {
        for number in [1, 2] {
            assert!((3500..=3600).contains(&time_to_live(&engine, number).await));
        }
        pass(3600).await;
        assert!(!is_there(&engine, 1).await && !is_there(&engine, 2).await);
    });
}

#[test]
fn a_flush_that_was_asked_for_by_another_clock_does_not_come_late() {
    for (first, then) in [(2 * HOUR, -2 * HOUR), (0, 30 * YEAR)] {
        let mut cache = Cache::new();
        cache.run(first, &tight(), async |engine| {
            set(&engine, b"flushed", b"value").await.unwrap();
            engine.flush_all(runtime::unix_seconds() + 600).await;
        });
        for shift in [then, 0] {
            cache.run(shift, &tight(), async |engine| {
                pass(300).await;
                set(&engine, b"ticks", b"value").await.unwrap();
            });
        }
        cache.run(0, &tight(), async |engine| {
            assert_eq!(get(&engine, b"flushed").await, None);
        });
    }
}

#[test]
fn a_flush_that_has_come_does_not_come_again_by_another_clock() {
    let mut cache = Cache::new();
    cache.run(0, &tight(), async |engine| {
        // The journal has noted a second before that of the flush.
        pass(5).await;
        engine.flush_all(runtime::unix_seconds()).await;
    });
    cache.run(-24 * HOUR, &tight(), async |engine| {
        set(&engine, b"stored since", b"value").await.unwrap();
        pass(20).await;
        assert!(get(&engine, b"stored since").await.is_some());
    });
    cache.run(0, &tight(), async |engine| {
        assert!(get(&engine, b"stored since").await.is_some());
    });
}

#[test]
fn a_start_that_dies_notes_a_step_of_the_clock_once() {
    let mut cache = Cache::new();
    cache.run(0, &tight(), async |engine| set_for(&engine, 1, 3600).await);
    for step in [-2 * HOUR, 30 * YEAR] {
        let (disk, media) = cache.left.media();
        let states: Arc<Mutex<Vec<Left>>> = Arc::default();
        let (kept, log) = (Arc::clone(&states), Arc::downgrade(&media.journal));
        media.journal.observe(move |_| {
            let log = log.upgrade().expect("it is being stored to");
            kept.lock().push(Left {
                image: disk.snapshot(),
                words: log.crash(),
            });
        });
        let sim = Sim::new(11);
        sim.shift_wall_clock(step);
        sim.block_on(async { drop(start(&media, &tight()).await) });
        sim.crash();
        media.journal.observe(|_| {});
        let states = std::mem::take(&mut *states.lock());
        assert!(states.len() > 2);
        for left in states {
            let sim = Sim::new(11);
            let mut died = Cache { sim, left };
            died.run(step, &tight(), async |engine| {
                assert!((3500..=3600).contains(&time_to_live(&engine, 1).await));
            });
            died.run(0, &tight(), async |engine| {
                assert!((3500..=3600).contains(&time_to_live(&engine, 1).await));
            });
        }
    }
}

#[test]
fn a_downtime_that_no_clock_tells_is_too_long() {
    for after_downtime in [AfterDowntime::Empty, AfterDowntime::Stale] {
        let config = EngineConfig {
            max_downtime: Some(100_000),
            after_downtime,
            ..tight()
        };
        let mut cache = Cache::new();
        cache.run(2 * HOUR, &config, async |engine| {
            set(&engine, b"key", b"value").await.unwrap();
        });
        cache.run(-2 * HOUR, &config, async |engine| {
            let found = get_item(&engine, b"key", Peek::Yes).await;
            match after_downtime {
                AfterDowntime::Empty => {
                    assert_eq!(engine.start(), Start::Empty(Distrust::Clock));
                    assert_eq!(found, None);
                    set(&engine, b"new", b"value").await.unwrap();
                }
                AfterDowntime::Stale => assert!(found.unwrap().stale),
            }
        });
        cache.run(0, &config, async |engine| {
            assert!(
                is_warm(engine.start()),
                "its own clock is not taken for impossible"
            );
        });
    }
}
