//! The library as its users see it: any thread, any executor, a file on disk.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, not only the tests themselves"
)]

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flowstone::{Cache, CacheConfig, Error, InsertOptions, OpenError, Start, Stop, block_on};
use proptest::prelude::*;

/// A file in a directory that is deleted with it.
struct Flash {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Flash {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache.flash");
        Self {
            _directory: directory,
            path,
        }
    }

    fn open(&self) -> Cache {
        open(config(&self.path)).unwrap()
    }
}

fn config(path: &Path) -> CacheConfig {
    CacheConfig::new(path)
        .flash_size(64 << 20)
        .memory(24 << 20)
        .threads(2)
        .max_value_size(100_000)
}

fn open(config: CacheConfig) -> Result<Cache, OpenError> {
    block_on(Cache::open(config))
}

fn get(cache: &Cache, key: &str) -> Option<Vec<u8>> {
    let value = block_on(cache.get(key.as_bytes())).unwrap();
    value.map(|value| value.to_vec())
}

fn insert(cache: &Cache, key: &str, value: &[u8]) {
    block_on(cache.insert(key.as_bytes(), value)).unwrap();
}

fn close(cache: Cache) {
    let stop = block_on(cache.close());
    assert!(matches!(stop, Stop::Complete { .. }), "{stop:?}");
}

fn value(n: usize) -> Vec<u8> {
    vec![n as u8; 50 + n * 37 % 5000]
}

/// Returns a cache of `items` values, all only on flash.
fn cold(flash: &Flash, items: usize) -> Cache {
    let cache = flash.open();
    for n in 0..items {
        insert(&cache, &format!("key-{n}"), &value(n));
    }
    close(cache);
    let cache = flash.open();
    assert_warm(&cache, items as u64);
    cache
}

/// Checks that every item saved by a clean stop is there.
fn assert_warm(cache: &Cache, objects: u64) {
    let start = cache.start();
    assert!(
        matches!(start, Start::Warm { orderly: true, .. }),
        "{start:?}"
    );
    // An open waits at most half a second for recovery.
    while cache.stats().unwrap().recovering {
        thread::yield_now();
    }
    assert_eq!(cache.stats().unwrap().flash_items, objects);
}

/// Polls all futures from one task until the last is done.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(cx)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[test]
fn everything_crosses_threads() {
    fn is_send<T: Send>(thing: T) -> T {
        thing
    }
    fn is_shared<T: Clone + Send + Sync + 'static>(thing: T) -> T {
        thing
    }
    let flash = Flash::new();
    let cache = is_shared(block_on(is_send(Cache::open(config(&flash.path)))).unwrap());
    block_on(is_send(cache.insert(b"k", b"v"))).unwrap();
    let value = is_shared(block_on(is_send(cache.get(b"k"))).unwrap().unwrap());
    assert_eq!(&*value, b"v");
    block_on(is_send(cache.remove(b"k"))).unwrap();
    block_on(is_send(cache.close()));
}

#[test]
fn what_is_stored_is_found_replaced_and_removed() {
    let flash = Flash::new();
    let cache = flash.open();
    assert_eq!(cache.start(), Start::New);
    assert_eq!(get(&cache, "a"), None);
    insert(&cache, "a", b"1");
    insert(&cache, "empty", b"");
    assert_eq!(get(&cache, "a"), Some(b"1".to_vec()));
    assert_eq!(get(&cache, "empty"), Some(Vec::new()));
    insert(&cache, "a", b"a longer value");
    assert_eq!(get(&cache, "a"), Some(b"a longer value".to_vec()));
    block_on(cache.remove(b"a")).unwrap();
    assert_eq!(get(&cache, "a"), None);
    let stats = cache.stats().unwrap();
    assert_eq!((stats.memory_hits, stats.misses, stats.inserts), (3, 2, 3));
    close(cache);
}

