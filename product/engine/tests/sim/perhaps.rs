//! A placement that answers Perhaps and cannot locate the copies that it displaces, on a small flash that is reclaimed in order
//! of age without copies.

use std::sync::Arc;
use std::time::Duration;

use device::{Image, Latency, MemoryDisk};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::{
    CacheError, Change, Engine, EngineConfig, ItemView, Lookup, Peek, ReclaimPolicy, Stop, Victim,
};

use crate::map_placement::MapKind;
use crate::support::{Media, get, numbered, run_background, set, simulate};

const READ_TIME: Duration = Duration::from_millis(1);
const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 16;
const FLASH_BYTES: u64 = META_BYTES + SEGMENTS * SEGMENT_BYTES;

fn small() -> Media {
    let latency = Latency {
        read: READ_TIME,
        ..Latency::default()
    };
    let disk = MemoryDisk::with_latency(FLASH_BYTES, latency);
    Media::with_words(Arc::new(disk), vec![0; 1 << 17])
}

/// Opens the cache, before the end of its recovery.
async fn begin(media: &Media) -> Arc<Engine> {
    let mut config = EngineConfig {
        memory_bytes: 16 << 20,
        segment_bytes: Some(SEGMENT_BYTES as u32),
        max_value_bytes: 20_000,
        partition_bits: 0,
        placement: Arc::new(MapKind::REBUILT),
        ..EngineConfig::default()
    };
    let victim = Victim::Oldest;
    config.reclaim.policy = ReclaimPolicy::Drop { victim };
    let engine = media.open(&config).await.unwrap();
    run_background(&engine);
    engine
}

/// Opens the cache, waits for the end of the recovery and leaves memory for a few dozen items.
async fn open(media: &Media) -> Arc<Engine> {
    let engine = begin(media).await;
    engine.recovered().await;
    let lent = engine.stats().dram_limit_bytes - 150_000;
    engine.loans().lend(lent);
    engine
}

async fn try_put(engine: &Arc<Engine>, name: &str) -> Result<u64, CacheError> {
    set(engine, name.as_bytes(), &[7; 2000]).await
}

async fn put(engine: &Arc<Engine>, name: &str) {
    try_put(engine, name).await.unwrap();
}

/// Stores the item, and then other items until they fill memory.
async fn put_on_flash(engine: &Arc<Engine>) {
    put(engine, "item").await;
    for number in 0..200 {
        put(engine, &number.to_string()).await;
    }
}

/// An item that was read from flash and then reclaimed there is in memory alone. An orderly stop saves it,
/// although the index cannot say that flash has no copy.
#[test]
fn what_only_memory_has_survives_an_orderly_stop() {
    simulate(1, async {
        let media = small();
        let engine = open(&media).await;
        put_on_flash(&engine).await;
        while !is_in_memory(&engine) {
            assert!(is_found(&engine).await, "it is on flash");
        }
        // Flash is turned over several times during this loop.
        for number in 200..2000 {
            put(&engine, &number.to_string()).await;
            assert!(is_in_memory(&engine), "it is read all the time");
        }
        assert!(engine.stats().placement.segments_reclaimed > 20);
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        assert!(is_found(&open(&media).await).await, "it is lost");
    });
}

/// Items that a reclaimed segment's items have superseded must not outlive them: no segment is reused before
/// the records of the deaths are durable.
#[test]
fn no_segment_is_used_again_before_deaths_are_durable() {
    simulate(1, async {
        let media = small();
        let engine = open(&media).await;
        let reclaimed = || engine.stats().placement.segments_reclaimed;
        let mut number = 0;
        while reclaimed() == 0 {
            put(&engine, &number.to_string()).await;
            number += 1;
        }
        runtime::sleep(Duration::from_secs(1)).await;
        let before = reclaimed();
        media.journal.set_sync_time(Duration::from_secs(100));
        let writing = Arc::clone(&engine);
        let writes = runtime::spawn(async move {
            for number in 5000..7000 {
                // Some writes wait for too long.
                let _ = try_put(&writing, &number.to_string()).await;
            }
        });
        runtime::sleep(Duration::from_secs(60)).await;
        assert_eq!(reclaimed(), before, "the journal has not been synced");
        media.journal.set_sync_time(Duration::ZERO);
        assert!(writes.await.is_some());
        assert!(reclaimed() > before + 20);
    });
}

