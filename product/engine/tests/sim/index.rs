//! Indexes with a region of their own on flash, indexes that cannot be opened, and indexes without space.

use std::fmt;
use std::sync::Arc;

use device::{AlignedBuf, Disk, Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation, Region};
use flowstone_engine::config::ConfigError;
use flowstone_engine::placement::{
    Description, IndexRoom, IndexSizes, Parts, Placement, PlacementKind,
};
use flowstone_engine::{EngineConfig, OpenError, Opening, Stop};
use parking_lot::Mutex;

use crate::map_placement::MapKind;
use crate::support::{
    Left, Media, fill, memory_disk, numbered, objects, run_background, set, simulate, start, tight,
    value,
};

const IMAGE_BYTES: u64 = 33 << 20;

const MAP: MapKind = MapKind::REBUILT;

fn with_space(items: u64) -> MapKind {
    MapKind {
        most: items as usize,
        ..MAP
    }
}

/// A map whose kind needs a part of the image to overwrite in place. `opens` says whether it opens.
struct WithRegion {
    region: Arc<Mutex<Option<Region>>>,
    opens: bool,
}

impl fmt::Debug for WithRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithRegion")
    }
}

impl PlacementKind for WithRegion {
    fn describe(&self) -> Description {
        Description {
            name: "region",
            ..MAP.describe()
        }
    }

    fn sizes(&self, room: &IndexRoom) -> Result<IndexSizes, ConfigError> {
        Ok(IndexSizes {
            region_bytes: 3 << 20,
            ..IndexSizes::in_memory(room)
        })
    }

    fn open(&self, parts: Parts) -> Result<Arc<dyn Placement>, OpenError> {
        if !self.opens {
            return Err(OpenError::Index("there is no space for it".to_owned()));
        }
        *self.region.lock() = parts.index_region.clone();
        MAP.open(parts)
    }
}

/// The region that an index overwrites in place lies outside the segments: inside the image, or on a device of its own that
/// belongs to this image alone.
#[test]
fn an_index_has_its_region_inside_the_image_or_on_a_device_of_its_own() {
    simulate(1, async {
        let page = |byte: u8| {
            let mut page = AlignedBuf::new(4096);
            page.fill(byte);
            page
        };
        let region = Arc::new(Mutex::new(None));
        let kind = Arc::new(WithRegion {
            region: Arc::clone(&region),
            opens: true,
        });
        let apart: Arc<dyn Disk> = Arc::new(MemoryDisk::new(6 << 20));
        let other: Arc<dyn Disk> = Arc::new(MemoryDisk::new(6 << 20));
        for (index_disk, expected) in [(None, 3 << 20), (Some(&apart), 5 << 20)] {
            let media = memory_disk(IMAGE_BYTES);
            let open = async |index_disk: Option<&Arc<dyn Disk>>| {
                let journal = Arc::clone(&media.journal);
                let config = EngineConfig {
                    placement: kind.clone(),
                    ..tight()
                };
                let mut opening = Opening::new(Arc::clone(&media.disk), config);
                if let Some(disk) = index_disk {
                    opening = opening.with_index_disk(Arc::clone(disk));
                }
                opening.open(move || Ok(journal)).await
            };
            let taken = || region.lock().take().expect("a region");
            for run in 0..2_u8 {
                let engine = open(index_disk).await.unwrap();
                run_background(&engine);
                engine.recovered().await;
                let region = taken();
                assert_eq!(region.len_bytes(), expected);
                let last = expected - 4096;
                let before = region.read(last, page(9)).await.unwrap();
                assert_eq!(before[0], run, "what the last run wrote");
                region.write(last, page(run + 1).into()).await.unwrap();
                for number in 0..2000 {
                    let put = set(&engine, &numbered(number), &value(number, 3000)).await;
                    put.unwrap();
                }
                assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            }
            let refusal = async |disk: Option<&Arc<dyn Disk>>| open(disk).await.err().unwrap();
            if index_disk.is_some() {
                let without = refusal(None).await;
                assert!(
                    matches!(without, OpenError::IndexFlash { is_apart: true }),
                    "{without}"
                );
            } else {
                let with = refusal(Some(&other)).await;
                assert!(
                    matches!(with, OpenError::IndexFlash { is_apart: false }),
                    "{with}"
                );
            }
        }
    });
}

