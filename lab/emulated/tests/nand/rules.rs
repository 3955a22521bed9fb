//! Rules of a block, its wear, and the counts of the device.

use device::{AlignedBuf, BlockHealth, BlockId, DeviceError, Flash};
use flowstone_emulated::{ConfigError, Counts, Endurance, Nand, NandTiming, Preset};
use runtime::sim::Sim;

use super::{PAGE, bytes_of, pages, small};

fn fresh() -> Nand {
    Nand::new(small(NandTiming::instant(), Endurance::unlimited())).unwrap()
}

/// Returns the page that the failed program of a block has left unreadable.
async fn lost_page(nand: &Nand, block: BlockId) -> Option<u32> {
    for page in 0..4 {
        if let Err(error) = bytes_of(nand, block, page, 1).await {
            assert!(matches!(error, DeviceError::Unreadable { .. }));
            return Some(page);
        }
    }
    None
}

#[test]
fn pages_are_programmed_in_order_and_once_between_erases() {
    Sim::new(1).block_on(async {
        let nand = fresh();
        let block = BlockId(5);
        let skipped = nand.program(block, 1, pages(1, 1)).await;
        assert!(matches!(
            skipped,
            Err(DeviceError::ProgramOrder {
                block: 5,
                page: 1,
                expected: 0
            })
        ));
        nand.program(block, 0, pages(1, 2)).await.unwrap();
        let again = nand.program(block, 1, pages(9, 1)).await;
        assert!(matches!(
            again,
            Err(DeviceError::NotErased { block: 5, page: 1 })
        ));
        nand.program(block, 2, pages(3, 2)).await.unwrap();
        let past_end = nand.program(block, 4, pages(5, 1)).await;
        assert!(matches!(past_end, Err(DeviceError::Address { .. })));
        assert_eq!(bytes_of(&nand, block, 0, 4).await.unwrap(), [1, 2, 3, 4]);
        nand.erase(block).await.unwrap();
        assert_eq!(bytes_of(&nand, block, 0, 4).await.unwrap(), [0xFF; 4]);
        nand.program(block, 0, pages(8, 1)).await.unwrap();
        assert_eq!(bytes_of(&nand, block, 0, 2).await.unwrap(), [8, 0xFF]);
    });
}

#[test]
fn a_program_that_reaches_past_the_end_changes_nothing() {
    Sim::new(1).block_on(async {
        let nand = fresh();
        let refused = nand.program(BlockId(0), 0, pages(1, 5)).await;
        assert!(matches!(refused, Err(DeviceError::Address { .. })));
        nand.program(BlockId(0), 0, pages(1, 4)).await.unwrap();
    });
}

#[test]
fn addresses_outside_the_device_are_refused() {
    Sim::new(1).block_on(async {
        let nand = fresh();
        let buf = || AlignedBuf::new(PAGE);
        assert!(nand.read(BlockId(32), 0, buf()).await.is_err());
        assert!(nand.read(BlockId(0), 4 * PAGE as u32, buf()).await.is_err());
        assert!(nand.read(BlockId(0), 17, buf()).await.is_err());
        assert!(nand.program(BlockId(32), 0, pages(0, 1)).await.is_err());
        assert!(nand.erase(BlockId(32)).await.is_err());
    });
}

#[test]
fn a_block_fails_the_erase_after_its_last_cycle_and_is_bad() {
    Sim::new(1).block_on(async {
        let endurance = Endurance {
            cycles: 3,
            ..Endurance::unlimited()
        };
        let nand = Nand::new(small(NandTiming::instant(), endurance)).unwrap();
        let block = BlockId(9);
        for cycle in 0..3u8 {
            nand.erase(block).await.unwrap();
            nand.program(block, 0, pages(cycle, 4)).await.unwrap();
        }
        assert_eq!(nand.health(block), BlockHealth::Good);
        let worn = nand.erase(block).await;
        assert!(matches!(
            worn,
            Err(DeviceError::WornOut {
                block: 9,
                erases: 4,
                ..
            })
        ));
        assert_eq!(nand.health(block), BlockHealth::Bad);
        let refused = nand.program(block, 0, pages(1, 1)).await;
        assert!(matches!(
            refused,
            Err(DeviceError::BadBlock { block: 9, .. })
        ));
        assert!(matches!(
            nand.erase(block).await,
            Err(DeviceError::BadBlock { .. })
        ));
        assert_eq!(nand.bad_blocks(), [block]);
        assert_eq!(nand.counts().failures, 1);
    });
}

