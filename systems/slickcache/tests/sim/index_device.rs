//! A separate device for the index: which devices are accepted and refused, and when they are written.

use std::sync::Arc;

use device::{Disk, Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation, When};
use flowstone_engine::format::superblock::IMAGE_FORMAT;
use flowstone_engine::placement::PlacementKind;
use flowstone_engine::{
    Engine, EngineConfig, IndexDeviceError, Layout, Medium, OpenError, Opening, Start, Stop,
};
use flowstone_slickcache::TieredSettings;
use flowstone_slickcache::cascade::{CascadeConfig, Sizes};

use crate::support::{
    Left, Media, fill, get, is_warm, numbered, objects, run_background, set, simulate, tight, value,
};

const IMAGE_BYTES: u64 = 9 << 20;
const INDEX_BYTES: u64 = 4 << 20;
const HEAD_BYTES: u64 = 1 << 20;
const ITEMS: u64 = 600;
const VALUE_BYTES: usize = 3000;

/// Returns an index with hardly any entries in memory.
fn kind() -> Arc<dyn PlacementKind> {
    let sizes = Sizes {
        partitions: Some(2),
        hot_entries: Some(8),
        page_entries: Some(8),
        direct_blocks: Some(2),
        direct_pages: Some(1),
        active_blocks: Some(2),
        active_pages: Some(2),
        ratio: Some(4),
        ..Sizes::default()
    };
    Arc::new(TieredSettings {
        layout: Layout::Packed,
        checkpoint_segments: 8,
        cascade: CascadeConfig {
            sizes,
            ..CascadeConfig::new(1, 1)
        },
    })
}

fn opening(media: &Media, mut config: EngineConfig) -> Opening {
    config.placement = kind();
    Opening::new(Arc::clone(&media.disk), config)
}

async fn open(
    media: &Media,
    index: Option<Arc<dyn Disk>>,
    config: EngineConfig,
) -> Result<Arc<Engine>, OpenError> {
    let mut opening = opening(media, config);
    if let Some(disk) = index {
        opening = opening.with_index_disk(disk);
    }
    let journal = Arc::clone(&media.journal);
    opening.open(move || Ok(journal)).await
}

/// Opens the cache, and waits for the end of recovery.
async fn start(media: &Media, index: Arc<dyn Disk>) -> Arc<Engine> {
    let engine = open(media, Some(index), tight()).await.unwrap();
    run_background(&engine);
    engine.recovered().await;
    engine
}

async fn stop(engine: Arc<Engine>) {
    let stopped = engine.stop().await;
    assert!(matches!(stopped, Stop::Complete { .. }), "{stopped:?}");
}

fn disk_of(image: &Image) -> Arc<MemoryDisk> {
    Arc::new(MemoryDisk::from_image(image.clone(), Latency::default()))
}

/// A cache with a separate index device, between two runs.
#[derive(Clone)]
struct Pair {
    left: Left,
    index: Image,
}

impl Pair {
    fn new() -> Self {
        Self {
            left: Left::new(Image::new(IMAGE_BYTES)),
            index: Image::new(INDEX_BYTES),
        }
    }

    /// Returns the state after a run that stores `ITEMS` items, from `first` on.
    fn run(&self, first: u64) -> Self {
        simulate(first + 1, async {
            let (disk, media) = self.left.media();
            let index = disk_of(&self.index);
            let engine = start(&media, index.clone()).await;
            for number in first..first + ITEMS {
                let value = value(number, VALUE_BYTES);
                set(&engine, &numbered(number), &value).await.unwrap();
            }
            stop(engine).await;
            Self {
                left: Left::of(&disk, &media),
                index: index.snapshot(),
            }
        })
    }

    /// Opens the pair with `index` in place of its own. A refused pair stays as it was.
    fn opened_with(&self, index: &Image, config: EngineConfig) -> Result<Start, OpenError> {
        simulate(9, async {
            let (disk, media) = self.left.media();
            let index_disk = disk_of(index);
            let opened = open(&media, Some(index_disk.clone()), config).await;
            if opened.is_err() {
                assert!(Left::of(&disk, &media) == self.left, "the flash is touched");
                assert!(index_disk.snapshot() == *index, "the index is touched");
            }
            opened.map(|engine| engine.start())
        })
    }

