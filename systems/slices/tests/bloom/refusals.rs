//! Refusals, before anything is lost: impossible drives, settings and superblocks.

use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuf, Disk, Image, Journal, MemoryJournal, SharedBuf};
use flowstone_slices::{BloomSettings, Scheduling, SliceBloom, SliceError};
use format::slices::SliceSuperblock;
use runtime::sim::Sim;
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::life::{DRIVE_BYTES, Hardware, PLACEMENTS, key, small};

#[test]
fn create_refuses_before_it_overwrites() {
    let settings = small(8, PLACEMENTS[0]);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 2, 1);
        let filter = hardware.create(&settings).await.expect("drives work");
        filter.insert(&key(1)).await.expect("drives work");
        drop(filter);
        let (disks, journal) = hardware.parts();
        let short: Arc<dyn Journal> = Arc::new(MemoryJournal::new(512));
        let refused = SliceBloom::create(disks.clone(), short, &settings).await;
        assert!(matches!(refused, Err(SliceError::ShortLog { .. })));
        let twice = || vec![Arc::clone(&disks[0]), Arc::clone(&disks[0])];
        let created = SliceBloom::create(twice(), Arc::clone(&journal), &settings).await;
        let opened = SliceBloom::open(twice(), journal, &settings).await;
        for refused in [created, opened] {
            assert!(matches!(refused, Err(SliceError::SameDrive { drive: 1 })));
        }
        let filter = hardware.open(&settings).await.expect("it is as it was");
        assert!(filter.may_contain(&key(1)).await.expect("drives work"));
    });
}

#[test]
fn a_drive_that_has_been_cut_short_is_refused() {
    let settings = small(8, PLACEMENTS[1]);
    let hardware = Hardware::new(&settings, 1, 1);
    let region_bytes = Sim::new(1).block_on(async {
        let filter = hardware.create(&settings).await.expect("drives work");
        // Enough keys that slicetables lie in all parts of the drives.
        for number in 0..20_000 {
            filter.insert(&key(number)).await.expect("drives work");
        }
        filter.flush().await.expect("drives work");
        filter.shape().region_bytes
    });
    let regions = (DRIVE_BYTES - 8192) / region_bytes;
    let with_regions = (0..=regions).map(|regions| 8192 + regions * region_bytes);
    let mut opened = 0;
    for len in [4096, 8192, 12288].into_iter().chain(with_regions) {
        let mut left = hardware.killed(1);
        let mut bytes = vec![0; len as usize];
        left.images[0].read(0, &mut bytes);
        left.images[0] = Image::new(len);
        left.images[0].write(0, &bytes);
        let again = Hardware::of(left, 1);
        Sim::new(1).block_on(async {
            match again.open(&settings).await {
                Ok(filter) => {
                    // Three partitions and a spare region.
                    assert!(len >= 8192 + 4 * region_bytes);
                    for number in 0..100 {
                        filter.may_contain(&key(number)).await.expect("it is whole");
                    }
                    opened += 1;
                }
                Err(SliceError::ShortDrive { drive, has, needs }) => {
                    assert_eq!((drive, has), (0, len));
                    assert!(has < needs && needs <= DRIVE_BYTES, "{needs}");
                }
                Err(error) => panic!("{len}: {error}"),
            }
        });
    }
    assert!((1..regions).contains(&opened), "{opened} of {regions}");
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    type Set = fn(&mut SliceSuperblock, u32);
    let fields: [(&str, Set); 15] = [
        ("partitions", |block, to| block.partitions = U32::new(to)),
        ("pages", |block, to| block.pages = U32::new(to)),
        ("page_bytes", |block, to| block.page_bytes = U32::new(to)),
        ("incarnations", |block, to| {
            block.incarnations = U32::new(to);
        }),
        ("slots_per_page", |block, to| {
            block.slots_per_page = U32::new(to);
        }),
        ("bucket_entries", |block, to| {
            block.bucket_entries = U32::new(to);
        }),
        ("filter_bytes", |block, to| {
            block.filter_bytes = U32::new(to);
        }),
        ("channels", |block, to| block.channels = U32::new(to)),
        ("chunk_bytes", |block, to| block.chunk_bytes = U32::new(to)),
        ("spread", |block, to| block.spread = U32::new(to)),
        ("keys", |block, to| block.own[0] = U64::new(to.into())),
        ("more keys", |block, to| {
            block.own[0] = U64::new(100 | u64::from(to) << 32);
        }),
        ("functions", |block, to| block.own[1] = U64::new(to.into())),
        ("placement", |block, to| block.own[2] = U64::new(to.into())),
        ("nothing", |block, to| block.own[3] = U64::new(to.into())),
    ];
    for (name, set) in fields {
        for to in [0, 1, 100, 1 << 16, 1 << 31, u32::MAX] {
            for placement in PLACEMENTS {
                println!("{name} = {to}");
                let settings = small(8, placement);
                let change = |block: &mut SliceSuperblock| set(block, to);
                Sim::new(1).block_on(with_superblock(&settings, name, to, change));
            }
        }
    }
}