#[test]
fn flags_and_expiry_come_back_from_memory_and_from_flash() {
    let flash = Flash::new();
    let mut cache = flash.open();
    let hour = InsertOptions::new()
        .ttl(Duration::from_millis(3_599_500))
        .flags(0xdead_beef);
    let long = vec![7; 90_000];
    block_on(cache.insert_with(b"short", b"v", hour)).unwrap();
    block_on(cache.insert_with(b"long", &long, hour)).unwrap();
    for _ in 0..2 {
        for (key, wanted) in [("short", &b"v"[..]), ("long", &long)] {
            let value = block_on(cache.get(key.as_bytes())).unwrap().unwrap();
            assert_eq!(&value, wanted);
            assert_eq!(value.flags(), 0xdead_beef);
            let expiry = value.expires_at().unwrap();
            let left = expiry.duration_since(SystemTime::now()).unwrap();
            assert!((3_500..=3_600).contains(&left.as_secs()), "{left:?}");
        }
        close(cache);
        cache = flash.open();
    }
    insert(&cache, "short", b"for good");
    let value = block_on(cache.get(b"short")).unwrap().unwrap();
    assert_eq!((value.flags(), value.expires_at()), (0, None));
    let never = InsertOptions::new().ttl(Duration::ZERO);
    block_on(cache.insert_with(b"short", b"dead", never)).unwrap();
    assert_eq!(get(&cache, "short"), None, "and the old value is gone");
    let for_ever = InsertOptions::new().ttl(Duration::MAX);
    block_on(cache.insert_with(b"short", b"kept", for_ever)).unwrap();
    assert_eq!(get(&cache, "short"), Some(b"kept".to_vec()));
    close(cache);
}

#[test]
fn a_value_outlives_the_item_and_the_cache() {
    let flash = Flash::new();
    let cache = cold(&flash, 100);
    let held: Vec<_> = (0..100)
        .map(|n| block_on(cache.get(format!("key-{n}").as_bytes())).unwrap())
        .collect();
    let clone = held[90].clone();
    for n in 0..100 {
        insert(&cache, &format!("key-{n}"), b"another");
    }
    close(cache);
    for (n, held) in held.iter().enumerate() {
        assert_eq!(held.as_deref(), Some(&value(n)[..]));
    }
    assert_eq!(clone.as_deref(), Some(&value(90)[..]));
}

#[test]
fn values_that_are_held_do_not_keep_others_from_being_read() {
    let flash = Flash::new();
    let cache = flash.open();
    let large = |n: usize| vec![n as u8; 90_000 + n];
    for n in 0..60 {
        insert(&cache, &n.to_string(), &large(n));
    }
    close(cache);
    let cache = flash.open();
    let held: Vec<_> = (0..60)
        .map(|n| block_on(cache.get(n.to_string().as_bytes())).unwrap())
        .collect();
    for (n, held) in held.iter().enumerate() {
        assert_eq!(held.as_deref(), Some(&large(n)[..]));
    }
    close(cache);
}

#[test]
fn more_than_memory_holds_is_found_on_flash_and_after_a_restart() {
    let flash = Flash::new();
    let cache = flash.open();
    let items = 14_000;
    for n in 0..items {
        insert(&cache, &format!("key-{n}"), &value(n));
    }
    let stats = cache.stats().unwrap();
    assert!(stats.flash_items > 1_000, "{stats:?}");
    let lost = |cache: &Cache| {
        (0..items)
            .filter(|n| {
                let found = get(cache, &format!("key-{n}"));
                assert!(found.is_none() || found == Some(value(*n)), "key-{n}");
                found.is_none()
            })
            .count()
    };
    assert_eq!(lost(&cache), 0, "{:?}", cache.stats());
    let stats = cache.stats().unwrap();
    assert!(stats.flash_hits > 1_000, "{stats:?}");
    close(cache);
    let cache = flash.open();
    assert_eq!(lost(&cache), 0, "{:?}", cache.stats());
    close(cache);
}

#[test]
fn plain_threads_work_at_once() {
    let flash = Flash::new();
    let cache = flash.open();
    let threads = 8;
    thread::scope(|scope| {
        for thread in 0..threads {
            let cache = cache.clone();
            scope.spawn(move || {
                for round in 0..3 {
                    for n in 0..800 {
                        let key = format!("{thread}-{n}");
                        insert(&cache, &key, &value(n + round));
                        if n % 7 == 0 {
                            block_on(cache.remove(key.as_bytes())).unwrap();
                        }
                        let back = n / 2;
                        let wanted = (back % 7 != 0).then(|| value(back + round));
                        assert_eq!(get(&cache, &format!("{thread}-{back}")), wanted);
                    }
                }
            });
        }
    });
    close(cache);
    let cache = flash.open();
    for thread in 0..threads {
        for n in 0..800 {
            let wanted = (n % 7 != 0).then(|| value(n + 2));
            assert_eq!(get(&cache, &format!("{thread}-{n}")), wanted);
        }
    }
    close(cache);
}