    /// Returns why the pair does not open with `index`; with force it must open empty.
    fn refusal(&self, index: &Image) -> IndexDeviceError {
        let force = EngineConfig {
            force: true,
            ..tight()
        };
        let forced = self.opened_with(index, force);
        assert!(matches!(forced, Ok(Start::Forced)), "{forced:?}");
        self.device_error(index, tight())
    }

    fn device_error(&self, index: &Image, config: EngineConfig) -> IndexDeviceError {
        match self.opened_with(index, config) {
            Err(OpenError::IndexDevice(why)) => {
                let words = why.to_string();
                assert!(!words.contains('\n'), "{words}");
                why
            }
            other => panic!("opened: {other:?}"),
        }
    }
}

#[test]
fn an_index_is_found_again_on_its_own_device() {
    let pair = Pair::new().run(0).run(ITEMS);
    simulate(3, async {
        let (_, media) = pair.left.media();
        let engine = start(&media, disk_of(&pair.index)).await;
        assert!(is_warm(&engine), "{:?}", engine.start());
        assert_eq!(objects(&engine), 2 * ITEMS);
        for number in 0..2 * ITEMS {
            let found = get(&engine, &numbered(number)).await;
            assert_eq!(found, Some(value(number, VALUE_BYTES)), "item {number}");
        }
        let on_flash = engine.index_stats();
        assert!(
            on_flash.get("tier2_hits") + on_flash.get("tier3_hits") > ITEMS / 2,
            "{on_flash:?}"
        );
    });
}

/// All of the flash behind the superblock is for items.
#[test]
fn an_index_apart_takes_nothing_of_the_flash() {
    let segments = |index: Option<Arc<dyn Disk>>| {
        simulate(1, async {
            let (_, media) = Left::new(Image::new(IMAGE_BYTES)).media();
            let engine = open(&media, index, tight()).await.unwrap();
            let store = engine.store();
            u64::from(store.table().segments()) * u64::from(store.table().segment_bytes())
        })
    };
    let apart = segments(Some(Arc::new(MemoryDisk::new(INDEX_BYTES))));
    assert_eq!(apart, IMAGE_BYTES - HEAD_BYTES);
    assert!(segments(None) < apart);
}

/// Flash that cannot be overwritten in place can have an index device.
#[test]
fn open_flash_with_an_index_apart_is_found_again() {
    use device::Geometry;
    use emulated::{Endurance, Libssd, Nand, NandConfig, NandTiming, SegmentShape};
    let nand = Nand::new(NandConfig {
        geometry: Geometry {
            channels: 2,
            luns_per_channel: 1,
            blocks_per_lun: 64,
            pages_per_block: 16,
            page_bytes: 4096,
        },
        planes: 1,
        timing: NandTiming {
            read_ns: vec![50_000],
            program_ns: vec![200_000],
            erase_ns: 1_000_000,
            transfer_ns: 10_000,
        },
        endurance: Endurance {
            cycles: 1000,
            factory_bad: 0.0,
            grown_bad: 0.0,
        },
        seed: 1,
    });
    let flash = Arc::new(
        Libssd::new(Arc::new(nand.unwrap()), SegmentShape::Block).expect("blocks are small"),
    );
    let meta: Arc<dyn Disk> = Arc::new(MemoryDisk::new(HEAD_BYTES));
    let index: Arc<dyn Disk> = Arc::new(MemoryDisk::new(INDEX_BYTES));
    let media = Media::new(Arc::clone(&meta));
    let open = async |index: Option<Arc<dyn Disk>>| {
        let medium = Medium::Flash {
            flash: flash.clone(),
            meta: Arc::clone(&meta),
        };
        let mut config = tight();
        config.writing.buffers = 8;
        config.max_value_bytes = 20_000;
        config.placement = kind();
        let mut opening = Opening::new(medium, config);
        if let Some(disk) = index {
            opening = opening.with_index_disk(disk);
        }
        let journal = Arc::clone(&media.journal);
        opening.open(move || Ok(journal)).await
    };
    simulate(1, async {
        let without = open(None).await.err().unwrap();
        assert!(matches!(without, OpenError::IndexNeedsDevice), "{without}");
        for run in 0..2 {
            let engine = open(Some(Arc::clone(&index))).await.unwrap();
            run_background(&engine);
            engine.recovered().await;
            assert_eq!(objects(&engine), run * ITEMS);
            fill(&engine, ITEMS, VALUE_BYTES).await;
            stop(engine).await;
        }
    });
}