#[test]
fn blocks_bad_from_the_factory_and_those_that_go_bad_follow_from_the_seed() {
    let endurance = Endurance {
        cycles: 10,
        factory_bad: 0.2,
        grown_bad: 0.3,
    };
    let lives = |seed| {
        Sim::new(1).block_on(async {
            let mut config = small(NandTiming::instant(), endurance);
            config.seed = seed;
            let nand = Nand::new(config).unwrap();
            let factory = nand.bad_blocks();
            let mut ends = Vec::new();
            for block in (0..nand.geometry().blocks()).map(BlockId) {
                let mut cycles = 0;
                loop {
                    if nand.erase(block).await.is_err() {
                        break;
                    }
                    cycles += 1;
                    if nand.program(block, 0, pages(cycles, 4)).await.is_err() {
                        break;
                    }
                }
                ends.push((cycles, lost_page(&nand, block).await));
            }
            assert_eq!(nand.bad_blocks().len(), 32);
            (factory, ends)
        })
    };
    let (factory, ends) = lives(3);
    assert_eq!((&factory, &ends), (&lives(3).0, &lives(3).1));
    assert_ne!(ends, lives(4).1);
    assert!(!factory.is_empty() && factory.len() < 16, "{factory:?}");
    let unused = ends.iter().filter(|(cycles, _)| *cycles == 0).count();
    assert_eq!(unused, factory.len());
    let early = ends.iter().filter(|(cycles, _)| (1..10).contains(cycles));
    assert!((3..16).contains(&early.count()), "{ends:?}");
    assert!(ends.iter().any(|(cycles, _)| *cycles == 10));
}

#[test]
fn what_a_block_that_went_bad_holds_can_still_be_read() {
    Sim::new(1).block_on(async {
        let endurance = Endurance {
            cycles: 1,
            factory_bad: 0.0,
            grown_bad: 1.0,
        };
        let nand = Nand::new(small(NandTiming::instant(), endurance)).unwrap();
        for block in (0..32).map(BlockId) {
            nand.erase(block).await.unwrap();
            let failed = nand.program(block, 0, pages(1, 4)).await;
            assert!(matches!(failed, Err(DeviceError::WornOut { .. })));
            let failed_page = lost_page(&nand, block).await.unwrap();
            let before = bytes_of(&nand, block, 0, failed_page.max(1) as usize).await;
            if failed_page > 0 {
                let expected: Vec<u8> = (1..=failed_page as u8).collect();
                assert_eq!(before.unwrap(), expected);
            }
        }
    });
}

#[test]
fn every_operation_is_counted_where_it_happened() {
    Sim::new(1).block_on(async {
        let nand = fresh();
        let block = BlockId(17);
        nand.erase(block).await.unwrap();
        nand.program(block, 0, pages(1, 3)).await.unwrap();
        for _ in 0..5 {
            bytes_of(&nand, block, 1, 2).await.unwrap();
        }
        let counts = nand.counts();
        assert_eq!((counts.reads, counts.programs, counts.erases), (10, 3, 1));
        assert_eq!(nand.channel_counts(0), Counts::default());
        assert_eq!(nand.channel_counts(1), counts);
        assert_eq!(nand.erase_count(block), 1);
        assert_eq!(nand.erase_count(BlockId(16)), 0);
    });
}

#[test]
fn impossible_devices_are_refused_in_one_line() {
    let refused = |change: &dyn Fn(&mut flowstone_emulated::NandConfig)| {
        let mut config = small(NandTiming::instant(), Endurance::unlimited());
        change(&mut config);
        let error = Nand::new(config).unwrap_err();
        assert!(!error.to_string().contains('\n'));
        error
    };
    assert_eq!(
        refused(&|config| config.geometry.channels = 0),
        ConfigError::Zero { what: "channel" }
    );
    assert_eq!(
        refused(&|config| config.geometry.page_bytes = 5000),
        ConfigError::PageBytes { page_bytes: 5000 }
    );
    assert_eq!(
        refused(&|config| config.planes = 3),
        ConfigError::Planes {
            blocks: 8,
            planes: 3
        }
    );
    assert!(matches!(
        refused(&|config| config.geometry.blocks_per_lun = 1 << 31),
        ConfigError::TooMany { what: "pages", .. }
    ));
    assert!(matches!(
        refused(&|config| config.endurance.grown_bad = 1.5),
        ConfigError::Share { .. }
    ));
}

#[test]
fn presets_come_in_the_size_asked_for_or_a_little_more() {
    for preset in Preset::ALL {
        preset.full(1).check().unwrap();
        for gib in [1, 3, 64] {
            let asked = gib << 30;
            let config = preset.full(1).sized(asked, 16, 1);
            config.check().unwrap();
            let made = config.raw_bytes();
            let full = preset.full(1);
            assert!(made >= asked, "{preset}: {made} of {asked}");
            assert_eq!(config.geometry.channels, full.geometry.channels);
            assert!(config.geometry.luns_per_channel <= full.geometry.luns_per_channel);
            let unit = u64::from(config.geometry.channels)
                * u64::from(config.geometry.luns_per_channel)
                * u64::from(config.planes)
                * config.geometry.block_bytes();
            assert!(made < asked + unit, "{preset}: {made} of {asked}");
        }
    }
    let full = Preset::Didacache.full(1);
    assert_eq!(full.geometry.block_bytes(), 8 << 20);
    assert!((1.5e12..1.6e12).contains(&(full.raw_bytes() as f64)));
}