/// The latest copy may be found last: no copy is read before that.
#[test]
fn nothing_is_read_from_flash_before_all_copies_are_found() {
    simulate(1, async {
        let media = small();
        let engine = open(&media).await;
        // More segments than are read at once. The item is in the first segment to be read.
        for number in 0..400 {
            put(&engine, &number.to_string()).await;
        }
        put(&engine, "item").await;
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        let engine = begin(&media).await;
        let mut meanwhile = 0;
        while engine.recovery().segments_done < engine.recovery().segments {
            assert!(!is_found(&engine).await, "not all copies are found");
            runtime::sleep(READ_TIME / 10).await;
            meanwhile += 1;
        }
        assert!(meanwhile > 0, "it takes reads");
        engine.recovered().await;
        assert!(is_found(&engine).await, "it is on flash");
    });
}

/// The index keeps answering Perhaps. Only the count of writes tells that the copy read is out of date.
#[test]
fn a_change_does_not_go_by_what_was_deleted_while_it_read_flash() {
    simulate(1, async {
        let engine = open(&small()).await;
        put_on_flash(&engine).await;
        assert!(!is_in_memory(&engine), "it is on flash");
        let changing = Arc::clone(&engine);
        let change = runtime::spawn(async move {
            let key = changing.key(b"item").unwrap();
            let look = |found: Option<&ItemView<'_>>| (Change::Keep, found.is_some());
            let changed = changing.modify(key, runtime::unix_seconds(), look).await;
            changed.unwrap().result
        });
        runtime::sleep(READ_TIME / 2).await;
        let key = engine.key(b"item").unwrap();
        engine.remove(key, runtime::unix_seconds()).await.unwrap();
        assert!(!change.await.unwrap(), "it was deleted");
    });
}

/// Returns whether memory has the item. Counts as a read.
fn is_in_memory(engine: &Arc<Engine>) -> bool {
    let key = engine.key(b"item").unwrap();
    let found = engine.lookup(key, runtime::unix_seconds(), Peek::No, |_| ());
    matches!(found, Lookup::Hit(()))
}

/// Returns whether the cache has the item. Counts as a read.
async fn is_found(engine: &Arc<Engine>) -> bool {
    get(engine, b"item").await.is_some()
}

const KEYS: u64 = 150;

/// Returns flash and journal after an orderly stop. Flash has two versions of every key, and the checkpoint none of their
/// deaths.
fn stopped_with_two_versions() -> (Image, Vec<u64>) {
    simulate(1, async {
        let disk = Arc::new(MemoryDisk::new(FLASH_BYTES));
        let media = Media::with_words(disk.clone(), vec![0; 1 << 17]);
        let engine = open(&media).await;
        for version in [1, 2] {
            for number in 0..KEYS {
                let value = [version; 2000];
                set(&engine, &numbered(number), &value).await.unwrap();
            }
        }
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        (disk.snapshot(), media.journal.crash())
    })
}

/// Something else has overwritten a segment between two runs. Its items may have superseded others, whose deaths no record
/// tells any more.
#[test]
fn nothing_that_a_missing_segment_superseded_comes_back() {
    let (image, words) = stopped_with_two_versions();
    let mut latest = 0;
    for segment in 0..SEGMENTS {
        let mut image = image.clone();
        let zeros = vec![0; SEGMENT_BYTES as usize];
        image.write(META_BYTES + segment * SEGMENT_BYTES, &zeros);
        let disk = MemoryDisk::from_image(image, Latency::default());
        let media = Media::with_words(Arc::new(disk), words.clone());
        latest += simulate(1, async {
            let engine = open(&media).await;
            let mut latest = 0;
            for number in 0..KEYS {
                let found = get(&engine, &numbered(number)).await;
                assert!(found.as_ref().is_none_or(|value| value[0] == 2), "{number}");
                latest += u64::from(found.is_some());
            }
            latest
        });
    }
    assert!(latest > SEGMENTS * KEYS / 2, "{latest}");
}