#[test]
fn another_device_than_the_images_own_is_refused() {
    let pair = Pair::new().run(0);
    let other = Pair::new().run(1);
    let blank = Image::new(INDEX_BYTES);
    let image = pair.refusal(&blank);
    let IndexDeviceError::Blank { image } = image else {
        panic!("{image}");
    };
    let swapped = pair.refusal(&other.index);
    let IndexDeviceError::OtherImage { found, image: own } = swapped else {
        panic!("{swapped}");
    };
    assert!(own == image && found != image);
    let words = swapped.to_string();
    for id in [found, own] {
        assert!(words.contains(&format!("{id:016x}")), "names both: {words}");
    }
    let of_items = pair.refusal(&other.left.image);
    assert_eq!(of_items, IndexDeviceError::IsImage { image: found });
    let mut foreign = blank.clone();
    foreign.write(0, b"somebody's data");
    assert_eq!(pair.refusal(&foreign), IndexDeviceError::Foreign);
    let mut newer = pair.index.clone();
    for copy in [0, HEAD_BYTES / 2] {
        newer.write(copy + 8, &(IMAGE_FORMAT + 1).to_le_bytes());
    }
    let expected = IMAGE_FORMAT;
    let found = expected + 1;
    let version = IndexDeviceError::Version { found, expected };
    assert_eq!(pair.refusal(&newer), version);
    let mut damaged = pair.index.clone();
    for copy in [0, HEAD_BYTES / 2] {
        damaged.flip_bit(copy + 20, 3);
    }
    assert_eq!(pair.refusal(&damaged), IndexDeviceError::Damaged);
}

/// One of the two copies is enough; the older copy only if it names the same run.
#[test]
fn a_torn_header_leaves_the_other_one() {
    let pair = Pair::new().run(0);
    let opened: Vec<_> = [0, HEAD_BYTES / 2]
        .into_iter()
        .map(|copy| {
            let mut index = pair.index.clone();
            index.write(copy, &[0x55; 512]);
            pair.opened_with(&index, tight())
        })
        .collect();
    for start in opened {
        assert!(matches!(start, Ok(Start::Warm { .. })), "{start:?}");
    }
}

