//! Cost of a clean stop.
//!
//! Rules: a stop places the items in memory, and walks the index entries of items on flash a fixed number of times; it ends soon
//! after its deadline, however slow the journal's drive is.

use std::time::Duration;

use runtime::work::{self, Work, WorkDone};

use flowstone_engine::{EngineConfig, EngineStats, Stop};

use crate::support::{fill, get, memory_disk, numbered, objects, remove, simulate, start, tight};

/// Walks over the index in a stop: one counts the read items of each segment, one collects them.
const PASSES: u64 = 2;
/// Number of items: more than memory holds, with more recency data than is kept.
const COUNT: u64 = 40_000;
/// Fewest bytes in a write of placed items.
const WRITE_BYTES: u64 = 64 << 10;

/// Work of a stop after all items have been read once, with statistics from before it, objects on flash, and bytes of the
/// checkpoint.
struct Stopped {
    done: WorkDone,
    stats: EngineStats,
    objects: u64,
    checkpoint_bytes: u64,
}

fn stop_after_reading(count: u64) -> Stopped {
    simulate(1, async {
        let engine = start(&memory_disk(129 << 20), &tight()).await;
        fill(&engine, count, 200).await;
        for number in 0..count {
            assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
        }
        let (stats, written) = (engine.stats(), engine.checkpoint_stats().bytes);
        let before = work::done();
        let stop = engine.stop().await;
        let done = work::done() - before;
        assert_eq!(stop, Stop::Complete { objects: count });
        Stopped {
            done,
            stats,
            objects: objects(&engine),
            checkpoint_bytes: engine.checkpoint_stats().bytes - written,
        }
    })
}

/// The stop must not walk the index once for each batch of positions: that cost grew faster than the cache.
#[test]
fn a_stop_costs_what_memory_holds_and_two_passes_over_the_index() {
    let few = stop_after_reading(COUNT);
    let many = stop_after_reading(4 * COUNT);
    for stopped in [&few, &many] {
        let in_memory = stopped.stats.dram_items;
        assert!(in_memory < COUNT, "{in_memory} items in memory");
        // Placed items are inserted into the index, and some are looked up.
        let most = PASSES * stopped.objects + 2 * in_memory;
        let steps = stopped.done[Work::IndexStep];
        assert!(steps <= most, "{steps} steps, {most} at most");
        let placed = stopped.done[Work::ItemCopied];
        assert!(
            placed <= in_memory,
            "{placed} of {in_memory} items in memory"
        );
    }
    // A few bytes for each segment.
    let grown = many.checkpoint_bytes.saturating_sub(few.checkpoint_bytes);
    assert!(grown < 32 << 10, "{grown} bytes more");
    let writes = many.done[Work::ByteCopied] / WRITE_BYTES;
    let [few, many] = [few, many].map(|stopped| stopped.done[Work::DeviceCommand]);
    assert!(
        many <= few + writes,
        "{many} commands, {few} with fewer items"
    );
}

/// A sync of the journal that takes half a minute holds no stop.
#[test]
fn a_stop_ends_soon_after_its_deadline() {
    simulate(2, async {
        let config = EngineConfig {
            stop_deadline: Duration::from_secs(4),
            ..tight()
        };
        let media = memory_disk(33 << 20);
        let engine = start(&media, &config).await;
        fill(&engine, 100, 200).await;
        media.journal.set_sync_time(Duration::from_secs(30));
        remove(&engine, 1).await;
        let before = runtime::now();
        let stop = engine.stop().await;
        assert!(matches!(stop, Stop::Incomplete { .. }), "{stop:?}");
        let took = runtime::now().since(before);
        assert!(
            took <= config.stop_deadline + Duration::from_secs(1),
            "{took:?}"
        );
    });
}