#[test]
fn many_who_ask_for_one_cold_key_cost_one_read() {
    let flash = Flash::new();
    let cache = cold(&flash, 100);
    let before = cache.stats().unwrap().flash_reads;
    // From one task: all reads are in flight before the first is awaited.
    let gets = (0..500).map(|_| cache.get(b"key-42")).collect();
    for found in block_on(join_all(gets)) {
        assert_eq!(found.unwrap().as_deref(), Some(&value(42)[..]));
    }
    assert_eq!(cache.stats().unwrap().flash_reads, before + 1);
    // From many threads.
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| assert_eq!(get(&cache, "key-43"), Some(value(43))));
        }
    });
    let stats = cache.stats().unwrap();
    assert_eq!(stats.flash_reads, before + 2);
    assert_eq!(stats.memory_hits + stats.flash_hits, 550);
    close(cache);
}

#[test]
fn keys_of_a_wrong_length_are_refused() {
    let flash = Flash::new();
    let cache = flash.open();
    let longest = [b'k'; 250];
    block_on(cache.insert(&longest, b"v")).unwrap();
    assert!(block_on(cache.get(&longest)).unwrap().is_some());
    for key in [&[][..], &[b'k'; 251], &[b'k'; 70_000]] {
        let refused = Error::Key { len: key.len() };
        assert_eq!(block_on(cache.get(key)).err(), Some(refused));
        assert_eq!(block_on(cache.insert(key, b"v")), Err(refused));
        assert_eq!(block_on(cache.remove(key)), Err(refused));
    }
    close(cache);
}

#[test]
fn a_value_too_large_removes_the_old_one() {
    let flash = Flash::new();
    let cache = cold(&flash, 1);
    block_on(cache.insert(b"largest", &[1; 100_000])).unwrap();
    assert_eq!(get(&cache, "largest"), Some(vec![1; 100_000]));
    let refused = Error::ValueTooLarge {
        len: 100_001,
        max: 100_000,
    };
    // One key in memory, and one only on flash.
    for key in ["largest", "key-0"] {
        let stored = block_on(cache.insert(key.as_bytes(), &[1; 100_001]));
        assert_eq!(stored, Err(refused));
        assert_eq!(get(&cache, key), None);
    }
    close(cache);
}

#[test]
fn settings_that_cannot_work_are_refused_and_nothing_is_left_behind() {
    let flash = Flash::new();
    let refusal = |config: CacheConfig| open(config).unwrap_err();
    let memory = refusal(config(&flash.path).memory(5 << 20));
    assert!(
        matches!(memory, OpenError::Memory { needed, .. } if needed == 22 << 20),
        "{memory}"
    );
    let threads = refusal(config(&flash.path).threads(0));
    assert!(matches!(
        threads,
        OpenError::Range {
            name: "threads",
            ..
        }
    ));
    let small = refusal(config(&flash.path).flash_size(1 << 20));
    assert!(matches!(small, OpenError::Config(_)), "{small}");
    let nowhere = refusal(config(&flash.path.join("no/such/directory")));
    assert!(matches!(nowhere, OpenError::Flash(_)), "{nowhere}");
    assert!(!flash.path.exists(), "no file was left");
    open(config(&flash.path).memory(22 << 20))
        .map(close)
        .unwrap();
}

#[test]
fn an_image_of_another_size_or_of_something_else_is_refused() {
    let flash = Flash::new();
    close(cold(&flash, 10));
    let larger = open(config(&flash.path).flash_size(80 << 20)).unwrap_err();
    assert!(matches!(larger, OpenError::Flash(_)), "{larger}");
    let smaller = open(config(&flash.path).flash_size(32 << 20)).unwrap_err();
    assert!(matches!(smaller, OpenError::Image { .. }), "{smaller}");
    // Bytes beyond a whole page are not used, so the size is the same.
    let cache = open(config(&flash.path).flash_size((64 << 20) + 100)).unwrap();
    assert_warm(&cache, 10);
    let second = open(config(&flash.path)).unwrap_err();
    assert!(
        second.to_string().contains("in use by this process"),
        "{second}"
    );
    close(cache);

    let foreign = Flash::new();
    let text = b"somebody's data".repeat(1 << 20);
    std::fs::write(&foreign.path, &text).unwrap();
    let config = CacheConfig::new(&foreign.path)
        .memory(24 << 20)
        .threads(2)
        .max_value_size(1000);
    let refused = open(config.clone()).unwrap_err();
    assert!(
        refused.to_string().contains("not a Flowstone image"),
        "{refused}"
    );
    assert_eq!(std::fs::read(&foreign.path).unwrap(), text, "untouched");
    let cache = open(config.force(true)).unwrap();
    assert_eq!(cache.start(), Start::Forced);
    close(cache);
}

