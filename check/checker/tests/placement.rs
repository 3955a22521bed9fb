//! The crash simulation with a placement that answers Perhaps and cannot locate the copies it displaces. No
//! item that was overwritten, deleted, expired or flushed comes back, whatever the moment of the crash.

use std::sync::Arc;
use std::time::Duration;

extern crate engine as flowstone_engine;

use device::{Disk, Latency, MemoryDisk, MemoryJournal};
use engine::config::ConfigError;
use engine::config::META_BYTES;
use engine::placement::{
    Description, IndexRoom, IndexSizes, Parts, Placement, PlacementKind, StreamPlan,
};
use engine::store::{AppendItem, Layout, Source, StreamLayout, Streams};
use engine::{
    CacheError, Change, Engine, EngineConfig, ExactSettings, ItemView, Lookup, OpenError, Opening,
    Peek, Put, ReclaimPolicy, Stop, Victim,
};
use runtime::sim::Sim;

#[path = "../../../product/engine/tests/sim/map_placement.rs"]
mod map_placement;
mod seeds;

use map_placement::MapKind;
use seeds::simulate_each;

const MAP: MapKind = MapKind::REBUILT;

/// A map whose copies go to their own segments: a version may lie in an older segment than an earlier
/// version.
#[derive(Debug)]
struct CopiesApart(MapKind);

impl PlacementKind for CopiesApart {
    fn describe(&self) -> Description {
        Description {
            name: "apart",
            streams: StreamPlan::Own(Arc::new(Two)),
            ..self.0.describe()
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        self.0.sizes(room)
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        self.0.open(parts)
    }
}

/// A stream for new items and one for copies.
struct Two;

impl Streams for Two {
    fn layouts(&self) -> Box<[StreamLayout]> {
        [StreamLayout::Packed; 2].into()
    }

    fn stream_of(&self, _item: &AppendItem<'_>, source: Source) -> usize {
        usize::from(source == Source::Copy)
    }
}

#[test]
fn dead_keys_stay_dead() {
    simulate(MapKind::REBUILT);
}

/// The same with an index that each start finds in a checkpoint.
#[test]
fn dead_keys_stay_dead_where_the_index_survives() {
    simulate(MapKind::SURVIVING);
}

/// The same with copies in their own segments and victims that are not the oldest segment. Uses as many
/// priorities as the minimum number of buffers allows.
#[test]
fn dead_keys_stay_dead_where_segments_have_priorities() {
    simulate_each(|_| {
        Arc::new(ExactSettings {
            layout: Layout::Packed,
            priorities: 2,
        })
    });
}

fn simulate(map: MapKind) {
    simulate_each(|seed| {
        if seed % 2 == 0 {
            Arc::new(CopiesApart(map))
        } else {
            Arc::new(map)
        }
    });
}

const READ_TIME: Duration = Duration::from_millis(1);

/// A small flash, reclaimed in order of age without copies, that several runs of the cache open in turn.
struct Bench {
    disk: Arc<dyn Disk>,
    journal: Arc<MemoryJournal>,
}

impl Bench {
    fn new() -> Self {
        let latency = Latency {
            read: READ_TIME,
            ..Latency::default()
        };
        let disk = MemoryDisk::with_latency(META_BYTES + (16 << 16), latency);
        Self {
            disk: Arc::new(disk),
            journal: Arc::new(MemoryJournal::new(1 << 17)),
        }
    }

    /// Opens the cache, before the end of its recovery.
    async fn begin(&self) -> Arc<Engine> {
        let mut config = EngineConfig {
            memory_bytes: 16 << 20,
            segment_bytes: Some(64 << 10),
            max_value_bytes: 20_000,
            partition_bits: 0,
            ..EngineConfig::default()
        };
        let victim = Victim::Oldest;
        config.reclaim.policy = ReclaimPolicy::Drop { victim };
        let (disk, journal) = (Arc::clone(&self.disk), Arc::clone(&self.journal));
        config.placement = Arc::new(MAP);
        let opening = Opening::new(disk, config);
        let engine = opening.open(move || Ok(journal)).await.expect("it opens");
        engine.start_background(|task| runtime::spawn_detached(async move { task().await }));
        engine
    }

