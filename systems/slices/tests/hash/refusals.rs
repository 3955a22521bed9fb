//! Refusals, before anything is lost: files of others, and impossible drives, settings and superblocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{AlignedBuf, Disk, SharedBuf};
use flowstone_slices::encoding::table::SliceSuperblock;
use flowstone_slices::{Channels, Files, HashSettings, SliceError, SliceHash, log_path};
use zerocopy::byteorder::little_endian::{U32, U64};

use crate::common::refusals::{self, Set, change_superblock, refused_bytes};
use crate::common::structure::fill_drives;
use crate::life::{DRIVE_BYTES, small, used, with};

fn create(paths: &[PathBuf], bytes: u64, force: bool) -> Result<SliceHash, SliceError> {
    let settings = small(8, false);
    let words = async |disks: &[Arc<dyn Disk>]| SliceHash::log_words_for(&settings, disks);
    runtime::live::block_on(async {
        let files = Files::create(paths, bytes, force, words).await?;
        SliceHash::create(files.disks, files.journal, &settings).await
    })
}

fn create_at(path: &Path, force: bool) -> Result<SliceHash, SliceError> {
    create(&[path.to_owned()], DRIVE_BYTES, force)
}

fn open(paths: &[PathBuf], settings: &HashSettings) -> Result<SliceHash, SliceError> {
    let files = Files::open(paths)?;
    runtime::live::block_on(SliceHash::open(files.disks, files.journal, settings))
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("it can be read").file_name();
        name.into_string().expect("names are text")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

#[test]
fn files_of_others_that_are_named_as_a_log_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("drive");
    let log = log_path(&path);
    for text in ["the log of another program", "short"] {
        std::fs::write(&log, text).expect("it is written");
        let refused = create_at(&path, false).map(drop);
        assert!(
            matches!(&refused, Err(SliceError::Exists { path }) if *path == log),
            "{refused:?}"
        );
        assert_eq!(std::fs::read(&log).expect("it is there"), text.as_bytes());
        assert_eq!(names_in(directory.path()), ["drive.log"]);
    }
    let forced = create_at(&path, true);
    drop(forced.expect("with force it may be lost"));
    open(&[path], &small(8, false)).expect("what was made is opened");
}

#[test]
fn a_log_that_was_left_behind_is_used_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("drive");
    drop(create_at(&path, false).expect("files work"));
    std::fs::remove_file(&path).expect("it is removed");
    let again = create_at(&path, false);
    drop(again.expect("the log belongs to nothing"));
    std::fs::write(log_path(&path), "").expect("it is emptied");
    std::fs::remove_file(&path).expect("it is removed");
    let empty = create_at(&path, false);
    drop(empty.expect("the log is empty"));
    open(&[path], &small(8, false)).expect("what was made is opened");
}

#[test]
fn a_log_that_is_in_use_is_not_taken_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("drive");
    let table = create_at(&path, false).expect("files work");
    std::fs::rename(&path, directory.path().join("elsewhere")).expect("it is renamed");
    let refused = create_at(&path, true).map(drop);
    let refused = refused.expect_err("it is in use").to_string();
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(names_in(directory.path()), ["drive.log", "elsewhere"]);
    runtime::live::block_on(table.insert(1, 1)).expect("files work");
}

#[test]
fn the_log_of_a_block_device_lies_in_the_current_directory() {
    let is_device = |path: &PathBuf| {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    let entries = std::fs::read_dir("/dev")
        .expect("there are devices")
        .flatten();
    // A machine without block devices skips the check.
    if let Some(path) = entries.map(|entry| entry.path()).find(is_device) {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("devices have names");
        assert_eq!(log_path(&path), Path::new(&format!("{name}.log")));
    }
}

#[test]
fn a_drive_that_is_called_as_the_log_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["a", "a.log"].map(|name| directory.path().join(name));
    let refused = create(&paths, DRIVE_BYTES, true).map(drop);
    assert!(
        matches!(refused, Err(SliceError::DriveIsLog { .. })),
        "{refused:?}"
    );
    assert!(names_in(directory.path()).is_empty());
}

#[test]
fn a_file_that_is_named_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a");
    let link = directory.path().join("link");
    let other = directory.path().join(".").join("a");
    std::os::unix::fs::symlink(&path, &link).expect("it is linked");
    let is_refused = |second: &PathBuf| {
        let paths = [path.clone(), second.clone()];
        let created = create(&paths, DRIVE_BYTES, false).map(drop);
        let opened = open(&paths, &small(8, false)).map(drop);
        for refused in [created, opened] {
            assert!(
                matches!(refused, Err(SliceError::SameDrive { drive: 1 })),
                "{refused:?}"
            );
        }
    };
    is_refused(&path);
    is_refused(&other);
    assert_eq!(names_in(directory.path()), ["link"]);
    std::fs::write(&path, "").expect("it is written");
    is_refused(&link);
}