#[test]
fn an_older_copy_of_either_device_is_refused() {
    let first = Pair::new().run(0);
    let second = first.run(ITEMS);
    let IndexDeviceError::OtherRun { found, run, .. } = second.refusal(&first.index) else {
        panic!("an older index");
    };
    assert_eq!((found, run), (1, 2));
    let IndexDeviceError::OtherRun { found, run, .. } = first.refusal(&second.index) else {
        panic!("an older flash");
    };
    assert_eq!((found, run), (2, 1));
    // Two second runs that began with copies of the same files.
    let sister = first.run(2 * ITEMS);
    let refused = second.refusal(&sister.index);
    assert!(
        matches!(
            refused,
            IndexDeviceError::OtherRun {
                found: 2,
                run: 2,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn a_file_system_is_not_overwritten_by_force_alone() {
    let pair = Pair::new().run(0);
    let mut index = Image::new(INDEX_BYTES);
    index.write(0x438, b"\x53\xef");
    let force = EngineConfig {
        force: true,
        ..tight()
    };
    let overwrite = EngineConfig {
        overwrite_filesystem: true,
        ..force.clone()
    };
    for pair in [&pair, &Pair::new()] {
        for config in [tight(), force.clone()] {
            let refused = pair.device_error(&index, config);
            assert!(
                matches!(refused, IndexDeviceError::FileSystem { .. }),
                "{refused}"
            );
        }
        let opened = pair.opened_with(&index, overwrite.clone());
        assert!(matches!(opened, Ok(Start::Forced | Start::New)));
    }
}

/// The refusal gives the sizes with units, and the size needed.
#[test]
fn a_device_that_is_too_small_is_refused() {
    let small = Image::new(HEAD_BYTES + (64 << 10));
    let new = Pair::new();
    let refused = new.device_error(&small, tight());
    let IndexDeviceError::TooSmall { device, needed, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(device, small.len_bytes());
    let words = refused.to_string();
    assert!(
        words.contains("1.06 MiB") && words.contains("9 MiB") && words.contains("1.66 MiB"),
        "{words}"
    );
    let just = Image::new(needed);
    assert!(matches!(new.opened_with(&just, tight()), Ok(Start::New)));
    let too_few = Image::new(needed - 4096);
    new.device_error(&too_few, tight());
    let tiny = Image::new(4096);
    new.device_error(&tiny, tight());
    let pair = new.run(0);
    let mut cut = Image::new(INDEX_BYTES - 4096);
    let mut page = [0; 4096];
    for at in (0..cut.len_bytes()).step_by(page.len()) {
        pair.index.read(at, &mut page);
        cut.write(at, &page);
    }
    let refused = pair.refusal(&cut);
    assert!(
        matches!(refused, IndexDeviceError::Truncated { needed, .. } if needed == INDEX_BYTES),
        "{refused}"
    );
}

/// A new cache takes the place of an existing one only if forced.
#[test]
fn a_new_image_does_not_take_the_device_of_another() {
    let pair = Pair::new().run(0);
    let refused = Pair::new().device_error(&pair.index, tight());
    assert!(
        matches!(refused, IndexDeviceError::InUse { .. }),
        "{refused}"
    );
    let force = EngineConfig {
        force: true,
        ..tight()
    };
    let forced = Pair::new().opened_with(&pair.index, force);
    assert!(matches!(forced, Ok(Start::New)), "{forced:?}");
    let refused = Pair::new().device_error(&pair.left.image, tight());
    assert!(
        matches!(refused, IndexDeviceError::IsImage { .. }),
        "{refused}"
    );
}

#[test]
fn an_index_device_is_not_taken_for_flash() {
    let pair = Pair::new().run(0);
    simulate(1, async {
        let media = Media::new(disk_of(&pair.index));
        let refused = media.open(&tight()).await.err().unwrap();
        assert!(
            matches!(refused, OpenError::IsIndexDevice { .. }),
            "{refused}"
        );
    });
}

/// A placement with its whole index in memory opens no device for it.
#[test]
fn an_index_in_memory_takes_no_device() {
    simulate(1, async {
        let (_, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        let journal = Arc::clone(&media.journal);
        let asked = Opening::new(Arc::clone(&media.disk), tight())
            .with_index_device(|_| panic!("nothing is opened for it"))
            .open(move || Ok(journal));
        let refused = asked.await.err().unwrap();
        assert!(
            matches!(refused, OpenError::IndexInMemory { placement: "exact" }),
            "{refused}"
        );
    });
}

/// A missing device is named. A new one may be made only for a new image, or with force.
#[test]
fn a_device_is_made_for_a_new_image_alone() {
    let pair = Pair::new().run(0);
    let asked = |pair: &Pair, config: EngineConfig| {
        simulate(1, async {
            let (_, media) = pair.left.media();
            let (told, asked) = std::sync::mpsc::channel();
            let opening = opening(&media, config).with_index_device(move |need| {
                let _ = told.send(need);
                Ok(None)
            });
            let journal = Arc::clone(&media.journal);
            let refused = opening.open(move || Ok(journal)).await.err().unwrap();
            let missing = OpenError::IndexDevice(IndexDeviceError::Missing { image: 0 });
            assert_eq!(
                std::mem::discriminant(&refused),
                std::mem::discriminant(&missing)
            );
            asked.recv().expect("asked once")
        })
    };
    let need = asked(&pair, tight());
    assert_eq!((need.may_be_new, need.bytes), (false, INDEX_BYTES));
    let force = EngineConfig {
        force: true,
        ..tight()
    };
    assert!(asked(&pair, force).may_be_new);
    let new = asked(&Pair::new(), tight());
    assert!(new.may_be_new && new.bytes < INDEX_BYTES);
}

/// After a power cut at any moment of an open, the next open accepts the same devices.
#[test]
fn a_crash_of_an_open_leaves_devices_that_belong_together() {
    use device::Tear;
    let old = Pair::new().run(0);
    for (pair, seed) in [(&Pair::new(), 100), (&old, 200)] {
        let mut refused_syncs = 0;
        // Number of the write, on either disk, that fails; beyond the last one the open succeeds.
        for nth in 0..12 {
            for on_index in [false, true] {
                let (left, index) = simulate(seed + nth, async {
                    let faulty = |image: &Image| {
                        Arc::new(FaultyDisk::from_image(
                            image.clone(),
                            Latency::default(),
                            seed + nth,
                        ))
                    };
                    let (disk, index) = (faulty(&pair.left.image), faulty(&pair.index));
                    let failing = if on_index { &index } else { &disk };
                    failing.script(When::next(Operation::Sync).after(nth), Fault::Error);
                    let media = Media::with_words(disk.clone(), pair.left.words.clone());
                    let opened = open(&media, Some(index.clone()), tight()).await;
                    refused_syncs += u64::from(opened.is_err());
                    drop(opened);
                    let left = Left {
                        image: disk.crash(nth, Tear::Pages),
                        words: media.journal.crash(),
                    };
                    (left, index.crash(nth, Tear::Pages))
                });
                let next = Pair { left, index };
                let opened = next.opened_with(&next.index, tight());
                assert!(opened.is_ok(), "sync {nth}, {on_index}: {opened:?}");
            }
        }
        assert!(refused_syncs >= 4, "{refused_syncs} opens have failed");
    }
}

/// Data that a failed sync of one device may have lost is written again to that device, and none to the other.
#[test]
fn a_failed_sync_of_either_device_is_made_good_on_that_one() {
    for on_index in [true, false] {
        simulate(7, async {
            let disk = Arc::new(FaultyDisk::in_memory(IMAGE_BYTES, 1));
            let index = Arc::new(FaultyDisk::in_memory(INDEX_BYTES, 2));
            let media = Media::new(disk.clone());
            let engine = start(&media, index.clone()).await;
            fill(&engine, ITEMS, VALUE_BYTES).await;
            engine.sync().await.expect("everything is durable");
            let before = engine.checkpoint_stats();
            let failing = if on_index { &index } else { &disk };
            failing.script(When::next(Operation::Sync), Fault::Error);
            let (items, mappings) = (disk.counts(), index.counts());
            engine.checkpoint_now().await;
            // The checkpoint is tried again without a request.
            let mut number = ITEMS;
            while engine.checkpoint_stats().written == before.written {
                let value = value(number, VALUE_BYTES);
                set(&engine, &numbered(number), &value).await.unwrap();
                runtime::sleep(std::time::Duration::from_millis(50)).await;
                number += 1;
                assert!(number < 100 * ITEMS, "there is no checkpoint");
            }
            let written = (
                disk.counts().written_bytes - items.written_bytes,
                index.counts().written_bytes - mappings.written_bytes,
            );
            assert_eq!(failing.counts().met(&Fault::Error), 1);
            // All items are some 2 MiB, all mappings some 400 KiB.
            let other = if on_index { written.0 } else { written.1 };
            assert!(other < 100 << 10, "the other device, too: {written:?}");
            let failed = engine.checkpoint_stats().failed - before.failed;
            if on_index {
                assert!(failed > 0, "the checkpoint is not named");
            }
            drop(engine);
            let left = Left {
                image: disk.crash(1, device::Tear::Pages),
                words: media.journal.crash(),
            };
            let pair = Pair {
                left,
                index: index.crash(1, device::Tear::Pages),
            };
            let (_, media) = pair.left.media();
            let engine = start(&media, disk_of(&pair.index)).await;
            let mut found = 0;
            for number in 0..number {
                if let Some(read) = get(&engine, &numbered(number)).await {
                    assert_eq!(read, value(number, VALUE_BYTES));
                    found += 1;
                }
            }
            assert!(found >= ITEMS, "{found} of {number}");
            assert_eq!(engine.index_stats().get("index_pages_damaged"), 0);
        });
    }
}