#[test]
fn a_cache_dropped_without_a_close_has_what_was_on_flash() {
    let flash = Flash::new();
    let cache = cold(&flash, 50);
    assert_eq!(get(&cache, "key-1"), Some(value(1)));
    insert(&cache, "key-2", b"newer");
    block_on(cache.remove(b"key-3")).unwrap();
    drop(cache);
    let cache = flash.open();
    let start = cache.start();
    assert!(
        matches!(start, Start::Warm { orderly: false, .. }),
        "{start:?}"
    );
    assert_eq!(get(&cache, "key-1"), Some(value(1)));
    assert_eq!(get(&cache, "key-2"), None, "it was in memory only");
    assert_eq!(get(&cache, "key-3"), None);
    drop(cache);
    // Without its journal the cache cannot be trusted.
    std::fs::remove_file(flash.path.with_extension("flash.journal")).unwrap();
    let cache = flash.open();
    assert!(matches!(cache.start(), Start::Empty(_)));
    assert_eq!(get(&cache, "key-1"), None);
    close(cache);
}

#[test]
fn what_was_stored_before_a_sync_outlives_a_cache_that_is_dropped() {
    let flash = Flash::new();
    let off = || config(&flash.path).write_back(Duration::ZERO);
    let found = |cache: &Cache| {
        let is_there = |n: &usize| get(cache, &format!("key-{n}")) == Some(value(*n));
        (0..900).filter(is_there).count()
    };
    let fill = |cache: &Cache, from: usize| {
        (from..from + 300).for_each(|n| insert(cache, &format!("key-{n}"), &value(n)));
    };
    let cache = open(off()).unwrap();
    fill(&cache, 0);
    drop(cache);
    let cache = open_once_free(off);
    assert_eq!(found(&cache), 0, "memory alone had it");
    fill(&cache, 300);
    block_on(cache.sync()).unwrap();
    drop(cache);
    let cache = open_once_free(off);
    assert_eq!(found(&cache), 300);
    // Many syncs at once, from any thread; one is dropped early.
    fill(&cache, 600);
    let mut impatient = Box::pin(cache.sync());
    let _ = impatient
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    drop(impatient);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| block_on(cache.sync()).unwrap());
        }
    });
    drop(cache);
    let cache = open_once_free(off);
    assert_eq!(found(&cache), 600);
    let closed = cache.clone();
    close(cache);
    assert!(matches!(block_on(closed.sync()), Err(Error::Closed)));
}

#[test]
fn clones_of_a_closed_cache_say_so() {
    let flash = Flash::new();
    let cache = flash.open();
    let clone = cache.clone();
    insert(&cache, "a", b"1");
    close(cache);
    assert_eq!(block_on(clone.get(b"a")).err(), Some(Error::Closed));
    assert_eq!(block_on(clone.insert(b"a", b"2")), Err(Error::Closed));
    assert_eq!(block_on(clone.remove(b"a")), Err(Error::Closed));
    assert_eq!(clone.stats().err(), Some(Error::Closed));
    // The file is free although the clone lives.
    let again = flash.open();
    assert_eq!(get(&again, "a"), Some(b"1".to_vec()));
    assert_eq!(block_on(clone.close()), Stop::Already);
    close(again);
}

/// Closes around the moment at which the journal is synced.
#[test]
fn a_closed_cache_can_be_opened_again_at_once() {
    let flash = Flash::new();
    for round in 0..40 {
        let cache = open(config(&flash.path)).unwrap_or_else(|error| panic!("{round}: {error}"));
        let opened = Instant::now();
        let mut n = 0;
        while opened.elapsed() < Duration::from_millis(90 + round / 4) {
            let key = format!("key-{}", n % 50);
            insert(&cache, &key, &value(n));
            block_on(cache.remove(key.as_bytes())).unwrap();
            n += 1;
        }
        close(cache);
    }
}

#[test]
fn a_close_waits_for_the_reads_under_way() {
    let flash = Flash::new();
    let cache = cold(&flash, 300);
    let keys: Vec<String> = (0..300).map(|n| format!("key-{n}")).collect();
    let reader = cache.clone();
    let mut gets: Vec<_> = keys
        .iter()
        .map(|key| Box::pin(reader.get(key.as_bytes())))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut done: Vec<_> = gets
        .iter_mut()
        .map(|get| get.as_mut().poll(&mut context))
        .collect();
    let stop = block_on(cache.close());
    assert_eq!(stop, Stop::Complete { objects: 300 });
    for (n, (get, done)) in gets.iter_mut().zip(&mut done).enumerate() {
        if done.is_pending() {
            *done = get.as_mut().poll(&mut context);
        }
        let Poll::Ready(Ok(Some(found))) = done else {
            panic!("key-{n}: {done:?}");
        };
        assert_eq!(&*found, &value(n)[..]);
    }
    drop(gets);
    let cache = flash.open();
    assert_warm(&cache, 300);
    close(cache);
}