#[test]
fn a_refused_creation_leaves_no_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    let refused = create(&paths, 8192, false).map(drop);
    assert!(
        matches!(refused, Err(SliceError::SmallDrive { .. })),
        "{refused:?}"
    );
    assert!(names_in(directory.path()).is_empty());
    // The second file cannot be created.
    std::fs::create_dir(&paths[1]).expect("it is made");
    assert!(create(&paths, DRIVE_BYTES, false).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    // More bytes than any file system has space for.
    assert!(create(&paths[..1], 1 << 60, false).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    // `words` has written to the drive.
    let words = async |disks: &[Arc<dyn Disk>]| {
        let page = SharedBuf::from(AlignedBuf::new(4096));
        disks[0].write(0, page).await.expect("files work");
        Err(SliceError::Setting("no such channels".to_owned()))
    };
    let created = Files::create(&paths[..1], DRIVE_BYTES, false, words);
    assert!(runtime::live::block_on(created).is_err());
    assert_eq!(names_in(directory.path()), ["b"]);
    drop(create(&paths[..1], DRIVE_BYTES, false).expect("files work"));
    // Existing files stay.
    let refused = create(&paths[..1], DRIVE_BYTES, false).map(drop);
    assert!(
        matches!(&refused, Err(SliceError::Exists { path }) if *path == paths[0]),
        "{refused:?}"
    );
    assert!(create(&paths, DRIVE_BYTES, true).is_err());
    assert_eq!(names_in(directory.path()), ["a", "a.log", "b"]);
    open(&paths[..1], &small(8, false)).expect("it is as it was");
}

#[test]
fn create_refuses_before_it_overwrites() {
    refusals::create_refuses_before_it_overwrites(&small(8, false));
}

#[test]
fn a_drive_that_is_named_twice_is_refused() {
    refusals::create_refuses_before_it_overwrites(&small(8, true));
}

#[test]
fn what_is_opened_must_be_what_was_created() {
    refusals::what_is_opened_must_be_what_was_created(&small(8, false));
}

/// Shorter than the partitions and a spare region, or than the end of a slicetable.
#[test]
fn a_drive_that_has_been_cut_short_is_refused() {
    for (drives, spread) in [(1, false), (2, false), (2, true)] {
        let settings = small(40, spread);
        let mut region_bytes = 0;
        // Enough keys that slicetables lie in all parts of the drives.
        let (hardware, _) = used(&settings, drives, 1, async |table, _| {
            fill_drives(&table, 0..2_000).await;
            region_bytes = table.shape().region_bytes;
        });
        // Lengths that are certainly too short, then any number of regions: a slicetable may lie behind the end, as the log says.
        let regions = (DRIVE_BYTES - 8192) / region_bytes;
        let short = [
            4096,
            8192,
            16384,
            40 << 10,
            65536,
            200 << 10,
            8192 + 3 * region_bytes,
        ];
        let items: Vec<u64> = (0..2_000).collect();
        let opens = |bytes| {
            let refused = refused_bytes(&hardware, &settings, bytes, &items);
            assert!(refused.is_none_or(|has| has == bytes));
            refused.is_none()
        };
        let opened = short.into_iter().filter(|&bytes| opens(bytes)).count();
        assert!(opened == 0 || opened == 1 && (drives, spread) == (2, false));
        for regions in 4..=regions {
            opens(8192 + regions * region_bytes);
        }
    }
}

#[test]
fn a_superblock_that_cannot_be_is_an_error() {
    let own: [(&str, Set<'_>); 3] = [
        ("table_entries", &|block, to| {
            block.own[0] = U64::new(to.into());
        }),
        ("more table_entries", &|block, to| {
            block.own[0] = U64::new(100 | u64::from(to) << 32);
        }),
        ("side tables", &|block, to| {
            block.own[1] = U64::new(to.into());
        }),
    ];
    let is_told = |error: &SliceError| {
        matches!(
            error,
            SliceError::DamagedLog { .. } | SliceError::DamagedPart { .. }
        )
    };
    let may_be = |_: &str, to| to <= 100;
    refusals::a_superblock_that_cannot_be_is_an_error(&small(8, false), &own, is_told, may_be);
}

#[test]
fn drives_of_one_table_have_the_same_numbers() {
    let settings = small(8, false);
    with(&settings, 2, async |table, hardware| {
        drop(table);
        let change = |block: &mut SliceSuperblock| block.partitions = U32::new(2);
        change_superblock(&hardware.disks[1], change).await;
        let refused = hardware.open(&settings).await.map(drop);
        assert!(
            matches!(refused, Err(SliceError::BadSuperblock { drive: 1, .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn settings_of_a_start_are_looked_at() {
    refusals::settings_of_a_start_are_looked_at(
        &[1, 8193, u32::MAX],
        true,
        |piece_bytes, scheduling| HashSettings {
            piece_bytes,
            scheduling,
            ..small(8, false)
        },
    );
}

#[test]
fn settings_that_overflow_are_refused() {
    let table_bytes = |table_bytes| HashSettings {
        table_bytes,
        ..HashSettings::default()
    };
    let large = Channels {
        count: u32::MAX,
        chunk_bytes: u32::MAX / 4096 * 4096,
    };
    let cases = [
        table_bytes(usize::MAX),
        table_bytes(1 << 50),
        table_bytes(1 << 40),
        table_bytes(32 << 30),
        HashSettings {
            spare_regions: u32::MAX,
            ..HashSettings::default()
        },
        HashSettings {
            channels: large,
            ..HashSettings::default()
        },
        HashSettings {
            page_bytes: 1 << 31,
            channels: Channels {
                count: 1,
                chunk_bytes: 1 << 31,
            },
            piece_bytes: 1 << 31,
            incarnations: 1,
            bucket_entries: Some(1),
            spare_regions: u32::MAX,
            ..table_bytes(32 << 30)
        },
    ];
    for settings in cases {
        let refused = settings.shape(&[1 << 40]);
        assert!(refused.is_err(), "{refused:?} of {settings:?}");
    }
    let most = table_bytes(32 << 30).shape(&[u64::MAX]).expect("it can be");
    assert!(SliceHash::log_words(&table_bytes(32 << 30), &[u64::MAX]).is_ok());
    assert!(most.table_entries > 1 << 30, "{most:?}");
    assert!(table_bytes(usize::MAX).partitions_in(u64::MAX).is_err());
}
