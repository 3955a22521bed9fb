//! Refusals, before anything is lost: impossible drives, settings and superblocks.

use flowstone_slices::{MapSettings, SliceError};
use zerocopy::byteorder::little_endian::U64;

use crate::common::refusals::{self, Set, refused_bytes};
use crate::common::structure::fill;
use crate::life::{DRIVE_BYTES, small, used};

#[test]
fn create_refuses_before_it_overwrites() {
    refusals::create_refuses_before_it_overwrites(&small(8));
}

#[test]
fn what_is_opened_must_be_what_was_created() {
    refusals::what_is_opened_must_be_what_was_created(&small(8));
}

#[test]
fn a_drive_that_has_been_cut_short_is_refused() {
    let settings = small(8);
    let mut items = Vec::new();
    let (hardware, _) = used(&settings, 1, 1, async |map, _| {
        items = fill(&map, 0..300).await;
        map.sync().await.expect("drives work");
    });
    // The error counts the bytes of the table, which lies behind the records.
    let is_refused = |bytes| refused_bytes(&hardware, &settings, bytes, &items).is_some();
    for bytes in (8192..DRIVE_BYTES).step_by(128 << 10) {
        assert!(is_refused(bytes) || bytes > DRIVE_BYTES / 2);
    }
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    let own: [(&str, Set<'_>); 2] = [
        ("segment_bytes", &|block, to| {
            block.own[0] = U64::new(to.into());
        }),
        ("segments", &|block, to| {
            block.own[1] = U64::new(to.into());
        }),
    ];
    let is_told = |error: &SliceError| {
        matches!(
            error,
            SliceError::NoStructure { drive: 0, .. }
                | SliceError::DamagedRecords
                | SliceError::DamagedLog { .. }
                | SliceError::DamagedPart { .. }
        )
    };
    // The others are numbers of the table, which has a superblock of its own.
    let own_names = [
        "page_bytes",
        "channels",
        "chunk_bytes",
        "segment_bytes",
        "segments",
    ];
    let may_be = move |name: &str, to| to <= 1 << 16 || !own_names.contains(&name);
    refusals::a_superblock_that_cannot_be_is_an_error(&small(8), &own, is_told, may_be);
}

#[test]
fn settings_of_a_start_are_looked_at() {
    refusals::settings_of_a_start_are_looked_at(
        &[1, 8193, u32::MAX],
        true,
        |piece_bytes, scheduling| {
            let mut settings = small(8);
            settings.table.piece_bytes = piece_bytes;
            settings.table.scheduling = scheduling;
            settings
        },
    );
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let segment_bytes = |segment_bytes| MapSettings {
        segment_bytes,
        ..small(8)
    };
    let mean_bytes = |mean_bytes| MapSettings {
        mean_bytes,
        ..small(8)
    };
    let mut unlogged = small(8);
    unlogged.table.log_changes = false;
    for (settings, bytes) in [
        (segment_bytes(1000), DRIVE_BYTES),
        (segment_bytes(1 << 20), DRIVE_BYTES),
        (mean_bytes(0), DRIVE_BYTES),
        (unlogged, DRIVE_BYTES),
        (MapSettings::default(), 8 << 20),
    ] {
        let refused = settings.shape(&[bytes]);
        assert!(
            matches!(refused, Err(SliceError::Setting(_))),
            "{refused:?}"
        );
    }
    // However large values are, the table has its space.
    let large = mean_bytes(100_000).shape(&[DRIVE_BYTES]).expect("it fits");
    assert_eq!(large.table.partitions, 3);
    assert!(large.records.bytes() > 3 << 20);
}