#[test]
fn an_index_that_cannot_be_set_up_touches_neither_the_image_nor_its_own_device() {
    simulate(1, async {
        let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        let apart = Arc::new(MemoryDisk::new(6 << 20));
        let kind = Arc::new(WithRegion {
            region: Arc::default(),
            opens: false,
        });
        let before = (Left::of(&disk, &media), apart.snapshot());
        let journal = Arc::clone(&media.journal);
        let config = EngineConfig {
            placement: kind,
            ..tight()
        };
        let opening = Opening::new(Arc::clone(&media.disk), config).with_index_disk(apart.clone());
        let refused = opening.open(move || Ok(journal)).await.err().unwrap();
        assert!(matches!(refused, OpenError::Index(_)), "{refused}");
        let after = (Left::of(&disk, &media), apart.snapshot());
        assert!(before == after, "something was touched");
    });
}

#[test]
fn a_device_of_the_index_that_cannot_be_synced_is_refused_untouched() {
    simulate(1, async {
        let (_, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        let image = Image::new(6 << 20);
        let apart = Arc::new(FaultyDisk::from_image(image, Latency::default(), 1));
        apart.set_rates(vec![(Operation::Sync, Fault::Error, 1.0)]);
        let config = EngineConfig {
            placement: Arc::new(WithRegion {
                region: Arc::default(),
                opens: true,
            }),
            ..tight()
        };
        let opening = Opening::new(Arc::clone(&media.disk), config).with_index_disk(apart.clone());
        let journal = Arc::clone(&media.journal);
        let refused = opening.open(move || Ok(journal)).await.err().unwrap();
        assert!(matches!(refused, OpenError::NoSync(_)), "{refused}");
        assert_eq!(apart.counts().writes, 0);
    });
}

/// Items that the index had no space for are gone, though their bytes are on flash: a larger index does not find them again.
#[test]
fn what_the_index_had_no_space_for_stays_gone() {
    const SPACE: u64 = 500;
    let mut media = memory_disk(IMAGE_BYTES);
    let objects_after = |media: &Media, work: bool| {
        simulate(1, async {
            let engine = start(media, &tight()).await;
            if work {
                fill(&engine, 3000, 3000).await;
                assert!(
                    engine.flash_stats().index_full > 500,
                    "{:?}",
                    engine.flash_stats()
                );
            }
            objects(&engine)
        })
    };
    media.placement = Some(Arc::new(with_space(SPACE)));
    assert_eq!(objects_after(&media, true), SPACE);
    media.placement = Some(Arc::new(MAP));
    assert!(objects_after(&media, false) <= SPACE);
}

/// Each item that an index refuses is counted once: when it is placed, and when a start finds it.
#[test]
fn what_an_index_refuses_is_counted() {
    const SPACE: u64 = 500;
    let mut media = memory_disk(IMAGE_BYTES);
    media.placement = Some(Arc::new(with_space(SPACE)));
    simulate(1, async {
        let engine = start(&media, &tight()).await;
        for number in 0..3000u64 {
            set(&engine, &numbered(number), &value(number, 3000))
                .await
                .unwrap();
            let stats = engine.stats();
            let placed = number + 1 - stats.dram_dirty_items;
            let refused = placed.saturating_sub(SPACE);
            assert_eq!(stats.placement.index_full, refused, "item {number}");
        }
        assert!(engine.flash_stats().index_full > 500);
        assert_eq!(objects(&engine), SPACE);
        let placed = engine.flash_stats().index_full + SPACE;
        let dirty = engine.stats().dram_dirty_items;
        assert_eq!(placed + dirty, 3000, "nothing is gone uncounted");
        let stopped = engine.stop().await;
        let incomplete = Stop::Incomplete {
            items_left: dirty,
            next_is_empty: false,
        };
        assert_eq!(stopped, incomplete, "what it refuses then is lost");
    });
    media.placement = Some(Arc::new(with_space(SPACE / 5)));
    simulate(2, async {
        let engine = start(&media, &tight()).await;
        assert_eq!(objects(&engine), SPACE / 5);
        assert_eq!(engine.flash_stats().index_full, SPACE - SPACE / 5);
    });
}