    /// Opens the cache, waits for the end of the recovery and leaves memory for a few dozen items.
    async fn open(&self) -> Arc<Engine> {
        let engine = self.begin().await;
        engine.recovered().await;
        engine
            .loans()
            .lend(engine.stats().dram_limit_bytes - 150_000);
        engine
    }
}

async fn put(engine: &Arc<Engine>, name: &str) {
    try_put(engine, name).await.expect("it is stored");
}

async fn try_put(engine: &Arc<Engine>, name: &str) -> Result<u64, CacheError> {
    let put = Put {
        value: vec![7; 2000].into(),
        ..Put::default()
    };
    let key = engine.key(name.as_bytes()).expect("a key");
    engine.set(key, runtime::unix_seconds(), &put).await
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
    Sim::new(1).block_on(async {
        let bench = Bench::new();
        let engine = bench.open().await;
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
        assert!(is_found(&bench.open().await).await, "it is lost");
    });
}

/// Items that a reclaimed segment's items have superseded must not outlive them: no segment is reused before
/// the records of the deaths are durable.
#[test]
fn no_segment_is_used_again_before_deaths_are_durable() {
    Sim::new(1).block_on(async {
        let bench = Bench::new();
        let engine = bench.open().await;
        let reclaimed = || engine.stats().placement.segments_reclaimed;
        let mut number = 0;
        while reclaimed() == 0 {
            put(&engine, &number.to_string()).await;
            number += 1;
        }
        runtime::sleep(Duration::from_secs(1)).await;
        let before = reclaimed();
        bench.journal.set_sync_time(Duration::from_secs(100));
        let writing = Arc::clone(&engine);
        let writes = runtime::spawn(async move {
            for number in 5000..7000 {
                // Some writes wait for too long.
                let _ = try_put(&writing, &number.to_string()).await;
            }
        });
        runtime::sleep(Duration::from_secs(60)).await;
        assert_eq!(reclaimed(), before, "the journal has not been synced");
        bench.journal.set_sync_time(Duration::ZERO);
        writes.await.expect("nobody ends it");
        assert!(reclaimed() > before + 20);
    });
}

/// The latest copy may be found last: no copy is read before that.
#[test]
fn nothing_is_read_from_flash_before_all_copies_are_found() {
    Sim::new(1).block_on(async {
        let bench = Bench::new();
        let engine = bench.open().await;
        // More segments than are read at once. The item is in the first segment to be read.
        for number in 0..400 {
            put(&engine, &number.to_string()).await;
        }
        put(&engine, "item").await;
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        let engine = bench.begin().await;
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
    Sim::new(1).block_on(async {
        let engine = Bench::new().open().await;
        put_on_flash(&engine).await;
        assert!(!is_in_memory(&engine), "it is on flash");
        let changing = Arc::clone(&engine);
        let change = runtime::spawn(async move {
            let key = changing.key(b"item").expect("a key");
            let look = |found: Option<&ItemView<'_>>| (Change::Keep, found.is_some());
            let changed = changing.modify(key, runtime::unix_seconds(), look).await;
            changed.expect("there is memory").result
        });
        runtime::sleep(READ_TIME / 2).await;
        let key = engine.key(b"item").expect("a key");
        engine.remove(key, runtime::unix_seconds()).await.unwrap();
        assert!(!change.await.expect("nobody ends it"), "it was deleted");
    });
}

/// Returns whether memory has the item. Counts as a read.
fn is_in_memory(engine: &Arc<Engine>) -> bool {
    let key = engine.key(b"item").expect("a key");
    let found = engine.lookup(key, runtime::unix_seconds(), Peek::No, |_| ());
    matches!(found, Lookup::Hit(()))
}

/// Returns whether the cache has the item. Counts as a read.
async fn is_found(engine: &Arc<Engine>) -> bool {
    let key = engine.key(b"item").expect("a key");
    match engine.lookup(key, runtime::unix_seconds(), Peek::No, |_| ()) {
        Lookup::Hit(()) => true,
        Lookup::Miss => false,
        Lookup::Flash(read) => engine.read_flash(key, read).await.is_some(),
    }
}
