//! Refusals, before anything is lost: impossible drives, settings and superblocks.

use std::sync::Arc;

use device::MemoryJournal;
use flowstone_slices::{BloomSettings, HashSettings, SliceBloom, SliceHash};
use zerocopy::byteorder::little_endian::U64;

use crate::common::refusals::{self, Set, refusal, refused_bytes};
use crate::common::structure::fill_drives;
use crate::life::{DRIVE_BYTES, PLACEMENTS, small, used, with};

#[test]
fn create_refuses_before_it_overwrites() {
    refusals::create_refuses_before_it_overwrites(&small(8, PLACEMENTS[0]));
}

#[test]
fn what_is_opened_must_be_what_was_created() {
    let settings = small(8, PLACEMENTS[0]);
    refusals::what_is_opened_must_be_what_was_created(&settings);
    with(&settings, 2, async |_, hardware| {
        let (disks, journal) = hardware.parts();
        let hash = HashSettings {
            partitions: Some(1),
            table_bytes: 8 << 10,
            incarnations: 3,
            ..HashSettings::default()
        };
        let as_table = refusal(SliceHash::open(disks.clone(), journal, &hash).await);
        assert!(
            as_table.contains("holds a Bloom filter, not a hash table"),
            "{as_table}"
        );
        let words = SliceHash::log_words(&hash, &[DRIVE_BYTES; 2]).expect("they can be");
        let log = Arc::new(MemoryJournal::new(words));
        let made = SliceHash::create(disks, log, &hash).await;
        drop(made.expect("drives work"));
        let as_filter = refusal(hardware.open(&settings).await);
        assert!(
            as_filter.contains("holds a hash table, not a Bloom filter"),
            "{as_filter}"
        );
    });
}

#[test]
fn a_drive_that_has_been_cut_short_is_refused() {
    let settings = small(8, PLACEMENTS[1]);
    let mut region_bytes = 0;
    // Enough keys that slicetables lie in all parts of the drives.
    let (hardware, _) = used(&settings, 1, 1, async |filter, _| {
        fill_drives(&filter, 0..20_000).await;
        region_bytes = filter.shape().region_bytes;
    });
    let regions = (DRIVE_BYTES - 8192) / region_bytes;
    let with_regions = (0..=regions).map(|regions| 8192 + regions * region_bytes);
    let newest: Vec<u64> = (19_900..20_000).collect();
    let mut opened = 0;
    for bytes in [4096, 8192, 12288].into_iter().chain(with_regions) {
        let refused = refused_bytes(&hardware, &settings, bytes, &newest);
        // Three partitions and a spare region.
        assert!(refused == Some(bytes) || refused.is_none() && bytes >= 8192 + 4 * region_bytes);
        opened += u64::from(refused.is_none());
    }
    assert!((1..regions).contains(&opened), "{opened} of {regions}");
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    let own: [(&str, Set<'_>); 5] = [
        ("keys", &|block, to| block.own[0] = U64::new(to.into())),
        ("more keys", &|block, to| {
            block.own[0] = U64::new(100 | u64::from(to) << 32);
        }),
        ("functions", &|block, to| block.own[1] = U64::new(to.into())),
        ("placement", &|block, to| block.own[2] = U64::new(to.into())),
        ("nothing", &|block, to| block.own[3] = U64::new(to.into())),
    ];
    for placement in PLACEMENTS {
        let settings = small(8, placement);
        let may_be = |_: &str, to| to <= 100;
        refusals::a_superblock_that_cannot_be_is_an_error(&settings, &own, |_| false, may_be);
    }
}

#[test]
fn settings_of_a_start_are_looked_at() {
    refusals::settings_of_a_start_are_looked_at(
        &[1, 8193, u32::MAX],
        true,
        |piece_bytes, scheduling| BloomSettings {
            piece_bytes,
            scheduling,
            ..small(8, PLACEMENTS[0])
        },
    );
}

#[test]
fn settings_that_cannot_be_are_refused() {
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