#[test]
fn a_close_takes_writers_by_surprise_and_loses_nothing_acknowledged() {
    let flash = Flash::new();
    let cache = flash.open();
    let acknowledged = AtomicUsize::new(0);
    let stored: Vec<Option<String>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                let (cache, acknowledged) = (cache.clone(), &acknowledged);
                scope.spawn(move || {
                    let mut last = None;
                    for n in 0.. {
                        // Each thread overwrites one key: an older value must not come back.
                        let (key, value) = (format!("{thread}"), n.to_string());
                        match block_on(cache.insert(key.as_bytes(), value.as_bytes())) {
                            Ok(()) => last = Some(value),
                            Err(refused) => {
                                assert_eq!(refused, Error::Closed);
                                break;
                            }
                        };
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    last
                })
            })
            .collect();
        while acknowledged.load(Ordering::Relaxed) < 10_000 {
            thread::yield_now();
        }
        close(cache);
        let mut last = Vec::new();
        for writer in writers {
            last.push(writer.join().unwrap());
        }
        last
    });
    let cache = flash.open();
    for (thread, last) in stored.into_iter().enumerate() {
        let found = get(&cache, &thread.to_string()).map(|found| String::from_utf8(found).unwrap());
        assert_eq!(found, last);
    }
    close(cache);
}

#[test]
fn futures_may_be_dropped_at_any_moment() {
    let flash = Flash::new();
    let cache = cold(&flash, 200);
    let mut context = Context::from_waker(Waker::noop());
    for n in 0..200 {
        let key = format!("key-{n}");
        // Never polled: nothing is stored.
        drop(cache.insert(key.as_bytes(), b"never"));
        // Polled once: the read continues without a caller.
        let mut get = pin!(cache.get(key.as_bytes()));
        let _ = get.as_mut().poll(&mut context);
    }
    for n in 0..200 {
        assert_eq!(get(&cache, &format!("key-{n}")), Some(value(n)));
    }
    // An abandoned open closes the file again; a close continues without its caller.
    let mut close = Box::pin(cache.close());
    let _ = close.as_mut().poll(&mut context);
    drop(close);
    let cache = open_once_free(|| config(&flash.path));
    assert_warm(&cache, 200);
    drop(cache);
    let mut opening = Box::pin(Cache::open(config(&flash.path)));
    let _ = opening.as_mut().poll(&mut context);
    drop(opening);
    drop(open_once_free(|| config(&flash.path)));
}

/// Opens the cache as soon as the file is closed.
fn open_once_free(config: impl Fn() -> CacheConfig) -> Cache {
    loop {
        match open(config()) {
            Ok(cache) => return cache,
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
        thread::yield_now();
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u8, usize),
    TooLarge(u8),
    Remove(u8),
    Get(u8),
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (any::<u8>(), 0..4000usize).prop_map(|(key, n)| Operation::Insert(key % 40, n)),
        1 => any::<u8>().prop_map(|key| Operation::TooLarge(key % 40)),
        2 => any::<u8>().prop_map(|key| Operation::Remove(key % 40)),
        8 => any::<u8>().prop_map(|key| Operation::Get(key % 40)),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn it_behaves_like_a_map(operations in proptest::collection::vec(operation(), 1..120)) {
        let flash = Flash::new();
        let mut cache = flash.open();
        let mut model: HashMap<u8, usize> = HashMap::new();
        let name = |key: u8| format!("key-{key}");
        for operation in operations {
            match operation {
                Operation::Insert(key, n) => {
                    insert(&cache, &name(key), &value(n));
                    model.insert(key, n);
                }
                Operation::TooLarge(key) => {
                    let stored = block_on(cache.insert(name(key).as_bytes(), &[0; 100_001]));
                    prop_assert!(stored.is_err());
                    model.remove(&key);
                }
                Operation::Remove(key) => {
                    block_on(cache.remove(name(key).as_bytes())).unwrap();
                    model.remove(&key);
                }
                Operation::Get(key) => {
                    let wanted = model.get(&key).map(|&n| value(n));
                    prop_assert_eq!(get(&cache, &name(key)), wanted);
                }
                Operation::Reopen => {
                    close(cache);
                    cache = flash.open();
                    assert_warm(&cache, model.len() as u64);
                }
            }
        }
        close(cache);
    }
}
