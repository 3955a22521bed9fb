//! `flush_all`, immediate and delayed, against each other, against reads, and after a kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cache::{KEYS, Media, OLD, get, set};
use super::{explore, join, start};
use crate::Peek;

/// Returns whether an engine started on these media finds none of the flushed items.
async fn is_gone(left: &Media) -> bool {
    let engine = left.open().await;
    for key in KEYS {
        if get(&engine, key).await.is_some() {
            return false;
        }
    }
    true
}

#[test]
fn a_flush_holds_whatever_flushes_come_between() {
    let name = "a_flush_holds_whatever_flushes_come_between";
    explore(name, 20, async |_| {
        let media = Media::stopped();
        let engine = media.open().await;
        let now = runtime::unix_seconds();
        let is_flushed = Arc::new(AtomicBool::new(false));
        let (cache, flushed) = (Arc::clone(&engine), Arc::clone(&is_flushed));
        let flusher = start(async move || {
            cache.flush_all(now).await;
            flushed.store(true, Ordering::SeqCst);
            assert_eq!(
                get(&cache, KEYS[0]).await,
                None,
                "what is flushed is not read"
            );
        });
        let cache = Arc::clone(&engine);
        let delayer = start(async move || {
            for _ in 0..2 {
                cache.flush_all(now + 1000).await;
            }
        });
        let cache = Arc::clone(&engine);
        let reader = start(async move || {
            let mut is_gone = false;
            for key in [0, 1, 0, 1].map(|key| KEYS[key]) {
                let seen = get(&cache, key).await;
                assert!(seen.is_none() || seen.as_deref() == Some(OLD) && !is_gone);
                is_gone = seen.is_none();
            }
        });
        let (running, flushed) = (media.clone(), Arc::clone(&is_flushed));
        let killer = start(async move || (flushed.load(Ordering::SeqCst), running.killed()));
        join([flusher, delayer, reader]);
        for key in KEYS {
            assert_eq!(get(&engine, key).await, None);
        }
        for (is_flushed, left) in [killer.join().unwrap(), (true, media.killed())] {
            assert!(!is_flushed || is_gone(&left).await, "a flush is undone");
        }
    });
}

#[test]
fn a_flush_that_has_come_is_not_taken_for_one_that_replaces_it() {
    let name = "a_flush_that_has_come_is_not_taken_for_one_that_replaces_it";
    explore(name, 20, async |_| {
        let media = Media::stopped();
        let engine = media.open().await;
        let now = runtime::unix_seconds();
        engine.flush_all(now + 1).await;
        let cache = Arc::clone(&engine);
        let flusher = start(async move || cache.flush_all(now + 5).await);
        let cache = Arc::clone(&engine);
        // The second of this reader has come, while the flusher still goes by the one before.
        let reader = start(async move || {
            for key in KEYS {
                let key = cache.key(key).unwrap();
                cache.lookup(key, now + 1, Peek::No, |_| ());
            }
        });
        join([flusher, reader]);
        for key in KEYS {
            set(&engine, key, b"new").await;
        }
        engine.sync().await.unwrap();
        let left = media.killed();
        runtime::sleep(Duration::from_secs(10)).await;
        assert!(is_gone(&left).await, "the later flush is forgotten");
    });
}