async fn with_superblock(
    settings: &BloomSettings,
    name: &str,
    to: u32,
    change: impl FnOnce(&mut SliceSuperblock),
) {
    let hardware = Hardware::new(settings, 1, 1);
    let filter = hardware.create(settings).await.expect("drives work");
    for number in 0..100 {
        filter.insert(&key(number)).await.expect("drives work");
    }
    filter.flush().await.expect("drives work");
    drop(filter);
    let page = hardware.disks[0].read(0, AlignedBuf::new(4096)).await;
    let mut page = page.expect("drives work");
    let mut block = SliceSuperblock::decode(&page).expect("it is one");
    change(&mut block);
    block.encode(&mut page);
    let written = hardware.disks[0].write(0, SharedBuf::from(page)).await;
    written.expect("drives work");
    let filter = match hardware.open(settings).await {
        // Another number that a filter may have: its bits are damaged or missing.
        Ok(filter) => filter,
        Err(error) => {
            let is_told = matches!(
                error,
                SliceError::BadSuperblock { drive: 0, .. }
                    | SliceError::ShortDrive { drive: 0, .. }
                    | SliceError::ShortLog { .. }
            );
            assert!(is_told, "{name} = {to}: {error}");
            return;
        }
    };
    assert!(to <= 100, "{name} = {to} cannot be");
    for number in 0..300 {
        let _ = filter.may_contain(&key(number)).await;
        let key = key(number);
        let inserted = runtime::timeout(Duration::from_secs(100), filter.insert(&key));
        let _ = inserted.await.expect("it does not hang");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let settings = small(8, PLACEMENTS[0]);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        drop(hardware.create(&settings).await.expect("drives work"));
        let scheduling = |queue_depth, channel_depth| BloomSettings {
            scheduling: Scheduling {
                queue_depth,
                channel_depth,
                is_channel_aware: true,
            },
            ..settings.clone()
        };
        let piece_bytes = |piece_bytes| BloomSettings {
            piece_bytes,
            ..settings.clone()
        };
        for wrong in [piece_bytes(0), scheduling(0, 1), scheduling(1, 0)] {
            let refused = hardware.open(&wrong).await.map(drop);
            assert!(
                matches!(refused, Err(SliceError::Setting(_))),
                "{refused:?}"
            );
        }
        for bytes in [1, 8193, u32::MAX] {
            let opened = hardware.open(&piece_bytes(bytes)).await;
            let filter = opened.expect("drives work");
            for number in 0..1_000 {
                filter.insert(&key(number)).await.expect("drives work");
            }
            filter.flush().await.expect("drives work");
            let stats = filter.stats();
            assert!(stats.flushes > 0 && stats.pages_lost == 0, "{stats:?}");
        }
    });
    let filter_bytes = |filter_bytes| BloomSettings {
        filter_bytes,
        ..BloomSettings::default()
    };
    for bytes in [usize::MAX, 1 << 61, 1 << 50, (512 << 20) + 1] {
        let settings = filter_bytes(bytes);
        assert!(settings.shape(&[u64::MAX]).is_err());
        assert!(settings.partitions_in(u64::MAX).is_err());
    }
    let most = filter_bytes(512 << 20);
    assert!(SliceBloom::log_words(&most, &[u64::MAX]).is_ok());
    let spare = BloomSettings {
        spare_regions: u32::MAX,
        ..most
    };
    assert!(spare.shape(&[1 << 40]).is_err());
}
