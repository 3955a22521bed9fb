//! Images: what is opened, what is refused, and what a power cut leaves of opening and stopping.
//!
//! Rules: what is refused is left as it was, byte for byte. Whatever a power cut leaves opens
//! again, warm with everything or empty, never with something in between.

use std::sync::Arc;

use device::{Disk, Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation, Tear, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::format::superblock::{ImageShape, SUPERBLOCK_BYTES, Superblock};
use flowstone_engine::{Engine, EngineConfig, OpenError, Start, Stop};
use runtime::sim::Sim;

use crate::support::{fill, get, numbered, run_background, simulate, tight, value};

const IMAGE_BYTES: u64 = 33 << 20;
const COPIES: [u64; 2] = [0, META_BYTES / 2];

async fn open(disk: &Arc<MemoryDisk>, config: &EngineConfig) -> Result<Arc<Engine>, OpenError> {
    let disk: Arc<dyn Disk> = disk.clone();
    Engine::open(disk, config.clone()).await
}

fn disk_of(image: &Image) -> Arc<MemoryDisk> {
    Arc::new(MemoryDisk::from_image(image.clone(), Latency::default()))
}

/// The image an orderly stop leaves of `count` items.
fn stopped_image(count: u64) -> Image {
    simulate(1, async {
        let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
        let engine = open(&disk, &tight()).await.unwrap();
        run_background(&engine);
        fill(&engine, count, 3000).await;
        assert_eq!(engine.stop().await, Stop::Complete { objects: count });
        disk.snapshot()
    })
}

/// Opens `image`, expecting a refusal that touches nothing, then with force.
fn refused(image: &Image, config: &EngineConfig) -> OpenError {
    simulate(2, async {
        let disk = disk_of(image);
        let refusal = open(&disk, config).await.err().expect("a refusal");
        assert!(disk.snapshot() == *image, "something was touched");
        let forced = EngineConfig {
            force: true,
            ..config.clone()
        };
        let engine = open(&disk, &forced).await.unwrap();
        assert_eq!(engine.start(), Start::Forced);
        assert_eq!(engine.placement().stats().objects, 0);
        assert_eq!(get(&engine, &numbered(0)).await, None);
        drop(engine);
        // What was forced is an image from then on.
        let engine = open(&disk, config).await.unwrap();
        assert_eq!(engine.start(), Start::Unclean);
        refusal
    })
}

fn superblock(image: &Image, copy: usize) -> [u8; SUPERBLOCK_BYTES] {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    image.read(COPIES[copy], &mut bytes);
    bytes
}

fn map_superblocks(image: &Image, change: impl Fn(&mut [u8; SUPERBLOCK_BYTES])) -> Image {
    let mut image = image.clone();
    for (copy, offset) in COPIES.into_iter().enumerate() {
        let mut bytes = superblock(&image, copy);
        change(&mut bytes);
        image.write(offset, &bytes);
    }
    image
}

#[test]
fn an_image_of_another_size_is_refused() {
    let image = stopped_image(10);
    let mut longer = Image::new(IMAGE_BYTES + (4 << 20));
    let mut bytes = vec![0; IMAGE_BYTES as usize];
    image.read(0, &mut bytes);
    longer.write(0, &bytes);
    assert!(matches!(
        refused(&longer, &tight()),
        OpenError::Size { image: IMAGE_BYTES, device } if device == IMAGE_BYTES + (4 << 20)
    ));
}

#[test]
fn an_image_of_another_placement_is_refused() {
    let shape = ImageShape {
        hash_seed: 1,
        image_bytes: IMAGE_BYTES,
        segment_bytes: 256 << 10,
        segments: 128,
        channels: 1,
        partitions: 4,
        expected_items: 1000,
    };
    let mut image = Image::new(IMAGE_BYTES);
    image.write(0, &Superblock::new(&shape, "tiered").encode());
    assert!(matches!(
        refused(&image, &tight()),
        OpenError::Placement { found, .. } if found == "tiered"
    ));
}

#[test]
fn an_image_of_another_format_is_refused() {
    let image = map_superblocks(&stopped_image(10), |bytes| bytes[8] = 77);
    assert!(matches!(
        refused(&image, &tight()),
        OpenError::Version { found: 77, .. }
    ));
}

#[test]
fn an_image_with_both_superblocks_damaged_is_refused() {
    let image = map_superblocks(&stopped_image(10), |bytes| bytes[100] ^= 8);
    assert!(matches!(refused(&image, &tight()), OpenError::Damaged));
}

#[test]
fn what_is_not_an_image_is_refused_wherever_it_begins() {
    // Where well-known file systems and volume managers have their first bytes.
    for offset in [
        0,
        1 << 10,
        4 << 10,
        16 << 10,
        32 << 10,
        64 << 10,
        META_BYTES - 8,
    ] {
        let mut image = Image::new(IMAGE_BYTES);
        image.write(offset, b"not ours");
        let refusal = refused(&image, &tight());
        assert!(matches!(refusal, OpenError::Foreign), "{offset}: {refusal}");
    }
}

#[test]
fn settings_that_cannot_work_touch_nothing() {
    let image = stopped_image(10);
    let too_little = EngineConfig {
        memory_bytes: 8 << 20,
        ..tight()
    };
    let too_large = EngineConfig {
        max_value_bytes: 1 << 20,
        ..tight()
    };
    for config in [too_little, too_large] {
        simulate(1, async {
            let disk = disk_of(&image);
            let refusal = open(&disk, &config).await.err().unwrap();
            assert!(matches!(refusal, OpenError::Config(_)), "{refusal}");
            assert!(disk.snapshot() == image);
        });
    }
}

#[test]
fn force_keeps_an_image_that_can_be_opened() {
    let image = stopped_image(10);
    let forced = EngineConfig {
        force: true,
        ..tight()
    };
    simulate(1, async {
        let engine = open(&disk_of(&image), &forced).await.unwrap();
        assert_eq!(engine.start(), Start::Warm { objects: 10 });
    });
}

/// Each of the two copies may go, at any time, and nothing old comes back.
#[test]
fn one_damaged_superblock_never_brings_old_items_back() {
    let clean = stopped_image(20);
    let dirty = simulate(3, async {
        let disk = disk_of(&clean);
        let engine = open(&disk, &tight()).await.unwrap();
        assert_eq!(engine.start(), Start::Warm { objects: 20 });
        disk.snapshot()
    });
    for (copy, offset) in COPIES.into_iter().enumerate() {
        let mut image = dirty.clone();
        image.flip_bit(offset + 2000, 3);
        simulate(4, async {
            let engine = open(&disk_of(&image), &tight()).await.unwrap();
            assert_eq!(engine.start(), Start::Unclean, "copy {copy} damaged");
            assert_eq!(get(&engine, &numbered(0)).await, None);
        });
        let mut image = clean.clone();
        image.flip_bit(offset + 2000, 3);
        simulate(5, async {
            let engine = open(&disk_of(&image), &tight()).await.unwrap();
            match engine.start() {
                Start::Warm { objects } => assert_eq!(objects, 20),
                start => assert_eq!(start, Start::Unclean),
            }
        });
    }
}

/// A device that says it has written, and has not, fails one superblock at most.
#[test]
fn a_lost_superblock_write_never_brings_old_items_back() {
    let clean = stopped_image(20);
    for lost in 0..2 {
        simulate(6, async {
            let faulty = Arc::new(FaultyDisk::from_image(clean.clone(), Latency::default(), 1));
            faulty.script(
                When::next(Operation::Write)
                    .within(0..META_BYTES)
                    .after(lost),
                Fault::Lost,
            );
            let disk: Arc<dyn Disk> = faulty.clone();
            let engine = Engine::open(disk, tight()).await.unwrap();
            assert_eq!(engine.start(), Start::Warm { objects: 20 });
            drop(engine);
            let left = faulty.crash(9, Tear::Pages);
            let engine = open(&disk_of(&left), &tight()).await.unwrap();
            assert_eq!(engine.start(), Start::Unclean, "write {lost} lost");
        });
    }
}

/// The clean mark is gone durably before anything else is written: at every moment of an open, the
/// image a power cut leaves is wholly the old one or empty, and once the open is over, empty.
#[test]
fn a_power_cut_at_any_moment_of_an_open_leaves_all_or_nothing() {
    let clean = stopped_image(50);
    simulate(7, async {
        let faulty = Arc::new(FaultyDisk::from_image(clean, Latency::default(), 1));
        faulty.keep_history();
        let disk: Arc<dyn Disk> = faulty.clone();
        let engine = Engine::open(disk, tight()).await.unwrap();
        let opened = faulty.history().unwrap().len();
        run_background(&engine);
        // Enough for segments of the old checkpoint and of old items to be written again.
        fill(&engine, 12_000, 3000).await;
        let history = faulty.history().unwrap();
        for tear in [Tear::Writes, Tear::Pages, Tear::Sectors] {
            let step = (history.len() / 60).max(1);
            for (point, image) in history.crashes(11, tear) {
                if point > opened + 20 && point % step != 0 {
                    continue;
                }
                let engine = open(&disk_of(&image), &tight()).await.unwrap();
                match engine.start() {
                    Start::Warm { objects } => {
                        assert!(point < opened, "warm after {point} of {opened} events");
                        assert_eq!(objects, 50);
                        for number in 0..50 {
                            let found = get(&engine, &numbered(number)).await;
                            assert_eq!(found, Some(value(number, 3000)));
                        }
                    }
                    start => {
                        assert_eq!(start, Start::Unclean);
                        assert_eq!(engine.placement().stats().objects, 0);
                        assert_eq!(get(&engine, &numbered(0)).await, None);
                    }
                }
            }
        }
    });
}

#[test]
fn a_power_cut_at_any_moment_of_a_stop_leaves_all_or_nothing() {
    simulate(8, async {
        let faulty = Arc::new(FaultyDisk::in_memory(IMAGE_BYTES, 1));
        let disk: Arc<dyn Disk> = faulty.clone();
        let engine = Engine::open(disk, tight()).await.unwrap();
        run_background(&engine);
        fill(&engine, 400, 3000).await;
        faulty.sync().await.unwrap();
        faulty.keep_history();
        assert_eq!(engine.stop().await, Stop::Complete { objects: 400 });
        let history = faulty.history().unwrap();
        let mut warm = 0;
        for tear in [Tear::Writes, Tear::Pages, Tear::Sectors] {
            for (point, image) in history.crashes(13, tear) {
                let engine = open(&disk_of(&image), &tight()).await.unwrap();
                match engine.start() {
                    Start::Warm { objects } => {
                        warm += 1;
                        assert_eq!(objects, 400);
                        for number in 0..400 {
                            let found = get(&engine, &numbered(number)).await;
                            assert_eq!(found, Some(value(number, 3000)), "after {point} events");
                        }
                    }
                    start => {
                        assert_eq!(start, Start::Unclean);
                        assert_eq!(get(&engine, &numbered(0)).await, None);
                    }
                }
                if point == history.len() {
                    assert!(matches!(engine.start(), Start::Warm { .. }));
                }
            }
        }
        assert!(warm >= 3, "the last moment of each is warm");
    });
}

/// The process dies at random moments, the machine lives: what was written stays, what was not is
/// gone. The next start is empty, and no value of before returns.
#[test]
fn a_crash_at_a_random_moment_leaves_nothing() {
    for seed in 1..=12 {
        let sim = Sim::new(seed);
        let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
        sim.block_on(async {
            let engine = open(&disk, &tight()).await.unwrap();
            run_background(&engine);
            fill(&engine, 500 * seed, 3000).await;
        });
        sim.crash();
        sim.block_on(async {
            let engine = open(&disk, &tight()).await.unwrap();
            assert_eq!(engine.start(), Start::Unclean);
            for number in 0..500 * seed {
                assert_eq!(get(&engine, &numbered(number)).await, None);
            }
        });
    }
}

#[test]
fn versions_are_not_given_twice_whatever_the_end() {
    simulate(9, async {
        let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
        let mut last = 0;
        for run in 0..6 {
            let engine = open(&disk, &tight()).await.unwrap();
            run_background(&engine);
            for _ in 0..3 {
                let unique = crate::support::set(&engine, b"counter", b"value").await;
                let unique = unique.unwrap();
                assert!(unique > last, "{unique} after {last}");
                last = unique;
            }
            if run % 2 == 0 {
                assert_eq!(engine.stop().await, Stop::Complete { objects: 1 });
            }
        }
    });
}

/// On a new device too: nothing that a machine loses of the first open needs force to go on, as long
/// as pages are written whole.
#[test]
fn a_power_cut_at_any_moment_of_the_first_open_leaves_an_empty_image() {
    simulate(10, async {
        let faulty = Arc::new(FaultyDisk::in_memory(IMAGE_BYTES, 1));
        faulty.keep_history();
        let disk: Arc<dyn Disk> = faulty.clone();
        let engine = Engine::open(disk, tight()).await.unwrap();
        assert_eq!(engine.start(), Start::New);
        let history = faulty.history().unwrap();
        for tear in [Tear::Writes, Tear::Pages] {
            for seed in 0..20 {
                for (point, image) in history.crashes(seed * 1000, tear) {
                    let engine = open(&disk_of(&image), &tight()).await;
                    let start = engine.map(|engine| engine.start());
                    assert!(
                        matches!(start, Ok(Start::New | Start::Unclean)),
                        "{start:?} after {point}"
                    );
                }
            }
        }
    });
}
