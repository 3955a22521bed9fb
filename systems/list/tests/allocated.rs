//! Compares the memory that an engine reports with the memory that it has allocated.
//!
//! There is only one test, so that no other test allocates at the same time.

use std::alloc::{GlobalAlloc, Layout as Bytes, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Disk, Image, Latency, MemoryDisk, MemoryJournal};
use engine::config::META_BYTES;
use engine::{
    EngineConfig, ExactSettings, IndexSettings, Layout, Opening, PlacementKind, Put, Stop,
};
#[cfg(system = "flashield")]
use flowstone_systems::flashield::HashedSettings;
#[cfg(system = "slices")]
use flowstone_systems::sliced::SlicedSettings;
#[cfg(system = "slickcache")]
use flowstone_systems::slickcache::TieredSettings;
use runtime::sim::Sim;

/// The system allocator, with a count of the bytes in use.
struct Counting;

static IN_USE: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are passed on to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Bytes) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Bytes) {
        IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn in_use() -> u64 {
    IN_USE.load(Ordering::Relaxed)
}

const FLASH_BYTES: u64 = 24 << 20;
const MEMORY_BYTES: u64 = 24 << 20;
/// Number of items: more than flash and memory hold.
const ITEMS: u32 = 140_000;
const INDEX_PERCENT: u32 = 50;

/// Returns a disk that allocates nothing more when it is written.
fn written_disk() -> Arc<dyn Disk> {
    let mut image = Image::new(META_BYTES + FLASH_BYTES);
    let mebibyte = vec![0xa5; 1 << 20];
    for offset in (META_BYTES..META_BYTES + FLASH_BYTES).step_by(mebibyte.len()) {
        image.write(offset, &mebibyte);
    }
    Arc::new(MemoryDisk::from_image(image, Latency::default()))
}

#[test]
fn what_is_accounted_is_what_is_allocated() {
    #[cfg(system = "flashield")]
    index_without_keys();
    let placements: &[Arc<dyn PlacementKind>] = &[
        Arc::new(ExactSettings {
            layout: Layout::Packed,
            priorities: 1,
        }),
        #[cfg(system = "flashield")]
        Arc::new(HashedSettings::default()),
        #[cfg(system = "slickcache")]
        Arc::new(TieredSettings::new(Layout::Packed)),
        #[cfg(system = "slices")]
        Arc::new(SlicedSettings::default()),
    ];
    for placement in placements {
        Sim::new(1).block_on(engine_of(Arc::clone(placement)));
    }
}

/// Checks Flashield's table and filters (section 3.4) with objects of 257 bytes in segments of 2 MiB.
#[cfg(system = "flashield")]
fn index_without_keys() {
    use engine::format::segment::SegmentId;
    use flowstone_systems::flashield::compact::{
        CompactConfig, CompactEntry, CompactTable, Location, Rank, SegmentFilter, SegmentFilters,
        last_collided,
    };

    const SEGMENTS: usize = 128;
    const KEYS: usize = (2 << 20) / 257;
    let before = in_use();
    let mut table = CompactTable::new(CompactConfig {
        slots: SEGMENTS * KEYS * 100 / 94,
        segment_bits: CompactConfig::segment_bits_for(SEGMENTS as u64),
        skip_bits: 0,
    })
    .expect("it is in range");
    let mut filters = SegmentFilters::new(SEGMENTS);
    let hash = |number: usize| (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for segment in 0..SEGMENTS {
        let hashes: Vec<u64> = (segment * KEYS..(segment + 1) * KEYS).map(hash).collect();
        let segment = SegmentId(segment as u32);
        for &hash in &hashes {
            let entry = CompactEntry {
                location: Location {
                    segment,
                    function: 0,
                },
                rank: Rank::READ,
            };
            table.insert(hash, entry, last_collided);
        }
        filters.set(segment, Some(SegmentFilter::build(&hashes)));
    }
    let allocated = (in_use() - before) as f64;
    let said = (table.memory_bytes() + filters.memory_bytes()) as f64;
    assert!(
        (said / allocated - 1.0).abs() < 0.05,
        "{said} said, {allocated} allocated"
    );
    let an_object = allocated / table.len() as f64;
    assert!(an_object < 4.5, "{an_object} bytes an object");
}

/// Checks a whole cache whose flash is overwritten: its allocated bytes stay within the memory that it reports, apart from its
/// items, which lie in pages that it maps itself.
async fn engine_of(placement: Arc<dyn PlacementKind>) {
    let name = placement.describe().name;
    let disk = written_disk();
    let journal = Arc::new(MemoryJournal::new(1 << 17));
    let before = in_use();
    let mut config = EngineConfig {
        memory_bytes: MEMORY_BYTES,
        segment_bytes: Some(512 << 10),
        max_value_bytes: 20_000,
        placement,
        index: IndexSettings::of_memory(INDEX_PERCENT),
        ..EngineConfig::default()
    };
    // Discarded segments would free memory of the disk.
    config.writing.discard = false;
    let opening = Opening::new(disk, config);
    let engine = opening.open(move || Ok(journal)).await.expect("it opens");
    engine.start_background(|task| runtime::spawn_detached(async move { task().await }));
    engine.recovered().await;
    let put = Put {
        value: vec![7; 170].into(),
        ..Put::default()
    };
    for number in 0..ITEMS {
        let name = format!("key{number:027}");
        let key = engine.key(name.as_bytes()).expect("a key");
        let now = runtime::unix_seconds();
        engine.set(key, now, &put).await.expect("it is stored");
        if number % 500 == 0 {
            // The simulated journal keeps words in memory until they are synced.
            runtime::sleep(Duration::from_millis(100)).await;
            let stats = engine.stats();
            let said = MEMORY_BYTES - stats.dram_limit_bytes + stats.dram_table_bytes;
            let allocated = in_use() - before;
            assert!(
                allocated <= said,
                "{name}: {said} said, {allocated} allocated"
            );
        }
    }
    let on_flash = engine.stats().flash_items;
    assert!(on_flash > u64::from(ITEMS / 4), "{on_flash} on flash");
    let stop = engine.stop().await;
    assert!(matches!(stop, Stop::Complete { .. }), "{name}: {stop:?}");
}
